"""Statements with a list in them, of any length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from langchain_memoryworth.ledger.session import Session, Statement

CHUNK = 500
"""Values in one IN list; SQLite once allowed no more than 999 parameters."""

_NAMES = tuple(f"v{i}" for i in range(CHUNK))


def in_chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Cut a list into pieces that fit into one IN list."""
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]


def in_lists(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """`in_chunks`, each with its last value repeated until there are as many as a power of two, or `CHUNK`.

    A statement is compiled for each length, which for a few hundred takes longer than to run it.

    Examples:
        >>> [list(piece) for piece in in_lists([7, 8, 9])]
        [[7, 8, 9, 9]]
    """
    for piece in in_chunks(values):
        missing = _length(len(piece)) - len(piece)
        yield [*piece, *[piece[-1]] * missing] if missing else piece


def _length(count: int) -> int:
    return min(CHUNK, 1 << (count - 1).bit_length())


@cache
def in_list(sql: str, count: int, hold: str = "") -> Statement:
    """A statement whose `:values` stands for a list of `count` parameters."""
    names = ", ".join(f":{n}" for n in _NAMES[:count])
    sql = sql.replace(":values", f"({names})")
    return Statement(sql, postgresql=f"{sql} {hold}" if hold else None)


def select_in(
    session: Session, sql: str, values: Sequence[Any], *, hold: str = "", **fixed: Any
) -> list[tuple[Any, ...]]:
    """All rows of a query with an IN list of any length; `hold` is what locks them where that must be said."""
    found: list[tuple[Any, ...]] = []
    for chunk in in_lists(values):
        found += session.rows(in_list(sql, len(chunk), hold), **as_list(chunk), **fixed)
    return found


def run_in(session: Session, sql: str, values: Sequence[Any]) -> None:
    """Run a statement with an IN list of any length."""
    for chunk in in_lists(values):
        session.run(in_list(sql, len(chunk)), as_list(chunk))


def select_from(session: Session, sql: str, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """All rows of a query whose `:rows` stands for a list of rows, each as `(?, ?)`; one of nulls must find nothing."""
    found: list[tuple[Any, ...]] = []
    width = len(rows[0]) if rows else 1
    most = CHUNK // width
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        values = [value for row in some for value in row]
        count = min(most, _length(len(some)))  # as in `in_lists`
        values += [None] * (width * count - len(values))
        found += session.rows(_rows_list(sql, count, width), **as_list(values))
    return found


@cache
def _rows_list(sql: str, count: int, width: int) -> Statement:
    names = [f":{n}" for n in _NAMES[: count * width]]
    rows = [f"({', '.join(names[i : i + width])})" for i in range(0, len(names), width)]
    return Statement(sql.replace(":rows", ", ".join(rows)))


def as_list(values: Sequence[Any]) -> dict[str, Any]:
    """The parameters that `in_list` has a statement take."""
    return dict(zip(_NAMES, values, strict=False))
