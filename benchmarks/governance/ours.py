"""Our rule as the worlds play it: the formulas of `effects` and `bonus`, for all seeds at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.governance.rules import Rule
from benchmarks.governance.world import Counts, Floats, Step
from langchain_memoryworth.bonus import effect_coordinates, effect_query
from langchain_memoryworth.effects import HALF_LIFE, STRENGTH, harmful


@dataclass(frozen=True, slots=True)
class Settings:
    """What the default policy decides by; the values are chosen over all worlds and logs together.

    Attributes:
        weight: Similarity per unit of effect.
        reach: The most similarity that evidence may buy or cost.
        optimism: Deviations in favour of the unknown.
        strength: Retrievals that the prior of an effect is worth.
        confidence: P(effect < -margin) from which a memory is suppressed.
        margin: How much harm it takes.
        half_life: Outcomes of a memory after which its evidence counts half; None means that it never fades.
        base_half_life: Outcomes of a context after which its base rate forgets half; None means never.
        by_context: Whether the base rate is that of the context.
        parent: Episodes that the rate of all contexts counts for in that of one.
        probation: Share of episodes in which a suppressed memory is shown.
    """

    weight: float = 5.0
    reach: float = 0.3
    optimism: float = 0.0
    strength: float = STRENGTH
    confidence: float = 0.95
    margin: float = 0.02
    half_life: float | None = HALF_LIFE
    base_half_life: float | None = None
    by_context: bool = True
    parent: float = 10.0
    probation: float = 0.02


class Ours(Rule):
    """Effects per memory as the ranking bonus, suppression by the chance of harm, probation."""

    settings = Settings()

    def start(self) -> None:
        s = self.settings
        seeds, contexts = self.shape[0], self.world.scenario.topics if s.by_context else 1
        self.probation = s.probation
        self.surprise = np.zeros(self.shape)
        self.successes, self.episodes = np.zeros((seeds, contexts)), np.zeros((seeds, contexts))
        self.all_successes, self.all_episodes = np.full(seeds, 0.5), np.ones(seeds)

    def score(self, step: Step) -> Floats:
        s = self.settings
        rows = effect_coordinates(
            self.surprise,
            self.count,
            strength=s.strength,
            bound=s.reach / s.weight if s.weight else 1.0,
        )
        return np.asarray(step.similarity + rows @ effect_query(s.weight, optimism=s.optimism))

    def base(self, context: Counts) -> Floats:
        """The success rate of the context, shrunk to that of all, shape (S,)."""
        parent = self.settings.parent
        rows = self.rows[:, 0]
        successes = self.successes[rows, context] + parent * self.all_successes / self.all_episodes
        return np.asarray(successes / (self.episodes[rows, context] + parent))

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        s, rows = self.settings, self.rows
        context = step.context if s.by_context else np.zeros_like(step.context)
        count, surprise = self.count[rows, shown], self.surprise[rows, shown]
        own = size * surprise / (count + s.strength)
        expectation = self.base(context)[:, None] + own.sum(axis=1, keepdims=True) - own
        fade = 1.0 if s.half_life is None else 0.5 ** (size / s.half_life)
        surprise = fade * surprise + size * (reward[:, None] - expectation.clip(0, 1))
        count = fade * count + size
        self.surprise[rows, shown], self.count[rows, shown] = surprise, count
        self.hidden[rows, shown] = harmful(
            surprise,
            count,
            confidence=s.confidence,
            margin=s.margin,
            strength=s.strength,
        )
        fade_base = 1.0 if s.base_half_life is None else 0.5 ** (1 / s.base_half_life)
        at = (rows[:, 0], context)
        self.successes[at] = fade_base * self.successes[at] + reward
        self.episodes[at] = fade_base * self.episodes[at] + 1
        self.all_successes = fade_base * self.all_successes + reward
        self.all_episodes = fade_base * self.all_episodes + 1


def ours(settings: Settings) -> type[Ours]:
    """Our rule with other settings."""
    return type("Ours", (Ours,), {"settings": settings})
