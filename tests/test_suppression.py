"""The suppression filter in front of prompts: as a compressor and as a runnable, for retrievers of any kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore, SuppressionFilter
from tests.conftest import StoreMaker
from tests.policies import plain
from tests.runs_fixtures import Foreign, filled, rewards, shown, text

Call = Callable[[Any, Any, Any], Any]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    if request.param == "sync":
        return lambda runnable, value, config=None: runnable.invoke(value, config)
    return lambda runnable, value, config=None: asyncio.run(runnable.ainvoke(value, config))


@pytest.fixture
def memories(make_store: StoreMaker, url: str) -> MemoryWorthStore:
    """The words; `bread` and `delta` have failed so often that they are suppressed."""
    store = make_store(url, policy=plain())
    filled(store)
    fail(store, "bread", "delta")
    assert {m.id for m in store.suppressed()} == {"bread", "delta"}
    return store


def fail(store: MemoryWorthStore, *words: str, namespace: Any = None) -> None:
    for n in range(20):
        for word in words:
            with store.episode(f"{namespace}-{word}-{n}") as episode:
                found = store.similarity_search(
                    word, k=1, namespace=namespace, filter=lambda d, w=word: d.id == w
                )
            if found:
                episode.record(False)


ALL = ("apple", "bread", "cedar", "delta", "nobody")
LEFT = ["apple", "cedar", "nobody"]


def ids(documents: Any) -> list[str]:
    return [d.id for d in documents]


def test_it_drops_what_is_suppressed(memories: MemoryWorthStore, call: Call) -> None:
    chain = Foreign(ids=ALL) | SuppressionFilter(memories)
    assert ids(call(chain, "?", None)) == LEFT


def test_as_a_compressor(memories: MemoryWorthStore, call: Call) -> None:
    retriever = ContextualCompressionRetriever(
        base_compressor=SuppressionFilter(memories), base_retriever=Foreign(ids=ALL)
    )
    handler = MemoryWorthCallbackHandler(memories, lambda run: True)
    before = memories.evidence("bread")
    assert call(retriever | ids, "?", {"callbacks": [handler]}) == LEFT
    episode = list(rewards(memories))[-1]
    assert shown(memories, episode) == {"apple", "cedar"}
    assert memories.run(episode).reward == 1.0
    assert memories.evidence("bread") == before
    assert memories.evidence("apple").retrievals == 1


def test_in_a_pipeline_of_compressors(memories: MemoryWorthStore, call: Call) -> None:
    twice = DocumentCompressorPipeline(
        transformers=[SuppressionFilter(memories), SuppressionFilter(memories)]
    )
    retriever = ContextualCompressionRetriever(
        base_compressor=twice, base_retriever=Foreign(ids=ALL)
    )
    assert ids(call(retriever, "?", None)) == LEFT


def test_what_it_drops_in_a_chain_is_not_credited(memories: MemoryWorthStore, call: Call) -> None:
    seen: list[list[str]] = []

    def outcome(run: Any) -> bool:
        seen.append(ids(run.memories))
        return True

    before = memories.evidence("bread")
    chain = Foreign(ids=ALL) | SuppressionFilter(memories) | text
    handler = MemoryWorthCallbackHandler(memories, outcome)
    assert call(chain, "?", {"callbacks": [handler]}) == "apple cedar nobody"
    episode = list(rewards(memories))[-1]
    assert shown(memories, episode) == {"apple", "cedar"}
    assert seen == [["apple", "cedar"]]
    assert memories.evidence("bread") == before
    assert [round(e.weight, 6) for e in memories.run(episode).exposures if e.shown] == [0.5, 0.5]


def test_a_lambda_may_call_it(memories: MemoryWorthStore) -> None:
    keep = SuppressionFilter(memories)
    retriever = Foreign(ids=ALL)
    chain = RunnableLambda(lambda q: ids(keep.invoke(retriever.invoke(q))))
    handler = MemoryWorthCallbackHandler(memories)
    assert chain.invoke("?", {"callbacks": [handler]}) == LEFT
    assert shown(memories, handler.last_episode_id) == {"apple", "cedar"}


def test_in_the_programs_own_episode(memories: MemoryWorthStore, call: Call) -> None:
    keep = SuppressionFilter(memories)
    with memories.episode() as episode:
        memories.governor.journal.expose_documents(
            memories.governor.runs.episode(), [Document(id=i, page_content=i) for i in ALL]
        )
        assert ids(call(keep, [Document(id=i, page_content=i) for i in ALL], None)) == LEFT
    assert shown(memories, episode.id) == {"apple", "cedar"}


def test_outside_of_any_run(memories: MemoryWorthStore) -> None:
    documents = [Document(id=i, page_content=i) for i in ALL] + [Document(page_content="no id")]
    keep = SuppressionFilter(memories)
    assert [d.page_content for d in keep.compress_documents(documents, "?")] == [*LEFT, "no id"]
    assert [d.page_content for d in keep.invoke(tuple(documents))] == [*LEFT, "no id"]
    assert keep.invoke([]) == []
    assert keep.batch([documents, []]) == [keep.invoke(documents), []]


def test_restored_and_pinned_memories_pass(memories: MemoryWorthStore) -> None:
    memories.restore("bread")
    memories.pin("delta")
    chain = Foreign(ids=ALL) | SuppressionFilter(memories)
    assert ids(chain.invoke("?")) == list(ALL)


def test_a_namespace_of_the_run(make_store: StoreMaker, call: Call) -> None:
    store = make_store(policy=plain())
    for user in ("ann", "bob"):
        store.add_texts(["bread"], ids=["bread"], namespace=("users", user))
    fail(store, "bread", namespace=("users", "ann"))
    keep = SuppressionFilter(store, namespace=("users", "{user_id}"))
    chain = Foreign(ids=("bread",)) | keep | ids
    assert call(chain, "?", {"metadata": {"user_id": "ann"}}) == []
    assert call(chain, "?", {"configurable": {"user_id": "bob"}}) == ["bread"]


@pytest.mark.parametrize("as_compressor", [False, True])
def test_if_the_store_fails_everything_passes(
    make_store: StoreMaker, call: Call, caplog: pytest.LogCaptureFixture, as_compressor: bool
) -> None:
    store = filled(make_store())
    fail(store, "bread")
    keep = SuppressionFilter(store)
    store.close()
    chain: Any = Foreign(ids=ALL) | keep
    if as_compressor:
        chain = ContextualCompressionRetriever(
            base_compressor=keep, base_retriever=Foreign(ids=ALL)
        )
    for _ in range(2):
        assert ids(call(chain, "?", None)) == list(ALL)
    assert store.governor.losses.failures == {"the suppression filter": 2}
    assert len(caplog.records) == 1


def test_no_database_work_on_the_event_loop(memories: MemoryWorthStore) -> None:
    import threading

    from tests.runs_fixtures import threads_of_database

    handler = MemoryWorthCallbackHandler(memories, lambda run: True)
    keep = SuppressionFilter(memories)
    compressed = ContextualCompressionRetriever(
        base_compressor=keep, base_retriever=Foreign(ids=ALL)
    )

    async def session() -> int:
        for chain in (Foreign(ids=ALL) | keep | text, compressed | text):
            await chain.ainvoke("?", {"callbacks": [handler]})
        return threading.get_ident()

    with threads_of_database(memories) as seen:
        loop = asyncio.run(session())
        memories.governor.outbox.drain()
    assert seen
    assert loop not in seen
    assert memories.health().ok


def test_a_wrong_argument_is_refused(memories: MemoryWorthStore) -> None:
    with pytest.raises(ValueError, match="MemoryWorthStore"):
        SuppressionFilter(memories.governor.url)
    with pytest.raises(ValueError, match="threshold"):
        SuppressionFilter(memories, threshold=0.3)
