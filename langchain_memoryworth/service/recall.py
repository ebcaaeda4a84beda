"""From a query vector to the memories that are served: ranking, floor, filter, diversity, exploration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from langchain_core.documents import Document
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from numpy.typing import NDArray

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.draws import explores, holds_out
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.memories import Memories
from langchain_memoryworth.ledger.trials import Chances
from langchain_memoryworth.policy import Policy, Rank
from langchain_memoryworth.records import Arm
from langchain_memoryworth.vectors.filters import Filter, predicate
from langchain_memoryworth.vectors.index import Found
from langchain_memoryworth.vectors.space import Space


@dataclass(frozen=True, slots=True)
class Query:
    """One question to a namespace.

    Attributes:
        vector: float32, shape (d,), unit length.
        k: How many memories are wanted.
        rank: Weights of similarity, worth and recency; None means the policy's.
        filter: On metadata and text.
        min_similarity: Cosine below which nothing is served; None means the policy's.
        diversity: Lambda of maximal marginal relevance in [0, 1], 1 is pure relevance; None means off.
        fetch_k: Candidates for diversity.
        episode_id: Whose draws decide about exploration and hold-out; None means neither.
    """

    vector: NDArray[np.float32]
    k: int
    rank: Rank | None = None
    filter: Filter | None = None
    min_similarity: float | None = None
    diversity: float | None = None
    fetch_k: int = 20
    episode_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse what would only look like a question without an answer."""
        if self.min_similarity is not None:
            check_number("min_similarity", self.min_similarity, -1, 1)
        if self.diversity is not None:
            check_number("diversity (lambda_mult)", self.diversity, 0, 1)
        if not isinstance(self.fetch_k, int) or self.fetch_k < 1:
            raise InvalidInputError(
                f"fetch_k={self.fetch_k!r}; give a whole number of at least 1", value=self.fetch_k
            )


OPTIONS = tuple(f.name for f in fields(Query) if f.name not in {"vector", "k", "episode_id"})
"""What a search may be told beside its vector and k."""


class Selected(NamedTuple):
    """One memory chosen for a query; one that is held out would have been, and is not to be shown."""

    seq: int
    similarity: float
    score: float
    arm: Arm = Arm.SERVED
    propensity: float = 1.0


class Recall:
    """Answers queries on a space.

    Args:
        database: Where filters read texts and metadata.
        memories: The texts.
    """

    def __init__(self, database: Database, memories: Memories) -> None:
        self._database = database
        self._memories = memories

    def select(self, space: Space, query: Query, policy: Policy, now: float) -> list[Selected]:
        """The memories to serve, best first; k of them whenever k may be served. Those held out come on top."""
        weights = space.weights(query.rank or policy.rank, now)
        accepts = self._acceptance(query.filter)

        def best(without: Mapping[int, Selected]) -> list[Selected]:
            wanted = query.k if query.diversity is None else max(query.k, query.fetch_k)
            found = self._ranked(space, query, policy, weights, wanted + len(without), accepts)
            if without:
                found = found.take(~np.isin(found.seqs, list(without)))
            return _selected(_diverse(space, found, query).take(slice(query.k)))

        if query.episode_id is None:
            return best({})
        out: list[Selected] = []
        if space.chances is None:
            chosen = best({})
        else:
            chosen, out = _hold_out(best, space.chances, policy.seed, query.episode_id)
        if explores(policy.seed, query.episode_id, policy.exploration):
            chosen = self._explore(space, query, policy, weights, chosen, accepts)
        return [*chosen, *out]

    def held_back(
        self, space: Space, query: Query, policy: Policy, chosen: list[Selected], now: float
    ) -> list[Selected]:
        """Suppressed memories that would be among the first k."""
        weights = space.weights(query.rank or policy.rank, now)
        found = self._held(space, query, policy, weights, chosen, self._acceptance(query.filter))
        return found[: query.k]

    def _ranked(
        self,
        space: Space,
        query: Query,
        policy: Policy,
        weights: tuple[float, ...],
        wanted: int,
        accepts: Callable[[list[int]], NDArray[np.bool_]] | None,
    ) -> Found:
        floor = _floor(query, policy)
        if floor is not None:
            # All above the floor, and then by score: the best k overall may all lie below it.
            found = space.index.within(query.vector, weights, floor)
            return _head(found, accepts, wanted)
        if accepts is None:
            return space.index.search(query.vector, weights, wanted)
        fetch = 4 * wanted
        while True:
            found = space.index.search(query.vector, weights, fetch)
            exhausted = len(found.seqs) < fetch
            head = _head(found, accepts, wanted)
            if exhausted or len(head.seqs) == wanted:
                return head
            fetch *= 4

    def _acceptance(
        self, filter_: Filter | None
    ) -> Callable[[list[int]], NDArray[np.bool_]] | None:
        if filter_ is None:
            return None
        accepts = predicate(filter_)
        known: dict[int, bool] = {}

        def mask(seqs: list[int]) -> NDArray[np.bool_]:
            new = [s for s in seqs if s not in known]
            with self._database.read() as session:
                texts = self._memories.texts(session, new)
            for seq, t in texts.items():
                known[seq] = bool(
                    accepts(Document(id=t.id, page_content=t.text, metadata=dict(t.metadata)))
                )
            return np.array([known[s] for s in seqs], dtype=np.bool_)

        return mask

    def _held(
        self,
        space: Space,
        query: Query,
        policy: Policy,
        weights: tuple[float, ...],
        chosen: list[Selected],
        accepts: Callable[[list[int]], NDArray[np.bool_]] | None,
    ) -> list[Selected]:
        if not space.index.held:
            return []
        full = len(chosen) >= query.k
        above = min(c.score for c in chosen) if full else -np.inf
        found = space.index.held_back(query.vector, weights, above)
        # What was suppressed since the search would otherwise be given twice.
        found = found.take(~np.isin(found.seqs, [c.seq for c in chosen]))
        floor = _floor(query, policy)
        if floor is not None:
            found = found.take(found.similarities >= floor)
        return _selected(_head(found, accepts, query.k))

    def _explore(
        self,
        space: Space,
        query: Query,
        policy: Policy,
        weights: tuple[float, ...],
        chosen: list[Selected],
        accepts: Callable[[list[int]], NDArray[np.bool_]] | None,
    ) -> list[Selected]:
        held = self._held(space, query, policy, weights, chosen, accepts)
        if not held:
            return chosen
        best = on_probation(held[0], policy.exploration)
        return [*chosen[: query.k - 1], best]


def _hold_out(
    best: Callable[[Mapping[int, Selected]], list[Selected]],
    chances: Chances,
    seed: int,
    episode_id: str,
) -> tuple[list[Selected], list[Selected]]:
    """What is shown, and what of the best is held out; in the place of each comes the next, which is drawn about too."""
    out: dict[int, Selected] = {}
    while True:
        chosen = best(out)
        drawn = [c for c in chosen if holds_out(seed, episode_id, c.seq, chances.of(c.seq))]
        if not drawn:
            shown = [c._replace(propensity=1 - chances.of(c.seq)) for c in chosen]
            return shown, list(out.values())
        out |= {c.seq: c._replace(arm=Arm.HELD_OUT, propensity=chances.of(c.seq)) for c in drawn}


def check_number(name: str, value: Any, low: float, high: float) -> None:
    """Refuse what is no number in a range, NaN and bools among it.

    Raises:
        InvalidInputError: Naming the value and the range.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not low <= float(value) <= high:
        raise InvalidInputError(
            f"{name}={value!r}; give a number from {low:g} to {high:g}", value=value
        )


def on_probation(selected: Selected, propensity: float) -> Selected:
    """The same memory on probation."""
    return selected._replace(arm=Arm.PROBATION, propensity=propensity)


def _selected(found: Found) -> list[Selected]:
    columns = found.seqs.tolist(), found.similarities.tolist(), found.scores.tolist()
    return [Selected(*row) for row in zip(*columns, strict=True)]


def _floor(query: Query, policy: Policy) -> float | None:
    return policy.min_similarity if query.min_similarity is None else query.min_similarity


def _head(
    found: Found, accepts: Callable[[list[int]], NDArray[np.bool_]] | None, count: int
) -> Found:
    if accepts is None:
        return found.take(slice(count))
    keep = np.empty(0, np.int64)
    for start in range(0, len(found.seqs), 256):
        part = accepts(found.seqs[start : start + 256].tolist())
        keep = np.concatenate([keep, start + np.flatnonzero(part)])
        if len(keep) >= count:
            break
    return found.take(keep[:count])


def _diverse(space: Space, found: Found, query: Query) -> Found:
    if not len(found.seqs) or query.diversity is None:
        return found
    order = maximal_marginal_relevance(
        query.vector, list(space.index.vectors(found.seqs)), query.diversity, query.k
    )
    return found.take(np.array(order))
