"""Metadata filters: a dict of conditions or a function of the document."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.documents import Document

from langchain_memoryworth.errors import InvalidInputError

Filter = Mapping[str, Any] | Callable[[Document], bool]
"""`{"lang": "en", "year": {"$gte": 2020}}`, or a function that says which documents may be served."""

_MISSING = object()
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
    "$in": lambda value, wanted: value in wanted,
    "$nin": lambda value, wanted: value not in wanted,
}


def predicate(filter: Filter) -> Callable[[Document], bool]:  # LangChain's name for it
    """A filter as a function of the document.

    Raises:
        InvalidInputError: If it is no filter, or names an operator that does not exist.

    Examples:
        >>> accepts = predicate({"year": {"$gte": 2020}})
        >>> accepts(Document("x", metadata={"year": 2021})), accepts(Document("x"))
        (True, False)
    """
    if callable(filter):
        return filter
    if not isinstance(filter, Mapping):
        raise InvalidInputError(
            f"{filter!r} is no filter; give a dict of metadata keys, or a function of the document",
            value=filter,
        )
    for key in filter:
        if str(key).startswith("$"):
            raise InvalidInputError(
                f"unknown operator {key!r} where a metadata key is expected; for more than conditions "
                "that all hold, give a function of the document",
                value=filter,
            )
    tests = [(key, _condition(key, wanted)) for key, wanted in filter.items()]
    return lambda document: all(test(document.metadata.get(key, _MISSING)) for key, test in tests)


def _condition(key: str, wanted: Any) -> Callable[[Any], bool]:
    operators = isinstance(wanted, Mapping) and any(str(k).startswith("$") for k in wanted)
    if not operators:
        return lambda value: bool(value == wanted)
    unknown = [k for k in wanted if k not in _COMPARE]
    if unknown:
        raise InvalidInputError(
            f"unknown operator {unknown[0]!r} for metadata key {key!r}; there are "
            f"{', '.join(_COMPARE)}",
            value=wanted,
        )
    return lambda value: (
        value is not _MISSING
        and all(_holds(_COMPARE[name], value, operand) for name, operand in wanted.items())
    )


def _holds(compare: Callable[[Any, Any], bool], value: Any, operand: Any) -> bool:
    try:
        return bool(compare(value, operand))
    except TypeError:  # "abc" > 3 is not an error of the query: this document does not match
        return False
