"""Eight threads that each wait for their outcomes to be committed: with a group commit and without.

On a server that commits for several connections at once a group has little to win, which is shown as well.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from uuid import uuid4

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from benchmarks.data import DIMENSION, K, folder, text_of, unit_vectors
from benchmarks.postgres import COMMITTED, server_in
from benchmarks.rows import Row, outcomes_a_second, ratio_row
from benchmarks.timing import Side, in_turn
from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.records import EpisodeKey

_THREADS = 8
_MEMORIES = 1_000
_WINDOW = timedelta(milliseconds=2)

Open = Callable[[timedelta | None], MemoryWorthStore]
"""A new store, with or without a group commit."""


def run(*, quick: bool) -> list[Row]:
    """Rows on a file and on a server."""
    memories, each, rounds = (50, 1, 1) if quick else (_MEMORIES, 5, 12)
    numbers = count()
    with folder() as place, server_in(place) as server, ThreadPoolExecutor(_THREADS) as pool:

        def on_file(group: timedelta | None) -> MemoryWorthStore:
            return _filled(f"sqlite:///{place / f'{next(numbers)}.db'}", memories, group)

        def on_server(group: timedelta | None) -> MemoryWorthStore:
            return _filled(f"{server}&schema=t{next(numbers)}", memories, group)

        return [
            _row("SQLite", "FULL", on_file, pool, memories, each, rounds),
            _row("Postgres", COMMITTED, on_server, pool, memories, each, rounds),
        ]


def _row(
    name: str,
    mode: str,
    make: Open,
    pool: ThreadPoolExecutor,
    memories: int,
    each: int,
    rounds: int,
) -> Row:
    stores = [make(group) for group in (_WINDOW, None)]
    together, alone = (_side(s, pool, memories, each) for s in stores)
    pairs = in_turn([together], [alone], rounds=rounds, warmup=1)
    for store in stores:
        store.close()
    return ratio_row(
        f"{_THREADS} threads, an outcome after the other, with a group commit, {name}",
        "the same without",
        pairs,
        mode=mode,
        note=outcomes_a_second(pairs, _THREADS * each, "without"),
    )


def _side(store: MemoryWorthStore, pool: ThreadPoolExecutor, memories: int, each: int) -> Side:
    draw = np.random.default_rng(0)
    run_ids: list[str] = []

    def before(_: int) -> None:
        run_ids[:] = [str(uuid4()) for _ in range(_THREADS * each)]
        for run_id in run_ids:
            chosen = draw.choice(memories, K, replace=False).tolist()
            documents = [Document(id=str(n), page_content=text_of(n)) for n in chosen]
            store.governor.journal.expose_documents(EpisodeKey(run_id), documents)

    def work(_: int) -> None:
        list(pool.map(_record, [(store, run_ids[n::_THREADS]) for n in range(_THREADS)]))

    return Side(work, before)


def _record(what: tuple[MemoryWorthStore, list[str]]) -> None:
    store, run_ids = what
    for run_id in run_ids:
        store.record_outcome(run_id, outcome=True)


def _filled(url: str, memories: int, group: timedelta | None) -> MemoryWorthStore:
    embedding = DeterministicFakeEmbedding(size=DIMENSION)
    store = MemoryWorthStore(
        url,
        embedding,
        embedding_name="bench",
        durability="full",
        pool_size=_THREADS,
        group_commit=group,
    )
    pairs = [(text_of(n), v) for n, v in enumerate(unit_vectors(memories))]
    store.add_embeddings(pairs, ids=[str(n) for n in range(memories)])
    return store
