"""Episodes: under which names a run is known, where it begins, and what the ledger has of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_memoryworth.errors import RolledUpRunError, UnknownRunError
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.estimators.paths import Path, joined
from langchain_memoryworth.estimators.use import PARTS, from_document
from langchain_memoryworth.ledger import lists, openings
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.records import (
    Arm,
    EpisodeKey,
    EpisodeRecord,
    ExposureRecord,
    OutcomeKey,
    OutcomeRecord,
)


class Episodes:
    """The runs in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- reading ----------------------------------------------------------------------------------------------

    def shown(self, episode_id: str) -> dict[int, str]:
        """What an episode has in front of the model: number and id of each memory."""
        with self._database.read() as session:
            found = self._find(session, episode_id)
            rows = self._retrieved(session, found[0]) if found else []
        return {seq: id_ for seq, id_, shown in rows if shown}

    def retrieved(self, session: Session, episode_id: str, ids: Collection[str]) -> dict[str, int]:
        """Those of some memories that an episode retrieved, shown or not: the number of each."""
        found = self._find(session, episode_id)
        rows = self._retrieved(session, found[0]) if found else []
        return {id_: seq for seq, id_, _ in rows if id_ in ids}

    def episode(self, run_id: str) -> EpisodeRecord:
        """One episode with its exposures and outcomes.

        Raises:
            UnknownRunError: If no episode has that id.
        """
        with self._database.read() as session:
            eid, _ = self._known(session, run_id)
            head = session.row(_EPISODE, eid=eid)
            exposures = session.rows(_EXPOSURES, eid=eid)
            outcomes = self._outcomes(session, eid)
        return _episode(
            head,
            tuple(
                ExposureRecord(
                    memory_id,
                    seq,
                    rank,
                    similarity,
                    Arm(arm),
                    p,
                    bool(shown),
                    w / UNIT,
                    hit / UNIT,
                    None if used is None else used / PARTS,
                )
                for memory_id, seq, rank, similarity, arm, p, shown, w, hit, used in exposures
            ),
            tuple(outcomes.values()),
        )

    def open_episodes(self, since: float, limit: int) -> list[EpisodeRecord]:
        """Episodes without an outcome that began after a time, oldest first."""
        with self._database.read() as session:
            return [_episode(r) for r in session.rows(_OPEN, since=since, limit=limit)]

    def said_by(self, source: str, since: float) -> list[tuple[str, OutcomeKey]]:
        """The outcomes in force of one source: the id of the episode, if that began at or after a time, and the key."""
        with self._database.read() as session:
            rows = session.rows(_SAID_BY, source=source, since=since)
        newest = {
            (id_, OutcomeKey(source, sid, metric)): reward for id_, sid, metric, reward in rows
        }
        return [said for said, reward in newest.items() if reward is not None]

    def run_ids(self) -> list[str]:
        """Every id and alias of every episode, oldest first."""
        with self._database.read() as session:
            return [str(id_) for (id_,) in session.rows(_RUN_IDS)]

    def counts(self, pending_since: float) -> tuple[int, int, int]:
        """How many episodes there are, how many are pending, how many expired."""
        with self._database.read() as session:
            total = session.number(_COUNT_EPISODES)
            pending = session.number(_COUNT_PENDING, since=pending_since)
            open_ = session.number(_COUNT_PENDING, since=float("-inf"))
        return total, pending, open_ - pending

    # -- names ------------------------------------------------------------------------------------------------

    def _find(
        self, session: Session, run_id: str, *, hold: bool = False
    ) -> tuple[int, bool] | None:
        return _found(session.row(_HOLD if hold else _FIND, id=run_id))

    def _known(self, session: Session, run_id: str, *, hold: bool = False) -> tuple[int, bool]:
        found = self._find(session, run_id, hold=hold)
        if found is None:
            raise self._unknown(session, run_id)
        return found

    def _unknown(self, session: Session, run_id: str) -> UnknownRunError:
        rolled_up = openings.closed(session, [openings.key(run_id)])
        return RolledUpRunError(run_id) if rolled_up else UnknownRunError(run_id)

    def open_episode(self, session: Session, episode: EpisodeKey, now: float) -> tuple[int, bool]:
        """The number of an episode, which begins if it is not known, and whether it is settled."""
        found = self._find(session, episode.id, hold=True)
        if found is None:
            row = session.row(_NEW_EPISODE, id=episode.id, thread_id=episode.thread_id, now=now)
            found = _found(row) or self._known(session, episode.id, hold=True)
        # In one order, or two that take over each other's names could block each other on Postgres.
        aliases = sorted(a for a in episode.aliases if a != episode.id)
        if aliases:
            session.run_many(_ALIAS, [{"alias": a, "eid": found[0]} for a in aliases])
        return found

    def begin_again(
        self, session: Session, episode: EpisodeKey, now: float, *, only_settled: bool = False
    ) -> bool:
        """A run id is used again: its feedback goes to a new episode `id#2` from now on.

        Returns:
            False if no episode has that id, or none that is settled.
        """
        found = self._find(session, episode.id, hold=True)
        if found is None or (only_settled and not found[1]):
            return False
        low, high = f"{episode.id}#", f"{episode.id}$"  # the character after #
        number = session.number(_COUNT_AGAIN, low=low, high=high) + 2
        while session.row(_FIND, id=f"{low}{number}") is not None:
            number += 1
        key = EpisodeKey(f"{low}{number}", (episode.id, *episode.aliases), episode.thread_id)
        self.open_episode(session, key, now)
        return True

    def _retrieved(self, session: Session, eid: int) -> list[tuple[Any, ...]]:
        """Number and id of each memory that an episode retrieved, by rank, and whether it is shown."""
        return session.rows(_RETRIEVED, eid=eid)

    def _hold_all(self, session: Session, run_ids: Sequence[str | int]) -> list[int]:
        """The numbers of runs, each locked, in the order of the numbers."""
        wanted = sorted({r for r in run_ids if isinstance(r, str)})
        found: dict[str | int, int] = {r: r for r in run_ids if isinstance(r, int)}
        found |= dict(lists.select_in(session, _EIDS, wanted))
        found |= dict(lists.select_in(session, _EIDS_BY_ALIAS, wanted))  # an alias wins
        for run_id in run_ids:
            if run_id not in found:
                raise self._unknown(session, str(run_id))
        numbers = sorted(set(found.values()))
        held = lists.select_in(session, _HOLD_ALL, numbers, hold="FOR UPDATE")
        if len(held) < len(numbers):  # a number that was looked up before
            raise RolledUpRunError(str(set(numbers) - {eid for (eid,) in held}))
        return [found[run_id] for run_id in run_ids]

    def follow(self, session: Session, eid: int, path: Path) -> None:
        """Write down which tools an episode that is held called next, see `joined`."""
        if not path:
            return
        before = path_of(session.rows(_PATH, eid=eid)[0][0])
        after = joined(before, path)
        if after != before:
            session.run(_FOLLOW, {"eid": eid, "path": json.dumps(after)})

    def _outcomes(self, session: Session, eid: int) -> dict[OutcomeKey, OutcomeRecord]:
        """The outcomes in force, the newest of each key, oldest first; withdrawn ones are left out."""
        current: dict[OutcomeKey, OutcomeRecord] = {}
        for _, _, *row in lists.select_in(session, OUTCOMES_OF, [eid]):
            follow_outcome(current, *row)
        return current


def path_of(column: str | None) -> Path:
    """The tools of a run from what its row has of them."""
    return () if column is None else tuple(json.loads(column))


def _found(row: Sequence[Any] | None) -> tuple[int, bool] | None:
    return None if row is None else (row[0], row[1] is not None)


def follow_outcome(
    current: dict[OutcomeKey, OutcomeRecord],
    source: str,
    source_id: str,
    metric: str,
    reward: float | None,
    document: str | None,
    at: float,
) -> None:
    """Take the next row of the outcomes of an episode."""
    key = OutcomeKey(source, source_id, metric)
    current.pop(key, None)
    if reward is not None:
        used = None if document is None else from_document(document)
        when = datetime.fromtimestamp(at, UTC)
        current[key] = OutcomeRecord(source, source_id, reward, used, when, metric)


def _episode(
    row: Any,
    exposures: tuple[ExposureRecord, ...] = (),
    outcomes: tuple[OutcomeRecord, ...] = (),
) -> EpisodeRecord:
    id_, started_at, thread_id, reward, path = row
    at = datetime.fromtimestamp(started_at, UTC)
    return EpisodeRecord(id_, at, thread_id, reward, exposures, outcomes, path_of(path))


_FIND = Statement(
    # An alias wins: a run id that is used again points to the newer episode.
    "SELECT eid, reward FROM episodes WHERE eid = COALESCE("
    "(SELECT eid FROM aliases WHERE alias = :id), (SELECT eid FROM episodes WHERE id = :id))"
)
_HOLD = Statement(_FIND.sql, postgresql=_FIND.sql + " FOR UPDATE")
_NEW_EPISODE = Statement(
    # Another process may have written it down since it was looked for; then it is held from here on.
    "INSERT INTO episodes (id, thread_id, started_at) VALUES (:id, :thread_id, :now) "
    "ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING eid, reward"
)
_COUNT_AGAIN = Statement("SELECT COUNT(*) FROM episodes WHERE id > :low AND id < :high")
_ALIAS = Statement(
    "INSERT INTO aliases (alias, eid) VALUES (:alias, :eid) "
    "ON CONFLICT (alias) DO UPDATE SET eid = excluded.eid"
)
_RETRIEVED = Statement(
    "SELECT x.seq, m.id, x.shown FROM exposures x JOIN memories m ON m.seq = x.seq "
    "WHERE x.eid = :eid ORDER BY x.rank, x.seq"
)
_EXPOSURES = Statement(
    "SELECT m.id, x.seq, x.rank, x.similarity, x.arm, x.propensity, x.shown, x.weight, x.positive, "
    "x.used FROM exposures x JOIN memories m ON m.seq = x.seq WHERE x.eid = :eid ORDER BY x.rank, x.seq"
)
OUTCOMES_OF = (
    "SELECT eid, number, source, source_id, metric, reward, used, at FROM outcomes "
    "WHERE eid IN :values ORDER BY number"
)
_EIDS = "SELECT id, eid FROM episodes WHERE id IN :values"
_EIDS_BY_ALIAS = "SELECT alias, eid FROM aliases WHERE alias IN :values"
_HOLD_ALL = "SELECT eid FROM episodes WHERE eid IN :values ORDER BY eid"
_SAID_BY = Statement(
    "SELECT e.id, o.source_id, o.metric, o.reward FROM outcomes o JOIN episodes e ON e.eid = o.eid "
    "WHERE o.source = :source AND e.started_at >= :since ORDER BY o.number"
)
_RUN_IDS = Statement(
    "SELECT id FROM (SELECT id, eid FROM episodes UNION ALL SELECT alias, eid FROM aliases) AS named "
    "ORDER BY eid"
)
_PATH = Statement("SELECT path FROM episodes WHERE eid = :eid")
_FOLLOW = Statement("UPDATE episodes SET path = :path WHERE eid = :eid")
_EPISODE = Statement(
    "SELECT id, started_at, thread_id, reward, path FROM episodes WHERE eid = :eid"
)
_OPEN = Statement(
    "SELECT id, started_at, thread_id, reward, path FROM episodes "
    "WHERE reward IS NULL AND started_at >= :since ORDER BY started_at LIMIT :limit"
)
_COUNT_EPISODES = Statement("SELECT COUNT(*) FROM episodes")
_COUNT_PENDING = Statement(
    "SELECT COUNT(*) FROM episodes WHERE reward IS NULL AND started_at >= :since"
)
