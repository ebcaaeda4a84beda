"""What each memory adds to the success of an episode: an online additive model of companions and context.

Success is taken as `base of the context + sum of the effects of the memories shown`. Each settled exposure keeps the
expectation it met: the base and the companions' effects of that moment, the memory's own left out. What the outcome was
above or below it is the memory's surprise, and its effect is the shrunk mean of its surprises. So the state is one sum
per memory beside its evidence size; a correction takes back exactly what was stored, and nothing is replayed. The batch
solution of the same model is `ridge`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.evidence import UNIT

STRENGTH = 64.0
"""Retrievals that the prior (effect 0) is worth: noise variance .25 over a prior variance of .0625**2. A memory that shares its
outcomes with seven others moves them by about that; with less, a few unlucky ones among them rank it away for long."""

NOISE = 0.25
"""Variance of one outcome, the most that a number in [0, 1] can have."""

Floats = NDArray[np.float64]


def expected(
    base: float, effects: Sequence[float], sizes: Sequence[float] | None = None
) -> list[float]:
    """The success expected of one episode, for each memory shown, without that memory's own effect.

    `e_m = clip(base + sum over the companions j of size_j * effect_j, 0, 1)`: one step of backfitting for each exposure.

    Args:
        base: Success rate of the episode's context, in [0, 1].
        effects: Effects of the k memories shown, as they are before this outcome.
        sizes: How much each memory took part: min(1, k*w), in [0, 1]; 1 for all if None.

    Returns:
        Expectations in [0, 1], one for each memory; the order of the memories does not change them.

    Raises:
        InvalidInputError: If a number is not finite.

    References:
        Buja, Hastie, Tibshirani (1989), Linear Smoothers and Additive Models, Annals of Statistics 17: backfitting
        regresses what the other terms leave over. In one pass over the episodes it follows the flow
        `d effect / d log t = b - (I + C) effect`, C the companion shares P(j | m); I + C is similar to a positive
        semi-definite matrix, so it settles where least squares has its solution.

    Examples:
        >>> [round(e, 9) for e in expected(0.5, [0.2, -0.1, 0.0])]
        [0.4, 0.7, 0.6]
    """
    own = effects if sizes is None else [e * s for e, s in zip(effects, sizes, strict=True)]
    whole = base + math.fsum(own)  # exact, so that the order of the memories cannot matter
    if not math.isfinite(whole):
        raise InvalidInputError(
            f"base and effects must be finite, got {base} and {list(own)}", value=effects
        )
    return [min(1.0, max(0.0, whole - e)) for e in own]


def surprise(reward: float, expectation: float, size: int = UNIT) -> int:
    """What one outcome adds to the surprise of one memory: `size * (reward - expectation)`, in whole units.

    Args:
        reward: Outcome in [0, 1].
        expectation: Of `expected`, in [0, 1], as it was stored with the exposure.
        size: The exposure's part of the evidence size, in units of 2**-32.

    Returns:
        Addend in units of 2**-32. An integer, so a correction takes back what was added.

    Raises:
        InvalidInputError: If a number is not finite.

    Examples:
        >>> surprise(1.0, 0.25) / UNIT
        0.75
    """
    exact = size * (reward - expectation)
    if not math.isfinite(exact):
        raise InvalidInputError(
            f"reward and expectation must be finite, got {reward} and {expectation}", value=reward
        )
    return round(exact)


@overload
def effect(surprises: float, sizes: float, *, strength: float = ...) -> float: ...
@overload
def effect(surprises: ArrayLike, sizes: ArrayLike, *, strength: float = ...) -> Floats: ...
def effect(surprises: ArrayLike, sizes: ArrayLike, *, strength: float = STRENGTH) -> float | Floats:
    """The effect of memories: the sum of their surprises over their evidence, shrunk to 0.

    Args:
        surprises: Sums of `surprise`, in retrievals (units / `UNIT`); a number, or shape (n,).
        sizes: Evidence sizes in retrievals, at least 0, alike.
        strength: Retrievals that the prior is worth, above 0.

    Returns:
        Effects in [-1, 1]: by how much showing the memory moves the success rate; float64 of the same shape.

    Raises:
        InvalidInputError: If a number is not finite, a size negative or `strength` not above 0.

    References:
        Posterior mean of a normal effect with prior N(0, noise / strength) and outcomes of variance `noise`; Gelman et
        al. (2013), Bayesian Data Analysis, section 2.5.

    Examples:
        >>> effect(8.0, 16.0), effect([0.0, -8.0], [0.0, 64.0]).tolist()
        (0.1, [0.0, -0.0625])
    """
    found = np.asarray(_finite("surprises", surprises) / _precision(sizes, strength))
    return found if found.ndim else float(found)


def effect_of(surprise: int, size: int) -> float:
    """`effect` of one memory's counters: one outcome needs k of these, and arrays of one element cost ten times as much.

    Args:
        surprise: Sum of surprises in units of 2**-32.
        size: n in units of 2**-32, at least 0.

    Returns:
        The effect in [-1, 1], to the last bit that of `effect`.

    Examples:
        >>> effect_of(8 * UNIT, 16 * UNIT)
        0.1
    """
    return surprise / UNIT / (size / UNIT + STRENGTH)


def deviation(sizes: ArrayLike, *, strength: float = STRENGTH, noise: float = NOISE) -> Floats:
    """The posterior standard deviation of effects: `sqrt(noise / (size + strength))`.

    It counts the noise of outcomes, not what is still unknown of the companions: where few memories are always shown
    together it is too small, by a fifth to a half when 8 of 20 are shown at a time. `ridge` has the exact one.

    Args:
        sizes: Evidence sizes in retrievals, at least 0, shape (n,).
        strength: Retrievals that the prior is worth, above 0.
        noise: Variance of one outcome, in (0, .25]; `p (1 - p)` where the base rate p is known.

    Returns:
        Deviations, float64 of shape (n,).

    Raises:
        InvalidInputError: If a number is not finite, a size negative, or `strength` or `noise` not above 0.

    Examples:
        >>> deviation([0.0, 36.0]).tolist()
        [0.0625, 0.05]
    """
    return np.asarray(np.sqrt(_positive("noise", noise) / _precision(sizes, strength)))


def chance_below(mean: ArrayLike, spread: ArrayLike, threshold: float = 0.0) -> Floats:
    """P(effect < threshold) for normal posteriors; with 0 the chance that a memory does harm.

    Args:
        mean: Effects, shape (n,).
        spread: Their deviations, above 0, shape (n,).
        threshold: What to be below.

    Returns:
        Probabilities in [0, 1], float64 of shape (n,).

    Raises:
        InvalidInputError: If a number is not finite, or a deviation not above 0.

    Examples:
        >>> chance_below([0.0, -0.128155], [0.1, 0.1]).round(4).tolist()
        [0.5, 0.9]
    """
    z = (threshold - _finite("mean", mean)) / _positive("spread", spread)
    tails = [0.5 * math.erfc(-x / math.sqrt(2)) for x in np.ravel(z).tolist()]
    return np.reshape(np.array(tails, dtype=np.float64), z.shape)


def harmful(
    surprises: ArrayLike,
    sizes: ArrayLike,
    *,
    confidence: float,
    margin: float = 0.0,
    strength: float = STRENGTH,
    noise: float = NOISE,
) -> NDArray[np.bool_]:
    """Which memories do harm with enough confidence: `P(effect < -margin) >= confidence`, without computing P.

    Effects are relative to what is shown otherwise, so a good memory among better ones has one slightly below 0: the margin
    keeps it.

    Args:
        surprises: Sums of `surprise`, in retrievals, shape (n,).
        sizes: Evidence sizes in retrievals, shape (n,).
        confidence: In (.5, 1).
        margin: How much it must lower the success rate, at least 0.
        strength: Retrievals that the prior is worth.
        noise: Variance of one outcome.

    Returns:
        bool of shape (n,).

    Raises:
        InvalidInputError: As `effect` and `deviation`, or if `confidence` is not in (.5, 1) or `margin` negative.

    Examples:
        >>> harmful([-8.0, -1.0], [20.0, 20.0], confidence=0.9).tolist()
        [True, False]
    """
    if not 0.5 < confidence < 1:
        raise InvalidInputError(
            f"confidence must be in (.5, 1), got {confidence}", value=confidence
        )
    if not margin >= 0:
        raise InvalidInputError(f"margin must not be negative, got {margin}", value=margin)
    mean = effect(surprises, sizes, strength=strength)
    spread = deviation(sizes, strength=strength, noise=noise)
    return np.asarray(mean <= -margin - NormalDist().inv_cdf(confidence) * spread)


def _precision(sizes: ArrayLike, strength: float) -> Floats:
    counted = _finite("sizes", sizes)
    if counted.size and counted.min() < 0:
        raise InvalidInputError(f"sizes must not be negative, got {counted.min()}", value=sizes)
    if not 0 < strength < math.inf:
        raise InvalidInputError(f"strength must be above 0, got {strength}", value=strength)
    return np.asarray(counted + strength)


def _positive(name: str, values: ArrayLike) -> Floats:
    array = _finite(name, values)
    if array.size and array.min() <= 0:
        raise InvalidInputError(f"{name} must be above 0, got {array.min()}", value=values)
    return array


def _finite(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} must be finite, got {values!r}", value=values)
    return array
