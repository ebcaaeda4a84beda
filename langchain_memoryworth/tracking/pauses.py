"""Runs that stop and go on later: interrupts, breakpoints, and graphs that failed and are started again.

A resumed graph is a new run of LangChain, maybe in another process; what joins it to the run that stopped is the thread
and the checkpoint. So the joint is in the database.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from langchain_core.documents import Document

from langchain_memoryworth.estimators.paths import Path
from langchain_memoryworth.ledger.database import Database, retried, retried_if_undone
from langchain_memoryworth.ledger.recording import Ledger
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.records import EpisodeKey
from langchain_memoryworth.tracking.roots import Pause


class Resumed(NamedTuple):
    """What a resumed run goes on with: the episode, and what it has in front of the model."""

    episode: EpisodeKey
    documents: list[Document]


class Pauses:
    """Where runs stopped.

    Args:
        database: Where it is written down.
        ledger: The episodes of the same database.
    """

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database = database
        self._ledger = ledger

    @retried
    def pause(self, episode: EpisodeKey, pause: Pause, now: float, path: Path = ()) -> None:
        """An episode stopped here, after these tools."""
        with self._database.write() as session:
            eid, _ = self._ledger.open_episode(session, episode, now)
            session.run(_PAUSE, {**pause._asdict(), "eid": eid, "now": now})
            self._ledger.follow(session, eid, path)

    # Not if it may have gone on already: it would be taken for somebody who goes back.
    @retried_if_undone
    def resume(
        self,
        episode: EpisodeKey,
        thread_id: str,
        checkpoints: Sequence[str],
        now: float,
        *,
        latest: bool,
    ) -> Resumed | None:
        """A run goes on from one of some checkpoints, or else from wherever its thread stopped last.

        A pause is continued once. Whoever goes back to it afterwards begins an episode of his own, which has in front
        of the model what stood there then.

        Args:
            episode: Of the run that goes on; its id becomes an alias of the one continued.
            thread_id: Its thread.
            checkpoints: Tried in order.
            now: Unix time in seconds.
            latest: Whether the newest pause of the thread is meant if nothing stopped at any of them: after
                `update_state` a thread stands at another checkpoint than where it stopped.

        Returns:
            None if nothing stopped there.
        """
        with self._database.write() as session:
            found = self._found(session, thread_id, checkpoints, latest)
            if found is None:
                return None
            pause, old, head, until, resumed_at = found
            if resumed_at is None:
                key = EpisodeKey(head, (episode.id, *episode.aliases), thread_id)
                session.run(_RESUMED, {"pause": pause, "now": now})
            else:
                key = replace(episode, thread_id=thread_id)
            eid, _ = self._ledger.open_episode(session, key, now)
            if eid != old:
                session.run(_COPY, {"eid": eid, "old": old, "until": until, "at": now})
            documents = [
                Document(id=memory_id, page_content=text, metadata=json.loads(metadata))
                for memory_id, text, metadata in session.rows(_SHOWN, eid=eid)
            ]
        return Resumed(key, documents)

    def _found(
        self, session: Session, thread_id: str, checkpoints: Sequence[str], latest: bool
    ) -> tuple[Any, ...] | None:
        for checkpoint_id in checkpoints:
            row = session.row(_AT, thread_id=thread_id, checkpoint_id=checkpoint_id)
            if row is not None:
                return row
        return session.row(_LAST, thread_id=thread_id) if latest else None


_PAUSE = Statement(
    "INSERT INTO pauses (thread_id, checkpoint_id, eid, at) "
    "VALUES (:thread_id, :checkpoint_id, :eid, :now) ON CONFLICT (thread_id, checkpoint_id) "
    "DO UPDATE SET eid = excluded.eid, at = excluded.at, resumed_at = NULL"
)
_COLUMNS = (
    "SELECT p.pause, p.eid, e.id, p.at, p.resumed_at FROM pauses p JOIN episodes e ON e.eid = p.eid "
    "WHERE p.thread_id = :thread_id "
)
_AT = Statement(_COLUMNS + "AND p.checkpoint_id = :checkpoint_id")
_LAST = Statement(
    # Not if a newer turn of the thread is known, or if that pause is over.
    _COLUMNS + "AND p.pause = (SELECT pause FROM pauses WHERE thread_id = :thread_id "
    "ORDER BY at DESC, pause DESC LIMIT 1) AND p.resumed_at IS NULL AND NOT EXISTS "
    "(SELECT 1 FROM episodes n WHERE n.thread_id = :thread_id AND n.eid > p.eid)"
)
_RESUMED = Statement("UPDATE pauses SET resumed_at = :now WHERE pause = :pause")
_COPY = Statement(
    "INSERT INTO exposures (eid, seq, rank, similarity, context, arm, propensity, shown, at) "
    "SELECT :eid, seq, rank, similarity, context, arm, propensity, shown, :at FROM exposures "
    "WHERE eid = :old AND shown = 1 AND at <= :until ON CONFLICT (eid, seq) DO NOTHING"
)
_SHOWN = Statement(
    "SELECT m.id, m.text, m.metadata FROM exposures x JOIN memories m ON m.seq = x.seq "
    "WHERE x.eid = :eid AND x.shown = 1 ORDER BY x.rank, x.seq"
)
