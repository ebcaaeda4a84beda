"""The rules of others, as far as their numbers are public, each as a score and a mask over all seeds at once.

An episode counts as an hour wherever a rule wants time. What a rule needs from a language model (importance, utility)
is a rating at write time that correlates with the utility at that moment at about .65.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from benchmarks.governance.world import Counts, Flags, Floats, Scenario, Step


class Truth(Protocol):
    """A world; the rules see only `rating` and the steps, `gain` is for the oracle and the judge."""

    @property
    def scenario(self) -> Scenario: ...
    @property
    def born(self) -> Counts: ...
    @property
    def rating(self) -> Floats: ...
    @property
    def vectors(self) -> Floats: ...
    @property
    def luck(self) -> Floats: ...
    @property
    def flip(self) -> Flags: ...
    @property
    def coin(self) -> Floats: ...
    def step(self, time: int) -> Step: ...
    def utility(self, time: int) -> Floats: ...
    def gain(self, step: Step) -> Floats: ...
    def chance_of(self, step: Step, shown: Counts) -> tuple[Floats, Floats]: ...


class Rule:
    """Plain similarity, and the counters that most of the others need.

    Attributes:
        hidden: Memories that are not served, shape (S, n).
        count: Evidence of each memory in retrievals, shape (S, n).
        hits: Successes among them, shape (S, n).
    """

    probation = 0.0

    def __init__(self, world: Truth) -> None:
        self.world = world
        self.shape = world.born.shape
        self.rows = np.arange(self.shape[0])[:, None]
        self.hidden = np.zeros(self.shape, dtype=bool)
        self.count, self.hits = np.zeros(self.shape), np.zeros(self.shape)
        self.start()

    def start(self) -> None:
        """Set up what else is kept."""

    def score(self, step: Step) -> Floats:
        """The higher, the sooner it is shown, shape (S, n)."""
        return step.similarity

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        """Take in what happened: memories shown (S, k), how much each took part (S, k), outcomes (S,)."""
        self.count[self.rows, shown] += size
        self.hits[self.rows, shown] += size * reward[:, None]

    def worth(self) -> Floats:
        """Memory Worth, .5 without evidence."""
        return np.divide(self.hits, self.count, out=np.full(self.shape, 0.5), where=self.count > 0)


class Oracle(Rule):
    """Knows what each memory would add."""

    def score(self, step: Step) -> Floats:
        return self.world.gain(step)


class Recency(Rule):
    """The newest among the 3k most similar."""

    def score(self, step: Step) -> Floats:
        k = 3 * self.world.scenario.k
        bar = -np.partition(-step.similarity, k - 1, axis=1)[:, k - 1 : k]
        return np.where(step.similarity >= bar, 1 + self.world.born, step.similarity)


class Accessed(Rule):
    """Keeps when each memory was last shown."""

    def start(self) -> None:
        self.last = self.world.born.astype(np.float64).copy()

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        super().learn(step, shown, size, reward)
        self.last[self.rows, shown] = step.time


class GenerativeAgents(Accessed):
    """Recency (.995 per hour since access), importance, relevance, each scaled to [0, 1] (Park et al. 2023)."""

    def score(self, step: Step) -> Floats:
        stored = np.isfinite(step.similarity)
        recency = 0.995 ** (step.time - self.last)
        parts = (recency, self.world.rating, step.similarity)
        return np.where(stored, sum(_scaled(part, stored) for part in parts), -np.inf)


class TimeWeighted(Accessed):
    """LangChain's TimeWeightedVectorStoreRetriever: similarity + (1 - .01)^hours since access."""

    def score(self, step: Step) -> Floats:
        return np.asarray(step.similarity + 0.99 ** (step.time - self.last))


class MemoryBank(Accessed):
    """Ebbinghaus: retention exp(-days/S), S + 1 at each recall; below .05 a memory is forgotten (Zhong et al. 2024)."""

    def start(self) -> None:
        super().start()
        self.strength = np.full(self.shape, 5.0)

    def score(self, step: Step) -> Floats:
        retention = np.exp(-(step.time - self.last) / 24 / self.strength)
        self.hidden = retention < 0.05
        return np.asarray(
            np.where(np.isfinite(step.similarity), step.similarity, -np.inf) + 0.1 * retention
        )

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        super().learn(step, shown, size, reward)
        self.strength[self.rows, shown] += 1


class Admission(Rule):
    """A-MAC's five dimensions without a model: rating, no confidence, novelty, no recency or type at write time."""

    def start(self) -> None:
        vectors = self.world.vectors
        near = np.einsum("snd,smd->snm", vectors, vectors)
        older = self.world.born[:, None, :] < self.world.born[:, :, None]
        novelty = 1 - np.where(older, near, -1.0).max(axis=2).clip(0, 1)
        value = 0.6 * self.world.rating + 0.4 * novelty
        self.hidden = value < np.quantile(value, 0.25, axis=1, keepdims=True)


class Paper(Rule):
    """The paper's rule: hidden below .40 after 10 retrievals."""

    threshold, least = 0.40, 10

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        super().learn(step, shown, size, reward)
        count, hits = self.count[self.rows, shown], self.hits[self.rows, shown]
        low = (count >= self.least) & (hits < self.threshold * count - 1e-9)
        self.hidden[self.rows, shown] = low


class ReMe(Paper):
    """Deleted at 5 uses with utility below .5, for good."""

    threshold, least = 0.5, 5

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        before = self.hidden.copy()
        super().learn(step, shown, size, reward)
        self.hidden |= before


class MemP(ReMe):
    """The same at 3 uses."""

    least = 3


class Blend(Rule):
    """The paper's ranking: .6 similarity + .4 worth."""

    def score(self, step: Step) -> Floats:
        return np.asarray(0.6 * step.similarity + 0.4 * self.worth())


class Memex(Rule):
    """Similarity times 1 + .3 (worth - .5)."""

    def score(self, step: Step) -> Floats:
        stored = np.isfinite(step.similarity)
        boosted = np.where(stored, step.similarity, 0) * (1 + 0.3 * (self.worth() - 0.5))
        return np.where(stored, boosted, -np.inf)


class MemRL(Rule):
    """Q += .3 (r - Q) with r = +1 or -1; .5 similarity + .5 Q."""

    step_size, low, start_at = 0.3, -1.0, 0.0

    def start(self) -> None:
        self.value = np.full(self.shape, self.start_at)

    def score(self, step: Step) -> Floats:
        return np.asarray(0.5 * step.similarity + 0.5 * self.value)

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        super().learn(step, shown, size, reward)
        target = self.low + (1 - self.low) * reward[:, None]
        old = self.value[self.rows, shown]
        self.value[self.rows, shown] = old + self.step_size * size * (target - old)


class Cognee(MemRL):
    """w += .1 (r - w) from .5; .5 similarity + .5 w."""

    step_size, low, start_at = 0.1, 0.0, 0.5


class Roampal(Rule):
    """Wilson lower bound: .7 similarity + .3 bound from three uses on; deleted below .2."""

    def bound(self) -> Floats:
        z, n = 1.96, np.maximum(self.count, 1e-9)
        p = self.hits / n
        return np.asarray(
            (p + z * z / (2 * n) - z * np.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2))
            / (1 + z * z / n)
        )

    def score(self, step: Step) -> Floats:
        bound = np.where(self.count >= 3, self.bound(), 0.5)
        self.hidden |= bound < 0.2
        return np.asarray(0.7 * step.similarity + 0.3 * bound)


def _scaled(part: Floats, stored: Flags) -> Floats:
    low = np.where(stored, part, np.inf).min(axis=1, keepdims=True)
    high = np.where(stored, part, -np.inf).max(axis=1, keepdims=True)
    return np.asarray((np.where(stored, part, low) - low) / np.maximum(high - low, 1e-9))


COMPARATORS: dict[str, type[Rule]] = {
    "plain similarity": Rule,
    "oracle": Oracle,
    "recency": Recency,
    "Generative Agents": GenerativeAgents,
    "MemoryBank": MemoryBank,
    "LangChain time-weighted": TimeWeighted,
    "A-MAC-style admission": Admission,
    "ReMe deletion": ReMe,
    "MemP deletion": MemP,
    "MemRL Q": MemRL,
    "roampal Wilson": Roampal,
    "memex boost": Memex,
    "Cognee EWMA": Cognee,
    "paper: suppression": Paper,
    "paper: blend": Blend,
}
