"""Vector search on FAISS: vectors in, nearest memories out. A cache; it can always be rebuilt from the database.

Each stored row is a unit vector with a few coordinates of its own behind it, and each query carries the weights of
those coordinates. So one inner product ranks all memories by `a*similarity + b*worth + ...`, exactly and at the price of
a plain search, and the weights may differ from call to call.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

_faiss: Any = faiss  # its own type hints know neither the numpy arguments nor half of the classes

Floats = NDArray[np.float32]
Kind = Literal["flat", "hnsw", "pgvector"]
TERMS = 4
"""Coordinates behind the vector that the ranking may weigh, apart from the one that hides a row."""

_ACTIVE, _HELD, _GONE = 0, 1, 2
_HNSW_M = 32
_EF_SEARCH = 128
_MOST_BUFFERS = 16
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


class _Buffers(NamedTuple):
    """What FAISS reads and writes in a search for k, with the pointers that its C++ function takes."""

    query: Floats
    scores: Floats
    rows: NDArray[np.int64]
    pointers: tuple[Any, Any, Any]

    @classmethod
    def of(cls, width: int, k: int) -> _Buffers:
        arrays = np.empty(width, np.float32), np.empty(k, np.float32), np.empty(k, np.int64)
        query, scores, rows = (_faiss.swig_ptr(a) for a in arrays)
        return cls(*arrays, (query, scores, rows))


class VectorIndex:
    """The memories of one namespace.

    `flat` is exact. `hnsw` is approximate and faster from some ten thousands on. Where so many rows around a query are hidden
    that the graph would lose its way, it looks at every row, and `exact` counts these searches.

    Args:
        dimension: Of the vectors.
        kind: The FAISS index to use.

    Examples:
        >>> index = VectorIndex(2)
        >>> index.upsert(np.array([7]), np.array([[1, 0]], np.float32), np.zeros((1, TERMS)), np.array([False]))
        >>> found = index.search(np.array([0.6, 0.8], np.float32), [1, 0, 0, 0, 0], 5)
        >>> found.seqs.tolist(), float(found.similarities[0].round(3))
        ([7], 0.6000000238418579)
    """

    def __init__(self, dimension: int, kind: Kind = "flat") -> None:
        self.dimension = dimension
        self.kind = kind
        self._width = dimension + 1 + TERMS
        self._index: Any = (
            _faiss.IndexFlatIP(self._width)
            if kind == "flat"
            else _faiss.IndexHNSWFlat(self._width, _HNSW_M, _faiss.METRIC_INNER_PRODUCT)
        )
        if kind == "hnsw":
            self._index.hnsw.efSearch = _EF_SEARCH
        self.exact = 0  # searches that looked at every row although there is a graph
        self._seqs = np.empty(0, np.int64)
        self._state = np.empty(0, np.int8)
        self._row_of: dict[int, int] = {}
        self._gone = 0
        self._view: Floats | None = None
        self._buffers: dict[int, _Buffers] = {}
        # FAISS gives wrong answers, without an error, when a row is added during a search.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._state) - self._gone

    def __contains__(self, seq: int) -> bool:
        return seq in self._row_of

    @property
    def held(self) -> int:
        """How many rows are held back."""
        return int(np.count_nonzero(self._state == _HELD))

    @property
    def gone(self) -> int:
        """How many rows are dead and only take space."""
        return self._gone

    # -- writing ----------------------------------------------------------------------------------------------

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
            known = np.array([s in self._row_of for s in seqs.tolist()], dtype=np.bool_)
            self._append(seqs[~known], vectors[~known], terms[~known])
            if known.any():
                rows = self._rows(seqs[known])
                self._storage()[rows, : self.dimension] = vectors[known]
                self._storage()[rows, self.dimension + 1 :] = terms[known]
            self._set_state(self._rows(seqs), held)

    def update(
        self, seqs: NDArray[np.int64], terms: NDArray[np.floating], held: NDArray[np.bool_]
    ) -> None:
        """Set the coordinates and the visibility of rows that are `alive`; shapes as in `upsert`."""
        with self._lock:
            rows = self._rows(seqs)
            self._storage()[rows, self.dimension + 1 :] = terms
            self._set_state(rows, held)

    def alive(self, seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows are there and not removed."""
        rows = [self._row_of.get(s, -1) for s in seqs.tolist()]
        return np.array([r >= 0 and self._state[r] != _GONE for r in rows], dtype=np.bool_)

    def remove(self, seqs: NDArray[np.int64]) -> None:
        """Hide rows for good; unknown ones are ignored."""
        with self._lock:
            rows = self._rows(np.array([s for s in seqs.tolist() if s in self._row_of], np.int64))
            self._gone += int(np.count_nonzero(self._state[rows] != _GONE))
            self._state[rows] = _GONE
            self._hide(rows, np.ones(len(rows), np.bool_))

    def _append(
        self, seqs: NDArray[np.int64], vectors: Floats, terms: NDArray[np.floating]
    ) -> None:
        first = len(self._seqs)
        if not len(seqs):
            return
        block = np.zeros((len(seqs), self._width), np.float32)
        block[:, : self.dimension] = vectors
        block[:, self.dimension + 1 :] = terms
        self._index.add(block)
        self._view = None
        self._seqs = np.concatenate([self._seqs, seqs])
        self._state = np.concatenate([self._state, np.zeros(len(seqs), np.int8)])
        self._row_of.update(zip(seqs.tolist(), range(first, first + len(seqs)), strict=True))

    def _set_state(self, rows: NDArray[np.int64], held: NDArray[np.bool_]) -> None:
        if self._gone:
            self._gone -= int(np.count_nonzero(self._state[rows] == _GONE))
        self._state[rows] = np.where(held, _HELD, _ACTIVE)
        self._hide(rows, held)

    def _hide(self, rows: NDArray[np.int64], hidden: NDArray[np.bool_]) -> None:
        # The graph of HNSW is walked through hidden rows too, so there they are dropped afterwards instead.
        # A large negative number would let them come back when fewer than k others are left.
        if self.kind == "flat":
            self._storage()[rows, self.dimension] = np.where(hidden, -np.inf, 0.0)

    def _storage(self) -> Floats:
        """FAISS's own memory as an array; taken anew after every add, which may have moved it."""
        if self._view is not None:
            return self._view
        flat = self._index if self.kind == "flat" else _faiss.downcast_index(self._index.storage)
        count = int(flat.ntotal) * self._width
        if not count:
            return np.empty((0, self._width), np.float32)
        array: Floats = _faiss.rev_swig_ptr(flat.get_xb(), count).reshape(-1, self._width)
        self._view = array
        return array

    def _rows(self, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([self._row_of[s] for s in seqs.tolist()], dtype=np.int64)

    # -- searching --------------------------------------------------------------------------------------------

    def search(self, query: Floats, weights: Sequence[float], k: int) -> Found:
        """The k best visible rows by `weights[0] * similarity + weights[1:] . terms`.

        Args:
            query: float32, shape (dimension,), unit length.
            weights: Of the similarity and of the TERMS coordinates.
            k: At least 1. Fewer come back only if fewer are visible.
        """
        with self._lock:
            k = min(k, len(self._seqs))
            if not k:
                return _nothing()
            scores, rows = self._nearest(query, weights, k)
            # They are sorted, so one look at the last tells whether all are there and visible.
            if rows[-1] < 0 or scores[-1] == -np.inf:
                keep = (rows >= 0) & (scores > -np.inf)
                scores, rows = scores[keep], rows[keep]
            return self._found(rows, scores, query)

    def within(self, query: Floats, weights: Sequence[float], floor: float) -> Found:
        """All visible rows whose similarity is at least `floor`, best by score first."""
        with self._lock:
            if not len(self._seqs):
                return _nothing()
            similarities = self._storage()[:, : self.dimension] @ query
            rows = np.flatnonzero((self._state == _ACTIVE) & (similarities >= floor))
            return self._ranked(rows, query, weights)

    def held_back(self, query: Floats, weights: Sequence[float], above: float) -> Found:
        """Hidden rows that would score above a value, best first: those that a query would else have got."""
        with self._lock:
            rows = np.flatnonzero(self._state == _HELD)
            found = self._ranked(rows, query, weights)
            count = int(np.count_nonzero(found.scores > above))
            return found.take(slice(count))

    def vectors(self, seqs: NDArray[np.int64]) -> Floats:
        """The vectors of rows, a copy, float32, shape (n, dimension)."""
        with self._lock:
            return self._storage()[self._rows(seqs), : self.dimension].copy()

    def _full(self, query: Floats, weights: Sequence[float], out: Floats) -> Floats:
        np.multiply(query, np.float32(weights[0]), out=out[: self.dimension])
        out[self.dimension] = 1.0  # the weight of the hiding coordinate, never 0: 0 * -inf is NaN
        out[self.dimension + 1 :] = weights[1:]
        return out

    def _nearest(
        self, query: Floats, weights: Sequence[float], k: int
    ) -> tuple[Floats, NDArray[np.int64]]:
        if self.kind == "flat":
            return self._scan(query, weights, k)
        full = self._full(query, weights, np.empty(self._width, np.float32))
        hidden = np.count_nonzero(self._state)  # an active row is 0
        width = max(_EF_SEARCH, 2 * k)
        if not hidden:
            return self._walk(full, k, width)
        wanted = min(k, len(self._state) - int(hidden))
        if not wanted:
            return np.full(1, -np.inf, np.float32), np.full(1, -1, np.int64)
        # A graph that is told to leave rows out stops early where they are many: with nine in ten of a topic hidden it
        # finds a third of what it should. Walked as it is, its first half is as good as ever; what is hidden is dropped then.
        while width <= max(_EF_SEARCH, min(_WIDEST, len(self._state) // 16)):
            scores, rows = self._walk(full, width, width)
            shown = np.flatnonzero((rows >= 0) & (self._state[rows] == _ACTIVE))
            if len(shown) >= wanted and shown[wanted - 1] < width // 2:
                return scores[shown[:k]], rows[shown[:k]]
            width *= 4
        self.exact += 1
        selector = _faiss.IDSelectorBitmap(np.packbits(self._state == _ACTIVE, bitorder="little"))
        storage = _faiss.downcast_index(self._index.storage)
        found = storage.search(full[None], k, params=_faiss.SearchParameters(sel=selector))
        return found[0][0], found[1][0]

    def _walk(self, full: Floats, k: int, width: int) -> tuple[Floats, NDArray[np.int64]]:
        parameters = _faiss.SearchParametersHNSW(efSearch=width)
        scores, rows = self._index.search(full[None], k, params=parameters)
        return scores[0], rows[0]

    def _scan(
        self, query: Floats, weights: Sequence[float], k: int
    ) -> tuple[Floats, NDArray[np.int64]]:
        # FAISS's C++ function on arrays of our own: its Python wrapper takes a fifth of a search among 1,000.
        buffers = self._buffers.get(k)
        if buffers is None:
            if len(self._buffers) >= _MOST_BUFFERS:
                self._buffers.clear()
            buffers = self._buffers[k] = _Buffers.of(self._width, k)
        self._full(query, weights, buffers.query)
        asked, scores, rows = buffers.pointers
        self._index.search_c(1, asked, k, scores, rows)
        return buffers.scores.copy(), buffers.rows.copy()

    def _ranked(self, rows: NDArray[np.int64], query: Floats, weights: Sequence[float]) -> Found:
        storage = self._storage()
        full = self._full(query, weights, np.empty(self._width, np.float32))
        full[self.dimension] = 0.0
        scores = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), 8192):  # a copy of some rows at a time, not of all
            part = storage[rows[start : start + 8192]]
            part[:, self.dimension] = 0.0
            scores[start : start + 8192] = part @ full
        order = np.argsort(-scores, kind="stable")
        return self._found(rows[order], scores[order], query)

    def _found(self, rows: NDArray[np.int64], scores: Floats, query: Floats) -> Found:
        # Whole rows, and then a part of them: twice as fast as rows and columns at once.
        similarities = self._storage().take(rows, axis=0)[:, : self.dimension] @ query
        return Found(self._seqs.take(rows), scores, similarities.clip(-1.0, 1.0))


def single_threaded() -> None:
    """Make FAISS start no threads: after a fork it would wait for ever for those of the parent."""
    _faiss.omp_set_num_threads(1)


def _nothing() -> Found:
    return Found(np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32))
