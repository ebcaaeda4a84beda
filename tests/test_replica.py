"""Loading an index, in parts, and following what outcomes change."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from langchain_memoryworth import MemoryWorthStore, Policy
from langchain_memoryworth.ledger.session import Statement
from tests.fakes import assert_is_top, brute, unit

StoreMaker = Callable[..., MemoryWorthStore]


def test_the_log_says_how_far_loading_has_come(
    make_store: StoreMaker,
    url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("langchain_memoryworth.vectors.replica.TELL_EVERY", 100)
    monkeypatch.setattr("langchain_memoryworth.ledger.feed._PART", 64)
    store = make_store(url)
    store.add_texts([f"text {i}" for i in range(250)])
    store.add_texts(["elsewhere"], namespace="small")
    with caplog.at_level(logging.INFO, logger="langchain_memoryworth"):
        assert len(store.similarity_search("text 7", k=300)) == 250
        store.similarity_search("text 8")
        store.similarity_search("elsewhere", namespace="small")
    assert [r.message for r in caplog.records] == [
        "[]: 128 of 250 memories loaded",
        "[]: 250 of 250 memories loaded",
    ]


def test_a_query_is_read_in_parts_and_never_as_a_whole(make_store: StoreMaker, url: str) -> None:
    """A worker that holds all rows at once while it loads takes more than twice the memory; this query has no end."""
    count = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t{}) SELECT n FROM t"
    endless, seven = Statement(count.format("")), Statement(count.format(" WHERE n < 7"))
    database = make_store(url).governor.database
    with database.read() as session:
        for _ in range(2):  # one after the other in a transaction
            assert list(session.parts(seven, 3)) == [
                [(1,), (2,), (3,)],
                [(4,), (5,), (6,)],
                [(7,)],
            ]
            assert list(session.parts(Statement(f"{seven.sql} WHERE n < 0"), 3)) == []
        assert session.number(seven) == 1
        parts = list(islice(session.parts(endless, 1_000), 3))
        assert parts[2][-1] == (3_000,)
    with database.read() as session:  # what was left in the middle is over with its transaction
        assert session.number(seven) == 1


@pytest.mark.parametrize("most", [0, 3, 4096])
@pytest.mark.parametrize("uncertain", ["prior", "pool"])
def test_counters_that_waited_are_ranked_by_exactly(
    make_store: StoreMaker, url: str, monkeypatch: pytest.MonkeyPatch, most: int, uncertain: Any
) -> None:
    """Queries by similarity leave the counters of outcomes where they are; the first by worth sees all of them."""
    monkeypatch.setattr("langchain_memoryworth.vectors.space._MOST_MOVED", most)
    store = make_store(url, policy=Policy(v_min=2, exploration=0.0, uncertain=uncertain))
    ids = [str(i) for i in range(12)]
    store.add_texts([f"word{i % 5} text" for i in range(12)], ids=ids)
    draw = random.Random(7)
    vector = unit(store.embeddings.embed_query("word1 text"))
    for step in range(40):
        with store.episode() as episode:
            store.similarity_search(f"word{step % 5}", k=4)
        assert episode.record(outcome=0.4 + 0.6 * draw.random())
        if step == 20:
            store.add_texts(["word1 anew"], ids=["3"])  # read anew, with its counters
            store.delete(["5"])
        if step in (19, 21, 39):
            weights = (0.5, 1.0, 0.0)
            scores, _ = brute(store, vector, weights)
            hits = store.governor.retrieval.recall_by_vector(vector, 6, track=False, rank=weights)
            assert_is_top([h.id for h in hits], scores, 6)
