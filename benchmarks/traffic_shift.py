"""Does a detector call memories stale when only the traffic changes? And does it still see those that are?

Each memory does as well as the base rate of the context it is used in: .9 if easy, .3 if hard. For 500 outcomes 90% are easy,
for 500 more 90% are hard. `stale` ones lose three tenths of success in each context with the shift.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.tables import arguments, show, table
from langchain_memoryworth.estimators import drift

COMMAND = "benchmarks.traffic_shift"
EASY, HARD = 0.9, 0.3
OVERALL = 0.9 * EASY + 0.1 * HARD


class Judge(NamedTuple):
    """What a memory is held against."""

    name: str
    contexts: bool
    theta: float | None = None
    margin: float | None = None


JUDGES = (
    Judge("contexts given, margin .10", contexts=True, margin=0.10),
    Judge("contexts given, margin .15", contexts=True, margin=0.15),
    Judge("contexts given, margin .20", contexts=True, margin=0.20),
    Judge("no contexts, margin .15 below the rate before", contexts=False, margin=0.15),
    Judge("no contexts, threshold .40", contexts=False, theta=0.40),
)


def alarms(judge: Judge, seed: int, memories: int, half: int, loss: float = 0.0) -> float:
    """Share of memories that are ever flagged.

    Args:
        judge: What they are held against.
        seed: Of all draws.
        memories: How many.
        half: Outcomes before the shift, and after it.
        loss: Success rate lost with the shift in each context, in [0, .3].
    """
    rng = np.random.default_rng(seed)
    states, flagged = drift.fresh(memories), np.zeros(memories, dtype=bool)
    for number in range(1, 2 * half + 1):
        shifted = number > half
        base = np.where(rng.random(memories) < (0.1 if shifted else 0.9), EASY, HARD)
        success = rng.random(memories) < base - loss * shifted
        expected = base if judge.contexts else OVERALL
        states = drift.update(states, success, expected=expected, at=number)
        flagged |= drift.declined(states, theta=judge.theta, margin=judge.margin)
    return float(flagged.mean())


def text(*, quick: bool) -> str:
    """The whole table."""
    memories, half = (10, 20) if quick else (1_000, 500)
    rows = [
        [
            judge.name,
            f"{alarms(judge, 1, memories, half):.1%}",
            f"{alarms(judge, 2, memories, half, 0.3):.1%}",
        ]
        for judge in JUDGES
    ]
    return table(["held against", "only the traffic changes: flagged", "stale: flagged"], rows)


if __name__ == "__main__":
    options = arguments(COMMAND, __doc__)
    show(COMMAND, text(quick=options.quick), options)
