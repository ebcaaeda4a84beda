"""Low compared with what? The base rate of the same times, thresholds below it, and how much may be hidden at all.

An absolute threshold means nothing where tasks are hard or a service is down: then every memory fails, and hiding them
makes it worse. So a memory is held against what was to be expected of its own episodes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.beta import Floats

HALF_LIFE = 10.0
"""Settled episodes in which the base rate forgets half. It must follow an outage faster than memories collect failures in
it; that it is noisy does no harm, a memory's expectation is an average over its episodes."""
STRENGTH = 2.0
"""Episodes that the parent's rate counts for. More would hold the base rate up in an outage."""
MARGIN = 0.2
"""How far below its expectation a memory must be, in success rate."""
SHARE = 0.2
LEAST = 20


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


def low_threshold(
    theta_low: ArrayLike | None,
    expected: ArrayLike | None = None,
    *,
    margin_low: float | None = MARGIN,
) -> Floats:
    """The success rate below which a memory is LOW: absolute, relative, or the lower one of both.

    A memory that is hidden must be bad in absolute terms and worse than what was to be expected of its episodes.

    Args:
        theta_low: The absolute threshold in [0, 1], or None.
        expected: Mean base rate of the memory's episodes (its expected successes / its evidence size), in [0, 1].
        margin_low: How far below that, in [0, 1]; None: absolute only.

    Returns:
        Thresholds, at least 0 (nothing is below 0), of the common shape.

    Raises:
        InvalidInputError: If nothing is given to compare with.

    Examples:
        >>> low_threshold(0.4, [0.8, 0.5, 0.1]).round(2).tolist()
        [0.4, 0.3, 0.0]
    """
    relative = expected is not None and margin_low is not None
    if theta_low is None and not relative:
        raise InvalidInputError("give theta_low, or an expectation and margin_low")
    limit = np.asarray(1.0 if theta_low is None else theta_low, dtype=np.float64)
    if expected is not None and margin_low is not None:
        limit = np.minimum(limit, np.asarray(expected, dtype=np.float64) - margin_low)
    return np.maximum(limit, 0.0)


def room(total: int, *, share: float = SHARE, least: int = LEAST) -> int:
    """How many memories of a namespace automation may keep suppressed at once.

    Args:
        total: Memories of the namespace that could be served or are suppressed.
        share: In [0, 1]; it always allows one.
        least: Memories below which none may be.

    Raises:
        InvalidInputError: If the share is not in [0, 1].

    Examples:
        >>> room(19), room(20), room(307), room(20, share=0.01)
        (0, 4, 61, 1)
    """
    if not 0 <= share <= 1:
        raise InvalidInputError(f"a share must be in [0, 1], got {share}", value=share)
    # 0.2 * 15 is 3.0000000000000004, but 0.29 * 100 is 28.999999999999996
    return max(1, math.floor(share * total + 1e-9)) if total >= least else 0


def may_suppress(
    certainty: ArrayLike,
    *,
    total: int,
    suppressed: int,
    share: float = SHARE,
    least: int = LEAST,
) -> NDArray[np.bool_]:
    """Which candidates automation may suppress: the surest ones, as long as there is room.

    Args:
        certainty: P(p < threshold) of each candidate, shape (n,).
        total: As in `room`, the candidates included.
        suppressed: How many automation has suppressed already.
        share: As in `room`.
        least: As in `room`.

    Returns:
        True for those that may be suppressed, shape (n,). Of equal ones the first.

    Raises:
        InvalidInputError: As in `room`.

    Examples:
        >>> may_suppress([0.96, 0.99, 0.97], total=20, suppressed=2).tolist()
        [False, True, True]
    """
    sure = np.asarray(certainty, dtype=np.float64)
    left = max(0, room(total, share=share, least=least) - suppressed)
    allowed = np.zeros(sure.shape, dtype=np.bool_)
    allowed[np.argsort(-sure, kind="stable")[:left]] = True
    return allowed
