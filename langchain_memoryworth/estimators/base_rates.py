"""Low compared with what? The base rate of the same times, thresholds below it, and how much may be hidden at all.

An absolute threshold means nothing where tasks are hard or a service is down: then every memory fails, and hiding them
makes it worse. So a memory is held against what was to be expected of its own episodes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

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

    References:
        When to Forget, Definition 3.2, for the absolute threshold. The relative one is ours: `benchmarks/outages.py` tries it.

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

    References:
        Ours, and a plain count: where a rule errs about many memories at once, as the paper's does where tasks are hard
        (`benchmarks/hard_pool.py`), it bounds what that can cost.

    Examples:
        >>> room(19), room(20), room(307), room(20, share=0.01)
        (0, 4, 61, 1)
    """
    if not 0 <= share <= 1:
        raise InvalidInputError(f"a share must be in [0, 1], got {share}", value=share)
    # 0.2 * 15 is 3.0000000000000004, but 0.29 * 100 is 28.999999999999996
    return max(1, math.floor(share * total + 1e-9)) if total >= least else 0
