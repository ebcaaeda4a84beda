"""Which of the paper's assumptions A1-A6 the user's own store supports, and what to do where it does not.

Theorem 4.1 (worth converges to the success rate given retrieval) needs all six. None can be proven from data; each can be
seen to fail. So a finding says "supported" only in the sense of "nothing here speaks against it".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from langchain_memoryworth.errors import InvalidInputError

State = Literal["supported", "doubtful", "unknown"]

FLOOR = 0.001
"""Retrievals per episode below which a memory counts as not explored (A2)."""
COUPLED = 0.9
"""Share of its episodes that a memory spends with one and the same companion, from which the two are one (A3)."""
SPREAD = 0.05
"""Standard deviation of base rates beyond chance that matters: an eighth of the distance from 0 to theta_low."""
SIGNIFICANT = 0.01
FEW = 20
"""Memories, or episodes, below which nothing is said."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the data say of one assumption.

    Attributes:
        assumption: "A1" to "A6".
        state: "supported", "doubtful", or "unknown" where the data do not suffice.
        figure: The number behind it, nan if unknown; what it is stands in `why`.
        why: In words, with the number.
        remedy: What to do about it; empty if there is nothing to do.
    """

    assumption: str
    state: State
    figure: float
    why: str
    remedy: str = ""

    def __str__(self) -> str:
        advice = f" {self.remedy}." if self.remedy else ""
        return f"{self.assumption} {self.state}: {self.why}.{advice}"


def overdispersion(successes: ArrayLike, episodes: ArrayLike) -> tuple[float, float]:
    """Do groups of episodes differ in their success rate more than chance allows?

    With n_i episodes and s_i successes in group i of g, and p^ the common rate, X = sum (s_i - n_i p^)**2 / (n_i p^ (1 - p^))
    is about chi-square with g - 1 degrees of freedom if the rates are equal; beyond that, by the method of moments, their
    variance is p^ (1 - p^) (X - (g - 1)) / (N - sum n_i**2 / N).

    Args:
        successes: s_i, rewards summed, shape (g,).
        episodes: n_i, shape (g,); groups without episodes do not count.

    Returns:
        The standard deviation of the rates beyond chance, in [0, 1], and the probability of such an X by chance; (0, 1)
        with fewer than two groups, or if all outcomes are alike.

    Raises:
        InvalidInputError: If the shapes differ, or there are more successes than episodes.

    References:
        Kleinman (1973), Proportions with extraneous variance. Wilson and Hilferty (1931) for the tail of chi-square.

    Examples:
        >>> spread, chance = overdispersion([80, 30], [100, 100])
        >>> round(spread, 2), chance < 1e-6
        (0.35, True)
    """
    s, n = np.asarray(successes, dtype=np.float64), np.asarray(episodes, dtype=np.float64)
    if s.shape != n.shape or not np.all((s >= 0) & (s <= n + 1e-9)):
        raise InvalidInputError("give for each group its successes and its episodes, 0 <= s <= n")
    s, n = s[n > 0], n[n > 0]
    total = float(n.sum())
    common = float(s.sum()) / total if total else 0.0
    variance = common * (1 - common)
    degrees = len(n) - 1
    if degrees < 1 or variance <= 0:
        return 0.0, 1.0
    x = float(((s - n * common) ** 2 / (n * variance)).sum())
    beyond = variance * (x - degrees) / (total - float((n**2).sum()) / total)
    scale = 2 / (9 * degrees)
    z = ((x / degrees) ** (1 / 3) - (1 - scale)) / math.sqrt(scale)
    return math.sqrt(min(max(beyond, 0.0), 1.0)), 1 - NormalDist().cdf(z)


def stationarity(successes: ArrayLike, episodes: ArrayLike) -> Finding:
    """A1: the joint distribution of retrieval and outcome does not change over time.

    Args:
        successes: Rewards summed in each period (a day, or a hundred episodes), shape (periods,).
        episodes: Settled episodes of each period, same shape.

    Examples:
        >>> str(stationarity([70, 71, 69, 40], [100] * 4)).split(":")[0]
        'A1 doubtful'
    """
    groups = int(np.count_nonzero(np.asarray(episodes)))
    if groups < 2 or np.sum(episodes) < FEW:
        return Finding("A1", "unknown", math.nan, f"{groups} periods with outcomes")
    return _spread(
        "A1",
        overdispersion(successes, episodes),
        f"the success rate moves between {groups} periods",
        "Judge relative to the base rate (margin_low), watch the change detector, or discount old outcomes",
    )


def exploration(retrievals: ArrayLike, episodes: ArrayLike, *, floor: float = FLOOR) -> Finding:
    """A2: every memory is retrieved with at least some probability.

    Args:
        retrievals: Episodes in which each memory was shown, shape (m,).
        episodes: Episodes since each memory was stored, a number or shape (m,).
        floor: Retrievals per episode, above 0.

    Examples:
        >>> print(exploration([5] * 15 + [0] * 15, 1_000).why)
        50% of 30 memories are retrieved in less than 0.1% of episodes
    """
    shown, alive = np.broadcast_arrays(
        np.asarray(retrievals, dtype=np.float64), np.asarray(episodes, dtype=np.float64)
    )
    # Young memories have not had their chance yet: one retrieval is to be expected in 1 / floor episodes.
    old = alive >= 1 / floor
    if old.sum() < FEW:
        why = f"{int(old.sum())} memories have been there for {1 / floor:.0f} episodes"
        return Finding("A2", "unknown", math.nan, why)
    share = float((shown[old] < floor * alive[old]).mean())
    why = f"{share:.0%} of {int(old.sum())} memories are retrieved in less than {floor:.1%} of episodes"
    if share <= 0.1:
        return Finding("A2", "supported", share, why)
    remedy = "Raise `exploration`, or take their worth for unknown: it will not converge"
    return Finding("A2", "doubtful", share, why, remedy)


def independence(
    coupling: ArrayLike, successes: ArrayLike = (), episodes: ArrayLike = ()
) -> Finding:
    """A3: given the past, whether a memory is retrieved says nothing of the outcome.

    It fails in two ways that can be seen: a memory always comes with the same companion and shares its outcomes, or
    contexts differ in difficulty, and which memories come up depends on the context.

    Args:
        coupling: For each memory with enough retrievals the highest share of its episodes that it spends with one other
            memory, in [0, 1], shape (m,).
        successes: Rewards summed in each context, shape (contexts,); empty if there are none.
        episodes: Settled episodes of each context, same shape.

    Examples:
        >>> independence([0.3] * 30, [90, 30], [100, 100]).state, independence([0.3] * 30).state
        ('doubtful', 'unknown')
    """
    companions = np.asarray(coupling, dtype=np.float64)
    coupled = float((companions >= COUPLED).mean()) if len(companions) else 0.0
    if len(companions) >= FEW and coupled > 0.1:
        why = f"{coupled:.0%} of {len(companions)} memories spend {COUPLED:.0%} of their episodes with one companion"
        remedy = "Read the co-retrieval report, set a diversity floor or a hold-out for those pairs"
        return Finding("A3", "doubtful", coupled, why, remedy)
    groups = int(np.count_nonzero(np.asarray(episodes)))
    if len(companions) < FEW or groups < 2:
        why = f"{len(companions)} memories with enough retrievals, {groups} contexts with outcomes"
        return Finding(
            "A3", "unknown", math.nan, why, "Give contexts, so that difficulty can be seen"
        )
    return _spread(
        "A3",
        overdispersion(successes, episodes),
        f"the success rate differs between {groups} contexts",
        "Rank and judge within contexts (worth minus the context's base rate)",
    )


def bounded_outcomes() -> Finding:
    """A4: outcomes are bounded. Every outcome is checked when it is recorded.

    Examples:
        >>> bounded_outcomes().state
        'supported'
    """
    return Finding("A4", "supported", 1.0, "every reward is checked to lie in [0, 1]")


def minimum_weight(at_floor: int, exposures: int, *, w_min: float) -> Finding:
    """A5: no weight is arbitrarily small.

    Args:
        at_floor: Credited exposures whose weight is not above `w_min`.
        exposures: All credited exposures.
        w_min: The floor, in [0, 1].

    Examples:
        >>> minimum_weight(900, 1_000, w_min=0.01).state, minimum_weight(0, 1_000, w_min=0.0).state
        ('doubtful', 'doubtful')
    """
    if w_min <= 0:
        return Finding("A5", "doubtful", 0.0, "there is no floor", "Set w_min, for example to 0.01")
    if exposures < FEW:
        return Finding("A5", "unknown", math.nan, f"{exposures} exposures with an outcome")
    share = at_floor / exposures
    why = f"{share:.0%} of {exposures} exposures have the smallest weight, {w_min:g}"
    if share <= 0.5:
        return Finding("A5", "supported", share, why)
    remedy = "Their memories collect next to no evidence: check that use is reported, or share credit evenly"
    return Finding("A5", "doubtful", share, why, remedy)


def constant_rates(changed: ArrayLike) -> Finding:
    """A6: a memory's success rate given retrieval is the same at all times.

    Args:
        changed: For each memory with enough retrievals, whether the change detector finds that its present regime is
            not its whole life, bool of shape (m,).

    Examples:
        >>> constant_rates([True] * 10 + [False] * 30).state
        'doubtful'
    """
    flags = np.asarray(changed, dtype=np.bool_)
    if len(flags) < FEW:
        return Finding("A6", "unknown", math.nan, f"{len(flags)} memories with enough retrievals")
    share = float(flags.mean())
    why = f"{share:.0%} of {len(flags)} memories do not do as they did"
    if share <= 0.1:
        return Finding("A6", "supported", share, why)
    remedy = "Judge by the current regime (the change detector) or discount old outcomes"
    return Finding("A6", "doubtful", share, why, remedy)


def _spread(name: str, found: tuple[float, float], what: str, remedy: str) -> Finding:
    spread, chance = found
    why = f"{what} by {spread:.2f} (standard deviation beyond chance)"
    if spread > SPREAD and chance < SIGNIFICANT:
        return Finding(name, "doubtful", spread, why, remedy)
    return Finding(name, "supported", spread, why)
