"""How one outcome is shared: the paper's sections 3.1 and 3.3, assumption A5, and credit by use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_memoryworth.errors import InvalidCreditError, InvalidOutcomeError
from langchain_memoryworth.estimators.credit import (
    Credit,
    CreditName,
    Shown,
    equal_shares,
    normalised,
    reward_of,
    scores,
    settle,
    signed_outcome,
    to_units,
)
from langchain_memoryworth.estimators.evidence import UNIT, Evidence


def short(value: object) -> str:
    return repr(value)[:40]


DAY = timedelta(days=1)
HALF_LIFE = timedelta(days=10)


def shown(*similarities: float | None, ages: Sequence[timedelta] | None = None) -> list[Shown]:
    ages = ages or [DAY] * len(similarities)
    return [
        Shown(f"m{i}", i, s, age) for i, (s, age) in enumerate(zip(similarities, ages, strict=True))
    ]


def weights(shares: Sequence[Credit]) -> list[float]:
    return [c.weight / UNIT for c in shares]


similarities = st.lists(
    st.one_of(st.none(), st.floats(-1, 1), st.just(math.nan)), min_size=1, max_size=60
)
rewards = st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1))
rules = st.sampled_from(get_args(CreditName))


# -- outcomes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "reward"),
    [
        (True, 1.0),
        (False, 0.0),
        (0, 0.0),
        (1, 1.0),
        (0.25, 0.25),
        (-0.0, 0.0),
        (np.bool_(True), 1.0),
        (np.bool_(False), 0.0),
        (np.float32(0.5), 0.5),
        (np.float64(1.0), 1.0),
        (np.int64(1), 1.0),
        (np.uint8(0), 0.0),
        (Fraction(1, 4), 0.25),
    ],
)
def test_outcomes_that_are_meant(outcome: Any, reward: float) -> None:
    assert reward_of(outcome) == reward
    assert type(reward_of(outcome)) is float


@pytest.mark.parametrize(
    "outcome",
    [
        "INCORRECT",
        "correct",
        "1",
        "",
        b"1",
        None,
        math.nan,
        math.inf,
        -math.inf,
        -1,
        2,
        1.0000001,
        -1e-300,
        10**400,
        np.float64("nan"),
        np.int64(-1),
        np.array([1.0]),
        np.array(1.0),
        np.str_("True"),
        Decimal("0.5"),
        1j,
        [],
        [True],
        {"score": 1},
        Ellipsis,
        bool,
    ],
    ids=short,
)
def test_outcomes_that_cannot_be_meant(outcome: Any) -> None:
    with pytest.raises(InvalidOutcomeError) as error:
        reward_of(outcome)
    assert error.value.value is outcome
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    ("y", "success"), [(1, True), (-1, False), (1.0, True), (np.int8(-1), False)]
)
def test_signed_outcome_is_the_papers_y(y: float, success: bool) -> None:
    assert signed_outcome(y) is success


@pytest.mark.parametrize(
    "y", [0, 2, 0.5, True, False, "1", "+1", None, math.nan, np.array([1])], ids=repr
)
def test_signed_outcome_takes_nothing_else(y: Any) -> None:
    with pytest.raises(InvalidOutcomeError) as error:
        signed_outcome(y)
    assert error.value.value is y


# -- section 3.3 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10, 99, 100, 101, 1000])
def test_uniform_is_one_over_k(k: int) -> None:
    shares = settle(shown(*[0.5] * k), 1.0)
    assert sum(c.weight for c in shares) == UNIT
    assert max(c.weight for c in shares) - min(c.weight for c in shares) <= 1
    assert all(c.size == UNIT for c in shares)


@given(similarities, rewards, st.sampled_from([0.0, 0.01, 0.2, 1.0]))
def test_equal_shares_are_what_uniform_settles(
    sims: list[float | None], reward: float, w_min: float
) -> None:
    assert list(equal_shares(len(sims), reward, w_min)) == settle(
        shown(*sims), reward, rule="uniform", w_min=w_min
    )


def test_uniform_does_not_look_at_similarity() -> None:
    assert weights(settle(shown(0.9, None), 1.0)) == [0.5, 0.5]


def test_similarity_is_proportional_above_the_floor() -> None:
    # f = .01, k = 2: w' = .01 + .98 * w
    assert weights(settle(shown(0.9, 0.3), 1.0, rule="similarity")) == pytest.approx(
        [0.01 + 0.98 * 0.75, 0.01 + 0.98 * 0.25], abs=1e-9
    )
    assert weights(settle(shown(0.9, 0.3), 1.0, rule="similarity", w_min=0)) == pytest.approx(
        [0.75, 0.25], abs=1e-9
    )


def test_recency_halves_the_score_every_half_life() -> None:
    pair = shown(0.8, 0.8, ages=[timedelta(0), 2 * HALF_LIFE])
    got = settle(pair, 1.0, rule="similarity_recency", half_life=HALF_LIFE, w_min=0)
    assert weights(got) == pytest.approx([0.8, 0.2], abs=1e-9)


def test_recency_of_a_memory_from_the_future_is_not_above_one() -> None:
    pair = shown(0.8, 0.8, ages=[-5 * HALF_LIFE, timedelta(0)])
    got = settle(pair, 1.0, rule="similarity_recency", half_life=HALF_LIFE, w_min=0)
    assert weights(got) == [0.5, 0.5]


def test_extreme_ages_do_not_overflow() -> None:
    old = shown(0.8, 0.8, ages=[timedelta(days=900_000), timedelta(0)])
    got = settle(old, 1.0, rule="similarity_recency", half_life=timedelta(microseconds=1), w_min=0)
    assert weights(got) == [0.0, 1.0]


def test_without_a_half_life_recency_is_similarity() -> None:
    assert settle(shown(0.9, 0.3), 1.0, rule="similarity_recency") == settle(
        shown(0.9, 0.3), 1.0, rule="similarity"
    )


def test_negative_similarities_count_as_zero() -> None:
    assert scores(shown(0.5, -0.5), "similarity", None) == [0.5, 0.0]
    got = weights(settle(shown(0.5, -0.5), 1.0, rule="similarity"))
    assert got == pytest.approx([0.99, 0.01], abs=1e-9)


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -math.inf])
def test_one_unknown_similarity_makes_the_episode_uniform(unknown: float | None) -> None:
    assert weights(settle(shown(0.9, unknown, 0.1, 0.0), 1.0, rule="similarity")) == [0.25] * 4


@pytest.mark.parametrize("nothing", [(0.0, 0.0), (-0.3, -0.9), (0.0, -1.0)])
def test_all_zero_scores_are_uniform(nothing: tuple[float, float]) -> None:
    assert weights(settle(shown(*nothing), 1.0, rule="similarity")) == [0.5, 0.5]


def test_one_memory_takes_all() -> None:
    for similarity in (0.9, 0.0, -1.0, None):
        assert settle(shown(similarity), 1.0, rule="similarity") == [Credit(UNIT, UNIT, UNIT)]


# -- A5 -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=200), st.floats(0, 1))
def test_weights_sum_to_one_and_respect_the_floor(raw: list[float], w_min: float) -> None:
    k = len(raw)
    got = normalised(raw, w_min)
    floor = min(w_min, 1 / k)
    assert math.isclose(sum(got), 1.0, rel_tol=1e-9)
    assert all(w >= floor * (1 - 1e-12) for w in got)
    # the floor keeps the order
    order = sorted(range(k), key=lambda i: raw[i])
    assert all(got[a] <= got[b] for a, b in itertools.pairwise(order))


def test_more_memories_than_the_floor_has_room_for_are_uniform() -> None:
    k = 150  # 150 * .01 > 1
    got = settle(shown(1.0, *[0.01] * (k - 1)), 1.0, rule="similarity", w_min=0.01)
    assert max(c.weight for c in got) - min(c.weight for c in got) <= 1
    used = settle(shown(*[0.5] * k), 1.0, used=["m3"], w_min=0.01)
    assert max(c.weight for c in used) - min(c.weight for c in used) <= 1


@pytest.mark.parametrize("raw", [[5e-324, 0.0], [1e308, 1e308, 1e308], [1e-300, 1e300]])
def test_extreme_scales_stay_finite(raw: list[float]) -> None:
    with np.errstate(all="raise"):
        got = normalised(raw, 0.0)
    assert math.isclose(sum(got), 1.0)


# -- exact units ----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=100), st.floats(0, 0.1))
def test_units_sum_to_exactly_one_unit(raw: list[float], w_min: float) -> None:
    exact = normalised(raw, w_min)
    units = to_units(exact)
    assert sum(units) == UNIT
    assert all(u >= 0 for u in units)
    assert all(abs(u - w * UNIT) < 1 + 1e-3 for u, w in zip(units, exact, strict=True))


def test_the_largest_remainders_get_the_missing_units() -> None:
    quarter = UNIT // 4
    exact = [quarter + 0.6, quarter - 1 + 0.3, quarter + 0.8, quarter - 1 + 0.3]
    assert to_units([x / UNIT for x in exact]) == [
        quarter + 1,
        quarter - 1,
        quarter + 1,
        quarter - 1,
    ]


@given(similarities, rewards, rules, st.floats(0, 1))
def test_settlement_is_exact(
    sims: list[float | None], reward: float, rule: Any, w_min: float
) -> None:
    shares = settle(shown(*sims), reward, rule=rule, w_min=w_min, half_life=HALF_LIFE)
    assert len(shares) == len(sims)
    assert sum(c.weight for c in shares) == UNIT
    for c in shares:
        assert 0 <= c.positive <= c.weight
        assert 0 <= c.size <= UNIT
        assert abs(c.positive - c.weight * Fraction(reward)) <= Fraction(1, 2) + Fraction(1, 1000)
        e = c.evidence
        assert e.positive + e.negative == c.weight or not c.size
        assert e - e == Evidence()
    # Definition 3.2: n = min(1, k w), one retrieval for a fair share
    k = len(sims)
    for c in shares:
        assert abs(c.size - min(UNIT, k * c.weight)) <= k + 1


@given(similarities, rules)
def test_settlement_is_a_pure_function(sims: list[float | None], rule: Any) -> None:
    assert settle(shown(*sims), 0.3, rule=rule) == settle(shown(*sims), 0.3, rule=rule)


@given(similarities, rules)
def test_success_and_failure_are_mirror_images(sims: list[float | None], rule: Any) -> None:
    won, lost = settle(shown(*sims), 1.0, rule=rule), settle(shown(*sims), 0.0, rule=rule)
    for a, b in zip(won, lost, strict=True):
        assert (a.evidence.positive, a.evidence.negative) == (
            b.evidence.negative,
            b.evidence.positive,
        )


def test_a_fraction_is_credited_as_a_fraction() -> None:
    for c in settle(shown(0.5, 0.5), 0.25):
        assert c.evidence.hits_positive == 0.125
        assert c.evidence.hits_negative == 0.375
        assert c.evidence.retrievals == 1


def test_an_unknown_outcome_credits_nobody() -> None:
    assert settle(shown(0.5, 0.9), None) == [Credit(), Credit()]
    assert Credit().evidence == Evidence()


def test_nothing_shown_is_nothing_settled() -> None:
    assert settle([], 1.0) == []
    assert settle([], None, used=["m0"]) == []


# -- by use ---------------------------------------------------------------------------------------------------------


@given(st.data(), st.integers(1, 60), st.floats(0, 0.2))
def test_use_gives_the_used_the_rest_above_the_floor(
    data: st.DataObject, k: int, w_min: float
) -> None:
    used = data.draw(st.sets(st.integers(0, k - 1), min_size=1))
    u, f = len(used), min(w_min, 1 / k)
    got = settle(shown(*[0.5] * k), 1.0, used=[f"m{i}" for i in used], w_min=w_min)
    assert sum(c.weight for c in got) == UNIT
    for i, c in enumerate(got):
        expected = (1 - (k - u) * f) / u if i in used else f
        assert c.weight / UNIT == pytest.approx(expected, abs=2 / UNIT)


def test_use_overrules_the_rule() -> None:
    got = settle(shown(0.9, 0.1), 1.0, used=["m1"], rule="similarity", w_min=0)
    assert got == [Credit(), Credit(UNIT, UNIT, UNIT)]
    with_function = settle(shown(0.9, 0.1), 1.0, used=["m1"], rule=lambda _: [1, 0], w_min=0)
    assert with_function == got


def test_all_used_is_uniform() -> None:
    assert weights(settle(shown(0.9, 0.1), 1.0, used=["m0", "m1"])) == [0.5, 0.5]


@pytest.mark.parametrize("used", [[], (), set(), ["elsewhere"]])
def test_made_from_none_of_them_credits_nobody(used: Any) -> None:
    assert settle(shown(0.9, 0.1), 1.0, used=used) == [Credit(), Credit()]


def test_a_bystander_has_almost_no_evidence_size() -> None:
    used, by = settle(shown(0.5, 0.5), 0.0, used=["m0"], w_min=0.01)
    assert used.size == UNIT
    assert by.size / UNIT == pytest.approx(0.02)


# -- a function of the user -----------------------------------------------------------------------------------------


def test_a_function_sees_what_was_shown_and_gives_any_scale() -> None:
    seen: list[Shown] = []

    def rule(given: Sequence[Shown]) -> list[float]:
        seen.extend(given)
        return [30.0, 10.0]

    pair = shown(0.9, 0.3)
    assert weights(settle(pair, 1.0, rule=rule, w_min=0)) == [0.75, 0.25]
    assert seen == pair


def test_a_function_may_give_an_array_or_a_generator() -> None:
    for rule in (lambda s: np.array([3, 1]), lambda s: (w for w in (3, 1))):
        assert weights(settle(shown(0.9, 0.3), 1.0, rule=rule, w_min=0)) == [0.75, 0.25]


@pytest.mark.parametrize(
    "given_",
    [
        [1.0],
        [1.0, 1.0, 1.0],
        [],
        [1.0, -0.1],
        [1.0, math.nan],
        [1.0, math.inf],
        ["heavy", "light"],
        [1.0, None],
        None,
        0.5,
        [10**400, 1],
    ],
    ids=short,
)
def test_weights_that_are_no_weights(given_: Any) -> None:
    with pytest.raises(InvalidCreditError) as error:
        settle(shown(0.9, 0.3), 1.0, rule=lambda _: given_)
    assert isinstance(error.value, ValueError)


def test_all_zero_weights_of_a_function_are_uniform() -> None:
    assert weights(settle(shown(0.9, 0.3), 1.0, rule=lambda _: [0, 0])) == [0.5, 0.5]


def test_an_error_of_the_function_is_not_disguised() -> None:
    def rule(_: Sequence[Shown]) -> list[float]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        settle(shown(0.9, 0.3), 1.0, rule=rule)


# -- by position ------------------------------------------------------------------------------------------------------


def placed(*ranks: int) -> list[Shown]:
    return [Shown(f"m{i}", rank, None, DAY) for i, rank in enumerate(ranks)]


@pytest.mark.parametrize(
    ("rule", "ranks", "expected"),
    [
        ("first", (0, 1, 2), [1, 0, 0]),
        ("first", (3, 1, 2), [0, 1, 0]),  # a filter dropped the best
        ("first", (0, 0, 1), [0.5, 0.5, 0]),  # two searches
        ("reciprocal_rank", (0, 1, 2), [6 / 11, 3 / 11, 2 / 11]),
        ("reciprocal_rank", (5, 9, 5), [0.4, 0.2, 0.4]),
        ("reciprocal_rank", (7,), [1]),
    ],
)
def test_by_position(rule: Any, ranks: tuple[int, ...], expected: list[float]) -> None:
    got = weights(settle(placed(*ranks), 1.0, rule=rule, w_min=0.0))
    assert got == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.randoms())
def test_position_goes_by_rank_and_not_by_the_order_of_rows(ranks: list[int], random: Any) -> None:
    shown_ = placed(*ranks)
    by_id = dict(
        zip(ranks, weights(settle(shown_, 1.0, rule="reciprocal_rank", w_min=0.0)), strict=True)
    )
    mixed = random.sample(shown_, len(shown_))
    again = weights(settle(mixed, 1.0, rule="reciprocal_rank", w_min=0.0))
    assert [by_id[m.rank] for m in mixed] == pytest.approx(again, abs=1e-9)
    assert [w for _, w in sorted(by_id.items())] == sorted(by_id.values(), reverse=True)
