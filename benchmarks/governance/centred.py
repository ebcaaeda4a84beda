"""The other form of the bonus: the posterior mean of worth above the base rate, with optimism, and nothing hidden."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.governance.rules import Rule
from benchmarks.governance.world import Counts, Floats, Step
from langchain_memoryworth.errors import InvalidInputError

STRENGTH = 10.0


def worth_coordinates(worth: ArrayLike, size: ArrayLike, *, strength: float) -> Floats:
    """The coordinates of memories whose bonus is the posterior mean of their worth above the base rate.

    With the prior worth `strength` retrievals at base rate b, the posterior mean minus b is `n/(n+strength) * (MW - b)`
    and its deviation about `sqrt(b (1-b) / (n+strength+1))`. Neither b nor the weights are in the coordinates.

    Args:
        worth: MW in [0, 1], shape (n,).
        size: Effective evidence sizes in retrievals, at least 0, shape (n,).
        strength: Retrievals that the prior is worth, above 0.

    Returns:
        float64 of shape (n, 3), for `worth_query`.

    Raises:
        InvalidInputError: If `strength` is not above 0.

    References:
        Beta posterior with an empirical-Bayes prior at b, Robbins (1956); optimism as in Auer, Cesa-Bianchi, Fischer
        (2002), Machine Learning 47.

    Examples:
        >>> rows = worth_coordinates([0.9, 0.5], [15.0, 0.0], strength=5.0)
        >>> (rows @ worth_query(0.2, base_rate=0.5, optimism=0.0)).round(3).tolist()
        [0.06, 0.0]
    """
    counted = np.asarray(size, dtype=np.float64)
    trust = counted / (counted + _above_zero(strength))
    spread = 1 / np.sqrt(counted + strength + 1)
    return np.stack([trust * np.asarray(worth, dtype=np.float64), trust, spread], axis=-1)


def worth_query(weight: float, *, base_rate: float, optimism: float) -> Floats:
    """The query's side of `worth_coordinates`.

    Args:
        weight: w, at least 0: the relevance that a sure success may buy.
        base_rate: b in [0, 1].
        optimism: c, at least 0: deviations in favour of the unknown.

    Returns:
        float64 of shape (3,).
    """
    deviation = (base_rate * (1 - base_rate)) ** 0.5
    return np.array([weight, -weight * base_rate, weight * optimism * deviation])


class Centred(Rule):
    """`similarity + w (posterior mean - base rate + c sd)`, one base rate for all."""

    weight, optimism = 0.3, 1.0

    def start(self) -> None:
        self.base = np.full(self.shape[0], 0.5)

    def score(self, step: Step) -> Floats:
        rows = worth_coordinates(self.worth(), self.count, strength=STRENGTH)
        query = [
            worth_query(self.weight, base_rate=base, optimism=self.optimism)
            for base in self.base.tolist()
        ]
        return np.asarray(step.similarity + np.einsum("snc,sc->sn", rows, np.array(query)))

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        super().learn(step, shown, size, reward)
        self.base += (reward - self.base) / (step.time + 2)


def centred(weight: float) -> type[Centred]:
    """The rule with another weight."""
    return type("Centred", (Centred,), {"weight": weight, "__module__": __name__})


def _above_zero(strength: float) -> float:
    if not strength > 0:
        raise InvalidInputError(f"strength must be above 0, got {strength}", value=strength)
    return strength
