"""The additive model: exact under corrections, and right about companions and contexts."""

from __future__ import annotations

from copy import deepcopy
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.governance.pools import (
    batch_effects,
    memory_worth,
    online_effects,
    topic_pool,
    uniform_pool,
)
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.effects import (
    STRENGTH,
    chance_below,
    deviation,
    effect,
    expected,
    harmful,
    surprise,
)
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.estimators.ridge import LIMIT, ridge
from langchain_memoryworth.experiments.simulator import spearman

EPISODES = 10_000
SEEDS = 4

rewards = st.floats(0, 1)
sets = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True)
episodes = st.lists(st.tuples(sets, rewards), max_size=30)


class Sums:
    """The two sums of ten memories, in units; settling returns what each exposure has to store."""

    def __init__(self):
        self.surprise = [0] * 10
        self.size = [0] * 10

    def settle(self, shown, reward, base=0.5):
        current = [effect(self.surprise[m] / UNIT, self.size[m] / UNIT) for m in shown]
        met = expected(base, current)
        self.add(shown, met, reward)
        return met

    def add(self, shown, met, reward, sign=1):
        for m, expectation in zip(shown, met, strict=True):
            self.surprise[m] += sign * surprise(reward, expectation)
            self.size[m] += sign * UNIT

    def state(self):
        return self.surprise, self.size

    def effect(self, memory):
        return effect(self.surprise[memory] / UNIT, self.size[memory] / UNIT)


@given(episodes, sets, rewards, rewards)
def test_a_corrected_outcome_leaves_what_the_right_one_would_have(before, shown, wrong, right):
    sums = Sums()
    for companions, reward in before:
        sums.settle(companions, reward)
    never = deepcopy(sums)
    met = sums.settle(shown, wrong)

    sums.add(shown, met, wrong, sign=-1)
    assert sums.state() == never.state()
    sums.add(shown, met, right)
    never.add(shown, met, right)
    assert sums.state() == never.state()


@given(episodes, st.randoms(use_true_random=False))
def test_stored_expectations_fold_in_any_order(drawn, random):
    sums = Sums()
    rows = [(shown, sums.settle(shown, reward), reward) for shown, reward in drawn]
    random.shuffle(rows)
    fold = Sums()
    for row in rows:
        fold.add(*row)
    assert fold.state() == sums.state()


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=8),
    st.floats(0, 1),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_companions_does_not_matter(effects, base, random):
    order = list(range(len(effects)))
    random.shuffle(order)
    plain = expected(base, effects)
    assert expected(base, [effects[i] for i in order]) == [plain[i] for i in order]
    assert all(0 <= e <= 1 for e in plain)


def test_alone_the_effect_is_the_shrunk_distance_from_the_base():
    sums = Sums()
    for reward in [1.0] * 30 + [0.0] * 10:
        sums.settle([3], reward, base=0.5)
    assert sums.effect(3) == pytest.approx(10 / (40 + STRENGTH))


def test_a_bystander_takes_part_by_its_size_only():
    assert expected(0.5, [0.2, 0.4], [1.0, 0.0]) == pytest.approx([0.5, 0.7])
    assert surprise(1.0, 0.5, UNIT // 4) == UNIT // 8


def test_harmful_agrees_with_the_probability():
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 200, size=500).astype(float)
    surprises = rng.normal(-5, 10, size=500)
    chance = chance_below(effect(surprises, sizes), deviation(sizes))
    posteriors = zip(effect(surprises, sizes), deviation(sizes), strict=True)
    exact = [NormalDist(m, s).cdf(0) for m, s in posteriors]
    assert chance == pytest.approx(exact, abs=1e-12)
    assert (harmful(surprises, sizes, confidence=0.9) == (chance >= 0.9)).all()
    below = chance_below(effect(surprises, sizes), deviation(sizes), -0.02)
    assert (harmful(surprises, sizes, confidence=0.9, margin=0.02) == (below >= 0.9)).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: expected(float("nan"), [0.1]),
        lambda: surprise(float("inf"), 0.5),
        lambda: effect([1.0], [-1.0]),
        lambda: effect(1.0, -1.0),
        lambda: effect(float("nan"), 1.0),
        lambda: effect(1.0, 1.0, strength=float("nan")),
        lambda: effect([1.0], [1.0], strength=0.0),
        lambda: deviation([1.0], noise=0.0),
        lambda: harmful([1.0], [1.0], confidence=0.5),
        lambda: harmful([1.0], [1.0], confidence=0.9, margin=-0.1),
        lambda: chance_below([0.0], [0.0]),
    ],
)
def test_bad_numbers_are_refused(call):
    with pytest.raises(InvalidInputError):
        call()


# -- the bars ------------------------------------------------------------------------------------


def correlations(pool, estimates):
    """Mean Spearman correlation with the utilities over the seeds, one per estimate."""
    rows = []
    for seed in range(SEEDS):
        log = pool(seed)
        rows.append([float(spearman(estimate(log), log.utility)) for estimate in estimates])
    return np.mean(rows, axis=0)


def test_under_uniform_retrieval_effects_rank_as_well_as_worth():
    worth, ours = correlations(lambda s: uniform_pool(s, EPISODES), (memory_worth, online_effects))
    assert ours >= worth - 0.01


def test_companions_that_are_shown_together_are_told_apart():
    worth, plain, given_contexts = correlations(
        lambda s: topic_pool(s, EPISODES),
        (memory_worth, lambda log: online_effects(log.alike()), online_effects),
    )
    assert worth < 0.7
    assert plain >= 0.82
    assert given_contexts >= 0.77


def test_hard_topics_do_not_make_their_memories_bad():
    worth, ours = correlations(
        lambda s: topic_pool(s, EPISODES, difficulty=0.15), (memory_worth, online_effects)
    )
    assert worth < 0.5
    assert ours >= 0.78


def test_ridge_is_what_a_dense_solution_gives_and_the_online_effects_approach_it():
    log = topic_pool(1, EPISODES, difficulty=0.15)
    fit = batch_effects(log)
    design = np.zeros((EPISODES, 105))
    design[np.arange(EPISODES)[:, None], log.shown] = 1
    design[np.arange(EPISODES), 100 + log.context] = 1
    penalty = np.diag([STRENGTH] * 100 + [0.0] * 5)
    dense = np.linalg.solve(design.T @ design + penalty, design.T @ log.success.astype(float))
    assert fit.effect == pytest.approx(dense[:100], abs=1e-9)
    residuals = log.success - design @ dense
    assert fit.noise == pytest.approx(residuals @ residuals / EPISODES, rel=0.02)
    assert np.corrcoef(fit.effect, online_effects(log))[0, 1] > 0.95


logs = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 4), st.floats(0, 1), max_size=4),
        st.floats(0, 1),
        st.integers(0, 1),
    ),
    min_size=10,
    max_size=25,
)
"""Episodes: sizes of the memories shown of five, the reward, and the context of two."""


def fitted(log):
    exposures = [(t, m, size) for t, (shown, _, _) in enumerate(log) for m, size in shown.items()]
    episode, memory, size = np.array(exposures).reshape(-1, 3).T
    rewards, contexts = (np.array([entry[i] for entry in log]) for i in (1, 2))
    return ridge(episode.astype(int), memory.astype(int), size, rewards, contexts, memories=5)


@given(logs, st.randoms(use_true_random=False))
def test_ridge_does_not_ask_for_the_order_of_the_episodes(log, random):
    fit, shuffled = fitted(log), fitted(random.sample(log, len(log)))
    for one, other in zip(fit, shuffled, strict=True):
        assert one == pytest.approx(other, abs=1e-9)


@given(logs.filter(lambda log: len(log) > 10), st.data())
def test_ridge_after_an_episode_is_taken_back_is_the_one_without_it(log, data):
    """The evidence of the whole log less that of the episode, solved densely, against ridge on the others."""
    gone = data.draw(st.integers(0, len(log) - 1))
    design, rewards = np.zeros((len(log), 7)), np.array([reward for _, reward, _ in log])
    for t, (shown, _, context) in enumerate(log):
        design[t, list(shown)], design[t, 5 + context] = list(shown.values()), 1
    gram = design.T @ design - np.outer(design[gone], design[gone])
    moment = design.T @ rewards - design[gone] * rewards[gone]
    penalty = np.diag([STRENGTH] * 5 + [1e-9] * 2)  # a context may be gone with the episode
    fit = fitted(log[:gone] + log[gone + 1 :])
    assert fit.effect == pytest.approx(np.linalg.solve(gram + penalty, moment)[:5], abs=1e-6)


def test_ridge_without_evidence_is_the_prior():
    none = np.zeros(0, dtype=np.int64)
    fit = ridge(none, none, np.zeros(0), np.zeros(0), none, memories=2)
    assert fit.effect.tolist() == [0.0, 0.0]
    assert fit.deviation.tolist() == [0.0625, 0.0625]
    assert fit.difference(0, 1) == (0.0, pytest.approx(0.0625 * 2**0.5))


def test_ridge_refuses_what_it_cannot_hold():
    none = np.zeros(0, dtype=np.int64)
    with pytest.raises(InvalidInputError, match="fewer"):
        ridge(none, none, np.zeros(0), np.zeros(0), none, memories=LIMIT + 1)
    with pytest.raises(InvalidInputError, match="strength"):
        ridge(none, none, np.zeros(0), np.zeros(0), none, memories=1, strength=0.0)


@pytest.mark.parametrize(
    ("pool", "low", "high"), [(uniform_pool, 0.85, 1.15), (topic_pool, 1.05, 1.5)]
)
def test_the_deviation_is_right_where_companions_change_and_too_small_where_they_do_not(
    pool, low, high
):
    # A hundred errors of deviation 1 spread by 1 +- .07; three of these either way.
    log = pool(1, EPISODES).alike()
    sizes = np.bincount(log.shown.ravel(), minlength=100)
    errors = online_effects(log, half_life=1e9) - (log.utility - log.utility.mean()) / 8
    scaled = errors / deviation(sizes)
    assert low <= scaled.std() <= high
