"""The design that was not taken: the additive model as a recursive filter with a diagonal covariance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.governance.pools import Log

PRIOR, NOISE, DRIFT = 0.04, 0.25, 3e-5
"""Prior variance of an effect, variance of an outcome, and process noise per outcome of a memory."""


def recursive_effects(log: Log, *, drift: float = DRIFT) -> NDArray[np.float64]:
    """Kalman updates of the effects shown and of the context's base, covariances left out; shape (n,)."""
    memories, contexts = len(log.utility), int(log.context.max()) + 1
    mean, variance = np.zeros(memories), np.full(memories, PRIOR)
    base, unsure = np.full(contexts, 0.5), np.full(contexts, 0.25)
    rows = zip(log.shown, log.success.tolist(), log.context.tolist(), strict=True)
    for shown, success, context in rows:
        own = variance[shown] + drift
        spread = NOISE + own.sum() + unsure[context]
        error = success - base[context] - mean[shown].sum()
        mean[shown] += own / spread * error
        variance[shown] = own - own * own / spread
        base[context] += unsure[context] / spread * error
        unsure[context] -= unsure[context] ** 2 / spread
    return mean
