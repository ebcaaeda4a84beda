"""What a result was made from: one form for it, kept with the outcome or the run, so that a correction is exact."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_memoryworth import MemoryWorthStore, Outcome
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.credit import Shown, settle
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.estimators.use import (
    PARTS,
    checked_use,
    from_document,
    shares_of,
    to_document,
)
from tests.conftest import StoreMaker
from tests.fakes import assert_exact, counters
from tests.runs_fixtures import filled

weighted = st.dictionaries(
    st.text(min_size=1, max_size=3), st.floats(0, 1e300) | st.integers(0, 10**9), max_size=8
)


# -- one form ------------------------------------------------------------------------------------------------------


@given(weighted, st.sampled_from([1, 2, 1024]))
def test_the_scale_of_weights_does_not_matter(weights: dict[str, float], scale: int) -> None:
    assert checked_use({i: w * scale for i, w in weights.items()}) == checked_use(weights)


@given(weighted)
def test_the_form_is_the_form_of_itself_and_survives_the_database(
    weights: dict[str, float],
) -> None:
    use = checked_use(weights)
    assert checked_use(use) == use
    assert from_document(to_document(use)) == use
    shares = shares_of(use)
    assert list(shares) == sorted(shares)
    assert set(shares) <= set(weights)
    assert not shares or max(shares.values()) == 1.0
    assert all(round(s * PARTS) / PARTS == s for s in shares.values())


@given(weighted.filter(lambda w: any(w.values())))
def test_rounding_moves_a_share_by_half_a_part_at_most(weights: dict[str, float]) -> None:
    top = max(weights.values())
    shares = shares_of(checked_use(weights))
    assert all(abs(shares.get(i, 0.0) - w / top) <= 0.5 / PARTS + 1e-12 for i, w in weights.items())


@pytest.mark.parametrize(
    ("said", "use"),
    [
        ([], ()),
        ({}, ()),
        ({"a": 0, "b": 0.0}, ()),
        (["b", "a", "a"], ("a", "b")),
        ({"a": 3, "b": 3}, ("a", "b")),
        ({"a": 1, "b": 0}, ("a",)),
        ({"a": 1, "b": 1e-9}, ("a",)),
        ({"a": np.float32(0.5), "b": Fraction(1, 4)}, {"a": 1.0, "b": 0.5}),
        ({"a": True, "b": 0.5}, {"a": 1.0, "b": 0.5}),
        ({"a": 5e-324, "b": 0}, ("a",)),
        ({"a": 1.7e308, "b": 1.7e308 / 4}, {"a": 1.0, "b": 0.25}),
    ],
    ids=str,
)
def test_what_can_be_meant(said: Any, use: Any) -> None:
    assert checked_use(said) == use


def test_a_generator_is_as_good_as_a_list() -> None:
    assert checked_use(i for i in "ba") == ("a", "b")


@pytest.mark.parametrize(
    "said",
    [
        [7],
        [None],
        {7: 1.0},
        {"a": -1},
        {"a": math.nan},
        {"a": math.inf},
        {"a": 10**400},
        {"a": "1"},
        {"a": None},
    ],
    ids=str,
)
def test_what_cannot_be_meant(said: Any) -> None:
    with pytest.raises(InvalidInputError) as error:
        checked_use(said)
    assert error.value.value is said


# -- credit ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, PARTS), min_size=1, max_size=20).filter(any),
    st.floats(0, 1),
    st.sampled_from([0.0, 1.0, 0.3]),
)
def test_shares_are_the_scores_above_the_floor(
    parts: list[int], w_min: float, reward: float
) -> None:
    shown = [Shown(str(i), i, None, None) for i in range(len(parts))]  # type: ignore[arg-type]
    got = settle(shown, reward, {str(i): p / PARTS for i, p in enumerate(parts)}, w_min=w_min)
    k, floor = len(parts), min(w_min, 1 / len(parts))
    assert sum(c.weight for c in got) == UNIT
    for credit, part in zip(got, parts, strict=True):
        assert credit.weight / UNIT == pytest.approx(
            floor + (1 - k * floor) * part / sum(parts), abs=1e-8
        )


# -- in the ledger -----------------------------------------------------------------------------------------------------


@pytest.fixture
def memories(store: MemoryWorthStore) -> MemoryWorthStore:
    return filled(store)


def weights(store: MemoryWorthStore, run_id: str) -> dict[str, float]:
    return {e.memory_id: round(e.weight, 4) for e in store.run(run_id).exposures}


def asked(store: MemoryWorthStore, name: str = "e") -> str:
    with store.episode(name):
        found = store.similarity_search("apple bread", k=3)
    assert {"apple", "bread"} <= {d.id for d in found}
    return name


def test_an_outcome_gives_weights_and_a_correction_is_exact(memories: MemoryWorthStore) -> None:
    before = counters(memories)
    e = asked(memories)
    assert memories.record_outcome(e, True, used={"apple": 6, "bread": 2})
    w = weights(memories, e)
    assert (w["apple"], w["bread"]) == (round(0.01 + 0.97 * 0.75, 4), round(0.01 + 0.97 * 0.25, 4))
    once = counters(memories)
    assert not memories.record_outcome(e, True, used={"bread": 0.25, "apple": 0.75})
    assert memories.record_outcome(e, True, used={"bread": 1, "apple": 1})
    assert not memories.record_outcome(e, True, used=["bread", "apple"])
    assert memories.record_outcome(e, True, used={"apple": 3, "bread": 1})
    assert counters(memories) == once
    assert memories.run(e).outcomes[0].used == {"apple": 1.0, "bread": 0.3333}
    assert_exact(memories)
    memories.withdraw_outcome(e)
    assert counters(memories) == before


def test_what_a_run_says_holds_for_every_outcome_that_does_not_say_so(
    memories: MemoryWorthStore,
) -> None:
    e = asked(memories)
    memories.governor.journal.mark_used(e, {"apple": 0.9, "bread": 0.3})
    memories.record_outcome(e, True, source="evaluator")
    graded = weights(memories, e)
    assert {x.memory_id: x.used for x in memories.run(e).exposures if x.used} == {
        "apple": 1.0,
        "bread": 0.3333,
    }
    assert graded["apple"] > 2.5 * graded["bread"] > 7 * min(graded.values())
    memories.record_outcome(e, False)
    assert weights(memories, e) == graded
    memories.record_outcome(e, Outcome(0.0, {"bread": 1}))
    assert weights(memories, e)["bread"] == 0.98
    memories.withdraw_outcome(e)
    assert weights(memories, e) == graded
    assert_exact(memories)


def test_the_most_that_a_run_says_of_a_memory_counts(memories: MemoryWorthStore) -> None:
    e = asked(memories)
    memories.record_outcome(e, True)
    memories.governor.journal.mark_used(e, {"apple": 1, "bread": 0.5})
    memories.governor.journal.mark_used(e, {"bread": 2, "apple": 0.2})
    w = weights(memories, e)
    assert w["apple"] == w["bread"] == 0.495
    assert_exact(memories)


def test_an_id_that_was_not_retrieved_is_refused_unless_it_weighs_nothing(
    memories: MemoryWorthStore,
) -> None:
    e = asked(memories)
    with pytest.raises(InvalidInputError, match="nobody"):
        memories.record_outcome(e, True, used={"nobody": 1, "apple": 1})
    assert memories.run(e).outcomes == ()
    assert memories.record_outcome(e, True, used={"nobody": 0, "apple": 1})


def test_another_process_and_an_import_settle_the_same(
    make_store: StoreMaker, tmp_path: Any
) -> None:
    store = filled(make_store())
    e = asked(store)
    store.governor.journal.mark_used(e, {"apple": 1, "bread": 0.37})
    store.record_outcome(e, 0.3)
    store.record_outcome(asked(store, "f"), True, used={"apple": 0.1, "bread": 0.2})
    store.export_file(tmp_path / "all.jsonl")
    other = make_store()
    other.import_file(tmp_path / "all.jsonl")
    for s in (store, other):
        s.record_outcome(e, True)
        s.record_outcome("f", False, used={"apple": 0.1, "bread": 0.2})
    assert counters(other) == counters(store)
    assert_exact(other)


def test_erasing_leaves_the_shares_of_the_others(memories: MemoryWorthStore) -> None:
    e = asked(memories)
    memories.record_outcome(e, True, used={"apple": 4, "bread": 1})
    before = weights(memories, e)["bread"]
    memories.erase("apple")
    [used] = [o.used for o in memories.run(e).outcomes]
    assert isinstance(used, dict)
    assert used["bread"] == 0.25
    assert "apple" not in used
    memories.record_outcome(e, False, source="evaluator")
    memories.record_outcome(e, False, used=used)
    assert weights(memories, e)["bread"] == before
    assert_exact(memories)
