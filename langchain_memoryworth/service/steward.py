"""The use cases of the people who look after a store: explain, review, decide, erase. No SQL and no formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.estimators.hitchhikers import Companions
from langchain_memoryworth.ledger import lists, pairs, standing
from langchain_memoryworth.ledger.audit import Audit, Settlement
from langchain_memoryworth.ledger.erasure import Erasure
from langchain_memoryworth.ledger.governance import Governance
from langchain_memoryworth.ledger.learnt import Learnt
from langchain_memoryworth.ledger.recording import Said
from langchain_memoryworth.ledger.retention import Retention, cutoff
from langchain_memoryworth.ledger.trials import Trials
from langchain_memoryworth.ledger.voices import Voices, shares
from langchain_memoryworth.progress import Progress, unwatched, watched
from langchain_memoryworth.records import (
    Action,
    Compacted,
    Erased,
    LearntContext,
    Namespace,
    PoolPrior,
    SourceShare,
)
from langchain_memoryworth.service.open_store import OpenStore

NEWEST = 1_000
"""Runs that `loud` looks at: health is asked often."""


class Steward:
    """What a governor offers beyond serving; ask for it with `governor.steward`, which brings it up to date.

    Args:
        store: What is looked after.
        learnt: The contexts that the governor tells.
    """

    def __init__(self, store: OpenStore, learnt: Learnt) -> None:
        self._store = store
        self._database = store.database
        self._settings = store.settings
        self._memories = store.memories
        self._ledger = store.ledger
        self._governance = Governance(store.database)
        self._trials = Trials(store.database)
        self._erasure = Erasure(store.database)
        self._audit = Audit(store.database)
        self._retention = Retention(store.database)
        self._voices = Voices(store.database)
        self._learnt = learnt

    # -- contexts ---------------------------------------------------------------------------------------------

    def learn_contexts(self, namespace: Namespace, episodes: int) -> tuple[LearntContext, ...]:
        """Learn from the latest episodes which kinds of tasks there are; see `Learnt.learn`."""
        return self._learnt.learn(namespace, episodes)

    def learn_topics(
        self, namespace: Namespace, queries: NDArray[np.float32], count: int, *, sessions: bool
    ) -> tuple[LearntContext, ...]:
        """Learn from queries which kinds of tasks there are; see `Learnt.learn_topics`."""
        return self._learnt.learn_topics(namespace, queries, count, sessions=sessions)

    def drop_contexts(self, namespace: Namespace) -> None:
        """Tell no learnt context any more."""
        self._learnt.drop(namespace)

    def learn_prior(self, namespace: Namespace) -> PoolPrior:
        """Fit what a namespace says of new memories; see `Settings.learn_prior`."""
        return self._store.settings.learn_prior(namespace, self._store.clock())

    # -- decisions --------------------------------------------------------------------------------------------

    def deprecate(
        self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str
    ) -> None:
        """Take memories out of service, and keep them for the record."""
        self._governance.deprecate(namespace, ids, actor, reason, self._store.clock())

    def suppress(
        self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str
    ) -> None:
        """Hold memories back until a person restores them."""
        self._governance.suppress(namespace, ids, actor, reason, self._store.clock())

    def restore(self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str) -> None:
        """Serve memories again; only what happens from now on can suppress them again."""
        self._governance.restore(namespace, ids, actor, reason, self._store.clock())

    def pin(self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str) -> None:
        """Never hold memories back, whatever the evidence says."""
        self._governance.pin(namespace, ids, actor, reason, self._store.clock())

    def unpin(self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str) -> None:
        """Leave memories to the policy again."""
        self._governance.unpin(
            namespace, ids, actor, reason, self._settings.policy, self._store.clock()
        )

    def hold_out(
        self, namespace: Namespace, ids: Sequence[str], rate: float, *, actor: str, reason: str
    ) -> None:
        """Begin a trial of memories; see `Trials.begin`."""
        self._trials.begin(namespace, ids, rate, actor, reason, self._store.clock())

    def end_hold_out(
        self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str
    ) -> None:
        """End a trial of memories; see `Trials.end`."""
        self._trials.end(namespace, ids, actor, reason, self._store.clock())

    def trials(self, namespace: Namespace) -> dict[str, float]:
        """The memories in a trial, and their rates."""
        return self._trials.running(namespace)

    def learn_pairs(self, namespace: Namespace) -> tuple[Companions, ...]:
        """Find the habitual pairs that the policy's diversity floor is to break; see `pairs.learn`."""
        return pairs.learn(self._database, namespace, self._store.policy, self._store.clock())

    def undo(self, number: int, *, actor: str, reason: str) -> Action:
        """Take a change of status back; see `Governance.undo`."""
        return self._governance.undo(number, actor, reason, self._store.clock())

    def history(self, namespace: Namespace, memory_id: str) -> tuple[Action, ...]:
        """Everything decided about a memory, oldest first."""
        return tuple(self._governance.history(namespace, memory_id))

    def actions(self, limit: int) -> tuple[Action, ...]:
        """The newest actions on all memories, newest first."""
        return tuple(self._governance.actions(limit))

    # -- erasure ----------------------------------------------------------------------------------------------

    def erase(self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str) -> Erased:
        """Erase memories by id."""
        return self._erased(self._erasure.ids(namespace, ids, actor, reason, self._store.clock()))

    def erase_namespace(
        self, namespace: Namespace, *, below: bool, actor: str, reason: str
    ) -> Erased:
        """Erase a namespace, and with `below` those under it."""
        count = self._erasure.namespace(namespace, below, actor, reason, self._store.clock())
        return self._erased(count)

    def erase_subject(self, subject: Mapping[str, Any], *, actor: str, reason: str) -> Erased:
        """Erase what has this metadata, in every namespace."""
        return self._erased(self._erasure.subject(subject, actor, reason, self._store.clock()))

    def scrub(self) -> bool:
        """Write the database file anew without what was erased; False if others keep it busy, or it is a server's."""
        return self._database.scrub()

    def _erased(self, count: int) -> Erased:
        return Erased(count, self.scrub() if count else True)

    # -- sources ----------------------------------------------------------------------------------------------

    def sources(self) -> list[SourceShare]:
        """How much each source of outcomes decides, the one that decides most first."""
        policy = self._store.policy
        return shares(self._voices.deciding(policy.sources, policy.metric))

    def loud(self) -> dict[str, float]:
        """Voters who decided most of the newest settled runs, while others spoke too: their share."""
        policy = self._store.policy
        found = shares(self._voices.deciding(policy.sources, policy.metric, last=NEWEST))
        return {f"{s.source}/{s.loudest}": s.loudest_share for s in found if s.is_loud}

    def said_by(self, source: str, source_id: str | None) -> int:
        """How many outcomes of a source, or of one of its voters, are in force."""
        return len(self._voices.said_by(source, source_id))

    def revoke(
        self,
        source: str,
        source_id: str | None,
        *,
        actor: str,
        reason: str,
        progress: Progress = unwatched,
    ) -> int:
        """Withdraw everything that a source has said, some runs at a time; after a crash the same call goes on."""
        said, now = self._voices.said_by(source, source_id), self._store.clock()
        if not said:
            return 0
        who = source if source_id is None else f"{source}, {source_id}"
        with self._database.write() as session:
            words = f"{who}: {len(said)} outcomes" + (f"; {reason}" if reason else "")
            standing.note(session, "revoke", actor, words, now)
        for some in watched(list(lists.in_chunks(said)), "withdrawing", progress):
            withdrawn = [Said(eid, key, None) for eid, key in some]
            self._ledger.record_many(withdrawn, policy=self._settings.policy, now=now)
        return len(said)

    def compact(self, before: datetime | timedelta, progress: Progress) -> Compacted:
        """Roll up what is older; see `Retention.roll_up`."""
        now, policy = self._store.clock(), self._store.policy
        return self._retention.roll_up(cutoff(before, now), policy, now, progress)

    def check(self, progress: Progress = unwatched) -> list[str]:
        """What does not add up in the ledger, one line each."""
        return self._audit.check(progress)

    def namespaces(self) -> list[tuple[Namespace, int]]:
        """Every namespace with live memories, and how many it has."""
        return self._audit.namespaces()

    def rewards(self) -> list[tuple[float, float]]:
        """When each settled run was settled, as Unix time, and its reward; oldest first."""
        return self._audit.rewards()

    def suppressions(self) -> list[float]:
        """Unix times at which memories were suppressed, by the policy or a person, oldest first."""
        return self._audit.suppressions()

    def settlements(self, namespace: Namespace) -> dict[str, list[Settlement]]:
        """The settled runs of each live memory of a namespace, by its id, in the order of settlement."""
        names = self._audit.live(namespace)
        return {names[s]: found for s, found in self._audit.settlements(list(names)).items()}

    def schema_version(self) -> int:
        """The schema version of the database; opening it has brought it to the newest."""
        return self._audit.schema_version()
