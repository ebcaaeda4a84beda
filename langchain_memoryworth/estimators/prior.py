"""An empirical-Bayes prior: what the pool says of a memory before its own outcomes do."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from langchain_memoryworth.errors import InvalidInputError

FLAT = (1.0, 1.0)
"""What a pool that says nothing falls back to."""
LEAST_POOL = 20
"""Memories with at least one retrieval below which a pool says nothing."""
STRENGTH = (2.0, 10.0)
"""Bounds of alpha + beta, in retrievals. A pool without visible differences would give an infinite strength, and no
memory in it could ever be judged by its own outcomes."""


def prior_of_pool(
    worth: ArrayLike,
    size: ArrayLike,
    *,
    strength: tuple[float, float] = STRENGTH,
    least: int = LEAST_POOL,
) -> tuple[float, float]:
    """The Beta prior from which the success rates of a pool look drawn, by the method of moments.

    With n_i retrievals, s_i = n_i MW_i successes and p_i ~ Beta(alpha, beta), the ratio MW_i has the mean
    mu = alpha / (alpha + beta) and the variance mu (1 - mu) (rho + (1 - rho) / n_i), where rho = 1 / (alpha + beta + 1).
    With N = sum n_i, mu^ = sum s_i / N and S = sum n_i (MW_i - mu^)**2 of M memories,

        E S = mu (1 - mu) (rho (N - sum n_i**2 / N) + (1 - rho) (M - 1)),

    which is solved for rho; alpha + beta = (1 - rho) / rho is kept within `strength`.

    Fallback: (1, 1), the flat prior, if fewer than `least` memories have a retrieval or if all outcomes are alike.
    A pool of memories with one retrieval each says nothing of their differences: it gets the highest strength.

    Args:
        worth: MW in [0, 1], shape (m,).
        size: Effective sizes in retrievals, at least 0, shape (m,); memories below one retrieval do not count.
        strength: Lowest and highest alpha + beta.
        least: Memories that a pool needs.

    Returns:
        alpha and beta, each above 0.

    Raises:
        InvalidInputError: If the arrays differ in shape or hold what is no worth or no size.

    References:
        Kleinman (1973), Proportions with extraneous variance, JASA 68.

    Examples:
        >>> tuple(round(x, 2) for x in prior_of_pool([0.5] * 10 + [1.0] * 10, [10.0] * 20))
        (1.94, 0.65)
        >>> prior_of_pool([0.2, 0.9], [10, 10])
        (1.0, 1.0)
    """
    ratio, n = np.asarray(worth, dtype=np.float64), np.asarray(size, dtype=np.float64)
    if ratio.shape != n.shape:
        raise InvalidInputError(
            f"give one worth and one size for each memory, got {ratio.shape} and {n.shape}"
        )
    if not (np.all((ratio >= 0) & (ratio <= 1)) and np.all(np.isfinite(n) & (n >= 0))):
        raise InvalidInputError("each worth must be in [0, 1], each size finite and at least 0")
    ratio, n = ratio[n >= 1], n[n >= 1]
    if len(n) < least:
        return FLAT
    total = n.sum()
    mean = float((n * ratio).sum() / total)
    if not 0 < mean < 1:
        return FLAT
    spread = float((n * (ratio - mean) ** 2).sum()) / (mean * (1 - mean))
    alike = len(n) - 1  # what `spread` is expected to be if all success rates are equal
    room = float(total - (n**2).sum() / total) - alike
    rho = (spread - alike) / room if room > 1e-9 else 0.0
    low, high = strength
    alpha_plus_beta = min(max((1 - rho) / rho, low), high) if rho > 0 else high
    return mean * alpha_plus_beta, (1 - mean) * alpha_plus_beta
