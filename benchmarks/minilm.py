"""A retrieval with the real all-MiniLM-L6-v2: which share of it is not the model."""

from __future__ import annotations

import itertools
import random
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.data import Floats, K, bare_index, fill, folder, loaded, unit_vectors
from benchmarks.placement import copies
from benchmarks.rows import Row
from benchmarks.timing import Spread
from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.demo.offline_model import use_packaged_model
from langchain_memoryworth.vectors.embeddings import SentenceTransformerEmbeddings

_MOST = 0.03


class Timed(Embeddings):
    """A model, and how long it took for the last query."""

    def __init__(self, model: Embeddings) -> None:
        self._model = model
        self.seconds = 0.0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Of the model."""
        return self._model.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        """Likewise."""
        start = perf_counter()
        vector = self._model.embed_query(text)
        self.seconds = perf_counter() - start
        return vector


def run(*, quick: bool) -> list[Row]:
    """A row at each size."""
    sizes, rounds = ([200], 2) if quick else ([1_000, 10_000, 100_000], 100)
    with TemporaryDirectory() as cache, folder() as place:
        use_packaged_model(Path(cache))
        model = Timed(SentenceTransformerEmbeddings())
        return [row for count in sizes for row in _rows(place, model, count, rounds)]


def _rows(place: Path, model: Timed, count: int, rounds: int) -> list[Row]:
    vectors = unit_vectors(count)  # the time of a search is the same whatever they say
    numbers = itertools.count()
    bare, stores = copies(
        lambda: bare_index(vectors),
        lambda: _store(place / f"{count}-{next(numbers)}.db", model, vectors),
        order=random.Random(0),
    )
    rests, ours = [], []
    for i in range(-10, rounds):
        text = f"How long does the train to platform {i} take?"
        store = stores[i % len(stores)]
        start = perf_counter()
        with store.episode(str(uuid.uuid4())):
            store.similarity_search(text, K)
        whole = perf_counter() - start
        rest = whole - model.seconds
        scan = _scan(bare[i % len(bare)], model, text)
        if i >= 0:
            rests.append(rest / whole)
            ours.append((rest - scan) / whole)
    for store in stores:
        store.close()
    case = f"{count:,} memories, recorded in an episode"
    return [
        Row(
            case,
            "the same with nothing but the model and a bare `IndexFlatIP`",
            Spread.of([1 / (1 - share) for share in ours]),
            mode="NORMAL",
            target=_MOST,
            figure=Spread.of(ours),
            unit="%",
            about="of it is ours",
        ),
        Row(
            f"{case}, with the scan itself",
            "the model alone",
            Spread.of([1 / (1 - share) for share in rests]),
            mode="NORMAL",
            figure=Spread.of(rests),
            unit="%",
            about="of it is not the model",
        ),
    ]


def _store(path: Path, model: Timed, vectors: Floats) -> MemoryWorthStore:
    store = MemoryWorthStore(f"sqlite:///{path}", model, embedding_name="bench")
    fill(store, vectors)
    return loaded(store)


def _scan(bare: Any, model: Timed, text: str) -> float:
    """Also after the model, which has taken the vectors out of the processor's caches."""
    query = np.array([model.embed_query(text)], np.float32)
    start = perf_counter()
    bare.search(query, K)
    return perf_counter() - start
