"""Play a rule in a world: same queries, noise and luck for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.governance.facts import build_facts
from benchmarks.governance.rules import Rule, Truth
from benchmarks.governance.world import Counts, Flags, Floats, Scenario, Step, build

LOOK = 25
"""Episodes between two looks at what is hidden."""
BLOCK = 100
"""Episodes of one point of a curve."""


class Played(NamedTuple):
    """What a rule came to.

    Attributes:
        success: Mean success probability of what it showed, by block of episodes and seed, shape (T / BLOCK, S).
        good_hidden: Share of the good memories (utility above 0) that it hid, mean over time, shape (S,).
        bad_hidden: Share of the harmful ones, shape (S,).
    """

    success: Floats
    good_hidden: Floats
    bad_hidden: Floats


SCENARIOS = (
    Scenario("drifting", "facts go stale, others arrive", stale=0.4, arriving=0.25),
    Scenario("change-point", "half of the good ones turn bad at once", stale=0.5, when=(0.5, 0.5)),
    Scenario("traffic", "only the mix of tasks changes", traffic=(0.9, 0.1), difficulty=0.25),
    Scenario("cold start", "most memories arrive on the way", arriving=0.6),
    Scenario("poisoning", "harmful ones, near to every query", poisoned=0.1),
    Scenario("hitchhikers", "a copy beside every good one", twins=0.8),
    Scenario(
        "hard pool",
        "300 memories, tasks succeed at 40%",
        memories=300,
        base=0.40,
        helpful=0.1,
        harmful=0.1,
        difficulty=0.0,
    ),
    Scenario("facts", "the reader uses the first memory", topics=1, k=3, flipped=0.0),
)


def world_of(scenario: Scenario, seeds: int) -> Truth:
    """The world of a scenario."""
    return build_facts(scenario, seeds) if scenario.name == "facts" else build(scenario, seeds)


def play(world: Truth, make: Callable[[Truth], Rule]) -> Played:
    """All episodes of all seeds."""
    rule = make(world)
    episodes = world.scenario.episodes
    chances = np.empty((episodes, world.born.shape[0]))
    looks = []
    for time in range(episodes):
        step = world.step(time)
        shown = _shown(rule, step, world.coin[time], world.scenario.k)
        chance, size = world.chance_of(step, shown)
        chances[time] = chance
        reward = (world.luck[time] < chance) ^ world.flip[time]
        rule.learn(step, shown, size, reward.astype(np.float64))
        if time % LOOK == 0:
            looks.append(_look(world.utility(time), rule.hidden))
    good, bad = np.mean(looks, axis=0)
    return Played(
        chances.reshape(-1, min(BLOCK, episodes), chances.shape[1]).mean(axis=1), good, bad
    )


def _shown(rule: Rule, step: Step, coin: Floats, k: int) -> Counts:
    """The k best, best first; on probation the most similar hidden one takes the last place, the first if only it is used."""
    raw = rule.score(step)
    # A store that has nothing else shows what it hides rather than nothing.
    scores = np.where(rule.hidden, -1e6 + np.nan_to_num(raw, neginf=-1e6), raw)
    top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    top = np.take_along_axis(
        top, np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1), axis=1
    )
    for seed in np.flatnonzero(coin < rule.probation):
        held = np.flatnonzero(rule.hidden[seed] & np.isfinite(step.similarity[seed]))
        held = np.setdiff1d(held, top[seed])
        if len(held):
            top[seed, -1] = held[np.argmax(step.similarity[seed, held])]
    return np.asarray(top)


def _look(utility: Floats, hidden: Flags) -> tuple[Floats, Floats]:
    def share(which: Flags) -> Floats:
        return np.asarray((which & hidden).sum(axis=1) / np.maximum(which.sum(axis=1), 1))

    return share(utility > 0), share(utility < 0)


def closed(played: Played, plain: Played, oracle: Played) -> Floats:
    """Share of the regret of plain similarity to the oracle that a rule closes, shape (S,)."""
    own, low, high = (p.success.mean(axis=0) for p in (played, plain, oracle))
    return np.asarray((own - low) / (high - low))
