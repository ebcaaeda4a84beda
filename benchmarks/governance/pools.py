"""Logs of pools whose retrievals no rule influences: what an estimator can read out of them is all that is asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.governance.recent import Recent
from langchain_memoryworth.estimators.effects import STRENGTH, effect, expected, surprise
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.estimators.ridge import Ridge, ridge
from langchain_memoryworth.experiments.simulator import NOISE, POOL, K, draw_outcomes, draw_sets

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Log:
    """Episodes as the ledger has them, and the truth behind them.

    Attributes:
        shown: Memories shown, distinct in a row, int64 of shape (T, k).
        success: Outcomes, bool of shape (T,).
        context: The context of each episode, known at retrieval, int64 of shape (T,).
        utility: True utilities in [0, 1], shape (n,).
    """

    shown: Counts
    success: Flags
    context: Counts
    utility: Floats

    def alike(self) -> Log:
        """The same log with one context for all episodes."""
        return Log(self.shown, self.success, np.zeros_like(self.context), self.utility)


def uniform_pool(seed: int, episodes: int) -> Log:
    """The paper's Experiment 1: every set of k is as likely as any other."""
    rng = np.random.default_rng(seed)
    utility = rng.random(POOL)
    shown = draw_sets(rng, episodes, POOL, K)
    success = draw_outcomes(rng, utility[shown].mean(axis=1))
    return Log(shown, success, np.zeros(episodes, dtype=np.int64), utility)


def topic_pool(
    seed: int, episodes: int, *, topics: int = 5, difficulty: float = 0.0, noise: float = NOISE
) -> Log:
    """Topic-clustered co-retrieval: an episode has a topic and shows k memories of it, and of no other.

    Args:
        seed: Of all draws.
        episodes: T.
        topics: Into how many equal topics the pool of 100 falls; with 5, each shows 8 of 20.
        difficulty: Standard deviation of the topics' difficulty, added to the success probability.
        noise: Standard deviation of the noise on the success probability.
    """
    rng = np.random.default_rng(seed)
    utility = rng.random(POOL)
    hard = difficulty * rng.standard_normal(topics)
    context = rng.integers(topics, size=episodes)
    size = POOL // topics
    shown = draw_sets(rng, episodes, size, K) + size * context[:, None]
    success = draw_outcomes(rng, utility[shown].mean(axis=1) + hard[context], noise)
    return Log(shown, success, context, utility)


def online_effects(
    log: Log, *, strength: float = STRENGTH, half_life: float | None = None
) -> Floats:
    """The effects after one pass, outcome by outcome, shape (n,), as the ledger has them: with the base rate of the latest."""
    memories, contexts = len(log.utility), int(log.context.max()) + 1
    surprises, counts = [0.0] * memories, [0.0] * memories
    rates, all_rates, everywhere = Recent(1, contexts), Recent(1, 1), np.zeros(1, dtype=np.int64)
    fade = 1.0 if half_life is None else 0.5 ** (1 / half_life)
    for shown, success, context in zip(
        log.shown.tolist(), log.success.astype(float), log.context[:, None], strict=True
    ):
        current = [effect(surprises[m] / UNIT, counts[m], strength=strength) for m in shown]
        base = rates.of(context, parent=all_rates.of(everywhere, parent=0.5))
        for m, expectation in zip(shown, expected(float(base[0]), current), strict=True):
            surprises[m] = fade * surprises[m] + surprise(float(success), expectation)
            counts[m] = fade * counts[m] + 1
        rates.learn(context, success)
        all_rates.learn(everywhere, success)
    return effect(np.array(surprises) / UNIT, counts, strength=strength)


def batch_effects(log: Log, *, strength: float = STRENGTH) -> Ridge:
    """The effects by one regression over the whole log."""
    episodes, k = log.shown.shape
    return ridge(
        np.repeat(np.arange(episodes), k),
        log.shown.ravel(),
        np.ones(episodes * k),
        log.success.astype(np.float64),
        log.context,
        memories=len(log.utility),
        strength=strength,
    )


def memory_worth(log: Log) -> Floats:
    """The paper's worth of every memory under uniform credit, shape (n,)."""
    count = np.bincount(log.shown.ravel(), minlength=len(log.utility))
    hits = np.bincount(
        log.shown.ravel(), weights=np.repeat(log.success, K), minlength=len(log.utility)
    )
    return np.divide(hits, count, out=np.full(len(count), 0.5), where=count > 0)
