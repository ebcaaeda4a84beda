"""How sure a worth is: the Beta posterior behind it, its bounds and spread, without scipy."""

from __future__ import annotations

import math
from typing import NamedTuple

from langchain_memoryworth.evidence import Evidence

PRIOR = (1.0, 1.0)
"""Successes and failures assumed of a memory without evidence: every worth is equally likely."""
_TINY = 1e-300


class Belief(NamedTuple):
    """What the evidence lets one believe of a memory's success rate.

    Attributes:
        low: Lower bound of the central credible interval, in [0, 1].
        mean: Posterior mean.
        high: Upper bound.
        deviation: Posterior standard deviation, at most 0.2887 (no evidence).
    """

    low: float
    mean: float
    high: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.low:.2f} to {self.high:.2f})"


def belief(evidence: Evidence, *, level: float = 0.9) -> Belief:
    """The Beta posterior with the evidence counted as `effective_size` retrievals.

    Args:
        evidence: Counters of one memory, or a sum of several.
        level: Probability within the bounds, in (0, 1).

    References:
        When to Forget, section 3.4: Beta(alpha + n MW, beta + n (1 - MW)).

    Examples:
        >>> from langchain_memoryworth.evidence import UNIT
        >>> nine_of_ten = Evidence(9 * UNIT, UNIT, 10 * UNIT, 10 * UNIT, 10)
        >>> str(belief(nine_of_ten)), str(belief(Evidence()))
        ('0.83 (0.64 to 0.97)', '0.50 (0.05 to 0.95)')
    """
    size = max(0.0, evidence.effective_size)
    a = PRIOR[0] + size * evidence.worth
    b = PRIOR[1] + size * (1 - evidence.worth)
    tail = (1 - level) / 2
    deviation = math.sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))
    return Belief(quantile(tail, a, b), a / (a + b), quantile(1 - tail, a, b), deviation)


def quantile(p: float, a: float, b: float) -> float:
    """The value below which a Beta(a, b) variable lies with probability p, to 1e-9, by bisection.

    Examples:
        >>> round(quantile(0.5, 2, 2), 6)
        0.5
    """
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if cdf(middle, a, b) < p else (low, middle)
    return (low + high) / 2


def cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b).

    References:
        Numerical Recipes, section 6.4: Lentz's continued fraction, on the side where it converges.

    Examples:
        >>> round(cdf(0.25, 1, 1), 12)
        0.25
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, _inverse(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = _inverse(1 + term * d)
            c = 1 + term / c
            c = c if abs(c) > _TINY else _TINY
            value *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return value


def _inverse(value: float) -> float:
    return 1 / (value if abs(value) > _TINY else _TINY)
