"""What is hidden when everything fails for a while, and where all tasks are hard: with and without a base rate.

`ratio`: the paper's rule. `absolute`: bounds, or the change detector, against .40. `relative`: the same against the lower
of .40 and .2 below what was to be expected of the memory's own episodes. Guard rails are off, so these are the rules alone.
Numbers of memories that are ever LOW, as the range over the seeds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.base_rates import base_rate
from benchmarks.tables import arguments, show, table
from langchain_memoryworth.estimators import drift
from langchain_memoryworth.estimators.base_rates import HALF_LIFE, MARGIN, low_threshold
from langchain_memoryworth.estimators.beta import Floats
from langchain_memoryworth.estimators.credible import is_below
from langchain_memoryworth.estimators.discount import Discounted, added, discounted, nothing

COMMAND = "benchmarks.outages"
Rows = NDArray[np.intp]
_SIZES = ((20, 5, 0), (30, 3, 10), (200, 5, 60))


class World:
    """A namespace in which k random memories share each outcome; which of them ever look LOW, by each rule."""

    def __init__(self, seed: int, memories: int, k: int, late: int = 0) -> None:
        self.rng, self.k, self.late = np.random.default_rng(seed), k, late
        self.memories = memories
        self.success, self.size, self.expected = np.zeros((3, memories))
        self.all, self.own = nothing(1), nothing(memories)
        self.detector = drift.fresh(memories)
        self.episode = 0
        self.hidden = {r: np.zeros(memories, bool) for r in ("ratio", "absolute", "relative")}

    def play(self, episodes: int, chance: Floats, *, late: bool = True) -> float:
        """Episodes in which a set succeeds with the mean of its members' chances; their success rate."""
        alive = self.memories if late else self.memories - self.late
        rewards = []
        for _ in range(episodes):
            self.episode += 1
            shown = self.rng.choice(alive, self.k, replace=False)
            rewards.append(float(self.rng.random() < chance[shown].mean()))
            self.settle(shown, rewards[-1])
        return float(np.mean(rewards))

    def outage(self) -> None:
        """1,000 good episodes, 250 that all fail, 250 good ones; the late memories are born into the outage."""
        chance = self.rng.normal(0.7, 0.1, self.memories).clip(0.4, 0.95)
        self.play(1_000, chance, late=False)
        self.play(250, np.zeros(self.memories))
        self.play(250, chance)

    def settle(self, shown: Rows, reward: float) -> None:
        """One outcome for the memories shown; the base rate is the one before it, without their own episodes."""
        now = self.episode
        whole = discounted(self.all, now, half_life=HALF_LIFE)
        mine = Discounted(*(field[shown] for field in self.own))
        mine = discounted(mine, now, half_life=HALF_LIFE)
        base = base_rate(
            whole.success, whole.size, own_successes=mine.success, own_episodes=mine.size
        )
        self.all = added(whole, reward, at=now, half_life=HALF_LIFE)
        mine = added(mine, reward, at=now, half_life=HALF_LIFE)
        for field, value in zip(self.own, mine, strict=True):
            field[shown] = value
        self.success[shown] += reward
        self.size[shown] += 1
        self.expected[shown] += base
        states = drift.update(self.detector[shown], reward, expected=base, at=now)
        self.detector[shown] = states
        self.judge(shown, states)

    def judge(self, shown: Rows, states: drift.States) -> None:
        """Note which look LOW, after at least 10 retrievals."""
        enough = self.size[shown] >= 10
        limits = low_threshold(0.4, self.expected[shown] / self.size[shown])
        declined = (
            drift.declined(states, theta=0.4),
            drift.declined(states, theta=0.4, margin=MARGIN),
        )
        for at, i in enumerate(shown):
            a, b = 1 + self.success[i], 1 + self.size[i] - self.success[i]
            low = {
                "ratio": self.success[i] < 0.4 * self.size[i],
                "absolute": is_below(0.4, a, b, 0.95) or declined[0][at],
                "relative": is_below(float(limits[at]), a, b, 0.95) or declined[1][at],
            }
            for rule, value in low.items():
                self.hidden[rule][i] |= bool(value and enough[at])

    def count(self, rule: str) -> int:
        """Memories that were ever LOW by a rule."""
        return int(self.hidden[rule].sum())


def span(counts: list[int]) -> str:
    """Least and most."""
    return f"{min(counts)} to {max(counts)}"


def outage(memories: int, k: int, late: int, seeds: int) -> list[str]:
    """The line of one namespace with an outage."""
    worlds = [World(seed, memories, k, late) for seed in range(1, seeds + 1)]
    for world in worlds:
        world.outage()
    name = (
        f"250 of 1,500 episodes all fail; {memories} memories, k = {k}, {late} born in the outage"
    )
    return [name, *(span([w.count(rule) for w in worlds]) for rule in worlds[0].hidden)]


def hard(episodes: int, seeds: int) -> list[str]:
    """The line of a namespace in which every memory succeeds in 40% of its episodes."""
    worlds = [World(seed, 100, 5) for seed in range(1, seeds + 1)]
    for world in worlds:
        world.play(episodes, np.full(100, 0.4))
    name = f"every memory succeeds in 40%; 100 memories, k = 5, {episodes:,} episodes"
    return [name, *(span([w.count(rule) for w in worlds]) for rule in worlds[0].hidden)]


def text(*, quick: bool) -> str:
    """The whole table."""
    seeds = 1 if quick else 8
    rows = [outage(*size, seeds) for size in (_SIZES[:1] if quick else _SIZES)]
    rows.append(hard(100 if quick else 2_000, seeds))
    return table(["world", "ratio", "absolute", "relative"], rows)


if __name__ == "__main__":
    options = arguments(COMMAND, __doc__)
    show(COMMAND, text(quick=options.quick), options)
