"""How far something that takes long has come: told to whoever asks, and to nobody otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Progress = Callable[[str, int, int], object]
"""Called with the name of a step, how much of it is done, and how much there is."""

_T = TypeVar("_T")


def unwatched(step: str, done: int, total: int) -> None:
    """The `Progress` of nobody."""


def watched(items: Sequence[_T], step: str, progress: Progress) -> Iterator[_T]:
    """Go through items and tell how far it is.

    Examples:
        >>> list(watched("ab", "letters", lambda *far: print(*far)))
        letters 0 2
        letters 1 2
        letters 2 2
        ['a', 'b']
    """
    for done, item in enumerate(items):
        progress(step, done, len(items))
        yield item
    progress(step, len(items), len(items))
