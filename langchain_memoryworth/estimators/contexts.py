"""Contexts without labels or embeddings: which memories are retrieved together says what kind of task it is.

From the sets shown in a window of past episodes: memories that come together more often than chance are one community;
episodes that draw on the communities in the same proportions are one context. Both are refitted in batches, keep their
numbers, and tell the context of an episode from its retrieved set, before anything has happened.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.clusters import matched, numbered

SIGNIFICANT = 3.0
"""Standard deviations above chance from which a pair counts as coming together."""

_SMALLEST = 3
_ROUNDS = 30
_SMOOTHING = 0.5
_ALIKE = 0.85

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Contexts:
    """Communities of memories, and the mixtures of communities that make a context.

    Attributes:
        community: Number of each memory's community; memories not in it belong to number 0, that of no habit.
        profile: Share of each community in the sets of each context, float64 of shape (c, g).
        share: Share of the episodes of each context, shape (c,).
        ids: Number of each context, int64 of shape (c,); never used again for another one.
        next_id: The first number that was never used.
    """

    community: dict[Hashable, int]
    profile: Floats
    share: Floats
    ids: NDArray[np.int64]
    next_id: int
    _log: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_log", np.log(self.profile))

    def of(self, shown: Iterable[Hashable]) -> int:
        """The context of an episode by the set retrieved: the most probable one.

        Args:
            shown: Ids of the memories, in any order.
        """
        communities = [self.community.get(memory, 0) for memory in shown]
        score = np.log(self.share) + self._log[:, communities].sum(axis=1)
        return int(self.ids[score.argmax()])


def fit(sets: Sequence[Sequence[Hashable]], *, previous: Contexts | None = None) -> Contexts:
    """Learn the contexts of past episodes.

    Time and memory grow with the pairs in the window, `len(sets) * k**2 / 2`, not with the number of memories.

    Args:
        sets: Memories retrieved in each episode of a window, distinct in an episode; some thousands are enough.
        previous: The contexts of the last fit; their numbers are handed on by what they have in common.

    Raises:
        InvalidInputError: If there is no episode.

    References:
        Blondel et al. (2008), Fast unfolding of communities in large networks, J. Stat. Mech. P10008, on the pairs that
        beat the configuration model, Newman (2006), PNAS 103; contexts: mixture of multinomials by EM, Nigam et al.
        (2000), Machine Learning 39.

    Examples:
        >>> sets = [["a", "b", "c"], ["x", "y", "z"]] * 50
        >>> found = fit(sets)
        >>> found.of(["a", "c"]) == found.of(["b"]) != found.of(["x", "y"])
        True
    """
    if not sets:
        raise InvalidInputError("give the sets of at least one episode", value=sets)
    community = _communities(sets)
    groups = max(community.values(), default=0) + 1
    counts = np.zeros((len(sets), groups))
    for row, shown in zip(counts, sets, strict=True):
        for memory in shown:
            row[community.get(memory, 0)] += 1
    profile, share = _mixture(counts)
    ids, next_id = np.arange(len(share)), len(share)
    if previous is not None:
        ids, next_id = _handed_on(community, profile, previous)
    return Contexts(community, profile, share, ids, next_id)


# -- communities -------------------------------------------------------------------------------------------------------

Graph = list[dict[int, float]]


def _communities(sets: Sequence[Sequence[Hashable]]) -> dict[Hashable, int]:
    """Numbers from 1 for the memories of a community, the largest first; the others are left out."""
    number: dict[Hashable, int] = {}
    for shown in sets:
        for memory in shown:
            number.setdefault(memory, len(number))
    graph = _beyond_chance([[number[m] for m in shown] for shown in sets], len(number))
    label = _unfold(graph)
    members: dict[int, list[Hashable]] = {}
    for memory, place in number.items():
        if graph[place]:
            members.setdefault(label[place], []).append(memory)
    large = sorted((m for m in members.values() if len(m) >= _SMALLEST), key=len, reverse=True)
    return {memory: n for n, group in enumerate(large, start=1) for memory in group}


def _beyond_chance(sets: Sequence[Sequence[int]], memories: int) -> Graph:
    """Pairs that were shown together significantly more often than their frequencies make it likely."""
    together: dict[tuple[int, int], int] = {}
    degree = [0.0] * memories
    for shown in sets:
        ordered = sorted(shown)
        for i, first in enumerate(ordered):
            degree[first] += len(ordered) - 1
            for second in ordered[i + 1 :]:
                together[first, second] = together.get((first, second), 0) + 1
    whole = sum(degree)
    graph: Graph = [{} for _ in range(memories)]
    for (first, second), count in together.items():
        chance = degree[first] * degree[second] / whole
        excess = (count - chance) / chance**0.5
        if excess >= SIGNIFICANT:
            graph[first][second] = graph[second][first] = excess
    return graph


def _unfold(graph: Graph) -> list[int]:
    """Louvain: move nodes to the neighbouring community with the largest gain, merge, repeat."""
    label = list(range(len(graph)))
    while True:
        moved = _moved(graph)
        names = {old: new for new, old in enumerate(dict.fromkeys(moved))}
        label = [names[moved[place]] for place in label]
        if len(names) == len(graph):
            return label
        merged: Graph = [{} for _ in names]
        for node, neighbours in enumerate(graph):
            own = names[moved[node]]
            for other, weight in neighbours.items():
                far = names[moved[other]]
                merged[own][far] = merged[own].get(far, 0.0) + weight
        graph = merged


def _moved(graph: Graph) -> list[int]:
    degree = [sum(neighbours.values()) for neighbours in graph]
    whole = sum(degree) or 1.0
    label, total = list(range(len(graph))), list(degree)
    for _ in range(_ROUNDS):
        changed = False
        for node, neighbours in enumerate(graph):
            before = label[node]
            total[before] -= degree[node]
            links: dict[int, float] = {before: 0.0}
            for other, weight in neighbours.items():
                if other != node:
                    links[label[other]] = links.get(label[other], 0.0) + weight
            # The gain in modularity, but for a factor; ties go to the smaller number.
            best = min(links, key=lambda c: (degree[node] * total[c] / whole - links[c], c))
            label[node] = best
            total[best] += degree[node]
            changed |= best != before
        if not changed:
            break
    return label


# -- mixtures of communities -------------------------------------------------------------------------------------------


def _mixture(counts: Floats) -> tuple[Floats, Floats]:
    """Profiles (c, g) and shares (c,) of as many contexts as there are communities, by EM from one for each."""
    groups = counts.shape[1]
    usual = (counts.sum(axis=0) + _SMOOTHING) / (counts.sum() + _SMOOTHING * groups)
    profile = 0.5 * usual + 0.5 * np.eye(groups)
    share = np.full(groups, 1 / groups)
    for _ in range(_ROUNDS):
        score = np.log(share) + counts @ np.log(profile).T
        score -= score.max(axis=1, keepdims=True)
        belongs = np.exp(score)
        belongs /= belongs.sum(axis=1, keepdims=True)
        share = (belongs.sum(axis=0) + _SMOOTHING) / (len(counts) + _SMOOTHING * groups)
        profile = belongs.T @ counts + _SMOOTHING * usual
        profile /= profile.sum(axis=1, keepdims=True)
    return _merged(profile, share)


def _merged(profile: Floats, share: Floats) -> tuple[Floats, Floats]:
    """One context instead of two that draw on the communities alike: chance splits communities, and evidence with them."""
    while len(share) > 1:
        alike = _overlap(profile, profile)
        np.fill_diagonal(alike, -1.0)
        first, second = divmod(int(alike.argmax()), len(share))
        if alike[first, second] < _ALIKE:
            break
        both = share[[first, second]]
        profile[first] = both @ profile[[first, second]] / both.sum()
        share[first] = both.sum()
        profile, share = np.delete(profile, second, axis=0), np.delete(share, second)
    return profile, share


def _overlap(first: Floats, second: Floats) -> Floats:
    """Sum of the smaller shares of each pair of rows: 1 for equal distributions, 0 for disjoint ones."""
    return np.asarray(np.minimum(first[:, None, :], second[None, :, :]).sum(axis=2))


def _handed_on(
    community: dict[Hashable, int], profile: Floats, previous: Contexts
) -> tuple[NDArray[np.int64], int]:
    """Numbers by the overlap of old and new contexts, as distributions over the memories both know."""
    groups, old = profile.shape[1], previous.profile.shape[1]
    common = np.zeros((groups, old))
    for memory in community.keys() | previous.community.keys():
        common[community.get(memory, 0), previous.community.get(memory, 0)] += 1
    common[0, 0] += 1  # the memories in no community are not listed anywhere
    across = common / np.maximum(common.sum(axis=1, keepdims=True), 1)
    pairs = matched(_overlap(profile @ across, previous.profile), least=0.5)
    return numbered(pairs, previous.ids, len(profile), previous.next_id)
