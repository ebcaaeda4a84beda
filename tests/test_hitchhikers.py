"""Pairs that are shown together: counted in bounded memory, never accused for a count that was inherited."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.governance.diversity import pair_pool
from benchmarks.governance.pools import batch_effects, memory_worth
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.hitchhikers import CoRetrievals, diversity_needed

sets = st.lists(st.lists(st.integers(0, 12), max_size=5, unique=True), max_size=60)


def counted(episodes, capacity=10_000):
    seen = CoRetrievals(capacity)
    for shown in episodes:
        seen.update(shown)
    return seen


def together(episodes):
    return Counter(pair for shown in episodes for pair in combinations(sorted(shown, key=str), 2))


@given(sets, st.integers(1, 8))
def test_counts_are_never_too_low_and_too_high_by_the_error_at_most(episodes, capacity):
    seen, exact = counted(episodes, capacity), together(episodes)
    assert len(seen._pairs) <= 2 * capacity
    assert seen._errors.keys() <= seen._pairs.keys()
    for pair, count in seen._pairs.items():
        assert count - seen._errors.get(pair, 0) <= exact[pair] <= count
    frequent = {pair for pair, count in exact.items() if count > seen.floor}
    assert frequent <= seen._pairs.keys()


@given(sets, st.randoms(use_true_random=False))
def test_with_room_for_all_pairs_the_order_of_the_episodes_does_not_matter(episodes, random):
    mixed = [random.sample(shown, len(shown)) for shown in random.sample(episodes, len(episodes))]
    one, two = (counted(e).report(together=0.5, least=1) for e in (episodes, mixed))
    assert {frozenset(c[:2]) for c in one} == {frozenset(c[:2]) for c in two}
    assert dict(counted(mixed)._pairs) == dict(together(episodes))


@given(sets)
def test_a_forgotten_memory_leaves_no_trace(episodes):
    seen = counted(episodes, 6)
    seen.forget(3)
    assert 3 not in seen.shown
    assert all(3 not in pair for pair in seen._pairs)
    for shown in episodes:
        seen.update(set(shown) - {3})
    assert len(seen._pairs) <= 12


def test_a_hitchhiker_is_found_among_a_thousand_memories():
    rng = np.random.default_rng(0)
    seen = CoRetrievals(capacity=500)
    for _ in range(2_000):
        others = rng.choice(1_000, size=6, replace=False) + 10
        pair = [1, 2] if rng.random() < 0.3 else []
        seen.update([*pair, *others.tolist()])
    (found,) = seen.report()
    assert {found.first, found.second} == {1, 2}
    assert found.overlap == 1.0
    assert "hold one of them out at one half for 1570 retrievals" in found.remedy


def test_a_popular_companion_is_reported_as_the_first():
    seen = counted([["a", "b"]] * 30 + [["a", "c"]] * 30)
    assert [(c.first, c.second, c.first_alone, c.second_alone) for c in seen.report()] == [
        ("a", "b", 30, 0),
        ("a", "c", 30, 0),
    ]


def test_worth_orders_a_pair_at_the_share_that_is_needed():
    # Two standard errors are .977; three of its own in 40 seeds below that are .90.
    share = diversity_needed(0.45, 4_000, k=8)
    values = [memory_worth(pair_pool(s, 4_000, share, 0.45))[:2] for s in range(40)]
    assert np.mean([anchor > rider for anchor, rider in values]) >= 0.9


def test_ridge_orders_the_pair_at_two_percent():
    fits = [
        batch_effects(pair_pool(seed, 10_000, 0.02, 0.45)).difference(0, 1) for seed in range(6)
    ]
    assert all(difference > 0 for difference, _ in fits)


def test_no_share_is_enough_for_too_few_episodes():
    assert diversity_needed(0.1, 100, k=8) == math.inf
    for arguments in ((0.0, 100, 8), (0.1, 0, 8), (0.1, 100, 0)):
        with pytest.raises(InvalidInputError):
            diversity_needed(*arguments[:2], k=arguments[2])
    with pytest.raises(InvalidInputError, match="capacity"):
        CoRetrievals(0)
