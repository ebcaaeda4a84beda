"""The indexes in memory, and how they follow the database: lazily opened, one per namespace, caught up before each use."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.coordinates import TERMS, single_threaded
from langchain_memoryworth.database import Database, Session, retried
from langchain_memoryworth.evidence import UNIT
from langchain_memoryworth.graphs import Graphs
from langchain_memoryworth.index import Graph, Kind, VectorIndex
from langchain_memoryworth.memories import Change, Feed, Memories, Recount, as_feed
from langchain_memoryworth.pgvector_index import Mirror, PgVectorIndex
from langchain_memoryworth.policy import Policy, Rank
from langchain_memoryworth.records import Namespace, namespace_key
from langchain_memoryworth.standing import ChangeKind
from langchain_memoryworth.trials import Rates, Trials

logger = logging.getLogger("langchain_memoryworth")
_MOST_MOVED = 4096
"""Memories whose counters may wait for a query that ranks by them."""
TELL_EVERY = 100_000
"""Memories of a namespace after which the log says how far loading it has come; less takes no time worth telling."""


class Space:
    """One namespace in memory: its index, and the sums that the pool average needs."""

    def __init__(
        self,
        namespace: Namespace,
        dimension: int,
        kind: Kind,
        policy: Policy,
        now: float,
        mirror: Mirror | None = None,
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
        self._loaded_at = now
        self._now = now
        self._life = policy.life(namespace)
        self.rates: Rates | None = None
        self.rates_known = False
        self._ends: dict[int, float] = {}
        self._queue: list[tuple[float, int]] = []
        self._moved: dict[int, Recount] = {}
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
        self.index.apply(
            feed.seqs[~live],
            feed.seqs[live],
            feed.vectors[live],
            self._terms(feed.counters, feed.added_at)[live],
            (feed.held[live] & self.policy.suppress) | feed.waiting[live],
        )
        self._note_ends(feed.seqs[live], ends[live])
        self._add_to_pool(feed.seqs, feed.counters * live)

    def recount(self, moved: Sequence[Recount]) -> None:
        """Take over statuses of rows that are there at once, and counters when a query ranks by them."""
        if isinstance(self.index, PgVectorIndex):
            return
        suppress = self.policy.suppress
        self.index.hold({m.seq: m.waiting or (m.held and suppress) for m in moved})
        with self._lock:
            self._moved.update((m.seq, m) for m in moved)
        if len(self._moved) > _MOST_MOVED:
            self._weigh(self.index)

    def _weigh(self, index: VectorIndex) -> None:
        """Bring the coordinates of rows up to date: most queries rank by similarity alone, and would pay for it."""
        with self._lock:
            if not self._moved:
                return
            seqs = np.array(list(self._moved), dtype=np.int64)
            here = index.alive(seqs)  # not what is past its time, or has no vector here
            moved = list(self._moved.values())
            self._moved = {}
            counters = np.array([m.counters for m in moved], dtype=np.int64).T[:, here]
            added_at = np.array([m.added_at for m in moved])[here]
            index.weigh(seqs[here], self._terms(counters, added_at))
            self._add_to_pool(seqs[here], counters)

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
        if (
            not self._ends and np.isposinf(ends).all()
        ):  # as nearly always: a tenth of the time to open
            return
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
            self.index.remove(np.array(due, dtype=np.int64))

    def _terms(
        self, counters: NDArray[np.int64], added_at: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        terms = np.zeros((len(added_at), TERMS))
        terms[:, 0], terms[:, 1] = self.policy.rank_terms(*counters[:4])
        if self.policy.effect_weight:
            terms[:, 3] = self.policy.bonus(counters[4], counters[2])
        if self.policy.recency_half_life is not None:
            half_life = self.policy.recency_half_life.total_seconds()
            # 0.5**((now - added)/h) is a product of a part of the row and a part of the query.
            ages = (added_at - self._loaded_at) / half_life
            terms[:, 2] = np.exp2(np.clip(ages, -100.0, 100.0))
        return terms

    def weights(self, rank: Rank, now: float) -> tuple[float, float, float, float, float]:
        """What the query puts on the similarity and the four terms of each row."""
        similarity, worth, recency = rank
        if isinstance(self.index, VectorIndex) and (worth or self.policy.effect_weight):
            self._weigh(self.index)
        fallback = 0.0
        if worth:
            if isinstance(self.index, PgVectorIndex) and self.policy.uncertain == "pool":
                self._pool = self.index.pool()
            positive, total = self._pool
            fallback = self.policy.fallback_worth(positive / UNIT, total / UNIT)
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


class Replica:
    """All namespaces that this process has looked at."""

    def __init__(
        self,
        database: Database,
        memories: Memories,
        kind: Kind,
        graphs: Graphs,
        mirror: Mirror | None = None,
    ) -> None:
        self._database = database
        self._graphs = graphs
        self._mirror = mirror
        self._memories = memories
        self._trials = Trials(database)
        self._kind: Kind = kind
        self._spaces: dict[Namespace, Space] = {}
        self._keys: dict[str, Namespace] = {}
        with database.read() as session:  # nothing is in memory that older changes could be about
            self._cursor = memories.cursor(session)
        self._lock = threading.RLock()

    def anew(self) -> Replica:
        """The same with nothing loaded, for a child process: what another thread was changing may be half done."""
        single_threaded()
        return Replica(self._database, self._memories, self._kind, self._graphs, self._mirror)

    @retried
    def refresh(self) -> frozenset[str]:
        """Take over what this or another process has committed; the kinds of changes that are among it, or may be."""
        with self._lock, self._database.read() as session:
            changes, cursor = self._memories.changes(session, self._cursor)
            if self._memories.missed(self._cursor, changes):
                self._spaces.clear()
                self._cursor = cursor
                return frozenset(get_args(ChangeKind))  # nobody knows what was changed meanwhile
            if any(c.kind == "trial" for c in changes):
                for space in self._spaces.values():
                    space.rates_known = False
            if changes and self._mirror is not None:
                for space in self._spaces.values():
                    space.moved()
            elif changes and self._spaces:
                self._erase(changes)
                self._apply(session, changes)
            self._cursor = cursor
        return frozenset(c.kind for c in changes)

    def _erase(self, changes: Sequence[Change]) -> None:
        # A row that is only hidden would keep its vector in memory: what held an erased one is loaded anew.
        gone = {s for c in changes if c.kind == "erase" for s in range(c.low, c.high + 1)}
        for namespace, space in list(self._spaces.items()):
            if any(s in space.index for s in gone):
                del self._spaces[namespace]

    def _apply(self, session: Session, changes: Sequence[Change]) -> None:
        touched = self._memories.touched(changes)
        for ns, rows in self._memories.feed_some(session, touched).items():
            space = self._space_of(ns)
            if space is not None:
                space.apply(as_feed(rows, space.index.dimension))
        for ns, moved in self._memories.recounted(session, changes).items():
            space = self._space_of(ns)
            if space is not None:
                space.recount(moved)

    def _space_of(self, ns: str) -> Space | None:
        namespace = self._keys.get(ns)
        return None if namespace is None else self._spaces.get(namespace)

    @retried
    def space(self, namespace: Namespace, dimension: int, policy: Policy, now: float) -> Space:
        """One namespace, loaded at its first use."""
        with self._lock:
            space = self._spaces.get(namespace)
            # Another thread may have loaded it under the policy before this one.
            if space is None or space.policy is not policy or space.outdated(now):
                space = self._loaded(namespace, dimension, policy, now)
                self._spaces[namespace] = space
                self._keys[namespace_key(namespace)] = namespace
            if not space.rates_known:
                with self._database.read() as session:
                    space.rates = self._trials.rates(session, namespace, policy)
                space.rates_known = True
            space.expire(now)
            return space

    def _loaded(self, namespace: Namespace, dimension: int, policy: Policy, now: float) -> Space:
        graph = self._graphs.read(namespace, dimension)
        for start in (None,) if graph is None else (graph, None):
            space = Space(namespace, dimension, self._kind, policy, now, self._mirror)
            index = space.index
            if isinstance(index, PgVectorIndex):
                break
            # What was committed since the cursor is seen here and applied again later: the same rows.
            with self._database.read() as session:
                if start is None:
                    for feed in self._feed(session, namespace, dimension):
                        space.apply(feed)
                elif not self._resume(session, space, index, namespace, start):
                    logger.info("%s: its graph is built anew", namespace_key(namespace))
                    continue
            self._keep(namespace, index)
            break
        return space

    def _resume(
        self,
        session: Session,
        space: Space,
        index: VectorIndex,
        namespace: Namespace,
        graph: Graph,
    ) -> bool:
        """Load a namespace onto a graph of its older state; False if the two have too little in common."""
        if 2 * len(graph.seqs) < self._memories.count(session, namespace):
            return False
        if not index.take_over(graph):
            return False
        new: list[Feed] = []
        for feed in self._feed(session, namespace, index.dimension):
            known = index.known(feed.seqs)
            space.apply(feed.take(known))
            if not known.all():
                new.append(feed.take(~known))
        for rows in self._memories.feed_some(session, index.hollow().tolist()).values():
            retired = as_feed(rows, index.dimension)
            index.fill(retired.seqs, retired.vectors)
        if index.worn:
            return False
        index.disown()
        for feed in new:
            space.apply(feed)
        return True

    def _feed(self, session: Session, namespace: Namespace, dimension: int) -> Iterator[Feed]:
        total, done = self._memories.count(session, namespace), 0
        for feed in self._memories.feed(session, namespace, dimension):
            yield feed
            before, done = done, done + len(feed.seqs)
            if before // TELL_EVERY < done // TELL_EVERY:
                logger.info("%s: %d of %d memories loaded", namespace_key(namespace), done, total)

    def _keep(self, namespace: Namespace, index: VectorIndex) -> None:
        if index.has_graph and index.unsaved:
            self._graphs.keep(namespace, index.dimension, index.graph())

    def keep(self) -> None:
        """Write down the graphs that have grown, for whoever opens the store next."""
        with self._lock:
            for namespace, space in self._spaces.items():
                if isinstance(space.index, VectorIndex):
                    self._keep(namespace, space.index)

    @property
    def exact(self) -> int:
        """Searches of the indexes in memory that their graphs could not answer, see `VectorIndex`."""
        with self._lock:
            indexes = [space.index for space in self._spaces.values()]
        return sum(index.exact for index in indexes if isinstance(index, VectorIndex))

    def forget(self) -> None:
        """Drop all indexes; they are loaded again at their next use. Needed when the policy changes."""
        with self._lock:
            self._spaces.clear()
