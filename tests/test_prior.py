"""The empirical-Bayes prior finds what the pool was drawn from, and falls back where there is nothing to find."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.prior import FLAT, LEAST_POOL, STRENGTH, prior_of_pool


def drawn(rng: np.random.Generator, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = rng.integers(5, 60, len(chances))
    return rng.binomial(n, chances) / n, n.astype(float)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (3, 2), (2, 6), (6, 3)])
def test_it_finds_the_prior_that_the_pool_was_drawn_from(a: float, b: float) -> None:
    rng = np.random.default_rng(1)
    alpha, beta = prior_of_pool(*drawn(rng, rng.beta(a, b, 4_000)))
    # 4,000 draws: the mean has a standard error below .005, rho of about .01.
    assert alpha / (alpha + beta) == pytest.approx(a / (a + b), abs=0.02)
    assert 1 / (alpha + beta + 1) == pytest.approx(1 / (a + b + 1), abs=0.04)


def test_a_pool_of_equals_gets_the_highest_strength() -> None:
    rng = np.random.default_rng(2)
    alpha, beta = prior_of_pool(*drawn(rng, np.full(500, 0.7)))
    assert alpha + beta == pytest.approx(STRENGTH[1])
    assert alpha / (alpha + beta) == pytest.approx(0.7, abs=0.02)


def test_a_pool_of_extremes_gets_the_lowest() -> None:
    assert sum(prior_of_pool([0.0, 1.0] * 20, [50.0] * 40)) == pytest.approx(STRENGTH[0])


def test_one_retrieval_each_says_nothing_of_differences() -> None:
    assert sum(prior_of_pool([1.0, 0.0, 1.0] * 20, [1.0] * 60)) == pytest.approx(STRENGTH[1])


@pytest.mark.parametrize(
    ("worth", "size"),
    [
        ([], []),
        ([0.3] * (LEAST_POOL - 1), [9.0] * (LEAST_POOL - 1)),
        ([0.3] * 100, [0.5] * 100),
        ([1.0] * 100, [9.0] * 100),
        ([0.0] * 100, [9.0] * 100),
    ],
)
def test_small_and_degenerate_pools_fall_back_to_the_flat_prior(worth, size) -> None:
    assert prior_of_pool(worth, size) == FLAT


def test_bystanders_below_one_retrieval_do_not_count() -> None:
    worth, size = [0.5] * 15 + [1.0] * 15, [10.0] * 30
    assert prior_of_pool(worth + [0.0] * 50, size + [0.3] * 50) == prior_of_pool(worth, size)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 100)), max_size=60),
    st.randoms(use_true_random=False),
)
def test_order_does_not_matter_and_the_prior_is_always_usable(pool, random) -> None:
    before = prior_of_pool([w for w, _ in pool], [n for _, n in pool])
    random.shuffle(pool)
    after = prior_of_pool([w for w, _ in pool], [n for _, n in pool])
    assert after == pytest.approx(before, rel=1e-6)
    assert STRENGTH[0] - 1e-9 <= sum(before) <= STRENGTH[1] + 1e-9
    assert min(before) > 0


@pytest.mark.parametrize(
    ("worth", "size"), [([0.5], [1.0, 2.0]), ([1.5], [1.0]), ([0.5], [-1.0]), ([0.5], [np.inf])]
)
def test_what_is_no_pool_is_refused(worth, size) -> None:
    with pytest.raises(InvalidInputError):
        prior_of_pool(worth, size)
