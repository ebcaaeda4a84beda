"""What differs between the two databases: how a connection is made, how a transaction begins, what an error means.

Nothing else may ask which database it is. Transactions keep no state in the session, so that a proxy that pools
transactions may stand between: all settings are `LOCAL`, all locks end with the transaction, nothing is prepared.
"""

from __future__ import annotations

import hashlib
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from sqlalchemy import URL, Engine, NullPool, QueuePool, StaticPool, create_engine, event
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from langchain_memoryworth import errors
from langchain_memoryworth.ledger.address import address_of

Durability = Literal["normal", "full"]
"""`normal`: a crash of the process loses nothing. `full`: nor does a power failure."""

Mode = Literal["read", "write", "settle", "migrate"]
"""`write` is alone, as every writer is on SQLite. `settle` may run beside others of its kind: it locks the rows that it
judges by, the episodes first, then the evidence in the order of its numbers."""

BUSY_TIMEOUT_S = 30
"""How long anything waits for others before it is given up with an error."""
_LOOK_MS = 10
"""How long SQLite waits by itself for a writer's turn before it is asked anew. It looks less and less often, in the end ten times
a second, and processes that write without a pause leave it hardly a moment to find."""

Again = Literal["no", "safe", "uncertain"]
"""Whether a failed transaction may be run again: `safe`, it was rolled back; `uncertain`, its commit was not answered."""


@dataclass(frozen=True)
class Opened:
    """A database that connections can be made to.

    Attributes:
        engine: The pool of connections.
        begin: What is sent to begin a transaction.
        fault: The error in our words.
        again: Whether the transaction was rolled back for the sake of another one.
        alive: Whether a connection is still there, as far as can be told without asking the server.
        pipeline: Within it statements are sent without waiting for the answers, until one is read.
        reader: Makes the cursors for queries on a connection.
        commit: Ends a transaction.
        impatient: What makes a connection give up its turn at once, and what makes it wait again, where those who wait must ask
            again and again to be served in time.
        schema: Postgres schema, None on SQLite.
        shared: Whether all threads share one connection, as they must with SQLite in memory.
    """

    engine: Engine
    begin: Mapping[Mode, tuple[str, ...]]
    fault: Callable[[BaseException, str], Exception]
    again: Callable[[BaseException], Again]
    alive: Callable[[Any], bool] = lambda _: True
    pipeline: Callable[[Any], AbstractContextManager[Any]] = nullcontext
    reader: Callable[[Any], Callable[[], Any]] = lambda connection: (
        connection.driver_connection.cursor
    )
    commit: Callable[[Any], object] = lambda connection: connection.commit()
    impatient: tuple[str, str] | None = None
    schema: str | None = None
    shared: bool = False


def open_engine(url: str, durability: Durability, pool_size: int | None) -> Opened:
    """The engine of a URL; nothing is connected yet.

    Raises:
        InvalidInputError: If the URL is none, or names a database that is not supported.
        MissingExtraError: If the driver is not installed.
    """
    if durability not in ("normal", "full"):
        raise errors.InvalidInputError(
            f"durability={durability!r}; give 'normal' or 'full'", value=durability
        )
    if pool_size is not None and (
        isinstance(pool_size, bool) or not isinstance(pool_size, int) or pool_size < 1
    ):
        raise errors.InvalidInputError(
            f"pool_size={pool_size!r}; give a whole number of at least 1", value=pool_size
        )
    place, schema = address_of(url)
    if schema is None:
        return _sqlite(place, durability)
    return _postgres(place, schema, durability, pool_size or 5)


# -- SQLite -----------------------------------------------------------------------------------------------------------


def _sqlite(url: URL, durability: Durability) -> Opened:
    shared = not url.database or url.database == ":memory:"
    engine = create_engine(
        url,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_S},
        poolclass=StaticPool if shared else NullPool,  # `Database` keeps them
    )

    def on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions are begun by us, not guessed by the driver
        cursor = connection.cursor()
        if not cursor.execute("PRAGMA schema_version").fetchone()[0]:
            cursor.execute(
                "PRAGMA page_size=16384"
            )  # vectors of 1.5 kB: a fifth less file than 4 kB
        cursor.execute(f"PRAGMA synchronous={durability.upper()}")
        cursor.close()

    event.listen(engine, "connect", on_connect)
    alone = ("BEGIN IMMEDIATE",)
    begin: dict[Mode, tuple[str, ...]] = {
        "read": () if shared else ("BEGIN",),
        "write": alone,
        "settle": alone,
        "migrate": alone,
    }
    impatient = (f"PRAGMA busy_timeout={_LOOK_MS}", f"PRAGMA busy_timeout={1000 * BUSY_TIMEOUT_S}")
    return Opened(
        engine,
        begin,
        _sqlite_fault,
        lambda _: "no",
        impatient=None if shared else impatient,
        shared=shared,
    )


def _sqlite_fault(error: BaseException, where: str) -> Exception:
    code = getattr(error, "sqlite_errorname", "") or ""
    for prefix, kind, remedy in _SQLITE_ERRORS:
        if code.startswith(prefix):
            return kind(f"{where}: {error}; {remedy}")
    return errors.StorageError(f"{where}: {error}")


_SQLITE_ERRORS: tuple[tuple[str, type[errors.StorageError], str], ...] = (
    ("SQLITE_FULL", errors.StorageFullError, "free some space; nothing of this write was kept"),
    ("SQLITE_READONLY", errors.StorageReadOnlyError, "open it where it can be written"),
    ("SQLITE_BUSY", errors.StorageBusyError, "another process holds it; try again"),
    ("SQLITE_LOCKED", errors.StorageBusyError, "another connection holds it; try again"),
    ("SQLITE_NOTADB", errors.CorruptStorageError, "this is no SQLite file"),
    ("SQLITE_CORRUPT", errors.CorruptStorageError, "the file is damaged; restore a copy"),
    (
        "SQLITE_CANTOPEN",
        errors.StorageError,
        "check that it is a file, in a folder that exists and may be written",
    ),
)

# -- Postgres ---------------------------------------------------------------------------------------------------------


def _postgres(url: URL, schema: str, durability: Durability, pool_size: int) -> Opened:
    from langchain_memoryworth.ledger import nul

    engine = create_engine(
        url,
        # We begin and commit ourselves, several settings and the lock in one message.
        isolation_level="AUTOCOMMIT",
        paramstyle="format",  # by position, as SQLite
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=BUSY_TIMEOUT_S,
        connect_args={"prepare_threshold": None, "client_encoding": "utf8"},
        use_native_hstore=False,  # or it would ask the server for an extension
    )
    event.listen(engine, "connect", lambda connection, _: nul.register(connection))
    begin = _postgres_begin(schema, durability)
    return Opened(
        engine,
        begin,
        _postgres_fault,
        _postgres_again,
        _is_alive,
        _pipeline,
        lambda connection: partial(connection.driver_connection.cursor, binary=True),
        # psycopg's own asks for the state as of the last answer, which in a pipeline may be that of before the BEGIN.
        lambda connection: connection.driver_connection.execute("COMMIT"),
        schema=schema,
    )


@contextmanager
def _pipeline(connection: Any) -> Iterator[None]:
    """The driver's, without a warning in the log for the statements that were sent after one that failed."""
    from psycopg import Error

    with connection.driver_connection.pipeline() as sent:
        try:
            yield
        except Exception:
            with suppress(Error):
                sent.sync()
            raise


def _is_alive(connection: Any) -> bool:
    # The server says nothing to an idle connection, unless it ends it.
    driver = connection.driver_connection
    return not driver.closed and not select.select([driver.fileno()], [], [], 0)[0]


def _postgres_begin(schema: str, durability: Durability) -> dict[Mode, tuple[str, ...]]:
    lock = lock_number(schema)
    read = f"""SELECT set_config('search_path', '"{schema}"', true)"""  # or capitals are lost
    write = f"{read}, set_config('lock_timeout', '{BUSY_TIMEOUT_S}s', true)"
    if durability == "full":
        # A server that is set to answer before its log is on disk keeps doing so, unless this was asked for.
        write += (
            ", CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') "
            "THEN set_config('synchronous_commit', 'on', true) END"
        )
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    alone = (begin, write, f"SELECT pg_advisory_xact_lock({lock})")
    return {
        "read": ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", read),
        "write": alone,
        "settle": (begin, write, f"SELECT pg_advisory_xact_lock_shared({lock})"),
        "migrate": alone,
    }


def lock_number(schema: str) -> int:
    """The number of the advisory lock of a schema: the first 63 bits of a hash."""
    digest = hashlib.blake2b(f"langchain-memoryworth/{schema}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _postgres_fault(error: BaseException, where: str) -> Exception:
    if isinstance(error, PoolTimeoutError):
        return errors.StorageBusyError(
            f"{where}: all connections of the pool were in use for {BUSY_TIMEOUT_S} s; "
            "give a larger pool_size"
        )
    code = getattr(error, "sqlstate", None) or ""
    if not code and _is_connection_error(error):
        code = "08006"
    message = " ".join(str(error).split())
    if code in _UNSTORABLE:
        return errors.InvalidInputError(f"{where}: {message}; {_UNSTORABLE[code]}", value=message)
    for prefix, kind, remedy in _POSTGRES_ERRORS:
        if code.startswith(prefix):
            return kind(f"{where}: {message}; {remedy}")
    return errors.StorageError(f"{where}: {message}")


def _postgres_again(error: BaseException) -> Again:
    code = getattr(error, "sqlstate", None) or ""
    if code in ("40001", "40P01"):
        return "safe"
    if _is_connection_error(error) or code.startswith(("08", "57P0")):
        return "uncertain"
    return "no"


def _is_connection_error(error: BaseException) -> bool:
    import psycopg

    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return lost and getattr(error, "sqlstate", None) is None


_POSTGRES_ERRORS: tuple[tuple[str, type[errors.StorageError], str], ...] = (
    ("53100", errors.StorageFullError, "free some space; nothing of this write was kept"),
    ("53", errors.StorageBusyError, "the server has no more of it; try again, or allow more"),
    ("25006", errors.StorageReadOnlyError, "connect to the primary, as a role that may write"),
    ("42501", errors.StorageReadOnlyError, "grant it to this role, see docs/scale.md"),
    ("40", errors.StorageBusyError, "another transaction was in the way; try again"),
    ("55P03", errors.StorageBusyError, "another process holds it; try again"),
    ("57014", errors.StorageBusyError, "the server's timeout ended it; try again"),
    ("57P", errors.StorageUnavailableError, "try again when the server is up"),
    (
        "08",
        errors.StorageUnavailableError,
        "check that the server is up and can be reached, and host, role, password and database in the URL",
    ),
    ("XX001", errors.CorruptStorageError, "the data is damaged; restore a copy"),
    ("XX002", errors.CorruptStorageError, "an index is damaged; REINDEX it"),
)
_UNSTORABLE = {
    "54000": "Postgres cannot index ids of more than 2,700 bytes; give shorter ones",
    "22P05": "the database is not in UTF-8 and has no such character",
    "22021": "that is no text",
    "22003": "that number is too large",
}
