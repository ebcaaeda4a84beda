"""What is particular to each vector store: what its scores mean, where its ids are, how it leaves documents out.

No vector store is imported to find out. One that is not in the table is asked for its order alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

Cosine = Callable[[float], float]
"""From a score of a source to a cosine in [-1, 1], higher is nearer."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How one kind of vector store is read.

    Attributes:
        cosine: From a store to the meaning of its scores; None where they cannot be read as cosines.
        id_key: Key in the metadata that has the id, where `Document.id` does not.
        without: From a store, ids to leave out and search arguments to arguments that leave them out; None if the store
            has no filter that can.
        looks_at: From a store, a number of documents and search arguments to how many documents it looks at before
            its filter, and how many it has; None if the filter comes first.
    """

    cosine: Callable[[Any], Cosine | None] = lambda _: None
    id_key: str | None = None
    without: Callable[[Any, Collection[Any], Mapping[str, Any]], dict[str, Any]] | None = None
    looks_at: Callable[[Any, int, Mapping[str, Any]], tuple[int, int]] | None = None

    def id_of(self, document: Document) -> Any:
        """The id of a document as the store itself knows it, or None."""
        return document.metadata.get(self.id_key) if self.id_key is not None else document.id


def reading_of(store: VectorStore) -> Reading:
    """The reading of a store, or of the class that it is derived from."""
    for cls in type(store).__mro__:
        found = _KNOWN.get(f"{cls.__module__}.{cls.__qualname__}")
        if found is not None:
            return found
    return Reading()


def _same(score: float) -> float:
    return score


def _from_distance(distance: float) -> float:
    """Of a cosine distance."""
    return 1.0 - distance


def _from_squared_l2(distance: float) -> float:
    """Of the squared Euclidean distance of unit vectors."""
    return 1.0 - distance / 2.0


# -- InMemoryVectorStore -------------------------------------------------------------------------------------------


def _without_in_memory(
    _: Any, ids: Collection[Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    given: Callable[[Document], bool] | None = arguments.get("filter")

    def accepts(document: Document) -> bool:
        return document.id not in ids and (given is None or given(document))

    return {**arguments, "filter": accepts}


# -- FAISS of langchain-community ----------------------------------------------------------------------------------


def _cosine_of_faiss(store: Any) -> Cosine | None:
    # Only of vectors that the store itself has brought to unit length it is known that they have it.
    euclidean = getattr(store.distance_strategy, "name", "") == "EUCLIDEAN_DISTANCE"
    return _from_squared_l2 if euclidean and store._normalize_L2 else None  # noqa: SLF001


def _faiss_looks_at(store: Any, k: int, arguments: Mapping[str, Any]) -> tuple[int, int]:
    return max(4 * k, arguments.get("fetch_k", 20)), store.index.ntotal


# -- Chroma --------------------------------------------------------------------------------------------------------


def _cosine_of_chroma(store: Any) -> Cosine | None:
    configuration = store._collection.configuration_json  # noqa: SLF001  # the other one warns
    spaces = {(configuration.get(kind) or {}).get("space") for kind in ("hnsw", "spann")}
    return _from_distance if "cosine" in spaces else None


# -- Qdrant --------------------------------------------------------------------------------------------------------


def _cosine_of_qdrant(store: Any) -> Cosine | None:
    dense = getattr(store.retrieval_mode, "name", "") == "DENSE"
    return _same if dense and getattr(store.distance, "name", "") == "COSINE" else None


def _without_in_qdrant(
    _: Any, ids: Collection[Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    from qdrant_client import models  # there, since the store is one of it

    given = arguments.get("filter")
    excluded = models.Filter(
        must=None if given is None else [given],
        must_not=[models.HasIdCondition(has_id=list(ids))],
    )
    return {**arguments, "filter": excluded}


# -- PGVectorStore of langchain-postgres ---------------------------------------------------------------------------


def _pg(store: Any) -> Any:
    """The async store that the one of both kinds is a face of."""
    return getattr(store, "_PGVectorStore__vs", store)


def _cosine_of_pg(store: Any) -> Cosine | None:
    store = _pg(store)
    cosine = getattr(store.distance_strategy, "name", "") == "COSINE_DISTANCE"
    return _from_distance if cosine and store.hybrid_search_config is None else None


def _without_in_pg(
    store: Any, ids: Collection[Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    excluded = {_pg(store).id_column: {"$nin": list(ids)}}
    given = arguments.get("filter")
    both = excluded if not given else {"$and": [given, excluded]}
    return {**arguments, "filter": both}


# -- Milvus --------------------------------------------------------------------------------------------------------


def _cosine_of_milvus(store: Any) -> Cosine | None:
    index = store.index_params
    return _same if isinstance(index, dict) and index.get("metric_type") == "COSINE" else None


def _without_in_milvus(
    store: Any, ids: Collection[Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    excluded = f"{store._primary_field} not in {json.dumps(list(ids))}"  # noqa: SLF001
    given = arguments.get("expr")
    return {**arguments, "expr": f"({given}) and {excluded}" if given else excluded}


_PG = Reading(_cosine_of_pg, without=_without_in_pg)
_KNOWN = {
    "langchain_chroma.vectorstores.Chroma": Reading(_cosine_of_chroma),
    "langchain_community.vectorstores.faiss.FAISS": Reading(
        _cosine_of_faiss, looks_at=_faiss_looks_at
    ),
    "langchain_core.vectorstores.in_memory.InMemoryVectorStore": Reading(
        lambda _: _same, without=_without_in_memory
    ),
    "langchain_milvus.vectorstores.milvus.Milvus": Reading(
        _cosine_of_milvus, id_key="pk", without=_without_in_milvus
    ),
    "langchain_postgres.v2.async_vectorstore.AsyncPGVectorStore": _PG,
    "langchain_postgres.v2.vectorstores.PGVectorStore": _PG,
    "langchain_qdrant.qdrant.QdrantVectorStore": Reading(
        _cosine_of_qdrant, id_key="_id", without=_without_in_qdrant
    ),
}
