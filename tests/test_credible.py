"""Posteriors and verdicts by bounds: against scipy, and against the exact chain of outcomes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from benchmarks.absorbing_chain import boundary, ever, median
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.credible import (
    PRIOR,
    Posterior,
    are_below,
    belief,
    is_below,
    parameters,
    verdict,
    verdicts,
)
from langchain_memoryworth.estimators.evidence import UNIT, Evidence, Verdict
from langchain_memoryworth.estimators.prior import prior_of_pool

ratios = st.floats(0, 1)
sizes = st.floats(0, 2_000)
priors = st.tuples(st.floats(0.05, 20), st.floats(0.05, 20))


def test_a_posterior_adds_the_retrievals_to_the_prior() -> None:
    p = Posterior([0.75, 0.0], [4, 0], (2.0, 3.0))
    assert (p.a.tolist(), p.b.tolist()) == ([5.0, 2.0], [4.0, 3.0])
    assert parameters(0.75, 4, (2.0, 3.0)) == (5.0, 4.0)
    assert parameters(0.5, -1) == PRIOR


@settings(max_examples=30)
@given(ratios, st.floats(2, 2_000), priors, st.floats(0, 1))
def test_moments_and_probabilities_are_scipys(
    ratio: float, size: float, prior: tuple[float, float], x: float
) -> None:
    p = Posterior([ratio], [size], prior)
    exact = beta(p.a[0], p.b[0])
    assert p.mean[0] == pytest.approx(exact.mean())
    assert p.sd[0] == pytest.approx(exact.std())
    assert p.probability_below(x)[0] == pytest.approx(exact.cdf(x), abs=1e-9)
    bounds = np.concatenate(p.bounds(0.9))
    assert bounds == pytest.approx(exact.ppf([0.05, 0.95]), abs=1e-8)


def test_bounds_are_those_of_a_belief() -> None:
    evidence = Evidence(9 * UNIT, UNIT, 10 * UNIT, 10 * UNIT, 10)
    one, many = belief(evidence, prior=(3.0, 2.0)), Posterior(0.9, 10, (3.0, 2.0))
    low, high = many.bounds(0.9)
    assert (one.low, one.high) == pytest.approx((float(low), float(high)), abs=1e-8)
    assert (one.mean, one.deviation) == pytest.approx((float(many.mean), float(many.sd)))


@pytest.mark.parametrize(
    ("worth", "size", "prior"),
    [
        ([1.1], [3], PRIOR),
        ([float("nan")], [3], PRIOR),
        ([0.5], [-1], PRIOR),
        ([0.5], [float("inf")], PRIOR),
        ([0.5], [1], (0.0, 1.0)),
        ([0.5, 0.5], [1, 1], (1.0, [1.0, -2.0])),
    ],
)
def test_what_is_no_evidence_is_refused(worth, size, prior) -> None:
    with pytest.raises(InvalidInputError):
        Posterior(worth, size, prior)


@given(st.floats(0.01, 0.99), st.floats(0.02, 3_000), st.floats(0.02, 3_000), st.floats(0.5, 0.999))
def test_short_cuts_never_change_the_answer(
    x: float, a: float, b: float, confidence: float
) -> None:
    exact = beta.cdf(x, a, b)
    if abs(exact - confidence) > 1e-9:
        assert is_below(x, a, b, confidence) == (exact >= confidence)
        assert are_below([x], a, b, confidence).tolist() == [exact >= confidence]


@given(st.floats(1, 500), st.floats(1, 500))
def test_a_mean_at_the_threshold_is_never_low(a: float, b: float) -> None:
    """The theorem behind the cheap path, at its edge, for every prior of at least (1, 1)."""
    assert beta.cdf(a / (a + b), a, b) <= 1 - 1 / np.e + 1e-9
    assert not is_below(a / (a + b), a, b, 0.95)


@given(ratios, st.floats(0, 300), priors, st.sampled_from([0.0, 10.0]))
def test_a_verdict_is_that_of_the_arrays(
    ratio: float, size: float, prior: tuple[float, float], v_min: float
) -> None:
    together = verdicts(Posterior([ratio], [size], prior), [size], v_min=v_min)
    assert verdict(ratio, size, v_min=v_min, prior=prior).value == together[0]


def test_thresholds_of_arrays_may_differ() -> None:
    p = Posterior([0.3, 0.3], [50, 50])
    assert verdicts(p, [50, 50], theta_low=[0.45, 0.2]).tolist() == ["low", "mixed"]


def test_verdicts_need_no_v_min_and_honour_it() -> None:
    assert verdict(0.0, 0) is verdict(0.0, 4) is Verdict.UNCERTAIN
    assert verdict(0.0, 5) is Verdict.LOW
    assert verdict(0.0, 5, v_min=10) is Verdict.UNCERTAIN
    assert verdict(0.39, 20) is Verdict.UNCERTAIN  # the paper's rule would hide it
    assert verdict(0.6, 10_000) is Verdict.MIXED  # on the threshold, and known to be


@given(st.floats(0, 1), st.floats(1, 300), st.floats(0, 1))
def test_more_success_is_never_judged_worse(ratio: float, size: float, more: float) -> None:
    order = {Verdict.LOW: 0, Verdict.UNCERTAIN: 1, Verdict.MIXED: 1, Verdict.HIGH: 2}
    better = ratio + more * (1 - ratio)
    assert order[verdict(better, size)] >= order[verdict(ratio, size)]


@cache
def rule(v_min: int, prior: tuple[float, float] = PRIOR) -> list[int]:
    def low(successes: int, n: int) -> bool:
        ratio = successes / max(n, 1)
        return verdict(ratio, n, v_min=v_min, prior=prior) is Verdict.LOW

    return boundary(low, 1_000)


@pytest.mark.parametrize(("v_min", "at_6", "at_7"), [(0, 0.0131, 0.0027), (10, 0.0029, 0.0002)])
def test_good_memories_are_hardly_ever_hidden_and_bad_ones_soon(
    v_min: int, at_6: float, at_7: float
) -> None:
    """Threshold .40, confidence .95, flat prior, looked at after each of 1,000 outcomes, exactly."""
    hidden = [ever(rule(v_min), p)[-1] for p in (0.6, 0.7)]
    assert hidden == pytest.approx([at_6, at_7], abs=6e-5)
    assert hidden[0] <= 0.015
    assert hidden[1] <= 0.003
    assert median(ever(rule(v_min), 0.2)) == 13


def test_the_papers_ratio_hides_many_good_ones() -> None:
    """The same chain for MW < .40 after 10 retrievals."""
    point = boundary(lambda s, n: n >= 10 and s / n < 0.4, 1_000)
    assert ever(point, 0.6)[-1] > 0.05


def test_with_a_prior_from_a_good_pool_it_takes_longer_and_errs_less() -> None:
    rng = np.random.default_rng(5)
    retrievals = rng.integers(1, 60, 300)
    worth = rng.binomial(retrievals, rng.beta(3, 2, 300)) / retrievals
    fires = rule(0, prior_of_pool(worth, retrievals))
    assert ever(fires, 0.6)[-1] <= 0.001
    assert median(ever(fires, 0.2)) <= 25
