"""The half of the ledger that holds runs: exposures, outcomes, and the settlement that joins them.

Whenever the exposures or the outcomes of an episode change, `settlement` works its credits out again, and the difference
is added to the counters in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from langchain_memoryworth.errors import InvalidInputError, RolledUpRunError, UnknownRunError
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.estimators.paths import Path, joined
from langchain_memoryworth.estimators.use import PARTS, Use, from_document, shares_of, to_document
from langchain_memoryworth.ledger import openings, rates, regimes, settlement, standing
from langchain_memoryworth.ledger.database import Database, retried
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.ledger.settlement import Account, Row, Settled, settle
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import (
    Arm,
    EpisodeKey,
    EpisodeRecord,
    ExposureRecord,
    Outcome,
    OutcomeKey,
    OutcomeRecord,
)


class Exposure(NamedTuple):
    """A memory that was put in front of the model, or would have been and was held out."""

    seq: int
    rank: int
    similarity: float | None
    arm: Arm = Arm.SERVED
    propensity: float = 1.0


class Said(NamedTuple):
    """An outcome of a run, None to withdraw it, by its key.

    Attributes:
        run_id: An id or alias; or the number of the episode, which no later run can have taken over.
        path: The tools that the run has called since the last time, where whoever says it has seen them.
    """

    run_id: str | int
    key: OutcomeKey
    outcome: Outcome | None
    path: Path = ()


class Ledger:
    """Episodes in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- exposures --------------------------------------------------------------------------------------------

    def expose(
        self,
        session: Session,
        episode: EpisodeKey,
        exposures: Sequence[Exposure],
        policy: Policy,
        now: float,
        *,
        begins: bool = False,
    ) -> bool:
        """Write down what is shown; once per episode and memory, however often it is retrieved.

        `begins` says that these are the first of a run: if an episode is settled under its id, then the id is used
        again, a new episode begins, and True is returned.
        """
        again = begins and self.begin_again(session, episode, now, only_settled=True)
        eid, settled = self.open_episode(session, episode, now)
        context = episode.context or None
        rows = [
            (eid, seq, rank, similarity, context, _NAME[arm], propensity, _IS_SHOWN[arm], now)
            for seq, rank, similarity, arm, propensity in exposures
        ]
        session.run_each(_EXPOSE, rows)
        if settled:
            self._settle(session, eid, policy, now)
        return again

    @retried
    def hide(
        self, episode_id: str, seqs: Iterable[int], policy: standing.PolicyOf, now: float
    ) -> int:
        """Take back that memories were shown: a filter dropped them. Returns how many it changed."""
        wanted = set(seqs)
        with self._database.write(alone=False) as session:
            found = self._find(session, episode_id, hold=True)
            if found is None:
                return 0
            eid, settled = found
            dropped = [seq for seq, _, shown in self._retrieved(session, eid) if shown]
            dropped = [seq for seq in dropped if seq in wanted]
            if dropped:
                session.run_each(_HIDE, [(eid, seq) for seq in dropped])
                if settled:
                    self._settle(session, eid, policy(session), now)
        return len(dropped)

    @retried
    def mark_used(self, episode_id: str, use: Use, policy: standing.PolicyOf, now: float) -> None:
        """Write down which memories a run says that it used, on top of what it said before: the most that it said counts.

        It holds where no outcome says so itself.

        Raises:
            UnknownRunError: If no episode has that id.
            InvalidInputError: If one of the ids was not retrieved in it.
        """
        shares = shares_of(use)
        with self._database.write(alone=False) as session:
            eid, settled = self._known(session, episode_id, hold=True)
            rows = self._retrieved(session, eid)
            _check_used(shares, {id_ for _, id_, _ in rows}, episode_id)
            parts = {id_: round(PARTS * share) for id_, share in shares.items()}
            session.run_many(
                _USED,
                [{"eid": eid, "seq": seq, "used": parts.get(id_, 0)} for seq, id_, _ in rows],
            )
            if settled:
                self._settle(session, eid, policy(session), now)

    # -- tools ------------------------------------------------------------------------------------------------

    @retried
    def keep_path(self, episode_id: str, path: Path) -> None:
        """Write down which tools an episode called; of one that retrieved nothing nothing is kept."""
        with self._database.write(alone=False) as session:
            found = self._find(session, episode_id, hold=True)
            if found is not None:
                self.follow(session, found[0], path)

    def follow(self, session: Session, eid: int, path: Path) -> None:
        """Write down which tools an episode that is held called next, see `joined`."""
        if not path:
            return
        before = path_of(session.rows(_PATH, eid=eid)[0][0])
        after = joined(before, path)
        if after != before:
            session.run(_FOLLOW, {"eid": eid, "path": json.dumps(after)})

    # -- outcomes ---------------------------------------------------------------------------------------------

    @retried
    def record(self, said: Said, *, policy: standing.PolicyOf, now: float) -> bool:
        """Write down an outcome, or with None withdraw it, and settle. False if nothing is changed by it.

        Raises:
            UnknownRunError: If no episode has that id.
            InvalidInputError: If `used` names a memory that was not retrieved in it.
        """
        with self._database.write(alone=False) as session:
            eid, _ = self._known(session, str(said.run_id), hold=True)
            [new] = self._say(session, [eid], [said], policy, now)
        return new

    @retried
    def record_many(
        self, said: Sequence[Said], *, policy: standing.PolicyOf, now: float
    ) -> list[bool]:
        """`record` for many at once, in order, and all of it or nothing: one transaction, each memory written once.

        Raises:
            UnknownRunError: If one of the runs is not known.
            InvalidInputError: If `used` names a memory that was not retrieved in its run.
        """
        with self._database.write(alone=False) as session:
            eids = self._hold_all(session, [s.run_id for s in said])
            return self._say(session, eids, said, policy, now)

    def _say(
        self,
        session: Session,
        eids: Sequence[int],
        said: Sequence[Said],
        policy: standing.PolicyOf,
        now: float,
    ) -> list[bool]:
        """Write down outcomes of episodes that are held, one for one, and settle; which of them are new."""
        known = self._read(session, sorted(set(eids)))
        news, written = [], []
        for eid, (run_id, key, outcome, _) in zip(eids, said, strict=True):
            current = known.outcomes[eid]
            news.append(not _is_known(current, key, outcome))
            if news[-1]:
                if outcome is not None and outcome.used is not None:
                    retrieved = {r.account.memory_id for r in known.rows[eid]}
                    _check_used(outcome.used, retrieved, str(run_id))
                row = _outcome_row(eid, key, outcome, now)
                _follow(current, *row[1:])
                written.append(row)
        for eid, one in zip(eids, said, strict=True):
            self.follow(session, eid, one.path)
        if written:
            rule = policy(session)
            drives = ("", rule.metric)
            rule.check_labels(row[4] for row in written if row[3] in drives)
            session.run_each(_OUTCOME, written)
            touched = sorted({row[0] for row in written})
            self._settle_all(session, touched, known, rule, now)
        return news

    def _hold_all(self, session: Session, run_ids: Sequence[str | int]) -> list[int]:
        """The numbers of runs, each locked, in the order of the numbers."""
        wanted = sorted({r for r in run_ids if isinstance(r, str)})
        found: dict[str | int, int] = {r: r for r in run_ids if isinstance(r, int)}
        found |= dict(standing.select_in(session, _EIDS, wanted))
        found |= dict(standing.select_in(session, _EIDS_BY_ALIAS, wanted))  # an alias wins
        for run_id in run_ids:
            if run_id not in found:
                raise self._unknown(session, str(run_id))
        numbers = sorted(set(found.values()))
        held = standing.select_in(session, _HOLD_ALL, numbers, hold="FOR UPDATE")
        if len(held) < len(numbers):  # a number that was looked up before
            raise RolledUpRunError(str(set(numbers) - {eid for (eid,) in held}))
        return [found[run_id] for run_id in run_ids]

    # -- settlement -------------------------------------------------------------------------------------------

    def _settle(self, session: Session, eid: int, policy: Policy, now: float) -> None:
        self._settle_all(session, [eid], self._read(session, [eid]), policy, now)

    def _settle_all(
        self, session: Session, eids: Sequence[int], known: _Known, policy: Policy, now: float
    ) -> None:
        base = rates.read(session, {r.place for eid in eids for r in known.rows[eid]})
        all_ = [
            settle(eid, known.rows[eid], known.outcomes[eid].values(), policy, base) for eid in eids
        ]
        session.run_each(
            _SETTLED, [(s.reward, None if s.reward is None else now, s.eid) for s in all_]
        )
        given = [g for s in all_ for g in s.given]
        if given:
            session.run_each(_CREDIT, given)
            self._put_back(session, all_, known)
            doubtful = regimes.in_doubt(all_, known.accounts)
            declined = regimes.those_declined(session, doubtful, policy)
            moved = [a.delta() for a in known.accounts.values() if a.judged or a.older]
            standing.add(session, moved, policy, now, declined=declined)
            standing.add_to_strata(session, [row for s in all_ for row in s.strata])
            base.save(session)
        standing.changed_many(session, eids, "episode")

    def _put_back(self, session: Session, settled: Sequence[Settled], known: _Known) -> None:
        """Change detectors have heard of credit that is corrected now, or is late."""
        late = [
            (g.seq, known.heard[s.eid]) for s in settled if s.eid in known.heard for g in s.given
        ]
        if late:
            regimes.put_back(session, late)

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

    # -- inside -----------------------------------------------------------------------------------------------

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

    def _read(self, session: Session, eids: Sequence[int]) -> _Known:
        """What the settlement of episodes that are held needs; the counters stay as they are until the transaction ends."""
        outcomes: dict[int, dict[OutcomeKey, OutcomeRecord]] = {eid: {} for eid in eids}
        heard: dict[int, int] = {}
        accounts: dict[int, Account] = {}
        exposures: list[tuple[Any, ...]] = []
        for chunk in standing.in_lists(eids):
            some, stands, said = session.rows_of(
                standing.in_list(_ROWS, len(chunk)),
                standing.in_list(_ACCOUNTS, len(chunk), _HOLD_EVIDENCE),
                standing.in_list(_OUTCOMES_OF, len(chunk)),
                parameters=standing.as_list(chunk),
            )
            exposures += some
            for seq, *row in stands:
                accounts.setdefault(seq, Account(row))
            for eid, number, *outcome in said:
                heard.setdefault(eid, number)
                _follow(outcomes[eid], *outcome)
        rows = settlement.by_episode(eids, exposures, accounts)
        return _Known(rows, accounts, outcomes, heard)

    def _outcomes(self, session: Session, eid: int) -> dict[OutcomeKey, OutcomeRecord]:
        """The outcomes in force, the newest of each key, oldest first; withdrawn ones are left out."""
        current: dict[OutcomeKey, OutcomeRecord] = {}
        for _, _, *row in standing.select_in(session, _OUTCOMES_OF, [eid]):
            _follow(current, *row)
        return current


class _Known(NamedTuple):
    """Episodes to be settled, by number: their exposures, the memories in them, and what is said of them.

    Attributes:
        outcomes: In force.
        heard: Number of the first outcome of those that had one before.
    """

    rows: Mapping[int, Sequence[Row]]
    accounts: Mapping[int, Account]
    outcomes: Mapping[int, dict[OutcomeKey, OutcomeRecord]]
    heard: Mapping[int, int]


def path_of(column: str | None) -> Path:
    """The tools of a run from what its row has of them."""
    return () if column is None else tuple(json.loads(column))


def _found(row: Sequence[Any] | None) -> tuple[int, bool] | None:
    return None if row is None else (row[0], row[1] is not None)


def _follow(
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


def _is_known(
    outcomes: Mapping[OutcomeKey, OutcomeRecord], key: OutcomeKey, outcome: Outcome | None
) -> bool:
    current = outcomes.get(key)
    return (None if current is None else _as_outcome(current)) == outcome


def _outcome_row(eid: int, key: OutcomeKey, outcome: Outcome | None, now: float) -> tuple[Any, ...]:
    """The parameters of `_OUTCOME`."""
    if outcome is None:
        return (eid, *key, None, None, now)
    used = None if outcome.used is None else to_document(outcome.used)
    return (eid, *key, outcome.reward, used, now)


def _as_outcome(record: OutcomeRecord) -> Outcome | None:
    return None if record.reward is None else Outcome(record.reward, record.used)


def _check_used(use: Use, retrieved: set[str], run_id: str) -> None:
    unknown = set(use) - retrieved
    if unknown:
        raise InvalidInputError(
            f"used names {sorted(unknown)}, which were not retrieved in run {run_id!r}; give ids of "
            "documents that the run retrieved",
            value=sorted(unknown),
        )


def _episode(
    row: Any,
    exposures: tuple[ExposureRecord, ...] = (),
    outcomes: tuple[OutcomeRecord, ...] = (),
) -> EpisodeRecord:
    id_, started_at, thread_id, reward, path = row
    at = datetime.fromtimestamp(started_at, UTC)
    return EpisodeRecord(id_, at, thread_id, reward, exposures, outcomes, path_of(path))


# What an enumeration is asked for each memory of each run costs more than to look it up.
_NAME = {arm: arm.value for arm in Arm}
_IS_SHOWN = {arm: int(arm.reaches_model) for arm in Arm}
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
_EXPOSE = Statement(
    "INSERT INTO exposures (eid, seq, rank, similarity, context, arm, propensity, shown, at) "
    "VALUES (:eid, :seq, :rank, :similarity, :context, :arm, :propensity, :shown, :at) "
    "ON CONFLICT (eid, seq) DO UPDATE SET last_at = excluded.at, "
    "shown = CASE WHEN excluded.shown = 1 THEN 1 ELSE exposures.shown END, "
    "similarity = CASE WHEN excluded.similarity > exposures.similarity "
    "OR exposures.similarity IS NULL THEN excluded.similarity ELSE exposures.similarity END"
)
_HIDE = Statement("UPDATE exposures SET shown = 0 WHERE eid = :eid AND seq = :seq")
_USED = Statement(
    # Two tools of one run may each say what they used; the second does not take back what the first said.
    "UPDATE exposures SET used = CASE WHEN used > :used THEN used ELSE :used END "
    "WHERE eid = :eid AND seq = :seq"
)
_OUTCOME = Statement(
    "INSERT INTO outcomes (eid, source, source_id, metric, reward, used, at) "
    "VALUES (:eid, :source, :source_id, :metric, :reward, :used, :at)"
)
_ROWS = (
    f"SELECT {settlement.COLUMNS} FROM exposures x JOIN episodes p ON p.eid = x.eid "
    "WHERE x.eid IN :values"
)
# Apart from their exposures: a memory may be in many of the episodes. Locked in the order of the numbers, or two
# settlements could block each other.
_ACCOUNTS = (
    f"SELECT e.seq, {settlement.ACCOUNT_COLUMNS} FROM evidence e JOIN memories m ON m.seq = e.seq "
    "WHERE e.seq IN (SELECT seq FROM exposures WHERE eid IN :values)"
)
_HOLD_EVIDENCE = "ORDER BY e.seq FOR UPDATE OF e"
_RETRIEVED = Statement(
    "SELECT x.seq, m.id, x.shown FROM exposures x JOIN memories m ON m.seq = x.seq "
    "WHERE x.eid = :eid ORDER BY x.rank, x.seq"
)
_EXPOSURES = Statement(
    "SELECT m.id, x.seq, x.rank, x.similarity, x.arm, x.propensity, x.shown, x.weight, x.positive, "
    "x.used FROM exposures x JOIN memories m ON m.seq = x.seq WHERE x.eid = :eid ORDER BY x.rank, x.seq"
)
_OUTCOMES_OF = (
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
_CREDIT = Statement(
    "UPDATE exposures SET weight = :weight, positive = :positive, size = :size, "
    "surprise = :surprise, expected = :expected, epoch = :epoch, heard = COALESCE(heard, "
    "(SELECT MIN(o.number) FROM outcomes o WHERE o.eid = exposures.eid)) "
    "WHERE eid = :eid AND seq = :seq"
)
_SETTLED = Statement("UPDATE episodes SET reward = :reward, settled_at = :now WHERE eid = :eid")
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
