"""What is written of episodes: exposures, outcomes, and the settlement that joins them.

Whenever the exposures or the outcomes of an episode change, `settlement` works its credits out again, and the difference
is added to the counters in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.paths import Path
from langchain_memoryworth.estimators.use import PARTS, Use, shares_of, to_document
from langchain_memoryworth.ledger import lists, rates, regimes, settlement, standing
from langchain_memoryworth.ledger.database import retried
from langchain_memoryworth.ledger.episodes import OUTCOMES_OF, Episodes, follow_outcome
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.ledger.settlement import Account, Row, Settled, settle
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Arm, EpisodeKey, Outcome, OutcomeKey, OutcomeRecord


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


class Ledger(Episodes):
    """Episodes, and what is written of them."""

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
                follow_outcome(current, *row[1:])
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

    def _read(self, session: Session, eids: Sequence[int]) -> _Known:
        """What the settlement of episodes that are held needs; the counters stay as they are until the transaction ends."""
        outcomes: dict[int, dict[OutcomeKey, OutcomeRecord]] = {eid: {} for eid in eids}
        heard: dict[int, int] = {}
        accounts: dict[int, Account] = {}
        exposures: list[tuple[Any, ...]] = []
        for chunk in lists.in_lists(eids):
            some, stands, said = session.rows_of(
                lists.in_list(_ROWS, len(chunk)),
                lists.in_list(_ACCOUNTS, len(chunk), _HOLD_EVIDENCE),
                lists.in_list(OUTCOMES_OF, len(chunk)),
                parameters=lists.as_list(chunk),
            )
            exposures += some
            for seq, *row in stands:
                accounts.setdefault(seq, Account(row))
            for eid, number, *outcome in said:
                heard.setdefault(eid, number)
                follow_outcome(outcomes[eid], *outcome)
        rows = settlement.by_episode(eids, exposures, accounts)
        return _Known(rows, accounts, outcomes, heard)


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


# What an enumeration is asked for each memory of each run costs more than to look it up.
_NAME = {arm: arm.value for arm in Arm}
_IS_SHOWN = {arm: int(arm.reaches_model) for arm in Arm}
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
_CREDIT = Statement(
    "UPDATE exposures SET weight = :weight, positive = :positive, size = :size, "
    "surprise = :surprise, expected = :expected, epoch = :epoch, heard = COALESCE(heard, "
    "(SELECT MIN(o.number) FROM outcomes o WHERE o.eid = exposures.eid)) "
    "WHERE eid = :eid AND seq = :seq"
)
_SETTLED = Statement("UPDATE episodes SET reward = :reward, settled_at = :now WHERE eid = :eid")
