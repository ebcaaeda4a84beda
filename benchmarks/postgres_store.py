"""Beside LangGraph's store on Postgres: a search that leaves out what is held back, both on one server."""

from __future__ import annotations

import psycopg
from langchain_core.embeddings import DeterministicFakeEmbedding

from benchmarks.data import DIMENSION, folder, text_of, unit_vectors
from benchmarks.langgraph_stores import Known, counted, fill, index_of, recorded, search
from benchmarks.postgres import COMMITTED, server_in, sqlalchemy_url
from benchmarks.rows import Row, ratio_row
from benchmarks.timing import Pairs, Side, all_in_turn
from langchain_memoryworth import MemoryWorthStore

_THEIRS = "`PostgresStore` of LangGraph"


def run(*, quick: bool) -> list[Row]:
    """A search, and the counters of an outcome."""
    count, rounds, outcomes = (60, 1, 2) if quick else (20_000, 20, 60)
    with folder() as place, server_in(place) as server:
        from langgraph.store.postgres import PostgresStore

        with (
            PostgresStore.from_conn_string(server, index=index_of(Known(count))) as theirs,
            _filled(server, count) as ours,
        ):
            theirs.setup()
            fill(theirs, count)
            filtered = search(theirs, filter={"held": False})
            taken = all_in_turn([[Side(recorded(ours))], [Side(filtered)]], rounds=rounds, warmup=2)
            rows = counted(_THEIRS, theirs, ours, count, outcomes, COMMITTED)
    return [
        ratio_row(
            f"{_THEIRS}, search among {count:,} with a filter, 30% held back",
            'ours on the same server, `index="flat"`, recorded in an episode',
            Pairs(taken[1], taken[0]),
            mode=COMMITTED,
            target=20.0,
            at_least=True,
        ),
        *rows,
    ]


def _filled(server: str, count: int) -> MemoryWorthStore:
    store = MemoryWorthStore(
        sqlalchemy_url(server),
        DeterministicFakeEmbedding(size=DIMENSION),
        embedding_name="bench",
    )
    vectors = unit_vectors(count)
    for start in range(0, count, 1_000):
        numbers = range(start, min(start + 1_000, count))
        pairs = [(text_of(n), vectors[n].tolist()) for n in numbers]
        store.add_embeddings(pairs, ids=[str(n) for n in numbers])
    # As outcomes would, which would take as long as all the rest.
    with psycopg.connect(server) as connection:
        connection.execute(
            "UPDATE memoryworth.evidence SET status = 'suppressed' WHERE seq % 10 IN (1, 2, 3)"
        )
    return store
