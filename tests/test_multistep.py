"""Episodes over several turns: which turn gets how much credit, and several outcomes of one episode."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    Outcome,
    Run,
    Shown,
)
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.credit import discounted, normalised, settle, to_units
from tests.conftest import StoreMaker
from tests.fakes import Clock, assert_exact, counters, fold_of_ledger, query
from tests.policies import plain
from tests.runs_fixtures import WORDS, filled, text

HOUR = timedelta(hours=1)
DISCOUNTED = plain(credit_half_life=HOUR, w_min=0.0, exploration=0.0)


@pytest.fixture
def memories(make_store: StoreMaker, url: str) -> MemoryWorthStore:
    return filled(make_store(url, policy=DISCOUNTED))


def turn(store: MemoryWorthStore, word: str, episode: str = "e") -> None:
    """One turn of an episode, with a word in front of the model."""
    with store.episode(episode, thread_id="t"):
        assert store.similarity_search(word, k=1)[0].id == word


def weights(store: MemoryWorthStore, episode: str = "e") -> dict[str, float]:
    """The credit of each memory of an episode."""
    return {e.memory_id: e.weight for e in store.run(episode).exposures if e.shown}


def hours(*lags: float) -> list[Shown]:
    return [Shown(str(i), 0, 0.5, timedelta(0), timedelta(hours=lag)) for i, lag in enumerate(lags)]


# -- the discount ---------------------------------------------------------------------------------------------


def test_a_half_life_halves_what_a_turn_gets() -> None:
    assert discounted([1.0, 1.0, 4.0], hours(0, 1, 2), HOUR) == [1.0, 0.5, 1.0]
    assert discounted([1.0, 1.0], hours(0, 9), None) == [1.0, 1.0]


@pytest.mark.parametrize("delay", [0.0, 1.0, 24.0])
def test_the_discount_to_the_outcome_gives_the_same_weights_whenever_that_comes(
    delay: float,
) -> None:
    """The formula of the docstring, worked out with the time of the outcome in it."""
    lags = (0.0, 0.5, 3.0)
    whole = [0.5 ** (delay + lag) for lag in lags]

    assert normalised(discounted([1.0] * 3, hours(*lags), HOUR), 0.0) == pytest.approx(
        [w / sum(whole) for w in whole], rel=1e-12
    )


@pytest.mark.parametrize("rule", ["uniform", "similarity", lambda shown: [2.0 for _ in shown]])
def test_it_is_a_factor_on_every_rule(rule: Any) -> None:
    first, last = settle(hours(1, 0), 1.0, rule=rule, w_min=0.0, discount=HOUR)

    assert last.weight / first.weight == pytest.approx(2.0, rel=1e-8)
    assert first.weight + last.weight == 2**32


def test_what_was_used_is_known_without_a_discount() -> None:
    first, last = settle(hours(9, 0), 1.0, used=["0"], w_min=0.0, discount=HOUR)

    assert (first.weight, last.weight) == (2**32, 0)


def test_a_turn_long_ago_keeps_the_floor() -> None:
    first, last = settle(hours(1e6, 0), 1.0, w_min=0.01, discount=HOUR)

    assert first.weight == pytest.approx(0.01 * 2**32, abs=1)
    assert first.weight + last.weight == 2**32


def test_a_rule_of_the_user_may_look_at_the_lag() -> None:
    seen: list[timedelta] = []

    def rule(shown: Sequence[Shown]) -> list[float]:
        seen.extend(m.lag for m in shown)
        return [1.0] * len(shown)

    settle(hours(2, 0), 1.0, rule=rule)

    assert seen == [2 * HOUR, timedelta(0)]


@pytest.mark.parametrize("half_life", [timedelta(0), timedelta(seconds=-1)])
def test_a_half_life_is_longer_than_nothing(half_life: timedelta) -> None:
    with pytest.raises(ValueError, match="longer than 0"):
        plain(credit_half_life=half_life)


def test_the_policy_is_kept_with_the_database(make_store: StoreMaker, file_url: str) -> None:
    policy = plain(credit_half_life=timedelta(minutes=90), metric="correct")
    make_store(file_url, policy=policy).close()

    assert make_store(file_url).policy == policy


# -- in the ledger --------------------------------------------------------------------------------------------


def test_credit_goes_back_through_the_turns(memories: MemoryWorthStore, clock: Clock) -> None:
    for word in ("apple", "bread", "cedar"):
        turn(memories, word)
        clock.forward(seconds=3600)
    memories.record_outcome("e", True)

    assert weights(memories) == pytest.approx({"apple": 1 / 7, "bread": 2 / 7, "cedar": 4 / 7})
    assert_exact(memories)
    # A third of a retrieval's weight each would be three retrievals; what counts for less is less of one.
    sizes = [memories.evidence(w).effective_size for w in ("apple", "bread", "cedar")]
    assert sizes == pytest.approx([3 / 7, 6 / 7, 1.0], abs=1e-3)


def test_what_is_shown_again_starts_anew(memories: MemoryWorthStore, clock: Clock) -> None:
    turn(memories, "apple")
    turn(memories, "bread")
    clock.forward(seconds=3600)
    turn(memories, "apple")
    memories.record_outcome("e", True)

    assert weights(memories) == pytest.approx({"apple": 2 / 3, "bread": 1 / 3})
    assert_exact(memories)


def test_a_late_or_corrected_outcome_moves_no_credit(
    memories: MemoryWorthStore, clock: Clock
) -> None:
    untouched = counters(memories)
    turn(memories, "apple")
    clock.forward(seconds=3600)
    turn(memories, "bread")
    memories.record_outcome("e", True)
    at_once = counters(memories)

    clock.forward(days=300)
    memories.record_outcome("e", False)
    memories.record_outcome("e", True)
    assert counters(memories) == at_once

    memories.withdraw_outcome("e")
    assert counters(memories) == untouched


def test_a_turn_after_the_outcome_is_taken_in(memories: MemoryWorthStore, clock: Clock) -> None:
    turn(memories, "apple")
    memories.record_outcome("e", True)
    clock.forward(seconds=3600)
    turn(memories, "bread")

    assert weights(memories) == pytest.approx({"apple": 1 / 3, "bread": 2 / 3})
    assert_exact(memories)


def test_the_last_turn_is_the_last_of_those_shown(memories: MemoryWorthStore, clock: Clock) -> None:
    for word in ("apple", "bread", "cedar"):
        turn(memories, word)
        clock.forward(seconds=3600)
    memories.record_outcome("e", True)
    memories.governor.journal.hide("e", ["cedar"])

    assert weights(memories) == pytest.approx({"apple": 1 / 3, "bread": 2 / 3})
    assert_exact(memories)


def test_an_episode_of_one_turn_is_as_without_a_discount(
    make_store: StoreMaker, clock: Clock
) -> None:
    stores = [filled(make_store(policy=p)) for p in (DISCOUNTED, plain(w_min=0.0, exploration=0))]
    for store in stores:
        with store.episode("e"):
            store.similarity_search("apple bread", k=3)
    clock.forward(days=2)
    for store in stores:
        store.record_outcome("e", 0.3)

    assert counters(stores[0]) == counters(stores[1])


def test_a_thread_of_runs_is_one_episode_by_its_id(
    memories: MemoryWorthStore, clock: Clock
) -> None:
    """With the handler, and the outcome of the turn that knows it."""

    def outcome(run: Run) -> bool | None:
        return True if run.outputs == "bread" else None

    chain = memories.as_retriever(k=1) | text
    for word in ("apple", "bread"):
        handler = MemoryWorthCallbackHandler(memories, outcome)
        chain.invoke(word, {"callbacks": [handler], "metadata": {"episode_id": "thread-7"}})
        clock.forward(seconds=3600)

    assert weights(memories, "thread-7") == pytest.approx({"apple": 1 / 3, "bread": 2 / 3})


def test_turns_may_be_in_other_processes(
    make_store: StoreMaker, shared_url: str, clock: Clock
) -> None:
    first, second = filled(make_store(shared_url, policy=DISCOUNTED)), make_store(shared_url)
    turn(first, "apple")
    clock.forward(seconds=3600)
    turn(second, "bread")
    first.record_outcome("e", True)

    assert weights(second) == pytest.approx({"apple": 1 / 3, "bread": 2 / 3})
    assert_exact(second)


def expected(store: MemoryWorthStore) -> dict[int, int]:
    """The weights of every settled episode, worked out from the times in the database."""
    found: dict[int, int] = {}
    for (eid,) in query(store, "SELECT eid FROM episodes WHERE reward IS NOT NULL"):
        rows = query(
            store,
            "SELECT seq, COALESCE(last_at, at) FROM exposures WHERE eid = :eid AND shown = 1 "
            "ORDER BY rank, seq",
            eid=eid,
        )
        last = max((at for _, at in rows), default=0.0)
        raw = [0.5 ** ((last - at) / 3600) for _, at in rows]
        for (seq, _), weight in zip(rows, to_units([r / sum(raw) for r in raw]), strict=True):
            found[seq] = found.get(seq, 0) + weight
    return found


steps = st.lists(
    st.one_of(
        st.tuples(st.just("show"), st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.just("hide"), st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.just("say"), st.sampled_from("ab"), st.sampled_from([0.0, 0.3, 1.0])),
        st.tuples(st.just("unsay"), st.sampled_from("ab"), st.just(0)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 10_000)),
    ),
    max_size=25,
)


@given(steps)
def test_whatever_happens_counters_are_the_fold_of_the_ledger(story: list[Any]) -> None:
    clock = Clock()
    embedding = DeterministicFakeEmbedding(size=8)
    with MemoryWorthStore("sqlite://", embedding, clock=clock, policy=DISCOUNTED) as store:
        filled(store)
        for kind, episode, value in story:
            if kind == "wait":
                clock.forward(seconds=value)
            elif kind == "show":
                turn(store, WORDS[value], episode)
            elif kind == "hide":
                store.governor.journal.hide(episode, [WORDS[value]])
            elif store.governor.journal.shown_documents(episode):
                if kind == "say":
                    store.record_outcome(episode, value)
                else:
                    store.withdraw_outcome(episode)

        assert_exact(store)
        given_ = {s: c[0][0] + c[0][1] for s, c in counters(store).items() if sum(c[0][:2])}
        for seq, weight in expected(store).items():
            # Times are kept in microseconds, so the last bits of a weight may differ.
            assert given_.pop(seq) == pytest.approx(weight, abs=8)
        assert not given_


# -- several outcomes -----------------------------------------------------------------------------------------


@pytest.fixture
def measured(make_store: StoreMaker, url: str) -> MemoryWorthStore:
    store = filled(make_store(url, policy=plain(metric="correct", exploration=0.0)))
    turn(store, "apple")
    return store


def test_one_metric_drives_and_the_others_are_kept(measured: MemoryWorthStore) -> None:
    measured.record_outcome("e", 0.25, metric="polite")
    assert measured.run("e").reward is None
    assert measured.health().pending == 1
    assert measured.evidence("apple").retrievals == 0

    measured.record_outcome("e", True, metric="correct")
    measured.record_outcome("e", 0.5, metric="fast")

    assert measured.worth("apple") == 1.0
    assert {o.metric: o.reward for o in measured.run("e").outcomes} == {
        "polite": 0.25,
        "correct": 1.0,
        "fast": 0.5,
    }
    assert fold_of_ledger(measured) == {s: c[0] for s, c in counters(measured).items()}


def test_an_outcome_without_a_metric_always_drives(measured: MemoryWorthStore) -> None:
    measured.record_outcome("e", True, metric="correct")
    measured.record_outcome("e", False)

    assert measured.worth("apple") == 0.0
    assert measured.evidence("apple").retrievals == 1


def test_sources_of_the_metric_that_drives_have_their_order(measured: MemoryWorthStore) -> None:
    measured.record_outcome("e", False, metric="correct", source="evaluator")
    measured.record_outcome("e", True, metric="correct", source="handler")
    measured.record_outcome("e", True, metric="polite", source="user")

    assert measured.worth("apple") == 0.0


def test_metrics_are_corrected_and_withdrawn_each_by_itself(measured: MemoryWorthStore) -> None:
    assert measured.record_outcome("e", True, metric="correct")
    assert measured.record_outcome("e", True, metric="polite")
    assert not measured.record_outcome("e", True, metric="polite")
    assert measured.withdraw_outcome("e", metric="polite")
    assert measured.worth("apple") == 1.0
    assert not measured.withdraw_outcome("e")
    assert measured.withdraw_outcome("e", metric="correct")
    assert measured.worth("apple") == 0.5
    assert measured.run("e").outcomes == ()
    assert_exact(measured)


def test_used_of_a_metric_that_is_only_kept_has_no_say(make_store: StoreMaker) -> None:
    store = filled(make_store(policy=plain(metric="correct", w_min=0.0, exploration=0.0)))
    turn(store, "apple")
    turn(store, "bread")
    store.record_outcome("e", True, metric="correct")
    store.record_outcome("e", Outcome(1.0, used=("apple",)), metric="polite")

    assert weights(store) == {"apple": 0.5, "bread": 0.5}


def test_without_a_metric_in_the_policy_those_with_a_name_are_only_kept(
    make_store: StoreMaker,
) -> None:
    store = filled(make_store())
    turn(store, "apple")
    store.record_outcome("e", False, metric="correct")

    assert store.run("e").reward is None
    assert store.worth("apple") == 0.5


def test_an_episode_object_records_metrics(measured: MemoryWorthStore) -> None:
    with measured.episode() as episode:
        measured.similarity_search("bread", k=1)

    assert episode.record(True, metric="correct")
    assert measured.worth("bread") == 1.0


def test_an_outcome_function_may_give_several(measured: MemoryWorthStore) -> None:
    chain = measured.as_retriever(k=1) | text
    handler = MemoryWorthCallbackHandler(
        measured, lambda run: {"correct": run.outputs == "bread", "short": 0.75, "kind": None}
    )

    chain.invoke("bread", {"callbacks": [handler]})

    assert measured.worth("bread") == 1.0
    outcomes = measured.run(handler.last_episode_id).outcomes
    assert {o.metric: o.reward for o in outcomes} == {"correct": 1.0, "short": 0.75}


@pytest.mark.parametrize("metric", [None, 3])
def test_a_metric_is_a_text(measured: MemoryWorthStore, metric: Any) -> None:
    with pytest.raises(InvalidInputError, match="metric"):
        measured.record_outcome("e", True, metric=metric)
