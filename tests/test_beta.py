"""The Beta distribution against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from langchain_memoryworth.estimators.beta import cdf, cdfs, log_gamma, quantile, quantiles

shapes = st.floats(0.05, 5_000)


@given(st.floats(0, 1), shapes, shapes)
def test_cdf_is_scipys_for_floats_and_arrays(x: float, a: float, b: float) -> None:
    exact = special.betainc(a, b, x)
    assert cdf(x, a, b) == pytest.approx(exact, abs=1e-10)
    assert cdfs(x, a, b) == pytest.approx(exact, abs=1e-10)


@settings(max_examples=30)
@given(st.floats(0.001, 0.999), st.floats(0.5, 500), st.floats(0.5, 500))
def test_quantile_turns_cdf_round(p: float, a: float, b: float) -> None:
    assert quantile(p, a, b) == pytest.approx(stats.beta.ppf(p, a, b), abs=1e-8)
    assert float(quantiles(p, a, b)) == pytest.approx(quantile(p, a, b), abs=2e-9)


@given(st.floats(1e-6, 1e9))
def test_log_gamma_is_scipys(x: float) -> None:
    assert float(log_gamma(x)) == pytest.approx(special.gammaln(x), rel=1e-12, abs=2e-13)


@pytest.mark.parametrize("n", [10**4, 10**6, 10**7])
def test_millions_of_retrievals(n: int) -> None:
    at = 0.3 + np.array([-2, -1, 0, 1, 2]) * (0.21 / n) ** 0.5
    exact = special.betainc(1 + 0.3 * n, 1 + 0.7 * n, at)
    assert cdfs(at, 1 + 0.3 * n, 1 + 0.7 * n) == pytest.approx(exact, abs=1e-6)
    assert [cdf(x, 1 + 0.3 * n, 1 + 0.7 * n) for x in at] == pytest.approx(exact, abs=1e-6)


def test_outside_and_at_the_ends() -> None:
    assert [cdf(x, 2, 3) for x in (-1, 0, 1, 2)] == [0, 0, 1, 1]
    assert cdfs([-1, 0, 0.5, 1, 2], 2, 2).tolist() == pytest.approx([0, 0, 0.5, 1, 1])
    assert cdfs([0.0, 1.0], 2, 2).tolist() == [0, 1]


def test_arrays_broadcast_and_may_be_empty() -> None:
    assert cdfs(np.full((3, 1), 0.5), np.ones(2), 1).shape == (3, 2)
    assert cdfs([], [], []).shape == quantiles([], 1, 1).shape == (0,)
