"""Hold-outs in the world of Experiment 4: an anchor and a hitchhiker that are never retrieved apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.governance.pools import Log
from langchain_memoryworth.estimators.lift import Arm, Lift, arm, lift, total
from langchain_memoryworth.experiments.companions import UTILITIES
from langchain_memoryworth.experiments.simulator import POOL, K, draw_outcomes, draw_sets

LIMITS = tuple((utility - 0.5) / K for utility in UTILITIES)
"""The lifts of anchor and hitchhiker when a memory of mean utility takes their place: +.050 and -.056."""


def pair_trial(
    seed: int, episodes: int, rate: float, utilities: Sequence[float] = UTILITIES
) -> tuple[Log, NDArray[np.bool_]]:
    """Retrieve the pair in every episode, hold each of the two out by its own coin, show the next one instead.

    Args:
        seed: Of all draws.
        episodes: T.
        rate: Probability with which each of the two is held out, in (0, 1).
        utilities: Of the two.

    Returns:
        The log, and who was held out, bool of shape (T, 2).
    """
    rng = np.random.default_rng(seed)
    utility = np.append(utilities, rng.random(POOL - 2))
    others = rng.permuted(draw_sets(rng, episodes, POOL - 2, K) + 2, axis=1)
    held = rng.random((episodes, 2)) < rate
    pair = np.where(held, others[:, :2], np.arange(2))
    shown = np.hstack([pair, others[:, 2:]])
    success = draw_outcomes(rng, utility[shown].mean(axis=1))
    return Log(shown, success, np.zeros(episodes, dtype=np.int64), utility), held


def lifts_of(log: Log, held: NDArray[np.bool_], rate: float) -> Lift:
    """The lifts of the two, arrays of shape (2,)."""
    success = log.success.astype(np.float64)
    return lift(_arms(success, ~held, 1 - rate), _arms(success, held, rate))


def pair_lifts(seed: int, episodes: int, share: float) -> Lift:
    """The lifts of anchor and hitchhiker in `pair_trial`."""
    return lifts_of(*pair_trial(seed, episodes, share), share)


def _arms(success: NDArray[np.float64], chosen: NDArray[np.bool_], propensity: float) -> Arm:
    """Sums of one arm for both memories, with one context, shape (2, 1)."""
    arms = [total(arm(success[column], propensity)) for column in chosen.T]
    return Arm(*(np.array(parts)[:, None] for parts in zip(*arms, strict=True)))
