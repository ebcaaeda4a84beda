"""How a turn is judged: beside a handler, by what the agent did, by a person, and after an interrupt."""

from __future__ import annotations

from typing import Any, NotRequired
from uuid import uuid4

import langchain_core.messages
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthMiddleware,
    MemoryWorthStore,
    Run,
    exceptions_as_failure,
    first_known,
    output_key,
    rejections_as_failure,
    tool_errors_as_failure,
)
from tests.agents_fixtures import (
    THREAD,
    WAYS,
    Answering,
    Go,
    ask,
    calls,
    echo,
    fails,
    first_then,
    look,
)
from tests.conftest import StoreMaker
from tests.fakes import assert_exact
from tests.policies import plain
from tests.runs_fixtures import Foreign, Judge, credits_of, filled, rewards, shown


@pytest.fixture(params=WAYS)
def go(request: pytest.FixtureRequest) -> Go:
    """One run of an agent, in each of LangGraph's ways."""
    return WAYS[request.param]


@pytest.fixture
def memories(make_store: StoreMaker) -> MemoryWorthStore:
    return filled(make_store(policy=plain(exploration=0.0)))


# -- beside the handler ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False], ids=["own retriever", "foreign retriever"])
@pytest.mark.parametrize("judges", ["handler", "middleware", "both"])
def test_beside_a_handler_nothing_counts_twice(
    memories: MemoryWorthStore, go: Go, judges: str, own: bool
) -> None:
    def outcome(run: Run) -> bool:
        return True

    handler = MemoryWorthCallbackHandler(memories, None if judges == "middleware" else outcome)
    middleware = MemoryWorthMiddleware(
        memories,
        k=1,
        retriever=None if own else Foreign(ids=("apple",)),
        outcome=None if judges == "handler" else outcome,
    )
    agent = create_agent(echo(), middleware=[middleware])
    run_id = uuid4()

    go(agent, ask("apple"), {"callbacks": [handler], "run_id": run_id})

    assert credits_of(memories) == {"apple": 1}
    assert list(rewards(memories).values()) == [1.0]
    assert shown(memories, run_id) == {"apple"}
    assert len(memories.run(run_id).outcomes) == (2 if judges == "both" else 1)
    assert memories.health().unattributed == 0
    assert memories.health().ok
    assert_exact(memories)


def test_what_a_tool_retrieves_belongs_to_the_same_episode(
    memories: MemoryWorthStore, go: Go
) -> None:
    retriever = memories.as_retriever(k=1)

    @tool
    def recall(what: str) -> str:
        """Recall more."""
        return retriever.invoke(what)[0].page_content

    handler = MemoryWorthCallbackHandler(memories)
    middleware = MemoryWorthMiddleware(memories, k=1, outcome=lambda run: True)
    agent = create_agent(
        first_then(calls("recall", what="bread")), [recall], middleware=[middleware]
    )

    go(agent, ask("apple"), {"callbacks": [handler]})

    assert credits_of(memories) == {"apple": 1, "bread": 1}
    assert list(rewards(memories).values()) == [1.0]


def test_without_an_outcome_of_its_own_it_takes_part_in_the_run_around_it(
    memories: MemoryWorthStore, go: Go
) -> None:
    """A chain that retrieved before it called the agent: the handler's outcome is about both."""
    retriever = memories.as_retriever(k=1)
    agent = create_agent(echo(), middleware=[MemoryWorthMiddleware(memories, k=1)])
    chain = RunnableLambda(lambda word, **_: (retriever.invoke("bread"), ask(word))[1]) | agent

    go(chain, "apple", {"callbacks": [MemoryWorthCallbackHandler(memories, lambda run: True)]})

    assert credits_of(memories) == {"apple": 1, "bread": 1}
    assert list(rewards(memories).values()) == [1.0]


def test_agents_called_by_an_agent_are_judged_each_by_itself(memories: MemoryWorthStore) -> None:
    helper = create_agent(
        echo(),
        middleware=[
            MemoryWorthMiddleware(
                memories, k=1, outcome=lambda run: "bread" in run.outputs["messages"][-1].text
            )
        ],
    )

    @tool
    def delegate(task: str) -> str:
        """Have it done."""
        return helper.invoke(ask(task))["messages"][-1].text

    both = AIMessage(
        "",
        tool_calls=[{"name": "delegate", "args": {"task": t}, "id": t} for t in ("bread", "cedar")],
    )
    outer = create_agent(
        first_then(both),
        [delegate],
        middleware=[MemoryWorthMiddleware(memories, k=1, outcome=lambda run: True)],
    )

    outer.invoke(ask("apple"))

    worth = {w: memories.worth(w) for w in ("apple", "bread", "cedar")}
    assert worth == {"apple": 1.0, "bread": 1.0, "cedar": 0.0}
    assert len(rewards(memories)) == 3


# -- outcomes -------------------------------------------------------------------------------------------------


def test_the_outcome_function_sees_the_turn(memories: MemoryWorthStore, go: Go) -> None:
    judge = Judge()
    agent = create_agent(
        first_then(calls("look", where="here")),
        [look],
        middleware=[MemoryWorthMiddleware(memories, k=1, outcome=judge)],
        checkpointer=InMemorySaver(),
    )
    config = {**THREAD, "tags": ["mine"], "metadata": {"user": "7"}}
    go(agent, ask("apple"), config)
    go(agent, ask("bread"), config)

    first, second = judge.runs
    assert [m.text for m in second.inputs["messages"]] == ["bread"]
    assert second.outputs["messages"][-1].text == "done"
    assert len(second.outputs["messages"]) == 8
    assert [d.page_content for d in second.memories] == ["bread"]
    assert (second.thread_id, second.metadata["user"], second.tool_errors) == ("t", "7", ())
    assert "mine" in second.tags
    assert first.episode_id != second.episode_id
    assert "memory_worth" not in second.outputs


@pytest.mark.parametrize("outcome", [True, False, 0.25, None])
def test_what_it_says_is_recorded(memories: MemoryWorthStore, go: Go, outcome: Any) -> None:
    middleware = MemoryWorthMiddleware(memories, k=1, outcome=lambda run: outcome)

    go(create_agent(echo(), middleware=[middleware]), ask("apple"))

    (reward,) = rewards(memories).values()
    assert reward == outcome
    assert memories.worth("apple") == (0.5 if outcome is None else outcome)


def test_several_metrics_are_kept_and_one_drives(make_store: StoreMaker) -> None:
    store = filled(make_store(policy=plain(metric="correct")))
    middleware = MemoryWorthMiddleware(
        store, k=1, outcome=lambda run: {"correct": False, "polite": 1.0, "fast": None}
    )

    create_agent(echo(), middleware=[middleware]).invoke(ask("apple"))

    (episode,) = (store.run(i) for i in rewards(store))
    assert {o.metric: o.reward for o in episode.outcomes} == {"correct": 0.0, "polite": 1.0}
    assert store.worth("apple") == 0.0


def test_later_by_the_episode_or_by_the_run_id(memories: MemoryWorthStore, go: Go) -> None:
    agent = create_agent(
        echo(), middleware=[MemoryWorthMiddleware(memories, k=1)], checkpointer=InMemorySaver()
    )
    run_id = uuid4()
    go(agent, ask("apple"), {**THREAD, "run_id": run_id})

    assert memories.record_outcome(MemoryWorthMiddleware.episode_id(agent.get_state(THREAD)), True)
    assert not memories.record_outcome(run_id, True)
    assert memories.worth("apple") == 1.0


def test_an_episode_id_in_the_config_is_the_episode(memories: MemoryWorthStore, go: Go) -> None:
    agent = create_agent(echo(), middleware=[MemoryWorthMiddleware(memories, k=1)])
    config = {"metadata": {"episode_id": "mine"}}

    go(agent, ask("apple"), config)
    go(agent, ask("bread"), config)

    assert shown(memories, "mine") == {"apple", "bread"}
    assert list(rewards(memories)) == ["mine"]


class Success(AgentState[Any]):
    success: NotRequired[bool]


class Sets(AgentMiddleware[Success, Any, Any]):
    """Says in the state how it went."""

    state_schema = Success

    def __init__(self, success: bool | None) -> None:
        self.success = success

    def after_model(self, state: Success, runtime: Any) -> dict[str, Any] | None:
        return None if self.success is None else {"success": self.success}


@pytest.mark.parametrize("success", [True, False, None])
def test_success_may_stand_in_the_state(
    memories: MemoryWorthStore, go: Go, success: bool | None
) -> None:
    middleware = MemoryWorthMiddleware(memories, k=1, outcome=output_key("success"))

    go(create_agent(echo(), middleware=[middleware, Sets(success)]), ask("apple"))

    assert list(rewards(memories).values()) == [None if success is None else float(success)]


class Report(BaseModel):
    """What came of it."""

    success: bool


@pytest.mark.parametrize("success", [True, False])
def test_success_may_stand_in_the_structured_response(
    memories: MemoryWorthStore, go: Go, success: bool
) -> None:
    agent = create_agent(
        Answering(answer=lambda ms: calls("Report", success=success)),
        response_format=ToolStrategy(Report),
        middleware=[MemoryWorthMiddleware(memories, k=1, outcome=output_key("success"))],
    )

    go(agent, ask("apple"))

    assert list(rewards(memories).values()) == [float(success)]


def test_a_handled_tool_error_is_a_tool_error(memories: MemoryWorthStore, go: Go) -> None:
    class Forgives(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            from langchain_core.messages import ToolMessage

            return ToolMessage("no luck", tool_call_id=request.tool_call["id"], status="error")

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return self.wrap_tool_call(request, handler)

    middleware = MemoryWorthMiddleware(memories, k=1, outcome=tool_errors_as_failure())
    agent = create_agent(
        first_then(calls("look", where="x")), [look], middleware=[middleware, Forgives()]
    )

    go(agent, ask("apple"))

    assert list(rewards(memories).values()) == [0.0]


@pytest.mark.parametrize("wanted", [LookupError, TimeoutError])
def test_a_tool_that_raises_ends_the_turn_and_is_seen(
    memories: MemoryWorthStore, go: Go, wanted: type[Exception]
) -> None:
    middleware = MemoryWorthMiddleware(memories, k=1, outcome=exceptions_as_failure(wanted))
    agent = create_agent(first_then(calls("fails", where="x")), [fails], middleware=[middleware])

    with pytest.raises(LookupError):
        go(agent, ask("apple"))

    assert list(rewards(memories).values()) == [0.0 if wanted is LookupError else None]


def test_the_outputs_of_a_turn_that_raised_are_not_known(
    memories: MemoryWorthStore, go: Go
) -> None:
    middleware = MemoryWorthMiddleware(memories, k=1, outcome=lambda run: bool(run.outputs))
    agent = create_agent(first_then(calls("fails", where="x")), [fails], middleware=[middleware])

    with pytest.raises(LookupError):
        go(agent, ask("apple"))

    assert list(rewards(memories).values()) == [None]
    assert memories.health().ok


def test_nobody_rejected_a_call_in_a_turn_that_raised() -> None:
    assert rejections_as_failure()(Run("r", "r", error=LookupError())) is None


def test_a_model_that_raises_is_seen(memories: MemoryWorthStore, go: Go) -> None:
    def refuse(messages: Any) -> str:
        raise ValueError("refused")

    middleware = MemoryWorthMiddleware(
        memories,
        k=1,
        outcome=first_known(exceptions_as_failure(ValueError), lambda run: bool(run.outputs)),
    )

    with pytest.raises(ValueError, match="refused"):
        go(create_agent(Answering(answer=refuse), middleware=[middleware]), ask("apple"))

    assert list(rewards(memories).values()) == [0.0]


def test_an_error_that_the_agent_gets_over_is_taken_back(
    memories: MemoryWorthStore, go: Go
) -> None:
    attempts = iter([ValueError("overloaded"), None])

    def answer(messages: Any) -> str:
        error = next(attempts)
        if error is not None:
            raise error
        return "at last"

    middleware = MemoryWorthMiddleware(memories, k=1, outcome=exceptions_as_failure(ValueError))
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    agent = create_agent(Answering(answer=answer), middleware=[retry, middleware])

    go(agent, ask("apple"))

    assert list(rewards(memories).values()) == [None]
    assert credits_of(memories) == {}
    assert_exact(memories)


# -- interrupts -----------------------------------------------------------------------------------------------


def asks_first(memories: MemoryWorthStore, model: Answering, saver: Any, **options: Any) -> Any:
    """An agent that may not look without a person's consent."""
    return create_agent(
        model,
        [look],
        middleware=[
            MemoryWorthMiddleware(memories, k=1, outcome=rejections_as_failure(), **options),
            HumanInTheLoopMiddleware({"look": True}),
        ],
        checkpointer=saver,
    )


def decide(kind: str, **more: Any) -> Command[Any]:
    return Command(resume={"decisions": [{"type": kind, **more}]})


DECISIONS = [(decide("reject"), 0.0), (decide("approve"), None)]
if hasattr(
    langchain_core.messages, "add_notification_metadata"
):  # else nothing but the text tells of a rejection
    DECISIONS.append((decide("reject", message="not there"), 0.0))


@pytest.mark.parametrize("recall", ["agent", "model"])
@pytest.mark.parametrize(("decision", "reward"), DECISIONS)
@pytest.mark.parametrize("handled", [False, True])
def test_a_rejection_is_a_failure_of_the_turn_that_was_interrupted(
    memories: MemoryWorthStore,
    go: Go,
    recall: Any,
    decision: Any,
    reward: float | None,
    handled: bool,
) -> None:
    model = first_then(calls("look", where="apple"))
    agent = asks_first(memories, model, InMemorySaver(), recall=recall)
    callbacks = [MemoryWorthCallbackHandler(memories)] if handled else []
    config = {**THREAD, "callbacks": callbacks}

    go(agent, ask("apple"), config)
    assert list(rewards(memories).values()) == [None]
    go(agent, decision, config)

    assert list(rewards(memories).values()) == [reward]
    assert credits_of(memories) == ({} if reward is None else {"apple": 1})
    assert '"apple"' in model.systems[1]


def test_a_rejection_of_the_turn_before_is_not_held_against_this_one(
    memories: MemoryWorthStore, go: Go
) -> None:
    agent = asks_first(memories, first_then(calls("look", where="apple")), InMemorySaver())

    go(agent, ask("apple"), THREAD)
    go(agent, decide("reject"), THREAD)
    go(agent, ask("bread"), THREAD)
    go(agent, decide("approve"), THREAD)

    assert list(rewards(memories).values()) == [0.0, None]


def test_a_tool_that_asks_a_person_has_not_failed(memories: MemoryWorthStore, go: Go) -> None:
    @tool
    def ask_person(what: str) -> str:
        """Ask."""
        return str(interrupt(what))

    middleware = MemoryWorthMiddleware(memories, k=1, outcome=lambda run: run.error is None)
    agent = create_agent(
        first_then(calls("ask_person", what="which?")),
        [ask_person],
        middleware=[middleware],
        checkpointer=InMemorySaver(),
    )

    go(agent, ask("apple"), THREAD)
    assert list(rewards(memories).values()) == [None]
    go(agent, Command(resume="that one"), THREAD)

    assert list(rewards(memories).values()) == [1.0]


def test_a_rejection_is_no_tool_error(memories: MemoryWorthStore, go: Go) -> None:
    agent = create_agent(
        first_then(calls("look", where="apple")),
        [look],
        middleware=[
            MemoryWorthMiddleware(memories, k=1, outcome=tool_errors_as_failure()),
            HumanInTheLoopMiddleware({"look": True}),
        ],
        checkpointer=InMemorySaver(),
    )

    go(agent, ask("apple"), THREAD)
    go(agent, decide("reject"), THREAD)

    assert list(rewards(memories).values()) == [None]
