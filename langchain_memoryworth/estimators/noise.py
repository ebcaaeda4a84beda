"""Outcomes that are wrong or missing: labels flipped at a known rate, failures reported more often than successes.

Both act on the outcome and not on the memory, so both can be taken out again, or shown not to matter.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from langchain_memoryworth.errors import InvalidInputError, InvalidOutcomeError
from langchain_memoryworth.estimators.beta import Floats, cdf

_FLAT = (1.0, 1.0)


def observed_rate(rate: ArrayLike, flip: float) -> Floats:
    """The success rate that one sees when each label is flipped with probability q: `q + (1 - 2 q) p`.

    Args:
        rate: True success rates p in [0, 1], any shape.
        flip: q, in [0, .5). At .5 labels say nothing, beyond it the opposite.

    Raises:
        InvalidInputError: If `flip` is not in [0, .5).

    Examples:
        >>> observed_rate([0.0, 0.4, 1.0], 0.3).round(2).tolist()
        [0.3, 0.46, 0.7]
    """
    return flip_rate(flip) + (1 - 2 * flip) * np.asarray(rate, dtype=np.float64)


def flip_rate(flip: float) -> float:
    """Check a flip rate.

    Raises:
        InvalidInputError: If it is not in [0, .5).
    """
    if not 0 <= flip < 0.5:
        raise InvalidInputError(
            f"a flip rate must be in [0, 0.5), got {flip}: at 0.5 the labels say nothing; if more than half of "
            "them are wrong, turn them round and give 1 - flip",
            value=flip,
        )
    return flip


def binary(rewards: ArrayLike) -> Floats:
    """Check that rewards are success or failure: a graded reward has no label that could have been flipped.

    Args:
        rewards: Any shape.

    Returns:
        The same as float64.

    Raises:
        InvalidOutcomeError: If one of them is neither 0 nor 1.
    """
    given = np.asarray(rewards, dtype=np.float64)
    graded = given[(given != 0) & (given != 1)]
    if graded.size:
        raise InvalidOutcomeError(
            f"a correction for flipped labels needs rewards of 0 or 1, got {graded.flat[0]}; leave the flip rate at "
            "0 for graded rewards",
            value=float(graded.flat[0]),
        )
    return given


def corrected(worth: ArrayLike, flip: float) -> Floats:
    """What the worth would be without flipped labels: `(MW - q) / (1 - 2 q)`, clipped to [0, 1].

    For binary rewards only, see `binary`. Unbiased before it is clipped; its variance is 1 / (1 - 2 q)**2 times larger,
    so a verdict must not take it for a clean ratio: use `probability_below`.

    Args:
        worth: MW in [0, 1], any shape.
        flip: q, in [0, .5).

    Raises:
        InvalidInputError: If `flip` is not in [0, .5).

    References:
        Natarajan et al. (2013), Learning with noisy labels, lemma 1. Warner (1965), Randomized response.

    Examples:
        >>> corrected([0.2, 0.5, 0.58], 0.3).round(2).tolist()
        [0.0, 0.5, 0.7]
    """
    ratio = np.asarray(worth, dtype=np.float64)
    return np.clip((ratio - flip_rate(flip)) / (1 - 2 * flip), 0.0, 1.0)


def probability_below(
    x: ArrayLike,
    worth: ArrayLike,
    size: ArrayLike,
    *,
    flip: float,
    prior: tuple[ArrayLike, ArrayLike] = _FLAT,
) -> Floats:
    """P(p < x) for the true success rate p, where each label is flipped with probability q.

    The rate that is seen, o = q + (1 - 2 q) p, lies between q and 1 - q. A flat prior on p is a flat one on that interval,
    so with a = alpha + n MW, b = beta + n (1 - MW) and I the regularised incomplete beta function

        P(p < x) = (I_t(a, b) - I_q(a, b)) / (I_{1-q}(a, b) - I_q(a, b)),    t = q + (1 - 2 q) x.

    Where the data lie so far outside that both differences vanish, what is left is exponential, see `_at_the_edge`.

    Args:
        x: Thresholds on the true rate in [0, 1].
        worth: MW as counted, in [0, 1]; binary rewards.
        size: Effective sizes in retrievals.
        flip: q, in [0, .5).
        prior: alpha and beta of the rate that is seen.

    Returns:
        Probabilities, of the common shape.

    Raises:
        InvalidInputError: If `flip` is not in [0, .5).

    References:
        When to Forget, section 7, "Outcome signal quality".

    Examples:
        >>> probability_below(0.4, 0.35, [20, 200], flip=0.3).round(3).tolist()
        [0.762, 0.999]
        >>> probability_below(0.4, 0.35, [20, 200], flip=0.0).round(3).tolist()
        [0.65, 0.924]
    """
    flip_rate(flip)
    ratio, n = (np.asarray(v, dtype=np.float64) for v in (worth, size))
    a, b = np.asarray(prior[0]) + n * ratio, np.asarray(prior[1]) + n * (1 - ratio)
    return np.asarray(belows(x, a, b, flip))


def below(x: float, a: float, b: float, flip: float) -> float:
    """`probability_below` of one memory, by the parameters of its posterior without flips.

    Args:
        x: Threshold on the true rate; beyond [0, 1] the answer is 0 or 1.
        a: alpha + n MW, above 0.
        b: beta + n (1 - MW), above 0.
        flip: q, in [0, .5); not checked again.

    Examples:
        >>> round(below(0.4, 1 + 7, 1 + 13, 0.3), 3)
        0.762
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    floor, ceiling = cdf(flip, a, b), cdf(1 - flip, a, b)
    room = ceiling - floor
    if room < _FAR:
        rate, low = _at_the_edge(a, b, flip)
        near = -math.expm1(-rate * (x if low else 1 - x)) / -math.expm1(-rate)
        return near if low else 1 - near
    seen = float(observed_rate(x, flip))
    return min(max((cdf(seen, a, b) - floor) / room, 0.0), 1.0)


def quantile(p: float, a: float, b: float, flip: float) -> float:
    """The true rate below which it lies with probability p, to 1e-9; the arguments are those of `below`.

    Examples:
        >>> round(below(quantile(0.05, 8, 14, 0.3), 8, 14, 0.3), 6)
        0.05
    """
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle, a, b, flip) < p else (low, middle)
    return (low + high) / 2


def moments(a: float, b: float, flip: float) -> tuple[float, float]:
    """Mean and standard deviation of the true rate; the arguments are those of `below`.

    Of a Beta(a, b) variable o cut to [q, 1 - q], E o = a / (a + b) (I_{1-q}(a + 1, b) - I_q(a + 1, b)) / (I_{1-q}(a, b) -
    I_q(a, b)), and E o**2 likewise; p is (o - q) / (1 - 2 q).

    Examples:
        >>> [round(v, 3) for v in moments(1, 1, 0.3)], [round(v, 3) for v in moments(8, 14, 0.3)]
        ([0.5, 0.289], [0.272, 0.188])
    """
    whole = cdf(1 - flip, a, b) - cdf(flip, a, b)
    if whole < _FAR:
        rate, low = _at_the_edge(a, b, flip)
        return (1 / rate if low else 1 - 1 / rate), 1 / rate
    first = a / (a + b) * (cdf(1 - flip, a + 1, b) - cdf(flip, a + 1, b)) / whole
    second = a * (a + 1) / ((a + b) * (a + b + 1))
    second *= (cdf(1 - flip, a + 2, b) - cdf(flip, a + 2, b)) / whole
    scale = 1 - 2 * flip
    return (first - flip) / scale, math.sqrt(max(0.0, second - first**2)) / scale


def _at_the_edge(a: float, b: float, q: float) -> tuple[float, bool]:
    """Where the data lie so far below or above what noise allows that all of it is near p = 0, or p = 1.

    Near its edge the log-density is a line, so what is left of the distribution is exponential: its rate, and whether the
    edge is p = 0.
    """
    low = a <= b
    near, far = (b - 1, a - 1) if low else (a - 1, b - 1)
    return (1 - 2 * q) * (near / (1 - q) - far / q), low


_FAR = 1e-12
belows = np.vectorize(below, otypes=[np.float64])
"""`below` for arrays, which broadcast."""


def log_odds_above(
    worth: ArrayLike, size: ArrayLike, base: ArrayLike, *, weight: float = 1.0
) -> Floats:
    """How far a memory is above the base rate, in log-odds: what unequal reporting leaves as it is.

    The memory's rate is shrunk to the base rate with a weight of one retrieval, so that it exists for 0 and 1 as well:
    log((s + w b) / (f + w (1 - b))) - log(b / (1 - b)).

    Where a share s of the successes and f of the failures is reported, the odds of every memory are multiplied by s / f. So
    differences in log-odds stay as they are, and the order of memories; absolute thresholds do not, nor do differences
    of rates, nor comparisons of memories whose outcomes come from sources that report differently.

    Args:
        worth: MW in [0, 1].
        size: Effective sizes in retrievals, at least 0.
        base: Base rate in (0, 1).
        weight: w, in retrievals, above 0.

    Returns:
        Of the common shape; 0 without evidence.

    Raises:
        InvalidInputError: If a base rate is not in (0, 1).

    References:
        Prentice and Pyke (1979), Logistic disease incidence models and case-control studies.

    Examples:
        >>> log_odds_above(0.8, 1_000, 0.5).round(2).item(), log_odds_above(0.5, 1_000, 0.2).round(2).item()
        (1.38, 1.39)
    """
    b = np.asarray(base, dtype=np.float64)
    if not np.all((b > 0) & (b < 1)):
        raise InvalidInputError(f"a base rate must be between 0 and 1, got {base!r}", value=base)
    ratio, n = (np.asarray(v, dtype=np.float64) for v in (worth, size))
    odds = (n * ratio + weight * b) / (n * (1 - ratio) + weight * (1 - b))
    return np.asarray(np.log(odds) - np.log(b / (1 - b)))
