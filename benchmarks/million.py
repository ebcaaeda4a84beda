"""A store of a million: how long it takes to open, how near the graph and float16 come to the exact answer, and how fast.

From a file, and from a Postgres on the same machine. The memories are made of 24,000 sentences that all-MiniLM-L6-v2 has
embedded, see `sentences`; the queries are others.
`python -m benchmarks.million` takes about 8 GB of memory, 9 GB of disk and, mostly for the graph, the better part of an hour
on one thread; `--count 100000` is enough to see how it goes. `--into docs/scale.md` writes the tables into the page.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import fresh
from benchmarks.data import DIMENSION, Floats, fill, filled, folder
from benchmarks.data import opened as opened_at
from benchmarks.machine import description
from benchmarks.postgres import server_in, sqlalchemy_url
from benchmarks.sentences import embedded, grown
from benchmarks.tables import put, table
from langchain_memoryworth.vectors.coordinates import TERMS, Coordinates
from langchain_memoryworth.vectors.graphs import Graphs
from langchain_memoryworth.vectors.index import Kind, VectorIndex

_K = 10
_QUERIES = 50
_TEXTS = 24_000
_WEIGHTS = (1.0, *[0.0] * TERMS)
CASES = (("anywhere", 0.0), *((w, s) for w in ("anywhere", "near", "topic") for s in (0.3, 0.9)))
"""Where memories are held back, and the share of them: of all, of the nearest hundredth, or all that are nearest."""
_BUILT: tuple[str, Kind] = ("`hnsw`, the first time", "hnsw")
OPENINGS: tuple[tuple[str, Kind], ...] = (
    ("`flat`", "flat"),
    ("`flat-fp16`", "flat-fp16"),
    _BUILT,
    ("`hnsw`, from its file", "hnsw"),
)
FROM_POSTGRES: tuple[tuple[str, Kind], ...] = tuple(
    (f"{name}, from Postgres", kind) for name, kind in OPENINGS if name != _BUILT[0]
)
_OPENED = (
    "index",
    "seconds",
    "of the processor",
    "memory alone, seconds",
    "GB of memory",
    "bytes a memory",
)
_COMMAND = "python -m benchmarks.million"


class Line(NamedTuple):
    """One case.

    Attributes:
        recall: Share of the 10 nearest that may be served which the index finds.
        taken: Milliseconds of a search, median.
        flat: Likewise of the exact index.
        exact: Share of the searches that the graph left to a full scan.
    """

    where: str
    share: float
    recall: float
    taken: float
    flat: float
    exact: float


class Likeness(NamedTuple):
    """How much a graph finds of the nearest with few nodes in view: among sentences, and among as many that are grown from some."""

    real: float
    grown: float
    view: int
    count: int
    some: int


class Results(NamedTuple):
    """All that is measured: openings by name and what such memory takes alone, sizes, queries, the graph by case, float16."""

    opened: dict[str, tuple[fresh.Opened, float]]
    sizes: tuple[int, int]
    queries: int
    graph: list[Line]
    rounded: Line


def measured(place: Path, vectors: Floats, asked: Floats) -> Results:
    """A store of some vectors in a folder, opened in every way, and every case on indexes of them."""
    path = place / "memories.db"
    if not path.exists():
        filled(path, vectors).close()
    ways = OPENINGS if not list(place.glob("*.graph")) else [w for w in OPENINGS if w != _BUILT]
    opened = {name: _opening(path, kind) for name, kind in ways}
    kept = next(place.glob("*.graph"))
    opened |= _from_postgres(place, vectors, kept)
    flat, graph = _index("flat", vectors), _index("hnsw", vectors, path)
    lines = [_line(flat, graph, vectors, asked, where, share) for where, share in CASES]
    half = _index("flat-fp16", vectors)
    rounded = _line(flat, half, vectors, asked, "anywhere", 0.3)
    sizes = path.stat().st_size, kept.stat().st_size
    return Results(opened, sizes, len(asked), lines, rounded)


def _opening(
    where: Path | str, kind: Kind, graphs: Path | None = None
) -> tuple[fresh.Opened, float]:
    """Beside it what the system takes to hand out the memory: on a virtual machine that may be most of it."""
    opened = fresh.ours(where, kind, graphs)
    return opened, fresh.touched(opened.bytes)


def _from_postgres(
    place: Path, vectors: Floats, kept: Path
) -> dict[str, tuple[fresh.Opened, float]]:
    """The same memories on a server, by a socket, and the graph of the file's store as that of its worker."""
    with folder() as graphs, server_in(place) as server:
        url = sqlalchemy_url(server)
        with opened_at(url) as store:
            fill(store, vectors)
            name = store.governor.database.name
        own = Graphs("hnsw", name, None, graphs).path((), DIMENSION)
        assert own is not None
        own.symlink_to(kept.resolve())
        return {name: _opening(url, kind, graphs) for name, kind in FROM_POSTGRES}


def _index(kind: Kind, vectors: Floats, path: Path | None = None) -> VectorIndex:
    """All vectors under the numbers that a new store gives them, on the graph that it kept beside its file."""
    index = VectorIndex(DIMENSION, kind)
    graph = None if path is None else Graphs(kind, "", path, None).read((), DIMENSION)
    if graph is not None:
        index.take_over(graph)
    for start in range(0, len(vectors), 50_000):
        part = vectors[start : start + 50_000]
        seqs = 1 + np.arange(start, start + len(part))
        index.upsert(seqs, part, np.zeros((len(part), TERMS)), np.zeros(len(part), np.bool_))
    return index


def _line(
    flat: VectorIndex,
    other: VectorIndex,
    vectors: Floats,
    asked: Floats,
    where: str,
    share: float,
) -> Line:
    rng = np.random.default_rng(1)
    before, hits = other.exact, 0
    times: tuple[list[float], list[float]] = ([], [])
    drawn = rng.random(len(vectors)) < share
    last: NDArray[np.bool_] | None = None
    for query in asked:
        hidden = drawn if where == "anywhere" else _around(vectors, query, where, share)
        moved = np.flatnonzero(hidden != last) if last is not None else np.arange(len(hidden))
        for index in (flat, other):
            index.hold(dict(zip((moved + 1).tolist(), hidden[moved].tolist(), strict=True)))
        last = hidden
        found = []
        for index, taken in zip((flat, other), times, strict=True):
            begin = time.perf_counter()
            found.append(set(index.search(query, _WEIGHTS, _K).seqs.tolist()))
            taken.append(1e3 * (time.perf_counter() - begin))
        hits += len(found[0] & found[1])
    recall = hits / (_K * len(asked))
    medians = [statistics.median(t) for t in times]
    return Line(where, share, recall, medians[1], medians[0], (other.exact - before) / len(asked))


def _around(vectors: Floats, query: Floats, where: str, share: float) -> NDArray[np.bool_]:
    """That share of all memories which is nearest to a query, or that share of the nearest hundredth, drawn."""
    hidden = np.zeros(len(vectors), np.bool_)
    count = int(share * len(vectors)) if where == "topic" else len(vectors) // 100
    nearest = np.argpartition(-(vectors @ query), count)[:count]
    if where == "near":
        nearest = nearest[np.random.default_rng(2).random(count) < share]
    hidden[nearest] = True
    return hidden


def likeness(texts: Floats, asked: Floats, count: int, view: int = 64) -> Likeness:
    """Whether what is grown is like what is real, at the same growth as that of so many from all of these."""
    some = max(10, len(texts) ** 2 // count)
    found = (_found(v, asked, view) for v in (texts, grown(texts[:some], len(texts))))
    return Likeness(*found, view, len(texts), some)


def _found(vectors: Floats, asked: Floats, view: int) -> float:
    at = Coordinates(DIMENSION, graph=True)
    at.append(vectors, np.zeros((len(vectors), TERMS)))
    full = np.zeros(at.width, np.float32)
    hits = 0
    for query in asked:
        _, rows = at.walk(at.weighted(query, _WEIGHTS, full), _K, view)
        hits += len(set(rows.tolist()) & set(np.argsort(-(vectors @ query))[:_K].tolist()))
    return hits / (_K * len(asked))


def page(results: Results, count: int, alike: Likeness) -> str:
    """The tables in Markdown."""
    graphed = [
        [f"{x.share:.0%} {x.where}", f"{x.recall:.3f}", *_times(x), f"{x.exact:.0%}"]
        for x in results.graph
    ]
    opened = [
        [
            name,
            f"{o.seconds:.1f}",
            f"{o.busy:.1f}",
            f"{memory:.1f}",
            f"{o.bytes / 1e9:.2f}",
            f"{o.bytes / count:.0f}",
        ]
        for name, (o, memory) in results.opened.items()
    ]
    database, graph = results.sizes
    half = results.rounded
    what = f"{count:,} memories of {DIMENSION} dimensions on a file of {database / 1e9:.2f} GB"
    asked = f"{results.queries} queries, k={_K}"
    kept = f"The graph that is kept takes {graph / 1e9:.2f} GB, {graph / count:.0f} bytes a memory."
    rounded = f"recall {half.recall:.3f}, {half.taken / half.flat:.2f} of the time of `flat`"
    head = ("held back", "recall", "graph, ms", "exact index, ms", "left to a full scan")
    parts = [
        f"`{_COMMAND} --count {count}`: {what}, {asked}.",
        "\n".join(f"- {line}" for line in description()),
        (
            "From the file to the first answer, in a process of its own, imports apart; and what another one takes for nothing but to "
            "write to as much new memory, right after it:"
        ),
        table(_OPENED, opened),
        f"{kept} Searches of it:",
        table(head, graphed),
        _said(alike),
        f"`flat-fp16` with {half.share:.0%} held back {half.where}: {rounded}.",
    ]
    return "\n\n".join(parts)


def _said(alike: Likeness) -> str:
    return (
        f"With {alike.view} nodes in view a graph finds {alike.real:.3f} of the nearest among {alike.count:,} sentences, and "
        f"{alike.grown:.3f} among as many that are grown from {alike.some} of them, as the memories are from all."
    )


def _times(line: Line) -> tuple[str, str]:
    return f"{line.taken:.2f}", f"{line.flat:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--into", type=Path, help="the page to write into; else the terminal")
    parser.add_argument("--folder", type=Path, help="where to keep the store for another time")
    given = parser.parse_args(arguments)
    with folder() if given.folder is None else nullcontext(given.folder) as place:
        texts = embedded(_TEXTS + _QUERIES, place)
        vectors = grown(texts[:_TEXTS], given.count)
        asked = texts[_TEXTS:]
        alike = likeness(texts[:_TEXTS], asked, given.count)
        text = page(measured(place, vectors, asked), given.count, alike)
    if given.into is None:
        print(text)
    else:
        put(given.into, _COMMAND, text)


if __name__ == "__main__":
    main()
