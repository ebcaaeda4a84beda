"""Many outcomes in one transaction are the same as one after the other, to the last bit."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore, Outcome, Status
from langchain_memoryworth.errors import InvalidInputError, InvalidOutcomeError, UnknownRunError
from langchain_memoryworth.records import EpisodeKey
from tests.fakes import assert_exact, counters, dump, fold_of_ledger, query
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]
IDS = [str(i) for i in range(12)]


def filled(store: MemoryWorthStore, runs: int = 40) -> MemoryWorthStore:
    """Episodes of one to five memories, in orders that differ."""
    store.add_texts([f"text {i}" for i in IDS], ids=IDS)
    draw = random.Random(3)
    for n in range(runs):
        documents: list[Any] = [Document("", id=i) for i in draw.sample(IDS, draw.randint(1, 5))]
        key = EpisodeKey(f"run{n}", aliases=(f"alias{n}",))
        store.governor.journal.expose_documents(key, documents)
    return store


def said(count: int) -> list[tuple[str, Any]]:
    """Outcomes with repetitions, corrections, aliases and use."""
    draw = random.Random(5)
    pairs: list[tuple[str, Any]] = []
    for _ in range(count):
        run = f"{draw.choice(['run', 'alias'])}{draw.randrange(40)}"
        pairs.append((run, draw.choice([True, False, 0.3])))
    return pairs


def test_a_batch_is_the_same_as_one_after_the_other(make_store: StoreMaker, url: str) -> None:
    policy = plain(suppress=False)
    one, many = filled(make_store(policy=policy)), filled(make_store(url, policy=policy))
    pairs = said(100)
    expected = [one.record_outcome(run, outcome) for run, outcome in pairs]
    assert many.record_outcomes(pairs[:30]) + many.record_outcomes(pairs[30:]) == expected
    assert counters(many) == counters(one)
    assert_exact(many)
    assert {s: total for s, (total, _) in counters(many).items()} == fold_of_ledger(many)
    rewards = "SELECT id, reward FROM episodes ORDER BY eid"
    assert query(many, rewards) == query(one, rewards)
    assert many.record_outcomes(pairs[-1:]) == [False]


def test_a_batch_judges_every_memory_by_all_of_it(make_store: StoreMaker, url: str) -> None:
    store = filled(make_store(url, policy=plain(v_min=2, exploration=0.0)))
    other = make_store(url) if url != "sqlite://" else store
    assert len(other.similarity_search("text", k=20)) == 12
    store.record_outcomes([(f"run{n}", False) for n in range(40)])
    assert {m.status for m in store.memories()} == {Status.SUPPRESSED}
    assert other.similarity_search("text", k=20) == []
    store.record_outcomes([(f"run{n}", True) for n in range(40)])
    assert {m.status for m in store.memories()} == {Status.ACTIVE}
    assert len(other.similarity_search("text", k=20)) == 12
    assert_exact(store)


def test_a_batch_of_times_before_and_after_a_restore(make_store: StoreMaker, url: str) -> None:
    store = filled(make_store(url, policy=plain(v_min=2, exploration=0.0)))
    store.record_outcomes([(f"run{n}", False) for n in range(20)])
    store.restore(IDS)
    assert store.suppressed() == []
    # Corrections of the time before and outcomes of the time after, mixed: only the latter may suppress.
    store.record_outcomes([(f"run{n}", n >= 20) for n in range(30)])
    store.record_outcomes([(f"run{n}", 0.5 if n < 20 else True) for n in range(40)])
    assert store.suppressed() == []
    assert_exact(store)


def test_use_in_a_batch(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=plain(w_min=0))
    store.add_texts(["a", "b"], ids=["a", "b"])
    store.governor.journal.expose_documents(
        EpisodeKey("run"), [Document("", id=i) for i in ("a", "b")]
    )
    assert store.record_outcomes([("run", Outcome(True, ("b",)))]) == [True]
    assert store.evidence("a").retrievals == 0
    assert store.evidence("b").hits_positive == 1.0


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (("nobody", True), UnknownRunError),
        (("run1", "yes"), InvalidOutcomeError),
        (("run1", None), InvalidInputError),
        (("run1", Outcome(True, ("nothing",))), InvalidInputError),
    ],
)
def test_one_that_cannot_be_keeps_all_from_being_written(
    make_store: StoreMaker, url: str, bad: Any, error: type[Exception]
) -> None:
    store = filled(make_store(url))
    before = dump(store)
    with pytest.raises(error):
        store.record_outcomes([("run0", True), bad, ("run2", False)])
    assert dump(store) == before


def test_an_empty_batch(store: MemoryWorthStore) -> None:
    assert store.record_outcomes([]) == []


@pytest.mark.parametrize(
    ("outcomes", "named"),
    [
        (["run0"], "'run0'"),
        (["r0"], "'r0'"),
        ({"run0": True}, "'run0'"),
        ([("run0",)], "('run0',)"),
        (5, "5"),
    ],
)
def test_what_is_no_pair_is_named(make_store: StoreMaker, outcomes: Any, named: str) -> None:
    store = make_store()
    with pytest.raises(InvalidInputError, match=rf"{re.escape(named)} is no outcome .* pairs of"):
        store.record_outcomes(outcomes)


async def test_a_batch_can_be_awaited(make_store: StoreMaker) -> None:
    store = filled(make_store())
    assert await store.arecord_outcomes([("run0", True), ("run0", True)]) == [True, False]


def test_more_than_fit_into_one_list(make_store: StoreMaker, url: str) -> None:
    store = make_store(url)
    store.add_texts(["a"], ids=["a"])
    for n in range(620):
        store.governor.journal.expose_documents(EpisodeKey(str(n)), [Document("", id="a")])
    assert store.record_outcomes([(str(n), True) for n in range(620)]) == [True] * 620
    assert store.evidence("a").retrievals == 620
    assert_exact(store)
