"""Vectors, and stores filled with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import faiss
import numpy as np
from langchain_core.embeddings import DeterministicFakeEmbedding
from numpy.typing import NDArray

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.vectors.index import Kind

DIMENSION = 384
K = 8
TEXT = "Prague is the capital of the Czech Republic, and the train from Berlin takes four hours. "

Floats = NDArray[np.float32]


def unit_vectors(count: int, seed: int = 0) -> Floats:
    """Random rows of unit length, float32, shape (count, DIMENSION). A flat scan costs the same whatever they are."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, DIMENSION), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def queries(count: int = 64) -> Floats:
    """Unit vectors that are in no store."""
    return unit_vectors(count, seed=1)


def bare_index(vectors: Floats) -> faiss.IndexFlatIP:
    """What everybody compares with."""
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(vectors)
    return index


def text_of(number: int) -> str:
    """A text of about 100 characters."""
    return f"{TEXT}({number})"


def filled(
    path: Path, vectors: Floats, durability: Literal["normal", "full"] = "normal"
) -> MemoryWorthStore:
    """A store on a new file."""
    store = opened(path, durability)
    fill(store, vectors)
    return store


def loaded(store: MemoryWorthStore) -> MemoryWorthStore:
    """A store that has its vectors in memory, which the first search puts there."""
    store.governor.retrieval.recall_by_vector(queries(1)[0], K, track=False)
    return store


def fill(store: MemoryWorthStore, vectors: Floats) -> None:
    """Add the vectors, each with the text of its number."""
    for start in range(0, len(vectors), 10_000):
        part = vectors[start : start + 10_000]
        pairs = ((text_of(start + i), v) for i, v in enumerate(part))
        numbers = range(start, start + len(part))
        store.add_embeddings(
            pairs, metadatas=[{"n": n} for n in numbers], ids=[str(n) for n in numbers]
        )


def opened(
    where: Path | str,
    durability: Literal["normal", "full"] = "normal",
    index: Kind = "flat",
    graph_folder: str | None = None,
) -> MemoryWorthStore:
    """A store on a file, or at a URL."""
    embedding = DeterministicFakeEmbedding(size=DIMENSION)
    return MemoryWorthStore(
        where if "://" in str(where) else f"sqlite:///{where}",
        embedding,
        embedding_name="bench",
        durability=durability,
        index=index,
        graph_folder=graph_folder,
    )


@contextmanager
def folder() -> Iterator[Path]:
    """A place for files that is removed afterwards."""
    with TemporaryDirectory(prefix="memoryworth-bench-") as name:
        yield Path(name)
