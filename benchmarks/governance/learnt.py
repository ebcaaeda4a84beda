"""Ours where nobody gives contexts: learnt from which memories are nearest to a query together, refitted in batches."""

from __future__ import annotations

import numpy as np

from benchmarks.governance.ours import Ours
from benchmarks.governance.recent import Recent
from benchmarks.governance.world import Counts, Floats, Step
from langchain_memoryworth.estimators.contexts import Contexts, fit

WINDOW, EVERY, MOST = 1_000, 1_000, 64
"""Episodes a fit looks back, episodes between two fits, and context numbers there is room for."""


class Learnt(Ours):
    """The context is that of the k memories nearest to the query, before anything is ranked or hidden."""

    def start(self) -> None:
        super().start()
        seeds = self.shape[0]
        self.rates = Recent(seeds, MOST)
        self.window: list[list[list[int]]] = []
        self.found: list[Contexts | None] = [None] * seeds

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        k = self.world.scenario.k
        nearest = np.argpartition(-step.similarity, k - 1, axis=1)[:, :k].tolist()
        numbers = [
            0 if found is None else found.of(sets) % MOST
            for found, sets in zip(self.found, nearest, strict=True)
        ]
        super().learn(step._replace(context=np.array(numbers)), shown, size, reward)
        self.window = [*self.window[1 - WINDOW :], nearest]
        if (step.time + 1) % EVERY == 0:
            for seed, before in enumerate(self.found):
                self.found[seed] = fit([sets[seed] for sets in self.window], previous=before)
