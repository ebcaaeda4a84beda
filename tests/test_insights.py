"""Reports on a store: effects, companions, decline and the paper's assumptions, against what was put into the ledger."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError
from langchain_memoryworth.estimators import ridge
from langchain_memoryworth.estimators.effects import STRENGTH
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.records import EpisodeKey
from langchain_memoryworth.service import analyst
from tests.fakes import Clock
from tests.notes import filled
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]


def run(
    store: MemoryWorthStore, name: str, ids: list[str], outcome: float, context: str = ""
) -> None:
    key = EpisodeKey(name, context=context)
    store.governor.journal.expose_documents(key, [Document("", id=i) for i in ids])
    store.record_outcome(name, outcome)


@pytest.fixture
def pool(make_store: StoreMaker, url: str) -> MemoryWorthStore:
    store = make_store(url, policy=plain(suppress=False))
    store.add_texts([f"note {i}" for i in range(30)], ids=[f"m{i}" for i in range(30)])
    return store


def played(store: MemoryWorthStore, episodes: int = 240) -> None:
    """m0 helps, m1 harms, m2 is always with m3; tasks of the topic "hard" succeed less."""
    rng = np.random.default_rng(11)
    for i in range(episodes):
        ids = {f"m{j}" for j in rng.choice(range(4, 30), 3, replace=False)}
        ids |= {f"m{j}" for j in (0, 1) if rng.random() < 0.5}
        if i % 3 == 0:
            ids |= {"m2", "m3"}
        hard = i % 2 == 0
        p = 0.5 - 0.2 * hard + 0.3 * ("m0" in ids) - 0.3 * ("m1" in ids)
        run(store, f"r{i}", sorted(ids), float(rng.random() < p), "hard" if hard else "easy")


def test_effects_by_the_sums_and_by_the_regression(pool: MemoryWorthStore) -> None:
    played(pool)
    for exact in (False, True):
        effects = {e.memory_id: e for e in pool.effects(exact=exact)}
        assert len(effects) == 30
        listed = [e.memory_id for e in pool.effects(exact=exact)]
        assert (listed[0], listed[-1]) == ("m1", "m0")
        assert effects["m1"].harm > 0.99
        assert effects["m0"].harm < 0.01
    sums = {e.memory_id: e for e in pool.effects()}
    e = pool.evidence("m7")
    expected = (e.surprise / UNIT) / (e.size / UNIT + STRENGTH)
    assert sums["m7"].effect == pytest.approx(expected)
    assert "m0: effect +0." in str(sums["m0"])


def test_companions_that_outcomes_cannot_tell_apart(pool: MemoryWorthStore) -> None:
    played(pool)
    [pair] = pool.companions()
    assert {pair.first, pair.second} == {"m2", "m3"}
    assert (pair.together, pair.first_alone, pair.second_alone) == (80, 0, 0)
    assert "hold one of them out" in pair.remedy
    assert (pair.difference, pair.deviation) == (None, None)


def test_the_regression_tells_a_pair_apart_by_the_episodes_that_did(pool: MemoryWorthStore) -> None:
    """Success comes from m0; m1 goes with it, but for one in eleven of the episodes that show either."""
    rng = np.random.default_rng(3)
    for i in range(264):
        pair = {0: ["m0"], 22: ["m1"]}.get(i % 44, ["m0", "m1"]) if i % 2 == 0 else []
        others = [f"m{j}" for j in rng.choice(range(2, 30), 3, replace=False)]
        run(pool, f"r{i}", [*pair, *others], "m0" in pair)
    [found] = pool.companions(exact=True)
    assert found.difference is not None
    assert found.deviation is not None
    sign = 1 if found.first == "m0" else -1
    assert sign * found.difference > 2 * found.deviation > 0
    assert found._replace(difference=None, deviation=None) == pool.companions()[0]
    effects = {e.memory_id: e for e in pool.effects(exact=True)}
    between = effects[str(found.first)].effect - effects[str(found.second)].effect
    assert found.difference == pytest.approx(between)
    apart = effects["m0"].deviation ** 2 + effects["m1"].deviation ** 2
    assert found.deviation**2 > apart  # they share the success of the episodes that showed both


def test_a_pair_that_was_never_apart_has_no_difference(pool: MemoryWorthStore) -> None:
    played(pool)
    [pair] = pool.companions(exact=True)
    assert pair.difference == pytest.approx(0.0, abs=1e-12)


def test_effects_of_some_memories_are_those_among_all(pool: MemoryWorthStore) -> None:
    played(pool)
    for exact in (False, True):
        everyone = {e.memory_id: e for e in pool.effects(exact=exact)}
        found = pool.effects(["m3", "m1", "m3"], exact=exact)
        assert [e.memory_id for e in found] == ["m1", "m3"]
        for e in found:
            assert e.effect == pytest.approx(everyone[e.memory_id].effect)
            assert e.deviation == pytest.approx(everyone[e.memory_id].deviation)
        [alone] = pool.effects("m1", exact=exact)
        assert alone.effect == pytest.approx(found[0].effect)
        with pytest.raises(MemoryNotFoundError, match="'gone'"):
            pool.effects(["m1", "gone"], exact=exact)


def test_the_regression_after_an_outcome_is_withdrawn_is_the_one_without_it(
    pool: MemoryWorthStore,
) -> None:
    played(pool)
    before = pool.effects(exact=True)
    run(pool, "wrong", ["m0", "m1", "m2"], 0.0, "hard")
    assert pool.effects(exact=True) != before
    pool.withdraw_outcome("wrong")
    assert pool.effects(exact=True) == before


def test_a_regression_on_some_of_many_memories_has_those_shown_most_beside_them(
    pool: MemoryWorthStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(pool)
    for module in (analyst, ridge):
        monkeypatch.setattr(module, "LIMIT", 5)
    with pytest.raises(InvalidInputError, match="ids of fewer"):
        pool.effects(exact=True)
    [rare] = pool.effects("m9", exact=True)
    assert rare.memory_id == "m9"
    assert [e.memory_id for e in pool.effects(["m0", "m1"], exact=True)] == ["m1", "m0"]
    [pair] = pool.companions(exact=True)
    assert pair.difference is not None
    monkeypatch.setattr(analyst, "LIMIT", 1)
    assert pool.companions(exact=True) == pool.companions()


def test_what_was_good_and_has_declined(pool: MemoryWorthStore) -> None:
    for i in range(160):
        run(pool, f"a{i}", [f"m{i % 4}"], i % 5 > 0)
    assert pool.stale() == ()
    for i in range(60):
        run(pool, f"b{i}", [f"m{i % 4}"], i % 4 != 0)
    [found] = pool.stale()
    assert found.memory_id == "m0"
    assert found.before > 0.7
    assert found.now < 0.3
    assert found.probability >= 0.99


def test_a_specialist_of_hard_tasks_is_above_its_contexts(make_store: Any) -> None:
    """Hard tasks succeed in 1 of 4 and easy ones in 3 of 4, but with m0 in half of the hard ones and with m1 in half of the easy."""
    store = filled(make_store, 4)
    for i in range(160):
        hard = i % 2 == 0
        shown = (0, 2)[i // 2 % 2] if hard else (1, 3)[i // 2 % 2]
        good = i // 4 % 4 < ({0: 2, 2: 0}[shown] if hard else {1: 2, 3: 4}[shown])
        run(store, f"r{i}", [f"m{shown}"], good, "hard" if hard else "easy")
    assert store.worth("m0") == store.worth("m1") == 0.5
    found = {a.memory_id: a for a in store.advantages()}
    for name in ("m0", "m1"):
        [_, inside] = store.by_context(name)
        expected = 40 * inside.advantage / (40 + 10)
        assert found[name].value == pytest.approx(expected)
        assert found[name].retrievals == 40
    assert {a.memory_id for a in store.advantages()[:2]} == {"m0", "m3"}
    assert found["m0"].value > 0.15
    assert found["m1"].value < -0.15


@pytest.mark.parametrize("half_life", [3, timedelta(days=6)])
def test_the_recent_worth_forgets(make_store: Any, clock: Clock, half_life: Any) -> None:
    """Each run is two days after the last; three of them are a half-life, in runs as in time."""
    store = filled(make_store, 1)
    rewards = [1.0, 1.0, 1.0, 0.0, 0.25, 1.0]
    for i, reward in enumerate(rewards):
        clock.forward(days=2 if i else 0)
        run(store, f"r{i}", ["m0"], reward)
    weights = 0.5 ** (np.arange(len(rewards))[::-1] / 3)
    found = store.recent_worth("m0", half_life)
    assert found.worth == pytest.approx(weights @ rewards / weights.sum())
    assert found.size == pytest.approx(weights.sum())
    store.record_outcome("r5", False)  # corrected, as if it had been so from the first
    assert store.recent_worth("m0", half_life).worth == pytest.approx(
        weights[:5] @ rewards[:5] / weights.sum()
    )
    clock.forward(days=6)  # time goes on without outcomes, and leaves half of the evidence
    left = 0.5 if isinstance(half_life, timedelta) else 1.0
    assert store.recent_worth("m0", half_life).size == pytest.approx(left * weights.sum())


def test_a_recent_worth_needs_a_memory_and_a_half_life(make_store: Any) -> None:
    store = filled(make_store, 1)
    assert store.recent_worth("m0", 10) == (0.5, 0.0)
    for wrong in (0, -1, float("nan"), timedelta(0)):
        with pytest.raises(InvalidInputError, match="half-life"):
            store.recent_worth("m0", wrong)
    with pytest.raises(MemoryNotFoundError):
        store.recent_worth("nobody", 10)


def test_the_assumptions_of_a_store(pool: MemoryWorthStore) -> None:
    assert [f.state for f in pool.assumptions()] == [
        "unknown",
        "unknown",
        "unknown",
        "supported",
        "unknown",
        "unknown",
    ]
    played(pool, 600)
    found = {f.assumption: f for f in pool.health(assumptions=True).assumptions}
    assert found["A1"].state == "supported"
    assert found["A2"].state == "unknown"  # 600 episodes cannot tell one in a thousand from none
    assert found["A3"].state == "doubtful"  # the topics differ in difficulty
    assert "contexts" in found["A3"].why
    assert found["A5"].state == "supported"
    assert found["A6"].state == "supported"
    assert pool.health().assumptions == ()


async def test_async_twins(make_store: StoreMaker) -> None:
    store = make_store()
    assert await store.aeffects() == ()
    assert await store.aeffects(exact=True) == ()
    assert await store.acompanions(exact=True) == ()
    assert await store.astale() == ()
    assert len(await store.aassumptions()) == 6
