"""Whose word decides: how many settled runs go by the word of each source, and of each of its voters. Nothing is written."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from langchain_memoryworth.ledger import standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.deciders import Voice, deciding
from langchain_memoryworth.ledger.session import Statement
from langchain_memoryworth.records import OutcomeKey, SourceShare


class Voices:
    """Questions to the ledger about outcomes. They read the whole table, and are for people, not for the serving path."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def deciding(
        self, sources: tuple[str, ...], metric: str, *, last: int | None = None
    ) -> dict[str, Voice]:
        """Who decides each run that has an outcome, or each of the `last` runs, by the id of the run."""
        with self._database.read() as session:
            rows = session.rows(_ALL) if last is None else session.rows(_LAST, episodes=last)
        return deciding(rows, sources, metric)

    def said_by(self, source: str, source_id: str | None) -> list[tuple[int, OutcomeKey]]:
        """The outcomes in force of one source, or of one of its voters: number of the run, and key, oldest run first."""
        with self._database.read() as session:
            rows = session.rows(_OF_SOURCE, source=source)
        newest = {(eid, OutcomeKey(source, by, metric)): reward for eid, by, metric, reward in rows}
        return [
            said
            for said, reward in newest.items()
            if reward is not None and source_id in (None, said[1].source_id)
        ]


def shares(decided: Mapping[str, Voice]) -> list[SourceShare]:
    """How much each source decides, the one that decides most first.

    Examples:
        >>> [only] = shares({"r1": Voice("user", "ada"), "r2": Voice("user", "ada"), "r3": Voice("user", "bob")})
        >>> only.share, only.voters, only.loudest, round(only.loudest_share, 2), only.is_loud
        (1.0, 2, 'ada', 0.67, True)
    """
    voters: dict[str, Counter[str]] = defaultdict(Counter)
    for voice in decided.values():
        voters[voice.source][voice.source_id] += 1
    found = []
    for source, counts in voters.items():
        runs, (loudest, most) = counts.total(), counts.most_common(1)[0]
        share, of_all = runs / len(decided), most / len(decided)
        found.append(SourceShare(source, runs, share, len(counts), loudest, of_all))
    return sorted(found, key=lambda s: (-s.runs, s.source))


_ALL = Statement(
    "SELECT o.eid, e.id, o.source, o.source_id, o.metric, o.reward FROM outcomes o "
    "JOIN episodes e ON e.eid = o.eid ORDER BY o.eid, o.number"
)
_LAST = Statement(_ALL.sql.replace("ORDER BY", f"WHERE o.{standing.LATEST} ORDER BY"))
_OF_SOURCE = Statement(
    "SELECT eid, source_id, metric, reward FROM outcomes WHERE source = :source "
    "ORDER BY eid, number"
)
