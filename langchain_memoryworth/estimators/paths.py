"""Tool paths: what of the tools that a run called makes its signature, and what is shown on one path above chance.

A path is a consequence of the memories that were shown, and no property of the task. So it is for reports: worth normalised by it
would compare a memory with nothing but the runs that it has made alike.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

LONGEST = 32
"""Names in a path; what comes after them is one `MORE`."""

MORE = "…"

LONGEST_NAME = 256
"""Characters of a name: a model may ask for a tool by any text, and the one that answers that there is none has its name."""

SIGNIFICANT = 3.0
"""Standard deviations above chance from which something counts as typical."""

LEAST = 5
"""Runs from which something is typical: of fewer, deviations say little."""

Path = tuple[str, ...]
_T = TypeVar("_T", bound=Hashable)


def follow(path: Path, names: Iterable[str]) -> Path:
    """A path that goes on with the tools called next; one called several times in a row is there once.

    Names are cut, and what no encoding has in them is a question mark.

    Examples:
        >>> follow(("search",), ["search", "read", "search"])
        ('search', 'read', 'search')
        >>> len(follow((), map(str, range(99))))
        33
    """
    for called in names:
        name = called[:LONGEST_NAME].encode(errors="replace").decode()
        if len(path) <= LONGEST and path[-1:] != (name,):
            path += (name if len(path) < LONGEST else MORE,)
    return path


def joined(path: Path, more: Path) -> Path:
    """A path that goes on with another; where that begins as this one ends, it tells the same calls once more.

    So a step that is done again says nothing new, nor does the tool that a person was asked in.

    Examples:
        >>> joined(("search", "ask"), ("ask", "send")), joined(("search", "ask"), ("search", "ask"))
        (('search', 'ask', 'send'), ('search', 'ask'))
    """
    most = min(len(path), len(more))
    same = next((n for n in range(most, 0, -1) if path[-n:] == more[:n]), 0)
    return follow(path, more[same:])


def typical(
    here: Mapping[_T, int], runs: int, everywhere: Mapping[_T, int], all_runs: int
) -> list[_T]:
    """What is in some of the runs more often than if they were drawn at random from all, the most surprising first.

    Args:
        here: In how many of these runs each thing is.
        runs: How many these are, at least 1.
        everywhere: In how many of all runs each is, these among them.
        all_runs: How many runs there are.

    References:
        Mean and variance of the hypergeometric distribution: n K/N and n K (N - K) (N - n) / (N^2 (N - 1)).

    Examples:
        >>> typical({"a": 20, "b": 10}, 20, {"a": 25, "b": 50}, 100)
        ['a']
    """
    found = {}
    for thing, count in here.items():
        total = everywhere[thing]
        spread = runs * total * (all_runs - total) * (all_runs - runs)
        if count >= LEAST and spread:  # else it is in all runs, or these are all
            deviation = math.sqrt(spread / (all_runs - 1)) / all_runs
            found[thing] = (count - runs * total / all_runs) / deviation
    above = [thing for thing, score in found.items() if score >= SIGNIFICANT]
    return sorted(above, key=lambda thing: (-found[thing], str(thing)))
