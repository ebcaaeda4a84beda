"""What is known of one root run while it lasts: what was retrieved below it, and what of that reached the prompt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.documents import Document

from langchain_memoryworth.records import EpisodeKey


class Retrieved(NamedTuple):
    """What came out of one outermost retriever, or of the direct searches of one run.

    Attributes:
        inner: Ids that retrievers inside it gave.
        direct: Ids that searches of the store inside it gave.
        given: Ids that it gave itself.
    """

    inner: set[str]
    direct: set[str]
    given: set[str]


class Pause(NamedTuple):
    """Where a graph stopped to be resumed.

    Attributes:
        checkpoint_id: Empty if no lifecycle event named it.
    """

    thread_id: str
    checkpoint_id: str


# Containers start as dicts and tuples and not as sets: an empty set takes three times the memory, and there are as many
# roots as runs that never end.
@dataclass(slots=True, eq=False)
class Root:
    """The topmost run of an episode, and what is known of it so far.

    Attributes:
        open: No end of it was seen yet.
        named: Its episode was named by the user, and is not to be found out.
        again: Its run id was used before, by a run that ended.
        streamed: It is the root of an LCEL stream, whose early stop looks like success.
        written: Something of it stands in the ledger.
        asks: Its inputs are those of a graph that goes on, and nobody has said yet whether it does.
        resuming: It goes on with an episode that is still being looked up.
        exposed: Ids of the memories written down for it.
        retrieved: By the outermost retriever run, or by the run that searched directly.
        confirmed: Ids that a run said were shown.
        documents: What was shown, by id.
        pauses: By graph run, where it stopped.
        ended_for: The handlers that have seen the end.
        path: The tools called so far, see `paths.follow`, but for those that were taken, see `Runs.path_taken`.
    """

    run_id: UUID
    episode: EpisodeKey
    inputs: Any = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    open: bool = True
    named: bool = False
    again: bool = False
    streamed: bool = False
    written: bool = False
    paused: bool = False
    asks: bool = False
    resuming: bool = False
    exposed: dict[str, None] = field(default_factory=dict)
    retrieved: dict[UUID, Retrieved] = field(default_factory=dict)
    confirmed: frozenset[str] = frozenset()
    documents: dict[str, Document] = field(default_factory=dict)
    pauses: tuple[tuple[UUID, Pause], ...] = ()
    tool_errors: tuple[str, ...] = ()
    ended_for: tuple[int, ...] = ()
    path: tuple[str, ...] = ()

    def retrieval(self, run_id: UUID) -> Retrieved:
        """The entry of a retriever or searching run."""
        found = self.retrieved.get(run_id)
        if found is None:
            found = self.retrieved.setdefault(run_id, Retrieved(set(), set(), set()))
        return found

    def kept(self) -> set[str]:
        """All that any retrieval gave."""
        return set().union(*(r.given for r in tuple(self.retrieved.values())))

    def dropped(self, run_id: UUID) -> set[str]:
        """Memories that an outermost retriever got from inside but did not give, nor any other retrieval.

        Direct searches are different: a retriever that looks up parent documents by its hits gives none of the hits,
        though all of them speak through it. They count as dropped only where some of them were given.
        """
        inner, direct, given = self.retrieval(run_id)
        candidates = inner | direct if direct & given else inner
        return {i for i in candidates if i in self.exposed} - self.kept()

    def expose(self, ids: Iterable[str]) -> None:
        """Note what was written down."""
        self.written = True
        self.exposed.update(dict.fromkeys(ids))

    def unexpose(self, ids: Collection[str]) -> None:
        """Note that memories are written down no longer."""
        for id_ in ids:
            self.exposed.pop(id_, None)

    def forget(self, ids: Collection[str]) -> None:
        """Take memories back that did not reach the prompt."""
        self.unexpose(ids)
        for id_ in ids:
            self.documents.pop(id_, None)
        for retrieval in tuple(self.retrieved.values()):
            for group in retrieval:
                group.difference_update(ids)

    def narrow(self, ids: set[str], scopes: Iterable[Collection[UUID]]) -> set[str]:
        """A run says that exactly `ids` of what it retrieved were shown; returns what was not.

        Args:
            ids: What reached the prompt.
            scopes: The retrievals below the run that says so, then below its parent, and so on up to the root. The
                first that holds all of `ids` is meant, so that a branch does not speak for a parallel one.
        """
        known = ids & self.kept()
        inside: set[str] = set()
        within: Collection[UUID] = ()
        for within in scopes:
            inside = set().union(*(self.retrieved[r].given for r in within))
            if inside and known <= inside:
                break
        elsewhere = set().union(
            *(r.given for key, r in tuple(self.retrieved.items()) if key not in within)
        )
        dropped = inside - known - elsewhere - self.confirmed
        self.confirmed |= known
        return dropped

    def take_over(self, episode: EpisodeKey, documents: Sequence[Document]) -> None:
        """Go on with an episode that began before, which has these documents in front of the model."""
        before = {d.id: d for d in documents if d.id is not None}
        self.episode = episode
        self.documents = {**before, **self.documents}
        self.expose(before)
        self.retrieval(self.run_id).given.update(before)

    def slim(self) -> None:
        """Let go of everything but the identity; nothing may wait for it any more, see `Runs.hold`."""
        self.inputs, self.metadata, self.tags = None, {}, ()
        self.exposed, self.retrieved, self.documents = {}, {}, {}
        self.confirmed, self.tool_errors, self.path = frozenset(), (), ()
