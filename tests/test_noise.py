"""Flipped labels and unequal reporting: what is corrected, and the share of memories that is judged wrongly."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import betainc, betaincinv

from benchmarks.absorbing_chain import boundary, ever
from langchain_memoryworth import Status
from langchain_memoryworth.errors import InvalidInputError, InvalidOutcomeError
from langchain_memoryworth.estimators.credible import Posterior
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.estimators.noise import (
    binary,
    corrected,
    log_odds_above,
    moments,
    observed_rate,
    probability_below,
    quantile,
)
from tests.policies import plain

rates = st.floats(0, 1)
flips = st.floats(0, 0.45)


@given(rates, flips)
def test_the_correction_turns_the_noise_round(rate: float, flip: float) -> None:
    assert corrected(observed_rate(rate, flip), flip) == pytest.approx(rate, abs=1e-9)


def test_what_cannot_come_from_noise_is_clipped() -> None:
    assert corrected([0.1, 0.9], 0.3).tolist() == [0.0, 1.0]
    assert corrected(0.5, 0.4) == pytest.approx(0.5)  # no evidence stays none


def test_the_correction_is_right_on_average() -> None:
    rng = np.random.default_rng(1)
    success = (rng.random(100_000) < 0.7) ^ (rng.random(100_000) < 0.3)
    # Standard error of the corrected ratio: sqrt(.58 * .42 / 100,000) / .4 = .004.
    assert corrected(success.mean(), 0.3) == pytest.approx(0.7, abs=3 * 0.004)


@pytest.mark.parametrize("flip", [0.5, 0.7, -0.1, float("nan")])
def test_a_flip_rate_that_cannot_be_undone_is_refused(flip: float) -> None:
    for use in (corrected, observed_rate):
        with pytest.raises(InvalidInputError, match="flip rate"):
            use(0.5, flip)
    with pytest.raises(InvalidInputError):
        probability_below(0.4, 0.5, 10, flip=flip)


def test_graded_rewards_have_no_labels_to_flip() -> None:
    assert binary([1, 0, True]).tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(InvalidOutcomeError, match=r"0\.5"):
        binary([1.0, 0.5])


@given(rates, st.floats(0, 500), rates)
def test_without_noise_it_is_the_plain_posterior(ratio: float, size: float, x: float) -> None:
    plain = Posterior(ratio, size).probability_below(x)
    assert probability_below(x, ratio, size, flip=0.0) == pytest.approx(plain, abs=1e-9)


@given(rates, st.floats(0, 300), flips, rates)
def test_with_noise_it_is_the_posterior_of_the_true_rate(
    ratio: float, size: float, flip: float, x: float
) -> None:
    """Against the definition, summed over a grid: a flat prior on p, the likelihood of what is seen."""
    p = (np.arange(4_000) + 0.5) / 4_000
    seen = flip + (1 - 2 * flip) * p
    log = size * ratio * np.log(seen) + size * (1 - ratio) * np.log1p(-seen)
    density = np.exp(log - log.max())
    exact = density[p < x].sum() / density.sum()
    here = float(probability_below(x, ratio, size, flip=flip))
    width = density.max() / density.sum()  # what one cell of the grid can hold
    assert here == pytest.approx(exact, abs=2 * width + 1e-6)


@given(st.floats(0.3, 200), st.floats(0.3, 200), st.floats(0.01, 0.4), st.floats(0.01, 0.99))
def test_quantiles_and_moments_are_those_of_the_cut_distribution(a, b, flip, p) -> None:
    """Against scipy: quantiles by its inverse, moments by summing them up."""
    floor, ceiling = betainc(a, b, flip), betainc(a, b, 1 - flip)
    assume(ceiling - floor > 1e-6)  # beyond it scipy's own digits are used up

    def true_rate(u):
        return (betaincinv(a, b, floor + u * (ceiling - floor)) - flip) / (1 - 2 * flip)

    assert quantile(p, a, b, flip) == pytest.approx(float(true_rate(p)), abs=1e-5)
    spread = true_rate((np.arange(4_000) + 0.5) / 4_000)
    assert moments(a, b, flip) == pytest.approx((spread.mean(), spread.std()), abs=1e-3)


def test_beyond_what_noise_allows_moments_are_those_of_the_edge() -> None:
    mean, deviation = moments(1, 2_001, 0.3)
    assert 0 < mean == deviation < 0.01
    assert 1 - moments(2_001, 1, 0.3)[0] == pytest.approx(mean)
    assert quantile(0.9, 1, 2_001, 0.3) < 0.01


def test_data_beyond_what_noise_allows_say_the_nearest() -> None:
    assert probability_below(0.4, [0.0, 1.0], 5_000, flip=0.3).tolist() == [1.0, 0.0]


@given(rates, st.floats(0, 300), flips, rates, rates)
def test_more_success_is_never_more_probably_low(ratio, size, flip, x, more) -> None:
    better = ratio + more * (1 - ratio)
    low = probability_below(x, [ratio, better], size, flip=flip)
    assert low[1] <= low[0] + 1e-6


# -- the bars: threshold .40, P >= .95, at least 10 retrievals, looked at after each of 400


@cache
def rule(flip: float) -> list[int]:
    """The policy's own decision: bounds against .40, and nothing else that could hide a memory."""
    policy = plain(confidence=0.95, flip_rate=flip)

    def low(s: int, n: int) -> bool:
        counted = Evidence(s * UNIT, (n - s) * UNIT, n * UNIT, n * UNIT, n)
        return policy.next_status(Status.ACTIVE, counted) is Status.SUPPRESSED

    return boundary(low, 400)


def hidden(most: list[int], low: float, high: float, flip: float) -> float:
    """Share ever hidden of memories whose true rate is uniform on (low, high), exactly."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    p = (low + high) / 2 + (high - low) / 2 * nodes
    return float(weights @ [ever(most, float(observed_rate(x, flip)))[-1] for x in p]) / 2


def test_good_memories_are_hidden_in_less_than_two_of_a_thousand() -> None:
    assert hidden(rule(0.0), 0.6, 1.0, 0.0) <= 0.002


def test_with_three_of_ten_labels_flipped_in_less_than_six() -> None:
    assert hidden(rule(0.3), 0.6, 1.0, 0.3) <= 0.006  # the flip rate known
    assert hidden(rule(0.0), 0.6, 1.0, 0.3) <= 0.006  # not known


@pytest.mark.parametrize("flip", [0.1, 0.3])
def test_the_usual_case_is_seen_without_computing(flip: float) -> None:
    """Where the corrected ratio is not below the threshold, no bound can be: the short cut of `next_status`."""
    for n in (10, 50, 400):
        for s in range(n + 1):
            if corrected(s / n, flip) >= 0.4:
                assert probability_below(0.4, s / n, n, flip=flip) <= 0.5 + 1e-9


def test_bad_memories_are_all_caught() -> None:
    assert hidden(rule(0.0), 0.0, 0.3, 0.0) >= 0.9999
    assert hidden(rule(0.3), 0.0, 0.3, 0.3) >= 0.95


def test_the_papers_ratio_hides_many_more() -> None:
    point = boundary(lambda s, n: n >= 10 and s / n < 0.4, 400)
    assert hidden(point, 0.6, 1.0, 0.0) == pytest.approx(0.022, abs=0.001)
    assert hidden(point, 0.6, 1.0, 0.3) == pytest.approx(0.130, abs=0.001)


def test_what_it_calls_low_with_95_percent_is_low_in_95_percent() -> None:
    """5,000 memories with 100 outcomes each, three of ten labels flipped."""
    rng = np.random.default_rng(2)
    p = rng.uniform(0.0, 1.0, 5_000)
    count = ((rng.random((100, 5_000)) < p) ^ (rng.random((100, 5_000)) < 0.3)).sum(axis=0)
    low = probability_below(0.4, count / 100, 100.0, flip=0.3) >= 0.95
    wrong = (p[low] >= 0.4).mean()
    assert low.sum() > 900
    # By two standard errors of the binomial.
    assert wrong <= 0.05 + 2 * (0.05 * 0.95 / low.sum()) ** 0.5


# -- failures that are reported more often than successes


def reported(rate, *, success, failure):
    """The success rate among the outcomes that are reported: p s / (p s + (1 - p) f)."""
    p = np.asarray(rate)
    return p * success / (p * success + (1 - p) * failure)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(0.05, 1), st.floats(0.05, 1))
def test_differences_in_log_odds_survive_unequal_reporting(p, base, success, failure) -> None:
    def logit(x: float) -> float:
        return np.log(x / (1 - x))

    seen, seen_base = reported([p, base], success=success, failure=failure)
    assert logit(seen) - logit(seen_base) == pytest.approx(logit(p) - logit(base), abs=1e-6)
    assert (seen > seen_base) == (p > base) or abs(p - base) < 1e-9


def test_absolute_thresholds_and_differences_of_rates_do_not() -> None:
    p, base = reported([0.8, 0.6], success=0.1, failure=0.5)
    assert p < 0.45  # a good memory looks bad
    assert p - base == pytest.approx(0.213, abs=0.001)
    p, base = reported([0.95, 0.75], success=0.1, failure=0.5)
    assert p - base > 0.4  # the same difference of .2, seen twice as large


def test_the_estimate_of_a_log_odds_difference_is_the_same_from_a_biased_sample() -> None:
    rng = np.random.default_rng(3)
    outcome = rng.random((2, 200_000)) < np.array([[0.8], [0.6]])
    reported = rng.random(outcome.shape) < np.where(outcome, 0.1, 0.5)
    every = log_odds_above(outcome[0].mean(), 200_000, outcome[1].mean())
    n = reported.sum(axis=1)
    share = (outcome & reported).sum(axis=1) / n
    seen = log_odds_above(share[0], n[0], share[1])
    # Variance of a log-odds: 1/s + 1/f, for each of the two.
    error = (1 / (n * share) + 1 / (n * (1 - share))).sum() ** 0.5
    assert seen == pytest.approx(float(every), abs=3 * error)


def test_without_evidence_a_memory_is_at_the_base_rate() -> None:
    assert log_odds_above(0.5, 0.0, [0.2, 0.7]) == pytest.approx([0.0, 0.0])


def test_impossible_base_rates_are_refused() -> None:
    with pytest.raises(InvalidInputError):
        log_odds_above(0.5, 10, 0.0)
    with pytest.raises(InvalidInputError):
        log_odds_above(0.5, 10, 1.0)
