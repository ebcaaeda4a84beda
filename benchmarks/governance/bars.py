"""The estimators in the paper's worlds, where what can be known is known: correlations with the true utilities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.governance.pools import (
    Log,
    batch_effects,
    memory_worth,
    online_effects,
    topic_pool,
    uniform_pool,
)
from benchmarks.governance.recursive import recursive_effects
from benchmarks.governance.strata import by_co_retrieval, by_query, confounded, queries, within
from benchmarks.governance.trials import pair_lifts
from langchain_memoryworth.experiments.simulator import spearman

Floats = NDArray[np.float64]
Pool = Callable[[int, int], Log]
Estimate = Callable[[Log, int], Floats]


def _learnt(log: Log) -> Log:
    return Log(log.shown, log.success, by_co_retrieval(log), log.utility)


def _worth(log: Log, _: int) -> Floats:
    return memory_worth(log)


def _online(log: Log, _: int) -> Floats:
    return online_effects(log)


def _filter(log: Log, _: int) -> Floats:
    return recursive_effects(log)


def _still_filter(log: Log, _: int) -> Floats:
    return recursive_effects(log, drift=0.0)


def _ridge(log: Log, _: int) -> Floats:
    return batch_effects(log).effect


def _given(log: Log, _: int) -> Floats:
    return within(log, log.context)


ROWS: dict[str, tuple[Pool, dict[str, Estimate]]] = {
    "Experiment 1": (
        uniform_pool,
        {
            "worth": _worth,
            "effects": _online,
            "effects, half-life 500": lambda log, _: online_effects(log, half_life=500.0),
            "effects, half-life 150": lambda log, _: online_effects(log, half_life=150.0),
            "recursive filter": _filter,
            "recursive filter, no process noise": _still_filter,
            "ridge": _ridge,
        },
    ),
    "topics": (
        topic_pool,
        {
            "worth": _worth,
            "effects": lambda log, _: online_effects(log.alike()),
            "effects, contexts given": _online,
            "effects, contexts learnt": lambda log, _: online_effects(_learnt(log)),
            "recursive filter, no process noise": _still_filter,
            "ridge, contexts given": _ridge,
        },
    ),
    "topics, difficulty .15": (
        lambda seed, n: topic_pool(seed, n, difficulty=0.15),
        {
            "worth": _worth,
            "effects": lambda log, _: online_effects(log.alike()),
            "effects, contexts given": _online,
            "effects, contexts learnt": lambda log, _: online_effects(_learnt(log)),
            "recursive filter, no process noise": _still_filter,
            "ridge, contexts given": _ridge,
        },
    ),
    "Experiment 2, slope 1": (
        confounded,
        {
            "worth": _worth,
            "worth within contexts, given": _given,
            "within co-retrieval contexts": lambda log, _: within(log, by_co_retrieval(log)),
            "within 20 query clusters": lambda log, s: within(
                log, by_query(queries(log, s, spread=0.3), 20)
            ),
            "within 2 query clusters": lambda log, s: within(
                log, by_query(queries(log, s, spread=0.3), 2)
            ),
            "within 20 clusters of overlapping topics": lambda log, s: within(
                log, by_query(queries(log, s, spread=6.0), 20)
            ),
            "effects, contexts given": _online,
            "ridge, contexts given": _ridge,
        },
    ),
    "Experiment 2, slope 1, same retrievals for easy and hard": (
        lambda seed, n: confounded(seed, n, shared=True),
        {
            "worth": _worth,
            "worth within contexts, given": _given,
            "within co-retrieval contexts": lambda log, _: within(log, by_co_retrieval(log)),
        },
    ),
    "Experiment 2, slope .15": (
        lambda seed, n: confounded(seed, n, slope=0.15),
        {"worth": _worth, "worth within contexts, given": _given, "ridge, contexts given": _ridge},
    ),
}

TRIALS = ((2_000, 0.1), (500, 0.5))
TRIAL_SEEDS = 400


def measure(seeds: int, episodes: int) -> dict[str, list[list[object]]]:
    """Rows of (world, estimator, mean, standard deviation) and of (episodes, share, lifts, errors, order right)."""
    length = 10_000 if episodes >= 6_000 else episodes
    ranks: list[list[object]] = []
    for world, (pool, estimates) in ROWS.items():
        logs = [pool(seed, length) for seed in range(seeds)]
        for name, estimate in estimates.items():
            rho = [float(spearman(estimate(log, s), log.utility)) for s, log in enumerate(logs)]
            ranks.append([world, name, float(np.mean(rho)), float(np.std(rho))])
    lifts: list[list[object]] = []
    for count, share in TRIALS:
        number = TRIAL_SEEDS if episodes >= 6_000 else seeds
        values = np.array([pair_lifts(seed, count, share).value for seed in range(number)])
        error = values.std(axis=0) / number**0.5
        right = float((values[:, 0] > values[:, 1]).mean())
        lifts.append([count, share, values.mean(axis=0).tolist(), error.tolist(), right])
    return {"ranks": ranks, "lifts": lifts}
