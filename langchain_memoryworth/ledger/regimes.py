"""What the change detector has seen of each memory: its state, kept beside the counters and derived from the ledger.

The detector follows the order in which outcomes were first given, and lags behind: a success tells of no decline, so it
waits in the ledger until a failure comes, or somebody asks. Then the state takes in what came since. A correction, a
withdrawal or a late exposure that reaches back behind the state puts it back to its anchor, a state of some outcomes ago, or
to the beginning. So a state that is asked for is always that of a full replay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from langchain_memoryworth.estimators.drift import (
    Heard,
    States,
    declined,
    fresh,
    pack,
    readable,
    unpack,
    updates,
)
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.ledger.settlement import Account, Settled
from langchain_memoryworth.ledger.standing import Standing, select_from, select_in
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Status

MOST_WAITING = 64
"""Outcomes of a memory after which its detector is moved on even if all are successes, and those that its anchor may lie
behind: neither a failure nor a correction of late has to take in many more."""


class _Kept(NamedTuple):
    """What is known of one memory.

    Attributes:
        state: The detector's, one row of `States`.
        upto: Number of the last outcome in it.
        since: Outcomes since its anchor; None if it is not written down.
    """

    state: States
    upto: int
    since: int | None


def in_doubt(settled: Sequence[Settled], accounts: Mapping[int, Account]) -> list[Standing]:
    """The memories that may have declined by what was settled, those that may be back, and those whose detectors lag far."""
    told = {
        g.seq for s in settled for g in s.given if s.reward != 1.0 or g.seq not in s.first
    }  # by more than successes
    return [
        a.standing
        for seq, a in accounts.items()
        if a.judged and (seq in told or _waits_long(a) or a.standing.status is not Status.ACTIVE)
    ]


def _waits_long(account: Account) -> bool:
    before = account.standing.evidence.retrievals
    return before // MOST_WAITING != (before + account.retrievals) // MOST_WAITING


def those_declined(session: Session, stands: Sequence[Standing], policy: Policy) -> frozenset[int]:
    """Bring some detectors up to date; the numbers of the memories that have declined.

    Args:
        session: The transaction; all its credits are written down already.
        stands: Of the memories.
        policy: With a `decline`.
    """
    stands = [s for s in stands if s.status in _JUDGED]
    if not stands or policy.decline is None:
        return frozenset()
    states = _follow(session, stands, save=True)
    found: set[int] = set()
    for held in (False, True):
        seqs = [s.seq for s in stands if (s.status is Status.SUPPRESSED) is held]
        if not seqs:
            continue
        # One that is hidden comes back only when that is less sure by the hysteresis, so that it does not flicker.
        confidence = policy.decline - (policy.hysteresis if held else 0.0)
        flags = declined(
            np.concatenate([states[seq] for seq in seqs]),
            theta=policy.theta_low,
            margin=policy.margin_low,
            confidence=max(0.5, confidence),
            flip=policy.flip_rate,
        )
        found |= {seq for seq, flag in zip(seqs, flags.tolist(), strict=True) if flag}
    return frozenset(found)


def put_back(session: Session, changes: Iterable[tuple[int, int]]) -> None:
    """Put detectors back to where they were before outcomes whose credit has changed.

    Args:
        session: The transaction.
        changes: Numbers of memories, and of the first outcomes of the episodes.
    """
    rows = [{"seq": seq, "number": number} for seq, number in changes]
    session.run_many(_FORGET, rows)
    session.run_many(_PUT_BACK, rows)


def states(session: Session, stands: Sequence[Standing]) -> dict[int, States]:
    """The detector's state of some memories by all that is in the ledger; nothing is written down."""
    return _follow(session, stands, save=False)


def no_states() -> States:
    """The states of no memory."""
    return fresh(0)


def _follow(session: Session, stands: Sequence[Standing], *, save: bool) -> dict[int, States]:
    """The states after all that came since they were written down; all memories at once cost little more than one."""
    epochs = {s.seq: s.epoch for s in sorted(stands)}
    if not epochs:
        return {}
    kept = _read(session, epochs)
    news: dict[int, list[Heard]] = defaultdict(list)
    upto = {}
    asked = [(seq, epoch, kept[seq].upto) for seq, epoch in epochs.items()]
    for seq, number, at, reward, size, expected in select_from(session, _HEARD, asked):
        news[seq].append(Heard(at, reward, size / UNIT, expected))
        upto[seq] = number
    moved = updates(
        np.concatenate([kept[seq].state for seq in epochs]), [news[seq] for seq in epochs]
    )
    found = {seq: moved[i : i + 1] for i, seq in enumerate(epochs)}
    if save and upto:
        _save(session, kept, {seq: found[seq] for seq in sorted(upto)}, upto, news)
    return found


def _save(
    session: Session,
    kept: Mapping[int, _Kept],
    moved: Mapping[int, States],
    upto: Mapping[int, int],
    news: Mapping[int, Sequence[Heard]],
) -> None:
    """Write down those that were moved; most of them have the anchor that they had, of some the state before becomes it."""
    state = dict(zip(moved, pack(np.concatenate([*moved.values()])), strict=True))
    later, anew = [], []
    for seq in moved:
        since, count = kept[seq].since, len(news[seq])
        if since is not None and since + count < MOST_WAITING:
            later.append((state[seq], upto[seq], since + count, seq))
        else:
            anew.append(seq)
    if later:
        session.run_each(_MOVE, later)
    if anew:
        anchors = pack(np.concatenate([kept[seq].state for seq in anew]))
        rows = [
            (seq, state[seq], upto[seq], anchor, kept[seq].upto, len(news[seq]))
            for seq, anchor in zip(anew, anchors, strict=True)
        ]
        session.run_each(_KEEP, rows)


def _read(session: Session, epochs: Mapping[int, int]) -> dict[int, _Kept]:
    """What is written down, and for the others what they begin with."""
    rows = select_in(session, _SOME, [*epochs])
    rows = [row for row in rows if readable(row[1])]  # one of another release is replayed
    found = {}
    if rows:
        kept = unpack([state for _, state, *_ in rows])
        found = {seq: _Kept(kept[i : i + 1], *numbers) for i, (seq, _, *numbers) in enumerate(rows)}
    missing = {seq: epoch for seq, epoch in epochs.items() if seq not in found}
    return found | _beginnings(session, missing)


def _beginnings(session: Session, epochs: Mapping[int, int]) -> dict[int, _Kept]:
    """The states that replays of some memories begin with: where older runs were rolled up, what they left."""
    found = {seq: _Kept(fresh(1), 0, None) for seq in epochs}
    for seq, epoch, state, upto in select_in(session, _OPENINGS, [*epochs]):
        if epoch == epochs[seq]:
            found[seq] = _Kept(unpack([state]), upto, None)
    return found


def roll_up(
    session: Session,
    heard: Mapping[int, Sequence[tuple[int, Heard]]],
    epochs: Mapping[int, int],
) -> None:
    """Move the states that replays begin with on, by episodes that are about to go.

    Args:
        session: The transaction.
        heard: What the detectors heard in them, by memory, each with the number of the outcome and in their order.
        epochs: Restore counts of the same memories.
    """
    if not heard:
        return
    before = _beginnings(session, {seq: epochs[seq] for seq in sorted(heard)})
    after = updates(
        np.concatenate([k.state for k in before.values()]),
        [[h for _, h in heard[seq]] for seq in before],
    )
    rows = [
        {"seq": seq, "epoch": epochs[seq], "state": state, "upto": heard[seq][-1][0]}
        for seq, state in zip(before, pack(after), strict=True)
    ]
    session.run_many(_OPEN, rows)
    session.run_many(_OVERTAKEN, rows)
    session.run_many(_ANCHOR, rows)


_JUDGED = (Status.ACTIVE, Status.SUPPRESSED)
_SOME = "SELECT seq, state, upto, since FROM regimes WHERE seq IN :values"
_OPENINGS = "SELECT seq, epoch, state, upto FROM regime_openings WHERE seq IN :values"
_OPEN = Statement(
    "INSERT INTO regime_openings (seq, epoch, state, upto) VALUES (:seq, :epoch, :state, :upto) "
    "ON CONFLICT (seq) DO UPDATE SET epoch = excluded.epoch, state = excluded.state, "
    "upto = excluded.upto"
)
# What has not heard the runs that are gone begins where they left it, and so does what is put back.
_OVERTAKEN = Statement("DELETE FROM regimes WHERE seq = :seq AND upto < :upto")
_ANCHOR = Statement(
    "UPDATE regimes SET anchor = :state, anchored = :upto WHERE seq = :seq AND anchored < :upto"
)
_MOVE = Statement(
    "UPDATE regimes SET state = :state, upto = :upto, since = :since WHERE seq = :seq"
)
_KEEP = Statement(
    "INSERT INTO regimes (seq, state, upto, anchor, anchored, since) "
    "VALUES (:seq, :state, :upto, :anchor, :anchored, :since) ON CONFLICT (seq) DO UPDATE SET "
    "state = excluded.state, upto = excluded.upto, anchor = excluded.anchor, "
    "anchored = excluded.anchored, since = excluded.since"
)
_FORGET = Statement("DELETE FROM regimes WHERE seq = :seq AND anchored >= :number")
_PUT_BACK = Statement(
    "UPDATE regimes SET state = anchor, upto = anchored, since = 0 "
    "WHERE seq = :seq AND upto >= :number"
)
# What came before a restore is over: only later evidence can suppress again. SQLite keeps the order of a CROSS JOIN.
_HEARD = (
    "WITH asked (seq, epoch, after) AS (VALUES :rows) "
    "SELECT x.seq, x.heard, p.started_at, p.reward, x.size, x.expected "
    "FROM asked a CROSS JOIN exposures x CROSS JOIN episodes p "
    "WHERE x.seq = a.seq AND x.size > 0 AND x.heard > a.after AND x.epoch >= a.epoch "
    "AND p.eid = x.eid ORDER BY x.heard"
)
