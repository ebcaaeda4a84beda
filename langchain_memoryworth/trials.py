"""Randomised trials: which memories are held out of some prompts by a draw, and what happened with and without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from langchain_memoryworth import standing
from langchain_memoryworth.database import Database, Session, Statement
from langchain_memoryworth.errors import (
    InvalidInputError,
    InvalidTransitionError,
    MemoryNotFoundError,
)
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Arm, Namespace, Status, namespace_key


class Rates(NamedTuple):
    """With which probability a memory that was retrieved is left out of the prompt.

    Attributes:
        everywhere: Of a memory that is in no trial of its own.
        own: Of those that are, and 0 for the pinned ones; by number.
    """

    everywhere: float
    own: Mapping[int, float]

    def of(self, seq: int) -> float:
        """The probability for one memory, in [0, 1]."""
        return self.own.get(seq, self.everywhere)


class Count(NamedTuple):
    """Settled episodes that drew alike about one memory.

    Attributes:
        seq: Number of the memory.
        context: Of the exposure, empty if it had none.
        held_out: Whether they did without it.
        propensity: Probability of the draw that they made, in (0, 1].
        episodes: How many they are.
        reward: Sum of their rewards.
        squared: Sum of the squares of their rewards.
    """

    seq: int
    context: str
    held_out: bool
    propensity: float
    episodes: int
    reward: float
    squared: float


class Trials:
    """Trials in the database. A trial is of one version of a text: a changed text is another memory."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self,
        namespace: Namespace,
        ids: Sequence[str],
        rate: float,
        actor: str,
        reason: str,
        now: float,
    ) -> None:
        """Hold memories out of the prompt with a probability, or at another one than before.

        Raises:
            InvalidInputError: If the rate is not in (0, 1).
            InvalidTransitionError: If a memory is pinned or deprecated.
            MemoryNotFoundError: If there is none by one of the ids.
        """
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < 1:
            raise InvalidInputError(
                f"rate={rate!r}; give the share of episodes that do without the memory, in (0, 1)",
                value=rate,
            )
        with self._database.write() as session:
            found = self._find(session, namespace, ids)
            for id_, s in found.items():
                if s.status in _NEVER:
                    raise InvalidTransitionError("hold out", id_, s.status.value, _NEVER[s.status])
            self._set(session, found, float(rate), f"rate {rate:g}", actor, reason, now)

    def end(
        self, namespace: Namespace, ids: Sequence[str], actor: str, reason: str, now: float
    ) -> None:
        """Hold memories out no longer; what was found out stays.

        Raises:
            MemoryNotFoundError: If there is none by one of the ids.
        """
        with self._database.write() as session:
            found = self._find(session, namespace, ids)
            self._set(session, found, None, "ended", actor, reason, now)

    def _find(
        self, session: Session, namespace: Namespace, ids: Sequence[str]
    ) -> dict[str, standing.Standing]:
        wanted = list(dict.fromkeys(ids))
        rows = standing.select_in(session, _FIND, wanted, namespace=namespace_key(namespace))
        found = {row[0]: standing.standing_of(row[1:]) for row in rows}
        absent = [i for i in wanted if i not in found]
        if absent:
            raise MemoryNotFoundError.of(namespace, absent)
        return found

    def _set(
        self,
        session: Session,
        found: Mapping[str, standing.Standing],
        rate: float | None,
        what: str,
        actor: str,
        reason: str,
        now: float,
    ) -> None:
        for s in sorted(found.values(), key=lambda s: s.seq):
            session.run(_SET, {"seq": s.seq, "rate": rate})
            said = f"{what}: {reason}" if reason else what
            standing.note(session, "trial", actor, said, now, standing=s)
            standing.changed(session, "trial", s.seq)

    def rates(self, session: Session, namespace: Namespace, policy: Policy) -> Rates | None:
        """The probabilities in a namespace, None if nothing is ever held out."""
        rows = session.rows(_RATES, namespace=namespace_key(namespace))
        own = {
            seq: 0.0 if status == Status.PINNED.value else rate
            for seq, rate, status in rows
            if rate is not None or policy.hold_out
        }
        return Rates(policy.hold_out, own) if own or policy.hold_out else None

    def count(self, session: Session, namespace: Namespace, prefix: str) -> int:
        """How many memories are in a trial whose ids start with a text."""
        return session.number(
            _COUNT, namespace=namespace_key(namespace), prefix=prefix, length=len(prefix)
        )

    def running(self, namespace: Namespace) -> dict[str, float]:
        """The memories in a trial of their own, and the probability with which each is held out."""
        with self._database.read() as session:
            return dict(session.rows(_RUNNING, namespace=namespace_key(namespace)))

    def counts(self, namespace: Namespace, ids: Sequence[str] | None) -> dict[str, list[Count]]:
        """What the draws about memories led to, by id; None for all that were ever drawn about."""
        with self._database.read() as session:
            if ids is None:
                rows = session.rows(_ALL_COUNTS, namespace=namespace_key(namespace))
            else:
                self._find(session, namespace, ids)
                wanted = list(dict.fromkeys(ids))
                rows = standing.select_in(
                    session, _SOME_COUNTS, wanted, namespace=namespace_key(namespace)
                )
        found: dict[str, list[Count]] = {i: [] for i in ids or ()}
        for id_, seq, context, arm, propensity, episodes, reward, squared in rows:
            count = Count(
                seq, context, arm == Arm.HELD_OUT.value, propensity, episodes, reward, squared
            )
            found.setdefault(id_, []).append(count)
        return found


_NEVER = {
    Status.PINNED: "unpin it first: a pinned memory is in every prompt that it is retrieved for",
    Status.DEPRECATED: "restore it first: it is served to nobody",
}
_FIND = (
    f"SELECT m.id, {standing.STANDING_COLUMNS} FROM memories m JOIN evidence e ON e.seq = m.seq "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL AND m.id IN :values"
)
_SET = Statement("UPDATE evidence SET hold_out = :rate WHERE seq = :seq")
# From the few to their memories; SQLite keeps the order of a CROSS JOIN.
_FEW = (
    "FROM evidence e CROSS JOIN memories m WHERE (e.hold_out IS NOT NULL OR e.status = 'pinned') "
    "AND m.seq = e.seq AND m.retired_at IS NULL AND m.namespace = :namespace"
)
_RATES = Statement(f"SELECT e.seq, e.hold_out, e.status {_FEW}")
_RUNNING = Statement(f"SELECT m.id, e.hold_out {_FEW} AND e.hold_out IS NOT NULL ORDER BY e.seq")
_COUNT = Statement(
    f"SELECT COUNT(*) {_FEW} AND e.hold_out IS NOT NULL AND SUBSTR(m.id, 1, :length) = :prefix"
)
# Only what was drawn about: without a trial a memory is served with probability 1, and says nothing of its absence.
_COUNTS = (
    "SELECT m.id, x.seq, COALESCE(x.context, ''), x.arm, x.propensity, COUNT(*), SUM(e.reward), "
    "SUM(e.reward * e.reward) FROM memories m JOIN exposures x ON x.seq = m.seq "
    "JOIN episodes e ON e.eid = x.eid WHERE m.namespace = :namespace AND m.retired_at IS NULL "
    "AND x.propensity < 1 AND x.arm <> 'probation' AND e.reward IS NOT NULL "
)
_GROUPED = "GROUP BY m.id, x.seq, COALESCE(x.context, ''), x.arm, x.propensity ORDER BY x.seq"
_ALL_COUNTS = Statement(_COUNTS + _GROUPED)
_SOME_COUNTS = _COUNTS + "AND m.id IN :values " + _GROUPED
