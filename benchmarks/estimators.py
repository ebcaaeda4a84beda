"""What the estimators take of an outcome's time, for k = 8 memories, without the database."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import Spread
from langchain_memoryworth.estimators import drift
from langchain_memoryworth.estimators.credible import PRIOR, is_below, parameters
from langchain_memoryworth.estimators.credit import equal_shares
from langchain_memoryworth.estimators.effects import effect_of, expected, surprise
from langchain_memoryworth.estimators.evidence import UNIT

K = 8
_POOL = 400
_CALLS = 20
_FAILS = 5
"""Of so many outcomes one is a failure."""


def run(*, quick: bool) -> list[Row]:
    """A row for each estimator, and one for an outcome with all of them."""
    rng = np.random.default_rng(1)
    chance = rng.beta(3, 2, 3 * _POOL)
    chance, size = chance[chance > 0.4][:_POOL], rng.integers(5, 200, _POOL)
    worth = (rng.binomial(size, chance) / size).tolist()
    sizes = size.astype(float).tolist()
    units = (size * UNIT).tolist()
    surprises = [round(u * (w - 0.6)) for u, w in zip(units, worth, strict=True)]
    blobs = drift.pack(_lives(rng, chance, 20 if quick else 200))
    sets = [rng.choice(_POOL, K, replace=False).tolist() for _ in range(_CALLS)]

    def verdicts(shown: list[int]) -> None:
        for i in shown:
            is_below(0.4, *parameters(worth[i], sizes[i], PRIOR), confidence=0.95)

    def detector(shown: list[int], *heard: drift.Heard) -> None:
        states = drift.unpack([blobs[i] for i in shown])
        states = drift.updates(states, [heard] * K)
        drift.declined(states, theta=0.4, margin=0.2)
        drift.pack(states)

    success, failure, graded = (drift.Heard(1.0, *row, 0.6) for row in ((1, 1), (0, 1), (0.3, 0.5)))
    waiting = (*[success] * (_FAILS - 1), failure)

    def effects(shown: list[int]) -> None:
        shares = equal_shares(K, 1.0, 0.01)
        known = [effect_of(surprises[i], units[i]) for i in shown]
        for share, e in zip(shares, expected(0.6, known), strict=True):
            surprise(1.0, e, share.size)

    def everything(shown: list[int]) -> None:
        for _ in range(_FAILS):
            effects(shown)
            verdicts(shown)
        detector(shown, *waiting)

    blocks = 3 if quick else 300
    return [
        _row("shares, effects, expectations, surprises", effects, sets, blocks),
        _row("is it LOW by bounds", verdicts, sets, blocks),
        _row(
            f"change detector at a failure after {_FAILS - 1} successes: read, update, judge, write",
            lambda shown: detector(shown, *waiting),
            sets,
            blocks,
        ),
        _row(
            "the same for a graded reward, or credit by use, after which none waits",
            lambda shown: detector(shown, graded),
            sets,
            blocks,
        ),
        _row(
            f"all of them, if one outcome of {_FAILS} is a failure",
            everything,
            sets,
            blocks,
            target=50.0,
            outcomes=_FAILS,
        ),
    ]


def _lives(rng: np.random.Generator, chance: np.ndarray, outcomes: int) -> drift.States:
    states = drift.fresh(len(chance))
    for number in range(1, outcomes + 1):
        success = rng.random(len(chance)) < chance
        states = drift.update(states, success, at=float(number), expected=0.6)
    return states


def _row(
    case: str,
    work: Callable[[list[int]], None],
    sets: list[list[int]],
    blocks: int,
    *,
    target: float | None = None,
    outcomes: int = 1,
) -> Row:
    taken = []
    for _ in range(blocks):
        start = perf_counter_ns()
        for shown in sets:
            work(shown)
        taken.append((perf_counter_ns() - start) / len(sets) / outcomes / 1e3)
    return Row(
        case,
        "-",
        None,
        figure=Spread.of(taken),
        unit="us",
        about="per outcome of 8 memories",
        target=target,
    )
