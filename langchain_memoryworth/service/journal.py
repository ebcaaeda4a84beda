"""What happened in runs: what each had in front of the model, and how it went. No SQL and no formula."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from langchain_core.documents import Document

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.credit import reward_of
from langchain_memoryworth.estimators.paths import Path
from langchain_memoryworth.estimators.use import checked_use
from langchain_memoryworth.ledger.database import retried, retried_if_undone
from langchain_memoryworth.ledger.learnt import Asked, Learnt
from langchain_memoryworth.ledger.recording import Exposure, Said
from langchain_memoryworth.ledger.session import Session
from langchain_memoryworth.records import (
    Arm,
    EpisodeKey,
    EpisodeRecord,
    Namespace,
    Outcome,
    OutcomeKey,
)
from langchain_memoryworth.service.open_store import OpenStore, listed
from langchain_memoryworth.tracking.pauses import Pauses
from langchain_memoryworth.tracking.roots import Pause, Root
from langchain_memoryworth.tracking.runs import in_context


class Journal:
    """Exposures and outcomes of episodes; ask for it with `governor.journal`.

    Args:
        store: Where they are written down.
        learnt: The contexts that are told where nobody names one.
    """

    def __init__(self, store: OpenStore, learnt: Learnt) -> None:
        self._store = store
        self._database = store.database
        self._settings = store.settings
        self._memories = store.memories
        self._ledger = store.ledger
        self._pauses = Pauses(store.database, store.ledger)
        self._learnt = learnt

    def expose(
        self,
        session: Session,
        namespace: Namespace,
        episode: EpisodeKey,
        exposures: Sequence[Exposure],
        root: Root | None,
        asked: Asked | None = None,
    ) -> None:
        """Write down in a transaction what an episode has in front of the model, in the context that is known or learnt."""
        if not episode.context:  # nobody has named one; some may have been learnt
            near = [e.seq for e in exposures if e.arm is not Arm.HELD_BACK]
            if context := self._learnt.of(session, namespace, near, asked):
                episode = replace(episode, context=context)
        begins = root is not None and not root.written and episode.id == str(root.run_id)
        policy = self._settings.policy(session)
        if self._ledger.expose(
            session, episode, exposures, policy, self._store.clock(), begins=begins
        ):
            self._store.runs.reused += 1

    @retried
    def expose_documents(
        self, episode: EpisodeKey, documents: Iterable[Document], root: Root | None = None
    ) -> None:
        """Write down documents of another retriever, those of them that are memories of this store."""
        self._store.ready()
        ranked = {d.id: rank for rank, d in enumerate(documents) if d.id is not None}
        with self._database.write(alone=False) as session:
            found = self._memories.locate(session, list(ranked), self._store.namespace)
            # What the run retrieved from the store itself says which namespace an id is of.
            found |= self._ledger.retrieved(session, episode.id, ranked)
            if not found:
                return
            exposures = [Exposure(seq, ranked[id_], None) for id_, seq in found.items()]
            if root is not None:
                episode = in_context(episode, root.metadata)
            self.expose(session, self._store.namespace, episode, exposures, root)
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
        self._store.ready()
        space = self._store.place(namespace)
        # Most are known, and then others may write beside this; only what is new needs to be alone.
        for alone in (False, True):
            with self._database.write(alone=alone) as session:
                place = (
                    self._memories.place(session, space, digests, self._store.clock())
                    if alone
                    else self._memories.placed(session, space, digests)
                )
                if len(place) < len(digests):
                    continue
                exposures = [e._replace(seq=place[i]) for i, e in shown.items()]
                self.expose(session, space, episode, exposures, root)
                return

    @retried_if_undone
    def begin_again(self, episode: EpisodeKey) -> None:
        """A run id is used again, after the run that had it ended: what comes is a new episode."""
        self._store.ready()
        with self._database.write(alone=False) as session:
            self._ledger.begin_again(session, episode, self._store.clock())

    def pause(self, episode: EpisodeKey, pause: Pause, at: float, path: Path = ()) -> None:
        """A run stopped after these tools, and may go on later from here."""
        self._store.ready()
        self._pauses.pause(episode, pause, at, path)

    def resume(
        self, root: Root, thread_id: str, checkpoints: Sequence[str], *, latest: bool
    ) -> None:
        """A run goes on with the episode that stopped at one of some checkpoints; see `Pauses.resume`."""
        self._store.ready()
        resumed = self._pauses.resume(
            root.episode, thread_id, checkpoints, self._store.clock(), latest=latest
        )
        if resumed is not None:
            root.take_over(*resumed)

    def hide(self, episode_id: str, ids: Iterable[str]) -> int:
        """Take back that memories were shown in an episode; returns how many it changed."""
        self._store.ready()
        wanted = set(ids)
        seqs = [s for s, id_ in self._ledger.shown(episode_id).items() if id_ in wanted]
        if not seqs:
            return 0
        return self._ledger.hide(episode_id, seqs, self._settings.policy, self._store.clock())

    def mark_used(self, episode_id: str, ids: Iterable[str] | Mapping[str, float]) -> None:
        """Write down which memories a run says that it used, or how much each."""
        self._store.ready()
        self._ledger.mark_used(
            episode_id, checked_use(listed(ids)), self._settings.policy, self._store.clock()
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
        path: Path = (),
    ) -> bool:
        """Write down what happened in a run, None to withdraw it, and its tools; False if the outcome was known already.

        Raises:
            InvalidOutcomeError: If the outcome is no bool and no reward in [0, 1].
            UnknownRunError: If no episode has that id.
            InvalidInputError: If `used` names a memory that was not retrieved in the run.
        """
        self._store.ready()
        key = _outcome_key(source, source_id, metric)
        said = Said(str(run_id), key, _checked(outcome, used), path)
        if self._store.group is not None:
            return self._store.group.do(said)
        return self._ledger.record(said, policy=self._settings.policy, now=self._store.clock())

    def record_outcomes(
        self,
        outcomes: Iterable[tuple[Any, bool | float | Outcome | None]],
        *,
        source: str,
        source_id: str = "",
        metric: str = "",
    ) -> list[bool]:
        """`record_outcome` for many runs in one transaction: all are written down, or none."""
        self._store.ready()
        key = _outcome_key(source, source_id, metric)
        said = [Said(str(run_id), key, _checked(outcome, None)) for run_id, outcome in outcomes]
        return self._store.settle(said) if said else []

    def record_judgement(
        self,
        run_id: str,
        judgement: bool | float | Outcome | Mapping[str, bool | float | Outcome | None] | None,
        *,
        source: str,
        source_id: str = "",
        path: Path = (),
    ) -> None:
        """Write down what an outcome function says, and the tools of the run: an outcome, or one for each metric.

        None means not known.
        """
        by_metric = judgement if isinstance(judgement, Mapping) else {"": judgement}
        known = {metric: outcome for metric, outcome in by_metric.items() if outcome is not None}
        for metric, outcome in known.items():
            self.record_outcome(
                run_id, outcome, source=source, source_id=source_id, metric=metric, path=path
            )
        if not known:
            self.keep_path(run_id, path)

    def keep_path(self, run_id: str, path: Path) -> None:
        """Write down which tools a run called, where nothing else is written that could carry it."""
        if path:
            self._store.ready()
            self._ledger.keep_path(run_id, path)

    def shown_documents(self, episode_id: str) -> list[Document]:
        """What an episode has in front of the model, in the order in which it was first shown."""
        self._store.ready()
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
        self._store.ready()
        return self._ledger.episode(str(run_id))

    def said_by(self, source: str, since: datetime | None) -> list[tuple[str, OutcomeKey]]:
        """The outcomes in force of one source, of episodes that began at or after a time: episode id and key."""
        self._store.ready()
        return self._ledger.said_by(source, float("-inf") if since is None else since.timestamp())

    def run_ids(self) -> list[str]:
        """Every id by which `record_outcome` finds an episode."""
        self._store.ready()
        return self._ledger.run_ids()

    def pending(self, limit: int) -> list[EpisodeRecord]:
        """Runs that still wait for an outcome, oldest first."""
        self._store.ready()
        return self._ledger.open_episodes(self._store.pending_since(), limit)


def _checked(
    outcome: bool | float | Outcome | None, used: Iterable[str] | Mapping[str, float] | None
) -> Outcome | None:
    if isinstance(outcome, Outcome):
        used = outcome.used if used is None else used
        outcome = reward_of(outcome.reward)
    if outcome is None:
        return None
    return Outcome(reward_of(outcome), None if used is None else checked_use(listed(used)))


def _outcome_key(source: str, source_id: str, metric: str) -> OutcomeKey:
    key = OutcomeKey(source, source_id, metric)
    if not all(isinstance(part, str) for part in key) or not source:
        raise InvalidInputError(
            f"source={source!r}, source_id={source_id!r}, metric={metric!r}; give a name such as "
            "'user', and texts",
            value=source,
        )
    return key
