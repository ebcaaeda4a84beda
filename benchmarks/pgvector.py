"""Searches in Postgres by pgvector, beside those of a worker that holds the vectors, on one server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psycopg
from langchain_core.embeddings import DeterministicFakeEmbedding
from numpy.typing import NDArray

from benchmarks.data import DIMENSION, Floats, fill, folder, unit_vectors
from benchmarks.postgres import server_in, sqlalchemy_url
from benchmarks.rows import Row, ratio_row
from benchmarks.sentences import embedded, grown
from benchmarks.timing import Side, Spread, in_turn
from langchain_memoryworth import MemoryWorthStore, Policy
from langchain_memoryworth.vectors.index import Kind

_K = 10
_QUERIES = 64
_NEAREST = 16
"""Queries that are asked where a topic is held back: those about it."""
_TEXTS = 4_000
_CASES = (("anywhere", 0.0), *((w, s) for w in ("anywhere", "topic") for s in (0.3, 0.9)))


def run(*, quick: bool) -> list[Row]:
    """A row for each share held back, and what a memory takes on the server."""
    count, rounds = (120, 1) if quick else (20_000, 40)
    with folder() as place, server_in(place) as server:
        vectors, asked = _vectors(place, count, quick=quick)
        with _opened(server, "flat") as store:
            fill(store, vectors)
        _opened(server, "pgvector").close()  # makes the copies and the graph
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            sizes = _sizes(connection, count)  # before statuses are written anew, again and again
            rows = [
                _row(server, connection, vectors, asked, where, share, rounds)
                for where, share in _CASES
            ]
            return [*rows, *sizes]


def _vectors(place: Path, count: int, *, quick: bool) -> tuple[Floats, Floats]:
    """Of memories and of queries; random ones are nearly equally near to each other, which no graph can use."""
    some = 60 if quick else _TEXTS
    texts = unit_vectors(some + _QUERIES) if quick else embedded(some + _QUERIES, place)
    asked = texts[some:]
    about = np.argsort(-(asked @ asked[0]))
    return grown(texts[:some], count), asked[about]


def _opened(server: str, index: Kind) -> MemoryWorthStore:
    return MemoryWorthStore(
        sqlalchemy_url(server),
        DeterministicFakeEmbedding(size=DIMENSION),
        embedding_name="bench",
        policy=Policy(exploration=0.0),  # which would show what is held back, at random
        index=index,
    )


def _row(
    server: str,
    connection: psycopg.Connection,
    vectors: Floats,
    asked: Floats,
    where: str,
    share: float,
    rounds: int,
) -> Row:
    if where == "topic":
        hidden = np.argsort(-(vectors @ asked[0]))[: int(share * len(vectors))]
        asked = asked[:_NEAREST]
    else:
        hidden = np.flatnonzero(np.random.default_rng(1).random(len(vectors)) < share)
    _hold(connection, hidden)
    # Opened anew, because statuses that are set by hand are no changes that a worker would follow.
    with _opened(server, "pgvector") as ours, _opened(server, "flat") as flat:
        found = [[_search(store, q) for q in asked] for store in (ours, flat)]
        hits = sum(len(a & b) for a, b in zip(*found, strict=True))
        sides = [_side(store, asked) for store in (ours, flat)]
        pairs = in_turn(sides[:1], sides[1:], rounds=rounds)
    return ratio_row(
        f"{len(vectors):,} memories, {share:.0%} held back {where}",
        'the same with `index="flat"`',
        pairs,
        figure=Spread(*(1e3 * x for x in Spread.of(pairs.ours))),
        unit="ms",
        about="a search",
        note=f"recall@{_K} {hits / (_K * len(asked)):.3f}",
    )


def _hold(connection: psycopg.Connection, rows: NDArray[np.int64]) -> None:
    """Hold back the memories of some rows and no others, as outcomes would, which would take longer than all the rest."""
    connection.execute(
        "UPDATE memoryworth.evidence e SET status = now.status FROM (SELECT seq, CASE WHEN id = ANY(%s) "
        "THEN 'suppressed' ELSE 'active' END AS status FROM memoryworth.memories) now "
        "WHERE e.seq = now.seq AND e.status <> now.status",
        [[str(n) for n in rows.tolist()]],
    )


def _search(store: MemoryWorthStore, query: NDArray[np.float32]) -> set[str]:
    found = store.similarity_search_by_vector(query.tolist(), _K, track=False)
    return {str(document.id) for document in found}


def _side(store: MemoryWorthStore, asked: Floats) -> Side:
    return Side(lambda i: _search(store, asked[i % len(asked)]))


_SIZES = (
    ("`vectors`: the copies", "pg_table_size('memoryworth.vectors')"),
    ("`vectors`: their key", "pg_relation_size('memoryworth.vectors_pkey')"),
    ("`vectors`: the graph", "pg_relation_size('memoryworth.vectors_near')"),
    ("`memories`, with texts of 100 characters", "pg_total_relation_size('memoryworth.memories')"),
    ("`evidence`", "pg_total_relation_size('memoryworth.evidence')"),
)


def _sizes(connection: psycopg.Connection, count: int) -> list[Row]:
    rows = []
    for case, size in _SIZES:
        total = connection.execute(f"SELECT {size}").fetchone()
        each = Spread.of([(total or (0,))[0] / count])
        rows.append(Row(case, "-", None, figure=each, unit="B", about=f"a memory, among {count:,}"))
    return rows
