"""What the data say of the paper's assumptions, in worlds where they hold and where one is broken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators import drift
from langchain_memoryworth.estimators.assumptions import (
    Finding,
    bounded_outcomes,
    constant_rates,
    exploration,
    independence,
    minimum_weight,
    overdispersion,
    stationarity,
)
from langchain_memoryworth.experiments.assumptions import EASY, HARD, regimes


def said(finding: Finding) -> str:
    assert (finding.state == "unknown") == np.isnan(finding.figure)
    assert str(finding).startswith(f"{finding.assumption} {finding.state}: ")
    return finding.state


# -- the test behind A1 and A3


def test_groups_that_are_equal_are_rarely_called_different() -> None:
    """At 1%, of 2,000 sets of 20 groups; by three standard errors, and the tail is an approximation."""
    rng = np.random.default_rng(1)
    chance = [overdispersion(rng.binomial(50, 0.6, 20), [50] * 20)[1] for _ in range(2_000)]
    share = np.mean(np.array(chance) < 0.01)
    assert share <= 0.01 + 3 * (0.01 * 0.99 / 2_000) ** 0.5
    assert np.mean(np.array(chance) < 0.5) == pytest.approx(0.5, abs=0.05)


def test_the_spread_beyond_chance_is_found() -> None:
    rng = np.random.default_rng(2)
    p = rng.normal(0.6, 0.1, 3_000)
    n = rng.integers(20, 80, 3_000)
    spread, chance = overdispersion(rng.binomial(n, p), n)
    assert spread == pytest.approx(0.1, abs=0.01)
    assert chance < 1e-6


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20),
    st.randoms(use_true_random=False),
)
def test_the_order_of_groups_does_not_matter(groups, random) -> None:
    def of(pairs):
        return overdispersion([s for s, _ in pairs], [s + f for s, f in pairs])

    before = of(groups)
    random.shuffle(groups)
    assert of(groups) == pytest.approx(before, abs=1e-9)
    assert 0 <= before[0] <= 1
    assert 0 <= before[1] <= 1


def test_nothing_to_compare_is_no_difference() -> None:
    for successes, episodes in (([], []), ([5], [10]), ([0, 0], [10, 10]), ([10, 0], [10, 0])):
        assert overdispersion(successes, episodes) == (0.0, 1.0)


@pytest.mark.parametrize(("successes", "episodes"), [([1, 2], [3]), ([5], [4]), ([-1], [4])])
def test_more_successes_than_episodes_are_refused(successes, episodes) -> None:
    with pytest.raises(InvalidInputError):
        overdispersion(successes, episodes)


# -- A1 to A6


def test_a1_easy_and_hard_times_are_seen_and_alternation_is_not_drift() -> None:
    """The regimes of the simulated check: base rates that alternate, and blocks that grow."""
    rng = np.random.default_rng(3)
    alternating, _, blocks = (rate for _, rate in regimes(4_000))
    for chance, state in ((alternating, "supported"), (blocks, "doubtful")):
        periods = (rng.random(4_000) < chance).reshape(40, 100).sum(axis=1)
        assert said(stationarity(periods, [100] * 40)) == state
    assert said(stationarity([3], [10])) == said(stationarity([], [])) == "unknown"
    assert said(stationarity([3, 3], [9, 10])) == "unknown"


def test_a2_memories_that_never_come_up() -> None:
    assert said(exploration([5] * 100, 1_000)) == "supported"
    assert said(exploration([5] * 80 + [0] * 20, 1_000)) == "doubtful"
    young = exploration([0] * 100, 50)
    assert said(young) == "unknown"
    assert said(exploration([5] * 50 + [0] * 100, [1_000] * 50 + [50] * 100)) == "supported"
    assert said(exploration([], [])) == "unknown"


def test_a3_companions_and_contexts() -> None:
    easy_hard = [EASY * 500, HARD * 500]
    assert said(independence([1.0] * 20 + [0.2] * 80)) == "doubtful"
    assert said(independence([0.2] * 80, easy_hard, [500, 500])) == "doubtful"
    assert said(independence([0.2] * 80, [300, 310], [500, 500])) == "supported"
    assert said(independence([0.2] * 80)) == said(independence([])) == "unknown"


def test_a4_is_enforced() -> None:
    assert said(bounded_outcomes()) == "supported"
    assert bounded_outcomes().remedy == ""


def test_a5_weights_at_the_floor() -> None:
    assert said(minimum_weight(100, 1_000, w_min=0.01)) == "supported"
    assert said(minimum_weight(800, 1_000, w_min=0.01)) == "doubtful"
    assert said(minimum_weight(0, 1_000, w_min=0.0)) == "doubtful"
    assert said(minimum_weight(0, 3, w_min=0.01)) == "unknown"


@pytest.mark.parametrize(("after", "state"), [(0.8, "supported"), (0.3, "doubtful")])
def test_a6_memories_that_change(after: float, state: str) -> None:
    rng = np.random.default_rng(4)
    states = drift.fresh(60)
    for number in range(1, 201):
        p = np.where((np.arange(60) < 15) & (number > 120), after, 0.8)
        states = drift.update(states, rng.random(60) < p, at=number)
    assert said(constant_rates(drift.changed(states))) == state


def test_a6_needs_memories() -> None:
    assert said(constant_rates([])) == "unknown"


def test_what_is_doubtful_comes_with_advice() -> None:
    for finding in (
        stationarity([90, 10], [100, 100]),
        exploration([0] * 30, 1_000),
        independence([1.0] * 30),
        independence([0.1] * 30, [90, 10], [100, 100]),
        minimum_weight(9, 9, w_min=0.0),
        constant_rates([True] * 30),
    ):
        assert finding.state == "doubtful"
        assert finding.remedy
        assert str(finding).endswith(f"{finding.remedy}.")
