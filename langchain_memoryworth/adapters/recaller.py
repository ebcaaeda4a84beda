"""Recalls into an episode that is already known, whichever retriever does it: for agents' turns and for graph nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, run_in_executor

from langchain_memoryworth.adapters.retriever import MemoryWorthRetriever
from langchain_memoryworth.records import EpisodeKey, Namespace
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.service.namespaces import resolved
from langchain_memoryworth.tracking.runs import EPISODE_KEY, ambient_episode


class Recaller:
    """One retriever, for any number of episodes at once; nothing of an episode is kept here.

    Args:
        governor: Of the store.
        retriever: What recalls.
        namespace: For a retriever of the store; placeholders are filled in from the run.
    """

    def __init__(
        self, governor: Governor, retriever: BaseRetriever, namespace: Namespace | None
    ) -> None:
        self._governor = governor
        self._retriever = retriever
        self._namespace = namespace
        # Those of this package write down themselves what they give.
        self._records = isinstance(getattr(retriever, "store", None), Governor)

    def namespace(self, runtime: Any, config: RunnableConfig | None = None) -> Namespace | None:
        """Where this run's memories are; None means the store's own place."""
        if self._namespace is None:
            return None
        given = config or {}
        context = getattr(runtime, "context", None)
        values = context if isinstance(context, Mapping) else getattr(context, "__dict__", {})
        configured = {**(given.get("configurable") or {}), **(given.get("metadata") or {})}
        return resolved(self._namespace, {**configured, **values})

    def key(self, episode_id: str, runtime: Any) -> EpisodeKey:
        """An episode with what else it may be asked for by: its thread, and the run's id if the user chose that."""
        info = getattr(runtime, "execution_info", None)
        run_id = str(getattr(info, "run_id", None) or "")
        root = self._governor.runs.root(None)
        # If a handler has seen the run, it knows whether its id is free: other memories may stand under it.
        free = run_id and (root is None or str(root.run_id) != run_id)
        thread_id = getattr(info, "thread_id", None)
        return EpisodeKey(episode_id, (run_id,) if free else (), thread_id)

    def recall(
        self,
        key: EpisodeKey,
        query: str,
        namespace: Namespace | None,
        config: RunnableConfig | None = None,
    ) -> list[Document]:
        """Memories for a query, written down for the episode; raises only what the search raises."""
        before = self._before(key)
        with ambient_episode(key):
            documents = self._retriever.invoke(query, config, **self._options(namespace))
        return self._noted(key, documents, before)

    async def arecall(
        self,
        key: EpisodeKey,
        query: str,
        namespace: Namespace | None,
        config: RunnableConfig | None = None,
    ) -> list[Document]:
        """`recall` that awaits the retriever."""
        before = await run_in_executor(None, self._before, key)
        with ambient_episode(key):
            documents = await self._retriever.ainvoke(query, config, **self._options(namespace))
        return await run_in_executor(None, self._noted, key, documents, before)

    def _options(self, namespace: Namespace | None) -> dict[str, Any]:
        own = namespace is not None and isinstance(self._retriever, MemoryWorthRetriever)
        return {"namespace": namespace} if own else {}

    def _before(self, key: EpisodeKey) -> set[str | None] | None:
        """What the episode has in front of the model already; None if it is not needed, or cannot be read."""
        if not self._records:
            with self._governor.losses.guard("what an episode recalled before"):
                return self._shown(key)
        return None

    def _noted(
        self, key: EpisodeKey, documents: list[Document], before: set[str | None] | None
    ) -> list[Document]:
        """The documents, after it is written down that exactly they are shown.

        Another retriever than those of this package may have asked the store and then dropped what it got.
        """
        if not self._records:
            with self._governor.losses.guard("what an episode recalled"):
                self._governor.journal.expose_documents(key, documents)
                if before is not None:
                    dropped = self._shown(key) - before - {d.id for d in documents}
                    self._governor.journal.hide(key.id, [i for i in dropped if i is not None])
        return documents

    def _shown(self, key: EpisodeKey) -> set[str | None]:
        return {d.id for d in self._governor.journal.shown_documents(key.id)}


def named_episode(config: Mapping[str, Any] | None) -> str | None:
    """The episode that a run's metadata or configurable names."""
    for place in ("metadata", "configurable"):
        named = ((config or {}).get(place) or {}).get(EPISODE_KEY)
        if named is not None:
            return str(named)
    return None
