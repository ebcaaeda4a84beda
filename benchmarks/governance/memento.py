"""A real log of retrievals and outcomes, replayed in order: what does each estimator say of the next outcome?

The log is `training_data.jsonl` of the repository Agent-on-the-Fly/Memento, folder `memory/` (MIT licence): past cases
retrieved for a query, and whether the query was then answered correctly. It is read from the folder that is given, and not
part of this project. Queries that retrieve themselves are left out, a case that is retrieved twice counts once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.estimators import clusters
from langchain_memoryworth.estimators.effects import effect, expected, surprise
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.experiments.text_embeddings import WordEmbeddings

CLUSTERS = 20
STRENGTH = 10.0
"""Retrievals that a prior at the base rate is worth."""

_LOWEST = 0.01

Floats = NDArray[np.float64]


class Episode(NamedTuple):
    """One query: the cases retrieved, whether it was answered correctly, and the cluster of its words."""

    cases: tuple[str, ...]
    success: bool
    cluster: int


class Score(NamedTuple):
    """How well one estimator foretold the outcomes, over all retrieved cases.

    Attributes:
        auc: Probability that a case of a success is rated above one of a failure, ties count half; .5 is chance.
        within: The same among pairs of the same query cluster.
        brier: Mean squared error of the probability, lower is better.
        log_loss: Mean negative log likelihood, lower is better.
    """

    auc: float
    within: float
    brier: float
    log_loss: float


def load(folder: Path) -> list[Episode]:
    """The episodes of the log in order. The clusters know the words of all queries, and no outcome."""
    rows: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    with (folder / "training_data.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            rows[row["query"]].append((row["case"], bool(row["truth_label"])))
    kept = {q: found for q, found in rows.items() if q not in {case for case, _ in found}}
    vectors = np.array(WordEmbeddings(list(kept)).embed_documents(list(kept)))
    numbers = clusters.fit(vectors, CLUSTERS).of(vectors)
    return [
        Episode(tuple(dict.fromkeys(case for case, _ in found)), found[0][1], int(cluster))
        for found, cluster in zip(kept.values(), numbers, strict=True)
    ]


class Estimator:
    """The base rate: what every other estimator starts from."""

    def __init__(self) -> None:
        self.successes, self.episodes = 0.5, 1.0
        self.hits: dict[str, float] = defaultdict(float)
        self.count: dict[str, float] = defaultdict(float)

    def foretell(self, episode: Episode) -> list[float]:
        """The success probability that each case stands for."""
        return [self.base()] * len(episode.cases)

    def base(self) -> float:
        return self.successes / self.episodes

    def learn(self, episode: Episode) -> None:
        """Take in the outcome."""
        self.successes += episode.success
        self.episodes += 1
        for case in episode.cases:
            self.hits[case] += episode.success
            self.count[case] += 1


class Worth(Estimator):
    """The paper's ratio."""

    def foretell(self, episode: Episode) -> list[float]:
        return [self.hits[c] / self.count[c] if self.count[c] else 0.5 for c in episode.cases]


class FlatPosterior(Estimator):
    """Beta(1, 1)."""

    def foretell(self, episode: Episode) -> list[float]:
        return [(self.hits[c] + 1) / (self.count[c] + 2) for c in episode.cases]


class Posterior(Estimator):
    """The prior at the base rate."""

    def foretell(self, episode: Episode) -> list[float]:
        prior = STRENGTH * self.base()
        return [(self.hits[c] + prior) / (self.count[c] + STRENGTH) for c in episode.cases]


class Wilson(Estimator):
    """Lower bound."""

    def foretell(self, episode: Episode) -> list[float]:
        return [_wilson(self.hits[c], self.count[c]) for c in episode.cases]


class Moving(Estimator):
    """An exponential average, from one half."""

    step = 0.1

    def start(self) -> None:
        self.value: dict[str, float] = defaultdict(lambda: 0.5)

    def __init__(self) -> None:
        super().__init__()
        self.start()

    def foretell(self, episode: Episode) -> list[float]:
        return [self.value[c] for c in episode.cases]

    def learn(self, episode: Episode) -> None:
        for case in episode.cases:
            self.value[case] += self.step * (episode.success - self.value[case])


class MemRL(Moving):
    """Q with alpha .3, as a probability (Q + 1) / 2."""

    step = 0.3


class Effects(Estimator):
    """Base rate plus the case's own effect."""

    by_cluster = False

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, int] = defaultdict(int)
        self.rates: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def context(self, episode: Episode) -> float:
        if not self.by_cluster:
            return self.base()
        successes, count = self.rates[episode.cluster]
        return (successes + STRENGTH * self.base()) / (count + STRENGTH)

    def foretell(self, episode: Episode) -> list[float]:
        base = self.context(episode)
        return [base + own for own in self._own(episode)]

    def learn(self, episode: Episode) -> None:
        met = expected(self.context(episode), self._own(episode))
        for case, expectation in zip(episode.cases, met, strict=True):
            self.sums[case] += surprise(float(episode.success), expectation)
        self.rates[episode.cluster][0] += episode.success
        self.rates[episode.cluster][1] += 1
        super().learn(episode)

    def _own(self, episode: Episode) -> list[float]:
        return [effect(self.sums[c] / UNIT, self.count[c]) for c in episode.cases]


class ContextEffects(Effects):
    """The same with the base rate of the query cluster."""

    by_cluster = True


class Additive(ContextEffects):
    """The whole model: the base of the cluster plus the effects of all cases retrieved."""

    def foretell(self, episode: Episode) -> list[float]:
        return [self.context(episode) + sum(self._own(episode))] * len(episode.cases)


ESTIMATORS: dict[str, Callable[[], Estimator]] = {
    "base rate": Estimator,
    "paper: worth": Worth,
    "Beta(1, 1) posterior": FlatPosterior,
    "posterior at the base rate": Posterior,
    "Wilson lower bound": Wilson,
    "Cognee EWMA": Moving,
    "MemRL Q": MemRL,
    "effect": Effects,
    "effect, query clusters": ContextEffects,
    "all effects, query clusters": Additive,
}


def scores(folder: Path) -> Iterator[tuple[str, Score]]:
    """Replay the log with every estimator."""
    episodes = load(folder)
    clusters_ = np.repeat([e.cluster for e in episodes], [len(e.cases) for e in episodes])
    truth = np.repeat([e.success for e in episodes], [len(e.cases) for e in episodes])
    for name, make in ESTIMATORS.items():
        estimator, said = make(), []
        for episode in episodes:
            said.extend(estimator.foretell(episode))
            estimator.learn(episode)
        yield name, score(np.array(said), truth, clusters_)


def score(said: Floats, truth: NDArray[np.bool_], strata: NDArray[np.int64]) -> Score:
    """Compare what was said, shape (e,), with what happened.

    Examples:
        >>> score(np.array([0.9, 0.6, 0.4]), np.array([True, False, False]), np.zeros(3, dtype=int)).auc
        1.0
    """
    wins, pairs = _pairs(said, truth)
    parts = np.array([_pairs(said[strata == s], truth[strata == s]) for s in np.unique(strata)])
    inner, inner_pairs = parts.sum(axis=0)
    p = np.clip(said, _LOWEST, 1 - _LOWEST)
    return Score(
        auc=wins / pairs,
        within=float(inner / inner_pairs),
        brier=float(((p - truth) ** 2).mean()),
        log_loss=float(-np.log(np.where(truth, p, 1 - p)).mean()),
    )


def _pairs(said: Floats, truth: NDArray[np.bool_]) -> tuple[float, float]:
    """Pairs of a success and a failure that are ordered rightly (ties half), and all such pairs."""
    good, bad = said[truth], np.sort(said[~truth])
    below = np.searchsorted(bad, good, "left")
    equal = np.searchsorted(bad, good, "right") - below
    return float((below + equal / 2).sum()), float(len(good) * len(bad))


def _wilson(hits: float, count: float, z: float = 1.96) -> float:
    if not count:
        return 0.0
    p = hits / count
    centre = p + z * z / (2 * count)
    half = z * (p * (1 - p) / count + (z / (2 * count)) ** 2) ** 0.5
    return float((centre - half) / (1 + z * z / count))
