"""Contexts from query embeddings: spherical k-means (FAISS's) whose cluster numbers survive a refit.

An episode's context is the cluster of its query, or of the sum of its session's queries so far. Either is known when memories
are retrieved, so evidence can be kept by context from the first outcome on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError

_faiss: Any = faiss  # its own type hints know neither the numpy arguments nor half of the classes

ROUNDS = 25
"""Rounds of Lloyd's algorithm."""

Vectors = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Clusters:
    """Centres of queries, and the numbers they are known by.

    Attributes:
        centres: Rows of unit length, float64 of shape (c, d).
        ids: Number of each, int64 of shape (c,); a number is never used again for another cluster.
        next_id: The first number that was never used.
    """

    centres: Vectors
    ids: NDArray[np.int64]
    next_id: int

    def of(self, queries: ArrayLike) -> NDArray[np.int64]:
        """The number of the nearest cluster of each query.

        Args:
            queries: Any length but 0, shape (q, d).

        Returns:
            int64 of shape (q,).
        """
        return np.asarray(self.ids[(_unit(queries) @ self.centres.T).argmax(axis=1)])


def fit(
    queries: ArrayLike, count: int, *, previous: Clusters | None = None, seed: int = 0
) -> Clusters:
    """Cluster queries by cosine.

    A refit starts at the old centres and hands their numbers on: pairs of old and new centres are matched greedily by
    cosine, nearest first, and a new centre without a partner, or with one at less than .5, gets a number of its own.

    Args:
        queries: Any length but 0, shape (q, d).
        count: Clusters wanted; at most as many as there are distinct queries are made.
        previous: The clusters of the last fit.
        seed: Of the first centres.

    Raises:
        InvalidInputError: If there is no query, one is not finite or 0, or `count` is below 1.

    References:
        Dhillon and Modha (2001), Concept decompositions, Machine Learning 42; first centres: Arthur and Vassilvitskii
        (2007), k-means++, in its greedy form, which FAISS has not: its draws leave two topics in one cluster more often.

    Examples:
        >>> queries = [[1, 0], [1, 0.1], [0, 1], [0.1, 1]]
        >>> first = fit(queries, 2)
        >>> (first.of(queries) == fit(queries[::-1], 2, previous=first).of(queries)).all()
        np.True_
    """
    if count < 1:
        raise InvalidInputError(f"count must be at least 1, got {count}", value=count)
    points = _unit(queries).astype(np.float32)
    count = min(count, len(np.unique(points, axis=0)))
    known = points[:0] if previous is None else previous.centres[:count].astype(np.float32)
    first = _first_centres(points, count, known, np.random.default_rng(seed))
    kmeans = _faiss.Kmeans(
        points.shape[1],
        len(first),
        spherical=True,
        niter=ROUNDS,
        seed=seed,
        min_points_per_centroid=1,  # with fewer than 39 FAISS prints a warning,
        max_points_per_centroid=len(points),  # and of more than 256 it takes a sample
    )
    kmeans.train(points, init_centroids=first)
    centres = kmeans.centroids.astype(np.float64)
    if previous is None:
        return Clusters(centres, np.arange(len(centres)), len(centres))
    pairs = matched(centres @ previous.centres.T, least=0.5)
    return Clusters(centres, *numbered(pairs, previous.ids, len(centres), previous.next_id))


def matched(similarity: ArrayLike, *, least: float) -> list[tuple[int, int]]:
    """Pair rows with columns greedily, most alike first.

    Args:
        similarity: shape (rows, columns).
        least: Pairs below it are not made.

    Returns:
        (row, column) pairs, each row and column at most once.

    Examples:
        >>> matched([[0.9, 0.8], [0.85, 0.1]], least=0.5)
        [(0, 0)]
    """
    table = np.array(similarity, dtype=np.float64)
    pairs: list[tuple[int, int]] = []
    while table.size:
        row, column = divmod(int(table.argmax()), table.shape[1])
        if not table[row, column] >= least:
            break
        pairs.append((row, column))
        table[row, :] = table[:, column] = -np.inf
    return pairs


def numbered(
    pairs: Sequence[tuple[int, int]], old: ArrayLike, count: int, next_id: int
) -> tuple[NDArray[np.int64], int]:
    """Hand old numbers on to `count` new things by (new, old) pairs; those without a partner get fresh ones."""
    ids = np.full(count, -1, dtype=np.int64)
    for new, partner in pairs:
        ids[new] = np.asarray(old)[partner]
    fresh = np.flatnonzero(ids < 0)
    ids[fresh] = next_id + np.arange(len(fresh))
    return ids, next_id + len(fresh)


def _first_centres(
    points: NDArray[np.float32], count: int, known: NDArray[np.float32], rng: np.random.Generator
) -> NDArray[np.float32]:
    chosen = [*known] if len(known) else [points[rng.integers(len(points))]]
    distance = 1 - (points @ np.array(chosen).T).max(axis=1).astype(np.float64)
    while len(chosen) < count and (distance > 1e-6).any():  # float32
        chance = np.maximum(distance, 0.0)
        # The best of several candidates.
        tried = rng.choice(len(points), size=2 + int(np.log(count)), p=chance / chance.sum())
        left = np.minimum(distance[:, None], 1 - points @ points[tried].T)
        best = int(left.sum(axis=0).argmin())
        chosen.append(points[tried[best]])
        distance = left[:, best]
    return np.array(chosen)


def _unit(rows: ArrayLike) -> Vectors:
    array = np.atleast_2d(np.asarray(rows, dtype=np.float64))
    length = np.linalg.norm(array, axis=1, keepdims=True)
    if not array.size or not np.isfinite(array).all() or not length.all():
        raise InvalidInputError("queries must be there, finite and not 0", value=rows)
    return np.asarray(array / length)
