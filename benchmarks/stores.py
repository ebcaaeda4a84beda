"""Beside the vector stores that LangChain users have today."""

from __future__ import annotations

import itertools
import random
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from benchmarks import placement
from benchmarks.data import (
    DIMENSION,
    Floats,
    K,
    filled,
    folder,
    loaded,
    opened,
    queries,
    text_of,
    unit_vectors,
)
from benchmarks.rows import Row, ratio_row
from benchmarks.timing import COPIES, Pairs, Side, all_in_turn
from langchain_memoryworth import MemoryWorthStore

_FAISS = "`FAISS` of langchain-community"
_IN_MEMORY = "`InMemoryVectorStore` of langchain-core"


def run(*, quick: bool) -> list[Row]:
    """Rows against each store at each size."""
    with folder() as place:
        if quick:
            return _rows(place, 100, copies=1, rounds=1)
        # Beyond 10k, InMemoryVectorStore takes seconds and a gigabyte: one copy and few rounds tell enough.
        return [
            *_against_faiss(place, 1_000, copies=COPIES, rounds=400),
            *_rows(place, 10_000, copies=COPIES, rounds=100, in_memory_rounds=7),
            *_rows(place, 100_000, copies=1, rounds=40, in_memory_rounds=3),
        ]


def _rows(
    place: Path, count: int, *, copies: int, rounds: int, in_memory_rounds: int = 1
) -> list[Row]:
    return [
        *_against_in_memory(place, count, rounds=in_memory_rounds),
        *_against_faiss(place, count, copies=copies, rounds=rounds),
    ]


def _against_in_memory(place: Path, count: int, *, rounds: int) -> list[Row]:
    vectors = unit_vectors(count)
    theirs = InMemoryVectorStore(DeterministicFakeEmbedding(size=DIMENSION))
    for i, vector in enumerate(vectors):
        theirs.store[str(i)] = {
            "id": str(i),
            "vector": vector.tolist(),
            "text": text_of(i),
            "metadata": {"n": i},
        }
    with filled(place / f"{count}-memory.db", vectors) as store:
        sides = [_sides(store), [Side(_search(theirs))]]
        taken = all_in_turn(sides, rounds=rounds, warmup=1)
    case = f"{_IN_MEMORY}, {count:,} memories"
    target = 150.0 if count == 10_000 else None
    return [
        ratio_row(
            case,
            "ours, recorded in an episode",
            Pairs(taken[1], taken[0]),
            mode="NORMAL",
            target=target,
            at_least=True,
        )
    ]


def _against_faiss(place: Path, count: int, *, copies: int, rounds: int) -> list[Row]:
    case = f"{count:,} memories, recorded in an episode"
    try:
        from langchain_community.docstore.in_memory import InMemoryDocstore
        from langchain_community.vectorstores import FAISS
    except ImportError:
        note = "langchain-community is not installed: `pip install --group test`"
        return [Row(case, _FAISS, None, note=note)]
    import faiss

    vectors = unit_vectors(count)
    embedding = DeterministicFakeEmbedding(size=DIMENSION)
    numbers = itertools.count()

    def faiss_store() -> FAISS:
        one = FAISS(embedding, faiss.IndexFlatIP(DIMENSION), InMemoryDocstore(), {})
        pairs = [(text_of(i), v) for i, v in enumerate(vectors)]
        one.add_embeddings(pairs, metadatas=[{"n": i} for i in range(count)])
        return one

    theirs, stores, held = placement.copies(
        faiss_store,
        lambda: loaded(filled(place / f"{count}-faiss-{next(numbers)}.db", vectors)),
        lambda: loaded(_held_back(place / f"{count}-held-{next(numbers)}.db", vectors)),
        order=random.Random(0),
        count=copies,
    )
    filtered = [_search(t, filter=_is_active) for t in theirs]
    sides = [
        [side for s in stores for side in _sides(s)],
        [Side(_search(s, track=False)) for s in stores],
        [Side(_search(t)) for t in theirs],
        [side for s in held for side in _sides(s)],
        [Side(f) for f in filtered],
    ]
    recorded, looked_up, plain, with_held, with_filter = all_in_turn(sides, rounds=rounds)
    for store in (*stores, *held):
        store.close()
    short = sum(len(filtered[0](i)) < K for i in range(len(queries())))
    return [
        ratio_row(case, _FAISS, Pairs(recorded, plain), mode="NORMAL"),
        ratio_row(f"{count:,} memories, looked up only", _FAISS, Pairs(looked_up, plain)),
        ratio_row(
            f"{case}, 30% held back",
            f"{_FAISS} with a filter",
            Pairs(with_held, with_filter),
            mode="NORMAL",
            target=1.2,
            note=f"theirs gives fewer than {K} to {short} of {len(queries())} queries, ours to none",
        ),
    ]


def _held_back(path: Path, vectors: Floats) -> MemoryWorthStore:
    filled(path, vectors).close()
    with closing(sqlite3.connect(path)) as connection:
        # As outcomes would, which would take longer than all the rest.
        statement = "UPDATE evidence SET status = 'suppressed' WHERE (seq - 1) % 10 < 3"
        connection.execute(statement)
        connection.commit()
    return opened(path)


def _is_active(metadata: dict[str, Any]) -> bool:
    return bool(metadata["n"] % 10 >= 3)


def _sides(store: MemoryWorthStore) -> list[Side]:
    asked = _asked()

    def work(i: int) -> None:
        with store.episode(str(uuid.uuid4())):
            store.similarity_search_by_vector(asked[i % len(asked)], K)

    return [Side(work)]


def _search(store: Any, **options: Any) -> Callable[[int], list[Document]]:
    asked = _asked()
    return lambda i: store.similarity_search_by_vector(asked[i % len(asked)], K, **options)


def _asked() -> list[list[float]]:
    """As embeddings give them: lists of floats."""
    given: Floats = queries()
    return [q.tolist() for q in given]
