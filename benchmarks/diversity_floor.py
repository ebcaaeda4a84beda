"""The diversity floor that a habitual pair needs, by the gap in utility and the number of episodes: Experiment 4 without luck.

Anchor and companion are retrieved in every episode, never apart by themselves. The floor leaves each of them out by a draw, the
next memory in its place. `python -m benchmarks.diversity_floor --into docs/statistics.md` writes the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.governance.pools import batch_effects, memory_worth
from benchmarks.governance.trials import lifts_of, pair_trial
from benchmarks.tables import arguments, show, table
from langchain_memoryworth.estimators.hitchhikers import diversity_needed
from langchain_memoryworth.experiments.simulator import K
from langchain_memoryworth.policy import Policy

COMMAND = "benchmarks.diversity_floor"
ANCHOR = 0.9
GAPS, EPISODES = (0.85, 0.45, 0.2), (500, 2_000, 10_000)
FLOORS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75)
ESTIMATORS = ("lift", "worth", "ridge")
ORDERED, SURE = 0.95, 1.645
SEEDS = 400


def ordered(gap: float, episodes: int, floor: float, seeds: int) -> dict[str, float]:
    """Share of the seeds in which each estimator puts the anchor above its companion."""
    rate = Policy(diversity_floor=floor).held_out(None, 2)
    right = dict.fromkeys(ESTIMATORS, 0)
    for seed in range(seeds):
        log, held = pair_trial(seed, episodes, rate, (ANCHOR, ANCHOR - gap))
        found = (lifts_of(log, held, rate).value, memory_worth(log), batch_effects(log).effect)
        for name, values in zip(ESTIMATORS, found, strict=True):
            right[name] += bool(values[0] > values[1])
    return {name: count / seeds for name, count in right.items()}


def foretold(gap: float, episodes: int) -> float:
    """The floor at which the two differ by 1.645 standard errors, so that 95% of all runs order them.

    Both are shown without the other in `r (1 - r)` of the episodes, and the two shares are compared: twice the variance of an
    anchor that alone is shown without its companion, so `diversity_needed` of half the episodes.
    """
    rate = diversity_needed(gap, episodes // 2, k=K, sure=SURE)
    return math.inf if math.isinf(rate) else 1 - (1 - rate) ** 2


def rows(gaps: tuple[float, ...], episodes: tuple[int, ...], seeds: int) -> Iterator[list[str]]:
    """For each gap and number of episodes the least floor at which an estimator orders the pair."""
    for gap in gaps:
        for count in episodes:
            least: dict[str, float] = {}
            for floor in FLOORS:
                for name, share in ordered(gap, count, floor, seeds).items():
                    if share >= ORDERED:
                        least.setdefault(name, floor)
                if len(least) == len(ESTIMATORS):
                    break
            cells = [foretold(gap, count), *(least.get(name, math.inf) for name in ESTIMATORS)]
            yield [f"{gap:g}", f"{count:,}", *("-" if c > 1 else f"{c:.0%}" for c in cells)]


def text(*, quick: bool) -> str:
    """The whole table."""
    found = rows((0.85,), (500,), 4) if quick else rows(GAPS, EPISODES, SEEDS)
    return table(["gap", "episodes", "by the formula", *ESTIMATORS], list(found))


if __name__ == "__main__":
    options = arguments(COMMAND, __doc__)
    show(COMMAND, text(quick=options.quick), options)
