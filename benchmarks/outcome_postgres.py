"""An episode of k = 8 and its outcome on Postgres, beside the same durable work by hand."""

from __future__ import annotations

from langchain_core.embeddings import DeterministicFakeEmbedding

from benchmarks.by_hand import BareEpisodes, PostgresLine
from benchmarks.data import DIMENSION, Floats, fill, folder, unit_vectors
from benchmarks.outcome import batch_by_hand, batch_of, choices, episode, episode_by_hand
from benchmarks.postgres import COMMITTED, server_in, sqlalchemy_url
from benchmarks.rows import Row, outcomes_a_second, ratio_row
from benchmarks.timing import COPIES, Pairs, Side, all_in_turn
from langchain_memoryworth import MemoryWorthStore

_MEMORIES, _BATCH = 1_000, 100


def run(*, quick: bool) -> list[Row]:
    """One outcome at a time, and many in one transaction."""
    count, size, rounds, batches = (50, 3, 2, 1) if quick else (_MEMORIES, _BATCH, 100, 10)
    vectors, shown = unit_vectors(count), choices(count)
    with folder() as place, server_in(place) as server:
        stores = [_filled(server, f"ours{i}", vectors) for i in range(COPIES)]
        for i in range(COPIES):
            _filled(server, f"bare{i}", vectors).close()
        bare = [BareEpisodes(PostgresLine(server, f"bare{i}")) for i in range(COPIES)]
        one = [
            [Side(episode(s, shown)) for s in stores],
            [Side(episode_by_hand(b, shown)) for b in bare],
        ]
        some = [
            [batch_of(s, shown, size) for s in stores],
            [batch_by_hand(b, shown, size) for b in bare],
        ]
        single = Pairs(*all_in_turn(one, rounds=rounds, warmup=10 if not quick else 1))
        together = Pairs(*all_in_turn(some, rounds=batches, warmup=1))
        for opened in (*stores, *bare):
            opened.close()
    by_hand, mode = "`psycopg` by hand", COMMITTED
    return [
        ratio_row(
            "8 documents shown, by id, and their outcome",
            by_hand,
            single,
            mode=mode,
            target=1.54,  # 0.65 times as many a second
            note=outcomes_a_second(single, 1, "by hand"),
        ),
        ratio_row(
            f"{size} outcomes by `record_outcomes`",
            f"{by_hand}, in one transaction",
            together,
            mode=mode,
            target=1.25,  # 0.8 times as many a second
            note=outcomes_a_second(together, size, "by hand"),
        ),
    ]


def _filled(server: str, schema: str, vectors: Floats) -> MemoryWorthStore:
    url = sqlalchemy_url(server)
    store = MemoryWorthStore(
        f"{url}&schema={schema}",
        DeterministicFakeEmbedding(size=DIMENSION),
        embedding_name="bench",
        durability="full",
    )
    fill(store, vectors)
    return store
