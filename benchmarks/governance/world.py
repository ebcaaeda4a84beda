"""A world in which what a rule shows decides what happens: topics, difficulty, relevance, stale and harmful memories.

The generator. Every topic has a direction in 16 dimensions; memories and queries are unit vectors around it, so that
the similarity is a cosine of about .55 within a topic and 0 between topics. A memory of utility u adds
`u * clip(2 (similarity - .3), 0, 1)` to the success probability of an episode in which it is shown: a memory helps only
where it is relevant, and a shown irrelevant one takes a place. The base is that of the topic (its difficulty), with
noise; a share of the outcomes is recorded the wrong way round. Utilities are piecewise constant: a stale memory turns
from helpful to harmful at a time of its own. All seeds of a scenario are played side by side, and every rule meets the
same queries, noise and luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DIMENSION = 16
SPREAD = 0.9
"""Length of what is added to a topic's direction before a vector is normalised."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The parameters of one world.

    Attributes:
        name: Short name.
        title: What is special about it.
        episodes: T.
        memories: n, those that arrive later included.
        topics: Number of topics; memory i belongs to topic i mod topics.
        k: Memories per retrieval.
        base: Mean success probability without memories.
        difficulty: Standard deviation of the base over topics.
        noise: Standard deviation of the noise on the success probability.
        flipped: Share of outcomes recorded the wrong way round.
        helpful: Share of memories with utility from U(.05, .25).
        harmful: Share with utility from U(-.25, -.1); the rest have 0.
        stale: Share of the helpful ones that turn harmful.
        when: Interval in which they turn, as shares of the episodes.
        arriving: Share of the memories that arrive between 10% and 80% of the episodes.
        twins: Share of the helpful memories whose nearest neighbour is a useless or harmful copy.
        poisoned: Share of the memories that arrive harmful at one third, closer to all queries than others.
        traffic: Share of the episodes on the easier half of the topics, before and after one half of the time.
    """

    name: str
    title: str
    episodes: int = 6_000
    memories: int = 100
    topics: int = 5
    k: int = 5
    base: float = 0.35
    difficulty: float = 0.15
    noise: float = 0.10
    flipped: float = 0.03
    helpful: float = 0.5
    harmful: float = 0.15
    stale: float = 0.0
    when: tuple[float, float] = (0.15, 0.85)
    arriving: float = 0.0
    twins: float = 0.0
    poisoned: float = 0.0
    traffic: tuple[float, float] = (0.5, 0.5)


class Step(NamedTuple):
    """One episode of all seeds at once, as a rule may see it.

    Attributes:
        time: Number of the episode, from 0.
        similarity: Cosine of every memory, -inf where it is not stored yet, shape (S, n).
        context: The topic of the query, shape (S,).
    """

    time: int
    similarity: Floats
    context: Counts


@dataclass(frozen=True, slots=True)
class World:
    """The draws of all seeds of a scenario.

    Attributes:
        scenario: Its parameters.
        vectors: Of the memories, shape (S, n, d).
        born: Episode from which a memory is stored, shape (S, n).
        turns: Episode from which `after` holds, shape (S, n).
        before: Utilities, shape (S, n).
        after: Utilities after the turn, shape (S, n).
        rating: What a write-time rating would have said of `before`, in [0, 1], shape (S, n).
        queries: shape (T, S, d).
        context: Topic of each query, shape (T, S).
        base: Success probability without memories, with noise, shape (T, S).
        luck: Draws in [0, 1) that decide success, shape (T, S).
        flip: Whether the outcome is recorded the wrong way round, shape (T, S).
        coin: Draws in [0, 1) for the rule's own use, shape (T, S).
    """

    scenario: Scenario
    vectors: Floats
    born: Counts
    turns: Counts
    before: Floats
    after: Floats
    rating: Floats
    queries: Floats
    context: Counts
    base: Floats
    luck: Floats
    flip: Flags
    coin: Floats

    def step(self, time: int) -> Step:
        """What a rule may see of one episode."""
        cosine = np.einsum("snd,sd->sn", self.vectors, self.queries[time])
        cosine[self.born > time] = -np.inf
        return Step(time, cosine, self.context[time])

    def utility(self, time: int) -> Floats:
        """The utilities of the memories at a time, nan where one is not stored yet, shape (S, n)."""
        now = np.where(self.turns <= time, self.after, self.before)
        return np.where(self.born <= time, now, np.nan)

    def gain(self, step: Step) -> Floats:
        """What each memory would add to the success probability, -inf where it is not stored yet, shape (S, n)."""
        relevance = np.clip(2 * (step.similarity - 0.3), 0.0, 1.0)
        stored = np.isfinite(step.similarity)
        return np.where(stored, np.nan_to_num(self.utility(step.time)) * relevance, -np.inf)

    def chance_of(self, step: Step, shown: Counts) -> tuple[Floats, Floats]:
        """Success probability with the memories shown, best first, and how much each took part.

        Returns:
            shape (S,), and sizes in [0, 1] of shape (S, k): all of them took part.
        """
        gained = np.take_along_axis(self.gain(step), shown, axis=1)
        total = np.where(np.isfinite(gained), gained, 0.0).sum(axis=1)
        return np.clip(self.base[step.time] + total, 0.02, 0.98), np.ones(shown.shape)


def build(scenario: Scenario, seeds: int) -> World:
    """Draw a world for the seeds 0 to `seeds - 1`."""
    parts = [_draw(scenario, seed) for seed in range(seeds)]
    first, rest = (
        {name: [part[i][name] for part in parts] for name in parts[0][i]} for i in (0, 1)
    )
    stacked = {name: np.stack(values) for name, values in first.items()}
    timed = {name: np.stack(values, axis=1) for name, values in rest.items()}
    return World(scenario, **stacked, **timed)


def _draw(scenario: Scenario, seed: int) -> tuple[dict[str, Floats], dict[str, Floats]]:
    rng = np.random.default_rng(seed)
    n, topics, episodes = scenario.memories, scenario.topics, scenario.episodes
    centre = unit(rng.standard_normal((topics, DIMENSION)))
    topic = np.arange(n) % topics
    vectors = _around(rng, centre[topic])
    kind, size = rng.random(n), rng.random(n)
    good, bad = kind < scenario.helpful, kind >= 1 - scenario.harmful
    before = np.where(good, 0.05 + 0.2 * size, np.where(bad, -0.1 - 0.15 * size, 0.0))
    stale = good & (rng.random(n) < scenario.stale)
    after = np.where(stale, -0.1 - 0.15 * rng.random(n), before)
    turns = np.where(stale, rng.uniform(*scenario.when, n) * episodes, episodes).astype(np.int64)
    late = rng.random(n) < scenario.arriving
    born = np.where(late, rng.uniform(0.1, 0.8, n) * episodes, 0).astype(np.int64)

    poison = np.zeros(n, dtype=bool)
    poison[rng.permutation(n)[: round(scenario.poisoned * n)]] = True
    vectors[poison] = _around(rng, centre[topic[poison]], 0.4)
    before[poison] = after[poison] = -0.2
    born[poison] = episodes // 3
    for place in np.flatnonzero(good & ~poison)[: round(scenario.twins * n * scenario.helpful)]:
        copy = (place + topics) % n  # of the same topic
        if poison[copy]:
            continue
        vectors[copy] = unit(vectors[place] + 0.2 * unit(rng.standard_normal(DIMENSION)))
        before[copy] = after[copy] = -0.1 * rng.integers(2)
        born[copy] = born[place]

    rating = np.clip(0.5 + 2 * (0.65 * before + 0.76 * 0.12 * rng.standard_normal(n)), 0, 1)
    hard = np.sort(scenario.difficulty * rng.standard_normal(topics))[::-1]  # easiest first
    easy_share = np.where(np.arange(episodes) < episodes // 2, *scenario.traffic)
    half = topics // 2
    easy = rng.random(episodes) < easy_share
    context = np.where(
        easy, rng.integers(half, size=episodes), half + rng.integers(topics - half, size=episodes)
    )
    chance = scenario.base + hard[context] + scenario.noise * rng.standard_normal(episodes)
    memory = {
        "vectors": vectors,
        "born": born,
        "turns": turns,
        "before": before,
        "after": after,
        "rating": rating,
    }
    episode = {
        "queries": _around(rng, centre[context]),
        "context": context,
        "base": chance,
        "luck": rng.random(episodes),
        "flip": rng.random(episodes) < scenario.flipped,
        "coin": rng.random(episodes),
    }
    return memory, episode


def unit(rows: Floats) -> Floats:
    """Rows of unit length."""
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def _around(rng: np.random.Generator, centre: Floats, spread: float = SPREAD) -> Floats:
    return unit(centre + spread * unit(rng.standard_normal(centre.shape)))
