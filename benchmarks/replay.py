"""The statements that ours sends, heard on one file and run again by hand on a copy: what of its time is SQLite's."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import event

from benchmarks.timing import Side
from langchain_memoryworth import MemoryWorthStore


class _Said(NamedTuple):
    """One call of a cursor; `many` holds the parameters of an `executemany`."""

    sql: str
    parameters: Any = ()
    many: list[Any] | None = None


class _Cursor(sqlite3.Cursor):
    said: list[_Said]

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.said.append(_Said(sql, parameters))
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        many = list(parameters)
        self.said.append(_Said(sql, many=many))
        return super().executemany(sql, many)


def _hear(store: MemoryWorthStore) -> list[_Said]:
    """A list to which everything is added that the store asks of its file from now on."""
    said: list[_Said] = []

    class Cursor(_Cursor):
        pass

    Cursor.said = said

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> sqlite3.Cursor:
            return super().cursor(Cursor)

        def commit(self) -> None:
            said.append(_Said("COMMIT"))
            super().commit()

    def connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> sqlite3.Connection:
        return sqlite3.connect(*arguments, factory=Connection, **options)

    database = store.governor.database
    event.listen(database.engine, "do_connect", connect)
    database.close_idle()
    return said


def replayed(
    store: MemoryWorthStore, work: Callable[[int], object], copy: Path, durability: str
) -> Side:
    """The statements of a piece of work, which the store does before, untimed, each time.

    Args:
        store: Open on a file.
        work: What it does.
        copy: Of that file as it is now; the same is done to both, so the same numbers are in both.
        durability: Of the copy.
    """
    said = _hear(store)
    connection = sqlite3.connect(copy, isolation_level=None)
    connection.execute(f"PRAGMA synchronous={durability}")
    cursor = connection.cursor()

    def before(i: int) -> None:
        said.clear()
        work(i)

    def again(_: int) -> None:
        for sql, parameters, many in said:
            if many is not None:
                cursor.executemany(sql, many)
            else:
                cursor.execute(sql, parameters).fetchall()

    return Side(again, before)
