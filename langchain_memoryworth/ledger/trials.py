"""Randomised trials: which memories are held out of some prompts by a draw, and what happened with and without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from langchain_memoryworth.errors import (
    InvalidInputError,
    InvalidTransitionError,
    MemoryNotFoundError,
)
from langchain_memoryworth.estimators.lift import Arm as ArmSums
from langchain_memoryworth.estimators.lift import lift
from langchain_memoryworth.ledger import lists, standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Arm, MemoryLift, Namespace, Status, namespace_key


class Chances(NamedTuple):
    """With which probability a memory that was retrieved is left out of the prompt.

    Attributes:
        everywhere: Of a memory that is in no trial of its own, and in no habitual pair.
        own: Of those that are, and 0 for the pinned ones; by number.
    """

    everywhere: float
    own: Mapping[int, float]

    def of(self, seq: int) -> float:
        """The probability for one memory, in [0, 1]."""
        return self.own.get(seq, self.everywhere)


class Draws(NamedTuple):
    """Settled episodes that drew alike about one memory, in one context.

    Attributes:
        propensity: Probability of the draw that they made, in (0, 1).
        episodes: How many they are.
        reward: Sum of their rewards.
    """

    context: str
    arm: str
    propensity: float
    episodes: int
    reward: float


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
        rows = lists.select_in(session, _FIND, wanted, namespace=namespace_key(namespace))
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

    def chances(self, session: Session, namespace: Namespace, policy: Policy) -> Chances | None:
        """The probabilities in a namespace, None if nothing is ever held out."""
        rows = session.rows(_RATES, namespace=namespace_key(namespace))
        own = {
            seq: 0.0 if status == Status.PINNED.value else policy.held_out(trial, parting)
            for seq, trial, parting, status in rows
        }
        return Chances(policy.hold_out, own) if policy.hold_out or any(own.values()) else None

    def count(self, session: Session, namespace: Namespace, prefix: str) -> int:
        """How many memories are in a trial or a habitual pair whose ids start with a text."""
        return session.number(
            _COUNT, namespace=namespace_key(namespace), prefix=prefix, length=len(prefix)
        )

    def running(self, namespace: Namespace) -> dict[str, float]:
        """The memories in a trial of their own, and the probability with which each is held out."""
        with self._database.read() as session:
            return dict(session.rows(_RUNNING, namespace=namespace_key(namespace)))

    def lifts(
        self, namespace: Namespace, ids: Sequence[str] | None, *, level: float = 0.9
    ) -> list[MemoryLift]:
        """What the draws about memories have told, in their order; with None, of all that were ever drawn about.

        Args:
            namespace: Where they are.
            ids: None for all that were ever drawn about, oldest memory first.
            level: Probability within the bounds, in (0, 1).

        Raises:
            InvalidInputError: If the level is not in (0, 1).
            MemoryNotFoundError: If there is none by one of the ids.
        """
        if not 0 < level < 1:
            raise InvalidInputError(
                f"level={level!r}; give the probability within the bounds, in (0, 1)", value=level
            )
        with self._database.read() as session:
            if ids is None:
                drawn = session.rows(_ALL_DRAWN, namespace=namespace_key(namespace))
                ids = [id_ for (id_,) in drawn]
            found = self._find(session, namespace, ids)
            wanted = list(dict.fromkeys(ids))
            rows = lists.select_in(session, _COUNTS, wanted, namespace=namespace_key(namespace))
        draws: dict[str, list[Draws]] = {i: [] for i in wanted}
        for id_, *row in rows:
            draws[id_].append(Draws(*row))
        return [_lift(i, found[i].evidence.worth, draws[i], level) for i in wanted]


def _lift(memory_id: str, worth: float, draws: Sequence[Draws], level: float) -> MemoryLift:
    contexts = {d.context: i for i, d in enumerate({d.context: d for d in draws}.values())}
    sums = np.zeros((2, 3, max(1, len(contexts))))
    episodes = [0, 0]
    for d in draws:
        held = int(d.arm == Arm.HELD_OUT.value)
        p = d.propensity
        addend = np.array([d.episodes / p, d.episodes / p**2, d.reward / p])
        sums[held, :, contexts[d.context]] += addend
        episodes[held] += d.episodes
    found = lift(ArmSums(*sums[0]), ArmSums(*sums[1]), level=level)
    known = bool(found.identifiable)
    return MemoryLift(
        memory_id,
        float(found.value) if known else None,
        float(found.low),
        float(found.high),
        float(found.deviation) if known else None,
        float(found.size),
        shown=episodes[0],
        held_out=episodes[1],
        worth=worth,
    )


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
    "FROM evidence e CROSS JOIN memories m "
    "WHERE (e.hold_out IS NOT NULL OR e.parting IS NOT NULL OR e.status = 'pinned') "
    "AND m.seq = e.seq AND m.retired_at IS NULL AND m.namespace = :namespace"
)
_RATES = Statement(f"SELECT e.seq, e.hold_out, e.parting, e.status {_FEW}")
_RUNNING = Statement(f"SELECT m.id, e.hold_out {_FEW} AND e.hold_out IS NOT NULL ORDER BY e.seq")
_COUNT = Statement(
    f"SELECT COUNT(*) {_FEW} AND e.status <> 'pinned' AND SUBSTR(m.id, 1, :length) = :prefix"
)
# Only what was drawn about: without a trial a memory is served with probability 1, and says nothing of its absence.
_DRAWN = (
    "FROM memories m JOIN exposures x ON x.seq = m.seq JOIN episodes e ON e.eid = x.eid "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL "
    "AND x.propensity < 1 AND x.arm <> 'probation' AND e.reward IS NOT NULL "
)
_COUNTS = (
    "SELECT m.id, COALESCE(x.context, ''), x.arm, x.propensity, COUNT(*), SUM(e.reward) "
    f"{_DRAWN} AND m.id IN :values GROUP BY m.id, COALESCE(x.context, ''), x.arm, x.propensity"
)
_ALL_DRAWN = Statement(f"SELECT m.id {_DRAWN} GROUP BY m.id, m.seq ORDER BY m.seq")
