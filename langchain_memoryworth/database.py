"""The database: the engine, transactions, the schema version, and errors in our own words. No table is read here."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

from sqlalchemy import (
    Connection,
    Dialect,
    Engine,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection, StaticPool

from langchain_memoryworth import errors
from langchain_memoryworth.schema import MIGRATIONS

Durability = Literal["normal", "full"]
"""`normal`: a crash of the process loses nothing. `full`: nor does a power failure."""

BUSY_TIMEOUT_S = 30
"""SQLite's busy handler is not fair; with four hot writers the longest wait seen was 3 s."""


class Statement:
    """One SQL text with `:name` parameters, compiled once per dialect.

    SQLAlchemy's own execution costs about as much as the statement; sending the compiled text costs next to nothing.
    """

    __slots__ = ("_compiled", "sql")

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._compiled: dict[str, str] = {}

    def on(self, dialect: Dialect) -> str:
        """The text in the paramstyle of the dialect."""
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            compiled = self._compiled[dialect.name] = str(text(self.sql).compile(dialect=dialect))
        return compiled


class Session:
    """One transaction, on the driver's own cursor: what SQLAlchemy adds per statement costs as much as SQLite itself."""

    __slots__ = ("_cursor", "_dialect")

    def __init__(self, cursor: Any, dialect: Dialect) -> None:
        self._cursor = cursor
        self._dialect = dialect

    def run(self, statement: Statement, parameters: Mapping[str, Any] | None = None) -> None:
        """Run a statement once."""
        self._cursor.execute(statement.on(self._dialect), parameters or {})

    def run_many(self, statement: Statement, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once per mapping."""
        self._cursor.executemany(statement.on(self._dialect), parameters)

    def rows(self, statement: Statement, **parameters: Any) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        self.run(statement, parameters)
        found: list[tuple[Any, ...]] = self._cursor.fetchall()
        return found

    def row(self, statement: Statement, **parameters: Any) -> tuple[Any, ...] | None:
        """The first row of a query, or None."""
        self.run(statement, parameters)
        found: tuple[Any, ...] | None = self._cursor.fetchone()
        return found

    def number(self, statement: Statement, **parameters: Any) -> int:
        """The only value of a query, 0 if there is none."""
        row = self.row(statement, **parameters)
        return int(row[0]) if row is not None and row[0] is not None else 0


class Database:
    """An engine with the schema in place.

    Args:
        url: SQLAlchemy URL; `sqlite://` is a database in memory.
        durability: What a power failure may cost, see `Durability`.

    Raises:
        StorageError: If the database cannot be used, see the subclasses.
    """

    def __init__(self, url: str, *, durability: Durability = "normal") -> None:
        if durability not in ("normal", "full"):
            raise errors.InvalidInputError(
                f"durability={durability!r}; give 'normal' or 'full'", value=durability
            )
        self.durability = durability
        self._lock = threading.RLock()
        self.engine = self._connectable(url)
        self.name = self.engine.url.render_as_string(hide_password=True)
        self._migrate()

    def _connectable(self, url: str) -> Engine:
        try:
            parsed = make_url(url)
            arguments: dict[str, Any] = {}
            if parsed.get_backend_name() == "sqlite":
                arguments = {
                    "paramstyle": "named",
                    "connect_args": {"check_same_thread": False, "timeout": BUSY_TIMEOUT_S},
                }
                if not parsed.database or parsed.database == ":memory:":
                    arguments["poolclass"] = StaticPool
            engine = create_engine(parsed, **arguments)
        except (ArgumentError, NoSuchModuleError) as error:
            raise errors.InvalidInputError(
                f"{url!r} is no database URL ({error}); give sqlite:///memories.db or sqlite://",
                value=url,
            ) from error
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", self._on_sqlite_connect)
        return engine

    def _on_sqlite_connect(self, connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions are begun below, not guessed by the driver
        cursor = connection.cursor()
        if not cursor.execute("PRAGMA schema_version").fetchone()[0]:
            cursor.execute(
                "PRAGMA page_size=16384"
            )  # vectors of 1.5 kB: a fifth less file than 4 kB
        cursor.execute(f"PRAGMA synchronous={self.durability.upper()}")
        cursor.close()

    @cached_property
    def shared_connection(self) -> bool:
        """Whether all threads share one connection, as they must with SQLite in memory."""
        return isinstance(self.engine.pool, StaticPool)

    # -- transactions -----------------------------------------------------------------------------------------

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that writes; all of it is committed, or nothing.

        Writers of this process queue here and not at SQLite's lock, whose waiters starve.
        """
        with self._lock, self._connection() as connection:
            cursor = connection.cursor()
            if self._sqlite:
                cursor.execute("BEGIN IMMEDIATE")
            try:
                yield Session(cursor, self.engine.dialect)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that reads one state of the database throughout."""
        if self.shared_connection:
            with self._lock, self._connection() as connection:
                yield Session(connection.cursor(), self.engine.dialect)
            return
        with self._connection() as connection:
            cursor = connection.cursor()
            if self._sqlite:
                cursor.execute("BEGIN")
            yield Session(cursor, self.engine.dialect)  # given back to the pool, it is rolled back

    @contextmanager
    def _connection(self) -> Iterator[PoolProxiedConnection]:
        with self._translated():
            connection = self.engine.raw_connection()
            try:
                yield connection
            finally:
                connection.close()

    @property
    def _sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise self._in_our_words(getattr(error, "orig", None) or error) from error
        except UnicodeEncodeError as error:
            raise errors.InvalidInputError(
                f"{error.object!r} is no text that can be stored ({error.reason})",
                value=error.object,
            ) from error
        except self._driver_error as error:
            raise self._in_our_words(error) from error

    @cached_property
    def _driver_error(self) -> type[Exception]:
        error: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        return error

    def _where(self) -> str:
        return getattr(self, "name", None) or "the database"

    def _in_our_words(self, error: BaseException) -> errors.StorageError:
        code = getattr(error, "sqlite_errorname", "") or ""
        where = self._where()
        for prefix, kind, remedy in _SQLITE_ERRORS:
            if code.startswith(prefix):
                return kind(f"{where}: {error}; {remedy}")
        return errors.StorageError(f"{where}: {error}")

    def scrub(self) -> bool:
        """Write the file anew, so that nothing of what was erased is left in it, nor in its WAL.

        Returns:
            False if others are reading or writing just now, and it has to be done again.
        """
        if not self._sqlite:
            return False  # a server's own business: VACUUM FULL, and what its backups keep
        try:
            with self._lock, self._connection() as connection:
                cursor = connection.cursor()
                cursor.execute("VACUUM")
                blocked = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except errors.StorageBusyError:
            return False
        return not blocked

    # -- schema -----------------------------------------------------------------------------------------------

    def _migrate(self) -> None:
        with self._translated(), self.engine.connect() as connection:
            found = self._schema_version(connection)
            connection.rollback()
            if found > len(MIGRATIONS):
                raise errors.SchemaVersionError(found, len(MIGRATIONS))
            if self._sqlite:
                # Kept in the file, so not before it is known to be ours: another program's stays as it was.
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                connection.rollback()
            if found == len(MIGRATIONS):
                return
            if self._sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            found = self._schema_version(connection)  # another process may have been first
            for migrate in MIGRATIONS[found:]:
                migrate(connection)
            connection.execute(_SET_VERSION, {"version": str(len(MIGRATIONS))})
            connection.commit()

    def _schema_version(self, connection: Connection) -> int:
        tables = set(inspect(connection).get_table_names())
        if not tables:
            return 0
        if not {"meta", "memories", "exposures"} <= tables:
            raise errors.ForeignStorageError(
                f"{self.name} holds other tables ({', '.join(sorted(tables)[:5])}) and is no memory "
                "store; give a file of its own"
            )
        return int(connection.execute(_GET_VERSION).scalar() or 0)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


_GET_VERSION = text("SELECT value FROM meta WHERE key = 'schema_version'")
_SET_VERSION = text(
    "INSERT INTO meta (key, value) VALUES ('schema_version', :version) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
_SQLITE_ERRORS: tuple[tuple[str, type[errors.StorageError], str], ...] = (
    ("SQLITE_FULL", errors.StorageFullError, "free some space; nothing of this write was kept"),
    ("SQLITE_READONLY", errors.StorageReadOnlyError, "open it where it can be written"),
    ("SQLITE_BUSY", errors.StorageBusyError, "another process holds it; try again"),
    ("SQLITE_LOCKED", errors.StorageBusyError, "another connection holds it; try again"),
    ("SQLITE_NOTADB", errors.CorruptStorageError, "this is no SQLite file"),
    ("SQLITE_CORRUPT", errors.CorruptStorageError, "the file is damaged; restore a copy"),
    ("SQLITE_CANTOPEN", errors.StorageError, "check that the folder exists and may be written"),
)
