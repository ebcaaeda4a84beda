"""How long a trial takes: retrievals, episodes and days, from what the ledger knows of the memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from statistics import NormalDist

import pytest

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError
from langchain_memoryworth.estimators.lift import retrievals_needed
from tests.fakes import Clock
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]
Z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)


def played(make_store: StoreMaker, clock: Clock, url: str, **policy: object) -> MemoryWorthStore:
    """A hundred episodes, one every six hours; all retrieve tea, a quarter coffee too, and 60 succeed. Cocoa is never asked for."""
    store = make_store(url, policy=plain(exploration=0.0, suppress=False, **policy))
    store.add_texts(["tea", "coffee", "cocoa"], ids=["tea", "coffee", "cocoa"])
    for i in range(100):
        clock.forward(seconds=6 * 3600 if i else 0)
        with store.episode(f"run-{i}") as episode:
            store.similarity_search("tea", k=1)
            if i % 4 == 0:
                store.similarity_search("coffee", k=1)
        episode.record(i % 5 < 3)
    with store.episode("open"):
        store.similarity_search("tea", k=1)
    return store


def test_a_plan_before_a_trial(make_store: StoreMaker, clock: Clock, url: str) -> None:
    store = played(make_store, clock, url)
    tea, coffee, cocoa = store.plan_trial(["tea", "coffee", "cocoa"], lift=0.1)
    p = 61 / 102
    expected = math.ceil(Z**2 * p * (1 - p) / (0.25 * 0.1**2))
    for plan in (tea, coffee, cocoa):
        assert (plan.rate, plan.base_rate) == (0.5, pytest.approx(p))
        assert (plan.needed, plan.drawn, plan.remaining) == (expected, 0, expected)
    assert (tea.share, tea.episodes) == (1.0, expected)
    assert tea.time == timedelta(hours=6) * expected
    assert (coffee.share, coffee.episodes) == (0.25, 4 * expected)
    assert (cocoa.share, cocoa.episodes, cocoa.time) == (0.0, None, None)
    assert "never retrieved" in str(cocoa)
    assert f"{expected} episodes, {expected / 4:.1f} days" in str(tea)


def test_what_was_drawn_about_is_taken_off(make_store: StoreMaker, clock: Clock) -> None:
    """What a trial half and half of `effective_size` retrievals says takes 1 / (4 rate (1 - rate)) times as many at another rate."""
    store = played(make_store, clock, "sqlite://", hold_out=0.3)
    [lift] = store.lift("tea")
    assert 0 < lift.held_out < lift.shown
    [plan] = store.plan_trial("tea", lift=0.25)
    assert (plan.rate, plan.drawn) == (0.3, 100)
    assert plan.needed == retrievals_needed(0.25, base_rate=plan.base_rate, share=0.3)
    assert plan.remaining == math.ceil(plan.needed - lift.effective_size / (4 * 0.3 * 0.7))
    assert 0 < plan.remaining < plan.needed
    [other] = store.plan_trial("tea", lift=0.25, rate=0.5)
    assert other.remaining == math.ceil(other.needed - lift.effective_size)
    [done] = store.plan_trial("tea", lift=0.9)
    assert (done.remaining, done.episodes, done.time) == (0, 0, timedelta(0))
    [harmful] = store.plan_trial("tea", lift=-0.25)
    assert harmful == plan


def test_without_ids_the_plan_is_of_what_is_held_out(make_store: StoreMaker, clock: Clock) -> None:
    store = played(make_store, clock, "sqlite://")
    assert store.plan_trial() == ()
    store.hold_out("coffee", rate=0.2)
    [plan] = store.plan_trial()
    assert (plan.memory_id, plan.rate) == ("coffee", 0.2)
    everywhere = played(make_store, clock, "sqlite://", hold_out=0.1)
    everywhere.pin("tea")
    assert [(p.memory_id, p.rate) for p in everywhere.plan_trial()] == [
        ("coffee", 0.1),
        ("cocoa", 0.1),
    ]


def test_where_nothing_has_happened(make_store: StoreMaker) -> None:
    store = make_store()
    assert store.plan_trial() == ()
    store.add_texts(["tea"], ids=["tea"])
    [plan] = store.plan_trial("tea")
    assert (plan.needed, plan.base_rate, plan.episodes, plan.time) == (785, 0.5, None, None)
    with store.episode() as episode:
        store.similarity_search("tea", k=1)
    episode.record(True)
    [plan] = store.plan_trial("tea")
    assert plan.base_rate == pytest.approx(2 / 3)  # one success is no certainty
    assert (plan.episodes, plan.time) == (plan.needed, None)  # one episode has no pace


@pytest.mark.parametrize(
    "wrong",
    [
        *({"lift": x} for x in (0, 0.0, 1.5, -2, math.nan, "much", True)),
        *({name: x} for name in ("rate", "power", "level") for x in (0, 1, -0.1, math.nan, "half")),
    ],
)
def test_a_wrong_aim(make_store: StoreMaker, wrong: dict[str, object]) -> None:
    store = make_store()
    with pytest.raises(InvalidInputError, match=f"{next(iter(wrong))}="):
        store.plan_trial(**wrong)  # type: ignore[arg-type]


def test_wrong_ids(make_store: StoreMaker) -> None:
    store = make_store()
    with pytest.raises(MemoryNotFoundError, match="nobody"):
        store.plan_trial(["nobody"])
    with pytest.raises(InvalidInputError):
        store.plan_trial(7)  # type: ignore[arg-type]


async def test_the_async_twin(make_store: StoreMaker, clock: Clock) -> None:
    store = played(make_store, clock, "sqlite://")
    assert await store.aplan_trial("tea", lift=0.2) == store.plan_trial("tea", lift=0.2)
