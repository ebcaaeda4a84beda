"""Experiment 4, reduced: limits, the memory that is never seen, and the linear separation."""

from __future__ import annotations

import numpy as np
import pytest

from langchain_memoryworth.experiments.companions import (
    ANCHOR,
    HITCHHIKER,
    INDEPENDENCE,
    describe,
    limits,
    play,
    separation_error,
    simulate,
)

EPISODES = 4000
SEEDS = 4


@pytest.fixture(scope="module")
def results() -> dict[str, np.ndarray]:
    runs = [simulate(seed, EPISODES) for seed in range(SEEDS)]
    return {name: np.array([r[name] for r in runs], dtype=float) for name in runs[0]}


def test_limits_are_the_papers_theory():
    assert limits(0.0) == pytest.approx((0.49375, 0.49375))
    anchors = [limits(f)[ANCHOR] for f in (0.1, 0.3, 1.0)]
    assert anchors == pytest.approx([0.4994, 0.5106, 0.55], abs=5e-5)


def test_worth_converges_to_the_limit_of_its_own_pool(results):
    # A share of n outcomes near one half: five standard errors, .5/sqrt(n).
    last = results["worth"][..., -1]
    count = np.maximum(results["retrievals"], 1)
    seen = results["retrievals"] > 0
    z = (last - results["limit"]) / (0.5 / np.sqrt(count))
    assert np.abs(z[seen]).max() < 5


def test_without_independence_the_two_are_the_same_number(results):
    together = results["worth"][:, INDEPENDENCE.index(0.0)]
    assert np.array_equal(together[:, ANCHOR], together[:, HITCHHIKER])


def test_a_memory_that_is_never_retrieved_is_worth_one_half(results):
    alone = INDEPENDENCE.index(1.0)
    assert (results["retrievals"][:, alone, HITCHHIKER] == 0).all()
    assert (results["worth"][:, alone, HITCHHIKER] == 0.5).all()


def test_separation_is_linear_in_independence(results):
    last = results["worth"][..., -1]
    for fraction in (0.1, 0.3):
        gap = last[:, INDEPENDENCE.index(fraction)]
        gap = (gap[:, ANCHOR] - gap[:, HITCHHIKER]).mean()
        # f (p_alone - p_together) with the pools' own means, which differ by (U - .05)/8; their
        # spread over seeds is .03/8. Five standard errors of the mean of the seeds.
        expected = fraction * (limits(1.0)[ANCHOR] - limits(0.0)[ANCHOR])
        error = np.hypot(separation_error(fraction, EPISODES), fraction * 0.03 / 8) / np.sqrt(SEEDS)
        assert gap == pytest.approx(expected, abs=5 * error)


def test_every_set_has_the_anchor_and_eight_distinct_memories():
    shown, _ = play(np.random.default_rng(0), np.full(100, 0.5), 300)
    for fraction, sets in shown.items():
        assert (sets[:, 0] == ANCHOR).all()
        assert all(len(set(row)) == 8 for row in sets.tolist())
        share = (sets == HITCHHIKER).any(axis=1).mean()
        # Five standard errors of a share of 300; exact at 0 and 1.
        assert abs(share - (1 - fraction)) <= 5 * np.sqrt(fraction * (1 - fraction) / 300)


def test_the_section_calls_the_contradiction_by_name(results):
    section = describe(results, EPISODES)
    never = section.comparisons[-1]
    assert (never.published.value, never.mean, never.within) == (0.0, 0.5, False)
    assert "contradicts Definition 3.1" in section.notes[0]
