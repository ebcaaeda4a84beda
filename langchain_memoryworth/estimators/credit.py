"""Credit: how one outcome is shared among the memories that were shown.

Pure functions of (what was shown, what happened, the rule). An episode's weights are integers that sum to exactly
one unit, so that taking an outcome back leaves the counters bit for bit as they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from numbers import Real
from typing import Literal, NamedTuple

import numpy as np

from langchain_memoryworth.errors import InvalidCreditError, InvalidOutcomeError
from langchain_memoryworth.estimators.evidence import UNIT, Evidence, squared_weight


class Shown(NamedTuple):
    """What a credit rule sees of one memory in one episode.

    Attributes:
        memory_id: Id of the memory.
        rank: First rank in the run, 0 is the best.
        similarity: Highest cosine in the run, in [-1, 1], or None if the source gave none.
        age: Time from adding the memory to showing it.
        lag: Time from when it was last shown to when the last of the episode's memories was, at least 0.
    """

    memory_id: str
    rank: int
    similarity: float | None
    age: timedelta
    lag: timedelta = timedelta(0)


CreditFunction = Callable[[Sequence[Shown]], Sequence[float]]
"""A rule of the user: the shown memories in, one non-negative weight each out, on any scale."""

CreditName = Literal["uniform", "similarity", "similarity_recency", "reciprocal_rank", "first"]
"""The rules of the paper's section 3.3: 1/k; proportional to the similarity; the same times recency. And two by position,
for readers that prefer what stands first, or look at nothing else."""


class Credit(NamedTuple):
    """The part of one outcome that goes to one memory, in units of 2**-32.

    Attributes:
        weight: w, the memory's share of the episode.
        positive: w * reward.
        size: min(1, k*w), the memory's part of the evidence size.
        surprise: size * (reward - what was to be expected without this memory).
    """

    weight: int = 0
    positive: int = 0
    size: int = 0
    surprise: int = 0

    @property
    def evidence(self) -> Evidence:
        """The same as an addend of the memory's counters."""
        weight, positive, size, surprise = self
        if not size:
            return Evidence()
        return Evidence(positive, weight - positive, size, squared_weight(weight), 1, surprise)


NO_CREDIT = Credit()


def reward_of(outcome: bool | float) -> float:
    """Check an outcome and give it as a reward.

    Args:
        outcome: True or False, or a reward in [0, 1].

    Raises:
        InvalidOutcomeError: For anything else: "INCORRECT" must never become a success.

    Examples:
        >>> reward_of(True), reward_of(0.25)
        (1.0, 0.25)
    """
    # Compared before it is converted: a huge int has no float. False for NaN.
    if isinstance(outcome, (Real, np.bool_)) and 0 <= outcome <= 1:
        return float(outcome)
    raise InvalidOutcomeError(
        f"{outcome!r} is no outcome: give True or False, or a reward in [0, 1] "
        "(for the paper's +1/-1 use signed_outcome)",
        value=outcome,
    )


def signed_outcome(y: float) -> bool:
    """The paper's outcome y in {+1, -1} as success or failure.

    Raises:
        InvalidOutcomeError: If `y` is neither.

    References:
        When to Forget, section 3.1 and assumption (A4).

    Examples:
        >>> signed_outcome(-1)
        False
    """
    if isinstance(y, Real) and not isinstance(y, bool) and y in (1, -1):
        return bool(y > 0)
    raise InvalidOutcomeError(f"{y!r} is no signed outcome: give +1 or -1", value=y)


def scores(
    shown: Sequence[Shown], rule: CreditName | CreditFunction, half_life: timedelta | None
) -> list[float]:
    """The raw score of each shown memory under a rule, non-negative, on any scale.

    Negative similarities count as 0. If a similarity is not known, or not finite, the whole episode falls back to
    uniform: a guess for one memory would move credit to or from all the others.

    By position, p being 0 for what stood first among the memories shown, "reciprocal_rank" is `1 / (1 + p)`, and "first" is
    1 where p is 0. What several searches of a run have put in the same place shares it.

    Raises:
        InvalidCreditError: If a user's function gives a wrong number of weights, a negative or a non-finite one.

    References:
        When to Forget, section 3.3. Readers go by position: Craswell, Zoeter, Taylor, Ramsey (2008), An experimental
        comparison of click position-bias models; Liu et al. (2024), Lost in the middle. The discount is that of the mean
        reciprocal rank, Voorhees (1999), The TREC-8 question answering track report.

    Examples:
        >>> shown = [Shown(name, rank, None, timedelta(0)) for name, rank in (("a", 0), ("b", 2), ("c", 2))]
        >>> scores(shown, "reciprocal_rank", None), scores(shown, "first", None)
        ([1.0, 0.5, 0.5], [1.0, 0.0, 0.0])
    """
    if callable(rule):
        return _checked(rule, shown)
    if rule == "uniform":
        return [1.0] * len(shown)
    if rule in ("reciprocal_rank", "first"):
        positions = _positions(shown)
        return [float(p == 0) if rule == "first" else 1.0 / (1 + p) for p in positions]
    known = [
        m.similarity for m in shown if m.similarity is not None and math.isfinite(m.similarity)
    ]
    if len(known) < len(shown):
        return [1.0] * len(shown)
    positive = [max(0.0, s) for s in known]
    if rule == "similarity_recency" and half_life is not None:
        return [
            s * 0.5 ** max(0.0, m.age / half_life) for s, m in zip(positive, shown, strict=True)
        ]
    return positive


def _positions(shown: Sequence[Shown]) -> list[int]:
    """Place of each among what was shown, from 0: ranks, without the gaps that filters left."""
    place = {rank: p for p, rank in enumerate(sorted({m.rank for m in shown}))}
    return [place[m.rank] for m in shown]


def discounted(
    raw: Sequence[float], shown: Sequence[Shown], half_life: timedelta | None
) -> list[float]:
    """Scores with a temporal discount: what was in front of the model longer before the outcome gets less.

    The discount from showing memory i at t_i to an outcome at T is `0.5 ** ((T - t_i) / half_life)`. Weights sum to 1,
    so the part that all have in common cancels: with L the time of the last showing, `0.5 ** ((L - t_i) / half_life)`
    gives the same weights, whenever the outcome comes. So an outcome that is late, or corrected, moves no credit.

    Args:
        raw: Non-negative scores.
        shown: The memories, with `lag` = L - t_i.
        half_life: Time in which a score falls to one half; None means no discount.

    References:
        Sutton and Barto (2018), Reinforcement Learning, section 12.1: credit decays exponentially with the time
        between action and outcome; a memory that is shown again starts anew, as with replacing traces (section 12.5,
        and Singh and Sutton 1996). The paper's section 2 has all memories of a run shown at once, where this is 1.

    Examples:
        >>> day = timedelta(days=1)
        >>> turns = [Shown("first turn", 0, None, day, lag=day), Shown("last turn", 0, None, day)]
        >>> normalised(discounted([1.0, 1.0], turns, half_life=day), 0.0)
        [0.3333333333333333, 0.6666666666666666]
    """
    if half_life is None:
        return list(raw)
    return [r * 0.5 ** (m.lag / half_life) for r, m in zip(raw, shown, strict=True)]


def _checked(rule: CreditFunction, shown: Sequence[Shown]) -> list[float]:
    given = rule(shown)
    try:
        weights = [float(w) for w in given]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidCreditError(
            f"the credit rule gave {given!r} ({error}); give a list of numbers", value=given
        ) from error
    if len(weights) != len(shown):
        raise InvalidCreditError(
            f"the credit rule gave {len(weights)} weights for {len(shown)} memories; give one for each",
            value=given,
        )
    if not all(math.isfinite(w) and w >= 0 for w in weights):
        raise InvalidCreditError(
            f"the credit rule gave {weights}; weights must be finite and not negative", value=given
        )
    return weights


def normalised(raw: Sequence[float], w_min: float) -> list[float]:
    """Scores as weights that sum to 1, none below the floor of assumption (A5).

    With `f = min(w_min, 1/k)` and `w` the normalised scores: `w' = f + (1 - k f) w`. All-zero scores give 1/k, and
    so does any k above 1/w_min.

    Args:
        raw: Non-negative scores of the k shown memories, on any scale.
        w_min: The floor, in [0, 1].

    References:
        When to Forget, section 3.1 (weights sum to 1) and assumption (A5).

    Examples:
        >>> normalised([3.0, 1.0], 0.0)
        [0.75, 0.25]
        >>> normalised([0.0, 0.0], 0.01)
        [0.5, 0.5]
        >>> [round(w, 4) for w in normalised([1.0, 0.0, 0.0, 0.0], 0.01)]
        [0.97, 0.01, 0.01, 0.01]
    """
    k = len(raw)
    top = max(raw, default=0.0)
    if top <= 0.0:
        return [1.0 / k] * k
    scaled = [s / top for s in raw]  # first, or the sum of very large scores would overflow
    total = math.fsum(scaled)  # the same on every Python; 3.12 changed what sum() rounds
    floor = min(w_min, 1.0 / k)
    return [floor + (1.0 - k * floor) * (s / total) for s in scaled]


def to_units(weights: Sequence[float]) -> list[int]:
    """Weights that sum to 1 as integers that sum to exactly one unit, by largest remainder.

    Examples:
        >>> units = to_units([1 / 3] * 3)
        >>> sum(units) == UNIT, max(units) - min(units)
        (True, 1)
    """
    exact = [w * UNIT for w in weights]
    units = [int(x) for x in exact]
    missing = UNIT - sum(units)
    if missing:
        order = sorted(range(len(units)), key=lambda i: (units[i] - exact[i], i))
        step = 1 if missing > 0 else -1
        for n in range(abs(missing)):  # fewer than k: each rounding lost less than one unit
            units[order[n % len(order)]] += step
    return units


def settle(
    shown: Sequence[Shown],
    reward: float | None,
    used: Collection[str] | Mapping[str, float] | None = None,
    *,
    rule: CreditName | CreditFunction = "uniform",
    w_min: float = 0.01,
    half_life: timedelta | None = None,
    discount: timedelta | None = None,
) -> list[Credit]:
    """Share one outcome among the memories that were shown.

    Args:
        shown: The distinct memories shown in the episode.
        reward: In [0, 1], or None if nothing is known: then nobody gets anything.
        used: Ids of the memories that the result was made from. They share the weight above the floor whatever the
            rule: `(1 - (k-u) f) / u` each, the others `f`. Or a share for each, and they are the scores. If it is empty, the
            result was made from none of them: then nobody gets anything. None: not known, the rule decides.
        rule: A `CreditName`, or a function.
        w_min: Floor of the weights, assumption (A5).
        half_life: Of the recency factor in "similarity_recency".
        discount: Half-life of the temporal discount, see `discounted`; it is part of the rule, so not used with `used`.

    Returns:
        One credit per shown memory, in the same order.

    References:
        When to Forget, sections 3.1 to 3.3, eq. (2) and (3).

    Examples:
        >>> day = timedelta(days=1)
        >>> pair = [Shown("a", 0, 0.9, day), Shown("b", 1, 0.3, day)]
        >>> [c.evidence.hits_positive for c in settle(pair, 1.0)]
        [0.5, 0.5]
        >>> [round(c.weight / UNIT, 4) for c in settle(pair, 1.0, used=["b"])]
        [0.01, 0.99]
        >>> [round(c.weight / UNIT, 4) for c in settle(pair, 1.0, used={"b": 0.9, "a": 0.3}, w_min=0.0)]
        [0.25, 0.75]
    """
    if reward is None or not shown:
        return [NO_CREDIT] * len(shown)
    if used is None:
        raw = discounted(scores(shown, rule, half_life), shown, discount)
    else:
        shares = used if isinstance(used, Mapping) else dict.fromkeys(used, 1.0)
        raw = [shares.get(m.memory_id, 0.0) for m in shown]
        if not any(raw):
            return [NO_CREDIT] * len(shown)
    weights = normalised(raw, w_min)
    k = len(shown)
    return [
        Credit(
            weight=units,
            positive=round(units * reward),
            # From the weight before rounding: k * (1/k) is one retrieval, not one minus 2**-32.
            size=round(min(1.0, k * weight) * UNIT),
        )
        for weight, units in zip(weights, to_units(weights), strict=True)
    ]


@lru_cache(maxsize=256)
def equal_shares(k: int, reward: float, w_min: float) -> tuple[Credit, ...]:
    """`settle` of k memories by uniform credit without a discount, which depends on nothing else of them.

    Examples:
        >>> [c.weight / UNIT for c in equal_shares(2, 1.0, 0.01)]
        [0.5, 0.5]
    """
    anybody = Shown("", 0, None, timedelta(0))
    return tuple(settle([anybody] * k, reward, w_min=w_min))
