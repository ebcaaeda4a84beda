"""Tool paths: which tools a run called is kept with its episode, however it runs, and told with how such runs went."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from math import comb
from pathlib import Path
from typing import Annotated, Any, TypedDict
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthMiddleware,
    MemoryWorthStore,
    OutcomeNode,
    RecallNode,
)
from langchain_memoryworth.estimators.credible import belief_of
from langchain_memoryworth.estimators.paths import LONGEST, MORE, follow, joined, typical
from langchain_memoryworth.reports.report import gather
from langchain_memoryworth.reports.sections import by_tool_path
from tests.conftest import StoreMaker
from tests.fakes import Clock, assert_exact, query
from tests.runs_fixtures import GRAPH_CALLS, GraphCall, Life, broken_ledger, rewards, says, text

ASK: dict[str, Any] = {"messages": [("human", "apple?")]}
THREAD: dict[str, Any] = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=GRAPH_CALLS)
def call(request: pytest.FixtureRequest) -> GraphCall:
    return GRAPH_CALLS[request.param]


@pytest.fixture
def life(store: MemoryWorthStore) -> Life:
    return Life(store)


@tool
def count(what: str) -> str:
    """Counts."""
    return "3"


@tool
def send(what: str) -> str:
    """Sends a mail."""
    return "sent"


@tool
def breaks(what: str) -> str:
    """Breaks."""
    raise LookupError(what)


def look_up(life: Life) -> BaseTool:
    return create_retriever_tool(life.retriever, "look_up", "Looks things up.")


def wants(*names: str) -> Any:
    """A model that calls tools one after the other, and then answers."""
    return says(
        *((n, {"query": "apple"} if n == "look_up" else {"what": "x"}) for n in names), "done"
    )


def agent_of(life: Life, *names: str, **more: Any) -> Any:
    return create_agent(wants(*names), [look_up(life), count, send, breaks], **more)


def paths(store: MemoryWorthStore) -> list[tuple[str, ...]]:
    """Of every episode, oldest first."""
    return [store.run(id_).path for id_ in rewards(store)]


# -- what is kept ------------------------------------------------------------------------------------------------


def test_an_agent(life: Life, call: GraphCall) -> None:
    call(agent_of(life, "look_up", "count", "count", "look_up", "send"), ASK, life.config)
    life.is_success("apple")
    assert paths(life.store) == [("look_up", "count", "look_up", "send")]
    [run] = rewards(life.store)
    assert "  it called look_up > count > look_up > send" in str(life.store.explain_run(run))


def test_a_tool_node_in_a_graph(life: Life, call: GraphCall) -> None:
    class State(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    model = wants("look_up", "send")
    builder = StateGraph(State)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([look_up(life), send]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    call(builder.compile(), ASK, life.config)
    assert paths(life.store) == [("look_up", "send")]


def test_a_chain_that_calls_tools_itself(life: Life, call: GraphCall) -> None:
    @RunnableLambda
    def work(found: Any) -> str:
        return str(send.invoke(count.invoke(text(found), {"run_name": "another name"})))

    call(life.retriever | work, "apple", life.config)
    assert paths(life.store) == [("count", "send")]


def test_a_tool_that_raises_is_one_that_was_called(life: Life) -> None:
    with pytest.raises(LookupError):
        agent_of(life, "look_up", "breaks").invoke(ASK, life.config)
    assert paths(life.store) == [("look_up", "breaks")]
    assert life.store.health().ok


def test_without_an_outcome_it_is_kept_too(life: Life, call: GraphCall) -> None:
    handler = MemoryWorthCallbackHandler(life.store)
    call(agent_of(life, "look_up", "send"), ASK, {"callbacks": [handler]})
    unsure = MemoryWorthCallbackHandler(life.store, lambda run: None)
    call(agent_of(life, "look_up", "count"), ASK, {"callbacks": [unsure]})
    assert paths(life.store) == [("look_up", "send"), ("look_up", "count")]
    assert life.rewards == [None, None]


def test_under_group_commit(make_store: StoreMaker, call: GraphCall) -> None:
    life = Life(make_store(group_commit=timedelta(milliseconds=1)))
    call(agent_of(life, "look_up", "send"), ASK, life.config)
    life.is_success("apple")
    assert paths(life.store) == [("look_up", "send")]


def test_two_handlers_tell_it_once(life: Life, call: GraphCall) -> None:
    others = [MemoryWorthCallbackHandler(life.store, lambda run: True, source="other")]
    call(agent_of(life, "look_up", "send"), ASK, {"callbacks": [life.handler, *others]})
    assert paths(life.store) == [("look_up", "send")]


def test_without_a_retrieval_there_is_nothing_to_keep_it_with(life: Life) -> None:
    agent_of(life, "count").invoke(ASK, life.config)
    agent_of(life, "count").invoke(ASK, {"callbacks": [MemoryWorthCallbackHandler(life.store)]})
    assert (life.rewards, life.store.health().ok) == ([], True)


def test_runs_of_one_episode_follow_each_other(life: Life) -> None:
    with life.store.episode("e"):
        agent_of(life, "look_up", "count").invoke(ASK, life.config)
        agent_of(life, "send").invoke(ASK, life.config)
    assert life.store.run("e").path == ("look_up", "count", "send")


@contextmanager
def counted(store: MemoryWorthStore) -> Iterator[list[None]]:
    """The transactions that write."""
    seen: list[None] = []
    write = store.governor.database.write

    def watched(**options: Any) -> Any:
        seen.append(None)
        return write(**options)

    with patch.object(store.governor.database, "write", watched):
        yield seen


def test_it_rides_on_the_outcome_and_costs_a_run_without_tools_nothing(life: Life) -> None:
    @RunnableLambda
    def work(found: Any) -> str:
        return str(send.invoke({"what": text(found)}))

    def writes(chain: Any, *handlers: Any) -> int:
        with counted(life.store) as seen:
            chain.invoke("apple", {"callbacks": list(handlers)})
        return len(seen)

    silent = MemoryWorthCallbackHandler(life.store)
    plain = life.retriever | text
    assert writes(life.retriever | work, life.handler) == writes(plain, life.handler) == 2
    assert (writes(life.retriever | work, silent), writes(plain, silent)) == (2, 1)
    assert paths(life.store) == [("send",), (), ("send",), ()]


def test_a_ledger_that_fails_never_breaks_the_run(life: Life, call: GraphCall) -> None:
    for handler in (life.handler, MemoryWorthCallbackHandler(life.store)):
        run = agent_of(life, "look_up", "send")
        with broken_ledger(life.store):
            call(run, ASK, {"callbacks": [handler]})
            life.store.governor.outbox.drain()
    assert life.rewards == []
    assert not life.store.health().ok


# -- runs that go on ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("same_id", [False, True])
def test_a_resumed_run_goes_on_with_its_path(life: Life, call: GraphCall, same_id: bool) -> None:
    agent = agent_of(
        life,
        *("look_up", "count", "send", "count"),
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"send": True})],
        checkpointer=InMemorySaver(),
    )
    config = {**life.config, **THREAD} | ({"run_id": uuid.uuid4()} if same_id else {})
    call(agent, ASK, config)
    assert paths(life.store) == [("look_up", "count")]
    call(agent, Command(resume={"decisions": [{"type": "approve"}]}), config)
    life.is_success("apple")
    assert paths(life.store) == [("look_up", "count", "send", "count")]


def test_a_tool_that_asks_a_person_is_called_once(life: Life, call: GraphCall) -> None:
    @tool
    def confirm(what: str) -> str:
        """Asks."""
        return str(interrupt(what))

    agent = create_agent(
        wants("look_up", "confirm", "send"),
        [look_up(life), confirm, send],
        checkpointer=InMemorySaver(),
    )
    call(agent, ASK, {**life.config, **THREAD})
    call(agent, Command(resume="yes"), {**life.config, **THREAD})
    life.is_success("apple")
    assert paths(life.store) == [("look_up", "confirm", "send")]


# -- middleware and nodes, which no handler watches --------------------------------------------------------------


@pytest.mark.parametrize("judged", [True, False])
def test_the_middleware_reads_the_turn(life: Life, call: GraphCall, judged: bool) -> None:
    outcome = (lambda run: True) if judged else None
    agent = create_agent(
        says(*[("count", {"what": "x"}), ("send", {"what": "x"}), "done"] * 2),
        [count, send],
        middleware=[MemoryWorthMiddleware(life.store, outcome=outcome, k=1)],
        checkpointer=InMemorySaver(),
    )
    for _ in range(2):
        call(agent, ASK, THREAD)
    assert paths(life.store) == [("count", "send")] * 2
    assert life.rewards == [1.0 if judged else None] * 2


def test_under_a_handler_the_middleware_leaves_it_to_that(life: Life, call: GraphCall) -> None:
    agent = agent_of(life, "count", "send", middleware=[MemoryWorthMiddleware(life.store, k=1)])
    with counted(life.store) as seen:
        call(agent, ASK, life.config)
        assert paths(life.store) == [("count", "send")]
    assert len(seen) == 2  # the retrieval, and the outcome


def test_a_rejected_call_is_none(life: Life) -> None:
    agent = agent_of(
        life,
        *("count", "send"),
        middleware=[
            MemoryWorthMiddleware(life.store, outcome=lambda run: True, k=1),
            HumanInTheLoopMiddleware(interrupt_on={"send": True}),
        ],
        checkpointer=InMemorySaver(),
    )
    agent.invoke(ASK, THREAD)
    agent.invoke(Command(resume={"decisions": [{"type": "reject"}]}), THREAD)
    assert paths(life.store) == [("count",)]


@tool
def asks_another(what: str) -> str:
    """Calls a tool itself."""
    return str(count.invoke(what))


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    documents: list[Any]
    memory_ids: list[str]
    episode_id: str | None


@pytest.mark.parametrize("watched", [False, True])
def test_the_outcome_node_reads_the_messages_if_no_handler_watches(
    life: Life, call: GraphCall, watched: bool
) -> None:
    """A handler sees a tool that another one calls, too; what both have seen was called once."""
    model = wants("asks_another", "send")
    builder = StateGraph(State)
    recall = RecallNode(life.store, lambda state: state["messages"][-1].text, k=1)
    builder.add_node("recall", recall)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([asks_another, send]))
    builder.add_node("outcome", OutcomeNode(life.store, lambda state: True))
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "model")
    builder.add_conditional_edges("model", tools_condition, {"tools": "tools", END: "outcome"})
    builder.add_edge("tools", "model")
    call(builder.compile(), ASK, life.config if watched else {})
    seen = ("asks_another", "count", "send") if watched else ("asks_another", "send")
    assert (paths(life.store), life.rewards) == ([seen], [1.0])


def test_each_episode_of_a_run_gets_its_own(life: Life, call: GraphCall) -> None:
    """Two agents in one run, each with an outcome of its own, and a handler around both."""
    one, two = (
        create_agent(
            wants(name),
            [count, send],
            middleware=[MemoryWorthMiddleware(life.store, outcome=lambda run: True, k=1)],
        )
        for name in ("count", "send")
    )
    both = RunnableLambda(lambda state: [one.invoke(state), two.invoke(state)][1])
    call(both, ASK, {"callbacks": [MemoryWorthCallbackHandler(life.store)]})
    assert paths(life.store) == [("count",), ("send",)]


def test_what_two_branches_take_at_once_costs_nothing_of_what_comes_then(life: Life) -> None:
    taken: list[Any] = []

    @RunnableLambda
    def work(found: Any) -> str:
        count.invoke(text(found))
        with life.store.governor.runs.path_taken() as one:
            with life.store.governor.runs.path_taken() as other:
                taken.extend((one, other))
            send.invoke("x")
        return text(found)

    (life.retriever | work).invoke("apple", life.config)
    assert (taken, paths(life.store)) == ([("count",)] * 2, [("send",)])


def test_what_a_node_cannot_write_down_is_left_to_the_handler(life: Life) -> None:
    """It recalled nothing, so its episode is not known; the memories of the run came by a tool."""
    builder = StateGraph(State)
    builder.add_node("agent", agent_of(life, "look_up", "send"))
    builder.add_node("outcome", OutcomeNode(life.store, lambda state: True))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "outcome")
    builder.compile().invoke({**ASK, "episode_id": "of nothing"}, life.config)
    assert paths(life.store) == [("look_up", "send")]
    assert life.store.health().ok


class _Foreign:
    type = "tool"


@dataclass
class _State:
    messages: Any
    episode_id: str = "e"


ANSWERED = ToolMessage("3", tool_call_id="1", name="count")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        *[(m, ()) for m in (None, 5, "text", np.arange(3), [_Foreign()], [{"type": "tool"}])],
        ([ANSWERED], ("count",)),
        ([ANSWERED, ToolMessage("?", tool_call_id="2")], ("count",)),
    ],
)
@pytest.mark.parametrize("of", [_State, lambda m: {"messages": m, "episode_id": "e"}])
def test_whatever_a_state_calls_messages_costs_no_outcome(
    life: Life, messages: Any, expected: tuple[str, ...], of: Any
) -> None:
    with life.store.episode("e"):
        life.store.similarity_search("apple", k=1)
    OutcomeNode(life.store, lambda state: True).invoke(of(messages))
    assert (life.store.run("e").reward, life.store.run("e").path) == (1.0, expected)
    assert life.store.health().ok


def test_an_outcome_function_that_raises_costs_the_outcome_alone(
    life: Life, call: GraphCall
) -> None:
    def judge(run: Any) -> bool:
        raise LookupError(run.episode_id)

    handler = MemoryWorthCallbackHandler(life.store, judge)
    call(agent_of(life, "look_up", "send"), ASK, {"callbacks": [handler]})
    middleware = MemoryWorthMiddleware(life.store, outcome=judge, k=1)
    call(agent_of(life, "count", middleware=[middleware]), ASK, {})
    assert (paths(life.store), life.rewards) == ([("look_up", "send"), ("count",)], [None, None])
    assert life.store.health().failures == {"an outcome": 2}


# -- the report --------------------------------------------------------------------------------------------------


def lived(store: MemoryWorthStore, path: tuple[str, ...], query: str, *outcomes: bool) -> None:
    for outcome in outcomes:
        with store.episode() as episode:
            store.similarity_search(query, k=1)
        store.governor.journal.keep_path(episode.id, path)
        episode.record(outcome)


@pytest.fixture
def told(life: Life) -> MemoryWorthStore:
    lived(life.store, ("search", "send"), "apple", *[True] * 9, False)
    lived(life.store, ("search",), "bread", *[False] * 6)
    lived(life.store, (), "bread", True)
    with life.store.episode():
        life.store.similarity_search("cedar", k=1)
    return life.store


def test_each_path_with_how_its_runs_went(told: MemoryWorthStore) -> None:
    first, second, none = told.tool_paths()
    assert [p.path for p in (first, second, none)] == [("search", "send"), ("search",), ()]
    assert [(p.episodes, p.settled) for p in (first, second, none)] == [(10, 10), (6, 6), (2, 1)]
    assert first.success == belief_of([1.0] * 9 + [0.0])
    assert second.success.high < first.success.low
    assert str(first) == (
        "search > send: 0.83 (0.64 to 0.97) in 10 of 10 runs, typically with apple"
    )
    assert (second.memories, none.memories) == (("bread",), ())


def test_of_a_namespace(told: MemoryWorthStore) -> None:
    told.add_texts(["apple"], namespace="acme")
    with told.episode("e") as episode:
        told.similarity_search("apple", k=1, namespace="acme")
    told.governor.journal.keep_path("e", ("pay",))
    episode.record(True)
    assert [p.path for p in told.tool_paths(namespace="acme")] == [("pay",)]
    assert ("pay",) not in {p.path for p in told.tool_paths()}
    assert told.tool_paths(namespace="nobody") == ()


async def test_the_async_twin(told: MemoryWorthStore) -> None:
    assert await told.atool_paths() == told.tool_paths()


def test_a_section_of_the_report(told: MemoryWorthStore) -> None:
    section = by_tool_path(gather(told))
    assert section.plot is not None
    found = section.plot.keywords["found"]  # type: ignore[attr-defined]
    assert [(r.name, r.runs) for r in found] == [
        *[("search > send", 10), ("search", 6), ("(no tool)", 1)]
    ]


def test_it_goes_with_its_run(told: MemoryWorthStore, clock: Clock) -> None:
    clock.forward(days=40)
    lived(told, ("last",), "apple", True)
    told.compact(timedelta(days=30))
    assert [p.path for p in told.tool_paths()] == [("last",)]
    assert "search" not in str(query(told, "SELECT path FROM episodes"))
    assert_exact(told)


def test_an_erased_memory_takes_the_runs_that_showed_nothing_else(told: MemoryWorthStore) -> None:
    told.erase("bread")
    assert [(p.path, p.memories) for p in told.tool_paths()] == [
        (("search", "send"), ("apple",)),
        ((), ()),
    ]


def test_an_export_carries_it(
    told: MemoryWorthStore, make_store: StoreMaker, tmp_path: Path
) -> None:
    lived(told, ("\0", "\x01", "half \ud83d", "x" * 10**6), "apple", True)
    told.export_file(tmp_path / "all.jsonl")
    other = make_store(f"sqlite:///{tmp_path}/other.db")
    other.import_file(tmp_path / "all.jsonl")
    assert other.tool_paths() == told.tool_paths()
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert {tuple(e["path"]) for e in lines if e["kind"] == "episode"} == set(paths(told))


# -- the pure part -----------------------------------------------------------------------------------------------

NAMES = st.lists(st.sampled_from("abcd"), max_size=60).map(tuple)


@given(NAMES, NAMES)
def test_a_path_is_bounded_and_told_again_says_nothing_new(
    first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    path = follow((), first)
    assert len(path) <= LONGEST + 1
    assert (MORE in path) == (len(path) > LONGEST)
    assert all(a != b for a, b in pairwise(path))
    assert follow(follow((), first), second) == follow((), first + second)
    more = follow((), second)
    assert joined(path, path) == path
    assert joined(joined(path, more), more) == joined(path, more)
    assert joined((), path) == joined(path, ()) == path


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 40))
def test_what_is_in_all_runs_or_in_a_fair_share_is_typical_of_none(
    runs: int, others: int, share: int
) -> None:
    count = runs + others
    assert typical({"all": runs}, runs, {"all": count}, count) == []
    fair = min(share, runs)
    assert typical({"fair": fair}, runs, {"fair": 2 * fair}, 2 * runs) == []


@pytest.mark.parametrize("runs", [5, 20, 100])
@pytest.mark.parametrize("total", [5, 20, 100])
def test_by_chance_hardly_anything_is_typical(runs: int, total: int) -> None:
    # One in 741 beyond three standard deviations were it normal; by the exact law of skewed small counts up to one in 100.
    every = 200
    beyond = [
        k for k in range(min(runs, total) + 1) if typical({"m": k}, runs, {"m": total}, every)
    ]
    chance = sum(comb(total, k) * comb(every - total, runs - k) for k in beyond) / comb(every, runs)
    assert chance < 0.01
