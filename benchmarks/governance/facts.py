"""A stream of facts that change, and a reader that uses the first memory it is shown.

Sixty entities, each with a fact that is replaced three times; old versions stay stored, as near to the question as the
new one, and a useless memory about the same entity lies beside them. An episode succeeds with .95 if the first memory
shown is the version in force, else with .05. Three memories are shown, the first one takes all the credit: every rule
learns from the memory that was used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.governance.world import Counts, Flags, Floats, Scenario, Step, unit

ENTITIES, VERSIONS, DIMENSION = 60, 4, 32
NEAR = 0.35
"""Length of what is added to an entity's direction before a vector is normalised: similarities of about .9 within."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The draws of all seeds, with the same questions to a world as `world.World` answers; shapes as there."""

    scenario: Scenario
    vectors: Floats
    born: Counts
    ends: Counts
    rating: Floats
    queries: Floats
    entity: Counts
    luck: Floats
    flip: Flags
    coin: Floats

    def step(self, time: int) -> Step:
        """What a rule may see of one episode: there is one context only."""
        cosine = np.einsum("snd,sd->sn", self.vectors, self.queries[time])
        cosine[self.born > time] = -np.inf
        return Step(time, cosine, np.zeros(len(cosine), dtype=np.int64))

    def utility(self, time: int) -> Floats:
        """1 for a version in force, -1 for an outdated one, 0 for a useless memory, nan for one not stored yet."""
        useless = np.arange(self.born.shape[1]) % (VERSIONS + 1) == VERSIONS
        now = np.where(useless, 0.0, np.where(self.ends > time, 1.0, -1.0))
        return np.where(self.born <= time, now, np.nan)

    def gain(self, step: Step) -> Floats:
        """1 for the fact asked for, -inf where a memory is not stored yet."""
        owner = np.arange(self.born.shape[1]) // (VERSIONS + 1)
        right = (self.utility(step.time) == 1) & (owner == self.entity[step.time][:, None])
        return np.where(np.isfinite(step.similarity), right.astype(np.float64), -np.inf)

    def chance_of(self, step: Step, shown: Counts) -> tuple[Floats, Floats]:
        """Success probability, and who was used: the first."""
        first = np.take_along_axis(self.gain(step), shown[:, :1], axis=1)[:, 0]
        sizes = np.zeros(shown.shape)
        sizes[:, 0] = 1
        return np.where(first == 1, 0.95, 0.05), sizes


def build_facts(scenario: Scenario, seeds: int) -> Facts:
    """Draw the world for the seeds 0 to `seeds - 1`; only `episodes`, `k` and `flipped` of the scenario matter."""
    parts = [_draw(scenario, seed) for seed in range(seeds)]
    fixed = ("vectors", "born", "ends", "rating")
    stacked = {
        name: np.stack([part[name] for part in parts], axis=0 if name in fixed else 1)
        for name in parts[0]
    }
    return Facts(scenario, **stacked)


def _draw(scenario: Scenario, seed: int) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    episodes = scenario.episodes
    centre = unit(rng.standard_normal((ENTITIES, DIMENSION)))
    owner = np.repeat(np.arange(ENTITIES), VERSIONS + 1)
    changes = np.sort(rng.uniform(0.05, 0.95, (ENTITIES, VERSIONS - 1)) * episodes, axis=1)
    start, end = np.zeros((ENTITIES, 1)), np.full((ENTITIES, 1), float(episodes))
    born = np.hstack([start, changes, start]).astype(np.int64)
    ends = np.hstack([changes, end, end]).astype(np.int64)
    entity = rng.integers(ENTITIES, size=episodes)
    return {
        "vectors": unit(centre[owner] + NEAR * unit(rng.standard_normal((len(owner), DIMENSION)))),
        "born": born.ravel(),
        "ends": ends.ravel(),
        "rating": rng.random(len(owner)),
        "queries": unit(centre[entity] + NEAR * unit(rng.standard_normal((episodes, DIMENSION)))),
        "entity": entity,
        "luck": rng.random(episodes),
        "flip": rng.random(episodes) < scenario.flipped,
        "coin": rng.random(episodes),
    }
