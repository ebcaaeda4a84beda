"""Which row a memory has, in eight bytes a memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.vectors.columns import Column

Numbers = NDArray[np.int64]


class Places:
    """The memories of an index in the order of their rows, which are numbered from 0 as they come.

    Memories nearly always come in the order of their numbers. So the numbers themselves are the table in which a row is looked
    up; a dict would take over a hundred bytes for each. What comes late is found by way of a sorted copy.

    Examples:
        >>> places = Places()
        >>> places.append(np.array([3, 5, 9]))
        >>> places.find(np.array([9, 4])).tolist()
        [2, -1]
    """

    def __init__(self) -> None:
        self._seqs = Column(np.empty(0, np.int64))
        self._order: Numbers | None = None

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def seqs(self) -> Numbers:
        """The memories by row, int64, shape (n,)."""
        return self._seqs.values

    def append(self, seqs: Numbers) -> None:
        """Give the next rows to memories that have none.

        Args:
            seqs: int64, shape (n,), distinct, in any order.
        """
        self._seqs.append(seqs)
        ascending = bool((np.diff(self.seqs[-len(seqs) - 1 :]) > 0).all())
        if self._order is not None or not ascending:
            self._order = np.argsort(self.seqs, kind="stable")

    def find(self, seqs: Numbers) -> Numbers:
        """The rows of memories, int64, shape (n,); -1 where there is none."""
        known = self.seqs
        if not len(known):
            return np.full(len(seqs), -1, np.int64)
        at = np.searchsorted(known, seqs, sorter=self._order)
        at[at == len(known)] = 0  # beyond the last; that one is not it either
        rows = at if self._order is None else self._order[at]
        return np.where(known[rows] == seqs, rows, -1)
