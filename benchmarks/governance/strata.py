"""Contexts in the paper's Experiment 2 at slope 1: given, learnt from co-retrieval, learnt from query embeddings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.governance.pools import Log
from benchmarks.governance.world import unit
from langchain_memoryworth.estimators import clusters, contexts
from langchain_memoryworth.estimators.strata import stratified_worth
from langchain_memoryworth.experiments import difficulty

TOPICS = 20
"""Topics of the queries, half of them easy, half hard: what k-means has to find."""

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


def confounded(seed: int, episodes: int, *, slope: float = 1.0, shared: bool = False) -> Log:
    """Experiment 2 with uniform mixing and half of the tasks hard; its contexts are the labels easy and hard.

    Args:
        seed: Of all draws.
        episodes: T.
        slope: Of the success probability in the mean utility of the set.
        shared: Whether easy tasks retrieve as hard ones do, so that nothing about the sets tells them apart.
    """
    draws = difficulty.draw(seed, episodes)
    if shared:
        draws = difficulty.Draws(
            draws.utility, draws.hard["uniform"], draws.hard, draws.task, draws.luck
        )
    shown, success, hard = difficulty.play(draws, 0.5, "uniform", slope)
    return Log(shown, success, hard.astype(np.int64), draws.utility)


def queries(log: Log, seed: int, *, spread: float) -> Floats:
    """Query embeddings around one of twenty directions, ten of them easy; unit vectors of shape (T, 16)."""
    rng = np.random.default_rng((seed, 7))
    centre = unit(rng.standard_normal((TOPICS, 16)))
    topic = rng.integers(TOPICS // 2, size=len(log.context)) + TOPICS // 2 * log.context
    return unit(centre[topic] + spread * unit(rng.standard_normal((len(topic), 16))))


def by_co_retrieval(log: Log, *, window: int = 5_000) -> Counts:
    """Contexts learnt from the sets of the first episodes, shape (T,)."""
    sets = log.shown.tolist()
    found = contexts.fit(sets[:window])
    return np.array([found.of(shown) for shown in sets], dtype=np.int64)


def by_query(vectors: Floats, count: int) -> Counts:
    """Clusters of the queries, shape (T,)."""
    return clusters.fit(vectors[:5_000], count).of(vectors)


def within(log: Log, context: Counts) -> Floats:
    """The worth of every memory within contexts, shape (n,)."""
    memories, count, k = len(log.utility), int(context.max()) + 1, log.shown.shape[1]
    place = (log.shown.ravel(), np.repeat(context, k))
    size, hits = np.zeros((memories, count)), np.zeros((memories, count))
    np.add.at(size, place, 1.0)
    np.add.at(hits, place, np.repeat(log.success, k))
    worth = np.divide(hits, size, out=np.full_like(size, 0.5), where=size > 0)
    episodes = np.maximum(np.bincount(context, minlength=count), 1)
    base = np.bincount(context, weights=log.success, minlength=count) / episodes
    return stratified_worth(worth, size, base)
