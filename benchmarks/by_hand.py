"""The durable work of an episode, by hand: the same rows in the same transactions, and nothing else.

It is told which memories are shown, what credit they get and what was expected. It looks up memories by their ids and the
episode by its run id, as everybody must whose outcomes come later, and reads nothing more.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import psycopg

from langchain_memoryworth.estimators.drift import fresh, pack
from langchain_memoryworth.estimators.evidence import UNIT, squared_weight

Values = Sequence[Any]


class Line(Protocol):
    """A connection as its driver has it; parameters are written `?`."""

    def begin(self) -> None:
        """Begin a transaction that writes."""

    def rows(self, sql: str, values: Values = ()) -> list[Any]:
        """All rows of a query."""

    def run(self, sql: str, values: Values = ()) -> None:
        """Run a statement."""

    def many(self, sql: str, rows: Sequence[Values]) -> None:
        """Run a statement once per row."""

    def added(self, sql: str, values: Values, key: str) -> int:
        """Insert a row; the number that its key got."""

    def close(self) -> None:
        """Close the connection."""


class SqliteLine:
    """`sqlite3` on a file that has our schema."""

    def __init__(self, path: Path, durability: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={durability}")
        self._cursor = self._connection.cursor()

    def begin(self) -> None:
        self._cursor.execute("BEGIN IMMEDIATE")

    def rows(self, sql: str, values: Values = ()) -> list[Any]:
        return self._cursor.execute(sql, values).fetchall()

    def run(self, sql: str, values: Values = ()) -> None:
        self._cursor.execute(sql, values)

    def many(self, sql: str, rows: Sequence[Values]) -> None:
        self._cursor.executemany(sql, rows)

    def added(self, sql: str, values: Values, key: str) -> int:
        self._cursor.execute(sql, values)
        return self._cursor.lastrowid or 0

    def close(self) -> None:
        self._connection.close()


class PostgresLine:
    """`psycopg` as it comes, on a schema of ours: it prepares what it sees often, and sends many rows in a pipeline."""

    def __init__(self, server: str, schema: str) -> None:
        self._connection = psycopg.connect(server, autocommit=True)
        self._cursor = self._connection.cursor()
        self._cursor.execute(f"SET search_path TO {schema}")

    def begin(self) -> None:
        self._cursor.execute("BEGIN")

    def rows(self, sql: str, values: Values = ()) -> list[Any]:
        self.run(sql, values)
        return self._cursor.fetchall()

    def run(self, sql: str, values: Values = ()) -> None:
        self._cursor.execute(sql.replace("?", "%s"), values)

    def many(self, sql: str, rows: Sequence[Values]) -> None:
        self._cursor.executemany(sql.replace("?", "%s"), rows)

    def added(self, sql: str, values: Values, key: str) -> int:
        [(number,)] = self.rows(f"{sql} RETURNING {key}", values)
        return int(number)

    def close(self) -> None:
        self._connection.close()


class BareEpisodes:
    """Episodes on a connection.

    Args:
        line: To a database that has our schema.
    """

    def __init__(self, line: Line) -> None:
        self._line = line

    def begin(self) -> None:
        """Begin a transaction that writes."""
        self._line.begin()

    def located(self, ids: Sequence[str]) -> list[int]:
        """Numbers of live memories by id."""
        marks = ", ".join("?" * len(ids))
        found = self._line.rows(
            f"SELECT id, seq FROM memories WHERE retired_at IS NULL AND id IN ({marks})", ids
        )
        seqs = dict(found)
        return [seqs[i] for i in ids]

    def expose(self, run_id: str, seqs: Sequence[int]) -> None:
        """One row for the episode, one for each memory; commits."""
        now = time.time()
        eid = self._line.added(
            "INSERT INTO episodes (id, thread_id, started_at) VALUES (?, ?, ?)",
            (run_id, None, now),
            "eid",
        )
        rows = [(eid, seq, i, 0.5, "served", 1.0, now) for i, seq in enumerate(seqs)]
        self._line.many(_EXPOSE, rows)
        self._line.run("COMMIT")

    def record(self, run_id: str, seqs: Sequence[int], *, success: bool = True) -> None:
        """The outcome, credits, counters, the head of the episode, the note for other processes; detectors of what failed."""
        self.begin()
        number = self._record(run_id, seqs, success=success)
        if not success:
            self._move_detectors(seqs, number)
        self._line.run("COMMIT")

    def record_many(self, episodes: Sequence[tuple[str, Sequence[int], bool]]) -> None:
        """`record` for many in one transaction."""
        self.begin()
        number = 0
        for run_id, seqs, success in episodes:
            number = self._record(run_id, seqs, success=success)
        failed = {seq for _, seqs, success in episodes if not success for seq in seqs}
        self._move_detectors(failed, number)
        self._line.run("COMMIT")

    def _move_detectors(self, seqs: Collection[int], number: int) -> None:
        """Read the change detectors' states and what they have not heard yet, and write as many bytes again."""
        marks = ", ".join("?" * len(seqs))
        self._line.rows(
            f"SELECT seq, state, upto, outcomes FROM regimes WHERE seq IN ({marks})", tuple(seqs)
        )
        self._line.rows(_HEARD.format(marks), tuple(seqs))
        self._line.many(_DETECT, [(seq, _STATE, number, 1) for seq in sorted(seqs)])

    def _record(self, run_id: str, seqs: Sequence[int], *, success: bool) -> int:
        run, many = self._line.run, self._line.many
        now = time.time()
        weight = UNIT // len(seqs)
        squared = squared_weight(weight)
        surprise, reward = (UNIT // 2, 1.0) if success else (-UNIT // 2, 0.0)
        positive = weight if success else 0
        [(eid,)] = self._line.rows("SELECT eid FROM episodes WHERE id = ?", (run_id,))
        said = eid, "user", "", reward, None, now
        number = self._line.added(_OUTCOME, said, "number")
        given = weight, positive, UNIT, surprise, 0.5, 0, number, eid
        many(_CREDIT, [(*given, seq) for seq in seqs])
        more = positive, weight - positive, UNIT, squared, 1, surprise
        many(_ADD, [(*more, seq) for seq in sorted(seqs)])
        run(_RATE, ("[]", "", eid % 8, 1, UNIT, reward, reward, 0.9, 0.9))
        run("UPDATE episodes SET reward = ?, settled_at = ? WHERE eid = ?", (reward, now, eid))
        run("INSERT INTO changes (kind, low, high) VALUES ('episode', ?, ?)", (eid, eid))
        return number

    def texts(self, seqs: Sequence[int]) -> list[tuple[int, str, str, str]]:
        """Number, id, text and metadata of some memories."""
        marks = ", ".join("?" * len(seqs))
        return self._line.rows(
            f"SELECT seq, id, text, metadata FROM memories WHERE seq IN ({marks})", tuple(seqs)
        )

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


_EXPOSE = (
    "INSERT INTO exposures (eid, seq, rank, similarity, arm, propensity, shown, at) "
    "VALUES (?, ?, ?, ?, ?, ?, 1, ?)"
)
_OUTCOME = (
    "INSERT INTO outcomes (eid, source, source_id, reward, used, at) VALUES (?, ?, ?, ?, ?, ?)"
)
_CREDIT = (
    "UPDATE exposures SET weight = ?, positive = ?, size = ?, surprise = ?, expected = ?, epoch = ?, "
    "heard = ? WHERE eid = ? AND seq = ?"
)
_ADD = (
    "UPDATE evidence SET positive = positive + ?, negative = negative + ?, size = size + ?, "
    "squared = squared + ?, retrievals = retrievals + ?, surprise = surprise + ? WHERE seq = ?"
)
_STATE = pack(fresh(1))[0]
_HEARD = (
    "SELECT x.seq, x.heard, p.started_at, p.reward, x.size, x.expected FROM regimes r "
    "CROSS JOIN exposures x CROSS JOIN episodes p WHERE r.seq IN ({}) AND x.seq = r.seq "
    "AND x.size > 0 AND x.heard > r.upto AND p.eid = x.eid ORDER BY x.heard"
)
_DETECT = (
    "INSERT INTO regimes (seq, state, upto, outcomes) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (seq) DO UPDATE SET state = excluded.state, upto = excluded.upto, "
    "outcomes = excluded.outcomes"
)
_RATE = (
    "INSERT INTO rates (namespace, context, shard, episodes, reward, recent, recent_reward) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (namespace, context, shard) DO UPDATE SET "
    "episodes = rates.episodes + excluded.episodes, reward = rates.reward + excluded.reward, "
    "recent = rates.recent * ? + excluded.recent, "
    "recent_reward = rates.recent_reward * ? + excluded.recent_reward"
)
