"""What a person decides about a memory: restore it, pin it. Each decision is a row of the ledger, and can be taken back."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_memoryworth import standing
from langchain_memoryworth.database import Database, Session, Statement
from langchain_memoryworth.errors import MemoryNotFoundError
from langchain_memoryworth.records import Namespace, Status, namespace_key


class Governance:
    """Decisions in the database. Ids that are not there raise before anything is changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def restore(
        self, namespace: Namespace, ids: Sequence[str], actor: str, reason: str, now: float
    ) -> None:
        """Serve memories again; only what happens from now on can suppress them again."""
        with self._database.write() as session:
            for s in self._find(session, namespace, ids):
                standing.rebase(session, s.seq)
                status = Status.PINNED if s.status is Status.PINNED else Status.ACTIVE
                self._decide(session, s, status, "restore", actor, reason, now)

    def pin(
        self, namespace: Namespace, ids: Sequence[str], actor: str, reason: str, now: float
    ) -> None:
        """Never hold these memories back, whatever the evidence says."""
        with self._database.write() as session:
            for s in self._find(session, namespace, ids):
                self._decide(session, s, Status.PINNED, "pin", actor, reason, now)

    def unpin(
        self,
        namespace: Namespace,
        ids: Sequence[str],
        actor: str,
        reason: str,
        policy: standing.PolicyOf,
        now: float,
    ) -> None:
        """Leave these memories to the policy again."""
        with self._database.write() as session:
            judge = policy(session)
            for s in self._find(session, namespace, ids):
                if s.status is Status.PINNED:
                    status = judge.next_status(Status.ACTIVE, s.recent)
                    self._decide(session, s, status, "unpin", actor, reason, now)

    def _find(
        self, session: Session, namespace: Namespace, ids: Sequence[str]
    ) -> list[standing.Standing]:
        wanted = list(dict.fromkeys(ids))
        rows = standing.select_in(session, _FIND, wanted, namespace=namespace_key(namespace))
        by_id = {row[0]: standing.standing_of(row[1:]) for row in rows}
        absent = [i for i in wanted if i not in by_id]
        if absent:
            raise MemoryNotFoundError.of(namespace, absent)
        return [by_id[i] for i in wanted]

    def _decide(
        self,
        session: Session,
        s: standing.Standing,
        status: Status,
        kind: str,
        actor: str,
        reason: str,
        now: float,
    ) -> None:
        standing.set_status(session, s.seq, status)
        standing.note(session, kind, actor, reason, now, seq=s.seq, evidence=s.evidence)
        standing.changed_many(session, [s.seq])

    def counts(self) -> dict[Status, int]:
        """Live memories by status, in all namespaces."""
        with self._database.read() as session:
            rows = session.rows(_COUNTS)
        return {Status(status): count for status, count in rows}


_FIND = (
    f"SELECT m.id, {standing.STANDING_COLUMNS} FROM memories m JOIN evidence e ON e.seq = m.seq "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL AND m.id IN :values"
)
_COUNTS = Statement(
    "SELECT e.status, COUNT(*) FROM memories m JOIN evidence e ON e.seq = m.seq "
    "WHERE m.retired_at IS NULL GROUP BY e.status"
)
