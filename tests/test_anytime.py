"""Bounds for all times at once, against the exact chain; and how many retrievals a verdict needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln

from benchmarks.absorbing_chain import boundary, ever
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.anytime import (
    confidence_sequence,
    divergence,
    log_evidence,
    v_min_for,
)


@given(st.floats(0.01, 0.99), st.integers(0, 500), st.integers(0, 500))
def test_the_evidence_is_the_formula(p: float, s: int, f: int) -> None:
    n = s + f
    exact = betaln(1 + s, 1 + f) - s * np.log(p) - f * np.log1p(-p)
    assert log_evidence(p, s / n if n else 0.5, n) == pytest.approx(exact, abs=1e-8)


@given(st.floats(0.02, 0.98), st.integers(0, 40), st.integers(0, 40))
def test_it_is_a_martingale(p: float, s: int, f: int) -> None:
    now = np.exp(log_evidence(p, s / (s + f) if s + f else 0.5, s + f))
    next_success = np.exp(log_evidence(p, (s + 1) / (s + f + 1), s + f + 1))
    next_failure = np.exp(log_evidence(p, s / (s + f + 1), s + f + 1))
    assert p * next_success + (1 - p) * next_failure == pytest.approx(now, rel=1e-8)


@given(st.floats(0, 1), st.floats(0, 2_000))
def test_the_bounds_are_where_the_evidence_is_enough(ratio: float, size: float) -> None:
    low, high = confidence_sequence(ratio, size)
    assert 0 <= low <= ratio + 1e-9
    assert ratio - 1e-9 <= high <= 1
    for bound, outside in ((low, low - 1e-6), (high, high + 1e-6)):
        if 0 < outside < 1:
            assert log_evidence(outside, ratio, size) >= np.log(20) - 1e-6
        if 1e-6 < bound < 1 - 1e-6:
            assert log_evidence(bound, ratio, size) == pytest.approx(np.log(20), abs=0.01)


def test_without_evidence_everything_is_possible() -> None:
    low, high = confidence_sequence([0.5], [0.0])
    assert (low[0], high[0]) == pytest.approx((0.0, 1.0), abs=1e-8)


def wrong(theta: float, alpha: float) -> list[int]:
    """The states in which the sequence excludes every rate of at least theta."""

    def excluded(s: int, n: int) -> bool:
        return n > 0 and s / n < theta and float(log_evidence(theta, s / n, n)) >= -np.log(alpha)

    return boundary(excluded, 1_000)


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("p", [0.4, 0.6])
def test_it_is_ever_wrong_with_at_most_the_probability_said(p: float, alpha: float) -> None:
    """Looked at after each of 1,000 outcomes, below and above together, exactly."""
    below, above = ever(wrong(p, alpha), p)[-1], ever(wrong(1 - p, alpha), 1 - p)[-1]
    assert 0 < below + above <= alpha


def test_a_credible_bound_looked_at_as_often_is_wrong_more_often() -> None:
    from langchain_memoryworth.estimators.credible import is_below

    credible = boundary(lambda s, n: is_below(0.4, 1 + s, 1 + n - s, 0.95), 1_000)
    assert ever(credible, 0.4)[-1] > 0.15
    assert ever(wrong(0.4, 0.05), 0.4)[-1] <= 0.05


@pytest.mark.parametrize("p", [0.5, 0.6, 0.7, 0.9])
@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_v_min_keeps_its_promise(p: float, alpha: float) -> None:
    """The paper's rule with this V_min, looked at after each of 3,000 outcomes, exactly."""
    v_min = v_min_for(0.4, p, alpha=alpha)
    point = boundary(lambda s, n: n >= v_min and s / n < 0.4, 3_000)
    ever_hidden = ever(point, p)[-1]
    assert ever_hidden <= alpha
    # And is not wasteful: with a third of it the promise is broken.
    third = boundary(lambda s, n: n >= v_min // 3 and s / n < 0.4, 1_000)
    assert ever(third, p)[-1] > alpha


def test_the_promise_holds_for_high_as_well() -> None:
    assert v_min_for(0.6, 0.4) == v_min_for(0.4, 0.6)


@given(st.floats(0, 1), st.floats(0.01, 0.99))
def test_divergence_is_a_divergence(p: float, q: float) -> None:
    assert divergence(p, q) >= 2 * (p - q) ** 2 - 1e-12  # Pinsker
    assert divergence(q, q) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("theta", "rate"), [(0.4, 0.4), (0.4, 1.0), (1.4, 0.5), (0.4, float("nan"))]
)
def test_what_can_never_be_told_apart_is_refused(theta: float, rate: float) -> None:
    with pytest.raises(InvalidInputError):
        v_min_for(theta, rate)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1])
def test_a_promise_must_be_possible(alpha: float) -> None:
    with pytest.raises(InvalidInputError):
        confidence_sequence(0.5, 10, alpha=alpha)
