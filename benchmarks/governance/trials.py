"""Hold-outs in the world of Experiment 4: an anchor and a hitchhiker that are never retrieved apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.estimators.lift import Arm, Lift, arm, lift, total
from langchain_memoryworth.experiments.companions import UTILITIES
from langchain_memoryworth.experiments.simulator import POOL, K, draw_outcomes, draw_sets

LIMITS = tuple((utility - 0.5) / K for utility in UTILITIES)
"""The lifts of anchor and hitchhiker when a memory of mean utility takes their place: +.050 and -.056."""


def pair_lifts(seed: int, episodes: int, share: float) -> Lift:
    """Retrieve the pair in every episode, hold each of the two out by its own coin, show the next one instead.

    Args:
        seed: Of all draws.
        episodes: T.
        share: Probability of a hold-out, in (0, 1).

    Returns:
        The lifts of anchor and hitchhiker, arrays of shape (2,).
    """
    rng = np.random.default_rng(seed)
    utility = np.append(UTILITIES, rng.random(POOL - 2))
    others = rng.permuted(draw_sets(rng, episodes, POOL - 2, K) + 2, axis=1)
    held = rng.random((episodes, 2)) < share
    pair = np.where(held, others[:, :2], np.arange(2))
    shown = np.hstack([pair, others[:, 2:]])
    success = draw_outcomes(rng, utility[shown].mean(axis=1)).astype(np.float64)
    return lift(_arms(success, ~held, 1 - share), _arms(success, held, share))


def _arms(success: NDArray[np.float64], chosen: NDArray[np.bool_], propensity: float) -> Arm:
    """Sums of one arm for both memories, with one context, shape (2, 1)."""
    arms = [total(arm(success[column], propensity)) for column in chosen.T]
    return Arm(*(np.array(parts)[:, None] for parts in zip(*arms, strict=True)))
