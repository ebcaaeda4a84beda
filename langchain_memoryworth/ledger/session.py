"""Statements, and the session of a transaction that runs them on the driver's own cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Dialect, text

_MANY = 200


class _Compiled(NamedTuple):
    """A statement as the driver takes it, and what makes its parameters of a mapping."""

    sql: str
    bind: Callable[[Mapping[str, Any]], Sequence[Any]]


class Statement:
    """One SQL text with `:name` parameters, compiled once per dialect.

    SQLAlchemy's own execution costs about as much as the statement; sending the compiled text costs next to nothing.

    Args:
        sql: What both databases understand.
        postgresql: Where it must be said otherwise there, say to lock rows, which SQLite has no word for.
    """

    __slots__ = ("_compiled", "_postgresql", "sql")

    def __init__(self, sql: str, *, postgresql: str | None = None) -> None:
        self.sql = sql
        self._postgresql = postgresql
        self._compiled: dict[str, _Compiled] = {}

    def on(self, dialect: Dialect) -> _Compiled:
        """The text and the parameters in the style of the dialect."""
        known = self._compiled.get(dialect.name)
        if known is None:
            other = self._postgresql if dialect.name == "postgresql" else None
            compiled = text(other or self.sql).compile(dialect=dialect)
            known = _Compiled(str(compiled), _binder(compiled.positiontup or ()))
            self._compiled[dialect.name] = known
        return known


def _binder(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    # By position: sqlite3 takes half as long again to look them up by name.
    if len(names) > 1:
        return itemgetter(*names)
    if names:
        [name] = names
        return lambda parameters: (parameters[name],)
    return lambda _: ()


class Session:
    """What a transaction is to those who take part: statements on the driver's own cursor.

    What SQLAlchemy adds per statement costs as much as SQLite itself.
    """

    __slots__ = ("_cursor", "_dialect", "_reader")

    def __init__(self, cursor: Any, dialect: Dialect, reader: Callable[[], Any]) -> None:
        self._cursor = cursor
        self._dialect = dialect
        # In a pipeline the answers to earlier statements still arrive, and would be taken for the one that is read.
        self._reader = reader

    def begin(self, statements: Sequence[str]) -> None:
        """Begin a transaction by what its kind takes."""
        for statement in statements:
            self._cursor.execute(statement)

    def run(self, statement: Statement, parameters: Mapping[str, Any] | None = None) -> None:
        """Run a statement once."""
        sql, bind = statement.on(self._dialect)
        self._cursor.execute(sql, bind(parameters or {}))

    def run_many(self, statement: Statement, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once per mapping."""
        bind = statement.on(self._dialect).bind
        self.run_each(statement, [bind(each) for each in parameters])

    def run_each(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement once per row of its parameters, in the order in which its text names them.

        For what is done for each memory of each run: a mapping for each takes as long as the statement.
        """
        sql = statement.on(self._dialect).sql
        if self._dialect.name == "postgresql" and len(rows) < _MANY:
            for row in (
                rows
            ):  # in the pipeline of the transaction; psycopg's own would wait for the server
                self._cursor.execute(sql, row)
            return
        self._cursor.executemany(sql, rows)

    def rows(self, statement: Statement, **parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        cursor = self._reader()
        sql, bind = statement.on(self._dialect)
        cursor.execute(sql, bind(parameters))
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found

    def rows_of(
        self, *statements: Statement, parameters: Mapping[str, Any]
    ) -> list[list[tuple[Any, ...]]]:
        """All rows of several queries with the same parameters; a server is waited for once."""
        cursors = []
        for statement in statements:
            cursor = self._reader()
            sql, bind = statement.on(self._dialect)
            cursor.execute(sql, bind(parameters))
            cursors.append(cursor)
        return [cursor.fetchall() for cursor in cursors]

    def parts(
        self, statement: Statement, size: int, **parameters: Any
    ) -> Iterator[list[tuple[Any, ...]]]:
        """All rows of a query, so many at a time; nothing else may be run before the last ones have come."""
        cursor = self._reader()
        sql, bind = statement.on(self._dialect)
        if self._dialect.name == "postgresql":
            yield from self._fetched(sql, bind(parameters), size)
            return
        cursor.execute(sql, bind(parameters))
        while some := cursor.fetchmany(size):
            yield some

    def _fetched(
        self, sql: str, parameters: Sequence[Any], size: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        # Of a query as such the driver would hold all rows at once, and the server be idle while they are taken in.
        self._cursor.execute(f"DECLARE parts NO SCROLL CURSOR FOR {sql}", parameters)
        coming = self._reader()
        coming.execute(f"FETCH {size} FROM parts")
        while some := coming.fetchall():
            coming = self._reader()
            coming.execute(f"FETCH {size} FROM parts")
            yield some
        self._cursor.execute("CLOSE parts")

    def row(self, statement: Statement, **parameters: Any) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        cursor = self._reader()
        sql, bind = statement.on(self._dialect)
        cursor.execute(sql, bind(parameters))
        found: tuple[Any, ...] | None = cursor.fetchone()
        return found

    def number(self, statement: Statement, **parameters: Any) -> int:
        """The only value of a query, 0 if there is none."""
        row = self.row(statement, **parameters)
        return int(row[0]) if row is not None and row[0] is not None else 0
