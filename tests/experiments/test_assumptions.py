"""Theorem 4.1 with a derived tolerance, and what happens without A2, A5 and A6."""

from __future__ import annotations

import numpy as np
import pytest

from langchain_memoryworth.experiments.assumptions import (
    BLIND,
    BLOCKS,
    CHANCE,
    FOLLOWS,
    checkpoints,
    convergence,
    describe,
    fading,
    simulate,
    standard_error,
)
from langchain_memoryworth.experiments.simulator import (
    accumulate,
    draw_sets,
    proportional_credits,
)

EPISODES = 4000


def test_theorem_4_1_within_the_derived_standard_error():
    """MW of every memory is within five standard errors of p+, and the errors have that size."""
    seeds = 4
    zs = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        error, expected = convergence(rng, EPISODES, np.array([EPISODES]))
        zs.append(error[-1] / expected[-1])
    z = np.array(zs)
    # 400 values beyond 5 by chance: 400 * 5.7e-7. The random denominator is given with the weights.
    assert np.abs(z).max() < 5
    # E[z**2] = 1. Two memories share the share (k-1)/(N-1) = .07 of their episodes, which is the
    # correlation r of their errors: Var(mean z**2) = 2/N (1 + (N-1) r**2) = .03 per seed, so .086
    # is the standard deviation for the mean of four: four of those.
    assert (z**2).mean() == pytest.approx(1.0, abs=4 * 0.086)


def test_standard_error_of_a_ratio_of_weighted_sums():
    # By direct simulation: fixed unequal weights, 20,000 repetitions; the standard deviation of a
    # standard deviation is sigma/sqrt(2 n) = .5 percent: five of them.
    rng = np.random.default_rng(8)
    weights = rng.uniform(0.05, 1.0, 40)
    outcomes = rng.random((20_000, 40)) < 0.3
    ratio = outcomes @ weights / weights.sum()
    expected = standard_error(0.3, weights.sum(), (weights**2).sum())
    assert ratio.std() == pytest.approx(float(expected), rel=0.025)


@pytest.fixture(scope="module")
def results() -> dict[str, np.ndarray]:
    runs = [simulate(seed, EPISODES) for seed in (0, 1)]
    return {name: np.array([r[name] for r in runs], dtype=float) for name in runs[0]}


def test_without_exploration_a_memory_keeps_its_first_outcomes(results):
    constant, harmonic, finite = results["a2"][:, :, -1].mean(axis=0)
    # .08 T = 320 retrievals: sqrt(.21/320) = .0256; the RMS over 400 memories is known to 3.5%.
    assert constant == pytest.approx(np.sqrt(0.21 / (0.08 * EPISODES)), rel=0.18)
    # sum 1/t = 8.9 and sum 1/t**2 = 1.645 retrievals: each a sum of independent draws, of variance
    # at most its mean; five standard errors over 400 memories.
    counts = results["a2_retrievals"].mean(axis=0)
    assert counts[1] == pytest.approx(8.87, abs=5 * np.sqrt(8.87 / 400))
    assert counts[2] == pytest.approx(np.pi**2 / 6, abs=5 * np.sqrt(1.645 / 400))
    # Everybody is retrieved at t = 1 and E[1/n] >= 1/E[n]: the error cannot fall below this.
    assert finite > 0.9 * np.sqrt(0.21 / (np.pi**2 / 6))
    assert constant < harmonic < finite


def test_without_a_floor_the_first_outcomes_decide_for_ever(results):
    measured = results["a5"][:, :, -1].mean(axis=0)
    # The RMS over 400 memories is known to 1/sqrt(800) = 3.5 percent: five of them.
    assert measured == pytest.approx(results["a5_expected"].mean(axis=0), rel=0.18)
    # With w_t = (1/t**2)/(1 + 1/t**2): sum w = 1.077, sum w**2 = .307 for any T.
    limit = np.sqrt(CHANCE * (1 - CHANCE) * 0.307) / 1.077
    assert results["a5_expected"][:, 0] == pytest.approx(limit, rel=0.01)


def test_the_floor_of_the_product_is_what_a5_asks_for():
    assert fading(200, 0.01).weight.min() >= 0.01 * 2**32 - 1
    assert fading(200, 0.0).weight.min() < 1e-4 * 2**32


def test_alternating_base_rates(results):
    blind, follows, _ = results["a6"][:, :, -1].mean(axis=0)
    # 200 memories, two seeds, .08 T = 320 retrievals each: .5/sqrt(128,000) = .0014; outcomes are
    # drawn per memory, so these are independent.
    assert blind == pytest.approx(BLIND, abs=5 * 0.0014)
    assert follows == pytest.approx(FOLLOWS, abs=5 * 0.0014)


def test_ever_longer_blocks_keep_the_worth_swinging(results):
    # Doubling blocks end at 2047 (easy block from 1024) and 4095: between checkpoints near both the
    # worth has moved by a good part of the distance of the bounds.
    swing = results["a6"][:, 2, -15:].mean(axis=0)
    assert swing.max() - swing.min() > 0.5 * (BLOCKS[1] - BLOCKS[0])
    assert BLOCKS[0] - 0.01 < swing.min() < swing.max() < BLOCKS[1] + 0.01


def test_similarity_weights_that_know_the_outcome_break_the_theorem():
    """The counterpart of the first test: weights normalised over a set that decides the outcome."""
    rng = np.random.default_rng(0)
    utility = rng.random(100)
    shown = draw_sets(rng, EPISODES, 100, 8)
    success = utility[shown].mean(axis=1) > 0.5
    credit = proportional_credits(utility[shown])
    counters = accumulate(shown, success, credit, np.array([EPISODES]))
    share = [success[(shown == m).any(axis=1)].mean() for m in range(100)]
    # Every failure has a smaller sum of similarities, hence a larger weight: below the plain share.
    assert (counters.worth[-1] < share).mean() > 0.95


def test_checkpoints_are_ascending_and_end_at_t():
    for episodes in (1, 20, 21, 4000):
        ends = checkpoints(episodes)
        assert ends[-1] == episodes
        assert (np.diff(ends) > 0).all()


def test_the_section_has_a_panel_for_each_assumption(results):
    section = describe(results, EPISODES)
    titles = [panel.title for panel in section.figures[0].panels]
    assert [title.split(":")[0] for title in titles] == ["Theorem 4.1", "A2", "A5", "A6"]
