"""What must not happen however runs go: late events, ids used again, roots that never end, a slow handler."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import requests
from langchain_core.callbacks import CallbackManager
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers import context as tracer_context
from langgraph.graph import START, StateGraph
from langsmith import Client, traceable, tracing_context
from langsmith.run_helpers import get_current_run_tree

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    OutcomeNode,
    memory_worth,
)
from langchain_memoryworth.errors import UnknownRunError
from langchain_memoryworth.tracking import runs
from tests.conftest import StoreMaker
from tests.runs_fixtures import Foreign, Life, credits_of, rewards, shown, text


@pytest.fixture
def life(store: MemoryWorthStore) -> Life:
    return Life(store)


# -- late ----------------------------------------------------------------------------------------------------------


def test_background_work_with_the_config_of_a_finished_run(life: Life) -> None:
    kept: list[Any] = []

    def node(query: str) -> str:
        kept.append(dict(var_child_runnable_config.get() or {}))
        return text(life.retriever.invoke(query))

    RunnableLambda(node).invoke("apple", life.config)
    life.is_success("apple")

    def consolidate() -> None:
        (life.store.as_retriever(k=1) | text).invoke("bread", kept[0])
        life.store.as_retriever(k=1).invoke("cedar", kept[0])
        (Foreign(ids=("delta",)) | text).invoke("?", kept[0])

    worker = threading.Thread(target=consolidate)
    worker.start()
    worker.join()
    assert life.rewards == [1.0]
    assert len(life.judge.runs) == 1
    assert credits_of(life.store) == {"apple": 1}
    assert life.store.health().unattributed == 2
    assert life.store.health().ok


async def test_a_task_that_outlives_its_run(life: Life) -> None:
    ended, went_on = asyncio.Event(), asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def afterwards() -> None:
        await ended.wait()
        await life.retriever.ainvoke("bread")
        await life.store.asimilarity_search("cedar", k=1)
        went_on.set()

    async def node(query: str) -> str:
        tasks.append(asyncio.create_task(afterwards()))
        return text(await life.retriever.ainvoke(query))

    await RunnableLambda(node).ainvoke("apple", life.config)
    ended.set()
    await went_on.wait()
    await asyncio.gather(*tasks)
    assert life.rewards == [1.0]
    assert credits_of(life.store) == {"apple": 1}
    assert life.store.health().unattributed == 2


async def test_a_child_that_ends_after_the_root_is_taken_in(life: Life) -> None:
    """It began while the run lasted; what it gives late is settled late, under the same outcome."""
    go_on, started = asyncio.Event(), asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    class Slow(Foreign):
        async def _aget_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
            started.set()
            await go_on.wait()
            return [Document(id=i, page_content=i) for i in self.ids]

    slow = Slow(ids=("bread",))

    async def node(query: str) -> str:
        tasks.append(asyncio.create_task(slow.ainvoke(query)))
        await started.wait()
        return text(await life.retriever.ainvoke(query))

    await RunnableLambda(node).ainvoke("apple", life.config)
    assert credits_of(life.store) == {"apple": 1}
    go_on.set()
    await asyncio.gather(*tasks)
    assert life.rewards == [1.0]
    assert credits_of(life.store) == {"apple": 1, "bread": 1}
    assert len(life.judge.runs) == 1


def test_a_thread_that_ends_after_the_root_is_taken_in(life: Life) -> None:
    go_on, started = threading.Event(), threading.Event()
    workers: list[threading.Thread] = []

    class Slow(Foreign):
        def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
            started.set()
            assert go_on.wait(60)
            return [Document(id=i, page_content=i) for i in self.ids]

    def node(query: str) -> str:
        work = partial(copy_context().run, Slow(ids=("bread",)).invoke, query)
        workers.append(threading.Thread(target=work))
        workers[0].start()
        assert started.wait(60)
        return text(life.retriever.invoke(query))

    RunnableLambda(node).invoke("apple", life.config)
    assert credits_of(life.store) == {"apple": 1}
    go_on.set()
    workers[0].join()
    assert life.rewards == [1.0]
    assert credits_of(life.store) == {"apple": 1, "bread": 1}
    assert len(life.judge.runs) == 1


# -- ids used again ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_run_id_that_is_used_again(life: Life, how: str) -> None:
    run_id = uuid.uuid4()
    handler = MemoryWorthCallbackHandler(life.store)
    chain = life.retriever | text
    config: Any = {"callbacks": [handler], "run_id": run_id}
    for n, word in enumerate(("apple", "bread", "cedar")):
        if how == "sync":
            chain.invoke(word, config)
        else:
            asyncio.run(chain.ainvoke(word, {**config}))
        config["run_id"] = run_id  # LangChain takes it out of the config
        assert shown(life.store, run_id) == {word}
        assert life.store.health().reused == n
    assert list(rewards(life.store)) == [str(run_id), f"{run_id}#2", f"{run_id}#3"]
    life.store.record_outcome(run_id, False)
    assert credits_of(life.store) == {"cedar": 1}
    life.store.record_outcome(f"{run_id}#2", True)
    assert credits_of(life.store) == {"bread": 1, "cedar": 1}


def test_a_run_id_that_is_used_again_with_outcomes(life: Life) -> None:
    run_id = uuid.uuid4()
    for word in ("apple", "bread", "apple"):
        (life.retriever | text).invoke(word, {**life.config, "run_id": run_id})
    assert life.rewards == [1.0, 1.0, 1.0]
    assert credits_of(life.store) == {"apple": 2, "bread": 1}
    assert [r.run_id for r in life.judge.runs] == [str(run_id)] * 3


def test_a_run_id_that_another_process_has_settled(make_store: StoreMaker, file_url: str) -> None:
    run_id = uuid.uuid4()
    for word in ("apple", "bread"):
        life = Life(make_store(file_url))
        (life.retriever | text).invoke(word, {**life.config, "run_id": run_id})
    assert life.rewards == [1.0, 1.0]
    assert life.store.health().reused == 1
    assert credits_of(life.store) == {"apple": 1, "bread": 1}
    assert shown(life.store, run_id) == {"bread"}


def test_an_outcome_in_the_middle_of_a_run_begins_no_new_one(life: Life) -> None:
    def node(query: str) -> str:
        life.retriever.invoke(query)
        life.store.record_outcome(run_id, True)
        return text(life.retriever.invoke("bread"))

    run_id = uuid.uuid4()
    RunnableLambda(node).invoke("apple", {**life.config, "run_id": run_id})
    life.is_success("apple", "bread")
    assert life.store.health().reused == 0


def test_an_id_with_a_number_sign_may_be_taken(life: Life) -> None:
    run_id = uuid.uuid4()
    with life.store.episode(f"{run_id}#2"):
        life.retriever.invoke("delta")
    for word in ("apple", "bread"):
        (life.retriever | text).invoke(word, {**life.config, "run_id": run_id})
    assert list(rewards(life.store)) == [f"{run_id}#2", str(run_id), f"{run_id}#3"]


# -- other ids -----------------------------------------------------------------------------------------------------


def test_a_parent_that_langchain_does_not_know(life: Life) -> None:
    """As below a LangSmith `@traceable`: the outer id finds the newest run below it."""
    outer = uuid.uuid4()
    handlers = [life.handler]
    manager = CallbackManager(handlers, inheritable_handlers=handlers, parent_run_id=outer)
    for word in ("apple", "bread"):
        (life.retriever | text).invoke(word, {"callbacks": manager})
    assert life.rewards == [1.0, 1.0]
    life.store.record_outcome(outer, False)
    assert (life.store.worth("apple"), life.store.worth("bread")) == (1.0, 0.0)


class Silent(requests.Session):
    """What LangSmith would be sent; nothing leaves the process."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        self.sent.append(f"{method} {url}")
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"{}"
        return answer


@pytest.fixture
def langsmith() -> Iterator[Silent]:
    session = Silent()
    client = Client("http://127.0.0.1:1", api_key="none", session=session, auto_batch_tracing=False)
    with tracing_context(enabled=True, client=client):
        yield session
    assert session.sent


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("attached", ["in the config", "by the context manager"])
def test_functions_that_langsmith_traces(
    life: Life, langsmith: Silent, how: str, attached: str
) -> None:
    """Every run of LangSmith around the chain is a name of its episode, so feedback on any of them finds it."""
    chain, ids = life.retriever | text, list[uuid.UUID]()

    def note() -> None:
        tree = get_current_run_tree()
        assert tree is not None
        ids.append(tree.id)

    if how == "sync":

        @traceable
        def inner(query: str, config: Any) -> str:
            note()
            return chain.invoke(query, config)

        @traceable
        def outer(query: str, config: Any) -> str:
            note()
            return inner(query, config)

    else:

        @traceable
        async def ainner(query: str, config: Any) -> str:
            note()
            return await chain.ainvoke(query, config)

        @traceable
        async def aouter(query: str, config: Any) -> str:
            note()
            return await ainner(query, config)

        outer = lambda query, config: asyncio.run(aouter(query, config))  # noqa: E731

    for word in ("bread", "apple"):
        if attached == "in the config":
            assert outer(word, life.config) == word
        else:
            with memory_worth(life.store, life.judge):
                assert outer(word, {}) == word
    assert life.rewards == [1.0, 1.0]
    assert len(set(ids)) == 4
    for run_id in ids:
        assert shown(life.store, run_id) == {"bread" if run_id in ids[:2] else "apple"}
    life.store.record_outcome(ids[2], False)
    assert (life.store.worth("apple"), life.store.worth("bread")) == (0.0, 1.0)
    assert life.store.health().ok


def test_several_runs_in_one_function_that_langsmith_traces(life: Life, langsmith: Silent) -> None:
    """Each is an episode, and the function's id finds the newest; an `episode()` in it makes them one."""

    @traceable
    def function(together: bool) -> str:
        tree = get_current_run_tree()
        assert tree is not None
        with life.store.episode(str(tree.id)) if together else nullcontext():
            for word in ("apple", "bread"):
                (life.retriever | text).invoke(word, life.config)
        return str(tree.id)

    apart, together = function(together=False), function(together=True)
    assert shown(life.store, apart) == {"bread"}
    assert shown(life.store, together) == {"apple", "bread"}
    assert life.rewards == [1.0, 1.0, 1.0]


def test_calls_grouped_by_hand(life: Life) -> None:
    manager = CallbackManager.configure(inheritable_callbacks=[life.handler])
    run = manager.on_chain_start({"name": "episode"}, {}, name="episode", run_id=uuid.uuid4())
    for word in ("apple", "bread"):
        life.retriever.invoke(word, {"callbacks": run.get_child()})
    run.on_chain_end({"answer": 1})
    life.is_success("apple", "bread")


# -- the context manager -------------------------------------------------------------------------------------------


def library(life: Life, query: str) -> str:
    """Code whose config is not in our hands."""
    return (life.retriever | text).invoke(query)


def test_the_context_manager(life: Life) -> None:
    with memory_worth(life.store, life.judge) as handler:
        assert library(life, "apple") == "apple"
        assert handler.last_episode_id is not None
    life.is_success("apple")
    library(life, "bread")
    assert life.store.health().unattributed == 1
    assert life.rewards == [1.0]


def test_the_context_manager_with_graphs_batches_and_tasks(life: Life) -> None:
    builder = StateGraph(dict)
    builder.add_node("look", lambda state: {"found": library(life, state["query"])})
    builder.add_edge(START, "look")
    graph = builder.compile()
    with memory_worth(life.store, life.judge):
        graph.invoke({"query": "apple"})
        (life.retriever | text).batch(["bread", "cedar"])

    async def one(n: int) -> None:
        with memory_worth(life.store, lambda run: n % 2 == 0):
            await (life.retriever | text).ainvoke("delta" if n % 2 else "ember")

    async def everyone() -> None:
        await asyncio.gather(*(one(n) for n in range(20)))

    asyncio.run(everyone())
    assert len(life.rewards) == 23
    assert life.store.worth("delta") == 0.0
    assert life.store.worth("ember") == 1.0
    assert credits_of(life.store) == {"apple": 1, "bread": 1, "cedar": 1, "delta": 10, "ember": 10}
    assert life.store.health().unattributed == 0


def test_context_managers_inside_each_other_and_beside_a_handler(life: Life) -> None:
    asked: list[str] = []
    inner = MemoryWorthCallbackHandler(
        life.store, lambda run: bool(asked.append("handler")) or True
    )
    with memory_worth(life.store, life.judge):
        (life.retriever | text).invoke("apple", {"callbacks": [inner]})
    life.is_success("apple")
    assert asked == ["handler"]

    def node(query: str) -> str:
        with memory_worth(life.store, life.judge):
            return library(life, query)

    with memory_worth(life.store, life.judge):
        RunnableLambda(node).invoke("bread")
    assert life.rewards == [1.0, 1.0]
    assert credits_of(life.store) == {"apple": 1, "bread": 1}


def test_what_the_context_manager_does_not_see_is_counted(life: Life) -> None:
    def lazily() -> Iterator[str]:
        yield library(life, "apple")

    with memory_worth(life.store, life.judge):
        thread = threading.Thread(target=library, args=(life, "bread"))
        thread.start()
        thread.join()
        generator = lazily()
    list(generator)
    assert life.store.health().unattributed == 2
    assert life.rewards == []


def test_the_context_manager_registers_no_hook_per_use(life: Life) -> None:
    before = len(tracer_context._configure_hooks)
    for _ in range(50):
        with memory_worth(life.store):
            pass
    assert len(tracer_context._configure_hooks) == before
    with pytest.raises(ValueError, match="MemoryWorthStore"), memory_worth("no store"):
        pass


# -- bounded memory ------------------------------------------------------------------------------------------------


def start(
    handler: MemoryWorthCallbackHandler, inputs: Any, parent: uuid.UUID | None = None
) -> uuid.UUID:
    run_id = uuid.uuid4()
    handler.on_chain_start(
        None, inputs, run_id=run_id, parent_run_id=parent, tags=["t"], metadata={"m": 1}, name="x"
    )
    return run_id


def test_runs_that_never_end_take_little_memory(make_store: StoreMaker) -> None:
    """Below 64 MB, and no more from there on: 100,000 take what 20,000 take."""
    store = make_store()
    handler = MemoryWorthCallbackHandler(store, lambda run: True)

    def abandon(n: int) -> None:
        run_id = start(handler, {"question": f"{n} " + "x" * 200})
        retrieval = uuid.uuid4()
        handler.on_retriever_start(None, "?", run_id=retrieval, parent_run_id=run_id)
        found = [Document(id=f"{n}-{i}", page_content="y" * 200) for i in range(2)]
        handler.on_retriever_end(found, run_id=retrieval, parent_run_id=run_id)

    full = runs.MAX_RUNS // 2 + 1
    taken = []
    gc.collect()
    tracemalloc.start()
    try:
        # The ledger is not what is weighed here.
        with patch.object(store.governor.journal, "expose_documents", lambda *given: None):
            for n in range(full + 8_000):
                abandon(n)
                if n in {full, full + 7_999}:
                    taken.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert taken[1] < 64 * 2**20
    assert taken[1] < 1.1 * taken[0]
    health = store.health()
    assert health.abandoned == full + 8_000 - runs.MAX_OPEN_ROOTS
    assert len(store.governor.runs) == runs.MAX_RUNS
    assert health.ok


def test_runs_that_end_take_little_memory(make_store: StoreMaker) -> None:
    store = make_store()
    handler = MemoryWorthCallbackHandler(store)
    gc.collect()
    tracemalloc.start()
    try:
        for n in range(20_000):
            run_id, called = start(handler, "x" * 5_000 + str(n)), uuid.uuid4()
            handler.on_tool_start({"name": "look"}, "?", run_id=called, parent_run_id=run_id)
            handler.on_tool_error(LookupError("z" * 5_000 + str(n)), run_id=called)
            handler.on_chain_end("y" * 5_000 + str(n), run_id=run_id)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 32 * 2**20


def test_a_run_that_lasts_is_not_forgotten_for_short_ones(life: Life) -> None:
    with patch.object(runs, "MAX_RUNS", 50):
        outer = start(life.handler, "?")
        middle = start(life.handler, "?", parent=outer)
        for _ in range(200):
            start(life.handler, "?")  # abandoned
            step = start(life.handler, "?", parent=middle)
            life.handler.on_chain_end("", run_id=step, parent_run_id=middle)
        life.retriever.invoke("apple", run_id=uuid.uuid4(), config=_child(life, outer))
        life.handler.on_chain_end("done", run_id=outer)
    assert shown(life.store, outer) == {"apple"}
    assert life.rewards == [1.0]


def _child(life: Life, parent: uuid.UUID) -> Any:
    return {"callbacks": CallbackManager(handlers=[life.handler], parent_run_id=parent)}


def test_an_abandoned_root_that_ends_after_all_is_not_judged(life: Life) -> None:
    with patch.object(runs, "MAX_OPEN_ROOTS", 2):
        first = start(life.handler, "?")
        life.retriever.invoke("apple", config=_child(life, first))
        for _ in range(3):
            start(life.handler, "?")
        life.handler.on_chain_end("done", run_id=first)
    assert life.judge.runs == []
    assert life.store.health().abandoned >= 1
    life.store.record_outcome(first, True)  # the ledger has not forgotten
    assert credits_of(life.store) == {"apple": 1}


# -- events out of order -------------------------------------------------------------------------------------------


def test_events_of_runs_that_were_never_seen(life: Life) -> None:
    handler, unknown = life.handler, uuid.uuid4()
    handler.on_chain_end({}, run_id=unknown)
    handler.on_chain_error(ValueError(), run_id=unknown)
    handler.on_tool_end("", run_id=unknown)
    handler.on_tool_error(ValueError(), run_id=unknown)
    handler.on_retriever_end([Document(id="apple", page_content="apple")], run_id=unknown)
    handler.on_retriever_error(ValueError(), run_id=unknown)
    handler.on_custom_event("memory_worth.used", {"ids": ["apple"]}, run_id=unknown)
    assert life.rewards == []
    assert life.store.health().ok
    with pytest.raises(UnknownRunError):
        life.store.run(unknown)


def test_an_end_and_an_error_of_one_run(life: Life) -> None:
    root = start(life.handler, "?")
    life.retriever.invoke("apple", config=_child(life, root))
    life.handler.on_chain_end("done", run_id=root)
    life.handler.on_chain_error(ValueError("of another handler"), run_id=root)
    life.handler.on_chain_end("again", run_id=root)
    life.is_success("apple")
    assert life.judge.runs[0].outputs == "done"


def test_documents_that_the_user_changes_afterwards(life: Life) -> None:
    found = Foreign(ids=("apple",)).with_config(callbacks=[life.handler]).invoke("?")
    found[0].id = "bread"
    found.clear()
    assert shown(life.store, life.handler.last_episode_id) == {"apple"}


def test_documents_without_ids(life: Life) -> None:
    class Nameless(Foreign):
        def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
            return [Document("no id"), Document(id="nobody", page_content="x")]

    (Nameless(ids=()) | text).invoke("?", life.config)
    assert life.rewards == []
    assert life.store.health().ok


class UntellableError(Exception):
    """Its texts are code of the user's, and raise."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_an_error_that_cannot_be_told_is_counted_all_the_same(life: Life) -> None:
    def judge(_: Any) -> bool:
        raise UntellableError

    with life.store.episode("e"):
        life.store.similarity_search("apple", k=1)
    node = OutcomeNode(life.store, judge)
    assert node.invoke({"episode_id": "e"}) == {"episode_id": None}
    root = start(life.handler, "?")
    called = uuid.uuid4()
    life.handler.on_tool_start({"name": "look"}, "?", run_id=called, parent_run_id=root)
    life.handler.on_tool_error(UntellableError(), run_id=called)
    life.handler.on_chain_end("", run_id=root)
    assert life.store.health().failures == {"an outcome": 1, "a tool's error": 1}
