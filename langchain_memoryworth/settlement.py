"""Settlement: from what an episode showed and what is said of it to what each memory gets. No statement, no clock.

The credits of an episode are a pure function of its shown exposures, its outcomes, the credit rule, and what was to be
expected when they were first given. So the same outcome twice changes nothing, a corrected one takes the old credit back
exactly, and a late exposure is taken in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from langchain_memoryworth import standing
from langchain_memoryworth.credit import NO_CREDIT, Credit, Shown, equal_shares
from langchain_memoryworth.effects import effect, expected, surprise
from langchain_memoryworth.evidence import UNIT, Evidence
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.rates import Place, Rates
from langchain_memoryworth.records import OutcomeKey, OutcomeRecord
from langchain_memoryworth.use import Use


class Row(NamedTuple):
    """One exposure joined with its episode, its memory and the memory's standing.

    Attributes:
        used: How much of it the run said to have used, in parts of `use.PARTS`; None if it said nothing.
        place: Whose base rate it is measured by.
        settled_as: The reward that was in force until now, None if none was.
        expected: The success that was to be expected without the memory when credit was first given.
    """

    memory_id: str
    added_at: float
    rank: int
    similarity: float | None
    shown: int
    used: int | None
    at: float
    last_at: float
    settled_as: float | None
    place: Place
    credit: Credit
    expected: float | None
    epoch: int | None
    standing: standing.Standing


COLUMNS = (
    "m.id, m.added_at, x.rank, x.similarity, x.shown, x.used, x.at, COALESCE(x.last_at, x.at), "
    "p.reward, m.namespace, COALESCE(x.context, ''), x.weight, x.positive, x.size, x.surprise, "
    f"x.expected, x.epoch, {standing.STANDING_COLUMNS}"
)
"""Of exposures x, episodes p, memories m and evidence e, what `in_place` reads."""
_PLACE = itemgetter(2, 17)


def in_place(rows: list[tuple[Any, ...]]) -> list[Row]:
    """Rows of `COLUMNS` by rank and number of the memory."""
    rows.sort(key=_PLACE)  # SQLite would copy all of their columns into a table for it
    return [
        Row._make(
            (*r[:9], Place(*r[9:11]), Credit(*r[11:15]), r[15], r[16], standing.standing_of(r[17:]))
        )
        for r in rows
    ]


class Settled(NamedTuple):
    """What a settlement changes: counters, also those of contexts, credits, and the episode."""

    deltas: list[standing.Delta]
    strata: list[tuple[int, str, Evidence]]
    writes: list[dict[str, Any]]
    head: dict[str, Any]


class Surroundings:
    """What was to be expected of an episode when its outcome came: the base rates, and what each memory adds.

    Args:
        rates: Of all places in the rows to be settled.

    Several episodes that are settled at once follow each other: each is expected from what the ones before it taught.
    """

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self._learnt: dict[int, tuple[int, int]] = {}

    def expectations(self, rows: Sequence[Row], given: Mapping[int, Credit]) -> dict[int, float]:
        """The success expected without each memory that gets credit, by its number; kept where it was given before."""
        known = {r.standing.seq: r.expected for r in rows if r.expected is not None}
        sharing = [r for r in rows if given[r.standing.seq].size]
        if all(r.standing.seq in known for r in sharing):
            return known
        effects = [self._effect(r) for r in sharing]
        sizes = [given[r.standing.seq].size / UNIT for r in sharing]
        for place in {r.place for r in sharing}:
            found = expected(self.rates.expected(place), effects, sizes)
            for r, e in zip(sharing, found, strict=True):
                if r.place == place:
                    known.setdefault(r.standing.seq, e)
        return known

    def learn(
        self, eid: int, settled: Settled, rows: Sequence[Row], given: Mapping[int, Credit]
    ) -> None:
        """Take over what an episode has taught."""
        before = [r.place for r in rows if r.credit.size]
        after = [r.place for r in rows if given[r.standing.seq].size]
        was = rows[0].settled_as if rows else None
        self.rates.move(eid, (before, was), (after, settled.head["reward"]))
        for stands, change, _ in settled.deltas:
            total, size = self._sums(stands)
            self._learnt[stands.seq] = total + change.surprise, size + change.size

    def _sums(self, stands: standing.Standing) -> tuple[int, int]:
        known = self._learnt.get(stands.seq)
        return (stands.evidence.surprise, stands.evidence.size) if known is None else known

    def _effect(self, row: Row) -> float:
        total, size = self._sums(row.standing)
        return effect(total / UNIT, size / UNIT)


def settle(
    eid: int,
    rows: Sequence[Row],
    outcomes: Mapping[OutcomeKey, OutcomeRecord],
    policy: Policy,
    surroundings: Surroundings,
    now: float,
) -> Settled:
    """Work out the credits of an episode, and how they differ from those that it gave until now."""
    ranked = in_force(list(outcomes.values()), policy.sources, policy.metric)
    reward = ranked[0].reward if ranked else None
    used = next((o.used for o in ranked if o.used is not None), _used_in_run(rows))
    shown = [r for r in rows if r.shown]
    given = dict.fromkeys((r.standing.seq for r in rows), NO_CREDIT)
    shares = _shares(shown, reward, used, policy)
    given |= {r.standing.seq: c for r, c in zip(shown, shares, strict=True)}
    expectations = surroundings.expectations(rows, given)
    settled = Settled([], [], [], {"eid": eid, "reward": reward, "now": now if ranked else None})
    for row in rows:
        seq = row.standing.seq
        new, expectation = given[seq], expectations.get(seq)
        if not new.size:
            expectation = None  # what is withdrawn leaves no trace
        elif reward is not None and expectation is not None:
            weight, positive, size, _ = new
            new = Credit(weight, positive, size, surprise(reward, expectation, size))
        if new == row.credit:
            continue
        epoch = row.standing.epoch if row.epoch is None else row.epoch
        change = new.evidence
        if row.credit != NO_CREDIT:
            change -= row.credit.evidence
        settled.deltas.append(standing.Delta(row.standing, change, epoch))
        if row.place.context:
            settled.strata.append((seq, row.place.context, change))
        settled.writes.append(
            {"eid": eid, "seq": seq, "expected": expectation, "epoch": epoch, **new._asdict()}
        )
    surroundings.learn(eid, settled, rows, given)
    return settled


def summed(
    deltas: Sequence[standing.Delta],
) -> tuple[list[standing.Delta], list[standing.Delta]]:
    """One delta for each memory, first of the credit given since its last restore, then of older credit."""
    rounds: tuple[dict[int, standing.Delta], ...] = ({}, {})
    for d in deltas:
        round_ = rounds[d.epoch < d.standing.epoch]
        known = round_.get(d.standing.seq)
        round_[d.standing.seq] = (
            d if known is None else known._replace(evidence=known.evidence + d.evidence)
        )
    return list(rounds[0].values()), list(rounds[1].values())


def in_force(
    outcomes: Sequence[OutcomeRecord], sources: Sequence[str], metric: str = ""
) -> list[OutcomeRecord]:
    """Order the outcomes of one episode by whose word counts; the first decides.

    Sources that are listed come in that order, others after them; of one source, and among the others, the newest
    comes first. So two sources never double the evidence of one episode. Outcomes of another metric have no say.

    Args:
        outcomes: Oldest first.
        sources: `Policy.sources`.
        metric: `Policy.metric`.
    """
    place = {s: i for i, s in enumerate(sources)}
    newest_first = [
        o for o in reversed(outcomes) if o.reward is not None and o.metric in ("", metric)
    ]
    return sorted(newest_first, key=lambda o: place.get(o.source, len(place)))


def _shares(
    shown: Sequence[Row], reward: float | None, used: Use | None, policy: Policy
) -> Sequence[Credit]:
    if reward is None or not shown:
        return [NO_CREDIT] * len(shown)
    if used is None and policy.shares_equally:
        return equal_shares(len(shown), reward, policy.w_min)
    newest = max(r.last_at for r in shown)
    return policy.settle([_shown(r, newest) for r in shown], reward, used)


def _shown(row: Row, newest: float) -> Shown:
    age = timedelta(seconds=max(0.0, row.at - row.added_at))
    lag = timedelta(seconds=newest - row.last_at)
    return Shown(row.memory_id, row.rank, row.similarity, age, lag)


def _used_in_run(rows: Sequence[Row]) -> Use | None:
    if all(r.used is None for r in rows):
        return None
    return {r.memory_id: float(r.used) for r in rows if r.used}
