"""Base rates of the latest episodes, as the ledger has them, without its rows."""

from __future__ import annotations

import numpy as np

from benchmarks.base_rates import base_rate
from benchmarks.governance.world import Counts, Floats
from langchain_memoryworth.estimators.base_rates import HALF_LIFE


class Recent:
    """Success rates of the latest episodes by seed and context, as `rates.Rates` keeps them."""

    def __init__(self, seeds: int, contexts: int) -> None:
        self._rows = np.arange(seeds)
        self._good, self._all = np.zeros((seeds, contexts)), np.zeros((seeds, contexts))

    def of(self, context: Counts, *, parent: Floats | float) -> Floats:
        """The rate of each seed's context, shrunk to its parent, shape (S,)."""
        at = self._rows, context
        return base_rate(self._good[at], self._all[at], parent=parent)

    def learn(self, context: Counts, reward: Floats) -> None:
        """One episode of each seed."""
        fade, at = 0.5 ** (1 / HALF_LIFE), (self._rows, context)
        self._good[at] = fade * self._good[at] + reward
        self._all[at] = fade * self._all[at] + 1
