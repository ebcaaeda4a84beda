"""The retriever against LangChain itself: arguments, namespaces, attribution, and a ledger that cannot be written."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tools import create_retriever_tool
from pydantic import ValidationError

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthRetriever,
    MemoryWorthStore,
)
from langchain_memoryworth.adapters.retriever import cosine_of
from langchain_memoryworth.errors import InvalidInputError, NamespaceError, UnknownRunError
from tests.conftest import StoreMaker
from tests.runs_fixtures import WORDS, broken_ledger, filled, shown, text

Ask = Callable[..., list[Document]]


@pytest.fixture
def memories(store: MemoryWorthStore) -> MemoryWorthStore:
    return filled(store)


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """`invoke`, or `ainvoke` on a loop of its own."""
    if request.param == "sync":
        return lambda retriever, *a, **k: retriever.invoke(*a, **k)
    return lambda retriever, *a, **k: asyncio.run(retriever.ainvoke(*a, **k))


def ids(documents: list[Document]) -> list[str | None]:
    return [d.id for d in documents]


# -- arguments -----------------------------------------------------------------------------------------------------


def test_k_is_a_field_and_an_argument(memories: MemoryWorthStore, ask: Ask) -> None:
    retriever = memories.as_retriever(search_kwargs={"k": 3})
    assert len(ask(retriever, "apple")) == 3
    assert len(ask(retriever, "apple", k=2)) == 2
    assert len(ask(retriever, "apple")) == 3


def test_every_field_is_an_argument(memories: MemoryWorthStore, ask: Ask) -> None:
    memories.add_texts(["apple pie"], [{"kind": "cake"}], ids=["pie"])
    memories.add_texts(["apple"], ids=["theirs"], namespace="other")
    retriever = memories.as_retriever(k=4)
    assert ids(ask(retriever, "apple", filter={"kind": "cake"})) == ["pie"]
    assert ids(ask(retriever, "apple", namespace="other")) == ["theirs"]
    near = ask(retriever, "apple", search_type="similarity_score_threshold", score_threshold=0.99)
    assert ids(near) == ["apple"]
    assert ids(ask(retriever, "apple", k=1, rank=(0.0, 1.0))) != []


@pytest.mark.parametrize(
    "wrong",
    [
        {"kk": 3},
        {"search_type": "nearest"},
        {"search_type": "similarity_score_threshold"},
        {"score_threshold": 7.0},
        {"lambda_mult": -1},
        {"fetch_k": 0},
        {"k": 0},
        {"k": "three"},
        {"namespace": ("",)},
    ],
    ids=str,
)
def test_a_wrong_argument_is_a_typed_error(
    memories: MemoryWorthStore, ask: Ask, wrong: dict[str, Any]
) -> None:
    retriever = memories.as_retriever()
    with pytest.raises(InvalidInputError):
        ask(retriever, "apple", **wrong)
    assert len(ask(retriever, "apple")) == 4


@pytest.mark.parametrize("wrong", [{"kk": 3}, {"k": 0}, {"search_type": "nearest"}], ids=str)
def test_a_wrong_field_is_refused(memories: MemoryWorthStore, wrong: dict[str, Any]) -> None:
    with pytest.raises((ValidationError, InvalidInputError)):
        memories.as_retriever(**wrong)


def test_a_store_is_needed() -> None:
    with pytest.raises(ValueError, match="MemoryWorthStore"):
        MemoryWorthRetriever(store="memories.db")  # type: ignore[arg-type]


def test_the_threshold_is_a_relevance(memories: MemoryWorthStore, ask: Ask) -> None:
    memories.add_texts(["apple bread"], ids=["both"])
    scored = {d.id: s for d, s in memories.similarity_search_with_relevance_scores("apple", k=9)}
    between = (scored["both"] + scored["apple"]) / 2
    retriever = memories.as_retriever(
        search_type="similarity_score_threshold", search_kwargs={"score_threshold": between}
    )
    assert ids(ask(retriever, "apple")) == ["apple"]
    assert cosine_of(between) == pytest.approx(2 * between - 1)
    looser = ask(retriever, "apple", score_threshold=scored["both"] - 1e-3)
    assert ids(looser)[:2] == ["apple", "both"]


def test_mmr_prefers_what_is_unlike(make_store: StoreMaker, ask: Ask) -> None:
    store = make_store()
    store.add_texts(["apple bread", "apple bread cedar", "apple delta"], ids=["a", "b", "c"])
    plain = store.as_retriever(search_kwargs={"k": 2})
    diverse = store.as_retriever(
        search_type="mmr", search_kwargs={"k": 2, "fetch_k": 3, "lambda_mult": 0.1}
    )
    assert ids(ask(plain, "apple bread")) == ["a", "b"]
    assert ids(ask(diverse, "apple bread")) == ["a", "c"]
    assert ids(ask(diverse, "apple bread", lambda_mult=1.0)) == ["a", "b"]


def test_no_score_is_written_into_documents(memories: MemoryWorthStore, ask: Ask) -> None:
    retriever = memories.as_retriever(k=1)
    first, second = ask(retriever, "apple"), ask(retriever, "apple apple apple bread")
    assert first == second == [Document(id="apple", page_content="apple")]


# -- namespaces ----------------------------------------------------------------------------------------------------


@pytest.fixture
def users(memories: MemoryWorthStore) -> MemoryWorthStore:
    for user in ("ann", "bob", "100%_", "a/b"):
        memories.add_texts([f"apple of {user}"], ids=["apple"], namespace=("users", user))
    return memories


@pytest.mark.parametrize("place", ["metadata", "configurable"])
@pytest.mark.parametrize("user", ["ann", "bob", "a/b", "100%_"])
def test_a_namespace_is_filled_in_from_the_run(
    users: MemoryWorthStore, ask: Ask, place: str, user: str
) -> None:
    retriever = users.as_retriever(namespace=("users", "{user_id}"))
    found = ask(retriever, "apple", config={place: {"user_id": user}})
    assert text(found) == f"apple of {user}"


def test_a_namespace_is_filled_in_from_an_enclosing_run(users: MemoryWorthStore, ask: Ask) -> None:
    retriever = users.as_retriever(namespace=("users", "{user_id}"))
    chain = RunnableLambda(retriever.invoke) | text
    for place in ("metadata", "configurable"):
        assert ask(chain, "apple", config={place: {"user_id": "bob"}}) == "apple of bob"


@pytest.mark.parametrize(
    "config", [None, {}, {"metadata": {"user_id": ""}}, {"configurable": {"user": "ann"}}], ids=str
)
def test_a_missing_user_is_an_error_and_not_another_user(
    users: MemoryWorthStore, ask: Ask, config: Any
) -> None:
    retriever = users.as_retriever(namespace=("users", "{user_id}"))
    with pytest.raises(NamespaceError, match="user_id"):
        ask(retriever, "apple", config=config)


def test_users_do_not_see_each_other_under_concurrency(memories: MemoryWorthStore) -> None:
    names = [f"user-{n}" for n in range(24)]
    for name in names:
        memories.add_texts([f"apple of {name}"], ids=["apple"], namespace=("users", name))
    retriever = memories.as_retriever(namespace=("users", "{user_id}"))
    chain = RunnableLambda(retriever.invoke) | text
    configs: list[Any] = [
        {("metadata", "configurable")[n % 2]: {"user_id": name}} for n, name in enumerate(names)
    ]
    expected = [f"apple of {n}" for n in names]
    assert chain.batch(["apple"] * 24, configs) == expected

    async def everyone() -> list[str]:
        calls = (retriever.ainvoke("apple", c) for c in configs)
        return [text(found) for found in await asyncio.gather(*calls)]

    assert asyncio.run(everyone()) == expected


def test_a_retrieval_leaves_no_user_behind(users: MemoryWorthStore) -> None:
    retriever = users.as_retriever(namespace=("users", "{user_id}"))
    retriever.invoke("apple", {"configurable": {"user_id": "ann"}})
    with pytest.raises(NamespaceError):
        retriever.invoke("apple")


# -- runnable ------------------------------------------------------------------------------------------------------


def test_tags_metadata_and_name_reach_the_handlers(memories: MemoryWorthStore, ask: Ask) -> None:
    seen: dict[str, Any] = {}

    class Spy(MemoryWorthCallbackHandler):
        def on_retriever_start(self, *args: Any, **kwargs: Any) -> None:
            seen.update(kwargs)
            super().on_retriever_start(*args, **kwargs)

    retriever = memories.as_retriever(tags=["mine"], metadata={"team": "blue"})
    ask(
        retriever.with_config(tags=["more"], run_name="look up"),
        "apple",
        config={"callbacks": [Spy(memories)], "metadata": {"team": "red", "shift": 2}},
    )
    assert {"mine", "more"} <= set(seen["tags"])
    assert seen["name"] == "look up"
    assert (seen["metadata"]["team"], seen["metadata"]["shift"]) == ("blue", 2)
    assert seen["metadata"]["ls_vector_store_provider"] == "MemoryWorthStore"


def test_batch_and_stream(memories: MemoryWorthStore) -> None:
    retriever = memories.as_retriever(k=1)
    queries = list(WORDS)
    assert [ids(d) for d in retriever.batch(queries)] == [[w] for w in WORDS]
    assert [ids(d) for d in retriever.batch(queries, {"max_concurrency": 2})] == [
        [w] for w in WORDS
    ]
    assert [ids(d) for d in retriever.stream("apple")] == [["apple"]]

    async def in_async() -> None:
        assert [ids(d) for d in await retriever.abatch(queries)] == [[w] for w in WORDS]
        assert [ids(d) async for d in retriever.astream("apple")] == [["apple"]]

    asyncio.run(in_async())


def test_configurable_fields(memories: MemoryWorthStore, ask: Ask) -> None:
    retriever = memories.as_retriever(k=1).configurable_fields(k=ConfigurableField(id="depth"))
    assert len(ask(retriever, "apple")) == 1
    assert len(ask(retriever, "apple", config={"configurable": {"depth": 5}})) == 5


def test_a_retriever_tool(memories: MemoryWorthStore, ask: Ask) -> None:
    tool = create_retriever_tool(memories.as_retriever(k=1), "recall", "Looks things up.")
    assert ask(tool, {"query": "cedar"}) == "cedar"


# -- attribution ---------------------------------------------------------------------------------------------------


def test_a_retrieval_without_a_run_is_counted(memories: MemoryWorthStore, ask: Ask) -> None:
    ask(memories.as_retriever(), "apple")
    memories.similarity_search("apple")
    assert memories.health().unattributed == 2
    assert memories.health().episodes == 0
    assert memories.health().ok


def test_a_detached_retrieval_is_counted(memories: MemoryWorthStore, ask: Ask) -> None:
    retriever = memories.as_retriever(k=1)
    chain = RunnableLambda(lambda q: retriever.invoke(q, {"callbacks": []})) | text
    handler = MemoryWorthCallbackHandler(memories)
    ask(chain, "apple", config={"callbacks": [handler]})
    assert memories.health().unattributed == 1
    assert memories.health().episodes == 0


def test_own_threads_are_counted_unless_they_copy_the_context(
    memories: MemoryWorthStore, ask: Ask
) -> None:
    retriever = memories.as_retriever(k=1)
    run_id = uuid.uuid4()

    def node(query: str) -> str:
        with ThreadPoolExecutor(2) as pool:
            bare = pool.submit(retriever.invoke, "apple")
            copied = pool.submit(copy_context().run, retriever.invoke, "bread")
            search = pool.submit(copy_context().run, memories.similarity_search, "cedar", 1)
            return text(bare.result() + copied.result() + search.result())

    handler = MemoryWorthCallbackHandler(memories)
    out = ask(RunnableLambda(node), "", config={"callbacks": [handler], "run_id": run_id})
    assert out == "apple bread cedar"
    assert memories.health().unattributed == 1
    assert shown(memories, run_id) == {"bread", "cedar"}


def test_own_threads_inside_an_episode(memories: MemoryWorthStore) -> None:
    retriever = memories.as_retriever(k=1)

    def work(word: str) -> None:
        with memories.episode(f"thread-{word}") as episode:
            retriever.invoke(word)
            episode.record(word == "apple")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, WORDS))
    assert memories.worth("apple") == 1.0
    assert all(memories.worth(w) == 0.0 for w in WORDS[1:])
    assert memories.health().unattributed == 0


def test_an_episode_gathers_several_calls(memories: MemoryWorthStore, ask: Ask) -> None:
    retriever = memories.as_retriever(k=1)
    with memories.episode(thread_id="t") as episode:
        ask(retriever, "apple")
        memories.similarity_search("bread", k=1)
        ask(RunnableLambda(retriever.invoke), "cedar")
    assert shown(memories, episode.id) == {"apple", "bread", "cedar"}
    assert memories.run(episode.id).thread_id == "t"
    assert episode.record(True)
    assert not episode.record(True)
    assert memories.evidence("bread").retrievals == 1


def test_a_handler_inside_an_episode_is_the_same_episode(
    memories: MemoryWorthStore, ask: Ask
) -> None:
    handler = MemoryWorthCallbackHandler(memories, outcome=lambda run: True)
    chain = memories.as_retriever(k=1) | text
    with memories.episode() as episode:
        ask(chain, "apple", config={"callbacks": [handler]})
        ask(chain, "bread", config={"callbacks": [handler]})
    assert shown(memories, episode.id) == {"apple", "bread"}
    assert memories.health().episodes == 1
    assert memories.run(episode.id).reward == 1.0
    assert memories.evidence("apple").retrievals == memories.evidence("bread").retrievals == 1


@pytest.mark.parametrize("handled", [False, True], ids=["without handler", "with handler"])
def test_the_metadata_key_names_the_episode(
    memories: MemoryWorthStore, ask: Ask, handled: bool
) -> None:
    callbacks = [MemoryWorthCallbackHandler(memories)] if handled else []
    chain = memories.as_retriever(k=1) | text
    for word in ("apple", "bread"):
        config = {"metadata": {"episode_id": "ticket-7"}, "callbacks": callbacks}
        ask(chain, word, config=config)
    assert shown(memories, "ticket-7") == {"apple", "bread"}
    assert memories.record_outcome("ticket-7", False)
    assert memories.worth("apple") == memories.worth("bread") == 0.0
    assert memories.health().unattributed == 0


def test_a_direct_search_inside_a_run(memories: MemoryWorthStore, ask: Ask) -> None:
    run_id = uuid.uuid4()
    chain = RunnableLambda(lambda q: memories.similarity_search(q, k=1)) | text
    handler = MemoryWorthCallbackHandler(memories)
    ask(chain, "apple", config={"callbacks": [handler], "run_id": run_id})
    assert shown(memories, run_id) == {"apple"}


def test_looking_without_showing(memories: MemoryWorthStore) -> None:
    with memories.episode() as episode:
        memories.governor.retrieval.recall("apple", 1, track=False)
        memories.explain_search("apple")
    with pytest.raises(UnknownRunError):
        memories.run(episode.id)
    assert memories.health().unattributed == 0


def test_an_empty_store_is_no_error(make_store: StoreMaker, ask: Ask) -> None:
    store = make_store()
    with store.episode() as episode:
        assert ask(store.as_retriever(), "apple") == []
    assert episode.record(True) is False  # nothing to give credit to
    with pytest.raises(UnknownRunError):
        store.record_outcome(episode.id, True)


# -- a ledger that cannot be written -------------------------------------------------------------------------------


def test_documents_come_also_when_nothing_can_be_recorded(
    memories: MemoryWorthStore, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    retriever = memories.as_retriever(k=2)
    handler = MemoryWorthCallbackHandler(memories, outcome=lambda run: True)
    with (
        caplog.at_level(logging.WARNING, "langchain_memoryworth"),
        broken_ledger(memories),
        memories.episode() as episode,
    ):
        for _ in range(3):
            assert "apple" in ids(ask(retriever, "apple", config={"callbacks": [handler]}))
        assert text(memories.similarity_search("bread", k=1)) == "bread"
    health = memories.health()
    assert health.failures["what a run retrieved"] >= 4
    assert "StorageReadOnlyError" in (health.last_failure or "")
    assert not health.ok
    assert len([r for r in caplog.records if "what a run retrieved" in r.getMessage()]) == 1
    with pytest.raises(UnknownRunError):
        memories.run(episode.id)
    with memories.episode() as later:
        ask(retriever, "apple")
    assert "apple" in shown(memories, later.id)


def test_a_failing_search_is_raised(memories: MemoryWorthStore, ask: Ask) -> None:
    memories.close()
    with pytest.raises(Exception, match="closed"):
        ask(memories.as_retriever(), "apple")
