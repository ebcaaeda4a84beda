"""langmem on a `GovernedStore`: its tools count, its consolidation neither counts nor is blinded."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_memoryworth import GovernedStore, MemoryWorthCallbackHandler
from tests.conftest import StoreMaker
from tests.fakes import DIMENSION, HashedWords, assert_exact
from tests.policies import plain
from tests.runs_fixtures import Scripted, says, shown

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own dependencies are behind LangGraph
    from langmem import (
        ReflectionExecutor,
        create_manage_memory_tool,
        create_memory_searcher,
        create_memory_store_manager,
        create_search_memory_tool,
    )

STRICT = plain(v_min=1, theta_low=0.4, exploration=0.0)
PLACE = ("memories", "{user}")
ADA = ("memories", "ada")
CONFIG = {"configurable": {"user": "ada"}}
WORDS = {
    "00000000-0000-0000-0000-000000000001": "apple",
    "00000000-0000-0000-0000-000000000002": "bread",
    "00000000-0000-0000-0000-000000000003": "cedar",
}
APPLE, BREAD, CEDAR = WORDS


@pytest.fixture
def governed(make_store: StoreMaker) -> GovernedStore:
    index = {"dims": DIMENSION, "embed": HashedWords(), "fields": ["content.content", "content"]}
    inner = InMemoryStore(index=index)
    for key, word in WORDS.items():  # as the memory store manager writes them
        inner.put(ADA, key, {"kind": "Memory", "content": {"content": word}})
    return GovernedStore(inner, make_store(policy=STRICT))


def memory(key: str) -> str:
    return GovernedStore.memory_id(ADA, key)


def fail(governed: GovernedStore, key: str) -> None:
    """Hold a memory back."""
    with governed.episode() as episode:
        found = governed.search(ADA, query=WORDS[key], limit=1)
        assert [i.key for i in found] == [key]
    episode.record(False)


def agent_of(governed: BaseStore, *turns: Any) -> Any:
    tools = [
        create_manage_memory_tool(PLACE),
        create_search_memory_tool(PLACE, response_format="content_and_artifact"),
    ]
    return create_agent(says(*turns), tools, store=governed)


ASKED = {"messages": [("user", "?")]}
LOOK = ("search_memory", {"query": "bread", "limit": 1})


class Watched(Scripted):
    """Keeps what it was told."""

    told: list[str]

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.told.append(" ".join(str(m.content) for m in messages))
        return super()._generate(messages, *args, **kwargs)

    def knew(self, word: str) -> bool:
        """Whether a memory was among those it was told of."""
        return any(str({"content": word}) in told for told in self.told)


def consolidating(word: str) -> Watched:
    """A model that puts one memory in, and says that this is all."""
    call = {"name": "Memory", "args": {"content": word}, "id": "1"}
    return Watched(says=[AIMessage("", tool_calls=[call]), AIMessage("done")], told=[])


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_what_the_search_tool_finds_is_credited(
    governed: GovernedStore, is_async: bool
) -> None:
    handler = MemoryWorthCallbackHandler(governed, outcome=lambda run: False)
    agent = agent_of(governed, LOOK, "done")
    config = {**CONFIG, "callbacks": [handler]}
    result = await agent.ainvoke(ASKED, config) if is_async else agent.invoke(ASKED, config)
    (told,) = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert [i.key for i in told.artifact] == [BREAD]
    assert shown(governed, handler.last_episode_id) == {memory(BREAD)}
    assert governed.worth(memory(BREAD)) == 0
    again = agent_of(governed, LOOK, "done")
    result = await again.ainvoke(ASKED, config) if is_async else again.invoke(ASKED, config)
    (told,) = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert [i.key for i in told.artifact] in ([APPLE], [CEDAR])
    assert (
        governed.health().ok
    )  # on a loop, outcomes are settled by another thread; this waits for it
    assert_exact(governed)


def test_the_manage_tool_writes_through(governed: GovernedStore) -> None:
    fail(governed, BREAD)
    update = ("manage_memory", {"action": "update", "id": BREAD, "content": "bread now"})
    delete = ("manage_memory", {"action": "delete", "id": CEDAR})
    create = ("manage_memory", {"content": "delta"})
    agent = agent_of(governed, update, "done", delete, "done", create, "done")
    for _ in range(3):
        agent.invoke(ASKED, CONFIG)
    values = [i.value["content"] for i in governed.inner.search(ADA)]
    assert sorted(map(str, values)) == ["bread now", "delta", str({"content": "apple"})]
    # The update is another text: its evidence is fresh, and it is served again.
    with governed.episode():
        assert governed.search(ADA, query="bread", limit=1)[0].value["content"] == "bread now"
    assert governed.worth(memory(BREAD)) == 0.5
    assert governed.health().unattributed == 0


async def test_consolidation_through_inner_neither_counts_nor_is_blinded(
    governed: GovernedStore,
) -> None:
    fail(governed, BREAD)
    before = governed.health()
    handler = MemoryWorthCallbackHandler(governed)
    for is_async in (False, True):
        model = consolidating("ember")
        manager = create_memory_store_manager(model, store=governed.inner, namespace=PLACE)
        payload, config = {"messages": [("user", "bread")]}, {**CONFIG, "callbacks": [handler]}
        if is_async:
            await manager.ainvoke(payload, config)
        else:
            manager.invoke(payload, config)
        assert model.knew("bread")
    assert "ember" in str([i.value for i in governed.inner.search(ADA)])
    assert governed.health() == before


def test_consolidation_through_the_governed_store_would_be_blinded(
    governed: GovernedStore,
) -> None:
    """Why it is to be given `inner`."""
    fail(governed, BREAD)
    model = consolidating("ember")
    manager = create_memory_store_manager(model, store=governed, namespace=PLACE)
    manager.invoke({"messages": [("user", "bread")]}, CONFIG)
    assert model.knew("apple")
    assert not model.knew("bread")
    assert governed.health().unattributed > 0


def test_reflection_after_a_run_is_no_part_of_it(governed: GovernedStore) -> None:
    """It works in a thread of its own, with the config of the run that has ended."""
    fail(governed, CEDAR)
    model = consolidating("flint")
    manager = create_memory_store_manager(model, store=governed.inner, namespace=PLACE)
    executor = ReflectionExecutor(manager, store=governed.inner)
    futures = []

    def search(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        found = store.search(ADA, query="bread", limit=1)
        futures.append(executor.submit({"messages": [("user", "cedar")]}, after_seconds=0))
        return {"messages": [("ai", str(found[0].value["content"]))]}

    handler = MemoryWorthCallbackHandler(governed, outcome=lambda run: True)
    graph = StateGraph(MessagesState).add_node(search).add_edge(START, "search")
    app = graph.compile(store=governed)
    try:
        app.invoke(ASKED, {**CONFIG, "callbacks": [handler]})
        run = handler.last_episode_id
        futures[0].result(30)
    finally:
        executor.shutdown()
    assert model.knew("cedar")
    assert "flint" in str([i.value for i in governed.inner.search(ADA)])
    assert shown(governed, run) == {memory(BREAD)}
    assert {m.id: m.evidence.retrievals for m in governed.memories()} == {
        memory(BREAD): 1,
        memory(CEDAR): 1,
    }
    assert governed.health().episodes == 2
    assert governed.health().unattributed == 0


def test_the_searcher_counts_like_a_tool(governed: GovernedStore) -> None:
    call = {"name": "search_memory", "args": {"query": "bread", "limit": 1}, "id": "1"}
    model: BaseChatModel = Scripted(says=[AIMessage("", tool_calls=[call])])
    searcher = create_memory_searcher(model, namespace=PLACE)
    seen: list[Any] = []

    def search(state: MessagesState) -> dict[str, Any]:
        seen.extend(searcher.invoke({"messages": state["messages"]}))
        return {}

    handler = MemoryWorthCallbackHandler(governed, outcome=lambda run: True)
    app = StateGraph(MessagesState).add_node(search).add_edge(START, "search")
    app.compile(store=governed).invoke(ASKED, {**CONFIG, "callbacks": [handler]})
    assert [i.key for i in seen] == [BREAD]
    assert governed.worth(memory(BREAD)) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("example", "line"),
    [
        ("langmem_tools", "worth=1.000, hits+=1.000"),
        ("governed_store", '[\'["facts", "stale"]\']'),
        ("govern_vectorstore", "script     suppressed"),
    ],
)
def test_the_examples_run(example: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[1] / "examples" / f"{example}.py"
    assert len(path.read_text().splitlines()) < 40
    runpy.run_path(str(path))
    assert line in capsys.readouterr().out
