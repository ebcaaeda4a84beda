"""Base rates: how often episodes succeed in a namespace, and in each context of it, whatever memories they showed.

Two of each. The sums over all settled episodes are added and taken back with the credit itself, so that a corrected outcome
leaves no trace. The recent ones say what is to be expected now; they forget half in `HALF_LIFE` episodes, and a correction
does not reach back into them. Both are spread over a few rows, or all settlements of a Postgres would wait for one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from langchain_memoryworth.estimators.base_rates import HALF_LIFE, STRENGTH
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.ledger.session import Session, Statement

_SHARDS = 8
_FORGET = 0.5 ** (_SHARDS / HALF_LIFE)  # a row sees one episode of eight
OPENING = -1
"""The row of a place that holds the episodes that were rolled up."""
PRIOR = 0.5
"""The base rate assumed of a namespace without episodes."""


class Place(NamedTuple):
    """Where an exposure stands: the namespace of the memory, and the context of the retrieval."""

    namespace: str
    context: str


class Rate(NamedTuple):
    """Settled episodes with credit at a place, in one row or in all of them.

    Attributes:
        episodes: How many.
        reward: Sum of their rewards, in units of 2**-32.
        recent: How many of the latest, each half as much after `HALF_LIFE` others.
        recent_reward: Sum of their rewards likewise, in episodes.
        decay: What is left of the row's recent numbers before a change, for rows that are added.
    """

    episodes: int = 0
    reward: int = 0
    recent: float = 0.0
    recent_reward: float = 0.0
    decay: float = 1.0

    def moved(self, sign: int, reward: float, *, follows: bool) -> Rate:
        """With one episode more or less; one that `follows` is the latest."""
        episodes, units, recent, recent_reward, decay = self
        episodes += sign
        units += sign * round(reward * UNIT)
        if follows:
            recent = recent * _FORGET + 1.0
            recent_reward = recent_reward * _FORGET + reward
            decay *= _FORGET
        return Rate(episodes, units, recent, recent_reward, decay)


_NONE = Rate()


class Rates:
    """Base rates as one transaction sees them, and what it changes of them.

    Args:
        rows: Of the places asked about, and of their namespaces, by number of the row.
    """

    def __init__(self, rows: Mapping[Place, Mapping[int, Rate]]) -> None:
        self._rows = {place: dict(parts) for place, parts in rows.items()}
        self._changes: dict[tuple[Place, int], Rate] = {}

    def base(self, place: Place) -> float:
        """The success rate of a place, shrunk to that of its namespace, and that to 1/2; in (0, 1).

        References:
            Efron and Morris (1975), JASA 70: shrinking a group's rate to that of all groups.

        Examples:
            >>> rates = Rates({Place("[]", ""): {0: Rate(8, 8 * UNIT)}, Place("[]", "hard"): {3: Rate(10, 0)}})
            >>> rates.base(Place("[]", "")), rates.base(Place("[]", "hard")), rates.base(Place("[]", "new"))
            (0.9, 0.15, 0.9)
        """
        parts = self._parts(place)
        parent = PRIOR if not place.context else self.base(Place(place.namespace, ""))
        return _shrunk(sum(p.episodes for p in parts), sum(p.reward for p in parts) / UNIT, parent)

    def expected(self, place: Place) -> float:
        """`base` of the latest episodes only: what is to be expected now, also in an outage."""
        parts = self._parts(place)
        parent = PRIOR if not place.context else self.expected(Place(place.namespace, ""))
        return _shrunk(
            sum([p.recent for p in parts]), sum([p.recent_reward for p in parts]), parent
        )

    def _parts(self, place: Place) -> Collection[Rate]:
        return self._rows.get(place, {}).values()

    def move(
        self,
        eid: int,
        before: tuple[Iterable[Place], float | None],
        after: tuple[Iterable[Place], float | None],
    ) -> None:
        """An episode was settled anew: the places where it gave credit, and its reward, before and after."""
        for (places, reward), sign in ((before, -1), (after, 1)):
            if reward is None:
                continue
            shard, follows = eid % _SHARDS, before[1] is None
            for place in _with_namespaces(places):
                row = self._rows.setdefault(place, {})
                row[shard] = row.get(shard, _NONE).moved(sign, reward, follows=follows)
                change = self._changes.get((place, shard), _NONE)
                self._changes[place, shard] = change.moved(sign, reward, follows=follows)

    def roll_up(self, eid: int, places: Iterable[Place], reward: float | None) -> None:
        """A settled episode goes into the opening balances; no rate changes by it."""
        if reward is None:
            return
        for place in _with_namespaces(places):
            for shard, sign in ((eid % _SHARDS, -1), (OPENING, 1)):
                change = self._changes.get((place, shard), _NONE)
                self._changes[place, shard] = change.moved(sign, reward, follows=False)

    def open_with(self, place: Place, rate: Rate) -> None:
        """Take over an opening balance."""
        self._changes[place, OPENING] = rate

    def save(self, session: Session, *, purge: bool = False) -> None:
        """Write down what was changed, and with `purge` remove places where nothing is left."""
        rows = [
            (*place, shard, *change, change.decay)
            for (place, shard), change in sorted(self._changes.items())
            if change != _NONE
        ]
        if rows:
            session.run_each(_ADD, rows)
        if purge:
            session.run(_PURGE)


def read(session: Session, places: Iterable[Place]) -> Rates:
    """The base rates of some places, as they are now."""
    wanted = set(places)
    found: dict[Place, dict[int, Rate]] = {}
    for place in sorted(wanted | {Place(p.namespace, "") for p in wanted}):
        rows = session.rows(_READ, namespace=place.namespace, context=place.context)
        found[place] = {shard: Rate(*row) for shard, *row in rows}
    return Rates(found)


def openings(session: Session) -> dict[Place, Rate]:
    """The opening balances."""
    return {Place(ns, c): Rate(int(n), int(r)) for ns, c, n, r in session.rows(_OPENINGS)}


def forget_openings(session: Session) -> None:
    """Remove opening balances of places that only erased memories were in, so that no name of theirs is left."""
    session.run(_CLOSE)
    session.run(_PURGE)


def _with_namespaces(places: Iterable[Place]) -> set[Place]:
    """Places, and the namespaces that they are in; that of an erased memory is not known any more."""
    found = {p for p in places if p.namespace}
    return found | {Place(p.namespace, "") for p in found if p.context}


def _shrunk(episodes: float, reward: float, prior: float) -> float:
    return (reward + STRENGTH * prior) / (episodes + STRENGTH)


_READ = Statement(
    "SELECT shard, episodes, reward, recent, recent_reward FROM rates "
    "WHERE namespace = :namespace AND context = :context"
)
_OPENINGS = Statement(
    f"SELECT namespace, context, episodes, reward FROM rates WHERE shard = {OPENING} "
    "ORDER BY namespace, context"
)
# Every place that was rolled up has an opening of one of its memories, unless that was erased.
_CLOSE = Statement(
    f"DELETE FROM rates WHERE shard = {OPENING} AND NOT EXISTS (SELECT 1 FROM openings o "
    "JOIN memories m ON m.seq = o.seq WHERE m.namespace = rates.namespace "
    "AND (rates.context = '' OR o.context = rates.context))"
)
_PURGE = Statement(  # what is left of the latest episodes stays where others were rolled up
    "DELETE FROM rates WHERE episodes = 0 AND reward = 0 AND NOT EXISTS (SELECT 1 FROM rates o "
    f"WHERE o.namespace = rates.namespace AND o.context = rates.context AND o.shard = {OPENING})"
)
_ADD = Statement(
    "INSERT INTO rates (namespace, context, shard, episodes, reward, recent, recent_reward) "
    "VALUES (:namespace, :context, :shard, :episodes, :reward, :recent, :recent_reward) "
    "ON CONFLICT (namespace, context, shard) DO UPDATE SET "
    "episodes = rates.episodes + excluded.episodes, reward = rates.reward + excluded.reward, "
    "recent = rates.recent * :decay + excluded.recent, "
    "recent_reward = rates.recent_reward * :decay + excluded.recent_reward"
)
