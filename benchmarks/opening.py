"""How long a file takes to open."""

from __future__ import annotations

from benchmarks import fresh
from benchmarks.data import filled, folder, unit_vectors
from benchmarks.rows import Row
from benchmarks.timing import Pairs, Spread


def run(*, quick: bool) -> list[Row]:
    """One row."""
    count, rounds = (200, 1) if quick else (100_000, 7)
    with folder() as place:
        path = place / "memories.db"
        filled(path, unit_vectors(count)).close()
        pairs = [(fresh.ours(path), fresh.by_hand(path)) for _ in range(rounds)]
    seconds = Pairs(tuple(a.seconds for a, _ in pairs), tuple(b.seconds for _, b in pairs))
    return [
        Row(
            f"{count:,} memories, file to first answer",
            "`sqlite3` into FAISS by hand",
            seconds.ratio,
            figure=Spread.of(seconds.ours),
            unit="s",
            about="in all",
            target=1.0,
        )
    ]
