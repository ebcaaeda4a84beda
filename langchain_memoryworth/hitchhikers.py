"""Which memories cannot be told apart because they are almost always shown together, and what would separate them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.lift import retrievals_needed

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
    """

    first: Hashable
    second: Hashable
    together: int
    error: int
    first_alone: int
    second_alone: int
    overlap: float
    separating: int

    @property
    def remedy(self) -> str:
        """What would separate them, in words."""
        return (
            f"{self.first} and {self.second} were shown together in {self.together} of "
            f"{self.together + min(self.first_alone, self.second_alone)} episodes: hold one of them "
            f"out at one half for {self.separating} retrievals, merge them, or ask for diversity"
        )


@dataclass(slots=True)
class CoRetrievals:
    """Counts of memories and of the pairs shown together most, in bounded memory.

    Space-saving: when the table of pairs is full, a new pair takes the place of the rarest one and inherits its count as a
    possible error. Any pair shown together in more than `pairs seen / capacity` episodes is in the table.

    Args:
        capacity: Pairs that are kept, at least 1.

    References:
        Metwally, Agrawal, El Abbadi (2005), Efficient computation of frequent and top-k elements in data streams, ICDT.

    Examples:
        >>> seen = CoRetrievals()
        >>> for t in range(100):
        ...     seen.update(["anchor", "rider"] if t % 20 else ["anchor", "other"])
        >>> [(c.first, c.second, c.together, c.first_alone) for c in seen.report()]
        [('anchor', 'rider', 95, 5)]
    """

    capacity: int = CAPACITY
    shown: dict[Hashable, int] = field(default_factory=dict)
    _pairs: dict[Pair, tuple[int, int]] = field(default_factory=dict)
    _levels: dict[int, dict[Pair, None]] = field(default_factory=dict)
    _least: int = 1

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
        distinct = sorted(dict.fromkeys(memories), key=repr)
        for place, memory in enumerate(distinct):
            self.shown[memory] = self.shown.get(memory, 0) + 1
            for other in distinct[place + 1 :]:
                self._count((memory, other))

    def forget(self, memory: Hashable) -> None:
        """Remove all counts of a memory, as `erase` asks for."""
        self.shown.pop(memory, None)
        for pair in [pair for pair in self._pairs if memory in pair]:
            self._leave(pair, self._pairs.pop(pair)[0])

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
        for pair, (count, error) in self._pairs.items():
            first, second = sorted(pair, key=lambda memory: -self.shown[memory])
            overlap = min(1.0, count / self.shown[second])
            # Without the possible error, so that no pair is accused for a count that it inherited.
            if count - error < max(least, together * self.shown[second]):
                continue
            one, two = (max(0, self.shown[memory] - count) for memory in (first, second))
            found.append(Companions(first, second, count, error, one, two, overlap, needed))
        return sorted(found, key=lambda c: (-c.together, repr(c.first), repr(c.second)))

    def _count(self, pair: Pair) -> None:
        if pair in self._pairs:
            count, error = self._pairs[pair]
            self._leave(pair, count)
        elif len(self._pairs) < self.capacity:
            count, error = 0, 0
        else:
            while self._least not in self._levels:
                self._least += 1
            rarest = next(iter(self._levels[self._least]))
            self._leave(rarest, self._least)
            count = error = self._pairs.pop(rarest)[0]
        self._pairs[pair] = (count + 1, error)
        self._levels.setdefault(count + 1, {})[pair] = None
        self._least = min(self._least, count + 1)

    def _leave(self, pair: Pair, count: int) -> None:
        level = self._levels[count]
        del level[pair]
        if not level:
            del self._levels[count]


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


def members(pairs: Sequence[Companions]) -> list[list[Hashable]]:
    """The reported memories in groups that hang together, for `ridge` or a trial of each group.

    Examples:
        >>> seen = CoRetrievals()
        >>> for _ in range(50):
        ...     seen.update("abc")
        >>> members(seen.report())
        [['a', 'b', 'c']]
    """
    group: dict[Hashable, list[Hashable]] = {}
    for pair in pairs:
        one = group.setdefault(pair.first, [pair.first])
        two = group.setdefault(pair.second, [pair.second])
        if one is not two:
            one.extend(two)
            group.update(dict.fromkeys(two, one))
    return list({id(found): sorted(found, key=repr) for found in group.values()}.values())
