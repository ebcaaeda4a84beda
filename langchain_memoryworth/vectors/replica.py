"""The indexes in memory, and how they follow the database: lazily opened, one per namespace, caught up before each use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

from langchain_memoryworth.ledger import feed, priors
from langchain_memoryworth.ledger.database import Database, retried
from langchain_memoryworth.ledger.feed import Change, Feed, as_feed
from langchain_memoryworth.ledger.session import Session
from langchain_memoryworth.ledger.trials import Trials
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Namespace, namespace_key
from langchain_memoryworth.vectors.coordinates import single_threaded
from langchain_memoryworth.vectors.graphs import Graphs
from langchain_memoryworth.vectors.index import Graph, Kind, VectorIndex
from langchain_memoryworth.vectors.pgvector_index import Mirror, PgVectorIndex
from langchain_memoryworth.vectors.space import Space

logger = logging.getLogger("langchain_memoryworth")
TELL_EVERY = 100_000
"""Memories of a namespace after which the log says how far loading it has come; less takes no time worth telling."""


class Replica:
    """All namespaces that this process has looked at."""

    def __init__(
        self,
        database: Database,
        kind: Kind,
        graphs: Graphs,
        mirror: Mirror | None = None,
    ) -> None:
        self._database = database
        self._graphs = graphs
        self._mirror = mirror
        self._trials = Trials(database)
        self._kind: Kind = kind
        self._spaces: dict[Namespace, Space] = {}
        self._keys: dict[str, Namespace] = {}
        with database.read() as session:  # nothing is in memory that older changes could be about
            self._cursor = feed.cursor(session)
        self._lock = threading.RLock()

    def anew(self) -> Replica:
        """The same with nothing loaded, for a child process: what another thread was changing may be half done."""
        single_threaded()
        return Replica(self._database, self._kind, self._graphs, self._mirror)

    @retried
    def refresh(self) -> bool:
        """Take over what this or another process has committed; True if the policy is among it, or may be."""
        with self._lock, self._database.read() as session:
            changes, cursor = feed.changes(session, self._cursor)
            if feed.missed(self._cursor, changes):
                self._spaces.clear()
                self._cursor = cursor
                return True  # also the policy may have been changed meanwhile
            if any(c.kind == "trial" for c in changes):
                for space in self._spaces.values():
                    space.chances_known = False
            if changes and self._mirror is not None:
                for space in self._spaces.values():
                    space.moved()
            elif changes and self._spaces:
                self._erase(changes)
                self._apply(session, changes)
            self._cursor = cursor
        return any(c.kind == "policy" for c in changes)

    def _erase(self, changes: Sequence[Change]) -> None:
        # A row that is only hidden would keep its vector in memory: what held an erased one is loaded anew.
        gone = {s for c in changes if c.kind == "erase" for s in range(c.low, c.high + 1)}
        for namespace, space in list(self._spaces.items()):
            if any(s in space.index for s in gone):
                del self._spaces[namespace]

    def _apply(self, session: Session, changes: Sequence[Change]) -> None:
        touched = feed.touched(changes)
        for ns, rows in feed.some(session, touched).items():
            space = self._space_of(ns)
            if space is not None:
                space.apply(as_feed(rows, space.index.dimension))
        for ns, moved in feed.recounted(session, changes).items():
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
            if not space.chances_known:
                with self._database.read() as session:
                    space.chances = self._trials.chances(session, namespace, policy)
                space.chances_known = True
            space.expire(now)
            return space

    def _loaded(self, namespace: Namespace, dimension: int, policy: Policy, now: float) -> Space:
        graph = self._graphs.read(namespace, dimension)
        with self._database.read() as session:
            judge = priors.informed(session, policy, namespace_key(namespace))
        for start in (None,) if graph is None else (graph, None):
            space = Space(namespace, dimension, self._kind, policy, now, self._mirror, judge)
            index = space.index
            if isinstance(index, PgVectorIndex):
                break
            # What was committed since the cursor is seen here and applied again later: the same rows.
            with self._database.read() as session:
                if start is None:
                    index.reserve(feed.count(session, namespace))
                    for part in self._feed(session, namespace, dimension):
                        space.apply(part)
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
        if 2 * len(graph.seqs) < feed.count(session, namespace):
            return False
        if not index.take_over(graph):
            return False
        new: list[Feed] = []
        for part in self._feed(session, namespace, index.dimension):
            known = index.known(part.seqs)
            space.apply(part.take(known))
            if not known.all():
                new.append(part.take(~known))
        for rows in feed.some(session, index.hollow().tolist()).values():
            retired = as_feed(rows, index.dimension)
            index.fill(retired.seqs, retired.vectors)
        if index.worn:
            return False
        index.disown()
        for part in new:
            space.apply(part)
        return True

    def _feed(self, session: Session, namespace: Namespace, dimension: int) -> Iterator[Feed]:
        total, done = feed.count(session, namespace), 0
        for part in feed.whole(session, namespace, dimension):
            yield part
            before, done = done, done + len(part.seqs)
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
