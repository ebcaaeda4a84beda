"""How much memory a memory takes."""

from __future__ import annotations

from benchmarks import fresh
from benchmarks.data import filled, folder, unit_vectors
from benchmarks.rows import Row
from benchmarks.timing import Pairs, Spread


def run(*, quick: bool) -> list[Row]:
    """One row."""
    count, rounds = (200, 1) if quick else (100_000, 3)
    with folder() as place:
        path = place / "memories.db"
        filled(path, unit_vectors(count)).close()
        pairs = [(fresh.ours(path), fresh.by_hand(path)) for _ in range(rounds)]
    taken = Pairs(tuple(a.bytes for a, _ in pairs), tuple(max(b.bytes, 1.0) for _, b in pairs))
    return [
        Row(
            f"one of {count:,} memories, opened and asked",
            "the same in FAISS by hand",
            taken.ratio,
            figure=Spread.of([b / count for b in taken.ours]),
            unit="B",
            about="in all, of which the vector 1536 B",
        )
    ]
