"""Experiment 2, reduced: the identity, the ranks, and the two signs."""

from __future__ import annotations

import numpy as np
import pytest

from langchain_memoryworth.experiments.difficulty import (
    DEFAULT,
    FRACTIONS,
    HARD,
    MIXES,
    SLOPES,
    average,
    describe,
    draw,
    hard_only,
    play,
    simulate,
    strata,
)
from langchain_memoryworth.experiments.simulator import checkpoints, spearman

SEEDS = 20


@pytest.fixture(scope="module")
def rho() -> np.ndarray:
    """Final (global, hard-only) correlation of the default cell, shape (20, 2)."""
    rows = []
    for seed in range(SEEDS):
        draws = draw(seed, 10_000)
        everything, _, hard = strata(play(draws, *DEFAULT), np.array([10_000]))
        rows.append(
            (spearman(everything.worth, draws.utility)[0], hard_only(hard, draws.utility)[0])
        )
    return np.array(rows)


def test_the_default_cell_reproduces_both_published_numbers(rho):
    # A rank correlation of 100 memories has a standard deviation of about 1/sqrt(99) = .10 over
    # seeds, a mean of 20 seeds .0225: four of them.
    assert rho.mean(axis=0) == pytest.approx([-0.33, 0.14], abs=0.09)
    # And the signs are not luck: over ten standard errors apart.
    assert rho[:, 0].mean() < 0 < rho[:, 1].mean()


@pytest.fixture(scope="module")
def counters():
    draws = draw(3, 2000)
    return draws, strata(play(draws, *DEFAULT), checkpoints(2000))


def test_the_evidence_weighted_average_is_the_global_worth(counters):
    _, (everything, easy, hard) = counters
    # As integers, exactly; as floats, up to their rounding.
    assert np.array_equal(easy.positive + hard.positive, everything.positive)
    assert np.array_equal(easy.negative + hard.negative, everything.negative)
    assert np.abs(average(easy, hard) - everything.worth).max() < 1e-12


def test_subtracting_a_constant_within_the_stratum_changes_no_rank(counters):
    draws, (_, _, hard) = counters
    plain = hard_only(hard, draws.utility)
    assert np.array_equal(hard_only(hard, draws.utility, hard.worth - HARD), plain)


def test_easy_tasks_show_generalists_only_and_4_plus_4_is_kept():
    draws = draw(0, 500)
    shown, _, hard = play(draws, 0.7, "4+4", 0.15)
    assert shown[~hard].max() < 70
    assert ((shown[hard] >= 70).sum(axis=1) == 4).all()


def test_success_follows_the_base_rates():
    draws = draw(1, 20_000)
    _shown, success, hard = play(draws, 0.5, "uniform", 0.0)
    # Slope 0: a Bernoulli share in each stratum, five standard errors of about 10,000 episodes.
    for mask, base in ((~hard, 0.78), (hard, 0.28)):
        error = np.sqrt(base * (1 - base) / mask.sum())
        assert abs(success[mask].mean() - base) < 5 * error


def test_memories_without_hard_evidence_are_left_out():
    draws = draw(0, 40)
    _, _, hard = strata(play(draws, 0.0, "4+4", 0.15), np.array([40]))
    assert hard_only(hard, draws.utility).tolist() == [0.0]


def test_the_section_shows_the_whole_grid_and_says_what_is_open():
    runs = [simulate(seed, 300) for seed in (0, 1)]
    results = {name: np.array([r[name] for r in runs], dtype=float) for name in runs[0]}
    assert results["grid"].shape == (2, len(FRACTIONS), len(MIXES), len(SLOPES), 2)
    # The default cell is one of the grid, computed another way.
    f, m, s = FRACTIONS.index(0.7), MIXES.index("4+4"), SLOPES.index(0.15)
    assert results["grid"][:, f, m, s, 0] == pytest.approx(results["rho_global"][:, -1])
    section = describe(results, 300)
    assert len(section.tables[0].rows) == len(FRACTIONS) * len(MIXES)
    assert "cannot change a rank" in section.notes[2]
