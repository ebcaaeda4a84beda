"""The graph at a million: recall@10 against the exact answer, and time, with memories held back anywhere or around the query.

`python -m benchmarks.million` takes about 6 GB and, mostly for the graph, the better part of an hour on one thread;
`--count 100000` is enough to see how it goes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import DIMENSION, Floats
from benchmarks.machine import description
from langchain_memoryworth.coordinates import TERMS
from langchain_memoryworth.index import VectorIndex

_K = 10
_QUERIES = 50
_WEIGHTS = (1.0, *[0.0] * TERMS)
CASES = (("anywhere", 0.0), *((w, s) for w in ("anywhere", "topic") for s in (0.3, 0.9)))
"""Where memories are held back, and the share of them."""


class Line(NamedTuple):
    """One case.

    Attributes:
        recall: Share of the 10 nearest that may be served which the graph finds.
        graph: Milliseconds of a search of the graph, median.
        flat: Likewise of the exact index.
        exact: Share of the searches that the graph left to a full scan.
    """

    where: str
    share: float
    recall: float
    graph: float
    flat: float
    exact: float


def clustered(count: int, seed: int = 0) -> Floats:
    """Unit vectors around a hundredth as many centres, float32, shape (count, DIMENSION)."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(1, count // 100), DIMENSION), dtype=np.float32)
    rows = rng.standard_normal((count, DIMENSION), dtype=np.float32)
    rows += centres[rng.integers(len(centres), size=count)]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def measured(count: int, queries: int = _QUERIES) -> list[Line]:
    """Every case, on the same two indexes."""
    both = clustered(count + queries)
    vectors, asked = both[:count], both[count:]
    flat, graph = (_filled(kind, vectors) for kind in ("flat", "hnsw"))
    return [_line(flat, graph, vectors, asked, where, share) for where, share in CASES]


def _filled(kind: str, vectors: Floats) -> VectorIndex:
    index = VectorIndex(DIMENSION, kind)  # type: ignore[arg-type]
    for start in range(0, len(vectors), 50_000):
        part = vectors[start : start + 50_000]
        seqs = np.arange(start, start + len(part))
        index.upsert(seqs, part, np.zeros((len(part), TERMS)), np.zeros(len(part), np.bool_))
    return index


def _line(
    flat: VectorIndex,
    graph: VectorIndex,
    vectors: Floats,
    asked: Floats,
    where: str,
    share: float,
) -> Line:
    rng = np.random.default_rng(1)
    before, hits = graph.exact, 0
    times: tuple[list[float], list[float]] = ([], [])
    terms, seqs = np.zeros((len(vectors), TERMS)), np.arange(len(vectors))
    hidden = rng.random(len(vectors)) < share
    for n, query in enumerate(asked):
        if where == "topic":
            hidden = _topic(vectors, query, share)
        if n == 0 or where == "topic":
            for index in (flat, graph):
                index.update(seqs, terms, hidden)
        found = []
        for index, taken in zip((flat, graph), times, strict=True):
            begin = time.perf_counter()
            found.append(set(index.search(query, _WEIGHTS, _K).seqs.tolist()))
            taken.append(1e3 * (time.perf_counter() - begin))
        hits += len(found[0] & found[1])
    recall = hits / (_K * len(asked))
    medians = [statistics.median(t) for t in times]
    return Line(where, share, recall, medians[1], medians[0], (graph.exact - before) / len(asked))


def _topic(vectors: Floats, query: Floats, share: float) -> NDArray[np.bool_]:
    """The share of the memories that is nearest to a query."""
    hidden = np.zeros(len(vectors), np.bool_)
    count = int(share * len(vectors))
    hidden[np.argpartition(-(vectors @ query), count)[:count]] = True
    return hidden


def page(lines: Sequence[Line], count: int) -> str:
    """The cases as a table in Markdown."""
    head = (
        f"`python -m benchmarks.million --count {count}`: {count:,} memories of {DIMENSION} dimensions, "
        f"{_QUERIES} queries, k={_K}.\n\n" + "\n".join(f"- {line}" for line in description())
    )
    rows = [
        f"| {x.share:.0%} {x.where} | {x.recall:.3f} | {x.graph:.2f} | {x.flat:.2f} | {x.exact:.0%} |"
        for x in lines
    ]
    titles = "| held back | recall | graph, ms | exact index, ms | left to a full scan |"
    return "\n".join([head, "", titles, "|---|---|---|---|---|", *rows])


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.million", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    count = parser.parse_args(arguments).count
    print(page(measured(count), count))


if __name__ == "__main__":
    main()
