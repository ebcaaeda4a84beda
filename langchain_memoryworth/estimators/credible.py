"""How sure a worth is: the Beta posterior behind it, its bounds and spread, and verdicts by bounds.

The paper judges by the ratio alone once there are V_min retrievals. Here the ratio and the number of retrievals speak
together, so that little evidence decides nothing and much evidence decides early.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators import noise
from langchain_memoryworth.estimators.beta import Floats, cdf, cdfs, quantile, quantiles
from langchain_memoryworth.estimators.evidence import UNIT, Evidence, Verdict

Prior = tuple[float, float]
"""Successes and failures assumed of a memory beforehand, each above 0."""

PRIOR: Prior = (1.0, 1.0)
"""Without anything known: every success rate is equally likely."""

_LOG_CONCAVE = 1 - 1 / math.e


class Belief(NamedTuple):
    """What the evidence lets one believe of a memory's success rate.

    Attributes:
        low: Lower bound of the central credible interval, in [0, 1].
        mean: Posterior mean.
        high: Upper bound.
        deviation: Posterior standard deviation, at most 0.2887 (no evidence, flat prior).
    """

    low: float
    mean: float
    high: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.low:.2f} to {self.high:.2f})"


def belief_of(rewards: Sequence[float]) -> Belief:
    """What the rewards of some runs, each in [0, 1], let one believe of their success rate, from a flat prior.

    Examples:
        >>> str(belief_of([1.0] * 9 + [0.0]))
        '0.83 (0.64 to 0.97)'
    """
    good, n = round(sum(rewards) * UNIT), len(rewards) * UNIT
    return belief(Evidence(good, n - good, n, n, len(rewards)))


def belief(
    evidence: Evidence, *, level: float = 0.9, prior: Prior = PRIOR, flip: float = 0.0
) -> Belief:
    """The Beta posterior with the evidence counted as `effective_size` retrievals.

    Args:
        evidence: Counters of one memory, or a sum of several.
        level: Probability within the bounds, in (0, 1).
        prior: What is assumed beforehand, see `prior_of_pool`.
        flip: Share of labels that are wrong, in [0, .5); the belief is about the success rate without them, see `noise`.

    References:
        When to Forget, section 6, second open direction: Beta(alpha + n MW, beta + n (1 - MW)).

    Examples:
        >>> from langchain_memoryworth.estimators.evidence import UNIT
        >>> nine_of_ten = Evidence(9 * UNIT, UNIT, 10 * UNIT, 10 * UNIT, 10)
        >>> str(belief(nine_of_ten)), str(belief(Evidence()))
        ('0.83 (0.64 to 0.97)', '0.50 (0.05 to 0.95)')
        >>> str(belief(nine_of_ten, flip=0.2))
        '0.85 (0.60 to 0.99)'
    """
    a, b = parameters(evidence.worth, evidence.effective_size, prior)
    tail = (1 - level) / 2
    if flip:
        mean, deviation = noise.moments(a, b, flip)
        low, high = (noise.quantile(p, a, b, flip) for p in (tail, 1 - tail))
        return Belief(low, mean, high, deviation)
    deviation = math.sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))
    return Belief(quantile(tail, a, b), a / (a + b), quantile(1 - tail, a, b), deviation)


def parameters(worth: float, size: float, prior: Prior = PRIOR) -> tuple[float, float]:
    """The posterior's parameters, of one memory: `alpha + n MW` and `beta + n (1 - MW)`.

    Args:
        worth: MW, in [0, 1].
        size: n, the effective size in retrievals; below 0 counts as 0.
        prior: alpha and beta.

    Examples:
        >>> parameters(0.75, 4)
        (4.0, 2.0)
    """
    size = max(0.0, size)
    return prior[0] + size * worth, prior[1] + size * (1 - worth)


class Posterior:
    """Beta posteriors of many memories at once.

    Args:
        worth: MW in [0, 1], shape (m,) or a float.
        size: Effective sizes in retrievals, at least 0, same shape.
        prior: Successes and failures assumed beforehand, each above 0: one pair, or a pair of arrays of shape (m,).

    Raises:
        InvalidInputError: If a worth is not in [0, 1], a size not finite or below 0, or a prior not above 0.

    Attributes:
        a: `alpha + n MW`, float64 of shape (m,).
        b: `beta + n (1 - MW)`, likewise.

    References:
        When to Forget, section 6, second open direction. Gelman et al., Bayesian Data Analysis, section 2.4.

    Examples:
        >>> two = Posterior([0.8, 0.8], [10, 100])
        >>> two.mean.round(3).tolist(), two.sd.round(3).tolist()
        ([0.75, 0.794], [0.12, 0.04])
        >>> two.probability_below(0.6).round(4).tolist()
        [0.1189, 0.0]
        >>> [bound.round(2).tolist() for bound in two.bounds(0.9)]
        [[0.53, 0.73], [0.92, 0.86]]
    """

    __slots__ = ("a", "b")

    def __init__(
        self, worth: ArrayLike, size: ArrayLike, prior: tuple[ArrayLike, ArrayLike] = PRIOR
    ) -> None:
        ratio, n = (np.asarray(v, dtype=np.float64) for v in (worth, size))
        alpha, beta = (np.asarray(v, dtype=np.float64) for v in prior)
        _check(ratio, (ratio >= 0) & (ratio <= 1), "a worth must be in [0, 1]")
        _check(n, (n >= 0) & np.isfinite(n), "an effective size must be finite and at least 0")
        for value in (alpha, beta):
            _check(value, (value > 0) & np.isfinite(value), "a prior must be finite and above 0")
        self.a: Floats = alpha + n * ratio
        self.b: Floats = beta + n * (1 - ratio)

    @property
    def mean(self) -> Floats:
        """Posterior mean, a / (a + b), shape (m,)."""
        return self.a / (self.a + self.b)

    @property
    def sd(self) -> Floats:
        """Posterior standard deviation, shape (m,)."""
        total = self.a + self.b
        return np.asarray(np.sqrt(self.a * self.b / (total + 1)) / total)

    def probability_below(self, x: ArrayLike) -> Floats:
        """P(p < x), shape (m,); `x` is a float or of shape (m,)."""
        return cdfs(x, self.a, self.b)

    def bounds(self, level: float = 0.9) -> tuple[Floats, Floats]:
        """The central credible interval that holds `level` of the probability: lower and upper, shape (m,) each.

        Rank by the lower bound to promote what is surely good; hide by the upper one what is surely bad.
        """
        tail = (1 - level) / 2
        return quantiles(tail, self.a, self.b), quantiles(1 - tail, self.a, self.b)


def _check(value: Floats, valid: NDArray[np.bool_], rule: str) -> None:
    if not np.all(valid):
        wrong = np.atleast_1d(value)[~np.atleast_1d(valid)][0]
        raise InvalidInputError(f"{rule}, got {wrong}", value=float(wrong))


def is_below(x: float, a: float, b: float, confidence: float, *, flip: float = 0.0) -> bool:
    """Whether P(p < x) >= confidence for p ~ Beta(a, b), mostly without computing that probability.

    Three short cuts, each a theorem, so that the answer is always the exact one; with mu = a / (a + b), c = confidence:

    1. mu >= c x + (1 - c): no. Whatever lies in [0, 1] and is below x with probability c has a mean below that.
    2. mu >= x, a >= 1, b >= 1 and c > 1 - 1/e = .632: no. The density is log-concave then, and such a variable is
       below its own mean with probability at most 1 - 1/e. So a memory whose mean is not below the threshold is never
       LOW at a confidence of .95.
    3. mu + sqrt(log(1 / (1 - c)) / (2 (a + b + 1))) <= x: yes. A Beta variable is sub-Gaussian with variance proxy
       1 / (4 (a + b + 1)), so it exceeds mu + t with probability at most exp(-2 (a + b + 1) t**2).

    Args:
        x: Threshold in [0, 1].
        a: Above 0.
        b: Above 0.
        confidence: In (0, 1).
        flip: Share of labels that are wrong, in [0, .5): Beta(a, b) is what is seen, and p the rate without them.

    References:
        2: Gruenbaum (1960), Partitions of mass-distributions; Lovasz and Vempala (2007), lemma 5.4.
        3: Marchal and Arbel (2017), On the sub-Gaussianity of the Beta and Dirichlet distributions, theorem 1.

    Examples:
        >>> is_below(0.4, 1 + 2, 1 + 11, 0.95), is_below(0.4, 1 + 3, 1 + 10, 0.95)  # 2 or 3 successes of 13
        (True, False)
    """
    if flip:
        return noise.below(x, a, b, flip) >= confidence
    total = a + b
    mean = a / total
    rest = 1 - confidence
    if mean >= confidence * x + rest:
        return False
    if mean >= x and a >= 1 and b >= 1 and confidence > _LOG_CONCAVE:
        return False
    if mean < x and 2 * (total + 1) * (x - mean) ** 2 >= -math.log(rest):
        return True
    return cdf(x, a, b) >= confidence


def are_below(x: ArrayLike, a: ArrayLike, b: ArrayLike, confidence: float) -> NDArray[np.bool_]:
    """`is_below` for arrays, which broadcast.

    Examples:
        >>> are_below(0.4, [3, 4], [12, 11], 0.95).tolist()
        [True, False]
    """
    x, a, b = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (x, a, b)))
    total = a + b
    mean, rest = a / total, 1 - confidence
    result = np.asarray((mean < x) & (2 * (total + 1) * (x - mean) ** 2 >= -math.log(rest)))
    unimodal = (a >= 1) & (b >= 1) & (confidence > _LOG_CONCAVE)
    open_ = ~result & (mean < np.where(unimodal, x, confidence * x + rest))
    result[open_] = cdfs(x[open_], a[open_], b[open_]) >= confidence
    return result


def verdict(
    worth: float,
    size: float,
    *,
    theta_low: float = 0.4,
    theta_high: float = 0.6,
    confidence: float = 0.95,
    v_min: float = 0.0,
    prior: Prior = PRIOR,
    flip: float = 0.0,
) -> Verdict:
    """The paper's taxonomy by bounds instead of the ratio.

    LOW if P(p < theta_low) >= confidence, HIGH if P(p > theta_high) >= confidence; else MIXED once the posterior is
    narrow enough to tell the two apart (sd <= (theta_high - theta_low) / (2 z), with z the normal quantile of the
    confidence), and UNCERTAIN before, as below `v_min` retrievals.

    Checked after every outcome up to 1,000, with a flat prior and the values above, a memory with true rate .6 is ever
    LOW with probability .0131, one with .7 with .0027, and one with .2 in the median after 13 retrievals; with
    v_min = 10 it is .0029, .0002 and 13 (from the exact Markov chain in the tests).

    Args:
        worth: MW in [0, 1].
        size: Effective size in retrievals.
        theta_low: In [0, 1].
        theta_high: In [0, 1], at least `theta_low`.
        confidence: In (.5, 1).
        v_min: Retrievals below which nothing is decided.
        prior: What is assumed beforehand.
        flip: Share of labels that are wrong, in [0, .5); the thresholds are for the success rate without them.

    References:
        When to Forget, Definition 3.2 and section 6, second open direction.

    Examples:
        >>> verdict(2 / 13, 13), verdict(0.9, 50), verdict(0.5, 100), verdict(0.5, 4)
        (<Verdict.LOW: 'low'>, <Verdict.HIGH: 'high'>, <Verdict.MIXED: 'mixed'>, <Verdict.UNCERTAIN: 'uncertain'>)
    """
    if size < v_min:
        return Verdict.UNCERTAIN
    a, b = parameters(worth, size, prior)
    if is_below(theta_low, a, b, confidence, flip=flip):
        return Verdict.LOW
    if is_below(1 - theta_high, b, a, confidence, flip=flip):  # 1 - p ~ Beta(b, a)
        return Verdict.HIGH
    variance = a * b / ((a + b) ** 2 * (a + b + 1))
    deviation = noise.moments(a, b, flip)[1] if flip else math.sqrt(variance)
    narrow = deviation <= _resolution(theta_high - theta_low, confidence)
    return Verdict.MIXED if narrow else Verdict.UNCERTAIN


def _resolution(gap: float, confidence: float) -> float:
    """The standard deviation at which the interval from one threshold to the other holds `2 confidence - 1`."""
    return gap / (2 * NormalDist().inv_cdf(confidence))


def verdicts(
    posterior: Posterior,
    size: ArrayLike,
    *,
    theta_low: ArrayLike = 0.4,
    theta_high: ArrayLike = 0.6,
    confidence: float = 0.95,
    v_min: float = 0.0,
) -> NDArray[np.str_]:
    """`verdict` for arrays.

    Args:
        posterior: Of m memories.
        size: Effective sizes, shape (m,).
        theta_low: A float, or thresholds of shape (m,).
        theta_high: Likewise.
        confidence: In (.5, 1).
        v_min: Retrievals below which nothing is decided.

    Returns:
        Values of `Verdict`, shape (m,).

    Examples:
        >>> worth, size = [0.1, 0.9, 0.5, 0.5], [20, 50, 100, 4]
        >>> verdicts(Posterior(worth, size), size).tolist()
        ['low', 'high', 'mixed', 'uncertain']
    """
    high = np.asarray(theta_high, dtype=np.float64)
    gap = high - np.asarray(theta_low, dtype=np.float64)
    return np.select(
        [
            np.asarray(size) < v_min,
            are_below(theta_low, posterior.a, posterior.b, confidence),
            are_below(1 - high, posterior.b, posterior.a, confidence),  # 1 - p ~ Beta(b, a)
            posterior.sd * 2 * NormalDist().inv_cdf(confidence) <= gap,
        ],
        [Verdict.UNCERTAIN.value, Verdict.LOW.value, Verdict.HIGH.value, Verdict.MIXED.value],
        default=Verdict.UNCERTAIN.value,
    )
