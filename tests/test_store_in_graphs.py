"""`GovernedStore` where LangGraph hands it out: nodes, tools, agents. The search belongs to the run that made it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

import aiosqlite
import pytest
from langchain.agents import create_agent
from langchain.tools import InjectedStore, ToolRuntime, tool
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_store
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import AsyncSqliteStore
from langgraph.types import Command, Send, interrupt

from langchain_memoryworth import GovernedStore, MemoryWorthCallbackHandler
from tests.conftest import StoreMaker
from tests.fakes import DIMENSION, HashedWords, assert_exact
from tests.policies import plain
from tests.runs_fixtures import says, shown

STRICT = plain(v_min=1, theta_low=0.4, exploration=0.0)
NOTES = ("notes",)
WORDS = ("apple", "bread", "cedar")


class State(TypedDict, total=False):
    question: str
    found: str


@pytest.fixture
def governed(make_store: StoreMaker) -> GovernedStore:
    inner = InMemoryStore(index={"dims": DIMENSION, "embed": HashedWords(), "fields": ["text"]})
    for word in WORDS:
        inner.put(NOTES, word, {"text": word})
    return GovernedStore(inner, make_store(policy=STRICT))


def memory(word: str) -> str:
    return GovernedStore.memory_id(NOTES, word)


def worths(store: GovernedStore) -> dict[str, float]:
    """Of those with evidence."""
    return {m.id: m.evidence.worth for m in store.memories() if m.evidence.retrievals}


def by_parameter(state: State, *, store: BaseStore) -> State:
    return {"found": store.search(NOTES, query=state["question"], limit=1)[0].key}


def by_runtime(state: State, runtime: Runtime) -> State:
    assert runtime.store is not None
    return {"found": runtime.store.search(NOTES, query=state["question"], limit=1)[0].key}


def by_config(state: State) -> State:
    return {"found": get_store().search(NOTES, query=state["question"], limit=1)[0].key}


async def by_async_config(state: State) -> State:
    return {"found": (await get_store().asearch(NOTES, query=state["question"], limit=1))[0].key}


async def by_async_gather(state: State, *, store: BaseStore) -> State:
    questions = [state["question"]] * 2
    found = await asyncio.gather(*(store.asearch(NOTES, query=q, limit=1) for q in questions))
    return {"found": found[0][0].key}


def graph(node: Any, store: BaseStore, **options: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("search", node)
    builder.add_edge(START, "search")
    builder.add_edge("search", END)
    return builder.compile(store=store, **options)


def right(run: Any) -> bool:
    return run.outputs["found"] != "bread"


@pytest.mark.parametrize("node", [by_parameter, by_runtime, by_config])
def test_a_node_searches(governed: GovernedStore, node: Any) -> None:
    handler = MemoryWorthCallbackHandler(governed, outcome=right)
    app = graph(node, governed)
    for word in WORDS:
        assert app.invoke({"question": word}, {"callbacks": [handler]})["found"] == word
        assert shown(governed, handler.last_episode_id) == {memory(word)}
    assert worths(governed) == {memory("apple"): 1, memory("bread"): 0, memory("cedar"): 1}
    assert app.invoke({"question": "bread"}, {"callbacks": [handler]})["found"] != "bread"
    assert_exact(governed)


@pytest.mark.parametrize("node", [by_parameter, by_runtime, by_async_config, by_async_gather])
async def test_a_node_searches_in_an_async_graph(governed: GovernedStore, node: Any) -> None:
    handler = MemoryWorthCallbackHandler(governed, outcome=right)
    app = graph(node, governed)
    for word in WORDS:
        assert (await app.ainvoke({"question": word}, {"callbacks": [handler]}))["found"] == word
    assert worths(governed) == {memory("apple"): 1, memory("bread"): 0, memory("cedar"): 1}
    found = await app.ainvoke({"question": "bread"}, {"callbacks": [handler]})
    assert found["found"] != "bread"


def test_parallel_runs_keep_their_own(governed: GovernedStore) -> None:
    handler = MemoryWorthCallbackHandler(governed)
    app = graph(by_parameter, governed)

    def run(word: str) -> tuple[str, str | None]:
        app.invoke({"question": word}, {"callbacks": [handler]})
        return word, handler.last_episode_id

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(run, WORDS * 6))
    assert len({id_ for _, id_ in done}) == 18
    for word, id_ in done:
        assert shown(governed, id_) == {memory(word)}


def test_branches_are_one_run_and_one_memory_counts_once(governed: GovernedStore) -> None:
    builder = StateGraph(State)
    builder.add_node(
        "worker", lambda s, *, store: store.search(NOTES, query=s["question"], limit=1) and {}
    )
    builder.add_conditional_edges(
        START, lambda _: [Send("worker", {"question": w}) for w in ("apple", "apple", "cedar")]
    )
    handler = MemoryWorthCallbackHandler(governed, outcome=lambda run: True)
    builder.compile(store=governed).invoke({}, {"callbacks": [handler]})
    assert shown(governed, handler.last_episode_id) == {memory("apple"), memory("cedar")}
    assert {m.id: m.evidence.retrievals for m in governed.memories()} == {
        memory("apple"): 1,
        memory("cedar"): 1,
    }


def test_an_interrupted_run_goes_on_with_its_episode(governed: GovernedStore) -> None:
    def ask(state: State, *, store: BaseStore) -> State:
        found = store.search(NOTES, query=state["question"], limit=1)[0].key
        return {"found": interrupt(found)}

    handler = MemoryWorthCallbackHandler(governed, outcome=right)
    app = graph(ask, governed, checkpointer=InMemorySaver())
    config = {"callbacks": [handler], "configurable": {"thread_id": "t"}}
    app.invoke({"question": "bread"}, config)
    first = handler.last_episode_id
    assert worths(governed) == {}
    app.invoke(Command(resume="bread"), config)
    assert worths(governed) == {memory("bread"): 0}
    assert governed.run(first).reward == 0


def test_the_functional_api(governed: GovernedStore) -> None:
    @task
    def look(word: str) -> str:
        return get_store().search(NOTES, query=word, limit=1)[0].key

    @entrypoint(store=governed)
    def flow(word: str) -> str:
        return look(word).result()

    handler = MemoryWorthCallbackHandler(governed, outcome=lambda run: True)
    assert flow.invoke("cedar", {"callbacks": [handler]}) == "cedar"
    assert worths(governed) == {memory("cedar"): 1}


@tool
def by_tool_runtime(query: str, runtime: ToolRuntime) -> str:
    """Search."""
    assert runtime.store is not None
    return runtime.store.search(NOTES, query=query, limit=1)[0].key


@tool
def by_injected(query: str, store: Annotated[Any, InjectedStore()]) -> str:
    """Search."""
    return store.search(NOTES, query=query, limit=1)[0].key


@tool
async def by_async_tool(query: str, runtime: ToolRuntime) -> str:
    """Search."""
    assert runtime.store is not None
    return (await runtime.store.asearch(NOTES, query=query, limit=1))[0].key


def judged(run: Any) -> bool:
    return run.outputs["messages"][-2].content != "bread"


def agent_of(search: Any, store: BaseStore, word: str) -> Any:
    return create_agent(says((search.name, {"query": word}), "done"), [search], store=store)


ASKED = {"messages": [HumanMessage("?")]}


@pytest.mark.parametrize("search", [by_tool_runtime, by_injected])
def test_an_agents_tool_searches(governed: GovernedStore, search: Any) -> None:
    handler = MemoryWorthCallbackHandler(governed, outcome=judged)
    for word in WORDS:
        agent_of(search, governed, word).invoke(ASKED, {"callbacks": [handler]})
        assert shown(governed, handler.last_episode_id) == {memory(word)}
    assert worths(governed) == {memory("apple"): 1, memory("bread"): 0, memory("cedar"): 1}
    result = agent_of(search, governed, "bread").invoke(ASKED, {"callbacks": [handler]})
    assert result["messages"][-2].content in {"apple", "cedar"}


@pytest.mark.parametrize("search", [by_tool_runtime, by_injected, by_async_tool])
async def test_an_agents_tool_searches_in_async(governed: GovernedStore, search: Any) -> None:
    handler = MemoryWorthCallbackHandler(governed, outcome=judged)
    agents = [agent_of(search, governed, w) for w in WORDS]
    await asyncio.gather(*(a.ainvoke(ASKED, {"callbacks": [handler]}) for a in agents))
    assert worths(governed) == {memory("apple"): 1, memory("bread"): 0, memory("cedar"): 1}
    result = await agent_of(search, governed, "bread").ainvoke(ASKED, {"callbacks": [handler]})
    assert result["messages"][-2].content in {"apple", "cedar"}


def test_without_a_handler_the_config_may_name_the_episode(governed: GovernedStore) -> None:
    app = graph(by_parameter, governed)
    app.invoke({"question": "apple"}, {"metadata": {"episode_id": "mine"}})
    assert shown(governed, "mine") == {memory("apple")}
    with governed.episode() as episode:
        app.invoke({"question": "cedar"})
    assert shown(governed, episode.id) == {memory("cedar")}
    assert governed.health().unattributed == 0
    app.invoke({"question": "cedar"})
    assert governed.health().unattributed == 1


# -- stores that work in a background task ------------------------------------------------------------------------------


@asynccontextmanager
async def _batched(path: Path) -> AsyncIterator[AsyncSqliteStore]:
    async with (
        aiosqlite.connect(path, isolation_level=None) as connection,
        AsyncSqliteStore(connection) as store,
    ):
        await store.setup()
        yield store


async def test_a_subclass_of_a_batched_store_would_not_know_the_run(
    make_store: StoreMaker, tmp_path: Path
) -> None:
    """Why the store is wrapped: the trap is there, and the wrapper does not step into it."""
    ledger = make_store()
    runs = ledger.governor.runs
    seen: list[Any] = []

    class Subclass(AsyncSqliteStore):
        async def abatch(self, ops: Any) -> Any:
            seen.append(runs.episode())
            return await super().abatch(ops)

    async def search(state: State, *, store: BaseStore) -> State:
        await store.asearch(NOTES, query="apple")
        return {}

    async with (
        aiosqlite.connect(tmp_path / "a.db", isolation_level=None) as connection,
        Subclass(connection) as store,
    ):
        await store.setup()
        handler = MemoryWorthCallbackHandler(ledger)
        await graph(search, store).ainvoke({}, {"callbacks": [handler]})
        assert seen == [None]


async def test_a_batched_store_is_asked_in_the_name_of_each_caller(
    make_store: StoreMaker, tmp_path: Path
) -> None:
    async with _batched(tmp_path / "a.db") as inner:
        for word in WORDS:
            await inner.aput((word,), word, {"text": word})
        governed = GovernedStore(inner, make_store(policy=STRICT))

        async def search(state: State, *, store: BaseStore) -> State:
            # Equal searches of several runs in one tick: the store's queue would merge them into one.
            found = await store.asearch((state["question"],), query="same")
            return {"found": found[0].key}

        handler = MemoryWorthCallbackHandler(governed, outcome=right)
        app = graph(search, governed)
        ids: list[str | None] = []

        async def run(word: str) -> None:
            await app.ainvoke({"question": word}, {"callbacks": [handler]})
            ids.append(handler.last_episode_id)

        await asyncio.gather(*(run(w) for w in ("apple", "apple", "bread", "cedar")))
        assert len(set(ids)) == 4
        counts = {m.id: m.evidence.retrievals for m in governed.memories()}
        assert counts == {GovernedStore.memory_id((w,), w): 1 + (w == "apple") for w in WORDS}
