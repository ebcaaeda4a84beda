"""Opening balances: what is left of the credit of episodes that were rolled up, and of their ids.

Wherever credits are added up, these come first: counters are the openings and the credits of the episodes kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from langchain_memoryworth.estimators.evidence import Evidence
from langchain_memoryworth.ledger import lists
from langchain_memoryworth.ledger.schema import COUNTERS
from langchain_memoryworth.ledger.session import Session, Statement


class Opening(NamedTuple):
    """Where a balance belongs.

    Attributes:
        seq: Number of the memory.
        context: Kind of task; empty if none was known.
        source: Whose word decided; empty if that is not known.
        epoch: Restore count of the memory when the credit was given.
    """

    seq: int
    context: str
    source: str
    epoch: int


def add(session: Session, balances: Mapping[Opening, Evidence]) -> None:
    """Add to balances."""
    rows = [{**o._asdict(), **balances[o]._asdict()} for o in sorted(balances)]
    if rows:
        session.run_many(_ADD, rows)


def of(session: Session, seq: int) -> dict[Opening, Evidence]:
    """The balances of one memory."""
    return dict(map(_opening, session.rows(_OF, seq=seq)))


def every(session: Session) -> dict[Opening, Evidence]:
    """All balances."""
    return dict(map(_opening, session.rows(_EVERY)))


def _opening(row: Sequence[object]) -> tuple[Opening, Evidence]:
    return Opening(*row[:4]), Evidence(*row[4:])  # type: ignore[arg-type]


def total(balances: Mapping[Opening, Evidence], *, before: int | None = None) -> Evidence:
    """The sum of some balances; with `before` only of those given under a lower restore count.

    Examples:
        >>> balances = {Opening(1, "", "user", 0): Evidence(2, 1), Opening(1, "", "user", 1): Evidence(5, 0)}
        >>> total(balances).positive, total(balances, before=1).positive
        (7, 2)
    """
    chosen = [e for o, e in balances.items() if before is None or o.epoch < before]
    return sum(chosen, start=Evidence())


def clamp(session: Session, seq: int, epoch: int) -> None:
    """Restores were taken back: what was given under a later count counts as given under this one."""
    later = {o: e for o, e in of(session, seq).items() if o.epoch > epoch}
    if later:
        session.run(_DROP_LATER, {"seq": seq, "epoch": epoch})
        for o, e in later.items():  # one by one: several may become the same
            add(session, {o._replace(epoch=epoch): e})


def silence(session: Session, seq: int) -> None:
    """A memory was erased: what its runs were about goes, the numbers stay."""
    named = {o: e for o, e in of(session, seq).items() if o.context}
    if named:
        session.run(_DROP_NAMED, {"seq": seq})
        for o, e in named.items():
            add(session, {o._replace(context=""): e})


# -- ids --------------------------------------------------------------------------------------------------------------


def key(run_id: str) -> int:
    """What is kept of the id of a run: 63 bits of a hash.

    Examples:
        >>> key("run-1") == key("run-1") != key("run-2")
        True
    """
    digest = hashlib.blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def close(session: Session, keys: Iterable[int]) -> None:
    """Remember that runs were rolled up."""
    rows = [{"key": k} for k in sorted(set(keys))]
    if rows:
        session.run_many(_CLOSE, rows)


def closed(session: Session, keys: Sequence[int]) -> set[int]:
    """Those of some keys whose runs were rolled up."""
    return {int(k) for (k,) in lists.select_in(session, _CLOSED, keys)}


def all_closed(session: Session) -> set[int]:
    """The keys of all runs that were rolled up."""
    return {int(k) for (k,) in session.rows(_ALL_CLOSED)}


_COLUMNS = ", ".join((*Opening._fields, *COUNTERS))
_ADD = Statement(
    f"INSERT INTO openings ({_COLUMNS}) "
    f"VALUES ({', '.join(f':{n}' for n in (*Opening._fields, *COUNTERS))}) "
    "ON CONFLICT (seq, context, source, epoch) DO UPDATE SET "
    + ", ".join(f"{n} = openings.{n} + excluded.{n}" for n in COUNTERS)
)
_OF = Statement(f"SELECT {_COLUMNS} FROM openings WHERE seq = :seq")
_EVERY = Statement(f"SELECT {_COLUMNS} FROM openings ORDER BY seq, context, source, epoch")
_DROP_LATER = Statement("DELETE FROM openings WHERE seq = :seq AND epoch > :epoch")
_DROP_NAMED = Statement("DELETE FROM openings WHERE seq = :seq AND context <> ''")
_CLOSE = Statement("INSERT INTO closed (key) VALUES (:key) ON CONFLICT (key) DO NOTHING")
_CLOSED = "SELECT key FROM closed WHERE key IN :values"
_ALL_CLOSED = Statement("SELECT key FROM closed")
