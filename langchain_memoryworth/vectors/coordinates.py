"""How memories lie in FAISS: each row a unit vector, a coordinate that hides it, and those that the ranking may weigh.

A query carries the weights of the coordinates, so one inner product ranks all rows by `a*similarity + b*worth + ...`.
Rows are numbered from 0 in the order in which they came, and written to in place, past FAISS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

_faiss: Any = faiss  # its own type hints know neither the numpy arguments nor half of the classes

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
TERMS = 4
"""Coordinates behind the vector that the ranking may weigh, apart from the one that hides a row."""

_HNSW_M = 32
_EF_CONSTRUCTION = 128
"""Nodes in view when a row is linked. With the 40 of FAISS the graph is there sooner, once, and every search has to look at more nodes
to find as much."""
_MOST_BUFFERS = 16
_PART = 8192
"""Rows that are copied at a time, where the alternative is a copy of all."""
_LARGEST_HALF = 65504.0
_HIDDEN, _HIDES = -(2.0**-10), 2.0**126
"""In the coordinate that hides, and the weight that a scan puts on it. The product is below all scores and finite, as a walk puts 0
on it: 0 * -inf is NaN. Without a weight it is too small to matter where rows are linked."""
BELOW_ALL = _HIDDEN * _HIDES / 2
"""A score below this is that of a hidden row."""
_BLOCK = 8
"""FAISS reads so many numbers at a time: where rows are no multiple of it, a scan takes some hundredths longer, and ten times
as long in float16."""


class _Buffers(NamedTuple):
    """What FAISS reads and writes in a search for k, with the pointers that its C++ function takes."""

    query: Floats
    scores: Floats
    rows: Rows
    pointers: tuple[Any, Any, Any]

    @classmethod
    def of(cls, width: int, k: int) -> _Buffers:
        arrays = np.zeros(width, np.float32), np.empty(k, np.float32), np.empty(k, np.int64)
        query, scores, rows = (_faiss.swig_ptr(a) for a in arrays)
        return cls(*arrays, (query, scores, rows))


class Coordinates:
    """The rows of one index.

    Args:
        dimension: Of the vectors.
        half: Whether they are kept as float16, rounded: half the memory, and 11 bits of each number.
        graph: Whether there is a graph of HNSW over them. It is walked through hidden rows too.
    """

    def __init__(self, dimension: int, *, half: bool = False, graph: bool = False) -> None:
        self.dimension = dimension
        self.half = half
        self.graph = graph
        self._terms = slice(dimension + 1, dimension + 1 + TERMS)
        width = dimension + 1 + TERMS
        self.width = -(-width // _BLOCK) * _BLOCK
        self._index: Any = self._with_graph() if graph else self._flat()
        self._storage: Any = _faiss.downcast_index(self._index.storage) if graph else self._index
        self._view: NDArray[Any] | None = None
        self._buffers: dict[int, _Buffers] = {}

    def _flat(self) -> Any:
        if self.half:
            return _faiss.IndexScalarQuantizer(self.width, *_HALF)
        return _faiss.IndexFlatIP(self.width)

    def _with_graph(self) -> Any:
        if self.half:
            kind, metric = _HALF
            index = _faiss.IndexHNSWSQ(self.width, kind, _HNSW_M, metric)
        else:
            index = _faiss.IndexHNSWFlat(self.width, _HNSW_M, _faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = _EF_CONSTRUCTION
        return index

    # -- writing ----------------------------------------------------------------------------------------------

    def reserve(self, count: int) -> None:
        """Allocate so many rows at once, on an empty index: to grow, FAISS copies what there is, again and again."""
        if not self._storage.ntotal:
            self._storage.codes.resize(count * self.width * (2 if self.half else 4))
            self._storage.codes.clear()  # which keeps the memory

    def append(self, vectors: Floats, terms: NDArray[np.floating]) -> None:
        """Add rows at the end, visible, and link them into the graph; shapes (n, dimension) and (n, TERMS)."""
        start = int(self._storage.ntotal)
        block = np.zeros((len(vectors), self.width), np.float32)
        block[:, : self.dimension] = vectors
        block[:, self._terms] = self._within_range(terms)
        self._index.add(block)
        self._view = None
        if self.half:  # as if they were set later: of a number in the middle FAISS takes another neighbour than numpy
            self.set_terms(np.arange(start, start + len(terms)), terms)

    def set_vectors(self, rows: Rows, vectors: Floats) -> None:
        """Overwrite vectors; their links in the graph stay as they are."""
        if self.half and len(rows):  # rounded as those that are appended, and faster than by numpy
            rounds = _faiss.ScalarQuantizer(self.dimension, _HALF[0])
            vectors = rounds.compute_codes(np.ascontiguousarray(vectors)).view(np.float16)
        self.view()[rows, : self.dimension] = vectors

    def set_terms(self, rows: Rows, terms: NDArray[np.floating], first: int = 0) -> None:
        """Overwrite what the ranking may weigh, shape (n, TERMS), or fewer terms from a `first` on."""
        start = self._terms.start + first
        self.view()[rows, start : start + terms.shape[1]] = self._within_range(terms)

    def hide(self, rows: Rows | slice, hidden: NDArray[np.bool_]) -> None:
        """Hide rows from `scan`, or show them."""
        self.view()[rows, self.dimension] = np.where(hidden, _HIDDEN, 0.0)

    def _within_range(self, terms: NDArray[np.floating]) -> NDArray[np.floating]:
        # An infinite term would hide the row, or put it above all others.
        return np.clip(terms, -_LARGEST_HALF, _LARGEST_HALF) if self.half else terms

    def view(self) -> NDArray[Any]:
        """FAISS's own memory as an array, shape (rows, width); taken anew after every add, which may have moved it."""
        if self._view is not None:
            return self._view
        count = int(self._storage.ntotal) * self.width
        if not count:
            return np.empty((0, self.width), np.float32)
        if self.half:
            codes = _faiss.rev_swig_ptr(self._storage.codes.data(), 2 * count)
            array: NDArray[Any] = codes.view(np.float16)
        else:
            array = _faiss.rev_swig_ptr(self._storage.get_xb(), count)
        self._view = array.reshape(-1, self.width)
        return self._view

    # -- reading ----------------------------------------------------------------------------------------------

    def vectors(self, rows: Rows) -> Floats:
        """A copy, float32, shape (n, dimension)."""
        # Whole rows, and then a part of them: twice as fast as rows and columns at once.
        found = self.view().take(rows, axis=0)[:, : self.dimension]
        return found.astype(np.float32, copy=False)

    def similarities(self, query: Floats) -> Floats:
        """Inner products with all vectors, shape (rows,)."""
        view = self.view()
        if not self.half:
            products: Floats = view[:, : self.dimension] @ query
            return products
        found = np.empty(len(view), np.float32)
        for part in _parts(len(view)):  # numpy would turn all of it into float32 at once
            found[part] = view[part, : self.dimension].astype(np.float32) @ query
        return found

    def scores(self, rows: Rows, query: Floats, weights: Sequence[float]) -> Floats:
        """The ranking of some rows, hidden or not, shape (n,)."""
        full = self.weighted(query, weights, np.zeros(self.width, np.float32))
        found = np.empty(len(rows), np.float32)
        view = self.view()
        for where in _parts(len(rows)):
            found[where] = view[rows[where]].astype(np.float32, copy=False) @ full
        return found

    def weighted(self, query: Floats, weights: Sequence[float], out: Floats) -> Floats:
        """The query with the weights of the coordinates, as FAISS takes it; `out` is as it is in those that hide and fill up."""
        np.multiply(query, np.float32(weights[0]), out=out[: self.dimension])
        out[self._terms] = weights[1:]
        return out

    def scan(self, query: Floats, weights: Sequence[float], k: int) -> tuple[Floats, Rows]:
        """Scores and rows of the k best; hidden ones have a score below `BELOW_ALL`, missing ones the row -1."""
        # FAISS's C++ function on arrays of our own: its Python wrapper takes a fifth of a search among 1,000.
        buffers = self._buffers.get(k)
        if buffers is None:
            if len(self._buffers) >= _MOST_BUFFERS:
                self._buffers.clear()
            buffers = self._buffers[k] = _Buffers.of(self.width, k)
            buffers.query[self.dimension] = _HIDES
        self.weighted(query, weights, buffers.query)
        asked, scores, rows = buffers.pointers
        self._storage.search_c(1, asked, k, scores, rows)
        return buffers.scores.copy(), buffers.rows.copy()

    def scan_some(self, full: Floats, k: int, which: NDArray[np.bool_]) -> tuple[Floats, Rows]:
        """The k best of some rows, without the graph."""
        selector = _faiss.IDSelectorBitmap(np.packbits(which, bitorder="little"))
        parameters = _faiss.SearchParameters(sel=selector)
        scores, rows = self._storage.search(full[None], k, params=parameters)
        return scores[0], rows[0]

    def walk(self, full: Floats, k: int, width: int) -> tuple[Floats, Rows]:
        """The k best that the graph leads to when so many nodes are kept in view."""
        parameters = _faiss.SearchParametersHNSW(efSearch=width)
        scores, rows = self._index.search(full[None], k, params=parameters)
        return scores[0], rows[0]

    # -- the graph without its vectors ------------------------------------------------------------------------

    def links(self) -> NDArray[np.uint8]:
        """The graph as bytes, without the rows it stands on."""
        found: NDArray[np.uint8] = _faiss.serialize_index(self._index, _faiss.IO_FLAG_SKIP_STORAGE)
        return found

    def link(self, links: NDArray[np.uint8], count: int) -> bool:
        """Take over what `links` gave, on as many rows of zeros; False if it is no graph of such rows.

        Only on an empty index; the vectors have to be set before anything is added.
        """
        try:
            index = _faiss.deserialize_index(links)
        except (RuntimeError, MemoryError):  # FAISS's exceptions arrive as these
            return False
        like = type(index) is type(self._index) and index.storage is None
        if not like or (index.ntotal, index.d) != (count, self.width):
            return False
        storage = self._flat()
        # At once, so that FAISS allocates it once; the zeros themselves are memory that nobody wrote to, and take none.
        storage.add(np.zeros((count, self.width), np.float32))
        index.storage, index.own_fields = storage, False
        self._index, self._storage, self._view = index, storage, None
        return True


_HALF = (_faiss.ScalarQuantizer.QT_fp16, _faiss.METRIC_INNER_PRODUCT)


def _parts(count: int) -> Iterator[slice]:
    return (slice(i, min(i + _PART, count)) for i in range(0, count, _PART))


def single_threaded() -> None:
    """Make FAISS start no threads: after a fork it would wait for ever for those of the parent."""
    _faiss.omp_set_num_threads(1)
