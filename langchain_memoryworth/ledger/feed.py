"""What an index reads of the ledger: all memories of a namespace, and then what was changed since. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.ledger import lists, populations
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.records import Namespace, Status, namespace_key
from langchain_memoryworth.statuses import SERVED


class Change(NamedTuple):
    """What another process, or this one, has written: which rows to read again."""

    revision: int
    kind: str
    low: int
    high: int


class Cursor(NamedTuple):
    """How far a reader has followed the changes.

    Attributes:
        after: On SQLite the last revision that he has seen; on Postgres, where one with a lower revision may be
            committed later, the first transaction that was not over when he looked.
        seen: Revisions of later transactions that he has seen.
    """

    after: int
    seen: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Feed:
    """Rows for the index, column by column, each of length n.

    Attributes:
        seqs: Numbers of the memories, int64.
        vectors: float32, shape (n, d).
        held: True where the memory is live and suppressed.
        waiting: True where it is live, and held back whatever the policy does with LOW ones.
        live: False where it was deleted, replaced or deprecated.
        added_at: Unix time in seconds, float64.
        expires_at: Likewise, by the memory's own time to live; infinite where it has none.
        written_at: Likewise, when it was last stored.
        counters: positive, negative, size, squared, surprise as in `Evidence`, int64, shape (5, n).
    """

    seqs: NDArray[np.int64]
    vectors: NDArray[np.float32]
    held: NDArray[np.bool_]
    waiting: NDArray[np.bool_]
    live: NDArray[np.bool_]
    added_at: NDArray[np.float64]
    expires_at: NDArray[np.float64]
    written_at: NDArray[np.float64]
    counters: NDArray[np.int64]

    def take(self, which: NDArray[np.bool_]) -> Feed:
        """Some of the rows; not copied if it is all of them."""
        if which.all():
            return self
        columns = {f.name: getattr(self, f.name)[which] for f in fields(self)[:-1]}
        return Feed(**columns, counters=self.counters[:, which])


class Recount(NamedTuple):
    """What outcomes moved of one memory; `counters` are those of `Feed`."""

    seq: int
    status: str
    added_at: float
    counters: tuple[int, ...]

    @property
    def waiting(self) -> bool:
        """See `Feed`."""
        return self.status in _WAITING

    @property
    def held(self) -> bool:
        """See `Feed`."""
        return self.status == _SUPPRESSED


def cursor(session: Session) -> Cursor:
    """Where the database is now: the changes after it are yet to come."""
    return changes(session, Cursor(session.number(_REVISION)))[1]


def count(session: Session, namespace: Namespace) -> int:
    """How many live memories a namespace has."""
    return populations.live(session, namespace_key(namespace))


def whole(session: Session, namespace: Namespace, dimension: int) -> Iterator[Feed]:
    """All live memories of a namespace, in parts: at once they would take twice the memory, and the time."""
    for rows in session.parts(_FEED_ALL, _PART, namespace=namespace_key(namespace)):
        yield as_feed(rows, dimension)


def some(session: Session, seqs: Sequence[int]) -> dict[str, list[Any]]:
    """Rows of certain memories by their namespace, to be given to `as_feed`."""
    by_namespace: dict[str, list[Any]] = {}
    for row in lists.select_in(session, _FEED_SOME, seqs):
        by_namespace.setdefault(row[-1], []).append(row)
    return by_namespace


def changes(session: Session, cursor: Cursor) -> tuple[list[Change], Cursor]:
    """What was committed since, and where that leaves the reader."""
    rows = session.rows(_CHANGES, after=cursor.after)
    horizon = rows[0][5] if rows else None
    found = [r for r in rows if r[0] is not None and r[0] not in cursor.seen]
    if horizon is not None:
        # Transactions from here on may still be committed; of those that are, what was seen is left out next time.
        seen = frozenset(r[0] for r in rows if r[0] is not None and r[4] >= horizon)
        cursor = Cursor(horizon, seen)
    elif found:
        cursor = Cursor(found[-1][0])
    return [Change(*r[:4]) for r in found], cursor


def missed(cursor: Cursor, changes: Sequence[Change]) -> bool:
    """Whether changes after a cursor are not among those that are kept, so that a reader has to load all anew."""
    return any(c.kind == "pruned" and cursor.after < c.low for c in changes)


def touched(changes: Sequence[Change]) -> list[int]:
    """The numbers of the memories that some changes are about, apart from those that only outcomes moved."""
    seqs: set[int] = set()
    for change in changes:
        if change.kind == "memories":
            seqs.update(range(change.low, change.high + 1))
    return sorted(seqs)


def recounted(session: Session, changes: Sequence[Change]) -> dict[str, list[Recount]]:
    """Counters and statuses of the memories that outcomes moved, by their namespace; each once."""
    eids = [c.low for c in changes if c.kind == "episode"]
    found: dict[str, dict[int, Recount]] = {}  # a memory may be in several of the episodes
    for ns, seq, status, added_at, *counters in lists.select_in(session, _RECOUNT, eids):
        found.setdefault(ns, {})[seq] = Recount(seq, status, added_at, tuple(counters))
    return {ns: list(rows.values()) for ns, rows in found.items()}


def as_feed(rows: Sequence[Any], dimension: int) -> Feed:
    """Rows of `some` column by column."""
    n = len(rows)
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * 11
    meaning = np.array(columns[3], dtype=np.int8)
    return Feed(
        seqs=np.array(columns[0], dtype=np.int64),
        vectors=np.frombuffer(b"".join(columns[1]), dtype=np.float32).reshape(n, dimension),
        added_at=np.array(columns[2], dtype=np.float64),
        live=meaning != _IS_GONE,
        held=meaning == _IS_HELD,
        waiting=meaning == _IS_WAITING,
        counters=np.array(columns[4:9], dtype=np.int64).reshape(5, n),
        # None becomes NaN.
        expires_at=np.nan_to_num(np.array(columns[9], dtype=np.float64), nan=np.inf),
        written_at=np.array(columns[10], dtype=np.float64),
    )


_PART = 512
_SUPPRESSED = Status.SUPPRESSED.value
_WAITING = frozenset({Status.QUARANTINED.value, Status.WITHHELD.value})
# What a status means to the index is said by the database, as one number: a million texts take longer to arrive than all the
# rest but the vectors, and three answers longer than one.
_IS_GONE, _IS_SERVED, _IS_HELD, _IS_WAITING = range(4)
_MEANINGS = {
    **dict.fromkeys(sorted(s.value for s in SERVED), _IS_SERVED),
    _SUPPRESSED: _IS_HELD,
    **dict.fromkeys(sorted(_WAITING), _IS_WAITING),
}
_MEANING = (
    f"CASE WHEN m.retired_at IS NOT NULL THEN {_IS_GONE} ELSE CASE e.status "
    + " ".join(f"WHEN '{status}' THEN {meaning}" for status, meaning in _MEANINGS.items())
    + f" ELSE {_IS_GONE} END END"
)
_FEED = f"SELECT m.seq, m.vector, m.added_at, {_MEANING}, e.positive, e.negative, e.size, e.squared, e.surprise, m.expires_at, m.written_at"
_FROM = (
    " FROM memories m JOIN evidence e ON e.seq = m.seq "
    "WHERE LENGTH(m.vector) > 0 AND "  # external memories have none
)
_FEED_ALL = Statement(
    f"{_FEED}{_FROM}m.namespace = :namespace AND m.retired_at IS NULL ORDER BY m.seq"
)
_FEED_SOME = f"{_FEED}, m.namespace{_FROM}m.seq IN :values"
_HORIZON = "CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)"
_REVISION = Statement("SELECT MAX(revision) FROM changes", postgresql=f"SELECT {_HORIZON}")
_CHANGES = Statement(
    "SELECT revision, kind, low, high, NULL, NULL FROM changes "
    "WHERE revision > :after ORDER BY revision",
    postgresql="SELECT c.revision, c.kind, c.low, c.high, c.xact, s.horizon "
    f"FROM (SELECT {_HORIZON} AS horizon) s LEFT JOIN changes c ON c.xact >= :after "
    "ORDER BY c.xact, c.revision",
)
_RECOUNT = (
    "SELECT m.namespace, e.seq, e.status, m.added_at, e.positive, e.negative, e.size, e.squared, "
    "e.surprise "
    "FROM exposures x JOIN memories m ON m.seq = x.seq JOIN evidence e ON e.seq = x.seq "
    "WHERE m.retired_at IS NULL AND x.eid IN :values"
)
