"""How often a habitual pair must be broken before an estimator orders it: Experiment 4 with other gaps and episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.governance.pools import Log, batch_effects, memory_worth, online_effects
from langchain_memoryworth.estimators.hitchhikers import diversity_needed
from langchain_memoryworth.experiments.simulator import POOL, K, draw_outcomes, draw_sets

SHARES = (0.01, 0.02, 0.05, 0.10, 0.30)
GAPS = (0.45, 0.225)
EPISODES = (2_000, 10_000)
ORDERED = 0.95

Floats = NDArray[np.float64]
ESTIMATORS: dict[str, Callable[[Log], Floats]] = {
    "worth": memory_worth,
    "online effects": online_effects,
    "ridge": lambda log: batch_effects(log).effect,
}


class Cell(NamedTuple):
    """How often one estimator ordered the pair."""

    estimator: str
    gap: float
    episodes: int
    share: float
    ordered: float
    needed: float


def pair_pool(seed: int, episodes: int, share: float, gap: float) -> Log:
    """An anchor of utility .9 in every episode, beside it a memory `gap` below the mean, but for a share of them."""
    rng = np.random.default_rng(seed)
    utility = np.append([0.9, 0.5 - gap], rng.random(POOL - 2))
    shown = np.empty((episodes, K), dtype=np.int64)
    shown[:, 0] = 0
    shown[:, 1:] = rng.permuted(draw_sets(rng, episodes, POOL - 2, K - 1) + 2, axis=1)
    shown[rng.random(episodes) >= share, 1] = 1
    success = draw_outcomes(rng, utility[shown].mean(axis=1))
    return Log(shown, success, np.zeros(episodes, dtype=np.int64), utility)


def cells(seeds: int, episodes: tuple[int, ...] = EPISODES) -> Iterator[Cell]:
    """All combinations, one at a time."""
    for gap in GAPS:
        for count in episodes:
            needed = diversity_needed(gap, count, k=K)
            for share in SHARES:
                logs = [pair_pool(seed, count, share, gap) for seed in range(seeds)]
                for name, estimate in ESTIMATORS.items():
                    values = [estimate(log)[:2] for log in logs]
                    ordered = float(np.mean([anchor > rider for anchor, rider in values]))
                    yield Cell(name, gap, count, share, ordered, needed)
