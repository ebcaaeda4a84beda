"""Counts that forget: against the formula, in any order, and back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.discount import Discounted, added, discounted, nothing

outcomes = st.lists(
    st.tuples(st.floats(0, 1), st.floats(0, 100), st.floats(0, 1)), min_size=1, max_size=20
)


def fold(sequence, half_life: float = 7.0) -> Discounted:
    counts = nothing(1)
    for reward, at, size in sequence:
        counts = added(counts, reward, at=at, size=size, half_life=half_life)
    return counts


def close(one: Discounted, other: Discounted) -> None:
    for a, b in zip(one, other, strict=True):
        assert a == pytest.approx(b, abs=1e-9)


@given(outcomes)
def test_it_is_the_weighted_sum(sequence) -> None:
    reward, at, size = np.array(sequence).T
    weight = size * 0.5 ** ((at.max() - at) / 7.0)
    counts = fold(sequence)
    assert counts.success[0] == pytest.approx((weight * reward).sum())
    assert counts.failure[0] == pytest.approx((weight * (1 - reward)).sum(), abs=1e-12)
    assert counts.size[0] == pytest.approx(weight.sum())


@given(outcomes, st.randoms(use_true_random=False))
def test_the_order_does_not_matter(sequence, random) -> None:
    before = fold(sequence)
    random.shuffle(sequence)
    close(fold(sequence), before)


@given(outcomes, st.data())
def test_a_correction_is_the_fold_without_it(sequence, data) -> None:
    reward, at, size = data.draw(st.sampled_from(sequence))
    rest = list(sequence)
    rest.remove((reward, at, size))
    back = added(fold(sequence), reward, at=at, size=-size, half_life=7.0)
    without = discounted(fold(rest), back.mark, half_life=7.0)
    close(back, without)


@given(outcomes, st.lists(st.floats(0, 300), min_size=1, max_size=5))
def test_looking_in_between_changes_nothing(sequence, looks) -> None:
    counts = fold(sequence)
    last = max(looks)
    step = counts
    for look in sorted(looks):
        step = discounted(step, look, half_life=7.0)
    close(step, discounted(counts, last, half_life=7.0))


def test_many_at_once_are_each_alone() -> None:
    rng = np.random.default_rng(1)
    reward, at = rng.random((30, 5)), rng.integers(0, 50, (30, 5))
    counts = nothing(5)
    for r, t in zip(reward, at, strict=True):
        counts = added(counts, r, at=t, half_life=7.0)
    for i in range(5):
        alone = fold([(r, t, 1.0) for r, t in zip(reward[:, i], at[:, i], strict=True)])
        assert counts.success[i] == pytest.approx(alone.success[0])


def test_evidence_is_bounded_and_the_ratio_follows_a_change() -> None:
    counts, ratios = nothing(1), []
    for number in range(600):
        counts = added(counts, float(number < 400), at=number, half_life=50)
        ratios.append(float((counts.success / counts.size)[0]))
    assert counts.size[0] == pytest.approx(1 / (1 - 0.5 ** (1 / 50)), rel=1e-3)
    assert ratios[399] == pytest.approx(1.0)
    assert ratios[449] == pytest.approx(0.5, abs=0.01)  # one half-life after
    assert all(later < earlier for earlier, later in pairwise(ratios[400:]))


def test_an_earlier_look_changes_nothing() -> None:
    counts = fold([(1.0, 10.0, 1.0)])
    assert discounted(counts, 3, half_life=7.0) == counts


@pytest.mark.parametrize("half_life", [0.0, -1.0, float("nan")])
def test_a_half_life_must_be_above_zero(half_life: float) -> None:
    with pytest.raises(InvalidInputError):
        added(nothing(1), 1.0, at=0, half_life=half_life)
