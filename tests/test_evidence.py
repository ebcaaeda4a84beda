"""Memory Worth and evidence size: the paper's Definition 3.1, and sums that reverse exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_memoryworth import worth as public_worth
from langchain_memoryworth.estimators.credit import Shown, settle
from langchain_memoryworth.estimators.evidence import (
    UNIT,
    Evidence,
    effective_size,
    squared_weight,
    worth,
)

# Up to a million retrievals: so far every count is exact as a float64.
units = st.integers(min_value=0, max_value=1_000_000 * UNIT)


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    return Evidence(*(draw(units) for _ in range(4)), retrievals=draw(st.integers(0, 10**6)))


def test_one_unit_is_two_to_the_32() -> None:
    assert UNIT == 2**32


def test_worth_is_exported() -> None:
    assert public_worth is worth


@pytest.mark.parametrize(
    ("positive", "negative", "expected"),
    [(80, 20, 0.8), (8, 2, 0.8), (0, 5, 0.0), (5, 0, 1.0), (0, 0, 0.5), (1, 2, 1 / 3)],
)
def test_worth_is_equation_1(positive: int, negative: int, expected: float) -> None:
    assert worth(positive, negative) == expected
    assert Evidence(positive * UNIT, negative * UNIT).worth == expected


def test_worth_of_the_papers_two_memories_is_equal_and_their_volume_is_not() -> None:
    a, b = Evidence(80 * UNIT, 20 * UNIT), Evidence(8 * UNIT, 2 * UNIT)
    assert a.worth == b.worth == 0.8
    assert (a.volume, b.volume) == (100.0, 10.0)


def test_worth_of_arrays_keeps_shape_and_type() -> None:
    result = worth(np.array([[0, 3], [1, 0]]), np.array([[0, 1], [1, 4]]))
    assert result.dtype == np.float64
    assert result.tolist() == [[0.5, 0.75], [0.5, 0.0]]
    assert worth(np.array([]), np.array([])).shape == (0,)


def test_scalars_give_floats() -> None:
    assert type(worth(1, 1)) is float
    assert type(worth(np.int64(1), np.int64(1))) is float
    assert type(effective_size(1.0, 1.0, 1.0)) is float


def test_no_evidence_does_not_divide_by_zero() -> None:
    with np.errstate(all="raise"):
        assert worth(np.zeros(3), np.zeros(3)).tolist() == [0.5] * 3
        assert effective_size(np.zeros(2), np.zeros(2), np.zeros(2)).tolist() == [0.0] * 2
    assert Evidence().worth == 0.5
    assert Evidence().effective_size == 0.0


@given(st.lists(st.tuples(units, units), min_size=1, max_size=20))
def test_worth_scalar_equals_vectorised_and_exact_rationals(pairs: list[tuple[int, int]]) -> None:
    positive, negative = np.array(pairs, dtype=np.int64).T
    together = worth(positive, negative)
    for (p, n), ratio in zip(pairs, together.tolist(), strict=True):
        assert ratio == worth(p, n) == Evidence(p, n).worth
        assert 0.0 <= ratio <= 1.0
        assert abs(Fraction(ratio) - (Fraction(p, p + n) if p + n else Fraction(1, 2))) < 1e-15


@given(st.lists(evidences(), min_size=1, max_size=20))
def test_effective_size_scalar_equals_vectorised(rows: list[Evidence]) -> None:
    together = effective_size(
        np.array([e.size for e in rows]) / UNIT,
        np.array([e.positive + e.negative for e in rows]) / UNIT,
        np.array([e.squared for e in rows]) / UNIT,
    )
    assert together.tolist() == [e.effective_size for e in rows]


@given(evidences())
def test_effective_size_is_the_smaller_of_n_and_kish(e: Evidence) -> None:
    total = e.positive + e.negative
    kish = Fraction(total * total, e.squared * UNIT) if e.squared else Fraction(0)
    exact = min(Fraction(e.size, UNIT), kish)
    assert abs(Fraction(e.effective_size) - exact) <= Fraction(501, 10**6) + exact / 10**12


@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 8, 10, 49, 100])
@pytest.mark.parametrize("episodes", [1, 9, 10, 100])
def test_equal_weights_count_as_whole_retrievals(k: int, episodes: int) -> None:
    """V_min = 10 retrievals, as in the paper, whatever k is."""
    shown = [Shown(str(i), i, None, None) for i in range(k)]  # type: ignore[arg-type]
    for credit in settle(shown, 1.0):
        total = sum((credit.evidence for _ in range(episodes)), Evidence())
        assert total.effective_size == episodes
        assert total.retrievals == episodes
        assert total.size == episodes * UNIT


def test_a_bystander_collects_next_to_nothing() -> None:
    shown = [Shown("used", 0, None, None), Shown("by", 1, None, None)]  # type: ignore[arg-type]
    _, by = settle(shown, 0.0, used=["used"], w_min=0.01)
    total = sum((by.evidence for _ in range(100)), Evidence())
    assert total.retrievals == 100
    assert total.effective_size == pytest.approx(2.0, abs=0.001)  # 100 * k * w = 100 * 2 * .01


def test_one_heavy_episode_does_not_count_as_many() -> None:
    light = Evidence(negative=UNIT // 100, size=UNIT, squared=squared_weight(UNIT // 100))
    heavy = Evidence(negative=UNIT, size=UNIT, squared=UNIT)
    total = sum((light for _ in range(20)), heavy)
    # (1 + 20 * .01)^2 / (1 + 20 * .0001) = 1.437: far from 21 retrievals
    assert total.effective_size == pytest.approx(1.2**2 / 1.002, abs=0.001)


@given(st.integers(0, UNIT))
def test_squared_weight_is_the_nearest_unit(weight: int) -> None:
    assert abs(Fraction(squared_weight(weight)) - Fraction(weight * weight, UNIT)) <= Fraction(1, 2)


@given(st.lists(evidences(), max_size=8), st.randoms(use_true_random=False))
def test_sums_reverse_to_the_last_bit_in_any_order(rows: list[Evidence], random: object) -> None:
    start = Evidence(7, 11, 13, 17, 19)
    total = sum(rows, start)
    random.shuffle(rows)  # type: ignore[attr-defined]
    for e in rows:
        total -= e
    assert total == start


@given(evidences(), evidences())
def test_addition_is_by_field(a: Evidence, b: Evidence) -> None:
    assert (a + b) == (b + a)
    assert (a + b) - b == a
    assert (-a) + a == Evidence()
    assert (a + b).retrievals == a.retrievals + b.retrievals


def test_evidence_is_frozen_and_hashable() -> None:
    with pytest.raises(AttributeError):
        Evidence().positive = 1  # type: ignore[misc]
    assert len({Evidence(), Evidence(), Evidence(1)}) == 2


def test_properties_are_in_retrievals_and_repr_says_so() -> None:
    e = Evidence(3 * UNIT, UNIT, 4 * UNIT, 4 * UNIT, 4)
    assert (e.hits_positive, e.hits_negative, e.volume) == (3.0, 1.0, 4.0)
    assert repr(e) == (
        "Evidence(worth=0.750, hits+=3.000, hits-=1.000, effective_size=4, retrievals=4)"
    )
