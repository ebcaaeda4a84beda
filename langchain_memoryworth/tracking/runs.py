"""Which episode am I in: from run ids to root runs, in memory, bounded, for many threads.

Built from start events alone, because an end does not say whose child it was. The root is the topmost run that a handler
has seen. A finished root stays as a tombstone, so that what its children do late is not taken for a new run.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config

from langchain_memoryworth.estimators.paths import Path, follow
from langchain_memoryworth.records import EpisodeKey
from langchain_memoryworth.tracking.roots import Root

EPISODE_KEY = "episode_id"
"""Key in a run's metadata that names the episode it belongs to."""

CONTEXT_KEY = "memory_context"
"""Key in a run's metadata that names the kind of task that what it retrieves is for."""

MAX_RUNS = 32_768
"""Runs remembered at once, those idle for longest are forgotten first; about 0.9 kB each."""

MAX_OPEN_ROOTS = 8_192
"""Roots that may be open at once; beyond it the oldest is taken to have been abandoned."""

RECENT_ROOTS = 64
"""Ended roots that keep their inputs and documents though nothing about them waits any more: children may be late."""

_ambient: ContextVar[EpisodeKey | None] = ContextVar("memory_worth_episode", default=None)

# The retriever that this code is part of: LangChain has no variable for it, and retrievers that search a vector store
# themselves (parent documents, time-weighted) do it without naming their run.
_retriever: ContextVar[UUID | None] = ContextVar("memory_worth_retriever", default=None)


@dataclass(slots=True, eq=False)
class RunEntry:
    """One run.

    Attributes:
        root: Its root.
        parent: Its parent, if that was seen.
        outer: The outermost retriever that it is part of.
        late: It began when its root had ended.
        thread_id: The conversation that it belongs to.
        around: For a retriever, the one around it.
        left: It is a retriever that has ended.
    """

    root: Root
    parent: UUID | None
    outer: UUID | None
    late: bool
    thread_id: str | None
    around: UUID | None = None
    left: bool = False


class Runs:
    """The runs that the handlers of one store have seen."""

    def __init__(self) -> None:
        self._entries: OrderedDict[UUID, RunEntry] = OrderedDict()
        self._open: OrderedDict[UUID, Root] = OrderedDict()
        self._ended: deque[Root] = deque()
        self.after_fork()
        self.abandoned = 0
        self.reused = 0

    def after_fork(self) -> None:
        """A lock that no thread holds: one of the parent's may have held the old one. What waits is done by the parent."""
        self._lock = threading.Lock()
        self._held: Counter[Root] = Counter()
        self._past: set[Root] = set()

    # -- begin and end ----------------------------------------------------------------------------------------

    def start(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        *,
        retriever: bool = False,
        tool: str | None = None,
        streamed: bool = False,
        inputs: Any = None,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> RunEntry:
        """A run begins, maybe of the tool of that name; below a run that is known, or as a root of its own."""
        thread = None if metadata is None else metadata.get("thread_id")
        thread_id = None if thread is None else str(thread)
        with self._lock:
            known = self._entries.get(run_id)
            if known is not None and not self._begins_anew(run_id, known):
                return known
            parent = self._parent(parent_run_id)
            if parent is not None:
                entry = RunEntry(
                    parent.root, parent_run_id, parent.outer, not parent.root.open, thread_id
                )
                # What lives is kept: a long run is not forgotten for the many short ones beside it.
                self._entries.move_to_end(parent.root.run_id)
            else:
                metadata = metadata or {}
                key = _episode_of_root(run_id, parent_run_id, metadata, thread_id)
                root = Root(run_id, key, inputs, tags or (), metadata, name)
                root.again, root.streamed = known is not None, streamed
                root.named = key.id != str(run_id)
                entry = RunEntry(root, None, None, late=False, thread_id=thread_id)
                self._open[run_id] = root
            if retriever:
                entry.outer = entry.outer or run_id
                entry.around = None if parent is None else self._inside()
                _retriever.set(run_id)
            if tool is not None and not entry.late:
                entry.root.path = follow(entry.root.path, (tool,))
            self._entries[run_id] = entry
            self._bound()
        return entry

    def end(self, root: Root) -> None:
        """A root has ended; what begins below it from now on is late."""
        with self._lock:
            root.open = False
            if self._open.pop(root.run_id, None) is not None:
                self._ended.append(root)

    def hold(self, root: Root) -> None:
        """Something about a root has to be done yet, and needs what is known of it."""
        with self._lock:
            self._held[root] += 1

    def release(self, root: Root) -> None:
        """One piece of it is done."""
        with self._lock:
            self._held[root] -= 1
            if self._held[root] > 0:
                return
            del self._held[root]
            if root in self._past:
                self._past.remove(root)
                root.slim()

    def _begins_anew(self, run_id: UUID, known: RunEntry) -> bool:
        """Whether a run id that starts once more is another run: its root had ended, and not to be resumed."""
        root = known.root
        if root.run_id != run_id or root.open:
            return False
        if root.paused:
            root.open, root.paused, root.pauses, root.ended_for = True, False, (), ()
            self._open[run_id] = root
            return False
        self.reused += 1
        return True

    def _parent(self, parent_run_id: UUID | None) -> RunEntry | None:
        if parent_run_id is not None:
            parent = self._entries.get(parent_run_id)
            if parent is not None:
                self._entries.move_to_end(parent_run_id)
            return parent
        # The alternatives of `with_fallbacks` start without a parent (langchain#36072), as do calls in a node that are
        # given the handler once more; LangChain's own variable still says which run this code is part of.
        calling = self.get(_calling())
        return calling if calling is not None and calling.root.open else None

    def _bound(self) -> None:
        while len(self._entries) > MAX_RUNS:
            self._entries.popitem(last=False)
        while len(self._open) > MAX_OPEN_ROOTS:
            _, root = self._open.popitem(last=False)
            root.open = False
            self._let_go(root)
            self.abandoned += 1
        while len(self._ended) > RECENT_ROOTS:
            self._let_go(self._ended.popleft())

    def _let_go(self, root: Root) -> None:
        if root in self._held:
            self._past.add(root)
        else:
            root.slim()

    # -- look up ----------------------------------------------------------------------------------------------

    def get(self, run_id: UUID | None) -> RunEntry | None:
        """A run that is known, or None."""
        return None if run_id is None else self._entries.get(run_id)

    def asking(self, run_id: UUID | None) -> RunEntry | None:
        """The run that retrieves: the one named, or without a name the one that this code is called in.

        None if nobody has seen it, or if it began after its root had ended.
        """
        if run_id is not None:
            entry = self._entries.get(run_id)
            return None if entry is None or entry.late else entry
        for place in (self._inside(), _calling()):
            entry = self.get(place)
            if entry is not None and entry.root.open:
                return entry
        return None

    def root(self, run_id: UUID | None) -> Root | None:
        """The root of `asking`."""
        entry = self.asking(run_id)
        return None if entry is None else entry.root

    def episode(
        self, run_id: UUID | None = None, metadata: Mapping[str, Any] | None = None
    ) -> EpisodeKey | None:
        """The episode that a retrieval belongs to.

        In this order: named in the run's metadata, opened by `episode()` around the call, the root of the run. Its context
        is what the metadata say, of the run or else of its root.
        """
        root = self.root(run_id)
        found = self._episode(root, metadata or {})
        if found is None or root is None:
            return found if found is None else in_context(found, metadata or {})
        return in_context(found, {**root.metadata, **(metadata or {})})

    def _episode(self, root: Root | None, metadata: Mapping[str, Any]) -> EpisodeKey | None:
        # Not if the run has an episode of its own already: its feedback belongs there.
        aliases = () if root is None or root.written else (str(root.run_id),)
        named = metadata.get(EPISODE_KEY)
        if named is not None:
            return EpisodeKey(str(named), aliases)
        ambient = _ambient.get()
        if ambient is not None:
            return replace(ambient, aliases=ambient.aliases + aliases) if aliases else ambient
        return None if root is None else root.episode

    @contextmanager
    def path_taken(self) -> Iterator[Path | None]:
        """The tools called so far in the run that this code is part of; None if nobody sees it.

        Each is given once, unless what is done with it inside fails.
        """
        root = self.root(None)
        path = None if root is None else root.path
        yield path
        if root is not None and path:
            with self._lock:
                # A branch beside this one may have taken it, too.
                if root.path[: len(path)] == path:
                    root.path = root.path[len(path) :]

    def searched(self, entry: RunEntry, run_id: UUID | None, ids: Sequence[str]) -> None:
        """Note what a run got from the store, under the retriever or else the run that it is part of."""
        entry.root.expose(ids)
        if run_id is None:
            place = entry.outer or _calling() or entry.root.run_id
            retrieval = entry.root.retrieval(place)
            (retrieval.given if entry.outer is None else retrieval.direct).update(ids)

    def scopes(self, run_id: UUID, root: Root) -> Iterator[list[UUID]]:
        """The retrievals of a root that are below a run, then those below its parent, and so on upwards."""
        above = {r: set(self._upwards(r)) for r in tuple(root.retrieved)}
        for scope in self._upwards(run_id):
            yield [r for r, ancestors in above.items() if scope in ancestors]

    def _inside(self) -> UUID | None:
        """The retriever that this code is part of.

        The variable is never reset: LangChain reports the end of an async retriever from a task of its own.
        """
        run_id = _retriever.get()
        while run_id is not None:
            entry = self._entries.get(run_id)
            if entry is None or not entry.left:
                break
            run_id = entry.around
        return run_id

    def _upwards(self, run_id: UUID | None) -> Iterator[UUID]:
        while run_id is not None:
            yield run_id
            entry = self._entries.get(run_id)
            run_id = None if entry is None else entry.parent

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


def in_context(episode: EpisodeKey, metadata: Mapping[str, Any]) -> EpisodeKey:
    """An episode with the context that a run's metadata name, if they do."""
    context = metadata.get(CONTEXT_KEY)
    return episode if context is None else replace(episode, context=str(context))


def _calling() -> UUID | None:
    config = var_child_runnable_config.get()
    return None if config is None else getattr(config.get("callbacks"), "parent_run_id", None)


def _around(parent_run_id: UUID | None) -> tuple[str, ...]:
    """Ids of what a root is part of that no handler has seen: its parent, and the LangSmith runs around that."""
    if parent_run_id is None:
        return ()
    ids = {str(parent_run_id): None}
    langsmith = sys.modules.get("langsmith.run_helpers")  # what nobody has imported traces nothing
    tree = None if langsmith is None else langsmith.get_current_run_tree()
    while tree is not None:
        ids |= {str(tree.id): None, str(tree.trace_id): None}
        tree = tree.parent_run
    return tuple(ids)


def _episode_of_root(
    run_id: UUID, parent_run_id: UUID | None, metadata: Mapping[str, Any], thread_id: str | None
) -> EpisodeKey:
    own, external = (str(run_id),), _around(parent_run_id)
    if EPISODE_KEY in metadata:
        return EpisodeKey(str(metadata[EPISODE_KEY]), own + external, thread_id)
    ambient = _ambient.get()
    if ambient is not None:
        return EpisodeKey(ambient.id, own + external, ambient.thread_id or thread_id)
    return EpisodeKey(str(run_id), external, thread_id)
