"""The graph nodes: what they read from the state, what they write to it, and that they never disturb the run."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypedDict
from unittest.mock import patch

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, Send

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    Outcome,
    OutcomeNode,
    RecallNode,
    memory_worth,
)
from langchain_memoryworth.errors import InvalidInputError, NamespaceError, StateKeyError
from langchain_memoryworth.tracking.lifecycle import kept
from tests.conftest import StoreMaker
from tests.fakes import assert_exact
from tests.nodes_fixtures import (
    CALLS,
    Call,
    DataclassState,
    PydanticState,
    State,
    Together,
    built,
    outcome,
    recall,
    succeed,
    whole,
)
from tests.policies import plain
from tests.runs_fixtures import (
    WORDS,
    Foreign,
    broken_ledger,
    credits_of,
    filled,
    rewards,
    shown,
    threads_of_database,
)


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Call:
    return CALLS[request.param]


@pytest.fixture
def memories(store: MemoryWorthStore) -> MemoryWorthStore:
    return filled(store)


@pytest.fixture
def quick(make_store: StoreMaker) -> MemoryWorthStore:
    """In memory only, for what no database has a part in."""
    return filled(make_store(policy=plain(exploration=0.0)))


# -- what they write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State, PydanticState, DataclassState])
def test_a_recall_and_an_outcome_are_all_that_is_needed(
    memories: MemoryWorthStore, call: Call, state: Any
) -> None:
    seen: list[Any] = []
    look = ("look", lambda state: seen.append(state) or {})
    end = call(whole(memories, look, state=state).compile(), {"query": "apple"}, {})
    [given] = [s if isinstance(s, dict) else vars(s) for s in seen]
    assert [(d.id, d.page_content) for d in given["documents"]] == [("apple", "apple")]
    assert given["memory_ids"] == ["apple"]
    assert rewards(memories) == {given["episode_id"]: 1.0}
    assert credits_of(memories) == {"apple": 1}
    assert end["memory_ids"] == ["apple"]
    assert end["episode_id"] is None
    assert memories.health().ok
    assert memories.health().unattributed == 0


def test_keys_and_functions_of_the_state(quick: MemoryWorthStore, call: Call) -> None:
    class Named(TypedDict, total=False):
        asked: list[str]
        found: list[Document]
        run: str | None
        grade: float

    graph = built(
        (
            "recall",
            recall(quick, lambda s: s["asked"][-1], documents="found", ids=None, episode="run"),
        ),
        ("outcome", outcome(quick, lambda s: s["grade"], episode="run", source="grader")),
        state=Named,
    ).compile()
    end = call(graph, {"asked": ["apple", "bread"], "grade": 0.25}, {})
    assert [d.id for d in end["found"]] == ["bread"]
    assert quick.worth("bread") == 0.25
    [episode] = rewards(quick)
    assert [o.source for o in quick.run(episode).outcomes] == ["grader"]


def test_they_have_names_of_their_own(quick: MemoryWorthStore) -> None:
    builder = StateGraph(State).add_sequence([recall(quick), succeed, outcome(quick)])
    builder.add_edge(START, "recall")
    assert builder.compile().invoke({"query": "apple"})["memory_ids"] == ["apple"]
    assert set(builder.nodes) == {"recall", "succeed", "outcome"}
    assert set(StateGraph(State).add_node(recall(quick, name="remember")).nodes) == {"remember"}
    assert rewards(quick)


@pytest.mark.parametrize("query", [None, ""])
def test_nothing_is_recalled_for_nothing(quick: MemoryWorthStore, call: Call, query: Any) -> None:
    end = call(whole(quick).compile(), {"query": query}, {})
    assert (end["documents"], end["memory_ids"]) == ([], [])
    assert rewards(quick) == {}
    assert quick.health().ok


def test_how_many_and_by_which_retriever(quick: MemoryWorthStore, call: Call) -> None:
    for node, expected in (
        (RecallNode(quick, "query"), 4),
        (RecallNode(quick, "query", k=2), 2),
        (RecallNode(quick, "query", retriever=quick.as_retriever(k=3)), 3),
        (RecallNode(quick, "query", retriever=Foreign(ids=("apple", "cedar", "nobody"))), 3),
    ):
        graph = built(("recall", node), ("act", succeed), ("outcome", outcome(quick))).compile()
        end = call(graph, {"query": "apple"}, {})
        assert len(end["memory_ids"]) == len(end["documents"]) == expected
        assert shown(quick, list(rewards(quick))[-1]) == set(end["memory_ids"]) - {"nobody"}
    assert list(rewards(quick).values()) == [1.0] * 4


def test_what_a_retriever_drops_of_what_the_store_gave_it(quick: MemoryWorthStore) -> None:
    class Choosy(Foreign):
        def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
            return quick.similarity_search(query, k=4)[:1]

    node = RecallNode(quick, "query", retriever=Choosy(ids=()))
    built(("recall", node), ("act", succeed), ("outcome", outcome(quick))).compile().invoke(
        {"query": "apple"}
    )
    assert credits_of(quick) == {"apple": 1}


# -- where they look -----------------------------------------------------------------------------------------------


@dataclass
class Context:
    user_id: str


@pytest.mark.parametrize("where", ["metadata", "configurable", "context", "state"])
def test_a_namespace_comes_from_the_run(make_store: StoreMaker, call: Call, where: str) -> None:
    store = make_store()
    for user in ("ann", "bob"):
        store.add_texts([f"apple of {user}"], ids=["a"], namespace=("users", user))
    namespace: Any = ("users", "{user_id}")
    config: Any = {}
    if where == "state":
        namespace = lambda state: ("users", state["query"].split()[-1])  # noqa: E731
    elif where != "context":
        config = {where: {"user_id": "bob"}}
    builder = StateGraph(State, context_schema=Context)
    builder.add_node("recall", recall(store, namespace=namespace))
    builder.add_edge(START, "recall")
    more = {"context": Context("bob")} if where == "context" else {}
    end = call(builder.compile(), {"query": "apple bob"}, config, **more)
    assert [d.page_content for d in end["documents"]] == ["apple of bob"]


def test_a_namespace_that_the_run_does_not_fill(quick: MemoryWorthStore, call: Call) -> None:
    graph = built(("recall", recall(quick, namespace=("users", "{user_id}")))).compile()
    with pytest.raises(NamespaceError, match="user_id"):
        call(graph, {"query": "apple"}, {})


def test_an_episode_that_the_run_names(memories: MemoryWorthStore, call: Call) -> None:
    for place in ("metadata", "configurable"):
        call(whole(memories).compile(), {"query": "apple"}, {place: {"episode_id": f"my {place}"}})
    assert rewards(memories) == {"my metadata": 1.0, "my configurable": 1.0}


@pytest.mark.parametrize("own", [True, False], ids=["own retriever", "foreign retriever"])
def test_what_the_run_names_comes_before_what_the_state_carries(
    memories: MemoryWorthStore, call: Call, own: bool
) -> None:
    node = recall(memories, retriever=None if own else Foreign(ids=("apple",)))
    graph = built(("recall", node), ("act", succeed), ("outcome", outcome(memories))).compile()
    config = {"metadata": {"episode_id": "named"}}
    call(graph, {"query": "apple", "episode_id": "carried"}, config)
    assert rewards(memories) == {"named": 1.0}


def test_an_episode_that_the_input_carries(memories: MemoryWorthStore, call: Call) -> None:
    with memories.episode("mine"):
        memories.similarity_search("bread", k=1)
    call(whole(memories).compile(), {"query": "apple", "episode_id": "mine"}, {})
    assert rewards(memories) == {"mine": 1.0}
    assert shown(memories, "mine") == {"apple", "bread"}


def test_an_input_schema_keeps_strangers_from_naming_the_episode(
    memories: MemoryWorthStore, call: Call
) -> None:
    class Asked(TypedDict):
        query: str

    builder = StateGraph(State, input_schema=Asked)
    builder.add_sequence([recall(memories), succeed, outcome(memories)]).add_edge(START, "recall")
    call(builder.compile(), {"query": "apple", "episode_id": "of somebody else"}, {})
    [episode] = rewards(memories)
    assert episode != "of somebody else"


def test_a_graph_with_them_can_be_drawn(quick: MemoryWorthStore) -> None:
    drawn = whole(quick).compile().get_graph().draw_mermaid()
    assert "recall --> act" in drawn
    assert "outcome(outcome)" in drawn


def test_what_else_stands_under_the_run_id_that_the_user_chose(
    memories: MemoryWorthStore, call: Call
) -> None:
    """Its feedback stays where it belongs: with what the handler saw before the recall."""
    retriever = memories.as_retriever(k=1)
    before = ("before", lambda state: {"rounds": [retriever.invoke("bread")[0].id]})
    graph = built(
        before, ("recall", recall(memories)), ("act", succeed), ("outcome", outcome(memories))
    )
    run_id = uuid.uuid4()
    handler = MemoryWorthCallbackHandler(memories, lambda run: False)
    call(graph.compile(), {"query": "apple"}, {"callbacks": [handler], "run_id": run_id})
    assert shown(memories, run_id) == {"bread"}
    assert (memories.worth("bread"), memories.worth("apple")) == (0.0, 1.0)
    assert credits_of(memories) == {"apple": 1, "bread": 1}


def test_the_run_id_that_the_user_chose_finds_it(memories: MemoryWorthStore, call: Call) -> None:
    run_id = uuid.uuid4()
    silent = built(("recall", recall(memories)), ("outcome", outcome(memories, lambda s: None)))
    call(silent.compile(), {"query": "apple"}, {"run_id": run_id})
    assert list(rewards(memories).values()) == [None]
    memories.record_outcome(run_id, False)
    assert memories.worth("apple") == 0.0


def test_outside_of_a_graph(quick: MemoryWorthStore) -> None:
    update = recall(quick).invoke({"query": "apple"})
    assert update["memory_ids"] == ["apple"]
    again = asyncio.run(recall(quick).ainvoke({"query": "bread"}))
    assert again["episode_id"] != update["episode_id"]
    assert outcome(quick).invoke({**update, "success": True}) == {"episode_id": None}
    assert credits_of(quick) == {"apple": 1}
    with pytest.raises(StateKeyError, match="'success'"):
        outcome(quick).invoke(update)
    there = recall(quick, namespace="{user_id}").invoke(
        {"query": "apple"}, {"metadata": {"user_id": "ann"}}
    )
    assert there["documents"] == []


def test_inside_a_node_whose_graph_has_not_the_keys(memories: MemoryWorthStore, call: Call) -> None:
    class Bare(TypedDict):
        query: str

    def own(state: Bare) -> Bare:
        update = recall(memories, lambda s: s).invoke(state["query"])
        said = {**update, "success": update["memory_ids"] == ["apple"]}
        outcome(memories).invoke(said)
        return state

    call(built(("own", own), state=Bare).compile(), {"query": "apple"}, {})
    assert list(rewards(memories).values()) == [1.0]


@pytest.mark.parametrize("passed", [True, False], ids=["with its config", "without"])
def test_the_functional_api(memories: MemoryWorthStore, passed: bool) -> None:
    @task
    def look(word: str, config: RunnableConfig) -> Any:
        return recall(memories).invoke({"query": word}, config if passed else None)

    @entrypoint()
    def flow(word: str, config: RunnableConfig) -> Any:
        found = look(word).result()
        outcome(memories).invoke({**found, "success": True}, config if passed else None)
        return found["memory_ids"]

    assert flow.invoke("apple") == ["apple"]
    assert asyncio.run(flow.ainvoke("bread")) == ["bread"]
    assert list(rewards(memories).values()) == [1.0, 1.0]


# -- outcomes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "worth"),
    [
        (True, 1.0),
        (False, 0.0),
        (0.25, 0.25),
        (Outcome(0.5), 0.5),
        ({"": True, "style": 0.0}, 1.0),
        (None, 0.5),
    ],
    ids=str,
)
def test_what_may_be_said(quick: MemoryWorthStore, call: Call, said: Any, worth: float) -> None:
    graph = built(("recall", recall(quick)), ("outcome", outcome(quick, lambda s: said))).compile()
    assert call(graph, {"query": "apple"}, {})["episode_id"] is None
    assert quick.worth("apple") == worth
    assert len(rewards(quick)) == 1
    assert quick.health().ok


def test_an_outcome_that_nobody_wrote_is_not_known(memories: MemoryWorthStore, call: Call) -> None:
    graph = built(("recall", recall(memories)), ("outcome", outcome(memories))).compile()
    assert call(graph, {"query": "apple"}, {})["episode_id"] is None
    [episode] = memories.pending()
    memories.record_outcome(episode.id, True)
    assert memories.worth("apple") == 1.0


@pytest.mark.parametrize("used", ["used", lambda state: state["used"]], ids=["key", "function"])
@pytest.mark.parametrize("said", [True, {"": True}, Outcome(True, ("bread",))], ids=str)
def test_what_was_used(quick: MemoryWorthStore, call: Call, used: Any, said: Any) -> None:
    class WithUsed(State, total=False):
        used: list[str] | None

    graph = built(
        ("recall", recall(quick, k=2)),
        ("outcome", outcome(quick, lambda s: said, used=used)),
        state=WithUsed,
    ).compile()
    call(graph, {"query": "apple bread", "used": ["bread"]}, {})
    [episode] = rewards(quick)
    weights = {e.memory_id: e.weight for e in quick.run(episode).exposures}
    assert weights["bread"] > 0.9 > weights["apple"]


def test_what_was_used_may_be_unknown(quick: MemoryWorthStore, call: Call) -> None:
    node = outcome(quick, lambda s: True, used=lambda s: None)
    call(built(("recall", recall(quick, k=2)), ("outcome", node)).compile(), {"query": "?"}, {})
    [episode] = rewards(quick)
    assert [round(e.weight, 6) for e in quick.run(episode).exposures] == [0.5, 0.5]


@pytest.mark.parametrize("wrong", ["yes", 2, float("nan"), [True]], ids=str)
def test_a_wrong_outcome_is_counted(
    quick: MemoryWorthStore, call: Call, caplog: pytest.LogCaptureFixture, wrong: Any
) -> None:
    graph = built(("recall", recall(quick)), ("outcome", outcome(quick, lambda s: wrong))).compile()
    with caplog.at_level(logging.WARNING):
        assert call(graph, {"query": "apple"}, {})["episode_id"] is None
    assert quick.health().failures == {"an outcome": 1}
    assert credits_of(quick) == {}
    assert "InvalidOutcomeError" in caplog.text


def test_a_function_that_raises_is_counted(quick: MemoryWorthStore, call: Call) -> None:
    def broken(state: Any) -> bool:
        raise ZeroDivisionError("in the user's function")

    graph = built(("recall", recall(quick)), ("outcome", outcome(quick, broken))).compile()
    call(graph, {"query": "apple"}, {})
    assert quick.health().failures == {"an outcome": 1}
    assert "in the user's function" in (quick.health().last_failure or "")


def test_used_memories_that_were_not_recalled_are_counted(quick: MemoryWorthStore) -> None:
    node = outcome(quick, lambda s: True, used=lambda s: ["nobody"])
    built(("recall", recall(quick)), ("outcome", node)).compile().invoke({"query": "apple"})
    assert quick.health().failures == {"an outcome": 1}
    assert credits_of(quick) == {}


def test_without_memories_there_is_nothing_to_settle(make_store: StoreMaker, call: Call) -> None:
    store = make_store()
    end = call(whole(store).compile(), {"query": "apple"}, {})
    assert end["documents"] == []
    asked: list[Any] = []
    alone = built(("outcome", outcome(store, asked.append))).compile()
    assert call(alone, {"query": "apple"}, {})["episode_id"] is None
    assert asked == []
    assert store.health().ok


# -- loops, branches, retries --------------------------------------------------------------------------------------


def looping(store: MemoryWorthStore, words: list[str], close_each: bool) -> Any:
    """Recalls one word after the other; closes the episode after each round, or after the last."""
    builder = StateGraph(State)
    builder.add_node("recall", recall(store, lambda s: words[len(s["rounds"])]))
    builder.add_node("act", lambda s: {"rounds": [s["episode_id"]], "success": True})
    builder.add_node("outcome", outcome(store))
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "act")
    ends: Callable[[Any], bool] = lambda s: len(s["rounds"]) == len(words)  # noqa: E731
    if close_each:
        builder.add_edge("act", "outcome")
        builder.add_conditional_edges("outcome", lambda s: "__end__" if ends(s) else "recall")
    else:
        builder.add_conditional_edges("act", lambda s: "outcome" if ends(s) else "recall")
    return builder.compile()


def test_a_loop_is_one_episode(memories: MemoryWorthStore, call: Call) -> None:
    end = call(looping(memories, ["apple", "bread", "apple"], close_each=False), {}, {})
    assert rewards(memories) == {end["rounds"][0]: 1.0}
    assert len(set(end["rounds"])) == 1
    assert credits_of(memories) == {"apple": 1, "bread": 1}


def test_after_an_outcome_the_next_recall_begins_a_new_one(
    memories: MemoryWorthStore, call: Call
) -> None:
    end = call(looping(memories, ["apple", "bread", "apple"], close_each=True), {}, {})
    assert rewards(memories) == dict.fromkeys(end["rounds"], 1.0)
    assert credits_of(memories) == {"apple": 2, "bread": 1}


def test_parallel_branches_are_one_episode(memories: MemoryWorthStore, call: Call) -> None:
    builder = StateGraph(Together)
    for word in ("apple", "bread", "cedar"):
        builder.add_node(word, recall(memories, lambda s, word=word: word))
        builder.add_edge(START, word)
    builder.add_node("act", succeed)
    builder.add_node("outcome", outcome(memories))
    builder.add_edge(["apple", "bread", "cedar"], "act")
    builder.add_edge("act", "outcome")
    end = call(builder.compile(), {"query": "?"}, {})
    assert set(end["memory_ids"]) == {"apple", "bread", "cedar"}
    assert list(rewards(memories).values()) == [1.0]
    assert credits_of(memories) == {"apple": 1, "bread": 1, "cedar": 1}


def test_branches_after_a_recall_need_no_reducer_for_the_episode(quick: MemoryWorthStore) -> None:
    class Plain(TypedDict, total=False):
        documents: list[Document]
        more: list[Document]
        again: list[Document]
        episode_id: str | None

    builder = StateGraph(Plain)
    builder.add_node("first", recall(quick, lambda s: "apple", ids=None))
    for key, word in (("more", "bread"), ("again", "cedar")):
        node = recall(quick, lambda s, word=word: word, documents=key, ids=None)
        builder.add_node(f"node {key}", node)
        builder.add_edge("first", f"node {key}")
    builder.add_node("outcome", outcome(quick, lambda s: True))
    builder.add_edge(["node more", "node again"], "outcome")
    builder.add_edge(START, "first")
    builder.compile().invoke({})
    assert list(rewards(quick).values()) == [1.0]
    assert credits_of(quick) == {"apple": 1, "bread": 1, "cedar": 1}


@pytest.mark.parametrize("first", [True, False], ids=["joins", "begins"])
def test_a_map_reduce_is_one_episode(memories: MemoryWorthStore, call: Call, first: bool) -> None:
    """What `Send` gives its nodes need not name the episode: the graph is asked for it."""
    words = ("apple", "bread", "apple")
    builder = StateGraph(Together)
    builder.add_node("first", recall(memories, lambda s: "cedar") if first else lambda s: {})
    builder.add_node("worker", recall(memories))
    builder.add_node("act", succeed)
    builder.add_node("outcome", outcome(memories))
    builder.add_edge(START, "first")
    builder.add_conditional_edges(
        "first", lambda s: [Send("worker", {"query": w}) for w in words], ["worker"]
    )
    builder.add_edge("worker", "act")
    builder.add_edge("act", "outcome")
    call(builder.compile(), {"query": "?"}, {})
    assert list(rewards(memories).values()) == [1.0]
    assert set(credits_of(memories)) == {"apple", "bread"} | ({"cedar"} if first else set())


def test_attempts_of_a_retry_policy_are_one_episode(memories: MemoryWorthStore, call: Call) -> None:
    class Flaky(Foreign):
        calls: int = 0

        def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
            self.calls += 1
            found = memories.similarity_search(WORDS[self.calls], k=1)
            if self.calls < 3:
                raise ConnectionError("once more")
            return found

    policy = RetryPolicy(max_attempts=3, initial_interval=0.0, jitter=False)
    nodes = (
        ("recall", RecallNode(memories, "query", retriever=Flaky(ids=()))),
        ("act", succeed),
        ("outcome", outcome(memories)),
    )
    call(built(*nodes, retry_policy=policy).compile(), {"query": "apple"}, {})
    assert list(rewards(memories).values()) == [1.0]
    assert memories.health().ok


def test_a_node_that_calls_them_and_is_run_again(memories: MemoryWorthStore, call: Call) -> None:
    """Both within a node of the user's own that fails at the end: the second attempt changes nothing."""
    left = [ConnectionError("once more")]

    def own(state: State) -> Any:
        update = recall(memories).invoke(state)
        closed = outcome(memories, lambda s: True).invoke({**state, **update})
        if left:
            raise left.pop()
        return {**update, **closed}

    policy = RetryPolicy(max_attempts=2, initial_interval=0.0, jitter=False)
    graph = built(("own", own), retry_policy=policy).compile()
    assert call(graph, {"query": "apple"}, {})["memory_ids"] == ["apple"]
    assert list(rewards(memories).values()) == [1.0]
    assert credits_of(memories) == {"apple": 1}


# -- subgraphs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["as node", "invoked"])
def test_recalled_in_a_subgraph_and_judged_outside(
    memories: MemoryWorthStore, call: Call, how: str
) -> None:
    sub = built(
        ("recall", recall(memories)), ("more", recall(memories, lambda s: "bread"))
    ).compile()
    node = sub if how == "as node" else lambda state: {**sub.invoke(state)}
    graph = built(("sub", node), ("act", succeed), ("outcome", outcome(memories))).compile()
    assert call(graph, {"query": "apple"}, {})["episode_id"] is None
    assert list(rewards(memories).values()) == [1.0]
    assert credits_of(memories) == {"apple": 1, "bread": 1}


def test_subgraphs_beside_each_other_are_judged_each_by_itself(
    memories: MemoryWorthStore, call: Call
) -> None:
    class Outer(TypedDict, total=False):
        query: str

    builder = StateGraph(Outer)
    for word, success in (("apple", True), ("bread", False)):
        inner = built(
            ("recall", recall(memories, lambda s, word=word: word)),
            ("outcome", outcome(memories, lambda s, success=success: success)),
        ).compile()
        builder.add_node(word, lambda state, inner=inner: inner.invoke({"query": "?"}) and {})
        builder.add_edge(START, word)
    call(builder.compile(), {"query": "?"}, {})
    assert sorted(rewards(memories).values()) == [0.0, 1.0]
    assert (memories.worth("apple"), memories.worth("bread")) == (1.0, 0.0)


# -- beside the handler --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False], ids=["own retriever", "foreign retriever"])
@pytest.mark.parametrize("judges", ["handler", "node", "both"])
@pytest.mark.parametrize("attached", ["in the config", "by the context manager"])
def test_beside_a_handler_nothing_counts_twice(
    memories: MemoryWorthStore, call: Call, judges: str, own: bool, attached: str
) -> None:
    def judge(run: Any) -> bool | None:
        return None if judges == "node" else True

    node = recall(memories) if own else recall(memories, retriever=Foreign(ids=("apple",)))
    said = (lambda s: None) if judges == "handler" else "success"
    graph = built(
        ("recall", node), ("act", succeed), ("outcome", outcome(memories, said))
    ).compile()
    run_id = uuid.uuid4()
    if attached == "in the config":
        handler = MemoryWorthCallbackHandler(memories, judge)
        call(graph, {"query": "apple"}, {"callbacks": [handler], "run_id": run_id})
    else:
        with memory_worth(memories, judge):
            call(graph, {"query": "apple"}, {"run_id": run_id})
    assert list(rewards(memories).values()) == [1.0]
    assert credits_of(memories) == {"apple": 1}
    assert shown(memories, run_id) == {"apple"}
    assert len(memories.run(run_id).outcomes) == (2 if judges == "both" else 1)
    assert memories.health().ok
    assert memories.health().unattributed == 0
    assert_exact(memories)


def test_what_else_the_run_retrieves_is_the_same_episode(
    memories: MemoryWorthStore, call: Call
) -> None:
    retriever = memories.as_retriever(k=1)
    more = ("more", lambda state: retriever.invoke("bread") and {})
    handler = MemoryWorthCallbackHandler(memories)
    call(whole(memories, more).compile(), {"query": "apple"}, {"callbacks": [handler]})
    assert list(rewards(memories).values()) == [1.0]
    assert credits_of(memories) == {"apple": 1, "bread": 1}


# -- what goes wrong -----------------------------------------------------------------------------------------------


def test_a_ledger_that_cannot_be_written(memories: MemoryWorthStore, call: Call) -> None:
    with broken_ledger(memories):
        for node in (recall(memories), recall(memories, retriever=Foreign(ids=("apple",)))):
            graph = built(("recall", node), ("act", succeed), ("outcome", outcome(memories)))
            end = call(graph.compile(), {"query": "apple"}, {})
            assert [d.page_content for d in end["documents"]] == ["apple"]
            assert end["episode_id"] is None
    assert memories.health().failures
    assert memories.health().episodes == 0


def test_what_an_episode_had_before_cannot_be_read(quick: MemoryWorthStore, call: Call) -> None:
    graph = built(("recall", recall(quick, retriever=Foreign(ids=("apple",))))).compile()
    with patch.object(quick.governor.journal, "shown_documents", side_effect=OSError("gone")):
        assert call(graph, {"query": "apple"}, {})["memory_ids"] == ["apple"]
    assert quick.health().failures == {"what an episode recalled before": 1}
    assert [shown(quick, e) for e in rewards(quick)] == [{"apple"}]


def test_a_search_that_fails_raises(quick: MemoryWorthStore, call: Call) -> None:
    class Broken(Foreign):
        def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
            raise ConnectionError("no vector database")

    graph = built(("recall", recall(quick, retriever=Broken(ids=())))).compile()
    with pytest.raises(ConnectionError):
        call(graph, {"query": "apple"}, {})


def test_a_key_that_the_state_has_not(quick: MemoryWorthStore, call: Call) -> None:
    for node, key in (
        (recall(quick, "question"), "question"),
        (recall(quick, documents="docs"), "docs"),
        (recall(quick, ids="their_ids"), "their_ids"),
        (recall(quick, episode="run"), "run"),
        (outcome(quick, "succes"), "succes"),
        (outcome(quick, used="cited"), "cited"),
        (outcome(quick, episode="run"), "run"),
    ):
        with pytest.raises(
            StateKeyError, match="'episode_id', 'query', 'rounds', 'success'"
        ) as told:
            call(
                built(("node", node)).compile(),
                {"query": "apple", "episode_id": "e", "success": True},
                {},
            )
        assert told.value.key == key
        assert set(told.value.keys) == {"query", "episode_id", "success", "rounds"}
    assert rewards(quick) == {}


def test_a_query_that_is_no_text(quick: MemoryWorthStore, call: Call) -> None:
    with pytest.raises(InvalidInputError, match="a key of the state with text"):
        call(built(("recall", recall(quick, lambda s: ["apple"]))).compile(), {"query": "?"}, {})


async def later(state: Any) -> Any:
    return "apple"


@pytest.mark.parametrize(
    ("node", "named"),
    [
        (lambda store: RecallNode("memories.db", "query"), "MemoryWorthStore"),
        (lambda store: RecallNode(store, ""), "query"),
        (lambda store: RecallNode(store, 7), "query"),
        (lambda store: RecallNode(store, later), "query is a coroutine"),
        (lambda store: RecallNode(store, "query", k=0), "k=0"),
        (lambda store: RecallNode(store, "query", k="4"), "k='4'"),
        (lambda store: RecallNode(store, "query", documents=""), "documents"),
        (lambda store: RecallNode(store, "query", ids=7), "ids"),
        (lambda store: RecallNode(store, "query", episode=None), "episode"),
        (lambda store: RecallNode(store, "query", ids="documents"), "a key of its own"),
        (lambda store: RecallNode(store, "query", namespace=("a", "")), "namespace"),
        (lambda store: RecallNode(store, "query", namespace=later), "namespace is a coroutine"),
        (lambda store: RecallNode(store, "query", retriever="x"), "retriever"),
        (
            lambda store: RecallNode(store, "query", namespace="a", retriever=Foreign(ids=())),
            "namespace",
        ),
        (lambda store: OutcomeNode(None, "success"), "MemoryWorthStore"),
        (lambda store: OutcomeNode(store, True), "outcome=True"),
        (lambda store: OutcomeNode(store, later), "outcome is a coroutine"),
        (lambda store: OutcomeNode(store, "success", used=7), "used"),
        (lambda store: OutcomeNode(store, "success", used=later), "used is a coroutine"),
        (lambda store: OutcomeNode(store, "success", episode=""), "episode"),
        (lambda store: OutcomeNode(store, "success", source=""), "source"),
    ],
)
def test_arguments_that_cannot_be_meant(quick: MemoryWorthStore, node: Any, named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        node(quick)


def test_a_graph_that_cannot_be_asked_for_its_state() -> None:
    def other(key: str, *, fresh: bool) -> Any:
        raise AssertionError

    assert kept(None, "episode_id", "given") == "given"
    assert kept({"configurable": {}}, "episode_id", "given") == "given"
    assert kept({"configurable": {"__pregel_read": other}}, "episode_id", "given") == "given"


# -- many at once --------------------------------------------------------------------------------------------------


def test_no_database_work_on_the_event_loop(memories: MemoryWorthStore) -> None:
    own = whole(memories).compile()
    foreign = built(
        ("recall", recall(memories, retriever=Foreign(ids=("bread",)))),
        ("act", succeed),
        ("outcome", outcome(memories)),
    ).compile()

    async def session() -> int:
        await own.ainvoke({"query": "apple"})
        await foreign.ainvoke({"query": "?"})
        return threading.get_ident()

    with threads_of_database(memories) as seen:
        loop = asyncio.run(session())
    assert seen
    assert loop not in seen
    assert credits_of(memories) == {"apple": 1, "bread": 1}


def test_one_pair_of_nodes_serves_many_runs_at_once(memories: MemoryWorthStore) -> None:
    graph = built(
        ("recall", recall(memories)),
        ("outcome", outcome(memories, lambda s: s["query"] == s["memory_ids"][0])),
    ).compile()
    asked = [WORDS[n % 8] for n in range(64)]

    async def everyone() -> list[Any]:
        return await asyncio.gather(*(graph.ainvoke({"query": w}) for w in asked))

    with ThreadPoolExecutor(16) as pool:
        ends = list(pool.map(lambda w: graph.invoke({"query": w}), asked))
    ends += asyncio.run(everyone())
    assert [e["memory_ids"] for e in ends] == [[w] for w in asked * 2]
    assert list(rewards(memories).values()) == [1.0] * 128
    assert credits_of(memories) == dict.fromkeys(WORDS, 16)
    assert_exact(memories)
