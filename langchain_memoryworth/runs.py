"""Which episode am I in: from run ids to root runs, in memory, bounded, for many threads.

Built from start events alone, because an end does not say whose child it was. The root is the topmost run that a handler
has seen. A finished root stays as a tombstone, so that what its children do late is not taken for a new run.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.documents import Document
from langchain_core.runnables.config import var_child_runnable_config

from langchain_memoryworth.records import EpisodeKey

EPISODE_KEY = "episode_id"
"""Key in a run's metadata that names the episode it belongs to."""

MAX_RUNS = 65_536
"""Runs remembered at once, the oldest are forgotten first; about 0.4 kB each."""

_ambient: ContextVar[EpisodeKey | None] = ContextVar("memory_worth_episode", default=None)


@dataclass(slots=True)
class Root:
    """The topmost run of an episode, and what is known of it so far.

    Attributes:
        exposed: Ids of the memories written down for it.
        groups: By outermost retriever run: the ids that its inner retrievers gave, and the ids that it gave itself.
        documents: What was shown, by id.
    """

    run_id: UUID
    episode: EpisodeKey
    inputs: Any = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    exposed: set[str] = field(default_factory=set)
    groups: dict[UUID, tuple[set[str], set[str]]] = field(default_factory=dict)
    documents: dict[str, Document] = field(default_factory=dict)
    tool_errors: list[str] = field(default_factory=list)
    ended_for: set[int] = field(default_factory=set)

    def dropped(self, outer: UUID) -> set[str]:
        """Memories that an outermost retriever got from inside but did not give, nor any other retrieval."""
        inner, _ = self.groups.get(outer, (set(), set()))
        kept = set().union(*(given for _, given in self.groups.values()))
        return (inner & self.exposed) - kept

    def forget(self, ids: set[str]) -> None:
        """Take memories back that did not reach the prompt."""
        self.exposed -= ids
        for id_ in ids:
            self.documents.pop(id_, None)
        for _, given in self.groups.values():
            given.difference_update(ids)


@dataclass(slots=True)
class RunEntry:
    """One run: its root, and the outermost retriever that it is part of."""

    root: Root
    outer: UUID | None


class Runs:
    """The runs that the handlers of one store have seen."""

    def __init__(self) -> None:
        self._entries: OrderedDict[UUID, RunEntry] = OrderedDict()
        self._lock = threading.Lock()

    def start(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        *,
        retriever: bool = False,
        inputs: Any = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> RunEntry:
        """A run begins; below a run that is known, or as a root of its own."""
        with self._lock:
            entry = self._entries.get(run_id)
            if entry is not None:
                return entry
            parent = self._entries.get(parent_run_id) if parent_run_id is not None else None
            if parent is not None:
                entry = RunEntry(parent.root, parent.outer)
            else:
                metadata = metadata or {}
                root = Root(
                    run_id,
                    _episode_of_root(run_id, parent_run_id, metadata),
                    inputs,
                    tags or (),
                    metadata,
                    name,
                )
                entry = RunEntry(root, None)
            if retriever and entry.outer is None:
                entry = RunEntry(entry.root, run_id)
            self._entries[run_id] = entry
            while len(self._entries) > MAX_RUNS:
                self._entries.popitem(last=False)
        return entry

    def get(self, run_id: UUID | None) -> RunEntry | None:
        """A run that is known, or None."""
        return None if run_id is None else self._entries.get(run_id)

    def root(self, run_id: UUID | None) -> Root | None:
        """The root of a run; without an id, of the run that this code is called in."""
        entry = self.get(run_id)
        if entry is None:
            config = var_child_runnable_config.get()
            entry = self.get(getattr((config or {}).get("callbacks"), "parent_run_id", None))
        return None if entry is None else entry.root

    def episode(
        self, run_id: UUID | None = None, metadata: Mapping[str, Any] | None = None
    ) -> EpisodeKey | None:
        """The episode that a retrieval belongs to.

        In this order: named in the run's metadata, opened by `episode()` around the call, the root of the run.
        """
        root = self.root(run_id)
        aliases = () if root is None else (str(root.run_id),)
        named = (metadata or {}).get(EPISODE_KEY)
        if named is not None:
            return EpisodeKey(str(named), aliases)
        ambient = _ambient.get()
        if ambient is not None:
            return EpisodeKey(ambient.id, ambient.aliases + aliases, ambient.thread_id)
        return None if root is None else root.episode

    def __len__(self) -> int:
        return len(self._entries)


@contextmanager
def ambient_episode(episode: EpisodeKey) -> Iterator[None]:
    """Make an episode the one of everything that is called inside."""
    token = _ambient.set(episode)
    try:
        yield
    finally:
        _ambient.reset(token)


def _episode_of_root(
    run_id: UUID, parent_run_id: UUID | None, metadata: Mapping[str, Any]
) -> EpisodeKey:
    own = (str(run_id),)
    external = () if parent_run_id is None else (str(parent_run_id),)
    thread = metadata.get("thread_id")
    thread_id = None if thread is None else str(thread)
    if EPISODE_KEY in metadata:
        return EpisodeKey(str(metadata[EPISODE_KEY]), own + external, thread_id)
    ambient = _ambient.get()
    if ambient is not None:
        return EpisodeKey(ambient.id, own + external, ambient.thread_id or thread_id)
    return EpisodeKey(str(run_id), external, thread_id)
