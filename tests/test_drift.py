"""The change detector: what it computes, that it can be stored and replayed, and how soon and how rarely it speaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betainc, betaln

from benchmarks.traffic_shift import Judge, alarms
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators import drift
from langchain_memoryworth.estimators.drift import (
    HAZARD,
    HYPOTHESES,
    current,
    declined,
    fresh,
    pack,
    probability_below,
    unpack,
    update,
)

outcomes = st.lists(
    st.tuples(
        st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)),
        st.one_of(st.just(1.0), st.floats(0, 1)),
        st.floats(0, 1),
    ),
    max_size=60,
)


def run(sequence, states=None, start: int = 1):
    states = fresh(1) if states is None else states
    for number, (reward, size, expected) in enumerate(sequence, start):
        states = update(states, reward, size=size, expected=expected, at=number)
    return states


def play(rng, chances, memories: int, states=None, flag=None):
    """Bernoulli outcomes for many memories; the states, and when each was first flagged (0: never)."""
    states = fresh(memories) if states is None else states
    first = np.zeros(memories, dtype=int)
    for number, p in enumerate(chances, start=1):
        states = update(states, rng.random(memories) < p, at=number)
        if flag is not None:
            first[(first == 0) & flag(states)] = number
    return states, first


def low(states):
    return declined(states, theta=0.4)


def test_who_knows_the_flips_sees_more_declines_and_no_more_that_are_none() -> None:
    """Three labels of ten flipped: .85 looks like .64, 0 like .3, .6 like .54."""
    rng = np.random.default_rng(5)
    good, _ = play(rng, [0.54] * 150, 60)
    fell, _ = play(rng, [0.64] * 100 + [0.3] * 100, 60)
    assert not declined(good, theta=0.4, flip=0.3).any()
    known, unknown = declined(fell, theta=0.4, flip=0.3), declined(fell, theta=0.4)
    assert (known | ~unknown).all()
    assert known.sum() > unknown.sum() + 10


# -- what it computes


def full(sequence):
    """Adams and MacKay without pruning: probabilities and counts of every possible start."""
    weight, counts = np.ones(1), np.zeros((1, 2))
    for reward, _, _ in sequence:
        gain = np.array([reward, 1 - reward])
        before, after = counts + 1, counts + 1 + gain
        weight = weight * np.exp(betaln(*after.T) - betaln(*before.T))
        weight = np.append((1 - HAZARD) * weight / weight.sum(), HAZARD)
        counts = np.append(counts + gain, np.zeros((1, 2)), axis=0)
    return weight, counts + 1


@given(st.lists(st.sampled_from([0.0, 1.0, 0.3]), min_size=1, max_size=HYPOTHESES - 1))
def test_before_anything_is_pruned_it_is_the_exact_posterior(rewards: list[float]) -> None:
    sequence = [(r, 1.0, 0.5) for r in rewards]
    states = run(sequence)
    weight, counts = full(sequence)
    assert probability_below(states, theta=0.4)[0] == pytest.approx(
        (weight * betainc(*counts.T, 0.4)).sum(), abs=1e-12
    )
    assert current(states).mean[0] == pytest.approx((weight * counts[:, 0] / counts.sum(1)).sum())


def test_pruned_it_stays_near_the_exact_posterior() -> None:
    rng = np.random.default_rng(3)
    rewards = np.concatenate([rng.random(150) < 0.8, rng.random(25) < 0.2]).astype(float)
    sequence = [(r, 1.0, 0.5) for r in rewards]
    weight, counts = full(sequence)
    exact = (weight * betainc(*counts.T, 0.4)).sum()
    assert probability_below(run(sequence), theta=0.4)[0] == pytest.approx(exact, abs=0.02)


@given(outcomes, st.floats(0.05, 0.95), st.sampled_from([None, 0.1]))
def test_the_short_cut_never_changes_a_flag(sequence, theta: float, margin: float | None) -> None:
    states = run(sequence)
    probability = probability_below(states, theta=theta, margin=margin)[0]
    for confidence in (0.6, 0.95, 0.99):
        if abs(probability - confidence) > 1e-9:
            flag = declined(states, theta=theta, margin=margin, confidence=confidence)
            assert flag[0] == (probability >= confidence)


def test_a_bystander_gets_evidence_in_proportion_and_keeps_its_hypotheses() -> None:
    rng = np.random.default_rng(4)
    states, _ = play(rng, [0.85] * 100 + [0.2] * 20, 1)
    before = current(states)
    for number in range(20):
        states = update(states, 1.0, size=0.02, at=200 + number)
    after = current(states)
    assert after.size[0] == pytest.approx(before.size[0] + 0.4)
    assert after.since.tolist() == before.since.tolist()
    assert abs(after.mean[0] - before.mean[0]) < 0.05


def test_size_zero_changes_nothing_that_is_believed() -> None:
    states = run([(1.0, 1.0, 0.5)] * 5)
    after = update(states, 0.0, size=0.0, at=9)
    assert current(after).mean == pytest.approx(current(states).mean, abs=2e-4)


def test_graded_rewards_are_conservative() -> None:
    """The same mean with less spread: flagged no more often than success and failure."""
    rng = np.random.default_rng(5)
    memories, graded, plain = 400, fresh(400), fresh(400)
    flags = np.zeros((2, memories), dtype=bool)
    for number in range(300):
        p = rng.random(memories)
        graded = update(graded, 0.25 + 0.5 * p, at=number)
        plain = update(plain, rng.random(memories) < 0.5, at=number)
        flags |= [low(graded), low(plain)]
    assert flags[0].sum() == 0 <= flags[1].sum()


def test_since_when_and_what_was_before() -> None:
    rng = np.random.default_rng(6)
    states, _ = play(rng, [0.9] * 300 + [0.1] * 40, 50)
    now = current(states)
    assert np.median(np.abs(now.since - 300)) <= 3
    assert np.median(now.size) == pytest.approx(40, abs=3)
    # Binomial: 300 at .9 has a standard deviation of .017, 40 at .1 of .047.
    assert now.before.mean() == pytest.approx(0.9, abs=0.01)
    assert now.mean.mean() == pytest.approx(0.12, abs=0.03)
    assert (now.probability > 0.1).all()
    assert np.all(now.size + now.before_size == 340)


def test_without_outcomes_everything_is_open() -> None:
    now = current(fresh(2))
    assert now.mean.tolist() == [0.5, 0.5]
    assert now.sd == pytest.approx(1 / 12**0.5)
    assert now.size.tolist() == now.before_size.tolist() == [0, 0]
    assert np.isnan(now.before).all()
    assert np.isnan(now.expected).all()
    assert not declined(fresh(2), theta=0.4, margin=0.1).any()
    assert current(fresh(0)).mean.shape == declined(fresh(0), theta=0.4).shape == (0,)
    assert update(fresh(0), [], at=1).shape == fresh(0).shape


def test_a_life_without_change_is_one_regime_and_one_with_change_is_not() -> None:
    rng = np.random.default_rng(10)
    steady, _ = play(rng, [0.7] * 800, 300)
    fallen, _ = play(rng, [0.8] * 300 + [0.4] * 200, 200)
    risen, _ = play(rng, [0.2] * 100 + [0.8] * 100, 200)
    assert drift.changed(steady).mean() <= 0.02
    assert drift.changed(fallen).mean() >= 0.98
    assert drift.changed(risen).mean() >= 0.98


# -- stored, replayed, corrected, vectorised


@given(outcomes, st.integers(0, 60))
def test_incremental_with_storing_in_between_is_replay_to_the_last_bit(sequence, cut: int) -> None:
    half = unpack(pack(run(sequence[:cut])))
    stored = unpack(pack(run(sequence[cut:], half, start=len(sequence[:cut]) + 1)))
    assert stored.tobytes() == run(sequence).tobytes()


@given(outcomes, st.data())
def test_a_correction_is_a_replay_without_it(sequence, data) -> None:
    """From a checkpoint before the wrong outcome, the rest gives what would have been without it."""
    if not sequence:
        return
    wrong = data.draw(st.integers(0, len(sequence) - 1))
    numbered = list(enumerate(sequence, start=1))
    del numbered[wrong]
    checkpoint = run(sequence[:wrong])
    clean = fresh(1)
    for number, (reward, size, expected) in numbered:
        clean = update(clean, reward, size=size, expected=expected, at=number)
    for number, (reward, size, expected) in numbered[wrong:]:
        checkpoint = update(checkpoint, reward, size=size, expected=expected, at=number)
    assert checkpoint.tobytes() == clean.tobytes()


@settings(max_examples=30)
@given(st.lists(outcomes, min_size=1, max_size=9))
def test_many_at_once_are_each_alone_to_the_last_bit(sequences) -> None:
    length = min(len(s) for s in sequences)
    together = fresh(len(sequences))
    for number in range(length):
        reward, size, expected = np.array([s[number] for s in sequences]).T
        together = update(together, reward, size=size, expected=expected, at=number + 1)
    for state, sequence in zip(together, sequences, strict=True):
        assert state.tobytes() == run(sequence[:length]).tobytes()


def test_states_stay_as_they_are() -> None:
    states = fresh(1)
    update(states, 1.0, at=1)
    assert (states == fresh(1)).all()


@pytest.mark.parametrize("blob", [b"", pack(fresh(1))[0][:-1], b"\x02" + pack(fresh(1))[0][1:]])
def test_a_state_of_another_release_is_refused(blob: bytes) -> None:
    with pytest.raises(InvalidInputError, match="replay"):
        unpack([blob])


def test_no_states_are_no_bytes() -> None:
    assert unpack(pack(fresh(0))).shape == fresh(0).shape


@pytest.mark.parametrize(
    "wrong",
    [{"reward": 1.1}, {"reward": np.nan}, {"size": -0.1}, {"size": 2.0}, {"expected": 1.5}],
)
def test_what_is_no_outcome_is_refused(wrong) -> None:
    with pytest.raises(InvalidInputError):
        update(fresh(1), **{"reward": 1.0, **wrong}, at=1)


def test_a_threshold_is_needed() -> None:
    with pytest.raises(InvalidInputError):
        drift.thresholds(fresh(1))


# -- how soon, and how rarely


@pytest.mark.parametrize("history", [70, 300, 1_000])
def test_a_drop_is_seen_whatever_the_history(history: int) -> None:
    """From .85 to .2: half of the memories are flagged within 35 retrievals, nearly all within 120."""
    rng = np.random.default_rng(history)
    states, _ = play(rng, [0.85] * history, 200)
    _, first = play(rng, [0.2] * 120, 200, states, low)
    assert np.median(first) <= 35
    assert (first > 0).mean() >= 0.98


@pytest.mark.parametrize(("p", "at_most", "memories"), [(0.5, 0.03, 1_000), (0.6, 0.005, 2_000)])
def test_it_hardly_ever_cries_wolf(p: float, at_most: float, memories: int) -> None:
    """Ever flagged within 1,000 outcomes, of memories that do not change, at two standard errors below the bar."""
    _, first = play(np.random.default_rng(7), [p] * 1_000, memories, flag=low)
    error = (at_most * (1 - at_most) / memories) ** 0.5
    assert (first > 0).mean() <= at_most - 2 * error


@pytest.mark.parametrize(
    ("chances", "base"),
    [
        ([0.85] * 200 + [0.2] * 150, [0.7] * 350),
        ([0.3] * 400, [0.3] * 200 + [0.9] * 200),
        ([0.35] * 300, ([0.3] * 50 + [0.9] * 50) * 3),
        ([0.2] * 20 + [0.35] * 200, [0.3] * 100 + [0.95] * 120),
    ],
)
def test_no_memory_is_flagged_at_a_success(chances: list[float], base: list[float]) -> None:
    """So only failures need be looked at, see `ledger.regimes`; also where the base rate jumps, and the threshold with it."""
    rng = np.random.default_rng(12)
    states, before, flagged = fresh(100), np.zeros(100, bool), 0
    for number, (p, expected) in enumerate(zip(chances, base, strict=True), start=1):
        success = rng.random(100) < p
        states = update(states, success, at=number, expected=expected)
        now = declined(states, theta=0.4, margin=0.2)
        assert not (now & ~before & success).any()
        flagged += int((now & ~before).sum())
        before = now
    assert flagged > 0


def test_other_traffic_is_no_decline() -> None:
    """Easy 90% turns to hard 90%, for 500 outcomes each: at most 2% of 800 memories are ever called stale."""
    share = alarms(Judge("", contexts=True, margin=0.15), 8, 800, 500)
    assert share <= 0.02 - (0.02 * 0.98 / 800) ** 0.5


def test_a_decline_under_other_traffic_is_seen() -> None:
    """The same shift, but the memories also lose .3 in each context."""
    assert alarms(Judge("", contexts=True, margin=0.15), 9, 100, 300, loss=0.3) >= 0.9
