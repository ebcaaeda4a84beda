"""Contexts of retrievals: who names them, and the counters and base rates that are kept by them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    Policy,
    govern,
    memory_worth,
)
from langchain_memoryworth.errors import MemoryNotFoundError
from tests.fakes import HashedWords, assert_exact, query
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]


def contexts(store: MemoryWorthStore) -> list[str | None]:
    return [c for (c,) in query(store, "SELECT context FROM exposures ORDER BY eid, seq")]


@pytest.fixture
def tea(make_store: StoreMaker, url: str) -> MemoryWorthStore:
    store = make_store(url, policy=plain(suppress=False))
    store.add_texts(["tea", "coffee"], ids=["t", "c"])
    return store


def test_metadata_of_the_run_name_the_context(tea: MemoryWorthStore) -> None:
    handler = MemoryWorthCallbackHandler(tea)
    chain = RunnableLambda(lambda q: q) | tea.as_retriever(k=1)
    config = {"callbacks": [handler], "metadata": {"memory_context": "drinks"}}
    chain.invoke("tea", config)
    assert contexts(tea) == ["drinks"]


def test_the_retriever_names_the_context(tea: MemoryWorthStore) -> None:
    retriever = tea.as_retriever(k=1, context=lambda q: "hot" if "tea" in q else None)
    with tea.episode("one"):
        retriever.invoke("tea")
    with tea.episode("two", context="other"):
        retriever.invoke("coffee")
    with tea.episode("three"):
        retriever.invoke("coffee", context="cold")
    assert contexts(tea) == ["hot", "other", "cold"]


def test_a_context_function_that_fails_does_not_stop_the_run(tea: MemoryWorthStore) -> None:
    with tea.episode():
        assert len(tea.as_retriever(k=1, context=lambda q: 1 / 0).invoke("tea")) == 1
    assert contexts(tea) == [None]
    assert "the context of a query" in tea.health().failures


async def test_async_retrieval_has_the_context_too(tea: MemoryWorthStore) -> None:
    with tea.episode(context="drinks"):
        await tea.as_retriever(k=1).ainvoke("tea")
    assert contexts(tea) == ["drinks"]


def test_other_retrievers_and_stores_elsewhere_have_the_context(tea: MemoryWorthStore) -> None:
    class Other(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: object) -> list[Document]:
            return [Document("tea", id="t")]

    handler = MemoryWorthCallbackHandler(tea)
    config = {"callbacks": [handler], "metadata": {"memory_context": "drinks"}}
    (RunnableLambda(lambda q: q) | Other()).invoke("tea", config)
    notes = InMemoryVectorStore.from_texts(["cake"], HashedWords())
    (RunnableLambda(lambda q: q) | govern(notes, tea, k=1)).invoke("cake", config)
    with memory_worth(tea):
        RunnableLambda(lambda q: tea.as_retriever(k=1).invoke(q)).invoke(
            "tea", {"metadata": {"memory_context": "more"}}
        )
    assert contexts(tea) == ["drinks", "drinks", "more"]


def test_counters_are_kept_by_context_and_corrected_with_the_outcome(tea: MemoryWorthStore) -> None:
    for i in range(12):
        with tea.episode(f"run-{i}", context=("easy", "hard", "")[i % 3]) as episode:
            tea.similarity_search("tea", k=2)
        episode.record(i % 3 == 0)
    whole, easy, hard = tea.by_context("t")
    assert [c.context for c in (whole, easy, hard)] == ["", "easy", "hard"]
    assert (whole.worth, easy.worth, hard.worth) == pytest.approx((1 / 3, 1.0, 0.0))
    assert (easy.evidence.retrievals, hard.evidence.retrievals) == (4, 4)
    # (4 + 2/2) / (12 + 2) for the namespace, and two episodes of that beside the context's own four.
    parent = 5 / 14
    assert tea.base_rate() == pytest.approx(parent)
    assert easy.base_rate == tea.base_rate("easy") == pytest.approx((4 + 2 * parent) / 6)
    assert hard.advantage == pytest.approx(-2 * parent / 6)
    assert_exact(tea)
    tea.record_outcome("run-1", True)
    assert tea.by_context("t")[2].worth == pytest.approx(0.25)
    tea.withdraw_outcome("run-1")
    assert tea.by_context("t")[2].evidence.retrievals == 3
    assert_exact(tea)


def test_an_erased_memory_leaves_no_context_behind(tea: MemoryWorthStore) -> None:
    with tea.episode(context="about ada") as episode:
        tea.similarity_search("tea", k=1)
    episode.record(True)
    tea.erase("t")
    for table in ("rates", "strata", "exposures"):
        assert "about ada" not in str(query(tea, f"SELECT * FROM {table}"))
    assert_exact(tea)


def test_wrong_ids(tea: MemoryWorthStore) -> None:
    with pytest.raises(MemoryNotFoundError):
        tea.by_context("nobody")


async def test_async_twins(make_store: StoreMaker) -> None:
    store = make_store(policy=Policy())
    store.add_texts(["tea"], ids=["t"])
    assert [str(c) for c in await store.aby_context("t")] == [
        "all: worth 0.50, base rate 0.50, 0 retrievals"
    ]
    assert await store.abase_rate("any") == 0.5
