"""Retention: runs that are older than outcomes can be late are rolled up into opening balances. No counter changes by it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.credit import Credit
from langchain_memoryworth.estimators.evidence import Evidence
from langchain_memoryworth.ledger import lists, openings, rates, regimes, standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.openings import Opening
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.ledger.settlement import in_force
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.progress import Progress, unwatched
from langchain_memoryworth.records import Compacted, OutcomeKey, OutcomeRecord

KEPT_CHANGES = 100_000
"""Changes that are kept for processes that are behind; beyond, loading all anew is the shorter way."""
BATCH = 500
"""Runs in one transaction: writers wait for no more than that."""


class _Given(NamedTuple):
    """Credit of one memory in one episode, and where; `heard` as in the exposure."""

    seq: int
    namespace: str
    context: str
    epoch: int
    heard: int | None
    weight: int
    positive: int
    size: int
    surprise: int


class Retention:
    """Rolling up, in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def roll_up(
        self, before: float, policy: Policy, now: float, progress: Progress = unwatched
    ) -> Compacted:
        """Roll up what began, was shown and was settled before a time.

        Runs without an outcome are closed too, unless they are younger than `Policy.pending_age`. The newest run is kept, and that
        of the newest outcome, so that no number is given twice.
        """
        young = min(before, now - policy.pending_age.total_seconds())
        with self._database.write() as session:
            last = session.number(_LAST)
            pruned = self._prune(session, before, young)
            newest = session.number(_NEWEST)
        after, count = 0, 0
        while True:
            with self._database.write() as session:
                rows = session.rows(_OLD, after=after, before=before, young=young, limit=BATCH)
                eids = [eid for eid, *_ in rows]
                if not eids:
                    break
                after = eids[-1]
                # What was touched since has a change that leads to it, and a settlement that is not old.
                busy = {eid for (eid,) in session.rows(_BUSY, newest=newest)}
                count += self._close(session, [r for r in rows if r[0] not in busy], policy)
            progress("rolling up", after, last)
        return Compacted(count, pruned)

    # -- runs -------------------------------------------------------------------------------------------------

    def _close(self, session: Session, episodes: Sequence[Any], policy: Policy) -> int:
        eids = [eid for eid, *_ in episodes]
        said = _by_episode(lists.select_in(session, _OUTCOMES, eids))
        given = {
            eid: [_Given(*row) for row in rows]
            for eid, rows in _by_episode(lists.select_in(session, _CREDITS, eids)).items()
        }
        balances: dict[Opening, Evidence] = defaultdict(Evidence)
        base = rates.Rates({})
        for eid, _, reward in episodes:
            rows = given.get(eid, ())
            for opening, evidence in _balances(rows, _in_force(said.get(eid, ()), policy)):
                balances[opening] += evidence
            base.roll_up(eid, [rates.Place(x.namespace, x.context) for x in rows], reward)
        openings.add(session, balances)
        base.save(session)
        self._move_regimes(session, given)
        names = [id_ for _, id_, *_ in episodes]
        names += [alias for (alias,) in lists.select_in(session, _ALIASES, eids)]
        openings.close(session, map(openings.key, names))
        for statement in _FORGET:
            session.run_many(statement, [{"eid": eid} for eid in eids])
        return len(eids)

    def _move_regimes(self, session: Session, given: Mapping[int, Sequence[_Given]]) -> None:
        last: dict[int, int] = defaultdict(int)
        for rows in given.values():
            for x in rows:
                last[x.seq] = max(last[x.seq], x.heard or 0)
        stands = standing.read(session, sorted(last))
        regimes.roll_up(session, last, {seq: s.epoch for seq, s in stands.items()})

    # -- changes ----------------------------------------------------------------------------------------------

    def _prune(self, session: Session, before: float, young: float) -> int:
        """Forget changes that lead to what is rolled up, and those far behind; whoever has not seen them is told."""
        until = max(
            session.number(_LEADING, before=before, young=young),
            session.number(_NEWEST) - KEPT_CHANGES,
        )
        row = session.row(_PRUNED, until=until)
        count, bound = (0, 0) if row is None else (row[0], row[1])
        if count:
            standing.changed(session, "pruned", int(bound))
            session.run(_PRUNE, {"until": until})
        return int(count)


def cutoff(before: datetime | timedelta, now: float) -> float:
    """The Unix time before which something is old.

    Raises:
        InvalidInputError: If it is no age and no aware time, or not in the past.

    Examples:
        >>> cutoff(timedelta(days=1), 100_000.0)
        13600.0
    """
    if isinstance(before, timedelta):
        at = now - before.total_seconds()
    elif isinstance(before, datetime) and before.tzinfo is not None:
        at = before.timestamp()
    else:
        raise InvalidInputError(
            f"before={before!r}; give a timedelta such as timedelta(days=90), or an aware datetime",
            value=before,
        )
    if at > now:
        raise InvalidInputError(
            f"before={before} is in the future; give an age of at least 0, or a past time",
            value=before,
        )
    return at


def _by_episode(rows: Iterable[Sequence[Any]]) -> dict[int, list[Sequence[Any]]]:
    found: dict[int, list[Sequence[Any]]] = defaultdict(list)
    for eid, *row in rows:
        found[eid].append(row)
    return found


def _balances(
    rows: Sequence[_Given], ranked: Sequence[OutcomeRecord]
) -> Iterator[tuple[Opening, Evidence]]:
    """What an episode adds to balances; the sources that did not decide leave a row each, without counters."""
    decides = ranked[0].source if ranked else ""
    others = {o.source for o in ranked} - {decides}
    for x in rows:
        credit = Credit(x.weight, x.positive, x.size, x.surprise)
        yield Opening(x.seq, x.context, decides, x.epoch), credit.evidence
        for source in others:
            yield Opening(x.seq, x.context, source, x.epoch), Evidence()


def _in_force(rows: Iterable[Sequence[Any]], policy: Policy) -> list[OutcomeRecord]:
    """The outcomes in force of an episode, the one that decides first, and those of other metrics last."""
    current: dict[OutcomeKey, OutcomeRecord] = {}
    for _, source, source_id, metric, reward, at in rows:
        when = datetime.fromtimestamp(at, UTC)
        record = OutcomeRecord(source, source_id, reward, None, when, metric)
        current.pop(record.key, None)
        if reward is not None:
            current[record.key] = record
    ranked = in_force(list(current.values()), policy.sources, policy.metric)
    return ranked + [o for o in current.values() if o not in ranked]


# What a trial drew stays: its analysis weighs every draw by its probability.
_IS_OLD = (
    "p.started_at < :before AND COALESCE(p.settled_at, p.started_at) < :before "
    "AND (p.reward IS NOT NULL OR p.started_at < :young) "
    "AND p.eid < (SELECT MAX(eid) FROM episodes) "
    "AND p.eid <> COALESCE((SELECT eid FROM outcomes ORDER BY number DESC LIMIT 1), 0) "
    "AND NOT EXISTS (SELECT 1 FROM exposures x WHERE x.eid = p.eid "
    "AND (COALESCE(x.last_at, x.at) >= :before OR (x.propensity < 1 AND x.arm <> 'probation'))) "
)
_OLD = Statement(
    f"SELECT p.eid, p.id, p.reward FROM episodes p WHERE p.eid > :after AND {_IS_OLD} "
    "ORDER BY p.eid LIMIT :limit"
)
_LAST = Statement("SELECT MAX(eid) FROM episodes")
_NEWEST = Statement("SELECT MAX(revision) FROM changes")
_BUSY = Statement("SELECT low FROM changes WHERE kind = 'episode' AND revision > :newest")
_LEADING = Statement(
    "SELECT MAX(c.revision) FROM changes c JOIN episodes p ON p.eid = c.low "
    f"WHERE c.kind = 'episode' AND {_IS_OLD}"
)
# Where a reader must stand to have seen them all: on Postgres behind their last transaction.
_PRUNED = Statement(
    "SELECT COUNT(*), MAX(revision) FROM changes WHERE revision <= :until",
    postgresql="SELECT COUNT(*), MAX(xact) + 1 FROM changes WHERE revision <= :until",
)
_PRUNE = Statement("DELETE FROM changes WHERE revision <= :until")
_OUTCOMES = (
    "SELECT eid, number, source, source_id, metric, reward, at FROM outcomes WHERE eid IN :values "
    "ORDER BY number"
)
_CREDITS = (
    "SELECT x.eid, x.seq, m.namespace, COALESCE(x.context, ''), x.epoch, x.heard, x.weight, x.positive, "
    "x.size, x.surprise FROM exposures x JOIN memories m ON m.seq = x.seq "
    "WHERE x.size > 0 AND x.eid IN :values"
)
_ALIASES = "SELECT alias FROM aliases WHERE eid IN :values"
_FORGET = tuple(
    Statement(f"DELETE FROM {table} WHERE eid = :eid")
    for table in ("exposures", "outcomes", "aliases", "pauses", "episodes")
)
