"""The counters of Memory Worth: what they are, what they say, and how they add up exactly.

Counters are integers in units of 2**-32, because a float does not come back to where it was when
an outcome is corrected: with weights of 1/k a running sum and its recomputation soon differ.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, overload

if TYPE_CHECKING:  # the words are known without it: it takes half of the time of `--help`
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

UNIT = 1 << 32
"""One retrieval, or the whole weight of one episode, in the fixed-point units of every counter."""

SIZE_DECIMALS = 3
"""Effective sizes are rounded to this many decimals: ten equal weights must count as ten retrievals, and the
squares of rounded weights are off by about 1e-5."""


@overload
def worth(positive: float, negative: float) -> float: ...
@overload
def worth(positive: NDArray[np.number], negative: NDArray[np.number]) -> NDArray[np.float64]: ...
def worth(positive: ArrayLike, negative: ArrayLike) -> float | NDArray[np.float64]:
    """Memory Worth: the share of success in the weighted hits, 0.5 with no evidence.

    Args:
        positive: Weighted hits in successes, at least 0; a scalar or an array of shape (n,), any unit.
        negative: Weighted hits in failures, same shape and unit.

    Returns:
        Worth in [0, 1], higher is better; float64 of the same shape.

    References:
        When to Forget, Definition 3.1, eq. (1).

    Examples:
        >>> worth(80.0, 20.0)
        0.8
        >>> import numpy as np
        >>> worth(np.array([0.0, 3.0]), np.array([0.0, 1.0])).tolist()
        [0.5, 0.75]
    """
    import numpy as np

    hits = np.asarray(positive, dtype=np.float64)
    total = hits + np.asarray(negative, dtype=np.float64)
    result = np.divide(hits, total, out=np.full_like(total, 0.5), where=total > 0)
    return result if result.ndim else float(result)


@overload
def effective_size(size: float, total: float, squared: float) -> float: ...
@overload
def effective_size(
    size: NDArray[np.number], total: NDArray[np.number], squared: NDArray[np.number]
) -> NDArray[np.float64]: ...
def effective_size(
    size: ArrayLike, total: ArrayLike, squared: ArrayLike
) -> float | NDArray[np.float64]:
    """How many retrievals the evidence is worth: `min(n, (sum w)^2 / sum w^2)`.

    Under uniform credit with one k this is the number of settled retrievals; a memory that only stood by while
    others were used collects next to nothing, and one heavy episode among light ones does not count as many.

    Args:
        size: n, the sum over episodes of min(1, k*w), in retrievals; scalar or shape (n,).
        total: Sum of the weights.
        squared: Sum of the squared weights.

    Returns:
        Retrievals, at least 0, rounded to three decimals.

    References:
        Kish (1965), Survey Sampling, effective sample size of a weighted mean.

    Examples:
        >>> effective_size(10.0, 10 / 3, 10 / 9)
        10.0
    """
    import numpy as np

    w = np.asarray(total, dtype=np.float64)
    w2 = np.asarray(squared, dtype=np.float64)
    kish = np.divide(w * w, w2, out=np.zeros_like(w), where=w2 > 0)
    least = np.minimum(np.asarray(size, dtype=np.float64), kish)
    result = np.asarray(np.round(least, SIZE_DECIMALS), dtype=np.float64)
    return result if result.ndim else float(result)


def squared_weight(weight: int) -> int:
    """The square of a fixed-point weight, in the same units, rounded the same way every time.

    Examples:
        >>> squared_weight(UNIT // 2) == UNIT // 4
        True
    """
    return (weight * weight + (UNIT >> 1)) >> 32


class Verdict(StrEnum):
    """What the evidence says of a memory (the paper's Definition 3.2)."""

    HIGH = "high"
    MIXED = "mixed"
    LOW = "low"
    UNCERTAIN = "uncertain"


class Evidence(NamedTuple):
    """The counters of one memory.

    Attributes:
        positive: hits+ in units of 2**-32 (eq. 2).
        negative: hits- in units of 2**-32 (eq. 3).
        size: n, the sum over episodes of min(1, k*w), in units of 2**-32.
        squared: Sum of squared weights in units of 2**-32.
        retrievals: Settled episodes in which the memory was shown.
        surprise: Sum of size * (reward - what was to be expected of the companions and the context), in units of 2**-32;
            see `effects`.

    Examples:
        >>> e = Evidence(positive=3 * UNIT, negative=1 * UNIT, size=4 * UNIT, squared=4 * UNIT, retrievals=4)
        >>> e.worth, e.volume, e.effective_size
        (0.75, 4.0, 4.0)
        >>> e - e == Evidence()
        True
    """

    positive: int = 0
    negative: int = 0
    size: int = 0
    squared: int = 0
    retrievals: int = 0
    surprise: int = 0

    @property
    def hits_positive(self) -> float:
        """Weighted hits in successes, eq. (2)."""
        return self.positive / UNIT

    @property
    def hits_negative(self) -> float:
        """Weighted hits in failures, eq. (3)."""
        return self.negative / UNIT

    @property
    def worth(self) -> float:
        """Memory Worth in [0, 1], exactly 0.5 with no evidence, eq. (1)."""
        total = self.positive + self.negative
        return self.positive / total if total > 0 else 0.5

    @property
    def volume(self) -> float:
        """Weighted volume hits+ + hits-, the letter of Definition 3.2."""
        return (self.positive + self.negative) / UNIT

    @property
    def effective_size(self) -> float:
        """Retrievals that the evidence is worth, see `effective_size`."""
        if self.squared <= 0:
            return 0.0
        total = self.positive + self.negative
        return round(min(self.size, total * total / self.squared) / UNIT, SIZE_DECIMALS)

    @property
    def expectation(self) -> float:
        """What worth was to be expected, from the times, the contexts and the companions: worth less the mean surprise."""
        return min(1.0, max(0.0, self.worth - self.surprise / self.size)) if self.size else 0.5

    # A tuple, as a settlement makes dozens of them; but it adds up, and is not strung together.
    def __add__(self, other: Evidence) -> Evidence:  # type: ignore[override]
        return Evidence(
            self.positive + other.positive,
            self.negative + other.negative,
            self.size + other.size,
            self.squared + other.squared,
            self.retrievals + other.retrievals,
            self.surprise + other.surprise,
        )

    def __neg__(self) -> Evidence:
        return Evidence() - self

    def __sub__(self, other: Evidence) -> Evidence:
        return Evidence(
            self.positive - other.positive,
            self.negative - other.negative,
            self.size - other.size,
            self.squared - other.squared,
            self.retrievals - other.retrievals,
            self.surprise - other.surprise,
        )

    def __repr__(self) -> str:
        return (
            f"Evidence(worth={self.worth:.3f}, hits+={self.hits_positive:.3f}, "
            f"hits-={self.hits_negative:.3f}, effective_size={self.effective_size:g}, "
            f"retrievals={self.retrievals})"
        )
