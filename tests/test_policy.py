"""The paper's taxonomy (Definition 3.2), hysteresis, and what a policy may hold."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from langchain_memoryworth import Evidence, Policy, Shown, Status, Verdict
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.credit import settle
from langchain_memoryworth.estimators.evidence import UNIT, effective_size, worth
from tests.policies import plain


def evidence(positive: float, negative: float, size: float | None = None) -> Evidence:
    """Evidence of episodes in which one memory had all the weight."""
    n = positive + negative if size is None else size
    return Evidence(
        round(positive * UNIT),
        round(negative * UNIT),
        round(n * UNIT),
        round((positive + negative) * UNIT),
        round(positive + negative),
    )


def shared(positive: int, negative: int, k: int) -> Evidence:
    """Evidence of whole episodes shared by k memories."""
    w = UNIT / k
    n = positive + negative
    return Evidence(round(positive * w), round(negative * w), n * UNIT, round(n * UNIT / k**2), n)


# Weights of thirds are off by 2^-32 or so; the boundary holds within half a millionth.
TOLERANCE = 5e-7


def half(_: list[Shown]) -> list[float]:
    return [1.0 for _ in _]


# -- Definition 3.2 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positive", "negative", "verdict"),
    [
        (61, 39, Verdict.HIGH),
        (60, 40, Verdict.MIXED),  # r > theta_high, not >=
        (50, 50, Verdict.MIXED),
        (40, 60, Verdict.MIXED),  # r < theta_low, not <=
        (39, 61, Verdict.LOW),
        (0, 10, Verdict.LOW),  # V >= V_min
        (10, 0, Verdict.HIGH),
        (0, 9, Verdict.UNCERTAIN),
        (9, 0, Verdict.UNCERTAIN),
        (0, 0, Verdict.UNCERTAIN),
    ],
)
def test_boundaries_are_those_of_the_paper(positive: int, negative: int, verdict: Verdict) -> None:
    for policy in (Policy.paper(), plain()):
        assert policy.verdict(evidence(positive, negative)) is verdict
        for k in (2, 3, 8, 100):
            assert policy.verdict(shared(positive, negative, k)) is verdict


def test_rounding_of_the_weights_does_not_move_a_memory_across_a_boundary() -> None:
    """Four of ten is 0.4, whichever place of three (and so which rounding of a third) the memory had."""
    three = [Shown(i, n, None, timedelta(0)) for n, i in enumerate("abc")]
    first_lost = Evidence()
    for won in [True] * 4 + [False] * 6:
        first, _, last = (c.evidence for c in settle(three, float(won)))
        assert first.positive + first.negative > last.positive + last.negative
        first_lost += last if won else first
    assert first_lost.worth < 0.4
    assert Policy.paper().verdict(first_lost) is Verdict.MIXED
    mirrored = Evidence(first_lost.negative, first_lost.positive, *_rest(first_lost))
    assert mirrored.worth > 0.6
    assert Policy.paper().verdict(mirrored) is Verdict.MIXED
    for e in (first_lost, mirrored):
        assert plain().verdicts(np.array([e.worth]), np.array([10.0])).tolist() == ["mixed"]


def _rest(e: Evidence) -> tuple[int, int, int]:
    return e.size, e.squared, e.retrievals


def test_volume_is_in_retrievals_and_not_in_weight() -> None:
    e = shared(0, 10, 8)
    assert e.volume == pytest.approx(1.25)
    assert plain().verdict(e) is Verdict.LOW


def test_a_bystander_is_uncertain_however_often_it_stood_by() -> None:
    w = 0.01
    n = 100
    e = Evidence(0, round(n * w * UNIT), round(n * 2 * w * UNIT), round(n * w * w * UNIT), n)
    assert plain().verdict(e) is Verdict.UNCERTAIN


whole = st.integers(0, 200)


@given(
    st.lists(st.tuples(whole, whole, st.integers(1, 12)), min_size=1, max_size=20),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 50),
)
def test_scalar_verdicts_equal_the_vectorised(
    rows: list[tuple[int, int, int]], a: float, b: float, v_min: int
) -> None:
    policy = plain(theta_low=min(a, b), theta_high=max(a, b), v_min=v_min)
    es = [shared(*row) for row in rows]
    columns = np.array([(e.positive, e.negative, e.size, e.squared) for e in es], np.int64).T
    positive, negative, size, squared = columns
    volumes = effective_size(size / UNIT, (positive + negative) / UNIT, squared / UNIT)
    together = policy.verdicts(worth(positive, negative), volumes)
    assert together.tolist() == [policy.verdict(e).value for e in es]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 100), whole)
def test_exactly_one_verdict_holds(r: float, a: float, b: float, v: float, v_min: int) -> None:
    policy = plain(theta_low=min(a, b), theta_high=max(a, b), v_min=v_min)
    (verdict,) = policy.verdicts(np.array([r]), np.array([v])).tolist()
    conditions = {
        "uncertain": v < v_min,
        "high": v >= v_min and r > policy.theta_high + TOLERANCE,
        "low": v >= v_min and r < policy.theta_low - TOLERANCE,
        "mixed": v >= v_min and policy.theta_low - TOLERANCE <= r <= policy.theta_high + TOLERANCE,
    }
    assert [name for name, holds in conditions.items() if holds] == [verdict]


# -- status ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "positive", "negative", "after"),
    [
        (Status.ACTIVE, 0, 9, Status.ACTIVE),  # UNCERTAIN is never suppressed
        (Status.ACTIVE, 39, 61, Status.SUPPRESSED),
        (Status.ACTIVE, 40, 60, Status.ACTIVE),
        (Status.SUPPRESSED, 39, 61, Status.SUPPRESSED),
        (Status.SUPPRESSED, 42, 58, Status.SUPPRESSED),  # within the hysteresis
        (Status.SUPPRESSED, 45, 55, Status.ACTIVE),
        (Status.SUPPRESSED, 0, 9, Status.ACTIVE),
        (Status.SUPPRESSED, 0, 0, Status.ACTIVE),
        (Status.PINNED, 0, 100, Status.PINNED),
        (Status.PINNED, 100, 0, Status.PINNED),
    ],
)
def test_status_follows_the_evidence_with_hysteresis(
    status: Status, positive: int, negative: int, after: Status
) -> None:
    assert plain().next_status(status, evidence(positive, negative)) is after


def test_without_hysteresis_it_comes_back_at_theta_low() -> None:
    policy = Policy.paper()
    assert policy.next_status(Status.SUPPRESSED, evidence(40, 60)) is Status.ACTIVE
    assert policy.next_status(Status.SUPPRESSED, evidence(39, 61)) is Status.SUPPRESSED


def test_a_policy_that_hides_nothing_reports_all_the_same() -> None:
    policy = plain(suppress=False)
    low = evidence(0, 50)
    assert policy.verdict(low) is Verdict.LOW
    assert policy.next_status(Status.ACTIVE, low) is Status.ACTIVE
    assert policy.next_status(Status.SUPPRESSED, low) is Status.ACTIVE


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), whole, whole)
def test_the_perfect_memory_can_always_come_back_and_the_rest_is_stable(
    a: float, b: float, hysteresis: float, positive: int, negative: int
) -> None:
    policy = plain(theta_low=min(a, b), theta_high=max(a, b), hysteresis=hysteresis)
    assert policy.next_status(Status.SUPPRESSED, evidence(50, 0)) is Status.ACTIVE
    e = evidence(positive, negative)
    for status in (Status.ACTIVE, Status.SUPPRESSED, Status.PINNED):
        once = policy.next_status(status, e)
        assert policy.next_status(once, e) is once
    if policy.verdict(e) in (Verdict.UNCERTAIN, Verdict.HIGH):
        assert policy.next_status(Status.SUPPRESSED, e) is Status.ACTIVE


# -- ranking terms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uncertain", ["worth", "prior", "pool"])
def test_rank_terms_add_up_to_the_estimate(uncertain: Any) -> None:
    policy = plain(uncertain=uncertain, prior=0.3)
    es = [evidence(0, 0), evidence(2, 1), evidence(3, 9), evidence(9, 3), shared(5, 5, 4)]
    p, n, s, q = np.array([(e.positive, e.negative, e.size, e.squared) for e in es], np.int64).T
    value, share = policy.rank_terms(p, n, s, q)
    pool = float(p.sum() / (p + n).sum())
    fallback = policy.fallback_worth(float(p.sum()), float((p + n).sum()))
    expected = {"worth": [0.5, 2 / 3], "prior": [0.3, 0.3], "pool": [pool, pool]}[uncertain]
    np.testing.assert_allclose(value + share * fallback, [*expected, 0.25, 0.75, 0.5], rtol=1e-6)


def test_an_empty_pool_falls_back_to_the_prior() -> None:
    assert plain(uncertain="pool", prior=0.7).fallback_worth(0, 0) == 0.7


# -- validation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"theta_low": -0.1},
        {"theta_high": 1.1},
        {"theta_low": math.nan},
        {"theta_low": 0.7, "theta_high": 0.6},
        {"v_min": -1},
        {"v_min": math.nan},
        {"v_min": math.inf},  # JSON has no word for it: the next process could not read it
        {"hysteresis": -0.1},
        {"exploration": 1.5},
        {"w_min": 2},
        {"prior": math.nan},
        {"credit": "oracle"},
        {"credit": 3},
        {"rank": (0, 0, 0)},
        {"rank": (-1, 1)},
        {"rank": (math.nan, 1)},
        {"rank": (math.inf, 1)},
        {"rank": (1,)},
        {"rank": "ab"},
        {"rank": (1, 0, 0.1)},  # recency without a half-life
        {"credit": "similarity_recency"},
        {"recency_half_life": timedelta(0)},
        {"pending_age": timedelta(-1)},
        {"min_similarity": 1.5},
        {"uncertain": "optimistic"},
        {"theta": 0.4},
    ],
    ids=repr,
)
def test_a_policy_that_cannot_be_meant_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        plain(**wrong)


def test_a_policy_is_frozen() -> None:
    with pytest.raises(ValidationError):
        plain().theta_low = 0.1  # type: ignore[misc]


def test_two_rank_weights_mean_no_recency() -> None:
    assert plain(rank=(0.6, 0.4)).rank == (0.6, 0.4, 0.0)  # type: ignore[arg-type]
    assert plain().with_rank([1, 2]).rank == (1.0, 2.0, 0.0)


def test_other_rank_weights_are_checked_like_the_policys_own() -> None:
    for wrong in ((-1, 1), (0, 0), (1, 0, 1)):
        with pytest.raises(ValueError):
            plain().with_rank(wrong)


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1e6),
    st.sampled_from(["uniform", "similarity", "similarity_recency"]),
    st.timedeltas(timedelta(microseconds=1), timedelta(days=10_000)),
    st.lists(st.text(max_size=8), max_size=4),
)
def test_a_stored_policy_is_read_back_the_same(
    a: float, b: float, v_min: float, credit: Any, time: timedelta, sources: list[str]
) -> None:
    policy = plain(
        theta_low=min(a, b),
        theta_high=max(a, b),
        v_min=v_min,
        credit=credit,
        recency_half_life=time,
        pending_age=time,
        sources=tuple(sources),
    )
    document = policy.model_dump_json()
    json.loads(document)
    again = Policy.from_stored(document)
    assert again == policy
    assert again.model_dump_json() == document


def test_a_credit_function_is_named_and_never_loaded() -> None:
    document = plain(credit=half).model_dump_json()
    assert f"{__name__}:half" in document
    with pytest.raises(InvalidInputError, match="half"):
        Policy.from_stored(document)
