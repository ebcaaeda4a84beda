"""A retrieval as a chain makes it, apart from the embedding."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.data import K, bare_index, filled, folder, loaded, queries, unit_vectors
from benchmarks.placement import copies
from benchmarks.rows import Row, excess_row
from benchmarks.timing import Pairs, Side, all_in_turn
from langchain_memoryworth import MemoryWorthStore

_AGAINST = "`IndexFlatIP.search`"


def run(*, quick: bool) -> list[Row]:
    """Rows at each size."""
    sizes = [(200, 2)] if quick else [(1_000, 400), (10_000, 200)]
    rows = []
    for count, rounds in sizes:
        with folder() as place:
            rows += _rows(place, count, rounds)
    return rows


def _rows(place: Path, count: int, rounds: int) -> list[Row]:
    vectors = unit_vectors(count)
    asked = queries()
    numbers = itertools.count()
    bare, stores = copies(
        lambda: bare_index(vectors),
        lambda: loaded(filled(place / f"{next(numbers)}.db", vectors)),
        order=random.Random(0),
    )
    reference = [Side(_bare(index, asked)) for index in bare]
    sides = {
        "looked up only": ([Side(_untracked(s, asked)) for s in stores], "-"),
        "in an episode": ([Side(_in_episode(s, asked)) for s in stores], "NORMAL"),
        "in an episode, after an outcome": ([_after_outcome(s, asked) for s in stores], "NORMAL"),
    }
    reference_times, *times = all_in_turn(
        [reference, *(copies for copies, _ in sides.values())], rounds=rounds
    )
    for store in stores:
        store.close()
    return [
        excess_row(
            f"{count:,} memories, {case}",
            _AGAINST,
            Pairs(taken, reference_times),
            unit="us",
            factor=1.10,
            target=500.0,
            mode=mode,
        )
        for (case, (_, mode)), taken in zip(sides.items(), times, strict=True)
    ]


def _bare(index: Any, asked: Any) -> Callable[[int], object]:
    return lambda i: index.search(asked[i % len(asked)][None], K)


def _untracked(store: MemoryWorthStore, asked: Any) -> Callable[[int], object]:
    recall = store.governor.retrieval.recall_by_vector
    return lambda i: recall(asked[i % len(asked)], K, track=False)


def _in_episode(store: MemoryWorthStore, asked: Any) -> Callable[[int], object]:
    def work(i: int) -> None:
        with store.episode():
            store.governor.retrieval.recall_by_vector(asked[i % len(asked)], K)

    return work


def _after_outcome(store: MemoryWorthStore, asked: Any) -> Side:
    """The next retrieval after an outcome takes the new counters into the index first."""

    def before(i: int) -> None:
        episode_id = str(uuid4())
        with store.episode(episode_id):
            store.governor.retrieval.recall_by_vector(asked[(i + 7) % len(asked)], K)
        store.record_outcome(episode_id, outcome=True)

    return Side(_in_episode(store, asked), before)
