"""The use cases: store a memory, recall, record what happened, restore, pin. No SQL and no formula.

Everything an adapter does goes through here, so that a rule holds whichever door the call came in by.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError, InvalidVectorError, StoreClosedError
from langchain_memoryworth.estimators.credit import reward_of
from langchain_memoryworth.estimators.use import checked_use
from langchain_memoryworth.ledger.database import Database, Session, retried
from langchain_memoryworth.ledger.engines import Durability
from langchain_memoryworth.ledger.episodes import Exposure, Ledger, Said
from langchain_memoryworth.ledger.governance import Governance
from langchain_memoryworth.ledger.group_commit import GroupCommit
from langchain_memoryworth.ledger.learnt import Learnt
from langchain_memoryworth.ledger.memories import Memories, NewMemory, Text, Version
from langchain_memoryworth.ledger.settings import Settings, check_dimension
from langchain_memoryworth.ledger.trials import Trials
from langchain_memoryworth.losses import Losses
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import (
    Arm,
    EpisodeKey,
    EpisodeRecord,
    Health,
    HeldBack,
    Hit,
    Memory,
    Namespace,
    Outcome,
    OutcomeKey,
    SearchExplanation,
    Status,
    namespace_key,
)
from langchain_memoryworth.service.analyst import Analyst
from langchain_memoryworth.service.carrier import Carrier
from langchain_memoryworth.service.outbox import Outbox
from langchain_memoryworth.service.recall import Query, Recall, Selected
from langchain_memoryworth.service.steward import Steward
from langchain_memoryworth.tracking.pauses import Pauses
from langchain_memoryworth.tracking.roots import Pause, Root
from langchain_memoryworth.tracking.runs import RunEntry, Runs, in_context
from langchain_memoryworth.vectors.graphs import Graphs
from langchain_memoryworth.vectors.index import KINDS, Kind
from langchain_memoryworth.vectors.pgvector_index import Mirror
from langchain_memoryworth.vectors.replica import Replica

_Ids = TypeVar("_Ids", bound=Iterable[str])


class Governor:
    """One open store, without an interface of LangChain around it.

    Thread-safe. Several governors, in this process or others, may work on one database.

    Args:
        url: SQLAlchemy URL of the database.
        embedding: Turns texts and queries into vectors.
        embedding_name: What to call the model when checking that a store is not mixed from two; None means that there is no
            model at hand, only the vectors that are stored.
        policy: Thresholds; None means those stored in the database, or the default ones.
        namespace: Where memories go and are looked for unless a call says otherwise.
        index: `flat` is exact, `hnsw` approximate, either with `-fp16` takes half the memory, `pgvector` searches in the
            Postgres itself.
        graph_folder: Where the graphs of `hnsw` are kept from one process to the next; None means beside the database, if
            that is a file.
        durability: See `Durability`.
        pool_size: Connections to a database server at most; None means 5.
        group_commit: If given, outcomes of several threads share a transaction, see `GroupCommit`.
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        url: str,
        embedding: Embeddings,
        *,
        embedding_name: str | None,
        policy: Policy | None = None,
        namespace: Namespace = (),
        index: Kind = "flat",
        graph_folder: os.PathLike[str] | str | None = None,
        durability: Durability = "normal",
        pool_size: int | None = None,
        group_commit: timedelta | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if index not in KINDS:
            raise InvalidInputError(
                f"index={index!r}; give {', '.join(map(repr, KINDS[:-1]))} or {KINDS[-1]!r}",
                value=index,
            )
        self.embedding = embedding
        self.namespace = namespace
        self.runs = Runs()
        self.losses = Losses()
        self.outbox = Outbox()
        self._clock = clock
        self.group = None if group_commit is None else GroupCommit(self._record, group_commit)
        self._database = Database(url, durability=durability, pool_size=pool_size)
        self._settings = Settings(self._database)
        mirror = Mirror(self._database)
        self._memories = Memories(self._database, mirror.write)
        self._ledger = Ledger(self._database)
        self._pauses = Pauses(self._database, self._ledger)
        self._governance = Governance(self._database)
        self._trials = Trials(self._database)
        engine = mirror if index == "pgvector" else None
        self._recall = Recall(self._database, self._memories)
        self._learnt = Learnt(self._database)
        self._closed = False
        self._analyst = Analyst(self._database, lambda: self.policy)
        self._steward = Steward(
            self._database, self._settings, lambda: self.policy, clock, self._learnt
        )
        self._carrier = Carrier(self._database, self._settings, clock, content_id, mirror.write)
        try:
            graphs = Graphs(index, self._database.name, self._database.file, graph_folder)
            self._replica = Replica(self._database, self._memories, index, graphs, engine)
            self._take_up(embedding_name, policy)
            if engine is not None:
                engine.prepare(self._dimension)
        except BaseException:
            self._database.close()
            raise

    def _take_up(self, embedding_name: str | None, policy: Policy | None) -> None:
        """Compare what the database knows of the model and the policy with what was given."""
        if embedding_name is not None:
            self._settings.check_name(embedding_name)
        self.embedding_name = embedding_name or self._settings.embedding_name() or ""
        self.policy = self._settings.adopt(policy, self._clock())
        self._dimension = self._settings.dimension()

    @property
    def url(self) -> str:
        """Where the database is, without a password."""
        return self._database.name

    def close(self) -> None:
        """Finish what is queued and close the database; a second call does nothing."""
        if not self._closed:
            self.outbox.close()
            self._replica.keep()
            self._closed = True
            if self.group is not None:
                self.group.close()
            self._database.close()

    def _ready(self) -> None:
        """Before any use: everything put in earlier is done."""
        if self._closed:
            raise StoreClosedError(f"the store on {self.url} is closed; open it again")
        if self._database.forked:
            self._after_fork()
        self.outbox.drain()

    def _after_fork(self) -> None:
        """Take nothing from the parent that cannot be shared: connections, threads, and the locks of threads."""
        self._database.after_fork()
        self.outbox = Outbox()
        if self.group is not None:
            self.group = GroupCommit(self._record, self.group.window)
        self._replica = self._replica.anew()
        self.runs.after_fork()
        self.losses.after_fork()

    def _refresh(self) -> None:
        self._ready()
        if self._replica.refresh():
            with self.losses.guard("a policy that another process set"):
                self.policy = self._settings.in_force()
            self._replica.forget()
        if self._dimension is None:
            self._dimension = self._settings.dimension()

    # -- memories ---------------------------------------------------------------------------------------------

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
        self._ready()
        namespace = self.namespace if namespace is None else namespace
        if not texts:
            return []
        matrix = unit_rows(vectors)
        if len(matrix) != len(texts):
            raise InvalidVectorError(
                f"{len(matrix)} vectors for {len(texts)} texts; check the embedding model"
            )
        if self._dimension is not None:
            check_dimension(matrix.shape[1], self._dimension)
        given = [
            content_id(namespace, t) if i is None else i for i, t in zip(ids, texts, strict=True)
        ]
        now = self._clock()
        end = _end(now, ttl)
        new = [NewMemory(*row, end) for row in zip(given, texts, metadatas, matrix, strict=True)]
        with self._database.write() as session:
            self._settings.check_embedding(session, self.embedding_name, matrix.shape[1])
            rule = self._settings.policy(session).quarantine
            self._memories.add(session, namespace, new, now, rule)
        return given

    @retried
    def retire(self, ids: Sequence[str] | None, namespace: Namespace | None = None) -> int:
        """Take memories out of service, None for all of the namespace; returns how many were there."""
        self._ready()
        wanted = None if ids is None else _listed(ids)
        return self._memories.retire(self._in(namespace), wanted, self._clock())

    def get(self, ids: Sequence[str], namespace: Namespace | None = None) -> dict[str, Memory]:
        """Memories by id; unknown ids are left out."""
        self._refresh()
        return self._memories.get(self._in(namespace), _listed(ids), self.policy, self._clock())

    def memory(self, memory_id: str, namespace: Namespace | None = None) -> Memory:
        """One memory.

        Raises:
            MemoryNotFoundError: If there is none by that id.
        """
        self._refresh()
        return self._memories.one(self._in(namespace), memory_id, self.policy, self._clock())

    def memories(
        self, status: Status | None = None, namespace: Namespace | None = None
    ) -> list[Memory]:
        """All memories, or those of one status, oldest first."""
        self._refresh()
        return self._memories.all(self._in(namespace), status, self.policy, self._clock())

    def _in(self, namespace: Namespace | None) -> Namespace:
        return self.namespace if namespace is None else namespace

    # -- recall -----------------------------------------------------------------------------------------------

    def recall(self, query: str, k: int, **options: Any) -> list[Hit]:
        """`recall_by_vector` of a text."""
        return self.recall_by_vector(self.embedding.embed_query(query), k, **options)

    async def arecall(self, query: str, k: int, **options: Any) -> list[Hit]:
        """`recall` that awaits the embedding and searches off the event loop."""
        vector = await self.embedding.aembed_query(query)
        return await run_in_executor(None, self.recall_by_vector, vector, k, **options)

    def recall_by_vector(
        self,
        vector: ArrayLike,
        k: int,
        *,
        namespace: Namespace | None = None,
        run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: str | None = None,
        track: bool = True,
        **options: Any,
    ) -> list[Hit]:
        """The memories to put in front of a model, written down for the run that asks.

        Args:
            vector: Shape (d,).
            k: At least 1.
            namespace: None means the store's own.
            run_id: The run that asks, as its callbacks name it; None means the one this code is called in.
            metadata: Of that run; `episode_id` in it names the episode, `memory_context` the kind of task.
            context: The kind of task, if the metadata are not to say it.
            track: False for looking without showing: nothing is written down and nothing explored.
            **options: As in `recall.Query`: rank, filter, min_similarity, diversity, fetch_k.

        Returns:
            At most k hits, best first; k of them whenever k may be served.
        """
        self._refresh()
        entry = self.runs.asking(run_id) if track else None
        episode = self.runs.episode(run_id, metadata) if track else None
        if episode is not None and context is not None:
            episode = replace(episode, context=context)
        query = self._query(vector, k, None if episode is None else episode.id, options)
        namespace = self._in(namespace)
        chosen = self._select(namespace, query)
        texts = self._deliver(chosen, namespace, episode, entry, run_id)
        chosen = [c for c in chosen if c.arm.reaches_model]
        if track and episode is None:
            self.losses.unknown_run()
        return _hits(chosen, texts)

    def explain_search(
        self, query: str, k: int, *, namespace: Namespace | None = None, **options: Any
    ) -> SearchExplanation:
        """What a query would get now, and what is held back from it; nothing is written down."""
        vector = self.embedding.embed_query(query)
        self._refresh()
        namespace = self._in(namespace)
        if self._dimension is None:
            return SearchExplanation((), ())
        asked = self._query(vector, k, None, options)
        space = self._replica.space(namespace, self._dimension, self.policy, self._clock())
        chosen = self._recall.select(space, asked, self.policy, self._clock())
        held = self._recall.held_back(space, asked, self.policy, chosen, self._clock())
        with self._database.read() as session:
            texts = self._memories.texts(session, [s.seq for s in (*chosen, *held)])
        known = self._memories.get(
            namespace, [t.id for t in texts.values()], self.policy, self._clock()
        )
        return SearchExplanation(
            tuple(_hits(chosen, texts)),
            tuple(
                self._held_back(hit, known[hit.id])
                for hit in _hits(held, texts)
                if hit.id in known  # not if it was deleted meanwhile
            ),
        )

    def _held_back(self, hit: Hit, memory: Memory) -> HeldBack:
        e = memory.evidence
        numbers = f"worth {e.worth:.2f} over {e.effective_size:g} retrievals"
        if memory.status is Status.QUARANTINED:
            reason = f"quarantined: {e.retrievals} of the outcomes that release it"
        elif memory.status is Status.WITHHELD:
            reason = f"withheld by a person until it is restored; {numbers}"
        else:
            reason = f"suppressed: {numbers}, below theta_low {self.policy.theta_low:g}"
        return HeldBack(hit.id, hit.text, hit.similarity, hit.score, e, reason)

    def _query(
        self, vector: ArrayLike, k: int, episode_id: str | None, options: Mapping[str, Any]
    ) -> Query:
        if not isinstance(k, int) or k < 1:
            raise InvalidInputError(f"k={k!r}; give a whole number of at least 1", value=k)
        unit = unit_row(vector)
        if self._dimension is not None:
            check_dimension(len(unit), self._dimension)
        rank = options.get("rank")
        if rank is not None:
            options = {**options, "rank": self.policy.with_rank(rank).rank}
        return Query(unit, k, episode_id=episode_id, **options)

    def _select(self, namespace: Namespace, query: Query) -> list[Selected]:
        if self._dimension is None:
            return []
        now = self._clock()
        space = self._replica.space(namespace, self._dimension, self.policy, now)
        chosen = self._recall.select(space, query, self.policy, now)
        if query.episode_id is not None and self.policy.record_held_back:
            held = self._recall.held_back(space, query, self.policy, chosen, now)
            chosen = [*chosen, *(h._replace(arm=Arm.HELD_BACK) for h in held)]
        return chosen

    def _deliver(
        self,
        chosen: Sequence[Selected],
        namespace: Namespace,
        episode: EpisodeKey | None,
        entry: RunEntry | None,
        run_id: UUID | None,
    ) -> dict[int, Text]:
        """The texts of what was chosen, and in the same transaction the record that they are shown."""
        seqs = [c.seq for c in chosen]
        if episode is not None and chosen:
            exposures = [
                Exposure(c.seq, rank, c.similarity, c.arm, c.propensity)
                for rank, c in enumerate(chosen)
            ]
            root = None if entry is None else entry.root
            with self.losses.guard("what a run retrieved"):
                texts = self._show(seqs, exposures, namespace, episode, root)
                if entry is not None:
                    shown = [c.seq for c in chosen if c.arm.reaches_model]
                    self.runs.searched(entry, run_id, [texts[s].id for s in shown if s in texts])
                return texts
        with self._database.read() as session:
            return self._memories.texts(session, seqs)

    @retried
    def _show(
        self,
        seqs: Sequence[int],
        exposures: Sequence[Exposure],
        namespace: Namespace,
        episode: EpisodeKey,
        root: Root | None,
    ) -> dict[int, Text]:
        with self._database.write(alone=False) as session:
            texts = self._memories.texts(session, seqs)
            # What was erased since the search is neither shown nor written down.
            exposures = [e for e in exposures if e.seq in texts]
            self._expose(session, namespace, episode, exposures, root)
        return texts

    def _expose(
        self,
        session: Session,
        namespace: Namespace,
        episode: EpisodeKey,
        exposures: Sequence[Exposure],
        root: Root | None,
    ) -> None:
        if (
            not episode.context
        ):  # nobody has named one; where some were learnt, the memories tell it
            near = [e.seq for e in exposures if e.arm is not Arm.HELD_BACK]
            if context := self._learnt.of(session, namespace, near):
                episode = replace(episode, context=context)
        begins = root is not None and not root.written and episode.id == str(root.run_id)
        policy = self._settings.policy(session)
        if self._ledger.expose(session, episode, exposures, policy, self._clock(), begins=begins):
            self.runs.reused += 1

    # -- runs -------------------------------------------------------------------------------------------------

    @retried
    def expose_documents(
        self, episode: EpisodeKey, documents: Iterable[Document], root: Root | None = None
    ) -> None:
        """Write down documents of another retriever, those of them that are memories of this store."""
        self._ready()
        ranked = {d.id: rank for rank, d in enumerate(documents) if d.id is not None}
        with self._database.write(alone=False) as session:
            found = self._memories.locate(session, list(ranked), self.namespace)
            # What the run retrieved from the store itself says which namespace an id is of.
            found |= self._ledger.retrieved(session, episode.id, ranked)
            if not found:
                return
            exposures = [Exposure(seq, ranked[id_], None) for id_, seq in found.items()]
            if root is not None:
                episode = in_context(episode, root.metadata)
            self._expose(session, self.namespace, episode, exposures, root)
        if root is not None:
            root.expose(found)

    @retried
    def expose_external(
        self,
        episode: EpisodeKey,
        digests: Mapping[str, str],
        shown: Mapping[str, Exposure],
        root: Root | None,
        namespace: Namespace | None = None,
    ) -> None:
        """Write down memories that live elsewhere, by their ids; `seq` in the exposures is not read."""
        self._ready()
        space = self._in(namespace)
        # Most are known, and then others may write beside this; only what is new needs to be alone.
        for alone in (False, True):
            with self._database.write(alone=alone) as session:
                place = (
                    self._memories.place(session, space, digests, self._clock())
                    if alone
                    else self._memories.placed(session, space, digests)
                )
                if len(place) < len(digests):
                    continue
                exposures = [e._replace(seq=place[i]) for i, e in shown.items()]
                self._expose(session, space, episode, exposures, root)
                return

    def versions(
        self, ids: Sequence[str], namespace: Namespace | None = None
    ) -> dict[str, list[Version]]:
        """All versions of some memories by id, and which of them are held back now."""
        self._refresh()
        with self._database.read() as session:
            return self._memories.versions(session, self._in(namespace), ids)

    def left_out(self, prefix: str, namespace: Namespace | None = None) -> int:
        """How many memories may be left out of an answer whose ids start with a text: held back, or in a trial."""
        self._refresh()
        place = self._in(namespace)
        with self._database.read() as session:
            held = self._memories.held_back(session, place, prefix)
            return held + self._trials.count(session, place, prefix)

    def begin_again(self, episode: EpisodeKey) -> None:
        """A run id is used again, after the run that had it ended: what comes is a new episode."""
        self._ready()
        with self._database.write(alone=False) as session:
            self._ledger.begin_again(session, episode, self._clock())

    def pause(self, episode: EpisodeKey, pause: Pause, at: float) -> None:
        """A run stopped, and may go on later from here."""
        self._ready()
        self._pauses.pause(episode, pause, at)

    def resume(
        self, root: Root, thread_id: str, checkpoints: Sequence[str], *, latest: bool
    ) -> None:
        """A run goes on with the episode that stopped at one of some checkpoints; see `Pauses.resume`."""
        self._ready()
        resumed = self._pauses.resume(
            root.episode, thread_id, checkpoints, self._clock(), latest=latest
        )
        if resumed is not None:
            root.take_over(*resumed)

    def hide(self, episode_id: str, ids: Iterable[str]) -> int:
        """Take back that memories were shown in an episode; returns how many it changed."""
        self._ready()
        wanted = set(ids)
        seqs = [s for s, id_ in self._ledger.shown(episode_id).items() if id_ in wanted]
        if not seqs:
            return 0
        return self._ledger.hide(episode_id, seqs, self._settings.policy, self._clock())

    def mark_used(self, episode_id: str, ids: Iterable[str] | Mapping[str, float]) -> None:
        """Write down which memories a run says that it used, or how much each."""
        self._ready()
        self._ledger.mark_used(
            episode_id, checked_use(_listed(ids)), self._settings.policy, self._clock()
        )

    def record_outcome(
        self,
        run_id: str,
        outcome: bool | float | Outcome | None,
        *,
        source: str,
        source_id: str = "",
        metric: str = "",
        used: Iterable[str] | Mapping[str, float] | None = None,
    ) -> bool:
        """Write down what happened in a run, None to withdraw it; False if that was known already.

        Raises:
            InvalidOutcomeError: If the outcome is no bool and no reward in [0, 1].
            UnknownRunError: If no episode has that id.
            InvalidInputError: If `used` names a memory that was not retrieved in the run.
        """
        self._ready()
        key = _outcome_key(source, source_id, metric)
        said = Said(str(run_id), key, _checked(outcome, used))
        if self.group is not None:
            return self.group.do(said)
        return self._ledger.record(said, policy=self._settings.policy, now=self._clock())

    def record_outcomes(
        self,
        outcomes: Iterable[tuple[Any, bool | float | Outcome | None]],
        *,
        source: str,
        source_id: str = "",
        metric: str = "",
    ) -> list[bool]:
        """`record_outcome` for many runs in one transaction: all are written down, or none."""
        self._ready()
        key = _outcome_key(source, source_id, metric)
        said = [Said(str(run_id), key, _checked(outcome, None)) for run_id, outcome in outcomes]
        return self._record(said) if said else []

    def _record(self, said: Sequence[Said]) -> list[bool]:
        return self._ledger.record_many(said, policy=self._settings.policy, now=self._clock())

    def record_judgement(
        self,
        run_id: str,
        judgement: bool | float | Outcome | Mapping[str, bool | float | Outcome | None] | None,
        *,
        source: str,
        source_id: str = "",
    ) -> None:
        """Write down what an outcome function says: an outcome, or one for each metric; None means not known."""
        by_metric = judgement if isinstance(judgement, Mapping) else {"": judgement}
        for metric, outcome in by_metric.items():
            if outcome is not None:
                self.record_outcome(
                    run_id, outcome, source=source, source_id=source_id, metric=metric
                )

    def shown_documents(self, episode_id: str) -> list[Document]:
        """What an episode has in front of the model, in the order in which it was first shown."""
        self._ready()
        seqs = list(self._ledger.shown(episode_id))
        with self._database.read() as session:
            texts = self._memories.texts(session, seqs)
        return [
            Document(id=texts[s].id, page_content=texts[s].text, metadata=dict(texts[s].metadata))
            for s in seqs
            if s in texts  # not if it was erased meanwhile
        ]

    def episode(self, run_id: str) -> EpisodeRecord:
        """One run with its exposures and outcomes.

        Raises:
            UnknownRunError: If no episode has that id.
        """
        self._ready()
        return self._ledger.episode(str(run_id))

    def said_by(self, source: str, since: datetime | None) -> list[tuple[str, OutcomeKey]]:
        """The outcomes in force of one source, of episodes that began at or after a time: episode id and key."""
        self._ready()
        return self._ledger.said_by(source, float("-inf") if since is None else since.timestamp())

    def run_ids(self) -> list[str]:
        """Every id by which `record_outcome` finds an episode."""
        self._ready()
        return self._ledger.run_ids()

    def now(self) -> datetime:
        """The time of this store's clock."""
        return datetime.fromtimestamp(self._clock(), UTC)

    def pending(self, limit: int) -> list[EpisodeRecord]:
        """Runs that still wait for an outcome, oldest first."""
        self._ready()
        return self._ledger.open_episodes(self._pending_since(), limit)

    def _pending_since(self) -> float:
        return self._clock() - self.policy.pending_age.total_seconds()

    # -- governance -------------------------------------------------------------------------------------------

    def restore(
        self, ids: Sequence[str], *, actor: str, reason: str, namespace: Namespace | None = None
    ) -> None:
        """Serve memories again; only what happens from now on can suppress them again."""
        self._ready()
        self._governance.restore(self._in(namespace), ids, actor, reason, self._clock())

    def pin(
        self, ids: Sequence[str], *, actor: str, reason: str, namespace: Namespace | None = None
    ) -> None:
        """Never hold memories back, whatever the evidence says."""
        self._ready()
        self._governance.pin(self._in(namespace), ids, actor, reason, self._clock())

    def unpin(
        self, ids: Sequence[str], *, actor: str, reason: str, namespace: Namespace | None = None
    ) -> None:
        """Leave memories to the policy again."""
        self._ready()
        self._governance.unpin(
            self._in(namespace), ids, actor, reason, self._settings.policy, self._clock()
        )

    @property
    def steward(self) -> Steward:
        """What people do who look after the store, on the present state of the database."""
        self._refresh()
        return self._steward

    @property
    def analyst(self) -> Analyst:
        """Reports, on the present state of the database."""
        self._refresh()
        return self._analyst

    @property
    def carrier(self) -> Carrier:
        """Export and import, on the present state of the database."""
        self._refresh()
        return self._carrier

    def health(self) -> Health:
        """Counts of the database, and what could not be recorded since this governor was opened."""
        self._refresh()
        by_status = self._governance.counts()
        episodes, pending, expired = self._ledger.counts(self._pending_since())
        return Health(
            memories=sum(by_status.values()),
            suppressed=by_status.get(Status.SUPPRESSED, 0),
            withheld=by_status.get(Status.WITHHELD, 0),
            pinned=by_status.get(Status.PINNED, 0),
            quarantined=by_status.get(Status.QUARANTINED, 0),
            deprecated=by_status.get(Status.DEPRECATED, 0),
            episodes=episodes,
            pending=pending,
            expired=expired,
            unattributed=self.losses.unattributed,
            reused=self.runs.reused,
            abandoned=self.runs.abandoned,
            loud=self._steward.loud(),
            waited=self.outbox.waited,
            exact_searches=self._replica.exact,
            failures=self.losses.failures,
            last_failure=self.losses.last,
        )


def governor_of(store: Any) -> Governor:
    """The governor behind whatever a user calls the store.

    Raises:
        InvalidInputError: If there is none.
    """
    governor = store if isinstance(store, Governor) else getattr(store, "governor", None)
    if not isinstance(governor, Governor):
        raise InvalidInputError(f"{store!r} is no store; give a MemoryWorthStore", value=store)
    return governor


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


def _listed(ids: _Ids) -> _Ids:
    """Ids as they are, but no single string: it would be taken letter by letter."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInputError(f"{ids!r} is no list; give a list of memory ids", value=ids)
    return ids


def _checked(
    outcome: bool | float | Outcome | None, used: Iterable[str] | Mapping[str, float] | None
) -> Outcome | None:
    if isinstance(outcome, Outcome):
        used = outcome.used if used is None else used
        outcome = reward_of(outcome.reward)
    if outcome is None:
        return None
    return Outcome(reward_of(outcome), None if used is None else checked_use(_listed(used)))


def _outcome_key(source: str, source_id: str, metric: str) -> OutcomeKey:
    key = OutcomeKey(source, source_id, metric)
    if not all(isinstance(part, str) for part in key) or not source:
        raise InvalidInputError(
            f"source={source!r}, source_id={source_id!r}, metric={metric!r}; give a name such as "
            "'user', and texts",
            value=source,
        )
    return key


def _hits(chosen: Sequence[Selected], texts: Mapping[int, Text]) -> list[Hit]:
    return [
        Hit(
            id=texts[c.seq].id,
            seq=c.seq,
            text=texts[c.seq].text,
            metadata=texts[c.seq].metadata,
            similarity=c.similarity,
            score=c.score,
            arm=c.arm,
            propensity=c.propensity,
        )
        for c in chosen
        if c.seq in texts
    ]
