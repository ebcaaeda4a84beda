"""The LangGraph stores that `GovernedStore` is tested around, each by every way it can be called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import aiosqlite
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore, PostgresStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore
from pysqlite3 import dbapi2 as sqlite3

from tests.fakes import DIMENSION, HashedWords

Face = Literal["sync", "async", "thread"]
"""`thread`: the sync methods of an async store, which it allows in another thread than its loop's."""


@dataclass(frozen=True)
class Place:
    """Where a test may put a store."""

    folder: Path
    postgres: Callable[[], str]


def _index() -> Any:
    # SqliteStore reads `text_fields`, the others `fields`.
    fields = ["text"]
    embed = HashedWords()
    return {"dims": DIMENSION, "embed": embed, "fields": fields, "text_fields": fields}


@asynccontextmanager
async def _memory(place: Place, ttl: Any) -> AsyncIterator[BaseStore]:
    yield InMemoryStore(index=_index())


def _connect(place: Place) -> Any:
    # This Python's own sqlite3 cannot load the extension that vector search needs.
    path = place.folder / "store.db"
    return sqlite3.connect(str(path), check_same_thread=False, isolation_level=None)


@asynccontextmanager
async def _sqlite(place: Place, ttl: Any) -> AsyncIterator[BaseStore]:
    connection = _connect(place)
    store = SqliteStore(connection, index=_index(), ttl=ttl)
    store.setup()
    yield store
    connection.close()


@asynccontextmanager
async def _sqlite_async(place: Place, ttl: Any) -> AsyncIterator[BaseStore]:
    async with (
        aiosqlite.core.Connection(lambda: _connect(place), 64) as connection,
        AsyncSqliteStore(connection, index=_index(), ttl=ttl) as store,
    ):
        await store.setup()
        yield store


@asynccontextmanager
async def _postgres(place: Place, ttl: Any) -> AsyncIterator[BaseStore]:
    with PostgresStore.from_conn_string(place.postgres(), index=_index(), ttl=ttl) as store:
        store.setup()
        yield store


@asynccontextmanager
async def _postgres_async(place: Place, ttl: Any) -> AsyncIterator[BaseStore]:
    manager = AsyncPostgresStore.from_conn_string(place.postgres(), index=_index(), ttl=ttl)
    async with manager as store:
        await store.setup()
        yield store


@dataclass(frozen=True)
class StoreBackend:
    """One kind of store.

    Attributes:
        name: Of its class.
        distribution: The package that it comes from.
        faces: How it can be called.
        ttl: Whether its items can expire.
    """

    name: str
    distribution: str
    open: Callable[[Place, Any], AbstractAsyncContextManager[BaseStore]]
    faces: tuple[Face, ...]
    ttl: bool = True


STORES = (
    StoreBackend("InMemoryStore", "langgraph-checkpoint", _memory, ("sync", "async"), ttl=False),
    StoreBackend("SqliteStore", "langgraph-checkpoint-sqlite", _sqlite, ("sync",)),
    StoreBackend(
        "AsyncSqliteStore", "langgraph-checkpoint-sqlite", _sqlite_async, ("async", "thread")
    ),
    StoreBackend("PostgresStore", "langgraph-checkpoint-postgres", _postgres, ("sync",)),
    StoreBackend(
        "AsyncPostgresStore", "langgraph-checkpoint-postgres", _postgres_async, ("async", "thread")
    ),
)
FACED = [(backend, face) for backend in STORES for face in backend.faces]


async def call(face: Face, store: BaseStore, method: str, *args: Any, **kwargs: Any) -> Any:
    """One method of a store, called in one of the ways."""
    if face == "async":
        return await getattr(store, f"a{method}")(*args, **kwargs)
    if face == "thread":
        work = partial(copy_context().run, partial(getattr(store, method), *args, **kwargs))
        # Not in the loop's own pool: there the store embeds, and would wait for those that wait for it.
        with ThreadPoolExecutor(1) as pool:
            return await asyncio.wrap_future(pool.submit(work))
    return getattr(store, method)(*args, **kwargs)
