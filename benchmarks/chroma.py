"""Beside Chroma, on a file as ours is, with a filter where ours has memories held back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain_core.embeddings import DeterministicFakeEmbedding

from benchmarks.data import DIMENSION, K, filled, folder, queries, text_of, unit_vectors
from benchmarks.langgraph_stores import recorded
from benchmarks.rows import Row, ratio_row
from benchmarks.timing import Pairs, Side, all_in_turn

_BATCH = 1_000


def run(*, quick: bool) -> list[Row]:
    """Without and with a filter."""
    count, rounds = (60, 1) if quick else (10_000, 60)
    with folder() as place:
        theirs = _chroma(place / "chroma", count)
        asked = [q.tolist() for q in queries()]

        def search(where: dict[str, bool] | None) -> Side:
            return Side(
                lambda i: theirs.similarity_search_by_vector(asked[i % len(asked)], K, filter=where)
            )

        with filled(place / "ours.db", unit_vectors(count)) as store:
            sides = [[Side(recorded(store))], [search(None)], [search({"held": False})]]
            ours, *others = all_in_turn(sides, rounds=rounds)
    return [
        ratio_row(
            f"`Chroma` of langchain-chroma, {count:,} memories, {how}",
            "ours, recorded in an episode",
            Pairs(taken, ours),
            mode="NORMAL",
        )
        for how, taken in zip(("no filter", "a filter for 70% of them"), others, strict=True)
    ]


def _chroma(place: Path, count: int) -> Any:
    """Its graph is approximate; ours here is not."""
    import chromadb
    from langchain_chroma import Chroma

    client = chromadb.PersistentClient(
        str(place), chromadb.config.Settings(anonymized_telemetry=False)
    )
    store = Chroma("bench", DeterministicFakeEmbedding(size=DIMENSION), client=client)
    collection = client.get_collection("bench")
    vectors = unit_vectors(count)
    for start in range(0, count, _BATCH):
        numbers = range(start, min(start + _BATCH, count))
        collection.upsert(
            ids=[str(n) for n in numbers],
            embeddings=vectors[start : start + len(numbers)],
            documents=[text_of(n) for n in numbers],
            metadatas=[{"held": n % 10 < 3} for n in numbers],
        )
    return store
