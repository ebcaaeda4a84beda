"""What the estimators cost beyond the ledger, for one outcome of eight memories."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from benchmarks.governance.pools import topic_pool
from langchain_memoryworth.estimators import contexts
from langchain_memoryworth.estimators.effects import effect_of, expected, surprise
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.estimators.hitchhikers import CoRetrievals

ROUNDS, REPEATS = 60, 40


def measure() -> dict[str, float]:
    """Microseconds for each, the fastest of sixty rounds: the machine may be busy."""
    sets = topic_pool(0, 1_000).shown.tolist()
    found = contexts.fit(sets)
    pairs = CoRetrievals()
    return {
        "effects: expectations and surprises of eight memories": _microseconds(_effects),
        "contexts: the context of a set of eight": _microseconds(lambda: found.of(sets[0])),
        "hitchhikers: the 28 pairs of eight memories": _microseconds(lambda: pairs.update(sets[1])),
    }


def _effects() -> None:
    current = [effect_of(m * UNIT // 2, (20 + m) * UNIT) for m in range(8)]
    for expectation in expected(0.5, current):
        surprise(1.0, expectation, UNIT)


def _microseconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        for _ in range(REPEATS):
            call()
        times.append((perf_counter() - start) / REPEATS)
    return float(np.min(times) * 1e6)
