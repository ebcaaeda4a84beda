"""Vectors of unit length, as every index holds them: checked, and normalised where squares of small numbers do not vanish."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidVectorError


def unit_row(vector: ArrayLike) -> NDArray[np.float32]:
    """`unit_rows` of one vector, shape (d,): numpy's small steps on a matrix of one row cost half as much as a search.

    Raises:
        InvalidVectorError: If it is not one vector, or not finite.
    """
    with suppress(TypeError, ValueError):
        wide = np.asarray(vector, dtype=np.float32).astype(np.float64)
        squared = float(wide @ wide) if wide.ndim == 1 else 0.0
        if 0.0 < squared < math.inf:
            return np.asarray(wide / math.sqrt(squared), dtype=np.float32)
    rows = unit_rows(vector)  # says what is wrong with it
    if len(rows) != 1:
        raise InvalidVectorError(f"a query is one vector, not {len(rows)}; give d numbers")
    only: NDArray[np.float32] = rows[0]
    return only


def unit_rows(vectors: ArrayLike) -> NDArray[np.float32]:
    """Vectors as float32 rows of unit length, shape (n, d); a zero vector stays zero and is near to nothing.

    Raises:
        InvalidVectorError: If they are no matrix, or not finite.
    """
    try:
        matrix: NDArray[np.float32] = np.array(vectors, dtype=np.float32, ndmin=2)
    except (TypeError, ValueError) as error:
        raise InvalidVectorError(
            f"the vectors are no matrix of numbers ({error}); give n rows of equal length"
        ) from error
    if matrix.ndim != 2 or not matrix.shape[1]:
        raise InvalidVectorError(f"vectors have shape {matrix.shape}; give (n, d)", value=vectors)
    if not np.isfinite(matrix).all():
        row = int(np.flatnonzero(~np.isfinite(matrix).all(axis=1))[0])
        raise InvalidVectorError(f"vector {row} is not finite; check the embedding model")
    # In float64: the square of 1e-30 or 1e30 is no float32.
    lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))[:, None]
    return np.asarray(matrix / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)
