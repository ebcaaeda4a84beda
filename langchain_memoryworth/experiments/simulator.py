"""The simulated world of section 5 and the counters it leaves behind.

Retrievals and outcomes are drawn for all episodes at once; the credits come from `credit.settle`,
the sums are integers, and the estimates are `evidence.worth` and `evidence.effective_size`. No
estimator of its own lives here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.estimators.credit import CreditName, Shown, settle
from langchain_memoryworth.estimators.evidence import UNIT, effective_size, worth
from langchain_memoryworth.experiments.extras import optional

POOL = 100
"""N, the memories of the pool (section 5.1)."""

K = 8
"""k, the memories of one retrieval (section 5.1)."""

NOISE = 0.10
"""Standard deviation of the noise on the success probability (section 5.1)."""

CORRELATION = 0.65
"""Correlation of the similarity proxy with the true utility (section 5.1)."""

EVERY = 500
"""Episodes between two checkpoints (section 5.1)."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Credits:
    """What every shown memory would get from a success, in units of 2**-32.

    Attributes:
        weight: Share of the episode, int64 of shape (T, k) or (1, k) if all episodes are alike.
        size: Part of the evidence size, same shape.
        squared: Squared weight, same shape.
    """

    weight: Counts
    size: Counts
    squared: Counts

    def only(self, episodes: Flags) -> Credits:
        """The same credits, none outside of some episodes: the evidence of one stratum.

        Args:
            episodes: Which episodes count, shape (T,).
        """
        kept = episodes[:, None].astype(np.int64)
        return Credits(self.weight * kept, self.size * kept, self.squared * kept)


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of every memory at every checkpoint, as `evidence.Evidence` has them.

    Attributes:
        positive: hits+ in units of 2**-32, int64 of shape (P, N).
        negative: hits-, same unit and shape.
        size: Evidence size, same unit and shape.
        squared: Sum of squared weights, same unit and shape.
        retrievals: Settled episodes, int64 of shape (P, N).
    """

    positive: Counts
    negative: Counts
    size: Counts
    squared: Counts
    retrievals: Counts

    @property
    def worth(self) -> Floats:
        """Memory Worth in [0, 1], shape (P, N), eq. (1)."""
        return worth(self.positive, self.negative)

    @property
    def volume(self) -> Floats:
        """Weighted volume, the letter of Definition 3.2, shape (P, N)."""
        return (self.positive + self.negative) / UNIT

    @property
    def effective_size(self) -> Floats:
        """Retrievals that the evidence is worth, shape (P, N)."""
        return effective_size(self.size / UNIT, self.volume, self.squared / UNIT)


def checkpoints(episodes: int) -> Counts:
    """Episode numbers of the checkpoints: every 500, and the last one; int64 of shape (P,)."""
    return np.unique(np.append(np.arange(EVERY, episodes + 1, EVERY), episodes)).astype(np.int64)


def proxies(utility: Floats, uniform: Floats, normal: Floats) -> dict[str, Floats]:
    """Similarities that correlate with the utility at about .65, in three constructions.

    Args:
        utility: True utilities in [0, 1], shape (n,).
        uniform: Independent draws from U(0, 1), shape (n,).
        normal: Independent draws from N(0, 1), shape (n,).
    """
    own, other = CORRELATION, (1 - CORRELATION**2) ** 0.5
    base = own * utility + other * uniform
    return {
        "similarity": base,
        # 12**-0.5 is the deviation of U(0, 1); a cosine of 0 would take the memory out of the run.
        "similarity_normal": np.maximum(own * utility + other * 12**-0.5 * normal, 1e-3),
        "similarity_low": np.maximum(base - 0.45, 1e-3),
    }


def draw_sets(rng: np.random.Generator, episodes: int, pool: int, k: int) -> Counts:
    """Retrieve `k` of `pool` memories uniformly without replacement in every episode.

    Returns:
        Ids in [0, pool), ascending in each row, int64 of shape (episodes, k).
    """
    keys = rng.random((episodes, pool))
    # Sorted, so that no sum over a row depends on how a numpy version happens to partition.
    return np.sort(np.argpartition(keys, k - 1, axis=1)[:, :k], axis=1).astype(np.int64)


def draw_outcomes(rng: np.random.Generator, chance: Floats, noise: float = NOISE) -> Flags:
    """Draw success with probability `clip(chance + N(0, noise**2), 0, 1)` (section 5.1).

    Args:
        rng: Source of the noise and of the draw.
        chance: Success probability before noise, shape (T,).
        noise: Standard deviation, at least 0.

    Returns:
        Success, bool of shape (T,).
    """
    noisy = np.clip(chance + noise * rng.standard_normal(chance.shape), 0.0, 1.0)
    return rng.random(chance.shape) < noisy


def uniform_credits(k: int) -> Credits:
    """The credits of one episode under uniform credit, shape (1, k): every episode has the same."""
    return proportional_credits(np.ones((1, k)), rule="uniform")


def proportional_credits(
    scores: Floats, *, rule: CreditName = "similarity", w_min: float = 0.0
) -> Credits:
    """Ask `credit.settle` for the credits of every episode.

    A plain loop: 10,000 episodes take half a second, and what is measured is the shipped rule.

    Args:
        scores: Similarity of the shown memories, in the order shown, shape (T, k).
        rule: Named rule of section 3.3.
        w_min: Floor of the weights, assumption (A5); none by default, as in the paper's
            simulations.
    """
    ids = [str(i) for i in range(scores.shape[1])]
    weight, size, squared = (np.empty(scores.shape, dtype=np.int64) for _ in range(3))
    for t, row in enumerate(scores.tolist()):
        shown = [Shown(ids[i], i, s, timedelta(0)) for i, s in enumerate(row)]
        settled = [c.evidence for c in settle(shown, 1.0, rule=rule, w_min=w_min)]
        weight[t] = [e.positive for e in settled]
        size[t] = [e.size for e in settled]
        squared[t] = [e.squared for e in settled]
    return Credits(weight, size, squared)


def accumulate(
    shown: Counts,
    success: Flags,
    credits_: Credits,
    ends: Counts,
    *,
    pool: int = POOL,
    when: Counts | None = None,
) -> Counters:
    """Sum the credits of all episodes into the counters at every checkpoint.

    Args:
        shown: Ids of the memories shown, in [0, pool), int64 of shape (T, k), distinct in a row.
        success: Outcome of each episode, shape (T,).
        credits_: Credits of a success, shape (T, k) or (1, k).
        ends: Episode numbers of the checkpoints, ascending, none of an episode after the last,
            shape (P,).
        pool: N, the number of memories.
        when: Episode number of each row, from 1, shape (T,); if None, the rows are the episodes 1
            to T.
    """
    numbers = np.arange(1, len(shown) + 1) if when is None else when
    chunk = np.searchsorted(ends, numbers)
    where = (chunk[:, None], shown)

    def total(values: Counts) -> Counts:
        sums = np.zeros((len(ends), pool), dtype=np.int64)
        np.add.at(sums, where, values)  # integers: the order of addition cannot matter
        return np.cumsum(sums, axis=0)

    weight = np.broadcast_to(credits_.weight, shown.shape)
    size = np.broadcast_to(credits_.size, shown.shape)
    return Counters(
        positive=total(weight * success[:, None]),
        negative=total(weight * ~success[:, None]),
        size=total(size),
        squared=total(np.broadcast_to(credits_.squared, shown.shape)),
        retrievals=total((size > 0).astype(np.int64)),
    )


def spearman(estimate: Floats, truth: Floats) -> Floats:
    """Rank correlation with average ranks for ties, 0 where the estimate does not vary.

    The paper's "no update" is such a constant: its correlation is undefined and reported as 0.

    Args:
        estimate: Estimates, shape (..., n).
        truth: True utilities, shape (n,).

    Returns:
        Correlations in [-1, 1], shape (...).

    Raises:
        MissingExtraError: If scipy is not installed.
    """
    rankdata = optional("scipy.stats").rankdata
    ranks = rankdata(estimate, axis=-1)
    target = rankdata(truth)
    ranks = ranks - ranks.mean(axis=-1, keepdims=True)
    target = target - target.mean()
    norm = np.sqrt((ranks**2).sum(axis=-1) * (target**2).sum())
    covariance = np.asarray((ranks * target).sum(axis=-1))
    rho: Floats = np.divide(covariance, norm, out=np.zeros_like(covariance), where=norm > 0)
    return rho


def target_worth(utility: Floats, k: int = K) -> Floats:
    """p+ of every memory under uniform retrieval: the mean utility of the sets that hold it.

    `p+(m) = (U(m) + (k-1) * mean of the others) / k`; the clip to [0, 1] is left out, it acts five
    deviations away.

    Args:
        utility: True utilities in [0, 1], shape (n,).
        k: Memories per retrieval.
    """
    others = (utility.sum() - utility) / (len(utility) - 1)
    return np.asarray((utility + (k - 1) * others) / k)
