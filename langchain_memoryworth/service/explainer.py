"""Why a memory is served or not, what a run did, and how a worth came about: read from the ledger, nothing is changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from langchain_memoryworth.errors import MemoryNotFoundError
from langchain_memoryworth.estimators.discount import added, discounted, nothing
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.ledger.audit import Audit, worth_points
from langchain_memoryworth.ledger.governance import Governance
from langchain_memoryworth.ledger.settlement import in_force
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Namespace, RecentWorth, WorthPoint
from langchain_memoryworth.service.explanations import (
    Explanation,
    RunExplanation,
    explain,
    explain_part,
)
from langchain_memoryworth.service.open_store import OpenStore


class Explainer:
    """What a governor can explain; ask for it with `governor.explainer`, which brings it up to date."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._memories = store.memories
        self._governance = Governance(store.database)
        self._audit = Audit(store.database)

    def explain(self, namespace: Namespace, memory_id: str) -> Explanation:
        """Why a memory is served or not.

        Raises:
            MemoryNotFoundError: If there is none by that id, or it is past its time.
        """
        now, policy = self._store.clock(), self._store.policy_in(namespace)
        memory = self._memories.one(namespace, memory_id, policy, now)
        seq = self._seq(namespace, memory_id)
        stands = self._audit.standings([seq])[seq]
        return explain(
            memory,
            stands.recent,
            policy,
            sources=self._audit.sources(seq, stands.epoch),
            expires_at=self._end(namespace, seq, policy),
            companions=self._audit.companions(seq),
            history=self._governance.history(namespace, memory_id),
        )

    def explain_run(self, run_id: str) -> RunExplanation:
        """What a run retrieved, and what its outcome changed.

        Raises:
            UnknownRunError: If no episode has that id.
        """
        policy = self._store.policy
        episode = self._store.ledger.episode(run_id)
        then = self._audit.policy_at(episode.started_at.timestamp())
        ranked = in_force(episode.outcomes, policy.sources, policy.metric)
        return RunExplanation(
            id=episode.id,
            started_at=episode.started_at,
            reward=episode.reward,
            said_by=ranked[0].source if ranked else None,
            parts=tuple(explain_part(p, policy) for p in self._audit.parts(run_id)),
            held_back_known=bool(then.get("record_held_back")),
            path=episode.path,
        )

    def worth_history(self, namespace: Namespace, memory_id: str) -> tuple[WorthPoint, ...]:
        """The worth of a memory after each of its settled runs."""
        self._memories.one(namespace, memory_id, self._store.policy, self._store.clock())
        seq = self._seq(namespace, memory_id)
        return worth_points(self._audit.settlements([seq])[seq], self._audit.opening(seq))

    def recent_worth(
        self, namespace: Namespace, memory_id: str, half_life: float | timedelta
    ) -> RecentWorth:
        """The worth of a memory by counts that halve with every half-life, see `discount`; what was rolled up is past."""
        self._memories.one(namespace, memory_id, self._store.policy, self._store.clock())
        in_time = isinstance(half_life, timedelta)
        unit = half_life.total_seconds() if isinstance(half_life, timedelta) else float(half_life)
        counts = discounted(nothing(1), 0.0, half_life=unit)
        seq = self._seq(namespace, memory_id)
        for number, s in enumerate(self._audit.settlements([seq])[seq]):
            at, size = (s.settled_at if in_time else number), s.evidence.size / UNIT
            counts = added(counts, s.reward, at=at, half_life=unit, size=size)
        if in_time:
            counts = discounted(counts, self._store.clock(), half_life=unit)
        size = float(counts.size[0])
        return RecentWorth(float(counts.success[0]) / size if size > 0 else 0.5, size)

    def _seq(self, namespace: Namespace, memory_id: str) -> int:
        seq = self._audit.seq(namespace, memory_id)
        if seq is None:  # deleted since it was read
            raise MemoryNotFoundError.of(namespace, [memory_id])
        return seq

    def _end(self, namespace: Namespace, seq: int, policy: Policy) -> datetime | None:
        written, own = self._audit.ends(seq)
        life = policy.life(namespace)
        ends = [] if own is None else [own]
        ends += [] if life is None else [written + life.total_seconds()]
        return datetime.fromtimestamp(min(ends), UTC) if ends else None
