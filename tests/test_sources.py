"""Outcomes from feedback services, each behind HTTP on this machine, and from the evaluators of other packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListLLM
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda

from langchain_memoryworth import (
    Feedback,
    LangfuseScores,
    LangSmithFeedback,
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    Outcome,
    Pulled,
    Run,
    apull,
    evaluator,
    pull,
    scores_of,
)
from langchain_memoryworth.errors import InvalidOutcomeError
from langchain_memoryworth.outcomes.sources import CHUNK, as_reward
from langchain_memoryworth.records import EpisodeKey
from tests.conftest import StoreMaker
from tests.fakes import Clock, assert_exact, counters
from tests.feedback_services import START, LangfuseService, LangSmith, serving
from tests.policies import plain
from tests.runs_fixtures import credits_of, filled

local = [pytest.mark.enable_socket, pytest.mark.allow_hosts(["127.0.0.1"])]
both = pytest.mark.parametrize(
    "service",
    [pytest.param(s, marks=local, id=s.__name__) for s in (LangSmith, LangfuseService)],
    indirect=True,
)


@pytest.fixture(autouse=True)
def _no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "false")


@pytest.fixture
def service(request: pytest.FixtureRequest) -> Iterator[Any]:
    with serving(request.param()) as running:
        yield running


@pytest.fixture
def memories(make_store: StoreMaker, clock: Clock) -> MemoryWorthStore:
    clock.now = START.timestamp()
    return filled(make_store())


def retrieved(store: MemoryWorthStore, word: str) -> UUID:
    """A run that had a word in front of the model."""
    run_id = uuid4()
    with store.episode(str(run_id)):
        store.similarity_search(word, k=1)
    return run_id


# -- what a service says is what the ledger has -----------------------------------------------------------------


@both
def test_feedback_becomes_outcomes_once(memories: MemoryWorthStore, service: Any) -> None:
    good, bad = retrieved(memories, "apple"), retrieved(memories, "bread")
    service.say(good, True)
    service.say(bad, 0.0)

    first = pull(memories, service.source)
    before = counters(memories)
    again = pull(memories, service.source)

    assert first == Pulled(recorded=2, until=START)
    assert again == Pulled(unchanged=2, until=START)
    assert (memories.worth("apple"), memories.worth("bread")) == (1.0, 0.0)
    assert counters(memories) == before
    assert memories.run(good).outcomes[0].source == service.source.name


@both
async def test_feedback_is_pulled_off_the_event_loop(
    memories: MemoryWorthStore, service: Any
) -> None:
    service.say(retrieved(memories, "apple"), True)
    assert await apull(memories, service.source) == Pulled(recorded=1, until=START)
    assert memories.worth("apple") == 1.0


@both
@pytest.mark.parametrize("long_after", [False, True])
def test_corrections_and_deletions_are_followed(
    memories: MemoryWorthStore, service: Any, long_after: bool
) -> None:
    """Also when the feedback was given before `since`."""
    corrected, deleted, kept = (retrieved(memories, w) for w in ("apple", "bread", "cedar"))
    first, second, _ = (
        service.say(corrected, True),
        service.say(deleted, True),
        service.say(kept, 1),
    )
    untouched = counters(memories)
    pull(memories, service.source)

    service.forward(days=5)
    service.correct(first, 0.0)
    service.delete(second)
    since = START + timedelta(days=4) if long_after else None
    done = pull(memories, service.source, since=since)

    assert (done.recorded, done.withdrawn, done.unchanged) == (1, 1, 1)
    assert memories.worth("apple") == 0.0
    assert memories.run(deleted).reward is None
    assert credits_of(memories) == {"apple": 1, "cedar": 1}
    assert_exact(memories)
    bread = 2  # the number of the second word
    assert counters(memories)[bread] == untouched[bread]


@both
def test_what_is_no_score_any_more_is_withdrawn(memories: MemoryWorthStore, service: Any) -> None:
    run_id = retrieved(memories, "apple")
    feedback = service.say(run_id, 1.0)
    pull(memories, service.source)

    service.correct(feedback, 7.0)
    done = pull(memories, service.source)

    assert (done.withdrawn, done.ignored) == (1, 0)
    assert memories.run(run_id).reward is None
    assert pull(memories, service.source).ignored == 1


@both
def test_how_far_back_it_follows_is_bounded(
    memories: MemoryWorthStore, service: Any, clock: Clock
) -> None:
    old = retrieved(memories, "apple")
    feedback = service.say(old, True)
    pull(memories, service.source)
    clock.forward(days=40)
    service.forward(days=40)
    service.delete(feedback)

    near = pull(memories, service.source, since=service.now)
    assert (near.withdrawn, memories.worth("apple")) == (0, 1.0)
    far = pull(memories, service.source, since=service.now, follow=None)
    assert (far.withdrawn, memories.worth("apple")) == (1, 0.5)


@both
def test_runs_that_are_not_known_are_counted(memories: MemoryWorthStore, service: Any) -> None:
    service.say(uuid4(), True)
    service.say(retrieved(memories, "apple"), True)

    done = pull(memories, service.source)

    assert (done.unknown, done.recorded) == (1, 1)


@both
def test_since_and_keys_are_asked_of_the_service(memories: MemoryWorthStore, service: Any) -> None:
    run_id = retrieved(memories, "apple")
    service.say(retrieved(memories, "bread"), True, "right")
    service.forward(hours=1)
    service.say(run_id, True, "right")
    service.say(run_id, 0.0, "polite")

    done = pull(
        memories, service.source, since=START + timedelta(minutes=1), keys=["right", "other"]
    )

    assert (done.recorded, done.unchanged) == (1, 0)
    assert done.until == START + timedelta(hours=1)
    assert credits_of(memories) == {"apple": 1}
    assert memories.worth("apple") == 1.0


@both
def test_fewer_keys_withdraw_nothing(memories: MemoryWorthStore, service: Any) -> None:
    run_id = retrieved(memories, "apple")
    service.say(run_id, True, "right")
    service.say(run_id, 0.5, "polite")
    pull(memories, service.source)

    done = pull(memories, service.source, keys=["right"])

    assert done.withdrawn == 0
    assert len(memories.run(run_id).outcomes) == 2


@both
def test_many_are_read_page_by_page_and_followed_in_chunks(
    memories: MemoryWorthStore, service: Any
) -> None:
    runs = [retrieved(memories, "apple") for _ in range(120)]
    feedback = [service.say(r, n % 2 == 0) for n, r in enumerate(runs)]
    seen: list[Pulled] = []

    done = pull(memories, service.source, progress=seen.append)

    assert done.recorded == 120
    assert [p.recorded for p in seen] == [50, 100, 120]
    for one in feedback[:60]:
        service.delete(one)
    service.requests.clear()
    done = pull(memories, service.source, since=START + timedelta(days=1))
    assert (done.withdrawn, done.unchanged) == (60, 60)
    assert credits_of(memories) == {"apple": 60}
    listed = [q for method, _, q in service.requests if method == "GET" and "limit" in q]
    longest = max(len(q.get("run", [])) or len(q.get("id", [""])[0].split(",")) for q in listed)
    assert 1 < longest <= CHUNK


@both
def test_a_pull_that_breaks_off_is_finished_by_the_next(
    memories: MemoryWorthStore, service: Any
) -> None:
    for _ in range(150):
        service.say(retrieved(memories, "apple"), True)
    service.fail_after = 1

    with pytest.raises(Exception, match="no more today"):
        pull(memories, service.source)

    assert credits_of(memories) == {"apple": 100}
    service.fail_after = None
    done = pull(memories, service.source)
    assert (done.recorded, done.unchanged) == (50, 100)


@both
def test_scores_of_any_scale_by_a_function(memories: MemoryWorthStore, service: Any) -> None:
    good, bad, odd = (retrieved(memories, w) for w in ("apple", "bread", "cedar"))
    service.say(good, 5)
    service.say(bad, "thumbs down")
    service.say(odd, 3)

    def read(one: Feedback) -> bool | float | Outcome | None:
        if one.score == "thumbs down":
            return Outcome(0.0, used=("bread",))
        return None if one.score == 3 else (one.score - 1) / 4

    done = pull(memories, service.source, outcome=read)

    assert (done.recorded, done.ignored) == (2, 1)
    assert (memories.worth("apple"), memories.worth("bread")) == (1.0, 0.0)
    assert memories.run(bad).outcomes[0].used == ("bread",)


@both
def test_a_function_that_gives_no_outcome_is_told(memories: MemoryWorthStore, service: Any) -> None:
    service.say(retrieved(memories, "apple"), 5)

    with pytest.raises(InvalidOutcomeError):
        pull(memories, service.source, outcome=lambda one: one.score)


@both
def test_each_key_may_be_a_metric(make_store: StoreMaker, service: Any) -> None:
    store = filled(make_store(policy=plain(metric="right")))
    run_id = retrieved(store, "apple")
    service.say(run_id, True, "right")
    service.say(run_id, 0.25, "polite")
    pull(store, service.source)
    assert store.worth("apple") == 0.25  # the newest, when all of them speak of the outcome as such

    pull(store, service.source, by_key=True)

    assert {(o.metric, o.reward) for o in store.run(run_id).outcomes} == {
        ("right", 1.0),
        ("polite", 0.25),
    }
    assert store.worth("apple") == 1.0
    assert pull(store, service.source, by_key=True).unchanged == 2


@both
def test_it_does_not_double_what_others_say(memories: MemoryWorthStore, service: Any) -> None:
    run_id = retrieved(memories, "apple")
    service.say(run_id, False)
    pull(memories, service.source)
    memories.record_outcome(run_id, True)  # a thumb, by run id

    pull(memories, service.source)

    assert memories.worth("apple") == 1.0
    assert credits_of(memories) == {"apple": 1}


# -- LangSmith ------------------------------------------------------------------------------------------------


langsmith = pytest.mark.parametrize(
    "service", [pytest.param(LangSmith, marks=local)], indirect=True
)


@langsmith
def test_langsmith_feedback_on_a_step_counts_for_its_trace(
    memories: MemoryWorthStore, service: LangSmith
) -> None:
    handler = MemoryWorthCallbackHandler(memories)
    trace = uuid4()
    chain = memories.as_retriever(k=1) | (lambda ds: ds[0].page_content)
    chain.invoke("apple", {"callbacks": [handler], "run_id": trace})
    feedback = service.say(uuid4(), True)
    service.rows[feedback]["trace_id"] = str(trace)

    assert pull(memories, service.source).recorded == 1
    assert memories.worth("apple") == 1.0
    # It is not among the feedback on the trace itself, and still there.
    late = pull(memories, service.source, since=START + timedelta(days=1))
    assert (late.unchanged, late.withdrawn) == (1, 0)


@langsmith
def test_langsmith_feedback_on_an_episode_that_has_another_name(
    memories: MemoryWorthStore, service: LangSmith
) -> None:
    handler = MemoryWorthCallbackHandler(memories)
    trace = uuid4()
    chain = memories.as_retriever(k=1) | (lambda ds: ds[0].page_content)
    config = {"callbacks": [handler], "run_id": trace, "metadata": {"episode_id": "thread-7"}}
    chain.invoke("apple", config)
    feedback = service.say(trace, True)
    pull(memories, service.source)
    assert memories.run("thread-7").reward == 1.0

    service.correct(feedback, 0.0)
    pull(memories, service.source, since=START + timedelta(days=1))
    assert memories.run("thread-7").reward == 0.0
    service.delete(feedback)
    pull(memories, service.source, since=START + timedelta(days=1))
    assert memories.run("thread-7").reward is None


def test_clients_are_made_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", "key")
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", f"pk-{uuid4()}")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk")
    monkeypatch.setenv("LANGFUSE_TRACING_ENABLED", "false")

    smith, fuse = LangSmithFeedback(), LangfuseScores()

    assert (smith.name, fuse.name) == ("langsmith", "langfuse")
    assert fuse.name_of("run") != fuse.name_of("other")
    smith._client.cleanup()


@langsmith
def test_langsmith_within_a_project(memories: MemoryWorthStore, service: LangSmith) -> None:
    run_id = retrieved(memories, "apple")
    service.say(run_id, True)
    elsewhere = LangSmithFeedback(service.client, project_id=UUID(int=2), name="elsewhere")
    here = LangSmithFeedback(service.client, project_id=str(UUID(int=1)))

    assert pull(memories, elsewhere) == Pulled()
    assert pull(memories, here).recorded == 1


@langsmith
def test_langsmith_feedback_on_no_run_is_counted(
    memories: MemoryWorthStore, service: LangSmith
) -> None:
    feedback = service.say(uuid4(), True)
    service.rows[feedback]["run_id"] = None

    assert pull(memories, service.source).unknown == 1


# -- Langfuse -------------------------------------------------------------------------------------------------


langfuse = pytest.mark.parametrize(
    "service", [pytest.param(LangfuseService, marks=local)], indirect=True
)


@langfuse
def test_langfuse_scores_on_an_observation_count_for_its_trace(
    memories: MemoryWorthStore, service: LangfuseService
) -> None:
    run_id = retrieved(memories, "apple")
    trace = service.source.name_of(str(run_id))
    service.say(None, True, kind="observation", id="o", traceId=trace)
    service.say(None, True, kind="session", id="s")
    service.say(None, True, kind="observation", id="o2")

    done = pull(memories, service.source)

    assert (done.recorded, done.unknown) == (1, 2)
    assert memories.worth("apple") == 1.0


@langfuse
def test_a_langfuse_trace_id_may_be_an_alias(
    memories: MemoryWorthStore, service: LangfuseService
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    with memories.governor.database.write() as session:
        memories.governor.ledger.open_episode(session, EpisodeKey("e", (trace,)), 0.0)
    with memories.episode("e"):
        memories.similarity_search("apple", k=1)
    service.say(None, True, kind="trace", id=trace)

    assert pull(memories, service.source).recorded == 1


@langfuse
def test_langfuse_traces_may_be_named_otherwise(
    memories: MemoryWorthStore, service: LangfuseService
) -> None:
    run_id = retrieved(memories, "apple")
    service.say(None, True, kind="trace", id=run_id.hex)

    source = LangfuseScores(service.client.api, trace_id=lambda i: i.replace("-", ""))

    assert pull(memories, source).recorded == 1


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("LangSmithFeedback", "langsmith", "langsmith"), ("LangfuseScores", "langfuse", "langfuse")],
)
def test_a_missing_client_is_named(name: str, module: str, extra: str) -> None:
    program = (
        f"import sys; from langchain_memoryworth import {name}\n"
        f"from langchain_memoryworth.errors import MissingExtraError\n"
        f"sys.modules[{module!r}] = None\n"
        f"try: {name}()\nexcept MissingExtraError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert f"langchain-memoryworth[{extra}]" in done.stdout


# -- any other service ----------------------------------------------------------------------------------------


class Listed:
    """A service that is a list."""

    name = "listed"
    name_of: Any = None

    def __init__(self, *said: Feedback) -> None:
        self.said = said

    def since(self, moment: Any, keys: Any) -> Iterator[Feedback]:
        return iter(self.said)

    def again(self, said: Any) -> Iterator[Feedback]:
        return (one for one in self.said if one.id in said)


def at(hour: int) -> datetime:
    return datetime(2026, 1, 1, hour, tzinfo=UTC)


def test_of_two_versions_in_one_pull_the_newer_counts(memories: MemoryWorthStore) -> None:
    """Pages move while they are read."""
    run_id = str(retrieved(memories, "apple"))
    old, new = (Feedback("f", (run_id,), "k", s, at(0), at(v)) for s, v in ((True, 1), (False, 2)))

    pull(memories, Listed(new, old))
    assert memories.worth("apple") == 0.0
    pull(memories, Listed(old, new, old))
    assert memories.worth("apple") == 0.0


def test_the_first_id_that_is_known_is_the_run(memories: MemoryWorthStore) -> None:
    step, trace = retrieved(memories, "apple"), retrieved(memories, "bread")

    pull(memories, Listed(Feedback("f", (str(step), str(trace)), "k", True, at(0), None)))

    assert credits_of(memories) == {"apple": 1}


def test_a_service_that_knows_no_keys_is_asked_for_some(store: MemoryWorthStore) -> None:
    filled(store)
    run_id = str(retrieved(store, "apple"))
    said = [Feedback(k, (run_id,), k, k == "right", at(0), None) for k in ("right", "polite")]

    assert pull(store, Listed(*said), keys=["right"]) == Pulled(recorded=1, until=at(0))
    assert store.worth("apple") == 1.0
    assert pull(store, Listed(), keys=["right"]).withdrawn == 1
    assert_exact(store)


def test_a_service_may_have_names_of_its_own_for_runs(store: MemoryWorthStore) -> None:
    filled(store)
    run_id = str(retrieved(store, "apple"))
    source = Listed(
        Feedback("f", (run_id.upper(),), "k", True, at(0), None),
        Feedback("g", ("NOBODY",), "k", True, at(0), None),
    )
    source.name_of = str.upper

    assert pull(store, source) == Pulled(recorded=1, unknown=1, until=at(0))


@pytest.mark.parametrize(
    ("score", "reward"),
    [
        (True, True),
        (0, 0),
        (0.3, 0.3),
        (1.5, None),
        (-1, None),
        (float("nan"), None),
        ("good", None),
        (None, None),
    ],
)
def test_what_is_read_as_a_reward(score: Any, reward: Any) -> None:
    assert as_reward(Feedback("f", (), "k", score, None, None)) == reward


# -- evaluators -----------------------------------------------------------------------------------------------


def finished(inputs: Any, outputs: Any) -> Run:
    return Run("r", "r", inputs=inputs, result=outputs, memories=(Document("note", id="n"),))


def test_langchains_string_evaluators() -> None:
    from langchain_classic.evaluation import load_evaluator

    judge = evaluator(load_evaluator("exact_match"), reference=lambda run: run.inputs.title())

    assert judge(finished("prague", "Prague")) == 1
    assert judge(finished("prague", "Brno")) == 0


@pytest.mark.parametrize(("verdict", "outcome"), [("Y", 1), ("N", 0), ("maybe", None)])
@pytest.mark.parametrize("labeled", [False, True])
def test_langchains_criteria_with_a_judge(verdict: str, outcome: Any, labeled: bool) -> None:
    from langchain_classic.evaluation import load_evaluator

    asked: list[str] = []

    class Llm(FakeListLLM):
        def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
            asked.append(prompt)
            return super()._call(prompt, *args, **kwargs)

    judge = evaluator(
        load_evaluator(
            "labeled_criteria" if labeled else "criteria",
            llm=Llm(responses=[f"It is so.\n{verdict}"]),
            criteria="correctness" if labeled else "conciseness",
        ),
        reference="the truth" if labeled else None,
    )

    assert judge(finished("a question", "an answer")) == outcome
    assert "a question" in asked[0]
    assert "an answer" in asked[0]
    assert ("the truth" in asked[0]) is labeled


def test_openevals() -> None:
    from openevals.exact import exact_match
    from openevals.json import create_json_match_evaluator

    exact = evaluator(exact_match, reference={"a": 1})
    assert exact(finished(None, {"a": 1})) is True
    assert exact(finished(None, {"a": 2})) is False
    parts = evaluator(create_json_match_evaluator(), reference={"a": 1, "b": 2})
    found = parts(finished(None, {"a": 1, "b": 3}))
    assert found == {"json_match:a": True, "json_match:b": False}
    named = evaluator(
        create_json_match_evaluator(), metric="json_match:b", reference={"a": 1, "b": 2}
    )
    assert named(finished(None, {"a": 1, "b": 3})) == 0


@pytest.mark.parametrize(("tool", "outcome"), [("look", True), ("guess", False)])
def test_agentevals_on_the_state_of_an_agent(tool: str, outcome: bool) -> None:
    from agentevals.trajectory.match import create_trajectory_match_evaluator

    def trajectory(name: str) -> list[Any]:
        wish = AIMessage("", tool_calls=[{"name": name, "args": {}, "id": "1"}])
        return [HumanMessage("where?"), wish, AIMessage("there")]

    judge = evaluator(
        create_trajectory_match_evaluator(trajectory_match_mode="strict"),
        reference=trajectory("look"),
    )

    assert judge(finished(None, {"messages": trajectory(tool)})) is outcome


def test_metrics_like_those_of_ragas_by_one_callable(make_store: StoreMaker) -> None:
    asked: list[dict[str, Any]] = []

    def measure(**given: Any) -> dict[str, Any]:
        asked.append(given)
        return {"faithfulness": 0.75, "answer_relevancy": np.float64(0.5), "recall": float("nan")}

    store = filled(make_store(policy=plain(metric="faithfulness")))
    handler = MemoryWorthCallbackHandler(store, evaluator(measure), source="evaluator")
    chain = store.as_retriever(k=1) | (lambda ds: ds[0].page_content)

    chain.invoke("apple", {"callbacks": [handler]})

    assert store.worth("apple") == 0.75
    episode = store.run(handler.last_episode_id)
    assert {o.metric: o.reward for o in episode.outcomes} == {
        "faithfulness": 0.75,
        "answer_relevancy": 0.5,
    }
    assert asked == [
        {"inputs": "apple", "outputs": "apple", "reference_outputs": None, "context": ["apple"]}
    ]
    assert evaluator(measure, metric="recall")(finished("a", "b")) is None


def test_a_function_is_called_with_what_it_takes() -> None:
    def shorter(*, outputs: dict[str, str], context: list[str]) -> bool:
        return len(outputs["answer"]) < len(context[0])

    assert evaluator(shorter)(finished("a", {"answer": "no"})) is True


def test_texts_of_a_mapping_are_judged_together() -> None:
    from langchain_classic.evaluation import load_evaluator

    judge = evaluator(load_evaluator("exact_match"), reference={"a": "x", "b": "y"})

    assert judge(finished("q", {"a": "x", "b": "y"})) == 1


def test_a_runnable_is_given_the_reference() -> None:
    asked: list[Any] = []
    judge = evaluator(RunnableLambda(lambda d: asked.append(d) or {"score": 0.5}), reference="c")

    assert judge(finished("a", "b")) == 0.5
    assert asked == [{"inputs": "a", "outputs": "b", "memories": ["note"], "reference": "c"}]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (True, True),
        (0.5, 0.5),
        (None, None),
        ({"score": None, "reasoning": "unclear"}, None),
        ({"key": "k", "score": 0.25, "comment": None}, 0.25),
        ({"reasoning": "no number here"}, None),
        ([], None),
        ([{"key": "a", "score": 1.0}, {"key": "b", "score": None}], {"a": 1.0}),
        (Outcome(1.0, used=("m",)), Outcome(1.0, used=("m",))),
    ],
)
def test_what_is_read_of_an_answer(answer: Any, outcome: Any) -> None:
    assert scores_of(answer) == outcome


def test_the_example_runs() -> None:
    example = Path(__file__).parents[1] / "examples" / "feedback_pull.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", example], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "withdrawn=1" in done.stdout
