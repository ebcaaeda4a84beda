"""The other form of the bonus: the posterior mean of worth above the base rate, with optimism, and nothing hidden."""

from __future__ import annotations

import numpy as np

from benchmarks.governance.rules import Rule
from benchmarks.governance.world import Counts, Floats, Step
from langchain_memoryworth.estimators.bonus import worth_coordinates, worth_query

STRENGTH = 10.0


class Centred(Rule):
    """`similarity + w (posterior mean - base rate + c sd)`, one base rate for all."""

    weight, optimism = 0.3, 1.0

    def start(self) -> None:
        self.base = np.full(self.shape[0], 0.5)

    def score(self, step: Step) -> Floats:
        rows = worth_coordinates(self.worth(), self.count, strength=STRENGTH)
        query = [
            worth_query(self.weight, base_rate=base, optimism=self.optimism)
            for base in self.base.tolist()
        ]
        return np.asarray(step.similarity + np.einsum("snc,sc->sn", rows, np.array(query)))

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        super().learn(step, shown, size, reward)
        self.base += (reward - self.base) / (step.time + 2)


def centred(weight: float) -> type[Centred]:
    """The rule with another weight."""
    return type("Centred", (Centred,), {"weight": weight, "__module__": __name__})
