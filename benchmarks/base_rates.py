"""The base rate of a memory's other episodes, as one formula: the ledger keeps it as sums, see `rates`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.base_rates import STRENGTH
from langchain_memoryworth.estimators.beta import Floats


def base_rate(
    successes: ArrayLike,
    episodes: ArrayLike,
    *,
    own_successes: ArrayLike = 0.0,
    own_episodes: ArrayLike = 0.0,
    parent: ArrayLike = 0.5,
    strength: float = STRENGTH,
) -> Floats:
    """Success rate of a context or namespace without a memory's own episodes, shrunk to that of its parent.

    (S - s + strength * parent) / (N - n + strength). Without its own, because a memory that is in most episodes would
    else be compared with itself. All counts under the same discount, see `discount` and `HALF_LIFE`. The expectation of
    a memory is the sum over its exposures of size * base rate just before the outcome: a sum like its counters.

    Args:
        successes: S, rewards of the settled episodes with an exposure there, discounted.
        episodes: N, their number, likewise.
        own_successes: s, those in which the memory was shown.
        own_episodes: n, likewise; at most N but for rounding.
        parent: Base rate one level up (namespace of a context, parent of a namespace), in [0, 1].
        strength: Episodes that the parent counts for, above 0.

    Returns:
        Rates in [0, 1], of the common shape.

    Raises:
        InvalidInputError: If the strength is not above 0.

    References:
        Efron and Morris (1975), Data analysis using Stein's estimator (shrinkage to the parent).

    Examples:
        >>> base_rate(70, 100, own_successes=[0, 70], own_episodes=[0, 100]).round(2).tolist()
        [0.7, 0.5]
    """
    if not strength > 0:
        raise InvalidInputError(f"strength must be above 0, got {strength}", value=strength)
    s, n, own_s, own_n, up = (
        np.asarray(v, dtype=np.float64)
        for v in (successes, episodes, own_successes, own_episodes, parent)
    )
    others = np.maximum(n - own_n, 0.0)
    good = np.clip(s - own_s, 0.0, others)  # discounted sums may be off in the last bits
    return np.asarray((good + strength * up) / (others + strength))
