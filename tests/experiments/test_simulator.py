"""The vectorised world against the ledger path, which is the oracle of every counter."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from scipy.stats import spearmanr

from langchain_memoryworth.estimators.credit import Shown, settle
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.experiments import simulator
from langchain_memoryworth.experiments.simulator import (
    Counters,
    accumulate,
    checkpoints,
    draw_outcomes,
    draw_sets,
    proportional_credits,
    spearman,
    target_worth,
    uniform_credits,
)

POOL = 12
EPISODES = 400


def ledger(shown, success, scores, rule, w_min, ends, pool):
    """Settle episode by episode, as the store does, and read the counters at the checkpoints."""
    memories = [Evidence() for _ in range(pool)]
    rows = []
    for t, ids in enumerate(shown, start=1):
        exposures = [
            Shown(str(m), rank, float(scores[t - 1, rank]), timedelta(0))
            for rank, m in enumerate(ids)
        ]
        settled = settle(exposures, float(success[t - 1]), rule=rule, w_min=w_min)
        for memory, credit in zip(ids, settled, strict=True):
            memories[memory] = memories[memory] + credit.evidence
        if t in ends:
            rows.append(list(memories))
    return rows


def as_evidence(counters: Counters) -> list[list[Evidence]]:
    fields = (
        counters.positive,
        counters.negative,
        counters.size,
        counters.squared,
        counters.retrievals,
    )
    return [
        [Evidence(*(int(f[p, n]) for f in fields)) for n in range(counters.positive.shape[1])]
        for p in range(len(counters.positive))
    ]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


# k = 3 and 7 are where 1/k has a remainder, k = 1 where the weight is the whole unit.
@pytest.mark.parametrize("k", [1, 3, 7, 8])
def test_uniform_counters_equal_the_ledger_to_the_last_bit(rng, k):
    shown = draw_sets(rng, EPISODES, POOL, k)
    success = draw_outcomes(rng, np.full(EPISODES, 0.6))
    ends = np.array([100, 250, EPISODES])
    counters = accumulate(shown, success, uniform_credits(k), ends, pool=POOL)
    ones = np.ones((EPISODES, k))
    # w_min is the product's, not the simulator's: 1/k is above either.
    assert as_evidence(counters) == ledger(shown, success, ones, "uniform", 0.01, ends, POOL)


@pytest.mark.parametrize("w_min", [0.0, 0.01])
def test_similarity_counters_equal_the_ledger_to_the_last_bit(rng, w_min):
    shown = draw_sets(rng, EPISODES, POOL, 5)
    scores = rng.uniform(-0.2, 1.0, shown.shape)  # negative similarities count as 0
    success = draw_outcomes(rng, np.full(EPISODES, 0.6))
    ends = np.array([1, 33, EPISODES])
    credit = proportional_credits(scores, w_min=w_min)
    counters = accumulate(shown, success, credit, ends, pool=POOL)
    expected = ledger(shown, success, scores, "similarity", w_min, ends, POOL)
    assert as_evidence(counters) == expected


def test_estimates_equal_those_of_evidence(rng):
    shown = draw_sets(rng, EPISODES, POOL, 5)
    success = draw_outcomes(rng, np.full(EPISODES, 0.6))
    credit = proportional_credits(rng.random(shown.shape))
    counters = accumulate(shown, success, credit, np.array([EPISODES]), pool=POOL)
    memories = as_evidence(counters)[0]
    assert counters.worth[0].tolist() == [m.worth for m in memories]
    assert counters.volume[0].tolist() == [m.volume for m in memories]
    assert counters.effective_size[0] == pytest.approx([m.effective_size for m in memories])


def test_the_weights_of_all_episodes_sum_to_the_number_of_episodes(rng):
    shown = draw_sets(rng, EPISODES, POOL, 3)
    success = rng.random(EPISODES) < 0.5
    counters = accumulate(shown, success, uniform_credits(3), np.array([EPISODES]), pool=POOL)
    assert int((counters.positive + counters.negative).sum()) == EPISODES * UNIT
    assert int(counters.positive.sum()) == int(success.sum()) * UNIT


def test_the_strata_add_up_to_the_whole(rng):
    shown = draw_sets(rng, EPISODES, POOL, 3)
    success, hard = rng.random(EPISODES) < 0.5, rng.random(EPISODES) < 0.3
    ends, credit = checkpoints(EPISODES), uniform_credits(3)
    whole, easy, difficult = (
        accumulate(shown, success, credit.only(mask), ends, pool=POOL)
        for mask in (np.ones_like(hard), ~hard, hard)
    )
    for field in ("positive", "negative", "size", "squared", "retrievals"):
        total = getattr(easy, field) + getattr(difficult, field)
        assert np.array_equal(total, getattr(whole, field))


def test_rows_may_carry_their_own_episode_numbers():
    shown, success = np.array([[0], [0], [1]]), np.array([True, False, True])
    ends = np.array([4, 9])
    when = np.array([2, 7, 9])
    counters = accumulate(shown, success, uniform_credits(1), ends, pool=2, when=when)
    assert counters.retrievals.tolist() == [[1, 0], [2, 1]]


@pytest.mark.parametrize(
    ("episodes", "expected"), [(1000, [500, 1000]), (700, [500, 700]), (3, [3])]
)
def test_checkpoints_are_every_500_and_the_last(episodes, expected):
    assert checkpoints(episodes).tolist() == expected


def test_sets_are_distinct_and_uniform(rng):
    episodes, pool, k = 20_000, 10, 3
    shown = draw_sets(rng, episodes, pool, k)
    assert (np.diff(shown, axis=1) > 0).all()
    # Each memory is in a set with probability k/N: five standard errors of a binomial share.
    error = np.sqrt(0.3 * 0.7 / episodes)
    assert np.abs(np.bincount(shown.ravel()) / episodes - 0.3).max() < 5 * error


def test_outcomes_follow_their_probability(rng):
    # The noise has mean zero and is not clipped at .7 +/- .10: five standard errors of a share.
    success = draw_outcomes(rng, np.full(40_000, 0.7))
    assert abs(success.mean() - 0.7) < 5 * np.sqrt(0.21 / 40_000)
    assert not draw_outcomes(rng, np.full(100, -9.0)).any()
    assert draw_outcomes(rng, np.full(100, 9.0)).all()


def test_spearman_is_scipys_and_zero_for_a_constant(rng):
    truth = np.append(rng.random(20), [0.85] * 10)  # with ties
    estimates = np.round(rng.random((4, 30)), 1)
    expected = [spearmanr(row, truth).statistic for row in estimates]
    assert spearman(estimates, truth) == pytest.approx(expected)
    assert spearman(np.full((2, 30), 0.5), truth).tolist() == [0.0, 0.0]


def test_target_worth_is_the_mean_over_all_sets_with_the_memory():
    from itertools import combinations

    utility = np.array([0.1, 0.4, 0.7, 0.9, 0.2])
    sets = list(combinations(range(5), 3))
    for memory in range(5):
        means = [utility[list(s)].mean() for s in sets if memory in s]
        assert target_worth(utility, 3)[memory] == pytest.approx(np.mean(means))


def test_proxies_correlate_with_utility_as_stated(rng):
    n = 20_000
    utility = rng.random(n)
    proxies = simulator.proxies(utility, rng.random(n), rng.standard_normal(n))
    # Standard error of a correlation: (1 - r**2)/sqrt(n) = .004. Clipping costs up to .02.
    assert np.corrcoef(utility, proxies["similarity"])[0, 1] == pytest.approx(0.65, abs=0.02)
    for similarity in proxies.values():
        assert (similarity > 0).all()
        assert np.corrcoef(utility, similarity)[0, 1] == pytest.approx(0.65, abs=0.04)
