"""What the change detector has seen of each memory: its state, kept beside the counters and derived from the ledger.

The detector follows the order in which outcomes were first given, and lags behind: a success tells of no decline, so it
waits in the ledger until a failure comes, or somebody asks. Then the state takes in what came since. Behind it lie anchors,
earlier states, the farther back the farther apart. A correction, a withdrawal or a late exposure puts the state back to the last
anchor that had not heard of it, so it costs in proportion to how far it reaches back, not to the life of the memory. So a state that
is asked for is always that of a full replay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
from langchain_memoryworth.ledger import lists
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.ledger.settlement import Account, Settled
from langchain_memoryworth.ledger.standing import Standing
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Status

MOST_WAITING = 64
"""Outcomes of a memory after which its detector is moved on even if all are successes, and those between its last anchors: neither a
failure nor a correction of late has to take in many more."""

_News = Sequence[tuple[int, Heard]]
"""Outcomes with their numbers, in their order."""


class _Kept(NamedTuple):
    """What is known of one memory.

    Attributes:
        state: The detector's, one row of `States`.
        upto: Number of the last outcome in it.
        outcomes: How many are in it, since older ones were rolled up.
    """

    state: States
    upto: int
    outcomes: int


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
    session.run_many(_PUT_BACK, rows)
    session.run_many(_PUT_BACK_ANCHORS, rows)


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
    written = _written(session, epochs)
    kept = written | _beginnings(session, {s: e for s, e in epochs.items() if s not in written})
    asked = [(seq, epoch, kept[seq].upto, _LAST) for seq, epoch in epochs.items()]
    moved, anchors = _moved(kept, _heard(session, asked))
    if save and moved:
        _save(session, moved, written)
        if anchors:
            _keep_anchors(session, anchors)
    return {seq: moved.get(seq, kept[seq]).state for seq in epochs}


def _moved(
    kept: Mapping[int, _Kept], news: Mapping[int, _News]
) -> tuple[dict[int, _Kept], dict[int, list[_Kept]]]:
    """Those of the memories that have news after them, and the states on the way that may become anchors."""
    moved: dict[int, _Kept] = {}
    anchors: dict[int, list[_Kept]] = defaultdict(list)
    for start in range(0, max(map(len, news.values()), default=0), MOST_WAITING):
        parts = {s: n[start : start + MOST_WAITING] for s, n in sorted(news.items())}
        parts = {seq: part for seq, part in parts.items() if part}
        before = [moved.get(seq, kept[seq]) for seq in parts]
        after = updates(
            np.concatenate([k.state for k in before]),
            [[heard for _, heard in part] for part in parts.values()],
        )
        for i, (seq, part) in enumerate(parts.items()):
            count = before[i].outcomes + len(part)
            moved[seq] = _Kept(after[i : i + 1], part[-1][0], count)
            if count // MOST_WAITING > before[i].outcomes // MOST_WAITING:
                anchors[seq].append(moved[seq])
    return moved, anchors


def _save(session: Session, moved: Mapping[int, _Kept], written: Collection[int]) -> None:
    rows = list(zip(moved, moved.values(), _packed(moved.values()), strict=True))
    later = [(state, k.upto, k.outcomes, seq) for seq, k, state in rows if seq in written]
    anew = [(seq, state, k.upto, k.outcomes) for seq, k, state in rows if seq not in written]
    if later:
        session.run_each(_MOVE, later)
    if anew:
        session.run_each(_KEEP, anew)


def _keep_anchors(session: Session, anchors: Mapping[int, Sequence[_Kept]]) -> None:
    """Write anchors down, and drop those between which others lie near enough by now."""
    counts: dict[int, dict[int, int]] = {
        seq: {k.upto: k.outcomes for k in some} for seq, some in anchors.items()
    }
    for seq, upto, count in lists.select_in(session, _COUNTS, sorted(anchors)):
        counts[seq].setdefault(upto, count)
    wanted = {seq: _lasting(found) for seq, found in counts.items()}
    new = [(seq, k) for seq, some in anchors.items() for k in some if k.upto in wanted[seq]]
    states = _packed([k for _, k in new])
    session.run_each(
        _ANCHOR,
        [(seq, k.upto, k.outcomes, state) for (seq, k), state in zip(new, states, strict=True)],
    )
    session.run_many(
        _DROP_ANCHOR,
        [
            {"seq": seq, "upto": upto}
            for seq, found in counts.items()
            for upto in sorted(found.keys() - wanted[seq] - {k.upto for k in anchors[seq]})
        ],
    )


def _lasting(counts: Mapping[int, int]) -> set[int]:
    """Which anchors stay: two in each doubling of the distance from the newest, so some twenty of a million outcomes.

    Args:
        counts: How many outcomes are in each, by the number of the last.

    Examples:
        >>> sorted(n // 64 for n in _lasting({64 * i: 64 * i for i in range(1, 42)}))
        [16, 24, 28, 32, 34, 36, 38, 39, 40, 41]
    """
    newest = max(counts.values()) // MOST_WAITING
    ages = {upto: newest - count // MOST_WAITING for upto, count in counts.items()}
    return {
        upto
        for upto, age in ages.items()
        if age < 2 or (newest - age) % (1 << (age.bit_length() - 2)) == 0
    }


def _packed(kept: Collection[_Kept]) -> list[bytes]:
    return pack(np.concatenate([k.state for k in kept])) if kept else []


def _written(session: Session, seqs: Collection[int]) -> dict[int, _Kept]:
    """What is written down of some memories; one of another release is replayed."""
    return _read(lists.select_in(session, _SOME, [*seqs]))


def _read(rows: Sequence[Sequence[Any]]) -> dict[int, _Kept]:
    rows = [row for row in rows if readable(row[1])]
    if not rows:
        return {}
    states = unpack([state for _, state, *_ in rows])
    return {seq: _Kept(states[i : i + 1], *rest) for i, (seq, _, *rest) in enumerate(rows)}


def _beginnings(session: Session, epochs: Mapping[int, int]) -> dict[int, _Kept]:
    """The states that replays of some memories begin with: their newest anchors."""
    if not epochs:
        return {}
    anchored = _read(lists.select_in(session, _NEWEST_ANCHORS, [*epochs]))
    return anchored | _openings(session, {s: e for s, e in epochs.items() if s not in anchored})


def _openings(session: Session, epochs: Mapping[int, int]) -> dict[int, _Kept]:
    """The states before all anchors: where older runs were rolled up, what they left."""
    found = {seq: _Kept(fresh(1), 0, 0) for seq in epochs}
    for seq, epoch, state, upto in lists.select_in(session, _OPENINGS, [*epochs]):
        if epoch == epochs[seq]:
            found[seq] = _Kept(unpack([state]), upto, 0)
    return found


def roll_up(session: Session, upto: Mapping[int, int], epochs: Mapping[int, int]) -> None:
    """Move the states that replays begin with on, by all that was heard until the last of some episodes that are about to go.

    Episodes that stay are taken in, too, where they belong in the order; what is said of them later on is not heard again.

    Args:
        session: The transaction; the episodes are still there.
        upto: Number of the last outcome that is about to go, by memory.
        epochs: Restore counts of the same memories.
    """
    before = _openings(session, epochs)
    asked = [(seq, epoch, before[seq].upto, upto[seq]) for seq, epoch in sorted(epochs.items())]
    moved, _ = _moved(before, _heard(session, asked))
    rows = [
        {"seq": seq, "epoch": epochs[seq], "state": state, "upto": k.upto}
        for (seq, k), state in zip(moved.items(), _packed(moved.values()), strict=True)
    ]
    session.run_many(_OPEN, rows)
    session.run_many(_OVERTAKEN, rows)
    session.run_many(_OVERTAKEN_ANCHORS, rows)


def _heard(session: Session, asked: Sequence[tuple[int, int, int, int]]) -> dict[int, _News]:
    """What there is to hear, by memory: asked by number, restore count, and the outcomes after which and up to which."""
    news: dict[int, list[tuple[int, Heard]]] = defaultdict(list)
    for seq, number, at, reward, size, expected in lists.select_from(session, _HEARD, asked):
        news[seq].append((number, Heard(at, reward, size / UNIT, expected)))
    return dict(news)


_LAST = 2**63 - 1
_JUDGED = (Status.ACTIVE, Status.SUPPRESSED)
_SOME = "SELECT seq, state, upto, outcomes FROM regimes WHERE seq IN :values"
_COUNTS = "SELECT seq, upto, outcomes FROM regime_anchors WHERE seq IN :values"
_NEWEST_ANCHORS = (
    "SELECT a.seq, a.state, a.upto, a.outcomes FROM regime_anchors a WHERE a.seq IN :values "
    "AND a.upto = (SELECT MAX(b.upto) FROM regime_anchors b WHERE b.seq = a.seq)"
)
_OPENINGS = "SELECT seq, epoch, state, upto FROM regime_openings WHERE seq IN :values"
_OPEN = Statement(
    "INSERT INTO regime_openings (seq, epoch, state, upto) VALUES (:seq, :epoch, :state, :upto) "
    "ON CONFLICT (seq) DO UPDATE SET epoch = excluded.epoch, state = excluded.state, "
    "upto = excluded.upto"
)
# What has not heard the runs that are gone begins where they left it, and so does what is put back.
_OVERTAKEN = Statement("DELETE FROM regimes WHERE seq = :seq AND upto < :upto")
_OVERTAKEN_ANCHORS = Statement("DELETE FROM regime_anchors WHERE seq = :seq AND upto < :upto")
_MOVE = Statement(
    "UPDATE regimes SET state = :state, upto = :upto, outcomes = :outcomes WHERE seq = :seq"
)
_KEEP = Statement(
    "INSERT INTO regimes (seq, state, upto, outcomes) VALUES (:seq, :state, :upto, :outcomes) "
    "ON CONFLICT (seq) DO UPDATE SET state = excluded.state, upto = excluded.upto, "
    "outcomes = excluded.outcomes"
)
_ANCHOR = Statement(
    "INSERT INTO regime_anchors (seq, upto, outcomes, state) VALUES (:seq, :upto, :outcomes, :state) "
    "ON CONFLICT (seq, upto) DO UPDATE SET outcomes = excluded.outcomes, state = excluded.state"
)
_DROP_ANCHOR = Statement("DELETE FROM regime_anchors WHERE seq = :seq AND upto = :upto")
_PUT_BACK = Statement("DELETE FROM regimes WHERE seq = :seq AND upto >= :number")
_PUT_BACK_ANCHORS = Statement("DELETE FROM regime_anchors WHERE seq = :seq AND upto >= :number")
# What came before a restore is over: only later evidence can suppress again. SQLite keeps the order of a CROSS JOIN.
_HEARD = (
    "WITH asked (seq, epoch, after, upto) AS (VALUES :rows) "
    "SELECT x.seq, x.heard, p.started_at, p.reward, x.size, x.expected "
    "FROM asked a CROSS JOIN exposures x CROSS JOIN episodes p "
    "WHERE x.seq = a.seq AND x.size > 0 AND x.heard > a.after AND x.heard <= a.upto "
    "AND x.epoch >= a.epoch AND p.eid = x.eid ORDER BY x.heard"
)
