"""How many memories each namespace has, and how many of them are suppressed: what `max_suppressed` is held against.

Kept beside the memories, and not counted, or an outcome would take the longer, the more of them there are. Who changes which
memories are live says so before and after it; `audit` counts them, and says where it is not the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from langchain_memoryworth.estimators.base_rates import room
from langchain_memoryworth.ledger.lists import run_in
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.records import Status


class Population(NamedTuple):
    """Live memories of a namespace, whatever their status and also past their time, and those of them that are suppressed."""

    live: int = 0
    suppressed: int = 0


def came(session: Session, seqs: Sequence[int]) -> None:
    """Some memories are live now that were not."""
    run_in(session, _CAME, seqs)


def leave(session: Session, seqs: Sequence[int]) -> None:
    """Some memories are about to be live no more; those that are not are passed over."""
    run_in(session, _LEAVE, seqs)


def moved(session: Session, seq: int, before: Status, after: Status) -> None:
    """The status of a memory has changed, live or not."""
    change = (after is Status.SUPPRESSED) - (before is Status.SUPPRESSED)
    if change:
        session.run(_MOVED, {"seq": seq, "change": change})


def has_room(session: Session, seq: int, share: float) -> bool:
    """Whether one more memory of a memory's namespace may be suppressed by the policy.

    On Postgres no other outcome can take the last place meanwhile.
    """
    if share >= 1:
        return True
    for statement in (_OF, _HELD_OF):  # a namespace without room is not locked to see it
        row = session.row(statement, seq=seq)
        now = Population() if row is None else Population._make(row)  # none: all are gone by now
        if now.suppressed >= room(now.live, share=share):
            return False
    return True


def live(session: Session, namespace: str) -> int:
    """Live memories of a namespace, by its key."""
    return session.number(_LIVE, namespace=namespace)


def all_live(session: Session) -> list[tuple[str, int]]:
    """Live memories of each namespace that has any, by its key."""
    return [(namespace, count) for namespace, count in session.rows(_ALL_LIVE)]


def forget_empty(session: Session) -> None:
    """Leave no name of a namespace that has no live memory."""
    session.run(_FORGET)


def wrong(session: Session) -> Iterator[tuple[str, Population, Population]]:
    """Namespaces, by their keys, whose memories are not as many as is kept: what is kept, and what they are."""
    kept, counted = (
        {row[0]: Population._make(row[1:]) for row in session.rows(statement)}
        for statement in (_KEPT, _COUNTED)
    )
    for namespace in sorted(kept.keys() | counted.keys()):
        said, there = (of.get(namespace, Population()) for of in (kept, counted))
        if said != there:
            yield namespace, said, there


_SUPPRESSED = "COUNT(*) FILTER (WHERE e.status = 'suppressed')"
_FROM = "FROM memories m JOIN evidence e ON e.seq = m.seq WHERE m.retired_at IS NULL"
_COUNTED = Statement(f"SELECT m.namespace, COUNT(*), {_SUPPRESSED} {_FROM} GROUP BY m.namespace")
_KEPT = Statement("SELECT namespace, live, suppressed FROM populations")


def _added(sign: str) -> str:
    return (
        "INSERT INTO populations (namespace, live, suppressed) "
        f"SELECT m.namespace, {sign}COUNT(*), {sign}{_SUPPRESSED} {_FROM} AND m.seq IN :values "
        "GROUP BY m.namespace ORDER BY m.namespace "
        "ON CONFLICT (namespace) DO UPDATE SET live = populations.live + excluded.live, "
        "suppressed = populations.suppressed + excluded.suppressed"
    )


_CAME = _added("")
_LEAVE = _added("-")
_MOVED = Statement(
    "UPDATE populations SET suppressed = suppressed + :change "
    "WHERE namespace = (SELECT namespace FROM memories WHERE seq = :seq AND retired_at IS NULL)"
)
_ROOM = (
    "SELECT live, suppressed FROM populations "
    "WHERE namespace = (SELECT namespace FROM memories WHERE seq = :seq)"
)
_OF = Statement(_ROOM)
_HELD_OF = Statement(_ROOM, postgresql=f"{_ROOM} FOR UPDATE")
_LIVE = Statement("SELECT live FROM populations WHERE namespace = :namespace")
_ALL_LIVE = Statement("SELECT namespace, live FROM populations WHERE live > 0")
_FORGET = Statement("DELETE FROM populations WHERE live = 0")
