"""Arrays that grow at their end."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.number)


class Column(Generic[Number]):
    """One number for each row of an index. What is there is copied only when the room behind it is used up.

    Attributes:
        values: What is in it, shape (n,), to be read and written in place. Longer after `append`, and taken anew then.

    Examples:
        >>> column = Column(np.array([3, 5]))
        >>> column.append(np.array([9]))
        >>> column.values.tolist(), len(column)
        ([3, 5, 9], 3)
    """

    __slots__ = ("_room", "values")

    def __init__(self, values: NDArray[Number]) -> None:
        self.values = self._room = values

    def __len__(self) -> int:
        return len(self.values)

    def append(self, more: NDArray[Number]) -> None:
        """Add values behind those that are there."""
        start, end = len(self.values), len(self.values) + len(more)
        if end > len(self._room):
            self._room = np.empty(end + end // 16, self.values.dtype)
            self._room[:start] = self.values
        self._room[start:end] = more
        self.values = self._room[:end]
