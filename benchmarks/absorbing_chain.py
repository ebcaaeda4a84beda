"""The exact probability that a rule which looks after every outcome ever fires."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def boundary(fires: Callable[[int, int], bool], outcomes: int) -> list[int]:
    """The most successes among n outcomes at which a rule fires, or -1; for n = 0 ... `outcomes`.

    Args:
        fires: Of (successes, n); if it fires, then also with fewer successes, or with one more failure.
        outcomes: The largest n.
    """
    most, found = -1, []
    for n in range(outcomes + 1):
        while most < n and fires(most + 1, n):
            most += 1
        found.append(most)
    return found


def ever(most: list[int], p: float) -> np.ndarray:
    """Probability that the rule has fired within n outcomes of success probability p, shape (N + 1,).

    The Markov chain over (n, successes), with every state in which the rule fires made absorbing.
    """
    alive, absorbed = np.ones(1), [0.0]
    for n in range(1, len(most)):
        moved = np.zeros(n + 1)
        moved[:-1] += alive * (1 - p)
        moved[1:] += alive * p
        absorbed.append(absorbed[-1] + moved[: most[n] + 1].sum())
        moved[: most[n] + 1] = 0.0
        alive = moved
    return np.array(absorbed)


def median(probability: np.ndarray) -> int:
    """The number of outcomes by which half of the memories are absorbed."""
    return int(np.argmax(probability >= 0.5))
