"""Base rates, relative thresholds and guard rails: the arithmetic, and worlds in which they have to hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.base_rates import base_rate
from benchmarks.outages import World
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.base_rates import LEAST, low_threshold, room

probabilities = st.floats(0, 1)

# -- arithmetic


def test_a_memory_is_not_compared_with_itself() -> None:
    """It was in 50 of 100 episodes, which all failed; the others all succeeded."""
    assert base_rate(50, 100) == pytest.approx(0.5)
    assert base_rate(50, 100, own_episodes=50, strength=1e-9) == pytest.approx(1.0)


@given(st.floats(0, 1), st.floats(0.1, 50))
def test_without_other_episodes_it_is_the_parents(parent: float, strength: float) -> None:
    for own in (0.0, 30.0):
        rate = base_rate(
            own / 2, own, own_successes=own / 2, own_episodes=own, parent=parent, strength=strength
        )
        assert rate == pytest.approx(parent)


@given(
    st.floats(0, 100),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_it_lies_between_what_is_seen_and_the_parent(
    episodes, share, own_share, own_rate, parent
) -> None:
    own = episodes * own_share
    rate = base_rate(
        episodes * share,
        episodes,
        own_successes=own * own_rate,
        own_episodes=own,
        parent=parent,
    )
    assert 0 <= rate <= 1


def test_sums_that_are_off_in_the_last_bits_do_no_harm() -> None:
    rate = base_rate(10.0, 10.0, own_successes=10.0 + 1e-12, own_episodes=10.0 + 1e-12)
    assert rate == pytest.approx(0.5)


def test_strength_must_be_above_zero() -> None:
    with pytest.raises(InvalidInputError):
        base_rate(1, 2, strength=0.0)


def test_the_lower_threshold_counts() -> None:
    assert low_threshold(0.4, [0.9, 0.5, 0.1], margin_low=0.2).round(9).tolist() == [0.4, 0.3, 0.0]
    assert low_threshold(None, 0.9, margin_low=0.2) == pytest.approx(0.7)
    assert low_threshold(0.4, 0.5, margin_low=None) == low_threshold(0.4) == 0.4


@pytest.mark.parametrize("given", [{}, {"expected": 0.5, "margin_low": None}])
def test_something_to_compare_with_is_needed(given) -> None:
    with pytest.raises(InvalidInputError):
        low_threshold(None, **given)


@given(probabilities, probabilities, probabilities, probabilities)
def test_a_threshold_moves_with_what_it_is_made_of(theta, expected, margin, more) -> None:
    """At most the absolute one and at most what was to be expected; never below 0."""
    limit = low_threshold(theta, expected, margin_low=margin)
    assert 0 <= limit <= min(theta, expected)
    assert low_threshold(max(theta, more), expected, margin_low=margin) >= limit
    assert low_threshold(theta, max(expected, more), margin_low=margin) >= limit
    assert low_threshold(theta, expected, margin_low=max(margin, more)) <= limit


# -- guard rails


@given(st.integers(0, 10_000), st.integers(0, 500), probabilities, probabilities)
def test_there_is_room_for_the_share_or_for_one(total, more, share, larger) -> None:
    allowed = room(total, share=share)
    assert 0 <= allowed <= max(1, share * total + 1e-9)
    assert (allowed == 0) == (total < LEAST)
    assert room(total + more, share=share) >= allowed
    assert room(total, share=max(share, larger)) >= allowed
    assert room(total, share=1.0) in {0, total}


def test_one_is_always_allowed_from_twenty_on_and_none_below() -> None:
    assert (room(19, share=1.0), room(20, share=0.0), room(100, share=0.29)) == (0, 1, 29)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(InvalidInputError):
        room(100, share=share)


# -- worlds


@pytest.mark.parametrize(
    ("memories", "k", "late", "harm"), [(20, 5, 0, 15), (30, 3, 10, 20), (200, 5, 60, 20)]
)
def test_an_outage_that_fails_everything_suppresses_nothing(memories, k, late, harm) -> None:
    """1,000 good episodes, 250 that all fail, 250 good ones; some memories are born into the outage.

    Without the base rate most would be hidden; with it none, and the guard rails need not even act.
    """
    world = World(1, memories, k, late)
    world.outage()
    assert world.count("absolute") >= harm
    assert world.count("relative") == 0


def test_where_tasks_are_hard_the_ratio_hides_most_and_the_base_rate_hardly_any() -> None:
    """60 memories, all with a success rate of .4: there is nothing to gain by hiding."""
    world = World(2, 60, 5)
    world.play(1_000, np.full(60, 0.4))
    assert world.count("ratio") >= 40
    assert world.count("relative") <= 3


def test_memories_far_below_the_others_are_still_found() -> None:
    """One in ten has a rate near 0, alone in its episode; the others .75."""
    world = World(3, 50, 1)
    chance = np.where(np.arange(50) < 5, 0.05, 0.75)
    world.play(1_500, chance)
    assert world.hidden["relative"][:5].all()
    assert not world.hidden["relative"][5:].any()
