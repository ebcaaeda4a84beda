"""Calibrated worth where contexts are known only in part: Experiment 2 at slope 1 with hold-outs and labels that err."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.governance.pools import Log, batch_effects
from benchmarks.governance.strata import within
from langchain_memoryworth.estimators.lift import Arm, Lift, calibrated, lift
from langchain_memoryworth.experiments.difficulty import (
    EASY,
    GENERALISTS,
    HARD,
    SPECIALIST_UTILITY,
)
from langchain_memoryworth.experiments.simulator import POOL, K, draw_sets, spearman

CELLS = ((0.05, 0.85), (0.10, 0.85), (0.05, 1.0))
"""Shares held out, and how often a context's label is right."""

Floats = NDArray[np.float64]


class Trial(NamedTuple):
    """What the ledger knows after a trial, and the lifts in it.

    Attributes:
        log: What was shown, with the contexts as they were labelled.
        found: Lift of each memory within those contexts, arrays of shape (n,).
        retrieved: How often each was retrieved, shape (n,).
    """

    log: Log
    found: Lift
    retrieved: Floats


def trial(seed: int, episodes: int, share: float, purity: float) -> Trial:
    """Half of the tasks hard, uniform mixing; every retrieved memory is held out by its own coin.

    Args:
        seed: Of all draws.
        episodes: T.
        share: Probability of a hold-out, in (0, 1).
        purity: Probability that the context is labelled rightly.
    """
    rng = np.random.default_rng(seed)
    special = np.full(POOL - GENERALISTS, SPECIALIST_UTILITY)
    utility = np.append(rng.random(GENERALISTS), special)
    hard = rng.random(episodes) < 0.5
    pools = (draw_sets(rng, episodes, size, 2 * K) for size in (POOL, GENERALISTS))
    candidates = rng.permuted(np.where(hard[:, None], *pools), axis=1)
    retrieved, spare = candidates[:, :K], candidates[:, K:]
    held = rng.random(retrieved.shape) < share
    shown = np.where(held, spare, retrieved)
    chance = np.where(hard, HARD, EASY) + utility[shown].mean(axis=1) - 0.5
    success = rng.random(episodes) < chance
    label = np.where(rng.random(episodes) < purity, hard, ~hard).astype(np.int64)
    found = lift(
        _arm(retrieved, ~held, label, success, 1 - share),
        _arm(retrieved, held, label, success, share),
    )
    counts = np.bincount(retrieved.ravel(), minlength=POOL).astype(np.float64)
    return Trial(Log(shown, success, label, utility), found, counts)


def correlations(seeds: int, episodes: int) -> list[dict[str, float]]:
    """Mean rank correlations with the utilities in every cell."""
    return [_cell(seeds, episodes, share, purity) for share, purity in CELLS]


def _cell(seeds: int, episodes: int, share: float, purity: float) -> dict[str, float]:
    rows = []
    for seed in range(seeds):
        log, found, retrieved = trial(seed, episodes, share, purity)
        worth = within(log, log.context)
        estimates = (
            worth,
            batch_effects(log).effect,
            np.where(found.identifiable, found.value, 0.0),
            calibrated(found, worth, retrieved, share=share),
        )
        rows.append([float(spearman(e, log.utility)) for e in estimates])
    names = ("worth within contexts", "ridge", "lift alone", "calibrated worth")
    means = dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))
    return {"share": share, "purity": purity, **means}


def _arm(
    retrieved: NDArray[np.int64],
    chosen: NDArray[np.bool_],
    label: NDArray[np.int64],
    success: NDArray[np.bool_],
    propensity: float,
) -> Arm:
    """Sums of one arm, each of shape (n, 2)."""
    place = (retrieved[chosen], np.repeat(label, K).reshape(retrieved.shape)[chosen])
    reward = np.repeat(success, K).reshape(retrieved.shape)[chosen]
    weight, hits = np.zeros((POOL, 2)), np.zeros((POOL, 2))
    np.add.at(weight, place, 1 / propensity)
    np.add.at(hits, place, reward / propensity)
    return Arm(weight, weight / propensity, hits)
