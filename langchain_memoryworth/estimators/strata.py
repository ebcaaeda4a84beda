"""Worth within contexts: what a memory's success rate is above that of the tasks it was shown in."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError

STRENGTH = 10.0
"""Retrievals that the prior (as good as its contexts) is worth; the paper's V_min."""


def stratified_worth(
    worth: ArrayLike, size: ArrayLike, base_rate: ArrayLike, *, strength: float = STRENGTH
) -> NDArray[np.float64]:
    """The worth minus the base rate of its context, pooled over contexts by evidence.

    `sum_c n_c (MW(m|c) - b_c) / (sum_c n_c + strength)`. Averaging MW(m|c) itself gives the global MW back; taking the base
    rate out of each context first is what makes specialists of hard tasks comparable with generalists.

    Args:
        worth: MW(m|c) in [0, 1], shape (n, contexts); what stands where there is no evidence does not matter.
        size: Effective evidence sizes in retrievals, at least 0, shape (n, contexts).
        base_rate: Success rate of each context, in [0, 1], shape (contexts,).
        strength: Retrievals that the prior is worth, at least 0.

    Returns:
        In [-1, 1], 0 for a memory like its contexts or without evidence; float64 of shape (n,).

    Raises:
        InvalidInputError: If a size is negative or `strength` is.

    References:
        When to Forget, section 5.3.1 (within-stratum normalisation, left to future work) and Figure 2.

    Examples:
        A specialist of hard tasks (.35 where .28 is usual) and a generalist that is below average in both contexts.

        >>> worth = [[0.5, 0.35], [0.70, 0.20]]
        >>> stratified_worth(worth, [[0, 90], [45, 45]], [0.78, 0.28]).round(3).tolist()
        [0.063, -0.072]
    """
    evidence = np.asarray(size, dtype=np.float64)
    if (evidence.size and evidence.min() < 0) or strength < 0:
        raise InvalidInputError(
            f"sizes and strength must not be negative, got {size!r} and {strength}", value=size
        )
    above = np.asarray(worth, dtype=np.float64) - np.asarray(base_rate, dtype=np.float64)
    total = evidence.sum(axis=-1) + strength
    pooled = (evidence * above).sum(axis=-1)
    return np.asarray(np.divide(pooled, total, out=np.zeros_like(pooled), where=total > 0))
