"""Runs that stop and go on: interrupts, breakpoints, failures, time travel; here, in another process, days later."""

from __future__ import annotations

import asyncio
import operator
import subprocess
import sys
import threading
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict
from unittest.mock import patch

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore, memory_worth
from tests.conftest import StoreMaker
from tests.fakes import Clock
from tests.runs_fixtures import (
    GRAPH_CALLS,
    Foreign,
    GraphCall,
    Life,
    credits_of,
    filled,
    rewards,
    says,
    shown,
    text,
    threads_of_database,
)


@pytest.fixture(params=GRAPH_CALLS)
def call(request: pytest.FixtureRequest) -> GraphCall:
    return GRAPH_CALLS[request.param]


@pytest.fixture
def life(store: MemoryWorthStore) -> Life:
    return Life(store)


class State(TypedDict, total=False):
    query: str
    found: Annotated[list[str], operator.add]


def recall(life: Life, word: str | None = None) -> Any:
    return lambda state: {"found": [text(life.retriever.invoke(word or state["query"]))]}


def ask_person(state: State) -> State:
    return {"found": [interrupt("may I?")]}


def built(*nodes: tuple[str, Any]) -> Any:
    builder = StateGraph(State)
    for name, node in nodes:
        builder.add_node(name, node)
    builder.add_edge(START, nodes[0][0])
    for (a, _), (b, _) in pairwise(nodes):
        builder.add_edge(a, b)
    return builder


def on(life: Life, thread: str = "t", **more: Any) -> Any:
    return {**life.config, "configurable": {"thread_id": thread, **more}}


def asking(life: Life) -> Any:
    """Looks up the query, asks a person, looks up bread."""
    nodes = (("recall", recall(life)), ("ask", ask_person), ("more", recall(life, "bread")))
    return built(*nodes).compile(checkpointer=InMemorySaver())


# -- interrupts ----------------------------------------------------------------------------------------------------


def test_an_interrupt_is_no_success(life: Life, call: GraphCall) -> None:
    call(asking(life), {"query": "apple"}, on(life))
    life.is_unknown("apple")


def test_a_resumed_run_is_the_same_episode(life: Life, call: GraphCall) -> None:
    graph = asking(life)
    first, second = uuid.uuid4(), uuid.uuid4()
    call(graph, {"query": "apple"}, {**on(life), "run_id": first})
    call(graph, Command(resume="yes"), {**on(life), "run_id": second})
    life.is_success("apple", "bread")
    assert list(rewards(life.store)) == [str(first)]
    assert life.store.run(second) == life.store.run(first)
    [run] = life.judge.runs
    assert (run.run_id, run.episode_id) == (str(second), str(first))
    assert {d.id for d in run.memories} == {"apple", "bread"}
    assert {d.page_content for d in run.memories} == {"apple", "bread"}
    life.store.record_outcome(second, False)
    assert life.store.worth("apple") == 0.0
    assert life.store.evidence("apple").retrievals == 1


def test_feedback_while_it_waits(life: Life, call: GraphCall) -> None:
    graph = asking(life)
    first = uuid.uuid4()
    call(graph, {"query": "apple"}, {**on(life), "run_id": first})
    life.store.record_outcome(first, False)
    call(graph, Command(resume="yes"), on(life))
    # The user's word counts, for what came after it too.
    assert life.store.worth("apple") == life.store.worth("bread") == 0.0
    assert credits_of(life.store) == {"apple": 1, "bread": 1}


def test_last_episode_id_after_a_resume(life: Life) -> None:
    graph = asking(life)
    graph.invoke({"query": "apple"}, on(life))
    first = life.handler.last_episode_id
    graph.invoke(Command(resume="yes"), on(life))
    assert life.handler.last_episode_id == first


def test_several_interrupts_in_one_node(life: Life, call: GraphCall) -> None:
    def ask_twice(state: State) -> State:
        life.retriever.invoke("cedar")  # again at every resume: the node begins anew
        return {"found": [interrupt("first"), interrupt("second")]}

    graph = built(("recall", recall(life)), ("ask", ask_twice)).compile(
        checkpointer=InMemorySaver()
    )
    call(graph, {"query": "apple"}, on(life))
    call(graph, Command(resume="1"), on(life))
    life.is_unknown("apple", "cedar")
    call(graph, Command(resume="2"), on(life))
    life.is_success("apple", "cedar")


def test_an_interrupt_before_anything_is_retrieved(life: Life, call: GraphCall) -> None:
    nodes = (("ask", ask_person), ("recall", recall(life)))
    graph = built(*nodes).compile(checkpointer=InMemorySaver())
    first = uuid.uuid4()
    call(graph, {"query": "apple"}, {**on(life), "run_id": first})
    call(graph, Command(resume="yes"), on(life))
    life.is_success("apple")
    assert list(rewards(life.store)) == [str(first)]


@pytest.mark.parametrize("where", [{"interrupt_before": ["more"]}, {"interrupt_after": ["recall"]}])
def test_static_breakpoints(life: Life, call: GraphCall, where: Any) -> None:
    nodes = (("recall", recall(life)), ("more", recall(life, "bread")))
    graph = built(*nodes).compile(checkpointer=InMemorySaver(), **where)
    call(graph, {"query": "apple"}, on(life))
    life.is_unknown("apple")
    call(graph, None, on(life))
    life.is_success("apple", "bread")


@pytest.mark.parametrize("where", [{"interrupt_before": ["more"]}, {"interrupt_after": ["inner"]}])
def test_static_breakpoints_in_a_subgraph(life: Life, call: GraphCall, where: Any) -> None:
    sub = built(("inner", recall(life)), ("more", recall(life, "cedar"))).compile(**where)
    graph = built(("a", recall(life, "bread")), ("sub", sub)).compile(checkpointer=InMemorySaver())
    call(graph, {"query": "apple"}, on(life))
    life.is_unknown("apple", "bread")
    call(graph, None, on(life))
    life.is_success("apple", "bread", "cedar")


def test_breakpoints_after_update_state(life: Life, call: GraphCall) -> None:
    nodes = (("recall", recall(life)), ("more", recall(life, "bread")))
    graph = built(*nodes).compile(checkpointer=InMemorySaver(), interrupt_before=["more"])
    call(graph, {"query": "apple"}, on(life))
    graph.update_state({"configurable": {"thread_id": "t"}}, {"found": ["edited"]})
    life.is_unknown("apple")
    call(graph, None, on(life))
    life.is_success("apple", "bread")


@pytest.mark.parametrize("how", ["as node", "invoked"])
def test_an_interrupt_in_a_subgraph(life: Life, call: GraphCall, how: str) -> None:
    sub = built(("inner", recall(life)), ("ask", ask_person)).compile()

    def invoke(state: State) -> State:
        return {"found": sub.invoke({"query": state["query"]})["found"]}

    node = sub if how == "as node" else invoke
    graph = built(("a", recall(life, "bread")), ("sub", node)).compile(checkpointer=InMemorySaver())
    call(graph, {"query": "apple"}, on(life))
    life.is_unknown("apple", "bread")
    call(graph, Command(resume="yes"), on(life))
    life.is_success("apple", "bread")


def test_an_interrupt_in_a_branch_beside_others(life: Life, call: GraphCall) -> None:
    builder = StateGraph(State)
    builder.add_node("a", recall(life))
    builder.add_node("b", ask_person)
    builder.add_node("end", recall(life, "bread"))
    builder.add_edge(START, "a")
    builder.add_edge(START, "b")
    builder.add_edge(["a", "b"], "end")
    graph = builder.compile(checkpointer=InMemorySaver())
    call(graph, {"query": "apple"}, on(life))
    life.is_unknown("apple")
    call(graph, Command(resume="yes"), on(life))
    life.is_success("apple", "bread")


def test_the_functional_api(life: Life) -> None:
    @task
    def look(word: str) -> str:
        return text(life.retriever.invoke(word))

    @entrypoint(checkpointer=InMemorySaver())
    def flow(word: str) -> str:
        found = look(word).result()
        answer = interrupt("may I?")
        return found + answer + look("bread").result()

    flow.invoke("apple", on(life))
    life.is_unknown("apple")
    assert flow.invoke(Command(resume="!"), on(life)) == "apple!bread"
    life.is_success("apple", "bread")


def test_an_agent_with_a_person_in_the_loop(life: Life, call: GraphCall) -> None:
    @tool
    def send(text: str) -> str:
        """Sends a mail."""
        return "sent"

    look_up = create_retriever_tool(life.retriever, "look_up", "Looks things up.")
    agent = create_agent(
        says(("look_up", {"query": "apple"}), ("send", {"text": "x"}), "done"),
        [look_up, send],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"send": True})],
        checkpointer=InMemorySaver(),
    )
    call(agent, {"messages": [HumanMessage("?")]}, on(life))
    life.is_unknown("apple")
    call(agent, Command(resume={"decisions": [{"type": "approve"}]}), on(life))
    life.is_success("apple")


def test_an_interrupt_in_a_tool_is_no_tool_error(life: Life, call: GraphCall) -> None:
    @tool
    def confirm(text: str) -> str:
        """Asks."""
        return str(interrupt(text))

    look_up = create_retriever_tool(life.retriever, "look_up", "Looks things up.")
    agent = create_agent(
        says(("look_up", {"query": "apple"}), ("confirm", {"text": "x"}), "done"),
        [look_up, confirm],
        checkpointer=InMemorySaver(),
    )
    run_id = uuid.uuid4()  # the same for both, so that what was noted of the first is kept
    call(agent, {"messages": [HumanMessage("?")]}, {**on(life), "run_id": run_id})
    call(agent, Command(resume="yes"), {**on(life), "run_id": run_id})
    life.is_success("apple")
    assert life.judge.runs[0].tool_errors == ()
    assert life.store.health().reused == 0


def test_a_graph_that_is_retried_around(life: Life, call: GraphCall) -> None:
    graph = asking(life).with_retry(stop_after_attempt=2)
    call(graph, {"query": "apple"}, on(life))
    if life.rewards == [None]:  # a stream goes past the retry
        life.is_unknown("apple")
    call(graph, Command(resume="yes"), on(life))
    life.is_success("apple", "bread")


def test_an_inner_graph_with_its_own_thread_may_wait(life: Life, call: GraphCall) -> None:
    inner = asking(life)

    def node(state: State) -> State:
        inner.invoke({"query": "apple"}, {"configurable": {"thread_id": "inner"}})
        return {"found": ["went on"]}

    graph = built(("outer", node)).compile()
    call(graph, {"query": "?"}, life.config)
    life.is_success("apple")


def test_a_foreign_retriever_before_and_after(life: Life, call: GraphCall) -> None:
    foreign = Foreign(ids=("apple", "cedar"))
    nodes = (
        ("recall", lambda state: {"found": [text(foreign.invoke("?"))]}),
        ("ask", ask_person),
        ("more", lambda state: {"found": [text(Foreign(ids=("bread",)).invoke("?"))]}),
    )
    graph = built(*nodes).compile(checkpointer=InMemorySaver())
    call(graph, {"query": "?"}, on(life))
    life.is_unknown("apple", "cedar")
    call(graph, Command(resume="yes"), on(life))
    life.is_success("apple", "bread", "cedar")


# -- threads with many turns -------------------------------------------------------------------------------------------


def test_every_turn_is_an_episode(life: Life, call: GraphCall) -> None:
    graph = built(("recall", recall(life))).compile(checkpointer=InMemorySaver())
    for word in ("apple", "bread", "apple"):
        call(graph, {"query": word}, on(life))
    assert life.rewards == [1.0, 1.0, 1.0]
    assert credits_of(life.store) == {"apple": 2, "bread": 1}


def test_turns_are_one_episode_if_the_user_says_so(life: Life, call: GraphCall) -> None:
    graph = built(("recall", recall(life))).compile(checkpointer=InMemorySaver())
    for word in ("apple", "bread", "apple"):
        call(graph, {"query": word}, {**on(life), "metadata": {"episode_id": "talk"}})
    assert rewards(life.store) == {"talk": 1.0}
    assert credits_of(life.store) == {"apple": 1, "bread": 1}


def test_a_new_turn_over_an_interrupt(life: Life, call: GraphCall) -> None:
    graph = asking(life)
    call(graph, {"query": "apple"}, on(life))
    call(graph, {"query": "cedar"}, on(life))
    call(graph, Command(resume="yes"), on(life))
    assert life.rewards == [None, 1.0]
    assert credits_of(life.store) == {"bread": 1, "cedar": 1}


def test_threads_do_not_mix(life: Life, call: GraphCall) -> None:
    graph = asking(life)
    call(graph, {"query": "apple"}, on(life, "one"))
    call(graph, {"query": "cedar"}, on(life, "two"))
    call(graph, Command(resume="yes"), on(life, "one"))
    assert life.rewards == [1.0, None]
    assert credits_of(life.store) == {"apple": 1, "bread": 1}


# -- failures that are started again, time travel ----------------------------------------------------------------------


def test_a_graph_that_failed_and_goes_on(life: Life, call: GraphCall) -> None:
    broken = [True]

    def flaky(state: State) -> State:
        if broken:
            broken.clear()
            raise ConnectionError("down")
        return {"found": ["up"]}

    graph = built(("recall", recall(life)), ("flaky", flaky)).compile(checkpointer=InMemorySaver())
    judge = MemoryWorthCallbackHandler(
        life.store, lambda run: None if run.error else life.judge(run)
    )
    config = {**on(life), "callbacks": [judge]}
    with pytest.raises(ConnectionError):
        call(graph, {"query": "apple"}, config)
    life.is_unknown("apple")
    call(graph, None, config)
    life.is_success("apple")


def checkpoint(graph: Any, following: str) -> Any:
    """The oldest checkpoint of the thread that has a node before it."""
    history = graph.get_state_history({"configurable": {"thread_id": "t"}})
    return [s for s in history if s.next == (following,)][-1].config["configurable"][
        "checkpoint_id"
    ]


def test_time_travel_begins_an_episode_of_its_own(life: Life, call: GraphCall) -> None:
    graph = built(("recall", recall(life)), ("more", recall(life, "bread"))).compile(
        checkpointer=InMemorySaver()
    )
    call(graph, {"query": "apple"}, on(life))
    call(graph, None, on(life, checkpoint_id=checkpoint(graph, "recall")))
    assert life.rewards == [1.0, 1.0]
    assert credits_of(life.store) == {"apple": 2, "bread": 2}


def test_going_back_to_an_interrupt_that_is_over(life: Life, call: GraphCall) -> None:
    graph = asking(life)
    call(graph, {"query": "apple"}, on(life))
    call(graph, Command(resume="yes"), on(life))
    life.is_success("apple", "bread")
    at = checkpoint(graph, "ask")
    call(graph, Command(resume="no"), on(life, checkpoint_id=at))
    # A second ending with the same beginning: what stood in front of the model then counts again.
    assert life.rewards == [1.0, 1.0]
    assert credits_of(life.store) == {"apple": 2, "bread": 2}


def test_a_fork_of_an_interrupt_asks_again(life: Life, call: GraphCall, clock: Clock) -> None:
    graph = asking(life)
    call(graph, {"query": "apple"}, on(life))
    clock.forward(seconds=1)
    call(graph, Command(resume="yes"), on(life))
    clock.forward(seconds=1)
    call(graph, None, on(life, checkpoint_id=checkpoint(graph, "ask")))
    forked = list(rewards(life.store))[-1]
    assert life.rewards == [1.0, None]
    assert shown(life.store, forked) == {"apple"}  # not what came after the interrupt
    call(graph, Command(resume="no"), on(life))
    assert life.rewards == [1.0, 1.0]
    assert credits_of(life.store) == {"apple": 2, "bread": 2}


# -- other processes, the context manager, the loop --------------------------------------------------------------------


_PROGRAM = """
import sys, operator
from typing import Annotated, TypedDict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
import pickle
from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore
from tests.fakes import HashedWords

class State(TypedDict, total=False):
    query: str
    found: Annotated[list, operator.add]

store = MemoryWorthStore(sys.argv[1], HashedWords())
retriever = store.as_retriever(k=1)
look = lambda word: [d.id for d in retriever.invoke(word)]
def ask(state): return {"found": [interrupt("may I?")]}
saver = InMemorySaver()
kept = sys.argv[2]
if sys.argv[3] == "resume":
    from collections import defaultdict
    storage, writes, blobs = pickle.load(open(kept, "rb"))
    for thread, spaces in storage.items():
        for ns, checkpoints in spaces.items():
            saver.storage[thread][ns].update(checkpoints)
    saver.writes.update(writes); saver.blobs.update(blobs)
graph = (StateGraph(State).add_node("recall", lambda s: {"found": look(s["query"])})
    .add_node("ask", ask).add_node("more", lambda s: {"found": look("bread")})
    .add_edge(START, "recall").add_edge("recall", "ask").add_edge("ask", "more")
    .compile(checkpointer=saver))
seen = []
handler = MemoryWorthCallbackHandler(store, lambda run: seen.append(sorted(d.page_content for d in run.memories)) or True)
config = {"callbacks": [handler], "configurable": {"thread_id": "t"}}
graph.invoke({"query": "apple"} if sys.argv[3] == "start" else Command(resume="yes"), config)
if sys.argv[3] == "start":
    pickle.dump(({t: {n: dict(c) for n, c in s.items()} for t, s in saver.storage.items()},
        dict(saver.writes), dict(saver.blobs)), open(kept, "wb"))
print(handler.last_episode_id, seen, store.health().failures)
"""


def run_program(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=Path(__file__).resolve().parents[1],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(maxsplit=1)


def test_resumed_in_another_process(make_store: StoreMaker, file_url: str, tmp_path: Path) -> None:
    filled(make_store(file_url)).close()
    kept = str(tmp_path / "checkpoints")
    first, before = run_program(file_url, kept, "start")
    assert before.strip() == "[] {}"
    second, after = run_program(file_url, kept, "resume")
    assert second == first
    assert after.strip() == "[['apple', 'bread']] {}"
    store = make_store(file_url)
    assert rewards(store) == {first: 1.0}
    assert credits_of(store) == {"apple": 1, "bread": 1}


def test_resumed_days_later_by_another_handler(
    make_store: StoreMaker, file_url: str, clock: Clock, call: GraphCall
) -> None:
    life = Life(make_store(file_url))
    graph = asking(life)
    call(graph, {"query": "apple"}, on(life))
    life.is_unknown("apple")
    clock.forward(days=30)
    store = make_store(file_url)
    seen: list[set[str]] = []
    handler = MemoryWorthCallbackHandler(
        store, lambda run: bool(seen.append({d.page_content for d in run.memories})) or True
    )
    call(graph, Command(resume="yes"), {**on(life), "callbacks": [handler]})
    assert list(rewards(store).values()) == [1.0]
    assert store.evidence("apple").retrievals == 1
    assert seen == [{"apple", "bread"}]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_the_context_manager_follows_dynamic_interrupts(life: Life, how: str) -> None:
    graph = asking(life)
    config: Any = {"configurable": {"thread_id": "t"}}
    turns: list[Any] = [{"query": "apple"}, Command(resume="yes")]
    for n, value in enumerate(turns):
        with memory_worth(life.store, life.judge):
            if how == "sync":
                graph.invoke(value, config)
            else:
                asyncio.run(graph.ainvoke(value, config))
        if n == 0:
            life.is_unknown("apple")
    life.is_success("apple", "bread")


@pytest.mark.parametrize("where", [{"interrupt_before": ["more"]}, {"interrupt_after": ["recall"]}])
@pytest.mark.parametrize("inner", [True, False], ids=["two managers", "one manager"])
def test_the_context_manager_follows_static_breakpoints(
    life: Life, call: GraphCall, where: Any, inner: bool
) -> None:
    nodes = (("recall", recall(life)), ("more", recall(life, "bread")))
    graph = built(*nodes).compile(checkpointer=InMemorySaver(), **where)
    config: Any = {"configurable": {"thread_id": "t"}}
    for value in ({"query": "apple"}, None):
        with memory_worth(life.store, life.judge):
            if inner:
                with memory_worth(life.store, life.judge):
                    call(graph, value, config)
            else:
                call(graph, value, config)
        if value is not None:
            life.is_unknown("apple")
    life.is_success("apple", "bread")


@pytest.mark.parametrize("how", ["dynamic", "static"])
def test_the_context_manager_around_runs_with_callbacks_of_their_own(life: Life, how: str) -> None:
    """Where LangGraph tells only those, an interrupt is seen as it unwinds, but a breakpoint is taken for the end."""
    graph = asking(life)
    if how == "static":
        nodes = (("recall", recall(life)), ("more", recall(life, "bread")))
        graph = built(*nodes).compile(checkpointer=InMemorySaver(), interrupt_before=["more"])
    config: Any = {"configurable": {"thread_id": "t"}, "callbacks": [BaseCallbackHandler()]}
    with memory_worth(life.store, life.judge):
        graph.invoke({"query": "apple"}, config)
        assert life.rewards == [None] or how == "static"
        graph.invoke(Command(resume="yes") if how == "dynamic" else None, config)
    assert life.rewards == [1.0] or (how == "static" and life.rewards == [1.0, 1.0])
    assert credits_of(life.store) == {"apple": 1, "bread": 1}


def test_the_context_manager_in_a_run_that_began_before(life: Life, call: GraphCall) -> None:
    nodes = (("recall", recall(life)), ("more", recall(life, "bread")))
    graph = built(*nodes).compile(checkpointer=InMemorySaver(), interrupt_before=["more"])

    def step(value: Any) -> Any:
        with memory_worth(life.store, life.judge):
            return graph.invoke(value, {"configurable": {"thread_id": "t"}})

    call(RunnableLambda(step), {"query": "apple"}, {})
    life.is_unknown("apple")
    call(RunnableLambda(lambda _: step(None)), "?", {})
    life.is_success("apple", "bread")


def test_the_context_manager_around_a_graph_that_goes_on_and_calls_nothing(life: Life) -> None:
    graph = built(("recall", recall(life)), ("ask", ask_person)).compile(
        checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    with memory_worth(life.store, life.judge):
        graph.invoke({"query": "apple"}, config)
        graph.update_state(config, {"found": ["edited"]}, as_node="ask")
        graph.invoke(None, {**config, "callbacks": [BaseCallbackHandler()]})
    life.is_success("apple")


def test_the_context_manager_looks_a_resume_up_once(life: Life, call: GraphCall) -> None:
    """What LangGraph tells is not inferred from the inputs as well."""
    graph = asking(life)
    config: Any = {"configurable": {"thread_id": "t"}}
    governor = life.store.governor
    with (
        memory_worth(life.store, life.judge),
        patch.object(governor.journal, "resume", wraps=governor.journal.resume) as looked_up,
    ):
        call(graph, {"query": "apple"}, config)
        call(graph, Command(resume="yes"), config)
        life.is_success("apple", "bread")
    assert looked_up.call_count == 1


def test_a_resume_that_nobody_tells_and_that_calls_nothing(life: Life) -> None:
    """As LangGraph 1.1.8 reports a graph that was given callbacks of its own."""
    graph = built(("recall", recall(life)), ("ask", ask_person)).compile(
        checkpointer=InMemorySaver()
    )
    with memory_worth(life.store, life.judge) as handler:
        graph.invoke({"query": "apple"}, {"configurable": {"thread_id": "t"}})
        run_id = uuid.uuid4()
        handler.on_chain_start(
            None, Command(resume="yes"), run_id=run_id, metadata={"thread_id": "t"}
        )
        handler.on_chain_end({"found": ["yes"]}, run_id=run_id)
    life.is_success("apple")


def test_the_context_manager_leaves_no_config_behind(life: Life) -> None:
    before = var_child_runnable_config.get()
    with memory_worth(life.store):
        RunnableLambda(str).invoke("x")
    assert var_child_runnable_config.get() is before


def test_no_database_work_on_the_event_loop(life: Life) -> None:
    graph = asking(life)

    async def session() -> int:
        await graph.ainvoke({"query": "apple"}, on(life))
        await graph.ainvoke(Command(resume="yes"), on(life))
        return threading.get_ident()

    with threads_of_database(life.store) as seen:
        loop = asyncio.run(session())
        life.store.governor.outbox.drain()
    assert seen
    assert loop not in seen
    life.is_success("apple", "bread")


def test_many_threads_stop_and_go_on_at_once(life: Life) -> None:
    graph = asking(life)

    async def one(n: int) -> None:
        word = ("apple", "cedar", "delta")[n % 3]
        await graph.ainvoke({"query": word}, on(life, f"t{n}"))
        await graph.ainvoke(Command(resume="yes"), on(life, f"t{n}"))

    async def everyone() -> None:
        await asyncio.gather(*(one(n) for n in range(30)))

    asyncio.run(everyone())
    assert life.rewards == [1.0] * 30
    assert credits_of(life.store) == {"apple": 10, "bread": 30, "cedar": 10, "delta": 10}
    assert life.store.health().ok


def test_a_graph_in_a_chain(life: Life) -> None:
    chain = asking(life) | RunnableLambda(lambda state: state)
    chain.invoke({"query": "apple"}, on(life))
    life.is_unknown("apple")
    chain.invoke(Command(resume="yes"), on(life))
    life.is_success("apple", "bread")
