"""The course of the stale memory in Experiment 5: derived, implied by Table 2, and where it crosses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from langchain_memoryworth.experiments.experiment import Floats
from langchain_memoryworth.experiments.text_world import PAPER
from langchain_memoryworth.experiments.texts import SHIFT


def diluted(episode: ArrayLike, first: float, rate: float, success: float) -> Floats:
    """Worth of a memory whose retrievals succeeded until the shift and mostly fail after it.

    `(first + rate success x) / (1 + rate x)` with x episodes since the shift.

    Args:
        episode: Any shape, at least `SHIFT`.
        first: Worth at the shift.
        rate: Retrievals per episode after the shift, in units of all those before it.
        success: Share of success among them.
    """
    volume = rate * (np.asarray(episode, dtype=np.float64) - SHIFT)
    return np.asarray((first + success * volume) / (1 + volume))


def implied(first: float, middle: float, last: float) -> tuple[float, float]:
    """Rate and success that the published worths at the shift, at 500 and at 3,000 pin down.

    Each value is one linear equation in rate and rate * success.

    Examples:
        >>> rate, success = implied(0.97, 0.40, 0.17)
        >>> round(rate * 60, 2), round(success, 3)  # 60% of 100 retrievals before, 30% after
        (0.3, 0.115)
        >>> diluted([300, 500], 0.97, rate, success).round(2).tolist()
        [0.54, 0.4]
    """
    since = np.array([500 - SHIFT, 3000 - SHIFT])
    worth = np.array([middle, last])
    equations = np.column_stack([since * worth, -since])
    rate, successes = np.linalg.solve(equations, first - worth)
    return float(rate), float(successes / rate)


def crossings(stale: Floats, ends: ArrayLike) -> Floats:
    """First reading after the shift with a worth below theta_low, nan if there is none.

    Args:
        stale: Worth, shape (S, P).
        ends: Episode numbers of the readings, shape (P,).
    """
    x = np.asarray(ends)
    below = (stale < PAPER.theta_low) & (x > SHIFT)
    return np.where(below.any(axis=1), x[below.argmax(axis=1)], np.nan)
