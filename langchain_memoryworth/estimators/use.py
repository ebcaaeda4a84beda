"""What is said of which memories a result was made from: by name, or by how much.

One form for all of it, whichever door it came in by: said twice it is one thing, and a correction settles what it settled
the first time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from numbers import Real

from langchain_memoryworth.errors import InvalidInputError

Use = tuple[str, ...] | Mapping[str, float]
"""Ids of the memories used, or the share of each, in (0, 1] of the one used most; `()` means that none was."""

PARTS = 10_000
"""A share is kept in ten-thousandths: what an outcome is divided by is no more exact than that."""


def checked_use(said: Iterable[str] | Mapping[str, float]) -> Use:
    """Use in one form.

    Ids are sorted. Weights may be on any scale: they become shares of the largest, without those that are nothing beside
    it; where all of them are equal, the ids alone say it.

    Args:
        said: Ids, or a weight for each, finite and not negative.

    Raises:
        InvalidInputError: For anything else.

    Examples:
        >>> checked_use(["b", "a", "b"]), checked_use({"b": 2, "a": 2, "c": 0})
        (('a', 'b'), ('a', 'b'))
        >>> checked_use({"b": 4, "a": 1})
        {'a': 0.25, 'b': 1.0}
    """
    weights = said if isinstance(said, Mapping) else dict.fromkeys(said, 1.0)
    if not all(isinstance(i, str) for i in weights):
        raise InvalidInputError(f"{list(weights)!r} are no memory ids; give strings", value=said)
    if not all(_is_weight(w) for w in weights.values()):
        raise InvalidInputError(
            f"{dict(weights)!r} are no weights; give a finite number of at least 0 for each id",
            value=said,
        )
    top = max(map(float, weights.values()), default=0.0)
    if top == 0.0:
        return ()
    shares = {i: round(float(w) / top * PARTS) / PARTS for i, w in sorted(weights.items())}
    kept = {i: share for i, share in shares.items() if share}
    return kept if len(set(kept.values())) > 1 else tuple(kept)


def _is_weight(weight: float) -> bool:
    try:  # as a float first: beside a narrow one of numpy a bound would overflow
        return isinstance(weight, Real) and 0 <= float(weight) < math.inf
    except OverflowError:
        return False


def shares_of(use: Use) -> Mapping[str, float]:
    """The share of each memory used.

    Examples:
        >>> shares_of(("a", "b"))
        {'a': 1.0, 'b': 1.0}
    """
    return use if isinstance(use, Mapping) else dict.fromkeys(use, 1.0)


def to_document(use: Use) -> str:
    """Use as the database keeps it: a JSON list of ids, or an object of shares."""
    return json.dumps(use)


def from_document(document: str) -> Use:
    """The inverse of `to_document`.

    Examples:
        >>> from_document(to_document(("a", "b"))), from_document(to_document({"a": 1.0, "b": 0.5}))
        (('a', 'b'), {'a': 1.0, 'b': 0.5})
    """
    use: list[str] | dict[str, float] = json.loads(document)
    return tuple(use) if isinstance(use, list) else use
