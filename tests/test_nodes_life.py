"""The graph nodes over a graph's life: checkpoints, turns, interrupts, other processes, failures, time travel."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore
from tests.conftest import StoreMaker
from tests.fakes import Clock, assert_exact
from tests.nodes_fixtures import State, built, outcome, recall, whole
from tests.nodes_process import ask
from tests.runs_fixtures import credits_of, filled, rewards, shown

THREAD: dict[str, Any] = {"configurable": {"thread_id": "t"}}


class Saved:
    """Runs graphs on one place for checkpoints, which a file's saver opens anew for every step."""

    def __init__(self, file: str | None, is_async: bool) -> None:
        self.file = file
        self.is_async = is_async
        self.memory = InMemorySaver()

    def __call__(
        self, builder: Any, value: Any, config: Any = THREAD, **options: Any
    ) -> dict[str, Any]:
        async def step() -> Any:
            if self.file is None:
                return await self._compiled(builder, self.memory, options).ainvoke(value, config)
            async with AsyncSqliteSaver.from_conn_string(self.file) as saver:
                return await self._compiled(builder, saver, options).ainvoke(value, config)

        if self.is_async:
            return asyncio.run(step())
        return self.with_graph(builder, lambda graph: graph.invoke(value, config), **options)

    def with_graph(self, builder: Any, act: Callable[[Any], Any], **options: Any) -> Any:
        if self.file is None:
            return act(self._compiled(builder, self.memory, options))
        with SqliteSaver.from_conn_string(self.file) as saver:
            return act(self._compiled(builder, saver, options))

    @staticmethod
    def _compiled(builder: Any, saver: Any, options: Any) -> Any:
        return builder.compile(checkpointer=saver, **options)

    def before(self, builder: Any, node: str) -> Any:
        """The oldest checkpoint from which a node is called next."""
        history = self.with_graph(builder, lambda graph: list(graph.get_state_history(THREAD)))
        return [s for s in history if s.next == (node,)][-1].config

    def episode(self, builder: Any) -> str | None:
        values = self.with_graph(builder, lambda graph: graph.get_state(THREAD).values)
        found: str | None = values.get("episode_id")
        return found


@pytest.fixture(params=["memory", "memory async", "sqlite", "sqlite async"])
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Saved:
    file = str(tmp_path / "checkpoints.db") if request.param.startswith("sqlite") else None
    return Saved(file, request.param.endswith("async"))


@pytest.fixture
def memories(store: MemoryWorthStore) -> MemoryWorthStore:
    return filled(store)


# -- turns ---------------------------------------------------------------------------------------------------------


def test_every_turn_is_an_episode(memories: MemoryWorthStore, saved: Saved) -> None:
    graph = whole(memories)
    for word in ("apple", "bread", "apple"):
        assert saved(graph, {"query": word})["memory_ids"] == [word]
        assert saved.episode(graph) is None
    assert list(rewards(memories).values()) == [1.0, 1.0, 1.0]
    assert credits_of(memories) == {"apple": 2, "bread": 1}
    assert {memories.run(e).thread_id for e in rewards(memories)} == {"t"}
    assert_exact(memories)


def test_an_episode_stays_open_until_there_is_an_outcome_node(
    memories: MemoryWorthStore, saved: Saved
) -> None:
    alone = built(("recall", recall(memories)))
    for word in ("apple", "bread"):
        saved(alone, {"query": word})
    assert len(rewards(memories)) == 1
    saved(alone, {"query": "cedar", "episode_id": None})  # a new one, if the user says so
    saved(built(("outcome", outcome(memories))), {"success": False})
    assert list(rewards(memories).values()) == [None, 0.0]
    assert credits_of(memories) == {"cedar": 1}


# -- interrupts ----------------------------------------------------------------------------------------------------


def asking(store: MemoryWorthStore) -> Any:
    return built(
        ("recall", recall(store)),
        ("ask", ask),
        ("more", recall(store, lambda s: "bread")),
        ("outcome", outcome(store)),
    )


def test_an_interrupt_between_them(memories: MemoryWorthStore, saved: Saved) -> None:
    graph = asking(memories)
    saved(graph, {"query": "apple"})
    assert list(rewards(memories).values()) == [None]
    saved(graph, Command(resume=False))
    assert list(rewards(memories).values()) == [0.0]
    assert credits_of(memories) == {"apple": 1, "bread": 1}
    assert memories.health().ok


@pytest.mark.parametrize("where", [{"interrupt_before": ["act"]}, {"interrupt_after": ["recall"]}])
def test_static_breakpoints(memories: MemoryWorthStore, saved: Saved, where: Any) -> None:
    graph = whole(memories)
    saved(graph, {"query": "apple"}, **where)
    assert list(rewards(memories).values()) == [None]
    saved(graph, None, **where)
    assert list(rewards(memories).values()) == [1.0]


def test_an_outcome_that_a_person_writes_into_the_state(
    memories: MemoryWorthStore, saved: Saved
) -> None:
    graph = built(("recall", recall(memories)), ("outcome", outcome(memories)))
    saved(graph, {"query": "apple"}, interrupt_before=["outcome"])
    saved.with_graph(graph, lambda compiled: compiled.update_state(THREAD, {"success": 0.25}))
    saved(graph, None, interrupt_before=["outcome"])
    assert list(rewards(memories).values()) == [0.25]


def test_an_outcome_node_that_asks_a_person(memories: MemoryWorthStore, saved: Saved) -> None:
    def right(state: State) -> Any:
        return interrupt(f"Was {state['memory_ids']} right?")

    graph = built(("recall", recall(memories)), ("outcome", outcome(memories, right)))
    saved(graph, {"query": "apple"})
    assert list(rewards(memories).values()) == [None]
    assert saved.episode(graph) is not None
    saved(graph, Command(resume=True))
    assert list(rewards(memories).values()) == [1.0]
    assert saved.episode(graph) is None
    assert memories.health().ok


def test_a_node_that_recalls_and_then_asks_is_run_again(
    memories: MemoryWorthStore, saved: Saved
) -> None:
    """The node begins anew when it is resumed; what it recalls is of the same episode."""

    def own(state: State) -> Any:
        return {**recall(memories).invoke(state), "success": interrupt("?")}

    graph = built(("own", own), ("outcome", outcome(memories)))
    saved(graph, {"query": "apple"})
    saved(graph, Command(resume=True))
    assert list(rewards(memories).values()) == [1.0]
    assert credits_of(memories) == {"apple": 1}


def test_an_interrupt_in_a_subgraph(memories: MemoryWorthStore, saved: Saved) -> None:
    sub = built(("recall", recall(memories)), ("ask", ask)).compile()
    graph = built(("sub", sub), ("outcome", outcome(memories)))
    saved(graph, {"query": "apple"})
    assert list(rewards(memories).values()) == [None]
    saved(graph, Command(resume=True))
    assert list(rewards(memories).values()) == [1.0]


def test_days_later_with_a_store_opened_anew(
    make_store: StoreMaker, file_url: str, saved: Saved, clock: Clock
) -> None:
    saved(asking(filled(make_store(file_url))), {"query": "apple"})
    clock.forward(days=30)
    store = make_store(file_url)
    saved(asking(store), Command(resume=True))
    assert list(rewards(store).values()) == [1.0]
    assert credits_of(store) == {"apple": 1, "bread": 1}


def test_resumed_in_another_process(make_store: StoreMaker, file_url: str, tmp_path: Path) -> None:
    filled(make_store(file_url)).close()
    for step, expected in (("begin", [None]), ("resume", [1.0])):
        subprocess.run(
            [sys.executable, "-m", "tests.nodes_process", file_url, str(tmp_path / "cp.db"), step],
            check=True,
            timeout=120,
            cwd=Path(__file__).resolve().parents[1],
        )
        store = make_store(file_url)
        assert list(rewards(store).values()) == expected
    assert credits_of(store) == {"apple": 1, "bread": 1}


@pytest.mark.parametrize("judges", ["handler", "both"])
def test_an_interrupt_beside_a_handler(
    memories: MemoryWorthStore, saved: Saved, judges: str
) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: True)
    graph = built(
        ("recall", recall(memories)),
        ("ask", ask),
        ("more", recall(memories, lambda s: "bread")),
        ("outcome", outcome(memories, "success" if judges == "both" else lambda s: None)),
    )
    config = {**THREAD, "callbacks": [handler]}
    saved(graph, {"query": "apple"}, config)
    first = handler.last_episode_id
    assert list(rewards(memories).values()) == [None]
    saved(graph, Command(resume=True), config)
    assert list(rewards(memories).values()) == [1.0]
    assert credits_of(memories) == {"apple": 1, "bread": 1}
    if not saved.is_async:  # the handler's last episode is of the context
        assert memories.run(first) == memories.run(handler.last_episode_id)
    assert memories.health().ok


# -- failures, time travel -----------------------------------------------------------------------------------------


def test_a_graph_that_failed_and_goes_on(memories: MemoryWorthStore, saved: Saved) -> None:
    broken = [True]

    def flaky(state: State) -> Any:
        if broken:
            broken.clear()
            raise ConnectionError("down")
        return {}

    graph = whole(memories, ("flaky", flaky))
    with pytest.raises(ConnectionError):
        saved(graph, {"query": "apple"})
    assert list(rewards(memories).values()) == [None]
    saved(graph, None)
    assert list(rewards(memories).values()) == [1.0]
    assert credits_of(memories) == {"apple": 1}


def test_going_back_before_the_recall_is_another_episode(
    memories: MemoryWorthStore, saved: Saved
) -> None:
    graph = whole(memories)
    saved(graph, {"query": "apple"})
    saved(graph, None, saved.before(graph, "recall"))
    assert list(rewards(memories).values()) == [1.0, 1.0]
    assert credits_of(memories) == {"apple": 2}


def test_going_back_between_them_corrects_the_outcome(
    memories: MemoryWorthStore, saved: Saved
) -> None:
    said = iter([True, False])
    graph = built(
        ("recall", recall(memories)),
        ("act", lambda state: {"success": next(said)}),
        ("outcome", outcome(memories)),
    )
    saved(graph, {"query": "apple"})
    assert memories.worth("apple") == 1.0
    saved(graph, None, saved.before(graph, "act"))
    assert list(rewards(memories).values()) == [0.0]
    assert credits_of(memories) == {"apple": 1}
    assert_exact(memories)
    [episode] = rewards(memories)
    assert shown(memories, episode) == {"apple"}


def test_an_outcome_node_that_runs_again_changes_nothing(
    memories: MemoryWorthStore, saved: Saved
) -> None:
    graph = whole(memories)
    saved(graph, {"query": "apple"})
    saved(graph, None, saved.before(graph, "outcome"))
    assert list(rewards(memories).values()) == [1.0]
    assert credits_of(memories) == {"apple": 1}


@pytest.mark.parametrize("new", [False, True], ids=["as it is", "said to be new"])
def test_a_turn_after_one_that_was_broken_off(
    memories: MemoryWorthStore, saved: Saved, new: bool
) -> None:
    """The state still carries the episode, so both are one; the input may say that they are not."""
    graph = asking(memories)
    saved(graph, {"query": "apple"})
    saved(graph, {"query": "cedar", "episode_id": None} if new else {"query": "cedar"})
    saved(graph, Command(resume=True))
    assert list(rewards(memories).values()) == ([None, 1.0] if new else [1.0])
    assert set(credits_of(memories)) == {"bread", "cedar"} | (set() if new else {"apple"})
