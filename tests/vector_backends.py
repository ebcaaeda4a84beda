"""The vector stores that `govern` is tested on: each filled with the same texts, on the same vectors."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import chromadb
from langchain_chroma import Chroma
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_postgres import PGEngine, PGVectorStore
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient, models

from tests.fakes import DIMENSION, HashedWords

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # the community package says that it is being sunset
    from langchain_community.vectorstores import FAISS
    from langchain_community.vectorstores.utils import DistanceStrategy

_numbers = count()


@dataclass(frozen=True)
class Place:
    """Where a test may put a store."""

    folder: Path
    postgres: Callable[[], str]


def uuid_of(word: str) -> str:
    """An id that every store accepts: Qdrant and Postgres want UUIDs."""
    return str(uuid5(NAMESPACE_URL, word))


def _filled(store: VectorStore, texts: Sequence[str], metadatas: Sequence[dict[str, Any]]) -> None:
    store.add_texts(list(texts), list(metadatas), ids=[uuid_of(t) for t in texts])


@contextmanager
def _memory(place: Place) -> Iterator[VectorStore]:
    yield InMemoryVectorStore(HashedWords())


@contextmanager
def _faiss(
    place: Place,
    strategy: Any = DistanceStrategy.EUCLIDEAN_DISTANCE,
    *,
    normalize: bool = True,
) -> Iterator[VectorStore]:
    import faiss
    from langchain_community.docstore.in_memory import InMemoryDocstore

    inner = strategy == DistanceStrategy.MAX_INNER_PRODUCT
    yield FAISS(
        HashedWords(),
        faiss.IndexFlatIP(DIMENSION) if inner else faiss.IndexFlatL2(DIMENSION),
        InMemoryDocstore(),
        {},
        normalize_L2=normalize,
        distance_strategy=strategy,
    )


@contextmanager
def _chroma(place: Place, space: str = "cosine") -> Iterator[VectorStore]:
    # Ephemeral clients share their state, so every test has a name of its own.
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    name = f"collection-{next(_numbers)}"
    yield Chroma(
        name, HashedWords(), client=client, collection_configuration={"hnsw": {"space": space}}
    )
    client.delete_collection(name)


@contextmanager
def _qdrant(place: Place, distance: Any = models.Distance.COSINE) -> Iterator[VectorStore]:
    client = QdrantClient(":memory:")
    client.create_collection(
        "words", vectors_config=models.VectorParams(size=DIMENSION, distance=distance)
    )
    yield QdrantVectorStore(client, "words", HashedWords(), distance=distance)
    client.close()


@contextmanager
def _pg(place: Place, strategy: Any = None, driver: str = "psycopg") -> Iterator[VectorStore]:
    engine = PGEngine.from_connection_string(
        place.postgres().replace("postgresql://", f"postgresql+{driver}://")
    )
    engine.init_vectorstore_table("words", DIMENSION)
    arguments = {} if strategy is None else {"distance_strategy": strategy}
    yield PGVectorStore.create_sync(engine, HashedWords(), "words", **arguments)
    asyncio.run(engine.close())


@dataclass(frozen=True)
class VectorBackend:
    """One kind of vector store.

    Attributes:
        name: Of its class.
        distribution: The package that it comes from.
        metric: In its own words.
        cosines: Whether its scores can be read as cosines.
        selective: Whether it can leave documents out by id.
        filter: What selects the metadata {"even": True}.
    """

    name: str
    distribution: str
    metric: str
    cosines: bool
    selective: bool
    open_empty: Callable[[Place], AbstractContextManager[VectorStore]]
    filter: Any

    @contextmanager
    def open(
        self, place: Place, texts: Sequence[str], metadatas: Sequence[dict[str, Any]]
    ) -> Iterator[VectorStore]:
        with self.open_empty(place) as store:
            _filled(store, texts, metadatas)
            yield store


def _partial(opener: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[Place], Any]:
    return lambda place: opener(place, *args, **kwargs)


def _strategy(name: str) -> Any:
    from langchain_postgres.v2.indexes import DistanceStrategy as Strategy

    return Strategy[name]


_EVEN = {"even": True}
_QDRANT_EVEN = models.Filter(
    must=[models.FieldCondition(key="metadata.even", match=models.MatchValue(value=True))]
)
_INNER = DistanceStrategy.MAX_INNER_PRODUCT
_Row = VectorBackend
VECTOR_STORES = (
    _Row(
        "InMemoryVectorStore",
        "langchain-core",
        "cosine",
        True,
        True,
        _memory,
        lambda d: d.metadata["even"],
    ),
    _Row("FAISS", "langchain-community", "L2 of normalised vectors", True, False, _faiss, _EVEN),
    _Row(
        "FAISS", "langchain-community", "L2", False, False, _partial(_faiss, normalize=False), _EVEN
    ),
    _Row(
        "FAISS",
        "langchain-community",
        "inner product",
        False,
        False,
        _partial(_faiss, _INNER, normalize=False),
        _EVEN,
    ),
    _Row("Chroma", "langchain-chroma", "cosine", True, False, _chroma, _EVEN),
    _Row("Chroma", "langchain-chroma", "l2", False, False, _partial(_chroma, "l2"), _EVEN),
    _Row("Chroma", "langchain-chroma", "ip", False, False, _partial(_chroma, "ip"), _EVEN),
    _Row("QdrantVectorStore", "langchain-qdrant", "COSINE", True, True, _qdrant, _QDRANT_EVEN),
    _Row(
        "QdrantVectorStore",
        "langchain-qdrant",
        "EUCLID",
        False,
        True,
        _partial(_qdrant, models.Distance.EUCLID),
        _QDRANT_EVEN,
    ),
    _Row(
        "QdrantVectorStore",
        "langchain-qdrant",
        "DOT",
        False,
        True,
        _partial(_qdrant, models.Distance.DOT),
        _QDRANT_EVEN,
    ),
    _Row("PGVectorStore", "langchain-postgres", "COSINE_DISTANCE", True, True, _pg, _EVEN),
    _Row(
        "PGVectorStore",
        "langchain-postgres",
        "EUCLIDEAN",
        False,
        True,
        _partial(_pg, _strategy("EUCLIDEAN")),
        _EVEN,
    ),
)
