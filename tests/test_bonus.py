"""The ranking bonus: what the coordinates give is the formula, bounded and centred."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.governance.centred import worth_coordinates, worth_query
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.bonus import effect_coordinates, effect_query
from langchain_memoryworth.estimators.effects import deviation, effect

shares = st.floats(0, 1)
sizes = st.floats(0, 1e4)


@given(shares, sizes, shares, st.floats(0, 2), st.floats(0, 2), st.floats(0.5, 100))
def test_worth_coordinates_are_the_centred_posterior(worth, size, base, weight, optimism, strength):
    a, b = strength * base + size * worth, strength * (1 - base) + size * (1 - worth)
    mean = a / (a + b)
    sd = (base * (1 - base) / (a + b + 1)) ** 0.5
    row = worth_coordinates([worth], [size], strength=strength)
    bonus = row @ worth_query(weight, base_rate=base, optimism=optimism)
    assert bonus[0] == pytest.approx(weight * (mean - base + optimism * sd), abs=1e-9)


@given(shares, sizes, st.floats(0, 2), st.floats(0, 2))
def test_effect_coordinates_are_the_optimistic_effect(share, size, weight, optimism):
    surprises = (2 * share - 1) * size
    row = effect_coordinates([surprises], [size])
    upper = effect(surprises, size) + optimism * float(deviation(size))
    assert (row @ effect_query(weight, optimism=optimism))[0] == pytest.approx(weight * upper)
    assert abs((row @ effect_query(weight, optimism=0.0))[0]) <= weight


def test_memories_without_evidence_keep_the_order_of_their_similarity():
    rows = effect_coordinates(np.zeros(5), np.zeros(5))
    bonus = rows @ effect_query(0.4, optimism=1.0)
    assert np.ptp(bonus) == 0


def test_bad_strengths_are_refused():
    with pytest.raises(InvalidInputError, match="strength"):
        worth_coordinates([0.5], [1.0], strength=0.0)
    with pytest.raises(InvalidInputError, match="strength"):
        effect_coordinates([0.5], [1.0], strength=-1.0)
    with pytest.raises(InvalidInputError, match="least"):
        effect_coordinates([0.5], [1.0], least=0.1)
    with pytest.raises(InvalidInputError, match="most"):
        effect_coordinates([0.5], [1.0], most=-0.1)


@given(shares, sizes, st.floats(0, 1), st.floats(0, 1), st.floats(0, 10))
def test_evidence_moves_a_memory_within_weight_times_the_bounds(share, size, cost, gain, weight):
    row = effect_coordinates([(2 * share - 1) * size], [size], least=-cost, most=gain)
    [bonus] = row @ effect_query(weight, optimism=0.0)
    assert -weight * cost * (1 + 1e-12) <= bonus <= weight * gain * (1 + 1e-12)
