"""An episode of k = 8 and its outcome, beside the same durable work by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import numpy as np
from langchain_core.documents import Document

from benchmarks.by_hand import BareEpisodes, SqliteLine
from benchmarks.data import (
    Floats,
    K,
    bare_index,
    filled,
    folder,
    opened,
    queries,
    text_of,
    unit_vectors,
)
from benchmarks.replay import replayed
from benchmarks.rows import Row, outcomes_a_second, ratio_row
from benchmarks.timing import COPIES, Pairs, Side, all_in_turn
from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.records import EpisodeKey

Durability = Literal["normal", "full"]
_MEMORIES = 1_000
_BATCH = 100
_FAILS = 5
"""Of so many runs one is a failure."""
_MODES: tuple[Durability, ...] = ("normal", "full")


def run(*, quick: bool) -> list[Row]:
    """Rows in both modes."""
    with folder() as place:
        vectors = unit_vectors(50 if quick else _MEMORIES)
        filled(place / "filled.db", vectors).close()
        rounds = {"normal": 2, "full": 2} if quick else {"normal": 400, "full": 140}
        rows = [row for mode in _MODES for row in _rows(place, vectors, mode, rounds[mode])]
        batch, some = (3, 1) if quick else (_BATCH, 20)
        return [*rows, *(_batches(place, len(vectors), mode, batch, some) for mode in _MODES)]


def _batches(place: Path, count: int, mode: Durability, size: int, rounds: int) -> Row:
    stores = [opened(_copy(place, f"{mode}-batch-{i}"), mode) for i in range(COPIES)]
    bare = [
        BareEpisodes(SqliteLine(_copy(place, f"{mode}-bare-batch-{i}"), mode))
        for i in range(COPIES)
    ]
    shown = choices(count)
    sides = [
        [batch_of(s, shown, size) for s in stores],
        [batch_by_hand(b, shown, size) for b in bare],
    ]
    pairs = Pairs(*all_in_turn(sides, rounds=rounds, warmup=1))
    for opened_ in (*stores, *bare):
        opened_.close()
    return ratio_row(
        f"{size} outcomes by `record_outcomes`",
        "`sqlite3` by hand, in one transaction",
        pairs,
        mode=mode.upper(),
        target=1.25,  # 0.8 times as many a second
        note=outcomes_a_second(pairs, size, "by hand"),
    )


def _rows(place: Path, vectors: Floats, mode: Durability, rounds: int) -> list[Row]:
    stores = [opened(_copy(place, f"{mode}-{i}"), mode) for i in range(2 * COPIES)]
    bare = [
        BareEpisodes(SqliteLine(_copy(place, f"{mode}-bare-{i}"), mode)) for i in range(2 * COPIES)
    ]
    shown = choices(len(vectors))
    heard = [opened(_copy(place, f"{mode}-heard-{i}"), mode) for i in range(COPIES)]
    copies = [_copy(place, f"{mode}-again-{i}") for i in range(COPIES)]
    sides = [
        [Side(episode(s, shown)) for s in stores[:COPIES]],
        [Side(episode_by_hand(b, shown)) for b in bare[:COPIES]],
        [replayed(s, episode(s, shown), c, mode) for s, c in zip(heard, copies, strict=True)],
        [_outcome(s, shown) for s in stores[:COPIES]],
        [_outcome_by_hand(b, shown) for b in bare[:COPIES]],
        [_failure(s, shown) for s in stores[:COPIES]],
        [_failure_by_hand(b, shown) for b in bare[:COPIES]],
        [Side(_whole(s)) for s in stores[COPIES:]],
        [Side(_whole_by_hand(b, bare_index(vectors))) for b in bare[COPIES:]],
    ]
    taken = all_in_turn(sides, rounds=rounds, warmup=20)
    for store in (*stores, *heard):
        store.close()
    for connection in bare:
        connection.close()
    by_ids, by_ids_by_hand, again, outcome, outcome_by_hand, *others = taken
    failure, failure_by_hand, whole, whole_by_hand = others
    by_hand = "`sqlite3` by hand"
    name = "8 documents shown, by id, and their outcome"
    more: dict[str, Any] = {"mode": mode.upper()}
    one, alone = Pairs(by_ids, by_ids_by_hand), Pairs(outcome, outcome_by_hand)
    note, note_alone = (outcomes_a_second(pairs, 1, "by hand") for pairs in (one, alone))
    return [
        ratio_row(name, by_hand, one, target=1.5, note=note, **more),
        ratio_row(f"{name}: our statements alone", by_hand, Pairs(again, by_ids_by_hand), **more),
        ratio_row("a success alone", by_hand, alone, note=note_alone, **more),
        ratio_row(
            f"a failure alone, with {_FAILS - 1} successes before it",
            by_hand,
            Pairs(failure, failure_by_hand),
            **more,
        ),
        ratio_row(
            "search, documents, exposures, outcome",
            f"FAISS and {by_hand}",
            Pairs(whole, whole_by_hand),
            target=1.5,
            **more,
        ),
    ]


def _copy(place: Path, name: str) -> Path:
    return Path(shutil.copy(place / "filled.db", place / f"{name}.db"))


def choices(count: int) -> list[list[int]]:
    """Rows of the memories shown, round by round."""
    rng = np.random.default_rng(0)
    return [rng.choice(count, K, replace=False).tolist() for _ in range(64)]


def episode(store: MemoryWorthStore, shown: list[list[int]]) -> Callable[[int], object]:
    documents = [[Document(id=str(r), page_content=text_of(r)) for r in rows] for rows in shown]

    def work(i: int) -> None:
        run_id = str(uuid4())
        store.governor.journal.expose_documents(EpisodeKey(run_id), documents[i % len(documents)])
        store.record_outcome(run_id, outcome=_succeeds(i))

    return work


def _succeeds(i: int) -> bool:
    return i % _FAILS != 0


def episode_by_hand(bare: BareEpisodes, shown: list[list[int]]) -> Callable[[int], object]:
    def work(i: int) -> None:
        run_id = str(uuid4())
        bare.begin()
        seqs = bare.located([str(r) for r in shown[i % len(shown)]])
        bare.expose(run_id, seqs)
        bare.record(run_id, seqs, success=_succeeds(i))

    return work


def _failure(store: MemoryWorthStore, shown: list[list[int]]) -> Side:
    """What change detectors have not heard yet comes with a failure."""
    documents = [[Document(id=str(r), page_content=text_of(r)) for r in rows] for rows in shown]
    run_ids: list[str] = []

    def before(i: int) -> None:
        run_ids[:] = [str(uuid4()) for _ in range(_FAILS)]
        for run_id in run_ids:
            store.governor.journal.expose_documents(
                EpisodeKey(run_id), documents[i % len(documents)]
            )
        store.record_outcomes([(run_id, True) for run_id in run_ids[1:]])

    return Side(lambda _: store.record_outcome(run_ids[0], outcome=False), before)


def _failure_by_hand(bare: BareEpisodes, shown: list[list[int]]) -> Side:
    episodes: list[tuple[str, list[int], bool]] = []

    def before(i: int) -> None:
        seqs = [r + 1 for r in shown[i % len(shown)]]
        episodes[:] = [(str(uuid4()), seqs, True) for _ in range(_FAILS)]
        for run_id, *_ in episodes:
            bare.begin()
            bare.expose(run_id, seqs)
        bare.record_many(episodes[1:])

    return Side(lambda _: bare.record(*episodes[0][:2], success=False), before)


def _outcome(store: MemoryWorthStore, shown: list[list[int]]) -> Side:
    documents = [[Document(id=str(r), page_content=text_of(r)) for r in rows] for rows in shown]
    run_id = ""

    def before(i: int) -> None:
        nonlocal run_id
        run_id = str(uuid4())
        store.governor.journal.expose_documents(EpisodeKey(run_id), documents[i % len(documents)])

    return Side(lambda _: store.record_outcome(run_id, outcome=True), before)


def _outcome_by_hand(bare: BareEpisodes, shown: list[list[int]]) -> Side:
    run_id = ""
    seqs: list[int] = []

    def before(i: int) -> None:
        nonlocal run_id, seqs
        run_id = str(uuid4())
        bare.begin()
        seqs = bare.located([str(r) for r in shown[i % len(shown)]])
        bare.expose(run_id, seqs)

    return Side(lambda _: bare.record(run_id, seqs), before)


def batch_of(store: MemoryWorthStore, shown: list[list[int]], size: int) -> Side:
    documents = [[Document(id=str(r), page_content=text_of(r)) for r in rows] for rows in shown]
    run_ids: list[str] = []

    def before(i: int) -> None:
        run_ids[:] = [str(uuid4()) for _ in range(size)]
        for j, run_id in enumerate(run_ids):
            key = EpisodeKey(run_id)
            store.governor.journal.expose_documents(key, documents[(i + j) % len(documents)])

    def work(_: int) -> None:
        store.record_outcomes([(run_id, _succeeds(j)) for j, run_id in enumerate(run_ids)])

    return Side(work, before)


def batch_by_hand(bare: BareEpisodes, shown: list[list[int]], size: int) -> Side:
    episodes: list[tuple[str, list[int], bool]] = []

    def before(i: int) -> None:
        episodes[:] = [
            (str(uuid4()), [r + 1 for r in shown[(i + j) % len(shown)]], _succeeds(j))
            for j in range(size)
        ]
        for run_id, seqs, _ in episodes:
            bare.begin()
            bare.expose(run_id, seqs)

    return Side(lambda _: bare.record_many(episodes), before)


def _whole(store: MemoryWorthStore) -> Callable[[int], object]:
    asked = queries()

    def work(i: int) -> None:
        with store.episode() as episode:
            store.governor.retrieval.recall_by_vector(asked[i % len(asked)], K)
        episode.record(outcome=_succeeds(i))

    return work


def _whole_by_hand(bare: BareEpisodes, index: Any) -> Callable[[int], object]:
    asked = queries()

    def work(i: int) -> None:
        run_id = str(uuid4())
        _, rows = index.search(asked[i % len(asked)][None], K)
        seqs = [r + 1 for r in rows[0].tolist()]
        bare.begin()
        for _, _, _, metadata in bare.texts(seqs):
            json.loads(metadata)
        bare.expose(run_id, seqs)
        bare.record(run_id, seqs, success=_succeeds(i))

    return work
