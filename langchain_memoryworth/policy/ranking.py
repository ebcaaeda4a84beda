"""Which memories come first: similarity, worth, recency, and what each adds to success. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    Field,
    field_validator,
)

from langchain_memoryworth.estimators.bonus import effect_coordinates, effect_query
from langchain_memoryworth.estimators.evidence import UNIT, effective_size, worth
from langchain_memoryworth.policy.thresholds import Thresholds

Rank = tuple[float, float, float]
"""Weights of (similarity, worth, recency) in the ranking."""


class Ranking(Thresholds):
    """What the ranking weighs; an UNCERTAIN memory ranks by what the thresholds assume of it."""

    rank: Rank = (1.0, 0.0, 0.0)
    """Weights of similarity, worth and recency in the ranking; two numbers mean no recency (section 6)."""
    effect_weight: float = Field(default=8.0, ge=0, le=10)
    """Similarity that an effect of 1 would be worth in the ranking, on top of `rank`."""
    effect_reach: float = Field(default=0.3, gt=0, le=2)
    """The most similarity that an effect may cost a memory."""
    effect_lift: float = Field(default=0.1, ge=0, le=2)
    """The most similarity that an effect may buy. Less than it may cost: a memory that fails had better give its place to any
    other, but one that always helps is no answer to a question it is not about."""
    optimism: float = Field(default=0.0, ge=-10, le=10)
    """Standard deviations of its effect that a memory is credited with in the ranking. Above 0 new ones get their chance; below 0
    the lower bound ranks, so that what is known to help comes first."""
    uncertain: Literal["worth", "prior", "pool"] = "prior"
    """What ranks an UNCERTAIN memory: its own ratio, `prior`, or the average of its namespace (Definition 3.2)."""
    recency_half_life: timedelta | None = None
    """Age at which recency has fallen to one half; needed where recency is used."""
    min_similarity: float | None = Field(default=None, ge=-1, le=1)
    """Cosine below which nothing is served, whatever its worth."""

    @field_validator("rank", mode="before")
    @classmethod
    def _three_weights(cls, value: Any) -> Any:
        return (*value, 0.0) if isinstance(value, (tuple, list)) and len(value) == 2 else value

    @field_validator("rank")
    @classmethod
    def _usable_weights(cls, value: Rank) -> Rank:
        if not all(np.isfinite(w) and w >= 0 for w in value) or not any(value):
            raise ValueError(
                f"rank weights must be finite, not negative and not all 0, got {value}"
            )
        return value

    def with_rank(self, rank: Sequence[float]) -> Self:
        """The same policy with other ranking weights, checked like the policy's own."""
        return self.model_validate({**self.__dict__, "rank": tuple(rank)})

    def rank_terms(
        self,
        positive: NDArray[np.int64],
        negative: NDArray[np.int64],
        size: NDArray[np.int64],
        squared: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What the ranking needs of each memory, apart from the weights of a query.

        Splitting the worth in two lets the value of an UNCERTAIN memory move with the pool without touching its row.

        Args:
            positive: hits+ in units of 2**-32, int64, shape (n,).
            negative: hits-, likewise.
            size: n, likewise.
            squared: Sum of squared weights, likewise.

        Returns:
            (worth, or 0 where uncertain; 1 where the fallback of `fallback_worth` applies), float64 of shape (n,).
        """
        ratio = worth(positive, negative)
        if self.uncertain == "worth":
            return ratio, np.zeros_like(ratio)
        total = (positive + negative) / UNIT
        volume = effective_size(size / UNIT, total, squared / UNIT)
        uncertain = volume < self.v_min
        return np.where(uncertain, 0.0, ratio), uncertain.astype(np.float64)

    def bonus(self, surprise: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.float64]:
        """What `effect_weight` is put on: effect + optimism * its deviation, so an upper or a lower bound of the effect.

        Args:
            surprise: Sum of surprises in units of 2**-32, int64, shape (n,).
            size: n, likewise.

        References:
            Auer, Cesa-Bianchi, Fischer (2002), Machine Learning 47: optimism in the face of uncertainty.

        Examples:
            >>> policy = Ranking(effect_weight=1.0, optimism=1.0)
            >>> unknown_and_harmful = np.array([0, -8 * UNIT]), np.array([0, 16 * UNIT])
            >>> policy.bonus(*unknown_and_harmful).round(3).tolist()
            [0.062, -0.044]
            >>> Ranking(effect_weight=1.0, optimism=-1.0).bonus(*unknown_and_harmful).round(3).tolist()
            [-0.062, -0.156]
        """
        coordinates = effect_coordinates(
            surprise / UNIT,
            size / UNIT,
            least=-self._effect(self.effect_reach),
            most=self._effect(self.effect_lift),
        )
        weights = effect_query(1.0, optimism=self.optimism)
        return np.asarray(coordinates @ weights, dtype=np.float64)

    def _effect(self, similarity: float) -> float:
        """The effect that is worth so much similarity; what has no weight cannot be bought."""
        return similarity / self.effect_weight if self.effect_weight else 1.0

    def fallback_worth(self, positive: float, total: float) -> float:
        """The worth that stands in for UNCERTAIN memories.

        Args:
            positive: hits+ of the namespace, all memories.
            total: hits+ + hits- of the namespace, same unit.
        """
        if self.uncertain == "pool" and total > 0:
            return positive / total
        if isinstance(self.prior, float):
            return self.prior
        return self.beta[0] / sum(self.beta)
