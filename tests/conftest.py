"""Fixtures of all tests. `tests` is importable as a package however pytest was started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from langchain_memoryworth import MemoryWorthStore
from tests.fakes import Clock, HashedWords
from tests.ledger_server import Server, ledger_server, new_schema
from tests.postgres import new_database, postgres_server

# The same examples every time; `HYPOTHESIS_PROFILE=soak` looks for new ones, and longer.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=2_000,
    stateful_step_count=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

StoreMaker = Callable[..., MemoryWorthStore]


@pytest.fixture
def embedding() -> HashedWords:
    return HashedWords()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'memories.db'}"


def _url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "sqlite://"
    if request.param == "postgres":
        return new_schema(request.getfixturevalue("ledger"))
    return f"sqlite:///{tmp_path / 'memories.db'}"


@pytest.fixture(scope="session")
def ledger() -> Iterator[Server]:
    """A Postgres without extensions, started at the first test that needs it."""
    with ledger_server() as server:
        yield server


@pytest.fixture(params=["memory", "file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where no store was yet, on every database there is."""
    return _url(request, tmp_path)


@pytest.fixture(params=["file", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, as far as several processes can work on it."""
    return _url(request, tmp_path)


@pytest.fixture
def make_store(embedding: HashedWords, clock: Clock) -> Iterator[StoreMaker]:
    """Opens stores, and closes them after the test."""
    opened: list[MemoryWorthStore] = []

    def make(url: str = "sqlite://", **options: object) -> MemoryWorthStore:
        options = {"embedding": embedding, "clock": clock, **options}
        store = MemoryWorthStore(url, **options)  # type: ignore[arg-type]
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(make_store: StoreMaker, url: str) -> MemoryWorthStore:
    """An empty store, once in memory and once on a file."""
    return make_store(url)


@pytest.fixture(scope="session")
def _postgres() -> Iterator[str]:
    # Not below pytest's own folder: the path of a socket has no more than 107 characters.
    with TemporaryDirectory(prefix="mw-") as folder, postgres_server(Path(folder)) as url:
        yield url


@pytest.fixture
def postgres(_postgres: str) -> Iterator[str]:
    """The URL of an empty Postgres database with pgvector at hand."""
    with new_database(_postgres) as url:
        yield url
