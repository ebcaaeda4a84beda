"""Cause: what a memory does, from episodes in which a coin decided whether it was shown.

Worth and effects are read from what happened anyway, so they can mistake a companion or a task for a cause. A hold-out
leaves a retrieved memory out with a known probability; the lift is the success rate where it was shown minus that where
it was held out, within contexts. Without both arms in any context there is no number, only "not identifiable".
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError, NotIdentifiableError

MIN_SHARE = 0.02
"""Share of hold-outs up to which `calibrated` refuses: a regression on so few is erratic."""

Floats = NDArray[np.float64]


class Arm(NamedTuple):
    """One arm of a trial: sums over its settled exposures, so corrections subtract what was added.

    Attributes:
        weight: Sum of 1/propensity, the propensity being the probability of the arm that the exposure came into.
        squared: Sum of 1/propensity**2.
        success: Sum of reward/propensity.
    """

    weight: Floats
    squared: Floats
    success: Floats

    @property
    def size(self) -> Floats:
        """Exposures that the arm is worth, Kish's `(sum w)^2 / sum w^2`; their number if all propensities are equal."""
        return _ratio(self.weight * self.weight, self.squared)

    @property
    def rate(self) -> Floats:
        """Weighted success rate in [0, 1], 0 without exposures (Hajek's estimator)."""
        return _ratio(self.success, self.weight)


class Lift(NamedTuple):
    """What showing a memory does to the success rate.

    Attributes:
        value: The lift in [-1, 1], positive where the memory helps; NaN if not identifiable.
        low: Lower bound of the interval; -1 if not identifiable.
        high: Upper bound; 1 if not identifiable.
        deviation: Standard error; NaN if not identifiable.
        size: Exposures of a trial half and half that would say as much; 0 if not identifiable.
    """

    value: Floats
    low: Floats
    high: Floats
    deviation: Floats
    size: Floats

    @property
    def identifiable(self) -> NDArray[np.bool_]:
        """Whether some context saw the memory both shown and held out."""
        return self.size > 0


def arm(reward: ArrayLike, propensity: ArrayLike) -> Arm:
    """What exposures add to their arm; sum over the last axis with `total`.

    Args:
        reward: Outcomes in [0, 1], shape (..., e).
        propensity: Logged probability of the arm that each exposure came into, in (0, 1], same shape or one for all.

    Raises:
        InvalidInputError: If a propensity is not in (0, 1], or a reward not in [0, 1].

    References:
        Horvitz and Thompson (1952), JASA 47: weights of 1/propensity.

    Examples:
        >>> one = arm([1.0, 0.0, 1.0], 0.9)
        >>> float(total(one).size.round(9)), float(total(one).rate.round(4))
        (3.0, 0.6667)
    """
    y, p = np.broadcast_arrays(np.asarray(reward, float), np.asarray(propensity, float))
    if not (((p > 0) & (p <= 1)).all() and ((y >= 0) & (y <= 1)).all()):
        raise InvalidInputError(
            "a propensity is in (0, 1] and a reward in [0, 1]; got propensities "
            f"{propensity!r}, rewards {reward!r}",
            value=propensity,
        )
    weight = 1 / p
    return Arm(weight, weight * weight, weight * y)


def total(exposures: Arm) -> Arm:
    """The sums of an arm over its exposures, the last axis."""
    return Arm(*(part.sum(axis=-1) for part in exposures))


def lift(shown: Arm, held_out: Arm, *, level: float = 0.9) -> Lift:
    """The difference in success between shown and held out, within contexts.

    `sum_c v_c (rate_shown - rate_held_out) / sum_c v_c` with `v_c = n1 n0 / (n1 + n0)`: contexts count by what they can
    say, and one that saw a single arm counts nothing, instead of lending its difficulty to the difference.

    Args:
        shown: Sums of the shown exposures, each of shape (..., contexts).
        held_out: Sums of the held-out ones, same shape.
        level: Probability within the bounds, in (0, 1).

    Returns:
        Arrays of shape (...).

    References:
        Greenland and Robins (1985), Biometrics 41: Mantel-Haenszel risk difference. The variance takes each rate with one
        success and one failure added, Agresti and Caffo (2000), The American Statistician 54: an arm of three successes
        is not certain.

    Examples:
        Hard tasks succeed less and hold out more; within each context the memory adds .2.

        >>> shown = Arm(np.array([90.0, 50.0]), np.array([90.0, 50.0]), np.array([72.0, 15.0]))
        >>> held = Arm(np.array([10.0, 50.0]), np.array([10.0, 50.0]), np.array([6.0, 5.0]))
        >>> found = lift(shown, held)
        >>> round(float(found.value), 3), round(float(found.deviation), 3)
        (0.2, 0.072)
    """
    n1, n0 = shown.size, held_out.size
    share = _ratio(n1 * n0, n1 + n0)
    whole = share.sum(axis=-1)
    value = _ratio((share * (shown.rate - held_out.rate)).sum(axis=-1), whole)
    spread = share * share * (_variance(shown) + _variance(held_out))
    deviation = _ratio(np.sqrt(spread.sum(axis=-1)), whole)
    known = whole > 0
    margin = NormalDist().inv_cdf((1 + level) / 2) * deviation
    return Lift(
        value=np.where(known, value, np.nan),
        low=np.where(known, np.maximum(value - margin, -1.0), -1.0),
        high=np.where(known, np.minimum(value + margin, 1.0), 1.0),
        deviation=np.where(known, deviation, np.nan),
        size=4 * whole,
    )


def retrievals_needed(
    difference: float,
    *,
    base_rate: float,
    share: float,
    power: float = 0.8,
    level: float = 0.95,
) -> int:
    """After how many retrievals a lift shows: `n = (z + z')^2 p (1 - p) / (share (1 - share) d^2)`.

    Args:
        difference: d, the lift that should not be missed, not 0.
        base_rate: p, the success rate, in (0, 1).
        share: Probability of a hold-out, in (0, 1).
        power: Probability of seeing the lift, in (0, 1).
        level: Of the two-sided interval that must exclude 0, in (0, 1).

    Raises:
        InvalidInputError: If a number is out of its range.

    References:
        Two-sample comparison of rates; (1.960 + 0.842)^2 = 7.85 at 80% power and 95%. Fleiss (1981), chapter 3.

    Examples:
        >>> retrievals_needed(0.1, base_rate=0.5, share=0.1), retrievals_needed(0.1, base_rate=0.5, share=0.5)
        (2181, 785)
    """
    for name, number in (
        ("base_rate", base_rate),
        ("share", share),
        ("power", power),
        ("level", level),
    ):
        if not 0 < number < 1:
            raise InvalidInputError(f"{name} must be in (0, 1), got {number}", value=number)
    if not 0 < abs(difference) <= 1:
        raise InvalidInputError(
            f"difference must be in [-1, 1] and not 0, got {difference}", value=difference
        )
    normal = NormalDist()
    z = normal.inv_cdf((1 + level) / 2) + normal.inv_cdf(power)
    needed = z * z * base_rate * (1 - base_rate) / (share * (1 - share) * difference * difference)
    return int(np.ceil(needed))


def calibrated(found: Lift, worth: ArrayLike, exposure: ArrayLike, *, share: float) -> Floats:
    """The lift that a memory's worth and exposure foretell, learnt over all memories of a trial.

    Weighted least squares of the lifts on `1, worth, log(1 + exposure)`. One memory's lift is noisy and its worth is
    confounded; the pool's lifts say how worth has to be read. A memory without a lift of its own gets one, too.

    Args:
        found: Lifts of the memories, shape (n,); those not identifiable do not take part.
        worth: Observational worth or effect, best within contexts, shape (n,).
        exposure: Retrievals, at least 0, shape (n,).
        share: Share of the retrievals that were held out, in (0, 1).

    Returns:
        Foretold lifts, float64 of shape (n,).

    Raises:
        NotIdentifiableError: If `share` is not above `MIN_SHARE`, or fewer than ten memories have a lift.

    References:
        Rubin (1979), JASA 74: regression adjustment; Kallus, Puli, Shalit (2018), Removing Hidden Confounding by
        Experimental Grounding, NeurIPS 31: a small trial corrects a large observational estimate.

    Examples:
        >>> worth = np.linspace(0.3, 0.7, 20)
        >>> truth = 0.5 * (worth - 0.5)
        >>> found = Lift(truth, truth - 0.1, truth + 0.1, np.full(20, 0.06), np.full(20, 70.0))
        >>> calibrated(found, worth, np.full(20, 50.0), share=0.05)[[0, -1]].round(2).tolist()
        [-0.1, 0.1]
    """
    if not MIN_SHARE < share < 1:
        raise NotIdentifiableError(
            f"a hold-out of {share:.1%} of the retrievals cannot calibrate worth; it takes more than "
            f"{MIN_SHARE:.0%}, or a targeted trial of fewer memories",
            value=share,
        )
    known = found.identifiable
    if known.sum() < 10:
        raise NotIdentifiableError(
            f"only {int(known.sum())} memories were both shown and held out; it takes ten, so hold out others, too",
            value=int(known.sum()),
        )
    seen = np.log1p(np.asarray(exposure, float))
    design = np.stack([np.ones_like(seen), np.asarray(worth, float), seen], axis=1)
    root = np.sqrt(found.size[known])
    slopes = np.linalg.lstsq(design[known] * root[:, None], found.value[known] * root, rcond=None)[
        0
    ]
    return np.asarray(design @ slopes)


def _variance(one: Arm) -> Floats:
    smoothed = (one.rate * one.size + 1) / (one.size + 2)
    return _ratio(smoothed * (1 - smoothed), one.size)


def _ratio(part: Floats, whole: Floats) -> Floats:
    whole = np.asarray(whole)
    return np.asarray(np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0))
