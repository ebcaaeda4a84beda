"""What the change detector has seen of each memory: its state, kept beside the counters and derived from the ledger.

The detector follows the order in which outcomes were first given. The next one moves the state on. Whatever else changes,
a correction, a withdrawal, a late exposure, is replayed: from an anchor, a state of some outcomes ago, or from the
beginning if it reaches back further. So the state is always that of a full replay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.drift import States, declined, fresh, pack, unpack, update
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.ledger.database import Session, Statement
from langchain_memoryworth.ledger.settlement import Account, Settled
from langchain_memoryworth.ledger.standing import Standing, select_in
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Status

ANCHOR_EVERY = 64
"""Outcomes after which a state becomes the anchor; a correction of a later one replays at most twice as many."""


class Heard(NamedTuple):
    """One outcome of one memory, as the detector takes it.

    Attributes:
        number: Of the first outcome of its episode: the order.
        at: When the episode began, Unix time.
        size: Retrievals that it counts for, in [0, 1].
        expected: What was to be expected, in [0, 1].
    """

    number: int
    at: float
    reward: float
    size: float
    expected: float


class _Kept(NamedTuple):
    """What is known of one memory.

    Attributes:
        state: The detector's, one row of `States`.
        upto: Number of the last outcome in it.
        anchored: Number of the last outcome in the anchor, an earlier state.
        since: Outcomes since then.
        anchor: The anchor, None if it is the one in the database.
    """

    state: States
    upto: int
    anchored: int
    since: int
    anchor: States | None


def _from(state: States, upto: int) -> _Kept:
    """A state that is its own anchor."""
    return _Kept(state, upto, upto, 0, state)


class Changed(NamedTuple):
    """A memory whose credit an episode has changed.

    Attributes:
        number: Of the first outcome of the episode.
        heard: What is new of it, None if it is a correction or a withdrawal.
    """

    standing: Standing
    number: int
    heard: Heard | None


def changed(session: Session, settled: Settled, accounts: Mapping[int, Account]) -> list[Changed]:
    """The memories whose detectors an episode that was settled concerns; its credits are written down already."""
    row = session.row(_EPISODE, eid=settled.eid)
    if row is None:
        return []
    at, number = row
    found = []
    for given in settled.given:
        stands = accounts[given.seq].standing
        if given.epoch < stands.epoch:
            continue  # what came before a restore is over
        heard = None
        if given.seq in settled.first and settled.reward is not None and given.expected is not None:
            heard = Heard(number, at, settled.reward, given.size / UNIT, given.expected)
        found.append(Changed(stands, number, heard))
    return found


class Detectors:
    """The detectors that one transaction moves: read once, moved episode by episode, written once.

    Args:
        session: The transaction; all its credits are written down already.
        seqs: Numbers of the memories that it concerns.
    """

    def __init__(self, session: Session, seqs: Collection[int]) -> None:
        self._session = session
        self._known = _read(session, seqs)
        self._status: dict[int, Status] = {}
        self._complete: set[int] = set()  # a replay sees all that the transaction wrote

    def follow(self, changes: Sequence[Changed]) -> None:
        """Move the detector of each memory of an episode on, or replay it."""
        following = []
        for c in changes:
            seq, now = c.standing.seq, self._known.get(c.standing.seq)
            self._status[seq] = c.standing.status
            if seq in self._complete:
                continue
            if now is not None and c.heard is not None and c.number > now.upto:
                following.append((seq, now, c.heard))
            else:
                self._known[seq] = _replayed(self._session, c, now)
                self._complete.add(seq)
        self._known |= _moved_on(following)

    def save(self) -> None:
        """Write down those that were moved; most of them have the anchor that they had."""
        seqs = sorted(self._status)
        if not seqs:
            return
        moved, anchored = [], []
        states = pack(np.concatenate([self._known[seq].state for seq in seqs]))
        for seq, state in zip(seqs, states, strict=True):
            kept = self._known[seq]
            if kept.anchor is None:
                moved.append((state, kept.upto, kept.since, seq))
            else:
                anchor = pack(kept.anchor)[0]
                anchored.append((seq, state, kept.upto, anchor, kept.anchored, kept.since))
        if moved:
            self._session.run_each(_MOVE, moved)
        if anchored:
            self._session.run_each(_KEEP, anchored)

    def declined(self, policy: Policy) -> frozenset[int]:
        """The memories moved that have declined, by number."""
        return _declined(self._status, self._known, policy)


def _moved_on(following: Sequence[tuple[int, _Kept, Heard]]) -> dict[int, _Kept]:
    """All memories of an episode at once: it costs little more than one."""
    if not following:
        return {}
    states = np.concatenate([k.state for _, k, _ in following])
    heard = [h for *_, h in following]
    after = update(
        states,
        [h.reward for h in heard],
        at=heard[0].at,
        size=[h.size for h in heard],
        expected=[h.expected for h in heard],
    )
    found = {}
    for i, (seq, before, h) in enumerate(following):
        state = after[i : i + 1]
        if before.since + 1 >= ANCHOR_EVERY:
            found[seq] = _from(state, h.number)
        else:
            found[seq] = before._replace(state=state, upto=h.number, since=before.since + 1)
    return found


def _replayed(session: Session, change: Changed, known: _Kept | None) -> _Kept:
    """The state after everything in the ledger, from the anchor if that stands before the change."""
    start = None if known is None else _anchor(session, change, known)
    if start is None:
        openings = _openings(session, {change.standing.seq: change.standing.epoch})
        start = openings.get(change.standing.seq, _from(fresh(1), 0))
    rows = session.rows(
        _HEARD, seq=change.standing.seq, epoch=change.standing.epoch, after=start.upto
    )
    kept = start
    for number, at, reward, size, expected in rows:
        heard = Heard(number, at, reward, size / UNIT, expected)
        kept = _moved_on([(0, kept, heard)])[0]
    return kept


def _anchor(session: Session, change: Changed, known: _Kept) -> _Kept | None:
    if change.number <= known.anchored:
        return None
    if known.anchor is not None:
        return _from(known.anchor, known.anchored)
    row = session.row(_ANCHOR, seq=change.standing.seq)
    found = None if row is None else _unpacked([row[0]])[0]
    return None if found is None else _Kept(found, known.anchored, known.anchored, 0, None)


def _unpacked(blobs: Sequence[bytes]) -> list[States | None]:
    """Each state, None for one of another release: it is replayed."""
    try:
        states = unpack([bytes(b) for b in blobs])
    except InvalidInputError:
        if len(blobs) == 1:
            return [None]
        return [_unpacked([b])[0] for b in blobs]
    return [states[i : i + 1] for i in range(len(blobs))]


def roll_up(
    session: Session, episodes: Sequence[Sequence[tuple[int, Heard]]], epochs: Mapping[int, int]
) -> None:
    """Move the states that replays begin with on, by episodes that are about to go.

    Args:
        session: The transaction.
        episodes: Of each the memories' numbers and what their detectors heard, in the order of first outcomes.
        epochs: Restore counts by number.
    """
    kept = _openings(session, epochs)
    for some in episodes:
        kept |= _moved_on([(seq, kept.get(seq, _from(fresh(1), 0)), heard) for seq, heard in some])
    rows = [
        {"seq": seq, "epoch": epochs[seq], "state": pack(k.state)[0], "upto": k.upto}
        for seq, k in sorted(kept.items())
    ]
    session.run_many(_OPEN, rows)


def _openings(session: Session, epochs: Mapping[int, int]) -> dict[int, _Kept]:
    """The states that replays of some memories begin with, where older runs were rolled up."""
    found = {}
    for seq, epoch, state, upto in select_in(session, _OPENINGS, sorted(epochs)):
        if epoch == epochs[seq]:
            found[seq] = _from(unpack([bytes(state)]), upto)
    return found


def _declined(
    statuses: Mapping[int, Status], kept: Mapping[int, _Kept], policy: Policy
) -> frozenset[int]:
    found: set[int] = set()
    for held in (False, True):
        seqs = [s for s, status in statuses.items() if (status is Status.SUPPRESSED) is held]
        if not seqs or policy.decline is None:
            continue
        # One that is hidden comes back only when that is less sure by the hysteresis, so that it does not flicker.
        confidence = policy.decline - (policy.hysteresis if held else 0.0)
        flags = declined(
            np.concatenate([kept[s].state for s in seqs]),
            theta=policy.theta_low,
            margin=policy.margin_low,
            confidence=max(0.5, confidence),
            flip=policy.flip_rate,
        )
        found |= {seq for seq, flag in zip(seqs, flags.tolist(), strict=True) if flag}
    return frozenset(found)


def no_states() -> States:
    """The states of no memory."""
    return fresh(0)


def states(session: Session, stands: Sequence[Standing]) -> dict[int, States]:
    """The detector's state of some memories, replayed from the ledger where none is kept."""
    known = _read(session, [s.seq for s in stands])
    found = {}
    for s in stands:
        kept = known.get(s.seq)
        if kept is None:
            kept = _replayed(session, Changed(s, 0, None), None)
        found[s.seq] = kept.state
    return found


def _read(session: Session, seqs: Collection[int]) -> dict[int, _Kept]:
    rows = list(select_in(session, _SOME, sorted(seqs)))
    states = _unpacked([state for _, state, *_ in rows]) if rows else []
    return {
        seq: _Kept(state, upto, anchored, since, None)
        for (seq, _, upto, anchored, since), state in zip(rows, states, strict=True)
        if state is not None
    }


_SOME = "SELECT seq, state, upto, anchored, since FROM regimes WHERE seq IN :values"
_ANCHOR = Statement("SELECT anchor FROM regimes WHERE seq = :seq")
_MOVE = Statement(
    "UPDATE regimes SET state = :state, upto = :upto, since = :since WHERE seq = :seq"
)
_EPISODE = Statement(
    "SELECT p.started_at, (SELECT MIN(o.number) FROM outcomes o WHERE o.eid = p.eid) "
    "FROM episodes p WHERE p.eid = :eid"
)
_OPENINGS = "SELECT seq, epoch, state, upto FROM regime_openings WHERE seq IN :values"
_OPEN = Statement(
    "INSERT INTO regime_openings (seq, epoch, state, upto) VALUES (:seq, :epoch, :state, :upto) "
    "ON CONFLICT (seq) DO UPDATE SET epoch = excluded.epoch, state = excluded.state, "
    "upto = excluded.upto"
)
_KEEP = Statement(
    "INSERT INTO regimes (seq, state, upto, anchor, anchored, since) "
    "VALUES (:seq, :state, :upto, :anchor, :anchored, :since) ON CONFLICT (seq) DO UPDATE SET "
    "state = excluded.state, upto = excluded.upto, anchor = excluded.anchor, "
    "anchored = excluded.anchored, since = excluded.since"
)
# What came before a restore is over: only later evidence can suppress again.
_HEARD = Statement(
    "SELECT number, started_at, reward, size, expected FROM ("
    "SELECT (SELECT MIN(o.number) FROM outcomes o WHERE o.eid = x.eid) AS number, p.started_at, "
    "p.reward, x.size, x.expected FROM exposures x JOIN episodes p ON p.eid = x.eid "
    "WHERE x.seq = :seq AND x.size > 0 AND x.epoch >= :epoch) AS heard "
    "WHERE number > :after ORDER BY number"
)
