"""Exact search ranked by worth, whatever the share that is suppressed."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

import numpy as np

from benchmarks.data import DIMENSION, Floats, K, bare_index, queries, unit_vectors
from benchmarks.placement import copies
from benchmarks.rows import Row, excess_row, ratio_row
from benchmarks.timing import Pairs, Side, in_turn
from langchain_memoryworth.vectors.coordinates import TERMS
from langchain_memoryworth.vectors.index import VectorIndex

SHARES = (0.0, 0.3, 0.9)
_WEIGHTS = (1.0, 0.4, 0.2, *[0.0] * (TERMS - 2))


def run(*, quick: bool) -> list[Row]:
    """Rows at each size."""
    if quick:
        return _rows(200, blocks=1, rounds=2)
    # An odd number of blocks of few rounds: each share is seen at the start, the middle and the end of the run.
    return [
        *_rows(1_000, blocks=15, rounds=100),
        *_rows(10_000, blocks=15, rounds=30),
        *_rows(100_000, blocks=9, rounds=8),
    ]


def _rows(count: int, *, blocks: int, rounds: int) -> list[Row]:
    vectors = unit_vectors(count)
    taken = _measured(vectors, blocks=blocks, rounds=rounds)
    against = "`IndexFlatIP.search`"
    rows = []
    for share, pairs in taken.items():
        case = f"{count:,} memories, {share:.0%} suppressed"
        if count < 10_000:
            rows.append(excess_row(case, against, pairs, unit="us", target=15.0))
        else:
            target = 1.10 if count >= 100_000 else 1.15
            rows.append(ratio_row(case, against, pairs, target=target))
    for share in SHARES[1:]:
        pairs = Pairs(_by_block(taken[share], blocks), _by_block(taken[0.0], blocks))
        case = f"{count:,} memories, {share:.0%} suppressed"
        rows.append(ratio_row(case, "the same with 0% suppressed, block by block", pairs))
    return rows


def _by_block(pairs: Pairs, blocks: int) -> tuple[float, ...]:
    """Ours in units of the reference, the median of each block: two shares are never timed in one round."""
    ratios = [a / b for a, b in zip(pairs.ours, pairs.reference, strict=True)]
    assert len(ratios) % blocks == 0
    size = len(ratios) // blocks
    return tuple(median(ratios[i * size : (i + 1) * size]) for i in range(blocks))


def _measured(vectors: Floats, *, blocks: int, rounds: int) -> dict[float, Pairs]:
    """Each block on indexes of its own: where they lie in memory is drawn anew for both sides."""
    asked = queries()
    order = random.Random(0)
    taken: dict[float, tuple[list[float], list[float]]] = {s: ([], []) for s in SHARES}
    for _ in range(blocks):
        indexes, bare = copies(lambda: _ours(vectors), lambda: bare_index(vectors), order=order)
        ours = [Side(_search(index, asked)) for index in indexes]
        reference = [Side(_bare_search(index, asked)) for index in bare]
        for share in order.sample(SHARES, len(SHARES)):
            for index in indexes:
                _suppress(index, len(vectors), share)
            pairs = in_turn(ours, reference, rounds=rounds, warmup=2)
            taken[share][0].extend(pairs.ours)
            taken[share][1].extend(pairs.reference)
    return {share: Pairs(tuple(a), tuple(b)) for share, (a, b) in taken.items()}


def _ours(vectors: Floats) -> VectorIndex:
    index = VectorIndex(DIMENSION)
    n = len(vectors)
    index.upsert(np.arange(n), vectors, _terms(n), np.zeros(n, np.bool_))
    return index


def _terms(count: int) -> Floats:
    terms = np.zeros((count, TERMS), np.float32)
    terms[:, 0] = np.random.default_rng(2).random(count, np.float32)
    return terms


def _suppress(index: VectorIndex, count: int, share: float) -> None:
    held = np.random.default_rng(3).random(count) < share
    index.hold(dict(enumerate(held.tolist())))


def _search(index: VectorIndex, asked: Floats) -> Any:
    return lambda i: index.search(asked[i % len(asked)], _WEIGHTS, K)


def _bare_search(index: Any, asked: Floats) -> Any:
    return lambda i: index.search(asked[i % len(asked)][None], K)
