"""Bounds that stay valid although they are looked at after every outcome, and how many retrievals a verdict needs.

A credible bound of 95%, checked once, is wrong in one case of twenty; checked after every outcome it is wrong more
often. A confidence sequence is wrong with at most the given probability over the whole life of a memory.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.beta import Floats, log_gamma


def log_evidence(rate: ArrayLike, worth: ArrayLike, size: ArrayLike) -> Floats:
    """Evidence against a success rate, as the logarithm of a betting score.

    With s = n MW successes and f = n (1 - MW) failures, and the flat mixture over all rates,

        M_n(p) = B(1 + s, 1 + f) / (p**s (1 - p)**f).

    If p is the true rate, M_n(p) is a non-negative martingale that starts at 1, so by Ville's inequality it ever reaches
    1 / alpha with probability at most alpha, however often and for whatever reason one looks. With graded rewards in
    [0, 1] it is a supermartingale, because (q/p)**r ((1-q)/(1-p))**(1-r) is convex in r; with evidence sizes in [0, 1]
    that are fixed before the outcome as well, because E L**w <= (E L)**w. So the bound holds for those too.

    Args:
        rate: p in [0, 1].
        worth: MW in [0, 1].
        size: n, retrievals, at least 0: the sum of sizes that are each at most 1.

    Returns:
        log M_n(p), of the common shape; infinite where the rate is impossible.

    References:
        Robbins (1970), Statistical methods related to the law of the iterated logarithm. Howard, Ramdas, McAuliffe and
        Sekhon (2021), Time-uniform Chernoff bounds via nonnegative supermartingales. Ville (1939).

    Examples:
        >>> round(float(log_evidence(0.4, 0.1, 40)), 2) > round(math.log(20), 2)
        True
    """
    p, ratio, n = (np.asarray(v, dtype=np.float64) for v in (rate, worth, size))
    s, f = n * ratio, n * (1 - ratio)
    mixture = log_gamma(1 + s) + log_gamma(1 + f) - log_gamma(2 + n)
    with np.errstate(divide="ignore", invalid="ignore"):
        likelihood = np.where(s > 0, s * np.log(p), 0.0) + np.where(f > 0, f * np.log1p(-p), 0.0)
    return np.asarray(mixture - likelihood)


def confidence_sequence(
    worth: ArrayLike, size: ArrayLike, *, alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """Bounds that contain the true success rate at all times at once, with probability at least 1 - alpha.

    All rates with log M_n(p) < log(1 / alpha), see `log_evidence`: an interval, because log M_n is convex in p with its
    minimum at MW.

    Args:
        worth: MW in [0, 1], shape (m,) or a number.
        size: Retrievals, at least 0, likewise.
        alpha: Probability of ever being wrong, in (0, 1).

    Returns:
        Lower and upper bound, of the common shape, to 1e-9.

    Raises:
        InvalidInputError: If alpha is not in (0, 1).

    Examples:
        >>> low, high = confidence_sequence([0.5, 0.5], [10, 1_000])
        >>> low.round(2).tolist(), high.round(2).tolist()
        ([0.13, 0.44], [0.87, 0.56])
    """
    ratio, n = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (worth, size)))
    limit = -math.log(_level(alpha))
    return _edge(ratio, n, limit, np.zeros_like(ratio)), _edge(ratio, n, limit, np.ones_like(ratio))


def _edge(ratio: Floats, n: Floats, limit: float, far: Floats) -> Floats:
    """Between MW, where the evidence is least, and the far end, the point where it reaches the limit."""
    near, outer = ratio.copy(), far
    for _ in range(31):
        middle = (near + outer) / 2
        outside = log_evidence(middle, ratio, n) >= limit
        near, outer = np.where(outside, near, middle), np.where(outside, middle, outer)
    return np.asarray(outer)


def _level(alpha: float) -> float:
    if not 0 < alpha < 1:
        raise InvalidInputError(f"alpha must be between 0 and 1, got {alpha}", value=alpha)
    return alpha


def divergence(p: float, q: float) -> float:
    """Kullback-Leibler divergence between two success rates, in nats; `p` in [0, 1], `q` in (0, 1).

    Examples:
        >>> round(divergence(0.4, 0.6), 4), divergence(0.3, 0.3)
        (0.0811, 0.0)
    """
    positive = p * math.log(p / q) if p > 0 else 0.0
    negative = (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0
    return positive + negative


def v_min_for(theta: float, rate: float, *, alpha: float = 0.01) -> int:
    """How large V_min must be in the paper's rule: the open question of its Remark 4.2.

    The rule "LOW if MW < theta, once there are V_min retrievals", looked at after every outcome for ever, wrongly hides a
    memory of true rate p > theta with probability at most exp(-V_min KL(theta, p)): with lambda the tilt that turns p into
    theta, exp(lambda s_n - n log E exp(lambda y)) is a martingale that starts at 1 and is at least exp(n KL(theta, p))
    whenever MW_n <= theta, so Ville's inequality applies from V_min on. Hence V_min = log(1 / alpha) / KL(theta, p).
    The same for HIGH, with p < theta.

    Args:
        theta: The threshold, in [0, 1].
        rate: p, the true rate of the memories that must not be misjudged, in (0, 1), not theta.
        alpha: Probability of ever misjudging one of them, in (0, 1).

    Returns:
        Retrievals, under uniform credit.

    Raises:
        InvalidInputError: If rate and threshold are equal or not in range: no number of retrievals is enough then.

    References:
        When to Forget, Remark 4.2. Chernoff (1952), with Ville's inequality in place of the union bound.

    Examples:
        >>> v_min_for(0.4, 0.6), v_min_for(0.4, 0.7), v_min_for(0.4, 0.9)
        (57, 24, 7)
    """
    if not (0 <= theta <= 1 and 0 < rate < 1) or theta == rate:
        raise InvalidInputError(
            f"a rate of {rate} cannot be told from a threshold of {theta}; give a rate between 0 and 1 that differs "
            "from the threshold",
            value=rate,
        )
    return math.ceil(-math.log(_level(alpha)) / divergence(theta, rate))
