"""How long a trial takes: from the retrievals that a lift needs, those drawn about, and how often a memory is retrieved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError
from langchain_memoryworth.estimators.lift import retrievals_needed
from langchain_memoryworth.ledger import lists, standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.ledger.trials import Trials
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import (
    LOOK_BACK,
    MemoryLift,
    Namespace,
    Status,
    TrialPlan,
    namespace_key,
)
from langchain_memoryworth.service.recall import check_number


class Aim(NamedTuple):
    """What a trial is to show.

    Attributes:
        lift: Smallest difference in success that should not be missed, in [-1, 1] and not 0.
        rate: Share of the retrievals that do without the memory; None means that at which it is held out now, or one half.
        power: Probability of seeing such a lift, in (0, 1).
        level: Of the two-sided interval that must exclude 0, in (0, 1).

    Examples:
        >>> Aim(lift=0.1, rate=None, power=0.8, level=0.95).retrievals(base_rate=0.5, rate=0.5)
        785
    """

    lift: float
    rate: float | None
    power: float
    level: float

    def retrievals(self, base_rate: float, rate: float) -> int:
        """How many it takes, see `retrievals_needed`."""
        return retrievals_needed(
            self.lift, base_rate=base_rate, share=rate, power=self.power, level=self.level
        )

    def check(self) -> None:
        """Refuse an aim that no trial can have.

        Raises:
            InvalidInputError: Naming the value and its range.
        """
        check_number("lift", self.lift, -1, 1)
        if not self.lift:
            raise InvalidInputError(
                "lift=0; give the difference that should not be missed", value=0
            )
        rate = 0.5 if self.rate is None else self.rate
        for name, number in (("rate", rate), ("power", self.power), ("level", self.level)):
            check_number(name, number, 0, 1)
            if number in (0, 1):
                raise InvalidInputError(
                    f"{name}={number!r}; give a number between 0 and 1, and neither", value=number
                )


class _Pace(NamedTuple):
    """The latest settled episodes of a namespace."""

    episodes: int
    reward: float
    span: timedelta

    @property
    def base_rate(self) -> float:
        """With one success and one failure added: where all episodes are alike, nobody knows that the next one is."""
        return (self.reward + 1) / (self.episodes + 2)

    def time(self, episodes: int) -> timedelta | None:
        """How long so many episodes take."""
        return self.span / (self.episodes - 1) * episodes if self.span else None


def plan(
    database: Database, policy: Policy, namespace: Namespace, ids: Sequence[str] | None, aim: Aim
) -> tuple[TrialPlan, ...]:
    """How long trials take; with None, of all memories that are held out now.

    Raises:
        InvalidInputError: If no trial can have the aim.
        MemoryNotFoundError: If there is none by one of the ids.
    """
    aim.check()
    space = namespace_key(namespace)
    with database.read() as session:
        chances = _chances(session, policy, space, ids)
        if absent := [i for i in ids or () if i not in chances]:
            raise MemoryNotFoundError.of(namespace, absent)
        if ids is None:
            ids = [i for i, chance in chances.items() if chance]
        pace = _pace(session, space)
        rows = lists.select_in(
            session, _RETRIEVED, list(dict.fromkeys(ids)), namespace=space, episodes=LOOK_BACK
        )
        retrieved = dict(rows)
    lifts = Trials(database).lifts(namespace, ids)
    return tuple(
        _plan(m, retrieved.get(m.memory_id, 0), pace, aim, chances[m.memory_id]) for m in lifts
    )


def _plan(found: MemoryLift, retrieved: int, pace: _Pace, aim: Aim, chance: float) -> TrialPlan:
    rate = aim.rate or chance or 0.5
    needed = aim.retrievals(pace.base_rate, rate)
    # What was drawn about at other rates, as retrievals at this one.
    known = found.effective_size / (4 * rate * (1 - rate))
    remaining = max(0, math.ceil(needed - known))
    share = retrieved / pace.episodes if pace.episodes else 0.0
    episodes = math.ceil(remaining / share) if share else None
    return TrialPlan(
        found.memory_id,
        rate,
        pace.base_rate,
        needed,
        found.shown + found.held_out,
        remaining,
        share,
        episodes,
        None if episodes is None else pace.time(episodes),
    )


def _chances(
    session: Session, policy: Policy, space: str, ids: Sequence[str] | None
) -> dict[str, float]:
    if ids is None:
        rows = session.rows(_ALL_HELD_OUT, namespace=space)
    else:
        wanted = list(dict.fromkeys(ids))
        rows = list(
            lists.select_in(session, f"{_HELD_OUT} AND m.id IN :values", wanted, namespace=space)
        )
    return {
        id_: 0.0 if status == Status.PINNED.value else policy.held_out(trial, parting)
        for id_, trial, parting, status in rows
    }


def _pace(session: Session, space: str) -> _Pace:
    row = session.row(_PACE, namespace=space, episodes=LOOK_BACK)
    count, reward, first, last = row or (0, None, None, None)
    return _Pace(count, reward or 0.0, timedelta(seconds=(last or 0.0) - (first or 0.0)))


_HELD_OUT = (
    "SELECT m.id, e.hold_out, e.parting, e.status FROM memories m JOIN evidence e ON e.seq = m.seq "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL"
)
_ALL_HELD_OUT = Statement(f"{_HELD_OUT} ORDER BY m.seq")
_RETRIEVED = (
    "SELECT m.id, COUNT(*) FROM memories m JOIN exposures x ON x.seq = m.seq "
    "JOIN episodes p ON p.eid = x.eid "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL AND m.id IN :values "
    f"AND p.reward IS NOT NULL AND x.arm IN ('served', 'held_out') AND x.{standing.LATEST} GROUP BY m.id"
)
_PACE = Statement(
    "SELECT COUNT(*), SUM(reward), MIN(started_at), MAX(started_at) FROM episodes "
    "WHERE reward IS NOT NULL AND eid IN (SELECT x.eid FROM exposures x "
    "JOIN memories m ON m.seq = x.seq "
    f"WHERE m.namespace = :namespace AND m.retired_at IS NULL AND x.{standing.LATEST})"
)
