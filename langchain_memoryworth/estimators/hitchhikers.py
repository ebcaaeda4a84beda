"""Which memories cannot be told apart because they are almost always shown together, and what would separate them."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.lift import retrievals_needed

CAPACITY = 4_096
"""Pairs that are counted at a time: those shown together most are among them, whatever the number of memories."""

TOGETHER = 0.9
"""Share of the rarer memory's episodes with the other one from which the two are reported."""

Pair = tuple[Hashable, Hashable]


class Companions(NamedTuple):
    """Two memories that are almost always shown together.

    Attributes:
        first: Id of the memory that is shown more often.
        second: Id of the other, which was hardly ever shown without the first.
        together: Episodes that showed both; at most `error` too high.
        error: By how much `together` may be too high.
        first_alone: Episodes that showed the first and not the second.
        second_alone: Episodes that showed the second and not the first.
        overlap: `together` over the episodes of the rarer one, in [0, 1].
        separating: Hold-outs of either that a lift difference of `gap` needs to show; see `CoRetrievals.report`.
        apart: Share of as many episodes that would have to show one of them alone, for their worths to tell it; infinite
            where no share is enough.
        difference: Effect of the first minus that of the second, in [-2, 2], by `ridge`; None if that was not asked
            for, or beyond the memories of one regression.
        deviation: Its posterior standard deviation: that of the prior, about .09, where the two were never apart.
    """

    first: Hashable
    second: Hashable
    together: int
    error: int
    first_alone: int
    second_alone: int
    overlap: float
    separating: int
    apart: float
    difference: float | None = None
    deviation: float | None = None

    @property
    def remedy(self) -> str:
        """What would separate them, in words."""
        diversity = (
            f"show them apart in {self.apart:.0%} of as many episodes"
            if self.apart <= 1
            else "ask for diversity over more episodes than these"
        )
        return (
            f"{self.first} and {self.second} were shown together in {self.together} of "
            f"{self.together + min(self.first_alone, self.second_alone)} episodes: hold one of them "
            f"out at one half for {self.separating} retrievals, merge them, or {diversity}"
        )


@dataclass(slots=True)
class CoRetrievals:
    """Counts of memories and of the pairs shown together most, in bounded memory.

    At twice the capacity the rarer half of the pairs is dropped. A pair that comes (back) later begins at the largest count
    ever dropped, its possible error: so a count is never too low, and too high by the error at most.

    Args:
        capacity: Pairs that survive a cut, at least 1; twice as many are kept in between.

    Attributes:
        floor: The largest count ever dropped: any pair shown together more often is in the table.

    References:
        Metwally, Agrawal, El Abbadi (2005), Efficient computation of frequent and top-k elements in data streams, ICDT
        (space-saving); the cut in blocks as in Manku and Motwani (2002), VLDB.

    Examples:
        >>> seen = CoRetrievals()
        >>> for t in range(100):
        ...     seen.update(["anchor", "rider"] if t % 20 else ["anchor", "other"])
        >>> [(c.first, c.second, c.together, c.first_alone) for c in seen.report()]
        [('anchor', 'rider', 95, 5)]
    """

    capacity: int = CAPACITY
    floor: int = 0
    shown: dict[Hashable, int] = field(default_factory=dict)
    _pairs: dict[Pair, int] = field(default_factory=dict)
    _errors: dict[Pair, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise InvalidInputError(
                f"capacity must be at least 1, got {self.capacity}", value=self.capacity
            )

    def update(self, memories: Iterable[Hashable]) -> None:
        """Count one episode.

        Args:
            memories: Ids of the memories shown, in any order; an id given twice counts once.
        """
        distinct = sorted(set(memories), key=str)
        for memory in distinct:
            self.shown[memory] = self.shown.get(memory, 0) + 1
        for pair in combinations(distinct, 2):
            if pair in self._pairs:
                self._pairs[pair] += 1
            else:
                self._pairs[pair] = self.floor + 1
                if self.floor:
                    self._errors[pair] = self.floor
        if len(self._pairs) > 2 * self.capacity:
            self._cut()

    def forget(self, memory: Hashable) -> None:
        """Remove all counts of a memory, as `erase` asks for."""
        self.shown.pop(memory, None)
        for pair in [pair for pair in self._pairs if memory in pair]:
            del self._pairs[pair]
            self._errors.pop(pair, None)

    def report(
        self,
        *,
        together: float = TOGETHER,
        least: int = 20,
        gap: float = 0.1,
        base_rate: float = 0.5,
    ) -> list[Companions]:
        """The pairs that evidence cannot tell apart, most often shown first.

        Args:
            together: Share of the rarer memory's episodes from which a pair is reported, in (0, 1].
            least: Episodes together below which a pair is left out.
            gap: Difference in lift that a trial should be able to show, in (0, 1].
            base_rate: Success rate, in (0, 1).
        """
        # Both may be held out in turn, so the difference of two lifts has twice the variance of one.
        needed = 2 * retrievals_needed(gap, base_rate=base_rate, share=0.5)
        found = []
        for pair, count in self._pairs.items():
            error = self._errors.get(pair, 0)
            first, second = sorted(pair, key=lambda memory: -self.shown[memory])
            overlap = min(1.0, count / self.shown[second])
            # Without the possible error, so that no pair is accused for a count that it inherited.
            if count - error < max(least, together * self.shown[second]):
                continue
            one, two = (max(0, self.shown[memory] - count) for memory in (first, second))
            apart = diversity_needed(gap, count, k=1)
            found.append(Companions(first, second, count, error, one, two, overlap, needed, apart))
        return sorted(found, key=lambda c: (-c.together, repr(c.first), repr(c.second)))

    def _cut(self) -> None:
        ordered = sorted(self._pairs.items(), key=lambda item: -item[1])
        self.floor = max(self.floor, ordered[self.capacity][1])
        self._pairs = dict(ordered[: self.capacity])
        self._errors = {pair: e for pair, e in self._errors.items() if pair in self._pairs}


def partings(pairs: Iterable[Companions], fixed: Collection[Hashable] = ()) -> dict[Hashable, int]:
    """Which memories to draw about so that no pair is always together, and how many draws part each of them.

    Drawn about is who is hardly ever shown without the other: of an anchor that is often alone, only its companion. The draws
    are one by one, since one draw for both would put the absence of either into the lift of the other.

    Args:
        pairs: As reported.
        fixed: Memories that are never left out.

    Returns:
        For each memory drawn about 1, or 2 where a companion of it is drawn about as well: left out with
        `1 - (1 - share)^(1/number)` each, two that are drawn about are apart in just that share, and no pair in more.

    Examples:
        >>> seen = CoRetrievals()
        >>> for t in range(100):
        ...     seen.update(["anchor", "rider"] if t % 4 else ["anchor"])
        ...     seen.update("ab")
        >>> partings(seen.report()), partings(seen.report(), fixed=["a"])
        ({'a': 2, 'b': 2, 'rider': 1}, {'b': 1, 'rider': 1})
    """
    pairs = tuple(pairs)
    drawn = {p.second for p in pairs}
    drawn |= {p.first for p in pairs if p.together >= TOGETHER * (p.together + p.first_alone)}
    drawn -= set(fixed)
    numbers: dict[Hashable, int] = {}
    for p in pairs:
        both = [m for m in p[:2] if m in drawn]
        numbers |= {m: max(len(both), numbers.get(m, 0)) for m in both}
    return numbers


def diversity_needed(gap: float, episodes: int, *, k: int, sure: float = 2.0) -> float:
    """The share of episodes that must break a habitual pair for worth to order it.

    With share f the worths of anchor and hitchhiker differ by `f gap / k`, with a standard error of
    `f sqrt(.25/(f T) + .25/((1-f) T))`; so the pair is ordered with `sure` standard errors from
    `f (1 - f) >= (sure k / (2 gap))^2 / T` on. The paper's 30% belongs to its gap, its episodes and its eye.

    Args:
        gap: Difference in utility between the two places that the anchor's companion can have: hitchhiker or other, in (0, 1].
        episodes: T, in which the pair is retrieved.
        k: Memories that share one outcome.
        sure: Standard errors.

    Returns:
        Share in (0, .5], infinity where no share is enough.

    Raises:
        InvalidInputError: If a number is out of its range.

    Examples:
        >>> round(diversity_needed(0.45, 10_000, k=8), 3), diversity_needed(0.45, 1_000, k=8)
        (0.033, inf)
    """
    if not 0 < gap <= 1 or episodes < 1 or k < 1 or not sure > 0:
        raise InvalidInputError(
            "gap must be in (0, 1], episodes and k at least 1 and sure above 0; got "
            f"{gap}, {episodes}, {k}, {sure}",
            value=gap,
        )
    product = (sure * k / (2 * gap)) ** 2 / episodes
    return math.inf if product > 0.25 else (1 - math.sqrt(1 - 4 * product)) / 2
