"""The database: transactions, the schema version, and errors in our own words. No table is read here."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial, update_wrapper
from pathlib import Path
from types import TracebackType
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection

from langchain_memoryworth import errors
from langchain_memoryworth.ledger.address import shown
from langchain_memoryworth.ledger.engines import (
    BUSY_TIMEOUT_S,
    Durability,
    Mode,
    Opened,
    open_engine,
)
from langchain_memoryworth.ledger.schema import MIGRATIONS
from langchain_memoryworth.ledger.session import Session

_P = ParamSpec("_P")
_T = TypeVar("_T")


_MOST_IDLE = 16
_OLDEST_SERVER = 13
"""The first that tells which transactions are running, as `changes` needs it."""


class _Line(NamedTuple):
    """A connection with its session, which takes as long to make as a small transaction of SQLite takes."""

    connection: PoolProxiedConnection
    session: Session


class Database:
    """An engine, and after `prepare` the schema in place.

    Args:
        url: SQLAlchemy URL; `sqlite://` is a database in memory, `postgresql+psycopg://host/name` a server. There
            `?schema=` names the Postgres schema, `memoryworth` if it does not.
        durability: What a power failure may cost, see `Durability`.
        pool_size: How many connections to a server there may be at most; None means 5.

    Raises:
        InvalidInputError: If one of them cannot be meant. Nothing is connected yet.
    """

    def __init__(
        self, url: str, *, durability: Durability = "normal", pool_size: int | None = None
    ) -> None:
        self._opened = open_engine(url, durability, pool_size)
        self.engine = self._opened.engine
        self.name = shown(self.engine.url)
        self.kind = self.engine.dialect.name
        self._sqlite = self.kind == "sqlite"
        self._queue = threading.RLock()
        self._idle: list[_Line] = []
        self._closed = False
        self._in_our_words = _InOurWords(self._opened, self.name)
        self._patience = (
            0.0  # a wrong address is said at once; a server that was there is waited for
        )
        self._waiting = threading.local()
        self._pid = os.getpid()
        if self._sqlite and not self._opened.shared:
            _close_before_fork(self)

    def prepare(self, *, make: bool = True) -> None:
        """Connect, and bring the schema to this release's.

        Args:
            make: Whether to make a store where none is.

        Raises:
            StorageError: If the database cannot be used, see the subclasses.
            InvalidInputError: If no store is there, and none is to be made.
        """
        if not make and self.file is not None and not self.file.is_file():
            raise self._no_store()
        self._migrate(make=make)
        self._patience = float(BUSY_TIMEOUT_S)

    def _no_store(self) -> errors.InvalidInputError:
        schema = self._opened.schema
        place = self.name if schema is None else f"{self.name} in the schema {schema!r}"
        return errors.InvalidInputError(
            f"there is no store at {place}; give the URL of one, or make it by opening it as MemoryWorthStore",
            value=self.name,
        )

    @property
    def file(self) -> Path | None:
        """The file it is on; None if it is in memory, on a server, or named by a URI."""
        name = self.engine.url.database
        plain = self._sqlite and not self._opened.shared and name and not name.startswith("file:")
        return Path(name) if plain and name else None

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that opened it."""
        return self._pid != os.getpid()

    def after_fork(self) -> None:
        """Leave the connections to the parent, and make new ones."""
        self._pid = os.getpid()
        self._queue = threading.RLock()  # a thread of the parent may have held it
        if not self._opened.shared:  # SQLite in memory: the data and the connection are a copy
            self._idle = []
            self.engine.dispose(close=False)

    # -- transactions -----------------------------------------------------------------------------------------

    def write(self, *, alone: bool = True) -> AbstractContextManager[Session]:
        """A transaction that writes; all of it is committed, or nothing.

        Writers of this process queue here and not at SQLite's lock, whose waiters starve.

        Args:
            alone: False for one that locks what it judges by, see `Mode`; on Postgres others may then run beside it.
        """
        return self._transaction("write" if alone else "settle", queued=self._sqlite)

    def read(self) -> AbstractContextManager[Session]:
        """A transaction that reads one state of the database throughout."""
        return self._transaction("read", queued=self._opened.shared)

    def again(self, call: Callable[[], _T], *, idempotent: bool) -> _T:
        """Do something that is one transaction, and do it again if the server undid it for the sake of another one.

        Args:
            call: All of it.
            idempotent: Whether it may be done twice: if the connection went while it was committed, nobody knows.
        """
        with self._deadline() as end:
            for pause in _pauses():
                try:
                    return call()
                except errors.StorageError as error:
                    hopeless = error.again == "no" or (
                        error.again == "uncertain" and not idempotent
                    )
                    if hopeless or time.monotonic() + pause > end:
                        raise
                    _wait(pause)
        raise AssertionError  # the pauses do not end

    @contextmanager
    def _deadline(self) -> Iterator[float]:
        """When waiting for a server is given up; what waits inside of what waits already has no more time than that."""
        outer: float | None = getattr(self._waiting, "end", None)
        self._waiting.end = end = time.monotonic() + self._patience if outer is None else outer
        try:
            yield end
        finally:
            self._waiting.end = outer

    @contextmanager
    def _transaction(self, mode: Mode, *, queued: bool) -> Iterator[Session]:
        with self._queue if queued else nullcontext(), self._in_our_words:
            line = self._line()
            connection, session = line
            committing = False
            try:
                with self._opened.pipeline(connection):
                    self._begin(session, mode)
                    yield session
                    if mode != "read":
                        committing = True
                        self._opened.commit(connection)
            except BaseException as error:
                error.in_commit = committing  # type: ignore[attr-defined]
                self._undo(connection)
                raise
            finally:
                self._give_back(line, over=committing)

    def _begin(self, session: Session, mode: Mode) -> None:
        if mode == "read" or self._opened.impatient is None:
            session.begin(self._opened.begin[mode])
            return
        impatient, patient = self._opened.impatient
        session.begin((impatient,))
        end = time.monotonic() + BUSY_TIMEOUT_S
        try:
            while not self._is_turn(session, mode, last=time.monotonic() > end):
                pass
        finally:
            session.begin((patient,))

    def _is_turn(self, session: Session, mode: Mode, *, last: bool) -> bool:
        """Begin, unless others write; if it is the last try, that is an error."""
        try:
            session.begin(self._opened.begin[mode])
        except self._in_our_words.driver_error as error:
            busy = isinstance(self._opened.fault(error, self.name), errors.StorageBusyError)
            if last or not busy:
                raise
            return False
        return True

    def _undo(self, connection: PoolProxiedConnection) -> None:
        try:
            connection.rollback()
        except (
            self._in_our_words.driver_error
        ):  # it has gone; the error that told of it is the one to raise
            connection.invalidate()

    def _line(self) -> _Line:
        """A connection that is up; those that went away while they were idle are replaced."""
        try:
            return self._idle.pop()
        except IndexError:
            connection = self.engine.raw_connection() if self._sqlite else self._from_pool()
        reader = self._opened.reader(connection)
        return _Line(connection, Session(connection.cursor(), self.engine.dialect, reader))

    def _from_pool(self) -> PoolProxiedConnection:
        with self._deadline() as end:
            for pause in _pauses():
                try:
                    connection = self.engine.raw_connection()
                except Exception as error:
                    cause = getattr(error, "orig", None) or error
                    if self._opened.again(cause) == "no" or time.monotonic() + pause > end:
                        raise
                    _wait(pause)
                    continue
                if self._opened.alive(connection):
                    return connection
                connection.invalidate()
                connection.close()
        raise AssertionError

    def _give_back(self, line: _Line, *, over: bool) -> None:
        # A file's stay here: SQLAlchemy's pool takes as long to hand one out as SQLite for a small transaction.
        connection, _ = line
        if self._sqlite and connection.is_valid and len(self._idle) < _MOST_IDLE:
            if not over:
                connection.rollback()  # ends one that only read
            self._idle.append(line)
            if self._closed:  # while it was in use
                self.close_idle()
        else:
            connection.close()

    def scrub(self) -> bool:
        """Write the file anew, so that nothing of what was erased is left in it, nor in its WAL.

        Returns:
            False if others keep it busy just now, and it has to be done again; on Postgres always, as only the owner
            of the tables can do it, by `VACUUM FULL`.
        """
        if not self._sqlite:
            return False
        try:
            with self._queue, self._in_our_words:
                connection = self.engine.raw_connection()
                try:
                    cursor = connection.cursor()
                    cursor.execute("VACUUM")
                    row = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    connection.close()
        except errors.StorageBusyError:
            return False
        return not row[0]

    # -- schema -----------------------------------------------------------------------------------------------

    def _migrate(self, *, make: bool) -> None:
        with self._in_our_words, self.engine.connect() as connection:
            found = self._schema_version(connection)
            connection.rollback()
            if found > len(MIGRATIONS):
                raise errors.SchemaVersionError(found, len(MIGRATIONS))
            if not found and not make:
                raise self._no_store()
            if self._sqlite:
                self._use_wal(connection)
            if found == len(MIGRATIONS):
                return
            for statement in self._opened.begin["migrate"]:
                connection.exec_driver_sql(statement)
            if self._opened.schema is not None:
                self._make_schema(connection, self._opened.schema)
            found = self._schema_version(connection)  # another process may have been first
            for migrate in MIGRATIONS[found:]:
                migrate(connection)
            connection.execute(_SET_VERSION, {"version": str(len(MIGRATIONS))})
            connection.commit()

    def _use_wal(self, connection: Connection) -> None:
        """Kept in the file, so not before it is known to be ours: another program's stays as it was.

        SQLite does not wait for the lock that this takes, whatever its timeout: of several that open a new file at once, all
        but one would be told that it is locked.
        """
        end = time.monotonic() + BUSY_TIMEOUT_S
        for pause in _pauses():
            try:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                connection.rollback()
                return
            except DBAPIError as error:
                connection.rollback()
                fault = self._opened.fault(error.orig or error, self.name)
                if not isinstance(fault, errors.StorageBusyError) or time.monotonic() > end:
                    raise
                _wait(pause)

    def _make_schema(self, connection: Connection, schema: str) -> None:
        version = int(str(connection.exec_driver_sql("SHOW server_version_num").scalar()))
        if version < _OLDEST_SERVER * 10_000:
            raise errors.StorageError(
                f"{self.name} is Postgres {version // 10_000}; give a server of version {_OLDEST_SERVER} or newer"
            )
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        if encoding != "UTF8":
            raise errors.StorageError(
                f"{self.name} is in {encoding}; create the database with ENCODING 'UTF8'"
            )
        # `IF NOT EXISTS` asks for the right to create one even where it is there.
        if connection.execute(_HAS_SCHEMA, {"schema": schema}).scalar() is None:
            connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')

    def _schema_version(self, connection: Connection) -> int:
        schema = self._opened.schema
        tables = set(inspect(connection).get_table_names(schema))
        if not tables:
            return 0
        if not {"meta", "memories", "exposures"} <= tables:
            raise errors.ForeignStorageError(
                f"{self.name} holds other tables ({', '.join(sorted(tables)[:5])}) and is no memory "
                "store; give a file or a schema of its own"
            )
        place = "" if schema is None else f'"{schema}".'
        found = connection.execute(text(_GET_VERSION.format(place=place)))
        return int(found.scalar() or 0)

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that nobody uses; new ones are made when they are needed."""
        with suppress(IndexError):  # another thread may take one meanwhile
            while True:
                self._idle.pop().connection.close()
        self.engine.dispose()


class _InOurWords:
    """A context in which errors of the driver become ours. It keeps no state, so one serves all transactions."""

    def __init__(self, opened: Opened, name: str) -> None:
        self._opened = opened
        self._name = name
        self.driver_error: type[Exception] = opened.engine.dialect.loaded_dbapi.Error

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and isinstance(error.__context__, UnicodeEncodeError):
            error = error.__context__  # of which sqlite3 at times makes an error about another row
        if isinstance(error, (SQLAlchemyError, self.driver_error)):
            cause = getattr(error, "orig", None) or error
            fault = self._opened.fault(cause, self._name)
            again = self._opened.again(cause)
            if again == "uncertain" and not getattr(cause, "in_commit", False):
                again = "safe"  # a transaction that was not committed is undone with its connection
            if isinstance(fault, errors.StorageError):
                fault.again = again
            raise fault from error
        if isinstance(error, UnicodeEncodeError):
            raise errors.InvalidInputError(
                f"{error.object!r} is no text that can be stored ({error.reason})",
                value=error.object,
            ) from error


class _WithDatabase(Protocol):
    _database: Database


_Self = TypeVar("_Self", bound=_WithDatabase)


def retried(method: Callable[Concatenate[_Self, _P], _T]) -> Callable[Concatenate[_Self, _P], _T]:
    """A use case that is one transaction and may be done twice: done again as in `Database.again`."""
    return _retried(method, idempotent=True)


def retried_if_undone(
    method: Callable[Concatenate[_Self, _P], _T],
) -> Callable[Concatenate[_Self, _P], _T]:
    """Likewise one that must not be done twice: only where it is known that the server undid it."""
    return _retried(method, idempotent=False)


def _retried(
    method: Callable[Concatenate[_Self, _P], _T], *, idempotent: bool
) -> Callable[Concatenate[_Self, _P], _T]:
    def again(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if (
            self._database.kind == "sqlite"
        ):  # nothing is undone there, and this costs a tenth of a search
            return method(self, *args, **kwargs)
        call = partial(method, self, *args, **kwargs)
        return self._database.again(call, idempotent=idempotent)

    update_wrapper(again, method)
    return again


def _pauses() -> Iterator[float]:
    """Seconds to wait before each try, at first none, then longer and longer."""
    yield 0.0
    pause = 0.002
    while True:
        yield pause
        pause = min(1.0, 2 * pause)


def _wait(seconds: float) -> None:
    if seconds:
        threading.Event().wait(seconds)


def _close_before_fork(database: Database) -> None:
    """Close idle connections to a file before a fork.

    SQLite keeps its locks by process: a child that inherits a connection believes it holds those of its parent.
    """
    known = weakref.ref(database)

    def close() -> None:
        database = known()
        if database is not None:
            database.close_idle()

    os.register_at_fork(before=close)


_HAS_SCHEMA = text("SELECT 1 FROM pg_namespace WHERE nspname = :schema")
_GET_VERSION = "SELECT value FROM {place}meta WHERE key = 'schema_version'"
_SET_VERSION = text(
    "INSERT INTO meta (key, value) VALUES ('schema_version', :version) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
