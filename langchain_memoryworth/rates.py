"""Base rates: how often episodes succeed in a namespace, and in each context of it, whatever memories they showed.

Sums over settled episodes with credit there, added and taken back with the credit itself, so that a corrected outcome
leaves no trace. Spread over a few rows each, or all settlements of a Postgres would wait for one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from langchain_memoryworth.database import Session, Statement
from langchain_memoryworth.evidence import UNIT, Evidence

_SHARDS = 8
PRIOR = 0.5
"""The base rate assumed of a namespace without episodes."""
PRIOR_STRENGTH = 2.0
"""Episodes that this assumption is worth."""
PARENT_STRENGTH = 10.0
"""Episodes that the rate of the namespace is worth for one of its contexts."""


class Place(NamedTuple):
    """Where an exposure stands: the namespace of the memory, and the context of the retrieval."""

    namespace: str
    context: str


class Rate(NamedTuple):
    """Settled episodes with credit at a place, and the sum of their rewards in units of 2**-32."""

    episodes: int = 0
    reward: int = 0


class Rates:
    """Base rates as one transaction sees them, and what it changes of them.

    Args:
        rates: Of the places asked about, and of their namespaces.
    """

    def __init__(self, rates: Mapping[Place, Rate]) -> None:
        self._rates = dict(rates)
        self._changes: dict[tuple[Place, int], list[int]] = defaultdict(lambda: [0, 0])

    def base(self, place: Place, *, without: Evidence | None = None) -> float:
        """The success rate to be expected at a place, shrunk to that of the namespace, and that to 1/2; in (0, 1).

        Args:
            place: Namespace and context.
            without: Counters of a memory whose own episodes are left out, as far as they tell.

        References:
            Efron and Morris (1975), JASA 70: shrinking a group's rate to that of all groups.

        Examples:
            >>> rates = Rates({Place("[]", ""): Rate(8, 8 * UNIT), Place("[]", "hard"): Rate(10, 0)})
            >>> rates.base(Place("[]", "")), rates.base(Place("[]", "hard")), rates.base(Place("[]", "new"))
            (0.9, 0.45, 0.9)
        """
        whole = _others(self._rates.get(Place(place.namespace, ""), Rate()), without)
        parent = _shrunk(whole, PRIOR, PRIOR_STRENGTH)
        if not place.context:
            return parent
        return _shrunk(self._rates.get(place, Rate()), parent, PARENT_STRENGTH)

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
            units = round(reward * UNIT)
            for place in {p for at in places for p in (at, Place(at.namespace, ""))}:
                if not place.namespace:
                    continue  # of an erased memory it is not known any more
                old = self._rates.get(place, Rate())
                self._rates[place] = Rate(old.episodes + sign, old.reward + sign * units)
                change = self._changes[place, eid % _SHARDS]
                change[0] += sign
                change[1] += sign * units

    def save(self, session: Session, *, purge: bool = False) -> None:
        """Write down what was changed, and with `purge` remove places where nothing is left."""
        rows = [
            {
                "namespace": place.namespace,
                "context": place.context,
                "shard": shard,
                "episodes": episodes,
                "reward": reward,
            }
            for (place, shard), (episodes, reward) in sorted(self._changes.items())
            if episodes or reward
        ]
        if rows:
            session.run_many(_ADD, rows)
        if purge:
            session.run(_PURGE)


def read(session: Session, places: Iterable[Place]) -> Rates:
    """The base rates of some places, as they are now."""
    wanted = set(places)
    found: dict[Place, Rate] = {}
    for namespace in {p.namespace for p in wanted}:
        contexts = sorted({p.context for p in wanted if p.namespace == namespace} | {""})
        for context in contexts:
            row = session.row(_READ, namespace=namespace, context=context)
            if row is not None and row[0] is not None:
                found[Place(namespace, context)] = Rate(int(row[0]), int(row[1]))
    return Rates(found)


def of_memory(session: Session, seq: int, own: Evidence) -> float:
    """The base rate of the other episodes in the namespace of a memory."""
    row = session.row(_NAMESPACE, seq=seq)
    place = Place("" if row is None else str(row[0]), "")
    return read(session, [place]).base(place, without=own)


def all_rates(session: Session, namespace: str) -> dict[str, Rate]:
    """The rates of a namespace by context, `""` being the whole of it."""
    rows = session.rows(_ALL, namespace=namespace)
    return {context: Rate(int(episodes), int(reward)) for context, episodes, reward in rows}


def _others(rate: Rate, own: Evidence | None) -> Rate:
    if own is None:
        return rate
    episodes = max(0, rate.episodes - own.retrievals)
    reward = rate.reward - round(own.worth * own.retrievals * UNIT)
    return Rate(episodes, min(max(0, reward), episodes * UNIT))


def _shrunk(rate: Rate, prior: float, strength: float) -> float:
    return (rate.reward / UNIT + strength * prior) / (rate.episodes + strength)


_NAMESPACE = Statement("SELECT namespace FROM memories WHERE seq = :seq")
_READ = Statement(
    "SELECT SUM(episodes), SUM(reward) FROM rates WHERE namespace = :namespace AND context = :context"
)
_ALL = Statement(
    "SELECT context, SUM(episodes), SUM(reward) FROM rates WHERE namespace = :namespace "
    "GROUP BY context ORDER BY context"
)
_PURGE = Statement("DELETE FROM rates WHERE episodes = 0 AND reward = 0")
_ADD = Statement(
    "INSERT INTO rates (namespace, context, shard, episodes, reward) "
    "VALUES (:namespace, :context, :shard, :episodes, :reward) "
    "ON CONFLICT (namespace, context, shard) DO UPDATE SET "
    "episodes = rates.episodes + excluded.episodes, reward = rates.reward + excluded.reward"
)
