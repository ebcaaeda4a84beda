"""Ranking by similarity with a bonus that cannot lift an irrelevant memory far: bounded, centred, optimistic.

`similarity + w * (effect + c * sd)`: a memory without evidence stands where its similarity puts it, plus the same
optimism for all that are new; evidence moves it by at most about w. The bonus is an inner product of a few coordinates
of the memory and of the query, so a flat index ranks all memories by it exactly, w and c may change with every query,
and a base rate that moves rewrites no row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.effects import NOISE, STRENGTH, effect

Floats = NDArray[np.float64]


def effect_coordinates(
    surprises: ArrayLike,
    sizes: ArrayLike,
    *,
    strength: float = STRENGTH,
    least: float = -1.0,
    most: float = 1.0,
) -> Floats:
    """The coordinates of memories whose bonus is their effect, which is centred by itself.

    How large effects are depends on how many memories share an outcome: with k of them each has about 1/k of what a memory
    has that alone is used. The bounds let the weight be large enough for the first without letting the second buy any
    irrelevance: whatever the evidence, it moves a memory by weight * least to weight * most.

    Args:
        surprises: As `effects.effect`, in retrievals, shape (n,).
        sizes: Evidence sizes in retrievals, at least 0, shape (n,).
        strength: Retrievals that the prior is worth, above 0.
        least: Effects are clipped to [least, most], at most 0.
        most: At least 0.

    Returns:
        float64 of shape (n, 2), for `effect_query`.

    Raises:
        InvalidInputError: As `effects.effect`, or if the bounds do not lie about 0.

    References:
        When to Forget, Experiment 5, ranks by worth beside similarity, neither centred nor bounded. A term of a memory's own
        as coordinates of an inner product: Bachrach et al. (2014), Speeding up the Xbox recommender system, RecSys.

    Examples:
        >>> rows = effect_coordinates([0.0, 8.0], [0.0, 16.0])
        >>> (rows @ effect_query(1.0, optimism=0.5)).round(3).tolist()
        [0.031, 0.128]
    """
    mean = effect(np.asarray(surprises, dtype=np.float64), sizes, strength=strength)
    spread = 1 / np.sqrt(np.asarray(sizes, dtype=np.float64) + strength)
    if not least <= 0 <= most:
        raise InvalidInputError(
            f"least must be at most 0 and most at least 0, got {least} and {most}",
            value=(least, most),
        )
    # Not `np.clip`, nor `np.stack`: for the few memories of an outcome they cost more than all the rest.
    rows = np.empty((*spread.shape, 2))
    rows[..., 0], rows[..., 1] = np.minimum(np.maximum(mean, least), most), spread
    return rows


def effect_query(weight: float, *, optimism: float, noise: float = NOISE) -> Floats:
    """The query's side of `effect_coordinates`.

    Args:
        weight: w, at least 0: similarity per unit of success rate.
        optimism: c; below 0 the lower bound ranks.
        noise: Variance of one outcome, in (0, .25].

    Returns:
        float64 of shape (2,).

    References:
        Auer (2002), Using confidence bounds for exploitation-exploration trade-offs, JMLR 3: the mean plus c deviations.
    """
    return np.array([weight, weight * optimism * noise**0.5])
