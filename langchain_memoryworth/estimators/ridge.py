"""The batch solution of the additive model in `effects`: ridge regression with an intercept per context.

The audit of the online effects: it needs all episodes, and a table of n x n for the n memories asked about, and it
gives intervals that know of the companions. Nothing here is kept between calls.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.effects import NOISE, STRENGTH

LIMIT = 4_000
"""Memories in one regression: their table has 128 MB and takes a few seconds to invert."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Ridge(NamedTuple):
    """Effects of memories from one batch regression.

    Attributes:
        effect: By how much showing a memory moves the success rate within its contexts, float64 of shape (n,).
        deviation: Posterior standard deviation, that of the prior where the data say nothing, shape (n,).
        covariance: Posterior covariance, shape (n, n): what two memories share, as an anchor and its hitchhiker do.
        noise: Variance of an outcome that the effects leave over.
    """

    effect: Floats
    deviation: Floats
    covariance: Floats
    noise: float

    def difference(self, first: int, second: int) -> tuple[float, float]:
        """Effect of one memory minus that of another, and its deviation."""
        variance = (
            self.covariance[first, first]
            + self.covariance[second, second]
            - 2 * self.covariance[first, second]
        )
        return float(self.effect[first] - self.effect[second]), float(max(0.0, variance) ** 0.5)


def ridge(
    episode: Ints,
    memory: Ints,
    size: Floats,
    reward: Floats,
    context: Ints,
    *,
    memories: int,
    strength: float = STRENGTH,
) -> Ridge:
    """Regress the rewards on the memories shown, within contexts.

    `minimise sum_t (reward_t - base_{c(t)} - sum_m size_tm effect_m)^2 + strength * sum_m effect_m^2`. The intercepts
    are not shrunk; they are taken out by centring within each context.

    Args:
        episode: Number of the episode of each exposure, in [0, T), shape (e,).
        memory: Number of the memory of each exposure, in [0, memories), shape (e,); once per episode.
        size: How much the memory took part, min(1, k*w), in [0, 1], shape (e,).
        reward: Outcome of each episode, in [0, 1], shape (T,).
        context: Number of the context of each episode, from 0, shape (T,).
        memories: n, at most `LIMIT`.
        strength: Retrievals that the prior (effect 0) is worth, above 0.

    Raises:
        InvalidInputError: If there are more memories than `LIMIT`, or `strength` is not above 0.

    References:
        Hoerl and Kennard (1970), Ridge Regression, Technometrics 12; centring: Frisch and Waugh (1933).

    Examples:
        Memory 0 helps and memory 1 does not; they are apart in half of the episodes.

        >>> episode = np.repeat(np.arange(400), 2)
        >>> memory = np.tile([0, 1, 0, 2, 1, 2, 0, 1], 100)
        >>> reward = np.where(np.arange(400) % 4 == 2, 0.2, 0.8)
        >>> fit = ridge(episode, memory, np.ones(800), reward, np.zeros(400, dtype=int), memories=3)
        >>> fit.effect.round(1).tolist()
        [0.3, -0.1, -0.1]
    """
    if memories > LIMIT:
        raise InvalidInputError(
            f"{memories} memories are more than one regression takes ({LIMIT}); give the ids of fewer",
            value=memories,
        )
    if not strength > 0:
        raise InvalidInputError(f"strength must be above 0, got {strength}", value=strength)
    episodes, contexts = len(reward), int(context.max(initial=-1)) + 1
    count = np.bincount(context, minlength=contexts).astype(np.float64)
    shown = np.zeros((contexts, memories))
    np.add.at(shown, (context[episode], memory), size)
    success = np.bincount(context, weights=reward, minlength=contexts)
    mean = np.divide(success, count, out=np.zeros(contexts), where=count > 0)
    share = np.divide(shown, count[:, None], out=np.zeros_like(shown), where=count[:, None] > 0)

    gram = _pairs(episode, memory, size, memories) - shown.T @ share
    moment = (
        np.bincount(memory, weights=size * reward[episode], minlength=memories) - shown.T @ mean
    )
    inverse = np.linalg.inv(gram + strength * np.eye(memories))
    effects = inverse @ moment
    left = float(((reward - mean[context]) ** 2).sum() - effects @ (2 * moment - gram @ effects))
    freedom = episodes - contexts - float(np.trace(inverse @ gram))
    noise = max(left, 0.0) / freedom if freedom >= 1 else NOISE
    covariance = np.asarray(noise * inverse, dtype=np.float64)
    return Ridge(effects, np.asarray(np.sqrt(np.diag(covariance))), covariance, noise)


def _pairs(episode: Ints, memory: Ints, size: Floats, memories: int) -> Floats:
    """X'X of the exposures, one companion offset at a time: no T x n design, no sparse library."""
    order = np.argsort(episode, kind="stable")
    run, column, weight = episode[order], memory[order], size[order]
    gram = np.zeros((memories, memories))
    np.add.at(gram, (column, column), weight * weight)
    for offset in range(1, len(run)):
        same = run[offset:] == run[:-offset]
        if not same.any():
            break
        first, second = column[:-offset][same], column[offset:][same]
        product = weight[:-offset][same] * weight[offset:][same]
        np.add.at(gram, (first, second), product)
        np.add.at(gram, (second, first), product)
    return gram
