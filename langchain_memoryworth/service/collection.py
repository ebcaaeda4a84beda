"""The memories of a store: add them, take them out of service, and read them. No SQL and no formula."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from numpy.typing import ArrayLike

from langchain_memoryworth.errors import InvalidInputError, InvalidVectorError
from langchain_memoryworth.ledger.database import retried
from langchain_memoryworth.ledger.memories import NewMemory, Version
from langchain_memoryworth.ledger.settings import check_dimension
from langchain_memoryworth.ledger.trials import Trials
from langchain_memoryworth.records import (
    Memory,
    Namespace,
    Status,
    namespace_key,
)
from langchain_memoryworth.service.open_store import OpenStore, listed
from langchain_memoryworth.vectors.unit import unit_rows


class Collection:
    """Memories by id; ask for it with `governor.collection`.

    Args:
        store: Where they are.
    """

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._database = store.database
        self._settings = store.settings
        self._memories = store.memories
        self._trials = Trials(store.database)

    @retried
    def add(
        self,
        texts: Sequence[str],
        vectors: ArrayLike,
        metadatas: Sequence[Mapping[str, Any]],
        ids: Sequence[str | None],
        namespace: Namespace | None = None,
        *,
        ttl: timedelta | None = None,
    ) -> list[str]:
        """Store memories, or update those with the same ids.

        Args:
            texts: n texts.
            vectors: Shape (n, d), any length; they are normalised.
            metadatas: n mappings that JSON can hold.
            ids: n ids; None means a hash of namespace and text, so that a duplicate does not split its evidence.
            namespace: None means the store's own.
            ttl: How long they live from now; None means as long as `Policy.ttl` says.

        Returns:
            The n ids.
        """
        self._store.ready()
        namespace = self._store.namespace if namespace is None else namespace
        if not texts:
            return []
        matrix = unit_rows(vectors)
        if len(matrix) != len(texts):
            raise InvalidVectorError(
                f"{len(matrix)} vectors for {len(texts)} texts; check the embedding model"
            )
        if self._store.dimension is not None:
            check_dimension(matrix.shape[1], self._store.dimension)
        given = [
            content_id(namespace, t) if i is None else i for i, t in zip(ids, texts, strict=True)
        ]
        now = self._store.clock()
        end = _end(now, ttl)
        new = [NewMemory(*row, end) for row in zip(given, texts, metadatas, matrix, strict=True)]
        with self._database.write() as session:
            self._settings.check_embedding(session, self._store.embedding_name, matrix.shape[1])
            rule = self._settings.policy(session).quarantine
            self._memories.add(session, namespace, new, now, rule)
        return given

    @retried
    def retire(self, ids: Sequence[str] | None, namespace: Namespace | None = None) -> int:
        """Take memories out of service, None for all of the namespace; returns how many were there."""
        self._store.ready()
        wanted = None if ids is None else listed(ids)
        return self._memories.retire(self._store.place(namespace), wanted, self._store.clock())

    def get(self, ids: Sequence[str], namespace: Namespace | None = None) -> dict[str, Memory]:
        """Memories by id; unknown ids are left out."""
        self._store.refresh()
        return self._memories.get(
            self._store.place(namespace), listed(ids), self._store.policy, self._store.clock()
        )

    def one(self, memory_id: str, namespace: Namespace | None = None) -> Memory:
        """One memory.

        Raises:
            MemoryNotFoundError: If there is none by that id.
        """
        self._store.refresh()
        return self._memories.one(
            self._store.place(namespace), memory_id, self._store.policy, self._store.clock()
        )

    def all(
        self, statuses: frozenset[Status] | None = None, namespace: Namespace | None = None
    ) -> list[Memory]:
        """All memories, or those of some statuses, oldest first."""
        self._store.refresh()
        return self._memories.all(
            self._store.place(namespace), statuses, self._store.policy, self._store.clock()
        )

    def versions(
        self, ids: Sequence[str], namespace: Namespace | None = None
    ) -> dict[str, list[Version]]:
        """All versions of some memories by id, and which of them are held back now."""
        self._store.refresh()
        with self._database.read() as session:
            return self._memories.versions(session, self._store.place(namespace), ids)

    def left_out(self, prefix: str, namespace: Namespace | None = None) -> int:
        """How many memories may be left out of an answer whose ids start with a text: held back, or in a trial."""
        self._store.refresh()
        place = self._store.place(namespace)
        with self._database.read() as session:
            held = self._memories.held_back(session, place, prefix)
            return held + self._trials.count(session, place, prefix)


def _end(now: float, ttl: timedelta | None) -> float | None:
    if ttl is None:
        return None
    if not isinstance(ttl, timedelta) or ttl <= timedelta(0):
        raise InvalidInputError(f"ttl={ttl!r}; give a timedelta longer than 0", value=ttl)
    return now + ttl.total_seconds()


def content_id(namespace: Namespace, text: str) -> str:
    """The id of a memory that was given none: equal texts of one namespace have the same."""
    whole = f"{namespace_key(namespace)}\n{text}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(whole, digest_size=16).hexdigest()
