"""Which memories are reported as stale, and with what evidence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators import drift
from langchain_memoryworth.estimators.staleness import stale


def lives(rng: np.random.Generator, *chances: float | list[float]) -> drift.States:
    """One memory for each list of chances; as good as the base rate of .8 unless it says otherwise."""
    states = drift.fresh(len(chances))
    for number in range(1, 241):
        p = np.array([c if isinstance(c, float) else c[number > 180] for c in chances])
        states = drift.update(states, rng.random(len(p)) < p, at=number, expected=0.8)
    return states


def test_only_what_was_high_and_fell_is_stale() -> None:
    states = lives(np.random.default_rng(1), [0.9, 0.1], 0.8, 0.1, [0.1, 0.9], [0.9, 0.05])
    found = stale(["fell", "good", "always bad", "rose", "fell deep"], states, margin=0.2)
    assert sorted(d.memory_id for d in found) == ["fell", "fell deep"]
    fell = next(d for d in found if d.memory_id == "fell")
    assert fell.before == pytest.approx(0.9, abs=0.08)
    assert fell.now == pytest.approx(0.1, abs=0.12)
    assert fell.since == pytest.approx(180, abs=5)
    assert fell.before_size + fell.size == 240
    assert fell.expected == pytest.approx(0.8)
    assert fell.probability >= 0.99
    assert fell.deviation == pytest.approx((0.1 * 0.9 / 60) ** 0.5, abs=0.02)
    assert [d.probability for d in found] == sorted((d.probability for d in found), reverse=True)


def test_it_says_so_in_words() -> None:
    states = lives(np.random.default_rng(1), [0.9, 0.1])
    assert str(stale(["fell"], states, theta=0.4)[0]).startswith("fell: 0.9")


def test_what_was_never_high_enough_or_long_enough_is_not() -> None:
    states = lives(np.random.default_rng(1), [0.9, 0.1])
    assert stale(["a"], states, theta=0.4)
    assert not stale(["a"], states, theta=0.4, high=0.99)
    assert not stale(["a"], states, theta=0.4, least=200)
    assert not stale(["a"], drift.fresh(1), theta=0.4)
    assert stale([], drift.fresh(0), theta=0.4) == []


fallen = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 25), st.floats(0.3, 1)), min_size=1, max_size=6
)
"""For each memory its successes in a row, its failures after them, and what was to be expected."""


def after(runs: list[tuple[int, int, float]]) -> drift.States:
    heard = [
        [drift.Heard(i, float(i <= good), 1.0, expected) for i in range(1, good + bad + 1)]
        for good, bad, expected in runs
    ]
    return drift.updates(drift.fresh(len(runs)), heard)


@given(fallen, st.randoms(use_true_random=False))
def test_the_order_of_the_memories_does_not_matter(runs, random) -> None:
    states, order = after(runs), random.sample(range(len(runs)), len(runs))
    names = [f"m{i}" for i in range(len(runs))]
    found = stale([names[i] for i in order], states[order], margin=0.1)
    assert {d.memory_id: d for d in found} == {
        d.memory_id: d for d in stale(names, states, margin=0.1)
    }
    surest = [d.probability for d in found]
    assert surest == sorted(surest, reverse=True)


@given(fallen, st.floats(0, 0.5), st.floats(0, 0.5))
def test_whoever_asks_for_a_wider_margin_hears_of_no_more(runs, one, other) -> None:
    states, names = after(runs), [f"m{i}" for i in range(len(runs))]
    narrow, wide = (
        {d.memory_id: d for d in stale(names, states, margin=m)} for m in sorted((one, other))
    )
    assert wide.keys() <= narrow.keys()
    assert all(d.probability <= narrow[i].probability + 1e-12 for i, d in wide.items())


def test_a_threshold_is_needed() -> None:
    with pytest.raises(InvalidInputError):
        stale(["a"], drift.fresh(1))
