"""Cause from hold-outs: right in the world where worth cannot be, and silent where nothing varied."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.governance.calibration import trial
from benchmarks.governance.strata import within
from benchmarks.governance.trials import LIMITS, pair_lifts
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.lift import (
    Arm,
    Lift,
    arm,
    calibrated,
    lift,
    retrievals_needed,
    total,
)
from langchain_memoryworth.experiments.simulator import spearman

SEEDS = 400

exposures = st.lists(
    st.tuples(st.booleans(), st.floats(0.05, 0.95), st.floats(0, 1)), min_size=1, max_size=30
)


def sums(rows, held_out):
    """One arm of one context from (held out, propensity of the hold-out, reward)."""
    chosen = [(r, p if h else 1 - p) for h, p, r in rows if h == held_out]
    rewards, propensities = (np.array([c[i] for c in chosen]) for i in (0, 1))
    return Arm(*(np.atleast_1d(part) for part in total(arm(rewards, propensities))))


@given(exposures, st.randoms(use_true_random=False))
def test_the_order_of_the_episodes_does_not_matter(rows, random):
    mixed = list(rows)
    random.shuffle(mixed)
    first, second = (lift(sums(r, False), sums(r, True)) for r in (rows, mixed))
    assert np.array(second) == pytest.approx(np.array(first), nan_ok=True, abs=1e-9)


@given(exposures)
def test_it_is_identifiable_only_with_both_arms_and_then_bounded(rows):
    found = lift(sums(rows, False), sums(rows, True))
    assert bool(found.identifiable) == (len({h for h, _, _ in rows}) == 2)
    if found.identifiable:
        assert -1 <= found.low <= found.value <= found.high <= 1
    else:
        assert np.isnan(found.value)
        assert (found.low, found.high, found.size) == (-1, 1, 0)


@given(exposures, exposures)
def test_arms_add_up(first, second):
    parts = zip(sums(first, True), sums(second, True), strict=True)
    whole = sums([*first, *second], True)
    assert [float((a + b)[0]) for a, b in parts] == pytest.approx([float(w[0]) for w in whole])


def test_a_context_with_one_arm_lends_nothing_to_the_difference():
    easy_only_shown = Arm(*(np.array([[20.0, 500.0]]),) * 2, np.array([[10.0, 500.0]]))
    held = Arm(*(np.array([[20.0, 0.0]]),) * 2, np.array([[10.0, 0.0]]))
    found = lift(easy_only_shown, held)
    assert found.value.tolist() == [0.0]
    assert found.size.tolist() == [40.0]


def test_unequal_propensities_are_weighed_out():
    # Hard tasks are held out nine times of ten, easy ones one time of ten; the memory adds .2 to both.
    rng = np.random.default_rng(5)
    hard = rng.random(40_000) < 0.5
    share = np.where(hard, 0.9, 0.1)
    held = rng.random(40_000) < share
    reward = (rng.random(40_000) < np.where(hard, 0.2, 0.6) + 0.2 * ~held).astype(float)
    rows = list(zip(held.tolist(), share.tolist(), reward.tolist(), strict=True))
    found = lift(sums(rows, False), sums(rows, True))
    assert found.value == pytest.approx(0.2, abs=4 * float(found.deviation))
    naive = reward[~held].mean() - reward[held].mean()
    assert naive > 0.4


def test_the_interval_covers_what_it_says():
    rng = np.random.default_rng(11)
    shown, held = rng.binomial(180, 0.75, size=2_000), rng.binomial(20, 0.65, size=2_000)
    found = lift(
        Arm(*(np.full((2_000, 1), 180.0),) * 2, shown[:, None].astype(float)),
        Arm(*(np.full((2_000, 1), 20.0),) * 2, held[:, None].astype(float)),
        level=0.9,
    )
    covered = ((found.low <= 0.1) & (found.high >= 0.1)).mean()
    # Four standard errors of a share of .9 in 2,000 trials are .027.
    assert 0.873 <= covered <= 0.95


@pytest.mark.parametrize(("episodes", "share", "bar"), [(2_000, 0.1, 0.97), (500, 0.5, 0.94)])
def test_hold_outs_tell_the_hitchhiker_from_its_anchor(episodes, share, bar):
    found = [pair_lifts(seed, episodes, share) for seed in range(SEEDS)]
    values = np.array([f.value for f in found])
    assert (values[:, 0] > values[:, 1]).mean() >= bar
    error = values.std(axis=0) / SEEDS**0.5
    assert (np.abs(values.mean(axis=0) - LIMITS) <= 2 * error).all()


def test_the_planner_promises_what_the_trial_gives():
    needed = retrievals_needed(0.1, base_rate=0.5, share=0.3)
    rng = np.random.default_rng(2)
    held = rng.binomial(needed, 0.3, size=4_000)
    shown_wins, held_wins = rng.binomial(needed - held, 0.55), rng.binomial(held, 0.45)
    found = lift(
        Arm(*((needed - held[:, None]).astype(float),) * 2, shown_wins[:, None].astype(float)),
        Arm(*(held[:, None].astype(float),) * 2, held_wins[:, None].astype(float)),
        level=0.95,
    )
    assert (found.low > 0).mean() == pytest.approx(0.8, abs=0.03)


def trial_of(pool):
    value = 0.5 * (pool - 0.5)
    return Lift(value, value - 0.2, value + 0.2, np.full(len(pool), 0.1), np.full(len(pool), 25.0))


def test_calibration_foretells_a_memory_that_was_never_held_out():
    pool = np.linspace(0.2, 0.8, 21)
    found = trial_of(pool)
    unknown = found._replace(
        size=np.append(found.size[:-1], 0.0), value=np.append(found.value[:-1], np.nan)
    )
    assert calibrated(unknown, pool, np.full(21, 9.0), share=0.1)[-1] == pytest.approx(0.15)


def test_calibration_gets_back_what_labels_that_err_have_undone():
    rows = []
    for seed in range(3):
        log, found, retrieved = trial(seed, 10_000, 0.05, 0.85)
        worth = within(log, log.context)
        estimates = worth, found.value, calibrated(found, worth, retrieved, share=0.05)
        rows.append([float(spearman(e, log.utility)) for e in estimates])
    worth, alone, ours = np.mean(rows, axis=0)
    assert ours >= 0.8
    assert ours > alone + 0.2 > worth


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: arm([1.0], 0.0), "propensit"),
        (lambda: arm([2.0], 0.5), "reward"),
        (lambda: retrievals_needed(0.0, base_rate=0.5, share=0.1), "difference"),
        (lambda: retrievals_needed(0.1, base_rate=0.5, share=1.0), "share"),
        (
            lambda: calibrated(
                trial_of(np.linspace(0, 1, 20)), np.ones(20), np.ones(20), share=0.02
            ),
            "2%",
        ),
        (
            lambda: calibrated(trial_of(np.linspace(0, 1, 9)), np.ones(9), np.ones(9), share=0.1),
            "ten",
        ),
    ],
)
def test_what_cannot_be_answered_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
