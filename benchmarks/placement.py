"""Where the copies of what is compared lie in memory, which must be a matter of chance for both sides.

Pages that the process had before lie scattered, new ones next to each other, and the processor finds neighbours at once: a scan of
10,000 vectors takes a third longer in the ones than in the others. Who is built first would get all of the bad ones.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.timing import COPIES

_MMAP_THRESHOLD = -3
_LEAST, _MOST = 2**17, 2**25
"""Of glibc: `M_MMAP_THRESHOLD`, what it is at first, and what it becomes at most by itself."""


def copies(*sides: Callable[[], Any], order: random.Random, count: int = COPIES) -> list[list[Any]]:
    """Some copies of each side, made one after the other in random order, each in pages of its own."""
    made: list[list[Any]] = [[] for _ in sides]
    turns = [number for number in range(len(sides)) for _ in range(count)]
    order.shuffle(turns)
    with _own_pages():
        for number in turns:
            made[number].append(sides[number]())
    return made


@contextmanager
def _own_pages() -> Iterator[None]:
    """Large arrays that are made inside get new pages from the system, where the C library is glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    mallopt(_MMAP_THRESHOLD, _LEAST)
    try:
        yield
    finally:
        mallopt(_MMAP_THRESHOLD, _MOST)
