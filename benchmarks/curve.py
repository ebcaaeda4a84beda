"""What an outcome costs when there are many memories, and when there have been many runs: a table and a plot.

`python -m benchmarks.curve --into docs/scale.md` takes some minutes and 6 GB of disk, and draws `docs/outcome-cost.png`. A
thousand settled runs are made by the store itself; more memories or runs are copies of these rows under other numbers, with the
counters and the place of each change detector that belong to them, so that all files hold what as many runs would have left.

What grows is the only difference within a curve. Those of more memories begin with a thousand, most of them too new for a
verdict, as are all copies. Those of more runs have 80, which the first thousand runs have given one: a memory without is not judged,
and its change detector not asked.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from langchain_core.documents import Document

from benchmarks.data import K, filled, folder, opened, unit_vectors
from benchmarks.machine import description
from benchmarks.tables import put, table
from benchmarks.timing import Pairs, Side, Spread, all_in_turn
from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.records import EpisodeKey

_COMMAND = "python -m benchmarks.curve"
_PLOT = "outcome-cost.png"
_BASE = 1_000
_JUDGED = 80
SIZES = (1, 10, 100, 1_000)
"""Times a thousand."""

Growing = Literal["memories", "runs"]


class Point(NamedTuple):
    """One store.

    Attributes:
        what: It has more of than the smallest one.
        count: How many.
        seconds: Of an outcome.
        ratio: To the smallest, block by block.
    """

    what: Growing
    count: int
    seconds: Spread
    ratio: Spread


def measured(place: Path, base: int, judged: int, sizes: Sequence[int], rounds: int) -> list[Point]:
    """Outcomes in turn on a store of each size; `judged` is how many memories those of more runs have."""
    memories: dict[Growing, int] = {"memories": base, "runs": judged}
    for what, count in memories.items():
        _begin(place / f"{what}.db", count, base)
    cases: list[tuple[Growing, int]] = [(what, size) for what in memories for size in sizes]
    stores = [_opened(place, what, memories[what], base, size) for what, size in cases]
    counts = [memories[what] * (size if what == "memories" else 1) for what, size in cases]
    sides = [[_outcome(s, n)] for s, n in zip(stores, counts, strict=True)]
    taken = all_in_turn(sides, rounds=rounds, warmup=20)
    for store in stores:
        store.close()
    smallest = {what: taken[cases.index((what, sizes[0]))] for what, _ in cases}
    return [
        Point(what, base * size, Spread.of(times), Pairs(times, smallest[what]).ratio)
        for (what, size), times in zip(cases, taken, strict=True)
    ]


def _begin(path: Path, memories: int, runs: int) -> None:
    with filled(path, unit_vectors(memories)) as store:
        draws = random.Random(0)
        # From here on each memory fails once, so that its change detector has heard of all.
        last = runs - memories // K
        for i in range(runs):
            drawn = draws.sample(range(memories), K)
            _show(store, f"run-{i}", range(memories)[(i - last) * K :][:K] if i >= last else drawn)
            store.record_outcome(f"run-{i}", outcome=i < last and i % 3 > 0)


def _show(store: MemoryWorthStore, run: str, numbers: Sequence[int]) -> None:
    documents = [Document("", id=str(n)) for n in numbers]
    store.governor.journal.expose_documents(EpisodeKey(run), documents)


def _opened(place: Path, what: Growing, memories: int, runs: int, size: int) -> MemoryWorthStore:
    path = place / f"{what}-{size}.db"
    with sqlite3.connect(place / f"{what}.db") as source, sqlite3.connect(path) as target:
        source.backup(target)
    source.close()
    target.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE TEMP TABLE copies (n INTEGER PRIMARY KEY)")
    connection.executemany("INSERT INTO copies VALUES (?)", [(n,) for n in range(1, size)])
    given = {"memories": memories, "runs": runs, "size": size, "each": runs * K // memories}
    for statement in _MORE[what]:
        connection.execute(statement, given if ":" in statement else {})
    connection.commit()
    connection.execute("ANALYZE")
    connection.close()
    return opened(path)


def _outcome(store: MemoryWorthStore, memories: int) -> Side:
    draws = random.Random(1)

    def before(i: int) -> None:
        _show(store, f"new-{i}", draws.sample(range(memories), K))

    return Side(lambda i: store.record_outcome(f"new-{i}", outcome=i % 3 > 0), before)


def page(points: Sequence[Point]) -> str:
    """The table in Markdown, and where the plot is."""
    rows = [[f"{p.count:,} {p.what}", _milliseconds(p.seconds), _times(p.ratio)] for p in points]
    head = ("store", "one outcome of 8 memories, ms (quartiles)", "to the smallest (quartiles)")
    parts = [
        (
            f"`{_COMMAND}`: more memories beside a thousand runs, and more runs of {_JUDGED} memories. `record_outcome`, on a "
            "file, NORMAL, in turn on all of them."
        ),
        "\n".join(f"- {line}" for line in description()),
        table(head, rows),
        f"![Cost of an outcome by the number of memories and of runs]({_PLOT})",
    ]
    return "\n\n".join(parts)


def _milliseconds(spread: Spread) -> str:
    median, low, high = (f"{1e3 * x:.2f}" for x in spread)
    return f"{median} ({low} - {high})"


def _times(spread: Spread) -> str:
    median, low, high = (f"{x:.2f}" for x in spread)
    return f"{median} ({low} - {high})"


def draw(points: Sequence[Point], path: Path) -> None:
    """Both curves, with their quartiles."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes: Any = figure.subplots()
    for what, colour in (("memories", "#1f77b4"), ("runs", "#ff7f0e")):
        of = [p for p in points if p.what == what]
        x = [p.count for p in of]
        axes.fill_between(
            x, [p.ratio.low for p in of], [p.ratio.high for p in of], color=colour, alpha=0.2
        )
        axes.plot(x, [p.ratio.median for p in of], "o-", color=colour, label=what)
    axes.set(xscale="log", xlabel="memories, or past runs", ylabel="time of an outcome, 1,000 = 1")
    axes.set_ylim(0, max(2.0, 1.1 * max(p.ratio.high for p in points)))
    axes.grid(visible=True, color="0.9")
    axes.legend()
    figure.savefig(path, dpi=150, metadata={"Software": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description=__doc__)
    parser.add_argument("--into", type=Path, help="the page to write into; else the terminal")
    parser.add_argument("--rounds", type=int, default=300)
    given = parser.parse_args(arguments)
    with folder() as place:
        points = measured(place, _BASE, _JUDGED, SIZES, given.rounds)
    if given.into is None:
        print(page(points))
    else:
        put(given.into, _COMMAND, page(points))
        draw(points, given.into.with_name(_PLOT))


_SUMS = ("positive", "negative", "size", "squared", "retrievals", "surprise")
_MORE: dict[Growing, tuple[str, ...]] = {
    "memories": (
        (
            "INSERT INTO memories (seq, namespace, id, text, metadata, vector, added_at, written_at) "
            "SELECT seq + n * :memories, namespace, CAST(CAST(id AS INTEGER) + n * :memories AS TEXT), "
            "text || n, metadata, vector, added_at, written_at FROM copies CROSS JOIN memories"
        ),
        (
            f"INSERT INTO evidence (seq, {', '.join(_SUMS)}) "
            f"SELECT seq + n * :memories, {', '.join('0' for _ in _SUMS)} "
            "FROM copies CROSS JOIN evidence"
        ),
        "UPDATE populations SET live = live * :size",
    ),
    "runs": (
        "DROP INDEX exposures_credited",  # made at once it takes a tenth of the time
        (
            "INSERT INTO episodes SELECT eid + n * :runs, id || '-' || n, thread_id, started_at, "
            "settled_at, reward, path FROM copies CROSS JOIN episodes"
        ),
        (
            "INSERT INTO exposures SELECT eid + n * :runs, seq, rank, similarity, context, arm, "
            "propensity, shown, used, at, last_at, weight, positive, size, surprise, expected, epoch, "
            "heard + n * :runs FROM copies CROSS JOIN exposures"
        ),
        (
            "INSERT INTO outcomes SELECT number + n * :runs, eid + n * :runs, source, source_id, "
            "metric, reward, used, at FROM copies CROSS JOIN outcomes"
        ),
        "CREATE INDEX exposures_credited ON exposures (seq, heard) WHERE size > 0",
        "UPDATE evidence SET " + ", ".join(f"{name} = {name} * :size" for name in _SUMS),
        "UPDATE rates SET episodes = episodes * :size, reward = reward * :size",
        *(
            f"UPDATE {table} SET upto = upto + (:size - 1) * :runs, outcomes = outcomes + (:size - 1) * :each"
            for table in ("regimes", "regime_anchors")
        ),
    ),
}


if __name__ == "__main__":
    main()
