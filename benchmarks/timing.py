"""Timing of two sides in turn, so that what the machine does meanwhile happens to both.

A single copy of an index may be faster or slower than another by where it lies in memory; so each side
comes in several copies (see `placement`), and a round is one call of every copy, in random order. Where calls are short, some rounds make a
block, and a block's figure is the median of its calls: a call that the scheduler broke off says nothing of ours.
"""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import NamedTuple

COPIES = 3
_BLOCKS = 20
_MOST_ROUNDS = 10


class Spread(NamedTuple):
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


class Side(NamedTuple):
    """One copy of one of the two things that are compared.

    Attributes:
        work: What is timed; gets the number of the round, so that both sides answer the same question.
        before: What must come first and is not timed.
    """

    work: Callable[[int], object]
    before: Callable[[int], object] | None = None


class Pairs(NamedTuple):
    """What a call of a side and of its reference took, block by block, in seconds."""

    ours: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def ratio(self) -> Spread:
        """How many times as long ours takes."""
        return Spread.of([a / b for a, b in zip(self.ours, self.reference, strict=True)])

    def beyond(self, factor: float = 1.0) -> Spread:
        """Seconds that ours takes more than `factor` times the reference."""
        return Spread.of([a - factor * b for a, b in zip(self.ours, self.reference, strict=True)])


def in_turn(
    ours: Sequence[Side], reference: Sequence[Side], *, rounds: int, warmup: int = 5
) -> Pairs:
    """Time two sides in turn, without garbage collection inside.

    Args:
        ours: Copies of what is judged.
        reference: Copies of what it is compared with.
        rounds: At least 1.
        warmup: Rounds before them that do not count.
    """
    taken = all_in_turn([ours, reference], rounds=rounds, warmup=warmup)
    return Pairs(taken[0], taken[1])


def all_in_turn(
    sides: Sequence[Sequence[Side]], *, rounds: int, warmup: int = 5
) -> list[tuple[float, ...]]:
    """`in_turn` for any number of sides; seconds by side and block."""
    size = max(1, min(_MOST_ROUNDS, rounds // _BLOCKS))
    calls = [(number, side) for number, copies in enumerate(sides) for side in copies]
    order = random.Random(0)
    taken: list[list[float]] = [[] for _ in sides]
    spent: list[list[int]] = [[] for _ in sides]
    gc.collect()
    gc.disable()
    try:
        for i in range(-warmup, rounds):
            order.shuffle(calls)
            for number, side in calls:
                spent[number].append(_timed(side, i + warmup))
            if i < 0 or (i + 1) % size == 0:
                for times, block in zip(taken, spent, strict=True):
                    if i >= 0:
                        times.append(statistics.median(block) / 1e9)
                    block.clear()
                gc.collect()
    finally:
        gc.enable()
    return [tuple(t) for t in taken]


def _timed(side: Side, number: int) -> int:
    if side.before is not None:
        side.before(number)
    start = perf_counter_ns()
    side.work(number)
    return perf_counter_ns() - start
