"""Vector search on FAISS: vectors in, nearest memories out. A cache; it can always be rebuilt from the database.

Which row is whose, which are held back or gone, and how a search gets k visible ones; how rows lie in FAISS is in
`coordinates`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.vectors.columns import Column
from langchain_memoryworth.vectors.coordinates import BELOW_ALL, Coordinates, Floats, Rows
from langchain_memoryworth.vectors.places import Places

Kind = Literal["flat", "hnsw", "flat-fp16", "hnsw-fp16", "pgvector"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_ACTIVE, _HELD, _GONE = 0, 1, 2
_EF_SEARCH, _MOST_EF_SEARCH, _ROWS_PER_EF = 128, 640, 5_000
"""Nodes that a walk keeps in view: a large graph needs more of them to lead as near."""
_MOSTLY = 0.75
"""Share of hidden rows up to which a scan of all takes no longer than one that looks at each whether it is hidden."""
_WIDEST = 4096
"""Nodes of the graph beyond which looking at every row is not much slower, and never wrong."""


class Found(NamedTuple):
    """The answer to a query, best first.

    Attributes:
        seqs: Numbers of the memories, int64, shape (m,), m <= k.
        scores: Ranking score, float32, shape (m,), higher first.
        similarities: Cosine in [-1, 1], float32, shape (m,).
    """

    seqs: NDArray[np.int64]
    scores: Floats
    similarities: Floats

    def take(self, which: NDArray[np.integer] | NDArray[np.bool_] | slice) -> Found:
        """Some of the answers."""
        return Found(self.seqs[which], self.scores[which], self.similarities[which])


class Graph(NamedTuple):
    """The graph of an index, without any vector.

    Attributes:
        seqs: The memories that its nodes stand for, int64, shape (n,).
        marks: Check sums of the vectors by which they were linked, uint64, shape (n,).
        links: As FAISS writes them.
    """

    seqs: NDArray[np.int64]
    marks: NDArray[np.uint64]
    links: NDArray[np.uint8]


class VectorIndex:
    """The memories of one namespace.

    `flat` is exact. `hnsw` is approximate and faster from some ten thousands on. Where so many rows around a query are hidden
    that the graph would lose its way, it looks at every row, and `exact` counts these searches. With `-fp16` vectors and
    terms are rounded to float16: half the memory, and similarities that are off by less than 0.001.

    Args:
        dimension: Of the vectors.
        kind: The FAISS index to use.

    Examples:
        >>> from langchain_memoryworth.vectors.coordinates import TERMS
        >>> index = VectorIndex(2)
        >>> index.upsert(np.array([7]), np.array([[1, 0]], np.float32), np.zeros((1, TERMS)), np.array([False]))
        >>> found = index.search(np.array([0.6, 0.8], np.float32), [1, 0, 0, 0, 0], 5)
        >>> found.seqs.tolist(), float(found.similarities[0].round(3))
        ([7], 0.6000000238418579)
    """

    def __init__(self, dimension: int, kind: Kind = "flat") -> None:
        self.dimension = dimension
        self.kind = kind
        self._at = Coordinates(
            dimension, half=kind.endswith("-fp16"), graph=kind.startswith("hnsw")
        )
        self.exact = 0  # searches that looked at every row although there is a graph
        self._places = Places()
        self._state = Column(np.empty(0, np.int8))
        self._gone = 0
        # Of a graph alone: what each row is now, and what it was when it was linked.
        self._marks = Column(np.empty(0, np.uint64))
        self._linked = Column(np.empty(0, np.uint64))
        self._astray = 0
        self._unsaved = 0
        # FAISS gives wrong answers, without an error, when a row is added during a search.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._state) - self._gone

    def __contains__(self, seq: int) -> bool:
        return bool(self.known(np.array([seq]))[0])

    @property
    def held(self) -> int:
        """How many rows are held back."""
        return int(np.count_nonzero(self._state.values == _HELD))

    @property
    def gone(self) -> int:
        """How many rows are dead and only take space."""
        return self._gone

    @property
    def has_graph(self) -> bool:
        """Whether it is approximate."""
        return self._at.graph

    @property
    def doublings(self) -> int:
        """How often a term may double before there is no room for it."""
        return 15 if self._at.half else 64

    # -- writing ----------------------------------------------------------------------------------------------

    def reserve(self, count: int) -> None:
        """Make room for so many rows at once; only on an empty index."""
        with self._lock:
            self._at.reserve(count)

    def apply(
        self,
        gone: NDArray[np.int64],
        seqs: NDArray[np.int64],
        vectors: Floats,
        terms: NDArray[np.floating],
        held: NDArray[np.bool_],
    ) -> None:
        """`remove` and `upsert` as one: no search sees a replaced text go before the new one has come."""
        with self._lock:
            self.remove(gone)
            self.upsert(seqs, vectors, terms, held)

    def upsert(
        self,
        seqs: NDArray[np.int64],
        vectors: Floats,
        terms: NDArray[np.floating],
        held: NDArray[np.bool_],
    ) -> None:
        """Add rows, or overwrite those that are there.

        Args:
            seqs: int64, shape (n,), distinct.
            vectors: float32, shape (n, dimension), rows of unit length.
            terms: Shape (n, TERMS).
            held: Shape (n,); True hides the row from `search`.
        """
        with self._lock:
            known = self.known(seqs)
            if not known.all():
                new = _places(~known)
                self._append(seqs[new], vectors[new], terms[new])
            if known.any():
                old = _places(known)
                rows = self._rows(seqs[old])
                self._overwrite(rows, vectors[old])
                self._at.set_terms(rows, terms[old])
            self._set_state(self._rows(seqs), held)

    def weigh(
        self, seqs: NDArray[np.int64], terms: NDArray[np.floating], *, first: int = 0
    ) -> None:
        """Set the coordinates of rows that are there, gone or not: all terms as in `upsert`, or some from a `first` on."""
        with self._lock:
            self._at.set_terms(self._rows(seqs), terms, first)

    def hold(self, held: Mapping[int, bool]) -> None:
        """Hide rows from `search`, or show them; those that are not there, or gone, stay so."""
        with self._lock:
            rows = self._places.find(np.array(list(held), np.int64))
            flags = np.array(list(held.values()), np.bool_)
            turned = self._states(rows) == np.where(flags, _ACTIVE, _HELD)
            if turned.any():
                self._set_state(rows[turned], flags[turned])

    def alive(self, seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows are there and not removed."""
        there: NDArray[np.bool_] = self._states(self._places.find(seqs)) != _GONE
        return there

    def remove(self, seqs: NDArray[np.int64]) -> None:
        """Hide rows for good; unknown ones are ignored."""
        with self._lock:
            rows = self._places.find(seqs)
            rows = rows[rows >= 0]
            self._gone += int(np.count_nonzero(self._state.values[rows] != _GONE))
            self._state.values[rows] = _GONE
            self._at.hide(rows, np.ones(len(rows), np.bool_))

    def _append(
        self, seqs: NDArray[np.int64], vectors: Floats, terms: NDArray[np.floating]
    ) -> None:
        self._at.append(vectors, terms)
        self._state.append(np.zeros(len(seqs), np.int8))
        if self.has_graph:
            marks = _marks(vectors)
            self._marks.append(marks)
            self._linked.append(marks)
            self._unsaved += len(seqs)
        self._places.append(seqs)  # last: what finds a row there finds all of it

    def _overwrite(self, rows: Rows, vectors: Floats) -> None:
        self._at.set_vectors(rows, vectors)
        if self.has_graph:
            before = self._lost(rows)
            self._marks.values[rows] = _marks(vectors)
            self._astray += self._lost(rows) - before

    def _lost(self, rows: Rows) -> int:
        marks = self._marks.values[rows]
        return int(np.count_nonzero((marks == 0) | (marks != self._linked.values[rows])))

    def _states(self, rows: Rows) -> NDArray[np.int8]:
        """Of rows, gone where there is none."""
        states = np.full(len(rows), _GONE, np.int8)
        here = rows >= 0
        states[here] = self._state.values[rows[here]]
        return states

    def _set_state(self, rows: Rows, held: NDArray[np.bool_]) -> None:
        if self._gone:
            self._gone -= int(np.count_nonzero(self._state.values[rows] == _GONE))
        self._state.values[rows] = np.where(held, _HELD, _ACTIVE)
        self._at.hide(rows, held)

    def _rows(self, seqs: NDArray[np.int64]) -> Rows:
        rows = self._places.find(seqs)
        if (rows < 0).any():
            raise KeyError(seqs[rows < 0].tolist())
        return rows

    # -- the graph --------------------------------------------------------------------------------------------

    @property
    def worn(self) -> bool:
        """Whether the graph had better be built anew: over a tenth of it leads nowhere, or half of it is gone."""
        n = len(self._places)
        return self.has_graph and (10 * self._astray > n or 2 * self._gone > n)

    @property
    def unsaved(self) -> bool:
        """Whether over a hundredth of the graph was linked since it was last read or kept."""
        return 100 * self._unsaved > len(self._places)

    def graph(self) -> Graph:
        """What `take_over` of another process needs. It holds no vector, so nothing of what may be erased."""
        with self._lock:
            self._unsaved = 0
            return Graph(self._places.seqs, self._linked.values.copy(), self._at.links())

    def take_over(self, graph: Graph) -> bool:
        """Begin with the nodes of a graph, all of them gone until they are given by `upsert` or `fill`.

        What is not a node must not come before all nodes are there: it would be linked by vectors of zeros.

        Args:
            graph: Of an index of this kind; this one is empty.

        Returns:
            False, and nothing is changed, if the graph does not fit.
        """
        n = len(graph.seqs)
        with self._lock:
            if len(graph.marks) != n or not self._at.link(graph.links, n):
                return False
            self._places.append(graph.seqs)
            self._linked = Column(graph.marks)
            self._state = Column(np.full(n, _GONE, np.int8))
            self._marks = Column(np.zeros(n, np.uint64))
            self._gone = self._astray = n
            self._at.hide(slice(None), np.ones(n, np.bool_))
            return True

    def known(self, seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which memories have a row, gone or not."""
        there: NDArray[np.bool_] = self._places.find(seqs) >= 0
        return there

    def hollow(self) -> NDArray[np.int64]:
        """The memories whose nodes have had no vector yet."""
        seqs: NDArray[np.int64] = self._places.seqs[self._marks.values == 0]
        return seqs

    def fill(self, seqs: NDArray[np.int64], vectors: Floats) -> None:
        """Give gone rows their vectors, which lead to others."""
        with self._lock:
            self._overwrite(self._rows(seqs), vectors)

    def disown(self) -> None:
        """Forget the check sums of vectors that are no longer to be had, in what is kept too."""
        with self._lock:
            lost = (self._marks.values == 0) & (self._linked.values != 0)
            if lost.any():
                self._linked.values[lost] = 0
                self._unsaved = len(self._places)

    # -- searching --------------------------------------------------------------------------------------------

    def search(self, query: Floats, weights: Sequence[float], k: int) -> Found:
        """The k best visible rows by `weights[0] * similarity + weights[1:] . terms`.

        Args:
            query: float32, shape (dimension,), unit length.
            weights: Of the similarity and of the TERMS coordinates.
            k: At least 1. Fewer come back only if fewer are visible.
        """
        with self._lock:
            k = min(k, len(self._places))
            if not k:
                return _nothing()
            scores, rows = self._nearest(query, weights, k)
            # They are sorted, so one look at the last tells whether all are there and visible.
            if rows[-1] < 0 or scores[-1] < BELOW_ALL:
                keep = (rows >= 0) & (scores > BELOW_ALL)
                scores, rows = scores[keep], rows[keep]
            return self._found(rows, scores, query)

    def within(self, query: Floats, weights: Sequence[float], floor: float) -> Found:
        """All visible rows whose similarity is at least `floor`, best by score first."""
        with self._lock:
            if not len(self._places):
                return _nothing()
            similarities = self._at.similarities(query)
            rows = np.flatnonzero((self._state.values == _ACTIVE) & (similarities >= floor))
            return self._ranked(rows, query, weights)

    def held_back(self, query: Floats, weights: Sequence[float], above: float) -> Found:
        """Hidden rows that would score above a value, best first: those that a query would else have got."""
        with self._lock:
            rows = np.flatnonzero(self._state.values == _HELD)
            found = self._ranked(rows, query, weights)
            count = int(np.count_nonzero(found.scores > above))
            return found.take(slice(count))

    def vectors(self, seqs: NDArray[np.int64]) -> Floats:
        """The vectors of rows, a copy, float32, shape (n, dimension)."""
        with self._lock:
            return self._at.vectors(self._rows(seqs))

    def _nearest(self, query: Floats, weights: Sequence[float], k: int) -> tuple[Floats, Rows]:
        if not self.has_graph:
            return self._at.scan(query, weights, k)
        full = self._at.weighted(query, weights, np.zeros(self._at.width, np.float32))
        hidden = np.count_nonzero(self._state.values)  # an active row is 0
        narrow = max(_EF_SEARCH, min(_MOST_EF_SEARCH, len(self._state) // _ROWS_PER_EF))
        narrow = max(narrow, 2 * k)
        if not hidden:
            return self._at.walk(full, k, narrow)
        visible = len(self._state) - int(hidden)
        wanted = min(k, visible)
        if not wanted:
            return np.full(1, -np.inf, np.float32), np.full(1, -1, np.int64)
        # Where what is hidden lies anywhere, half of this has as many visible ones as are wanted, and half as many again.
        width = max(narrow, 3 * wanted * len(self._state) // visible)
        # A graph that is told to leave rows out stops early where they are many: with nine in ten of a topic hidden it
        # finds a third of what it should. Walked as it is, its first half is as good as ever; what is hidden is dropped then.
        while width <= max(narrow, min(_WIDEST, len(self._state) // 16)):
            scores, rows = self._at.walk(full, width, width)
            shown = np.flatnonzero((rows >= 0) & (self._state.values[rows] == _ACTIVE))
            if len(shown) >= wanted and shown[wanted - 1] < width // 2:
                return scores[shown[:k]], rows[shown[:k]]
            width *= 4
        self.exact += 1
        if hidden > _MOSTLY * len(self._state):
            return self._at.scan_some(full, k, self._state.values == _ACTIVE)
        return self._at.scan(query, weights, k)

    def _ranked(self, rows: Rows, query: Floats, weights: Sequence[float]) -> Found:
        scores = self._at.scores(rows, query, weights)
        order = np.argsort(-scores, kind="stable")
        return self._found(rows[order], scores[order], query)

    def _found(self, rows: Rows, scores: Floats, query: Floats) -> Found:
        similarities = self._at.vectors(rows) @ query
        np.minimum(similarities, 1.0, out=similarities)  # numpy's `clip` takes three times as long
        np.maximum(similarities, -1.0, out=similarities)
        return Found(self._places.seqs.take(rows), scores, similarities)


def _places(which: NDArray[np.bool_]) -> NDArray[np.bool_] | slice:
    """What selects the same rows, without a copy if it is all of them."""
    return slice(None) if which.all() else which


def _marks(vectors: Floats) -> NDArray[np.uint64]:
    """A check sum of each vector, never 0, which means that there is none."""
    words = np.ascontiguousarray(vectors).view(np.uint32)
    sums: NDArray[np.uint64] = np.maximum(words.sum(axis=1, dtype=np.uint64), np.uint64(1))
    return sums


def _nothing() -> Found:
    return Found(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32))
