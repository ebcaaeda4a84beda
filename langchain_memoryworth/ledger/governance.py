"""What a person decides about a memory. Each decision is a row of the ledger, and can be taken back.

Which decision leads where is the table of `statuses`; nothing here deletes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_memoryworth import statuses
from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError
from langchain_memoryworth.estimators.credit import Credit
from langchain_memoryworth.ledger import lists, openings, priors, standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.records import Action, Namespace, Status, evidence_of, namespace_key


class Governance:
    """Decisions in the database. Ids that are not there raise before anything is changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def restore(
        self, namespace: Namespace, ids: Sequence[str], actor: str, reason: str, now: float
    ) -> None:
        """Serve memories again; only what happens from now on can suppress them again."""
        with self._database.write() as session:
            for s in self._find(session, namespace, ids, "restore"):
                standing.rebase(session, s.seq)
                status = Status.PINNED if s.status is Status.PINNED else Status.ACTIVE
                self._decide(session, s, status, "restore", actor, reason, now)

    def pin(
        self, namespace: Namespace, ids: Sequence[str], actor: str, reason: str, now: float
    ) -> None:
        """Never hold these memories back, whatever the evidence says."""
        with self._database.write() as session:
            for s in self._find(session, namespace, ids, "pin"):
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
                    told = priors.informed_of(session, judge, s.seq)
                    as_active = s._replace(status=Status.ACTIVE)
                    status, _ = standing.judge(session, as_active, s.recent, told)
                    self._decide(session, s, status, "unpin", actor, reason, now)

    def suppress(
        self, namespace: Namespace, ids: Sequence[str], actor: str, reason: str, now: float
    ) -> None:
        """Hold memories back until a person restores them; what they do on probation from now on is told apart."""
        with self._database.write() as session:
            for s in self._find(session, namespace, ids, "suppress"):
                standing.rebase(session, s.seq)
                self._decide(session, s, Status.WITHHELD, "suppress", actor, reason, now)

    def deprecate(
        self, namespace: Namespace, ids: Sequence[str], actor: str, reason: str, now: float
    ) -> None:
        """Take memories out of service for good, and keep them for the record."""
        with self._database.write() as session:
            for s in self._find(session, namespace, ids, "deprecate"):
                self._decide(session, s, Status.DEPRECATED, "deprecate", actor, reason, now)

    def remark(
        self,
        namespace: Namespace,
        ids: Sequence[str],
        kind: str,
        actor: str,
        reason: str,
        now: float,
    ) -> None:
        """Write down what was decided without a change of status, such as that a proposal was rejected."""
        with self._database.write() as session:
            for s in self._find(session, namespace, ids):
                standing.note(session, kind, actor, reason, now, standing=s)

    # -- undo -------------------------------------------------------------------------------------------------

    def undo(self, number: int, actor: str, reason: str, now: float) -> Action:
        """Take a change of status back: the newest of its memory, those already taken back left out.

        A change by the policy would come again at the next outcome, so it is taken back as `restore` does: only later
        evidence counts.

        Raises:
            InvalidInputError: If there is no such action, if it cannot be taken back, or if a later one stands before it.
        """
        with self._database.write() as session:
            row = session.row(_ACTION, number=number)
            if row is None:
                raise InvalidInputError(f"there is no action {number}", value=number)
            action = _action(row)
            seq, epoch = row[10], row[11]
            if not statuses.undoable(action.kind) or action.before is None or action.after is None:
                raise InvalidInputError(
                    f"action {number} is {action.kind!r}, which cannot be taken back", value=number
                )
            self._check_newest(session, seq, number)
            s = standing.read(session, [seq])[seq]
            if s.status is Status.ERASED:
                raise InvalidInputError(
                    f"the memory of action {number} was erased; nothing of it can come back",
                    value=number,
                )
            if statuses.by_policy(action.kind, action.after):
                standing.rebase(session, seq)
            else:
                self._set_epoch(session, s, epoch)
            standing.move(session, s, action.before, "undo", actor, reason, now, undoes=number)
            standing.changed_many(session, [seq])
            [newest] = session.rows(_NEWEST)
        return _action(newest)

    def _check_newest(self, session: Session, seq: int, number: int) -> None:
        taken_back: set[int] = set()
        for other, kind, undoes in session.rows(_CHANGES_OF, seq=seq):
            if other == number:
                if number in taken_back:
                    break
                return
            if kind == "undo" and other not in taken_back:
                taken_back.add(undoes)  # what it took back, and itself, no longer stand in the way
            elif other not in taken_back:
                raise InvalidInputError(
                    f"action {number} is not the last word on its memory: take back action {other} "
                    f"({kind}) first",
                    value=number,
                )
        raise InvalidInputError(f"action {number} is taken back already", value=number)

    def _set_epoch(self, session: Session, s: standing.Standing, epoch: int) -> None:
        """Go back to an earlier restore count: the baseline is again what was settled before that."""
        if epoch > s.epoch:
            standing.rebase(session, s.seq)
        elif epoch < s.epoch:
            session.run(_CLAMP, {"seq": s.seq, "epoch": epoch})
            openings.clamp(session, s.seq, epoch)
            base = openings.total(openings.of(session, s.seq), before=epoch)
            for row in session.rows(_CREDITS_BEFORE, seq=s.seq, epoch=epoch):
                base += Credit(*row).evidence
            standing.set_baseline(session, s.seq, epoch, base)

    # -- reading ----------------------------------------------------------------------------------------------

    def history(self, namespace: Namespace, memory_id: str) -> list[Action]:
        """Everything decided about a memory, all its versions, oldest first.

        Raises:
            MemoryNotFoundError: If there never was one, or it was erased.
        """
        key = namespace_key(namespace)
        with self._database.read() as session:
            if not session.number(_EXISTS, namespace=key, id=memory_id):
                raise MemoryNotFoundError.of(namespace, [memory_id])
            return [_action(r) for r in session.rows(_HISTORY, namespace=key, id=memory_id)]

    def actions(self, limit: int) -> list[Action]:
        """The newest actions on all memories, and changes of the policy, newest first."""
        with self._database.read() as session:
            return [_action(r) for r in session.rows(_LATEST, limit=limit)]

    def counts(self) -> dict[Status, int]:
        """Live memories by status, in all namespaces."""
        with self._database.read() as session:
            rows = session.rows(_COUNTS)
        return {Status(status): count for status, count in rows}

    # -- inside -----------------------------------------------------------------------------------------------

    def _find(
        self, session: Session, namespace: Namespace, ids: Sequence[str], kind: str | None = None
    ) -> list[standing.Standing]:
        wanted = list(dict.fromkeys(ids))
        rows = lists.select_in(session, _FIND, wanted, namespace=namespace_key(namespace))
        by_id = {row[0]: standing.standing_of(row[1:]) for row in rows}
        absent = [i for i in wanted if i not in by_id]
        if absent:
            raise MemoryNotFoundError.of(namespace, absent)
        if kind is not None:
            for id_, s in by_id.items():
                statuses.check(kind, s.status, id_)
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
        standing.move(session, s, status, kind, actor, reason, now)
        standing.changed_many(session, [s.seq])


def _action(row: Sequence[Any]) -> Action:
    return Action(
        number=row[0],
        kind=row[1],
        actor=row[2],
        reason=row[3],
        at=datetime.fromtimestamp(row[4], UTC),
        memory_id=row[5],
        evidence=None if row[6] is None else evidence_of(row[6]),
        before=None if row[7] is None or row[8] is None else Status(row[7]),
        after=None if row[8] is None else Status(row[8]),
        undoes=row[9],
    )


_FIND = (
    f"SELECT m.id, {standing.STANDING_COLUMNS} FROM memories m JOIN evidence e ON e.seq = m.seq "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL AND m.id IN :values"
)
_COUNTS = Statement(
    "SELECT e.status, COUNT(*) FROM memories m JOIN evidence e ON e.seq = m.seq "
    "WHERE m.retired_at IS NULL GROUP BY e.status"
)
_WHOLE = (
    "SELECT a.number, a.kind, a.actor, a.reason, a.at, m.id, a.evidence, a.status_before, "
    "a.status_after, a.undoes, a.seq, a.epoch FROM actions a LEFT JOIN memories m ON m.seq = a.seq "
)
_ACTION = Statement(_WHOLE + "WHERE a.number = :number")
_NEWEST = Statement(_WHOLE + "ORDER BY a.number DESC LIMIT 1")
_LATEST = Statement(_WHOLE + "ORDER BY a.number DESC LIMIT :limit")
_HISTORY = Statement(_WHOLE + "WHERE m.namespace = :namespace AND m.id = :id ORDER BY a.number")
_EXISTS = Statement("SELECT COUNT(*) FROM memories WHERE namespace = :namespace AND id = :id")
_CHANGES_OF = Statement(
    "SELECT number, kind, undoes FROM actions WHERE seq = :seq AND status_after IS NOT NULL "
    "ORDER BY number DESC"
)
_CLAMP = Statement("UPDATE exposures SET epoch = :epoch WHERE seq = :seq AND epoch > :epoch")
_CREDITS_BEFORE = Statement(
    "SELECT weight, positive, size, surprise FROM exposures "
    "WHERE seq = :seq AND size > 0 AND epoch < :epoch"
)
