"""Counts that forget: an outcome's weight halves with every half-life, in time or in outcomes.

The paper's third open direction. Lazy: nothing is touched until the next outcome or question. Sums of weights that depend
on an outcome's own mark alone: so the order does not matter, and what was added can be taken out again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.beta import Floats


class Discounted(NamedTuple):
    """Discounted counts of m memories, or of one.

    Attributes:
        success: Sum over outcomes of size * reward * 2**-((mark - at) / half-life), in retrievals.
        failure: The same with 1 - reward.
        mark: To which point they are discounted: the latest outcome.
    """

    success: Floats
    failure: Floats
    mark: Floats

    @property
    def size(self) -> Floats:
        """Retrievals that are left, at most half-life / ln 2 + 1 with one outcome per unit of the mark."""
        return self.success + self.failure


def nothing(count: int) -> Discounted:
    """Counts of memories without outcomes, each field of shape (count,)."""
    return Discounted(np.zeros(count), np.zeros(count), np.full(count, -np.inf))


def discounted(counts: Discounted, now: ArrayLike, *, half_life: float) -> Discounted:
    """The same counts as they weigh at a later mark.

    Args:
        counts: As they are.
        now: A mark not before `counts.mark`; an earlier one changes nothing.
        half_life: In the unit of the marks, above 0.

    Raises:
        InvalidInputError: If the half-life is not above 0.

    Examples:
        >>> one = added(nothing(1), 1.0, at=0, half_life=10)
        >>> discounted(one, 20, half_life=10).success.tolist()
        [0.25]
    """
    if not half_life > 0:
        raise InvalidInputError(f"a half-life must be above 0, got {half_life}", value=half_life)
    mark = np.maximum(counts.mark, np.asarray(now, dtype=np.float64))
    factor = _weight(mark - counts.mark, half_life)
    return Discounted(counts.success * factor, counts.failure * factor, mark)


def added(
    counts: Discounted,
    reward: ArrayLike,
    *,
    at: ArrayLike,
    half_life: float,
    size: ArrayLike = 1.0,
) -> Discounted:
    """The counts with one more outcome for each memory; a negative size takes it out again.

    Args:
        counts: As they are; not changed.
        reward: In [0, 1].
        at: Mark of the outcome: seconds, or its number for a half-life in outcomes. It may lie before
            `counts.mark`: a late outcome comes in with the weight that it would have by now.
        half_life: In the unit of the marks, above 0.
        size: Retrievals that the outcome counts for.

    Raises:
        InvalidInputError: If the half-life is not above 0.

    References:
        When to Forget, section 6, third open direction. Cormode et al. (2009), Forward decay.

    Examples:
        >>> counts = added(nothing(1), 1.0, at=0, half_life=10)
        >>> counts = added(counts, 0.0, at=10, half_life=10)
        >>> counts.success.tolist(), counts.failure.tolist()
        ([0.5], [1.0])
        >>> added(counts, 0.0, at=10, half_life=10, size=-1).failure.tolist()
        [0.0]
    """
    then = discounted(counts, at, half_life=half_life)
    weight = np.asarray(size) * _weight(then.mark - np.asarray(at, dtype=np.float64), half_life)
    gain = weight * np.asarray(reward, dtype=np.float64)
    return Discounted(then.success + gain, then.failure + weight - gain, then.mark)


def _weight(elapsed: ArrayLike, half_life: float) -> Floats:
    # Never counted from is -inf: infinitely long ago, and the sums there are 0.
    return np.asarray(np.exp2(-np.asarray(elapsed, dtype=np.float64) / half_life))
