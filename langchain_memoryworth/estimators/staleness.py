"""The staleness report: what was good and is not any more, since when, and on what evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from langchain_memoryworth.estimators.drift import (
    CONFIDENCE,
    States,
    changed,
    current,
    declined,
    probability_below,
)
from langchain_memoryworth.estimators.noise import corrected


@dataclass(frozen=True, slots=True)
class Decline:
    """One memory that was high and has declined: a candidate for checking again, not for deletion.

    Attributes:
        memory_id: Which.
        before: Success rate before the present regime, in [0, 1].
        before_size: Retrievals before it.
        now: Mean of the present success rate.
        deviation: Its standard deviation.
        size: Retrievals in the present regime.
        since: Mark of the last outcome before it (see `drift.update`).
        expected: Base rate of the outcomes in it.
        probability: That the present rate is below the threshold.
    """

    memory_id: str
    before: float
    before_size: float
    now: float
    deviation: float
    size: float
    since: float
    expected: float
    probability: float

    def __str__(self) -> str:
        return (
            f"{self.memory_id}: {self.before:.2f} over {self.before_size:.0f} retrievals, then {self.now:.2f} "
            f"(+-{self.deviation:.2f}) over {self.size:.0f}, where {self.expected:.2f} was to be expected; "
            f"below the threshold with probability {self.probability:.3f}"
        )


def stale(
    memory_ids: Sequence[str],
    states: States,
    *,
    theta: float | None = None,
    margin: float | None = None,
    high: float = 0.6,
    least: float = 10.0,
    confidence: float = CONFIDENCE,
    flip: float = 0.0,
) -> list[Decline]:
    """The memories that were high and have declined, the surest first.

    With `margin` alone a memory is held against the base rate of the same outcomes, so that harder tasks are no decline;
    that needs `expected` rates of given contexts. Without contexts give `theta`: harder tasks look like a decline then.

    Args:
        memory_ids: Of m memories.
        states: Theirs, from `drift.update`.
        theta: Absolute threshold, see `drift.thresholds`.
        margin: Relative threshold, likewise.
        high: What the success rate before must have been more than, in [0, 1].
        least: Retrievals that must have been before.
        confidence: Of the present rate being below the threshold, in (0, 1).
        flip: Share of labels that are wrong, in [0, .5): thresholds are for the rates without them, what is told is what
            was counted.

    Raises:
        InvalidInputError: If neither a theta nor a margin is given.

    References:
        When to Forget, section 6, "Staleness detection".

    Examples:
        >>> from langchain_memoryworth.estimators.drift import fresh, update
        >>> state = fresh(1)
        >>> for number, success in enumerate([1] * 60 + [0] * 15, start=1):
        ...     state = update(state, success, at=number, expected=0.8)
        >>> print(stale(["old"], state, margin=0.2)[0])
        old: 1.00 over 60 retrievals, then 0.06 (+-0.06) over 15, where 0.80 was to be expected; below the threshold with
        probability 1.000
    """
    found = declined(states, theta=theta, margin=margin, confidence=confidence, flip=flip)
    found &= changed(states)
    rows = np.nonzero(found)[0].tolist()
    now = current(states[rows])
    probability = probability_below(states[rows], theta=theta, margin=margin, flip=flip)
    before = corrected(now.before, flip)
    declines = [
        Decline(
            memory_id=memory_ids[row],
            before=float(now.before[i]),
            before_size=float(now.before_size[i]),
            now=float(now.mean[i]),
            deviation=float(now.sd[i]),
            size=float(now.size[i]),
            since=float(now.since[i]),
            expected=float(now.expected[i]),
            probability=float(probability[i]),
        )
        for i, row in enumerate(rows)
        if before[i] > high and now.before_size[i] >= least
    ]
    return sorted(declines, key=lambda d: -d.probability)
