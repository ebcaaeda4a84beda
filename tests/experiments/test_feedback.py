"""Experiment 3, reduced: the draw, the counters of the loop, and the collapse."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from langchain_memoryworth.estimators.credit import Shown, settle
from langchain_memoryworth.experiments.feedback import (
    CELLS,
    choose,
    describe,
    play,
    simulate,
)


def test_the_draw_follows_the_softmax_with_its_floor():
    rng = np.random.default_rng(5)
    ratio = np.array([[0.2, 0.5, 0.9, 0.5]])
    factor, floor, draws = np.array([[3.0]]), np.array([[0.1]]), 20_000
    soft = np.exp(3.0 * ratio[0])
    expected = 0.9 * soft / soft.sum() + 0.1 / 4
    first = [
        int(choose(ratio, rng.exponential(size=4), factor, floor, k=1)[0, 0]) for _ in range(draws)
    ]
    share = np.bincount(first, minlength=4) / draws
    # Five standard errors of a multinomial share.
    assert (np.abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / draws)).all()


def test_pairs_are_drawn_without_replacement_in_proportion():
    rng = np.random.default_rng(6)
    ratio, factor, draws = np.array([[0.0, 1.0, 1.0]]), np.array([[np.log(2.0)]]), 20_000
    p = np.array([0.2, 0.4, 0.4])
    # P(pair = {1, 2}) = p1 p2/(1-p1) + p2 p1/(1-p2), one after the other.
    expected = 2 * p[1] * p[2] / (1 - p[1])
    pairs = [
        choose(ratio, rng.exponential(size=3), factor, np.zeros((1, 1)), k=2)[0]
        for _ in range(draws)
    ]
    share = np.mean([list(pair) == [1, 2] for pair in pairs])
    assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / draws)


def test_the_loop_keeps_the_counters_that_settling_gives():
    utility = np.random.default_rng(0).random(30)
    cells = ((0.0, 0.0), (10.0, 0.05))
    played = play(np.random.default_rng(1), utility, cells, 620)  # more than one block
    for cell in range(len(cells)):
        positive = [0] * 30
        for ids, success in zip(played.shown[cell], played.success[cell], strict=True):
            shown = [Shown(str(m), rank, None, timedelta(0)) for rank, m in enumerate(ids)]
            for memory, credit in zip(ids, settle(shown, float(success)), strict=True):
                positive[memory] += credit.evidence.positive
        assert played.positive[cell].tolist() == positive
        assert (np.diff(played.shown[cell], axis=1) > 0).all()


def test_a_steep_loop_starves_memories_and_the_floor_feeds_them():
    utility = np.random.default_rng(2).random(100)
    cells = ((0.0, 0.0), (30.0, 0.0), (30.0, 0.10))
    played = play(np.random.default_rng(3), utility, cells, 3000)
    least = [np.bincount(shown.ravel(), minlength=100).min() for shown in played.shown]
    # Uniform: 240 retrievals each, standard deviation 15; the least of 100 is above 240 - 5 * 15.
    assert least[0] > 165
    # exp(30 MW), no floor: a memory that failed first has MW 0, its probability is below exp(-30 * .5)
    # of the others', and 24,000 draws do not find it again.
    assert least[1] <= 2
    # The floor gives at least k draws of .10/N each: 3000 * 8 * .001 = 24 expected, at least 24 -
    # 5 * sqrt(24) < 0 is no bound, so ask for what a Poisson of mean 24 exceeds with 1 - 1e-6: 5.
    assert least[2] > 5
    # What is steered towards is better: the mean success of uniform is known to .5/sqrt(3000).
    error = 0.5 / np.sqrt(3000)
    assert played.success[1].mean() > played.success[0].mean() + 5 * error


@pytest.fixture(scope="module")
def results() -> dict[str, np.ndarray]:
    runs = [simulate(seed, 1000) for seed in (0, 1)]
    return {name: np.array([r[name] for r in runs], dtype=float) for name in runs[0]}


def test_the_published_regime_is_nearly_uniform(results):
    # exp(MW/3) weighs two memories .3 apart by exp(.1): the correlation moves by less than the
    # spread of two independent runs, sqrt(2) * (1 - .53**2)/sqrt(100) = .10 each.
    last = results["rho"][:, :, -1].mean(axis=0)
    assert abs(last[1] - last[0]) < 3 * 0.10


def test_the_section_has_every_policy(results):
    section = describe(results, 1000)
    assert len(section.tables[0].rows) == len(CELLS)
    assert [p.title for p in section.figures[0].panels] == [
        "As published",
        "Where the loop collapses",
    ]
