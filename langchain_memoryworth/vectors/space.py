"""One namespace in memory: rows of the database become rows of an index, and leave it when their time is over."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.ledger.feed import Feed, Recount
from langchain_memoryworth.ledger.trials import Chances
from langchain_memoryworth.policy import Policy, Rank
from langchain_memoryworth.records import Namespace
from langchain_memoryworth.vectors.coordinates import TERMS
from langchain_memoryworth.vectors.index import Kind, VectorIndex
from langchain_memoryworth.vectors.pgvector_index import Mirror, PgVectorIndex

_MOST_MOVED = 4096
"""Memories whose counters may wait for a query that ranks by them."""
_EFFECT = 3
"""The term of the effect."""


class Space:
    """One namespace in memory: its index, and the sums that the pool average needs.

    Args:
        namespace: Which.
        dimension: Of its vectors.
        kind: Of the index.
        policy: The policy in force.
        now: Unix time in seconds.
        mirror: Where the vectors are, if the database itself searches them.
        judge: The policy as it judges in this namespace, see `priors.informed`; None means as it is.
    """

    def __init__(
        self,
        namespace: Namespace,
        dimension: int,
        kind: Kind,
        policy: Policy,
        now: float,
        mirror: Mirror | None = None,
        judge: Policy | None = None,
    ) -> None:
        self.index: VectorIndex | PgVectorIndex
        if mirror is None:
            self.index = VectorIndex(dimension, kind)
        else:
            self.index = PgVectorIndex(
                mirror.database,
                mirror.place(),
                namespace,
                dimension,
                policy,
                self._terms,
                lambda: self._now,
            )
        self.policy = policy
        self._judge = judge or policy
        self._loaded_at = now
        self._now = now
        self._life = policy.life(namespace)
        self.chances: Chances | None = None
        self.chances_known = False
        self._ends: dict[int, float] = {}
        self._queue: list[tuple[float, int]] = []
        self._moved: dict[int, Recount] = {}
        self._shifted: dict[int, Recount] = {}  # those of them whose effect waits too
        self._lock = threading.Lock()
        self._hits: dict[int, tuple[int, int]] = {}
        self._pool = (0, 0)

    def apply(self, feed: Feed) -> None:
        """Take rows over, whatever the index held of them before."""
        if isinstance(self.index, PgVectorIndex):
            return  # it reads them where they are
        self._weigh(self.index)  # older than what comes now
        ends = self._ends_of(feed)
        live = feed.live & (ends > self._now)
        rows = feed.take(live)
        held = (rows.held & self.policy.suppress) | rows.waiting
        terms = self._terms(rows.counters, rows.added_at)
        self.index.apply(feed.seqs[~live], rows.seqs, rows.vectors, terms, held)
        self._note_ends(rows.seqs, ends[live])
        self._add_to_pool(feed.seqs, feed.counters * live)

    def recount(self, moved: Sequence[Recount]) -> None:
        """Take over statuses of rows that are there at once, and counters when a query ranks by them."""
        if isinstance(self.index, PgVectorIndex):
            return
        suppress = self.policy.suppress
        self.index.hold({m.seq: m.waiting or (m.held and suppress) for m in moved})
        with self._lock:
            new = {m.seq: m for m in moved}
            self._moved |= new
            self._shifted |= new
        if len(self._moved) > _MOST_MOVED:
            self._weigh(self.index)

    def _weigh(self, index: VectorIndex) -> None:
        """Bring the coordinates of rows up to date."""
        with self._lock:
            if not self._moved:
                return
            seqs = np.array(list(self._moved), dtype=np.int64)
            here = index.alive(seqs)  # not what is past its time, or has no vector here
            moved = list(self._moved.values())
            self._moved, self._shifted = {}, {}
            counters = np.array([m.counters for m in moved], dtype=np.int64).T[:, here]
            added_at = np.array([m.added_at for m in moved])[here]
            index.weigh(seqs[here], self._terms(counters, added_at))
            self._add_to_pool(seqs[here], counters)

    def _shift(self, index: VectorIndex) -> None:
        """Bring the coordinate of the effect up to date: few queries rank by worth, and the others would pay for it."""
        with self._lock:
            if not self._shifted:
                return
            seqs = np.array(list(self._shifted), dtype=np.int64)
            here = index.alive(seqs)
            rows = [(m.counters[4], m.counters[2]) for m in self._shifted.values()]
            self._shifted = {}
            surprise, size = np.array(rows, dtype=np.int64)[here].T
            index.weigh(seqs[here], self.policy.bonus(surprise, size)[:, None], first=_EFFECT)

    def _add_to_pool(self, seqs: NDArray[np.int64], counters: NDArray[np.int64]) -> None:
        if self.policy.uncertain != "pool":
            return
        hits, total = self._pool
        for seq, p, n in zip(seqs.tolist(), *counters[:2].tolist(), strict=True):
            before = self._hits.get(seq, (0, 0))
            self._hits[seq] = now = (p, p + n)
            hits, total = hits + now[0] - before[0], total + now[1] - before[1]
        self._pool = hits, total  # at once: searches read it without a lock

    def moved(self) -> None:
        """Memories of the database have changed, and are read where they are."""
        if isinstance(self.index, PgVectorIndex):
            self.index.changed()

    def _ends_of(self, feed: Feed) -> NDArray[np.float64]:
        if self._life is None:
            return feed.expires_at
        return np.minimum(feed.expires_at, feed.written_at + self._life.total_seconds())

    def _note_ends(self, seqs: NDArray[np.int64], ends: NDArray[np.float64]) -> None:
        if not self._ends and np.isposinf(ends).all():
            return  # as nearly always: a tenth of the time to open
        for seq, end in zip(seqs.tolist(), ends.tolist(), strict=True):
            if end < np.inf:
                if self._ends.get(seq) != end:
                    self._ends[seq] = end
                    heapq.heappush(self._queue, (end, seq))
            else:
                self._ends.pop(seq, None)

    def expire(self, now: float) -> None:
        """Take out what is past its time; as every search begins with it, nothing else has to sweep."""
        self._now, due = now, []
        while self._queue and self._queue[0][0] <= now:
            end, seq = heapq.heappop(self._queue)
            if self._ends.get(seq) == end:  # not if it was stored anew meanwhile
                del self._ends[seq]
                due.append(seq)
        if due and isinstance(self.index, VectorIndex):
            gone = np.array(due, dtype=np.int64)
            self.index.remove(gone)
            self._add_to_pool(gone, np.zeros((2, len(gone)), np.int64))

    def _terms(
        self, counters: NDArray[np.int64], added_at: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        terms = np.zeros((len(added_at), TERMS))
        terms[:, 0], terms[:, 1] = self.policy.rank_terms(*counters[:4])
        if self.policy.effect_weight:
            terms[:, _EFFECT] = self.policy.bonus(counters[4], counters[2])
        if self.policy.recency_half_life is not None:
            half_life = self.policy.recency_half_life.total_seconds()
            # 0.5**((now - added)/h) is a product of a part of the row and a part of the query.
            ages = (added_at - self._loaded_at) / half_life
            terms[:, 2] = np.exp2(np.clip(ages, -100.0, 100.0))
        return terms

    def weights(self, rank: Rank, now: float) -> tuple[float, float, float, float, float]:
        """What the query puts on the similarity and the four terms of each row."""
        similarity, worth, recency = rank
        if isinstance(self.index, VectorIndex):
            if worth:
                self._weigh(self.index)
            elif self.policy.effect_weight:
                self._shift(self.index)
        fallback = 0.0
        if worth:
            if isinstance(self.index, PgVectorIndex) and self.policy.uncertain == "pool":
                self._pool = self.index.pool()
            positive, total = self._pool
            fallback = self._judge.fallback_worth(positive / UNIT, total / UNIT)
        decay = 1.0
        if self.policy.recency_half_life is not None:
            decay = float(0.5 ** (self._half_lives(now)))
        return similarity, worth, worth * fallback, recency * decay, self.policy.effect_weight

    def outdated(self, now: float) -> bool:
        """Whether it is better loaded anew: recency out of range, or most rows dead."""
        index = self.index
        late = self._half_lives(now) > index.doublings
        return late or index.gone > max(1000, len(index))

    def _half_lives(self, now: float) -> float:
        if self.policy.recency_half_life is None:
            return 0.0
        return (now - self._loaded_at) / self.policy.recency_half_life.total_seconds()
