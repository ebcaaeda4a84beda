"""How each memory stands: its counters, its status, and the record of every change of either.

Part of the ledger, below both of its halves: `memories` starts a standing, `ledger` moves it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from langchain_memoryworth import statuses
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.evidence import Evidence
from langchain_memoryworth.ledger import deciders, lists, populations, priors
from langchain_memoryworth.ledger.schema import COUNTERS
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Status

ChangeKind = Literal["memories", "episode", "policy", "erase", "trial", "pruned"]
PolicyOf = Callable[[Session], Policy]
"""The policy in force, asked inside the transaction that judges by it: another process may just have set another."""


class Standing(NamedTuple):
    """One row of the evidence table.

    Attributes:
        baseline: What stood at the last restore; only evidence after it can suppress.
        epoch: How often the memory was restored.
    """

    seq: int
    status: Status
    epoch: int
    evidence: Evidence
    baseline: Evidence

    @property
    def recent(self) -> Evidence:
        """The evidence since the last restore."""
        return self.evidence - self.baseline


class Delta(NamedTuple):
    """A change of one memory's counters.

    Attributes:
        evidence: What is added.
        older: What of it is for credit given before its last restore, and belongs to the baseline too; None if nothing is.
        judged: Whether any of it is for credit given since: what came before has no say any more.
    """

    standing: Standing
    evidence: Evidence
    older: Evidence | None = None
    judged: bool = True


LATEST = "eid > (SELECT COALESCE(MAX(eid), 0) FROM episodes) - :episodes"
"""Behind the alias of a table with episodes in it: that a row is of one of the latest."""


def standing_of(row: Sequence[Any]) -> Standing:
    """Read the columns of `STANDING_COLUMNS`."""
    baseline = Evidence._make(row[9:15]) if row[2] else _NOTHING
    return Standing(row[0], _STATUS[row[1]], row[2], Evidence._make(row[3:9]), baseline)


STANDING_COLUMNS = "e.seq, e.status, e.epoch, " + ", ".join(
    f"e.{prefix}{name}" for prefix in ("", "base_") for name in COUNTERS
)


def read(session: Session, seqs: Sequence[int]) -> dict[int, Standing]:
    """The standings of some memories by their number."""
    sql = f"SELECT {STANDING_COLUMNS} FROM evidence e WHERE e.seq IN :values"
    return {row[0]: standing_of(row) for row in lists.select_in(session, sql, seqs)}


def add(
    session: Session,
    deltas: Sequence[Delta],
    policy: Policy,
    now: float,
    *,
    declined: Collection[int] = (),
) -> None:
    """Add to counters, and set the statuses that follow from it, also for those that have `declined`.

    The rows are written in the order of their numbers, or two settlements could block each other on Postgres.
    """
    ordered = sorted(deltas, key=_NUMBER)
    session.run_each(_ADD, [(*d.evidence, d.standing.seq) for d in ordered])
    old = [(*d.older, d.standing.seq) for d in ordered if d.older is not None]
    if old:
        session.run_each(_ADD_TO_BASELINE, old)
    for before, change, older, judged in ordered:
        if judged:
            recent = after = before.evidence + change
            if before.epoch:
                recent = after - before.baseline - (older or _NOTHING)
            follow(session, before, recent, after, policy, now, declined=before.seq in declined)


def add_to_strata(session: Session, strata: Iterable[tuple[int, str, Evidence]]) -> None:
    """Add to the counters of memories in their contexts; the rows of their evidence are held."""
    rows = [(seq, context, *change) for seq, context, change in strata]
    if rows:
        session.run_each(_ADD_TO_STRATUM, rows)


def by_context(session: Session, seq: int) -> dict[str, Evidence]:
    """The evidence of a memory in each context that it was shown in."""
    return {row[0]: Evidence(*row[1:]) for row in session.rows(_STRATA, seq=seq)}


def follow(
    session: Session,
    standing: Standing,
    recent: Evidence,
    evidence: Evidence,
    policy: Policy,
    now: float,
    *,
    declined: bool = False,
) -> bool:
    """Set the status that the policy gives to this evidence; True if it changed."""
    if policy.prior == "pool":
        policy = priors.informed_of(session, policy, standing.seq)
    status, alone = judge(session, standing, recent, policy, declined=declined)
    if status is standing.status:
        return False
    reason = policy.reason(recent) + alone
    if declined and status is Status.SUPPRESSED:
        reason += f", declined with P >= {policy.decline:g}"
    kind = statuses.automatic(standing.status, status)
    judged = standing._replace(evidence=evidence)
    move(session, judged, status, kind, "policy", reason, now)
    return True


def judge(
    session: Session,
    standing: Standing,
    recent: Evidence,
    policy: Policy,
    *,
    declined: bool = False,
) -> tuple[Status, str]:
    """The status that the policy, which knows the pool, gives to this evidence, and what is to be said beside its reason."""
    sources = 0
    if standing.status is Status.QUARANTINED and policy.enough(recent):  # asked last: it reads much
        sources = session.number(SOURCES, seq=standing.seq, epoch=standing.epoch)
    status = policy.next_status(standing.status, recent, sources=sources, declined=declined)
    if status is not Status.SUPPRESSED:
        return status, ""
    if policy.corroborated:
        at = standing.seq, standing.epoch, standing.status
        if deciders.sunk_by_one(session, *at, recent, policy, declined=declined):
            return Status.ACTIVE, ", low by the word of one voter only"
    begins = standing.status is not Status.SUPPRESSED
    if begins and not populations.has_room(session, standing.seq, policy.max_suppressed):
        return standing.status, ""
    return status, ""


def move(
    session: Session,
    standing: Standing,
    status: Status,
    kind: str,
    actor: str,
    reason: str,
    now: float,
    *,
    undoes: int | None = None,
) -> None:
    """Change a status, and write down who did it, when, why, and on what evidence."""
    session.run(_SET_STATUS, {"seq": standing.seq, "status": status.value})
    populations.moved(session, standing.seq, standing.status, status)
    if Status.PINNED in (standing.status, status):  # a pinned memory is never held out
        changed(session, "trial", standing.seq)
    note(
        session,
        kind,
        actor,
        reason,
        now,
        standing=standing,
        after=status,
        undoes=undoes,
    )


def rebase(session: Session, seq: int) -> None:
    """Take the counters as they stand for the baseline: only what comes later can suppress."""
    session.run(_REBASE, {"seq": seq})
    _forget_regime(session, seq)


def set_baseline(session: Session, seq: int, epoch: int, baseline: Evidence) -> None:
    """Write another baseline and the restore count that it belongs to."""
    session.run(_SET_BASELINE, {**_addends(seq, baseline), "epoch": epoch})
    _forget_regime(session, seq)


def _forget_regime(session: Session, seq: int) -> None:
    for statement in _FORGET_REGIME:
        session.run(statement, {"seq": seq})


def set_evidence(
    session: Session, seq: int, epoch: int, evidence: Evidence, baseline: Evidence
) -> None:
    """Write the counters of a memory that has none yet."""
    session.run_each(_ADD, [(*evidence, seq)])
    set_baseline(session, seq, epoch, baseline)


def note(
    session: Session,
    kind: str,
    actor: str,
    reason: str,
    now: float,
    *,
    standing: Standing | None = None,
    after: Status | None = None,
    undoes: int | None = None,
) -> None:
    """Append to the record of governance actions; `standing` is what stood before it.

    Raises:
        InvalidInputError: If the actor or the reason is no text.
    """
    if not isinstance(actor, str) or not isinstance(reason, str):
        raise InvalidInputError(
            f"actor={actor!r}, reason={reason!r}; give texts, such as who decides and why",
            value=(actor, reason),
        )
    session.run(
        _NOTE,
        {
            "seq": None if standing is None else standing.seq,
            "kind": kind,
            "actor": actor,
            "reason": reason,
            "at": now,
            "evidence": None if standing is None else json.dumps(standing.evidence._asdict()),
            "before": None if standing is None else standing.status.value,
            "after": None if after is None else after.value,
            "epoch": None if standing is None else standing.epoch,
            "undoes": undoes,
        },
    )


def changed(session: Session, kind: ChangeKind, low: int, high: int | None = None) -> None:
    """Tell the other processes, and this one's index, what to read again."""
    session.run(_CHANGED, {"kind": kind, "low": low, "high": low if high is None else high})


def changed_many(session: Session, seqs: Sequence[int], kind: ChangeKind = "memories") -> None:
    """`changed` for single memories, or episodes."""
    if seqs:
        session.run_each(_CHANGED, [(kind, s, s) for s in seqs])


def _addends(seq: int, evidence: Evidence) -> Mapping[str, int]:
    return {
        "seq": seq,
        "positive": evidence.positive,
        "negative": evidence.negative,
        "size": evidence.size,
        "squared": evidence.squared,
        "retrievals": evidence.retrievals,
        "surprise": evidence.surprise,
    }


def _add(prefix: str) -> Statement:
    """Takes the counters in their order, and then the number."""
    columns = ", ".join(f"{prefix}{n} = {prefix}{n} + :{n}" for n in COUNTERS)
    return Statement(f"UPDATE evidence SET {columns} WHERE seq = :seq")


_NUMBER = attrgetter("standing.seq")
_STATUS = {s.value: s for s in Status}
_NOTHING = Evidence()
_ADD = _add("")
_ADD_TO_BASELINE = _add("base_")
_ADD_TO_STRATUM = Statement(
    f"INSERT INTO strata (seq, context, {', '.join(COUNTERS)}) "
    f"VALUES (:seq, :context, {', '.join(f':{n}' for n in COUNTERS)}) "
    "ON CONFLICT (seq, context) DO UPDATE SET "
    + ", ".join(f"{n} = strata.{n} + excluded.{n}" for n in COUNTERS)
)
_STRATA = Statement(
    f"SELECT context, {', '.join(COUNTERS)} FROM strata WHERE seq = :seq AND size > 0 ORDER BY context"
)
_FORGET_REGIME = tuple(  # it is replayed when asked for
    Statement(f"DELETE FROM {table} WHERE seq = :seq") for table in ("regimes", "regime_anchors")
)
_SET_STATUS = Statement("UPDATE evidence SET status = :status WHERE seq = :seq")
_REBASE = Statement(
    "UPDATE evidence SET epoch = epoch + 1, "
    + ", ".join(f"base_{n} = {n}" for n in COUNTERS)
    + " WHERE seq = :seq"
)
_SET_BASELINE = Statement(
    "UPDATE evidence SET epoch = :epoch, "
    + ", ".join(f"base_{n} = :{n}" for n in COUNTERS)
    + " WHERE seq = :seq"
)
_NOTE = Statement(
    "INSERT INTO actions (seq, kind, actor, reason, at, evidence, status_before, status_after, "
    "epoch, undoes) VALUES (:seq, :kind, :actor, :reason, :at, :evidence, :before, :after, "
    ":epoch, :undoes)"
)
# Who has spoken of a memory since its last restore: the newest word of each key, unless it was withdrawn.
SOURCES = Statement(
    "SELECT COUNT(*) FROM (SELECT source FROM openings "
    "WHERE seq = :seq AND epoch >= :epoch AND source <> '' "
    "UNION SELECT o.source FROM exposures x JOIN outcomes o ON o.eid = x.eid "
    "WHERE x.seq = :seq AND x.size > 0 AND x.epoch >= :epoch AND o.reward IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM outcomes n WHERE n.eid = o.eid AND n.source = o.source "
    "AND n.source_id = o.source_id AND n.metric = o.metric AND n.number > o.number)) AS spoken"
)
_CHANGED = Statement("INSERT INTO changes (kind, low, high) VALUES (:kind, :low, :high)")
