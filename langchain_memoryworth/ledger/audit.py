"""Reading the ledger for people: what a memory was part of, with whom, and what a run did to it. Nothing is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.errors import UnknownRunError
from langchain_memoryworth.estimators.credit import Credit
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.ledger import lists, openings, populations, standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.progress import Progress, unwatched, watched
from langchain_memoryworth.records import (
    LOOK_BACK,
    Arm,
    Namespace,
    WorthPoint,
    evidence_of,
    namespace_key,
)

NOTHING = Evidence()
_EVERY = 2**62


class Part(NamedTuple):
    """One memory in one run, and what is known of it now.

    Attributes:
        standing: With its status and counters now.
        change: The change of status that this run's settlement made, as text.
    """

    memory_id: str
    text: str
    rank: int
    similarity: float | None
    arm: Arm
    propensity: float
    shown: bool
    credit: Credit
    standing: standing.Standing
    change: str | None


class Settlement(NamedTuple):
    """One settled run of one memory."""

    seq: int
    episode_id: str
    settled_at: float
    reward: float
    context: str | None
    evidence: Evidence
    weight: float


class Together(NamedTuple):
    """How often memories were shown, alone and in pairs, over the last episodes.

    Attributes:
        episodes: How many episodes were looked at.
        shown: By number.
        pairs: By both numbers, the lower first.
    """

    episodes: int
    shown: Counter[int]
    pairs: Counter[tuple[int, int]]


class Audit:
    """Questions to the ledger. They read whole tables, and are for people, not for the serving path."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def settlements(
        self, seqs: Sequence[int], *, episodes: int = _EVERY
    ) -> dict[int, list[Settlement]]:
        """Settled runs of some memories among the latest episodes, or all, in the order in which they were settled."""
        with self._database.read() as session:
            rows = lists.select_in(session, _SETTLEMENTS, seqs, episodes=episodes)
        found: dict[int, list[Settlement]] = {s: [] for s in seqs}
        # Settled in one moment, the one that began first comes first; ids say nothing of order.
        for seq, _, id_, at, reward, context, *given in sorted(rows, key=itemgetter(3, 1)):
            credit = Credit(*given)
            found[seq].append(
                Settlement(seq, id_, at, reward, context, credit.evidence, credit.weight / UNIT)
            )
        return found

    def opening(self, seq: int) -> Evidence:
        """What was rolled up of one memory."""
        with self._database.read() as session:
            return openings.total(openings.of(session, seq))

    def seq(self, namespace: Namespace, memory_id: str) -> int | None:
        """Number of the live version of a memory."""
        with self._database.read() as session:
            row = session.row(_LIVE, namespace=namespace_key(namespace), id=memory_id)
        return None if row is None else int(row[0])

    def standings(self, seqs: Sequence[int]) -> dict[int, standing.Standing]:
        """Status, counters and baseline of memories by their number."""
        with self._database.read() as session:
            return standing.read(session, seqs)

    def sources(self, seq: int, epoch: int) -> int:
        """How many distinct sources have spoken of a memory since its last restore."""
        with self._database.read() as session:
            return session.number(standing.SOURCES, seq=seq, epoch=epoch)

    def live(self, namespace: Namespace) -> dict[int, str]:
        """Numbers and ids of the live memories of a namespace."""
        with self._database.read() as session:
            rows = session.rows(_ALL_LIVE, namespace=namespace_key(namespace))
        return {int(seq): str(id_) for seq, id_ in rows}

    def namespaces(self) -> list[tuple[Namespace, int]]:
        """Every namespace with live memories, and how many it has."""
        with self._database.read() as session:
            rows = populations.all_live(session)
        return sorted((tuple(json.loads(key)), count) for key, count in rows)

    def ends(self, seq: int) -> tuple[float, float | None]:
        """When a memory was last stored, and its own end."""
        with self._database.read() as session:
            row = session.row(_ENDS, seq=seq)
        return (0.0, None) if row is None else (row[0], row[1])

    def vectors(self, seqs: Sequence[int]) -> NDArray[np.float32]:
        """Unit vectors of memories that have one, shape (n, d), and empty ones left out by the caller."""
        with self._database.read() as session:
            rows = dict(lists.select_in(session, _VECTORS, seqs))
        return np.array([np.frombuffer(rows[s], np.float32) for s in seqs])

    def with_vector(self, namespace: Namespace) -> list[int]:
        """The live memories that are the store's own, and so have a vector, the most retrieved first, then the newest."""
        with self._database.read() as session:
            rows = session.rows(_HAVE_VECTOR, namespace=namespace_key(namespace))
        return [int(s) for (s,) in rows]

    def companions(self, seq: int, limit: int = 5) -> list[tuple[str, int]]:
        """The memories most often shown in the same runs: id and number of runs."""
        with self._database.read() as session:
            return [(i, n) for i, n in session.rows(_COMPANIONS, seq=seq, limit=limit)]

    def together(self) -> Together:
        """Who was shown with whom."""
        shown: Counter[int] = Counter()
        pairs: Counter[tuple[int, int]] = Counter()
        episodes = 0
        with self._database.read() as session:
            for seqs in _by_episode(session):
                episodes += 1
                shown.update(seqs)
                pairs.update(combinations(seqs, 2))
        return Together(episodes, shown, pairs)

    def rejections(self, seqs: Sequence[int]) -> dict[tuple[int, str], Evidence]:
        """Proposals that were rejected, and the evidence at that moment: the newest by memory and key."""
        with self._database.read() as session:
            rows = lists.select_in(session, _REJECTIONS, seqs)
        return {
            (seq, reason.split(":", 1)[0]): evidence_of(document)
            for seq, reason, document, _ in sorted(rows, key=itemgetter(3))
        }

    def decided(self, seqs: Sequence[int]) -> set[int]:
        """Those whose last change of status was a person's."""
        with self._database.read() as session:
            rows = lists.select_in(session, _LAST_ACTOR, seqs)
        return {int(seq) for seq, actor in rows if actor != "policy"}

    def check(self, progress: Progress = unwatched) -> list[str]:
        """Counters that are not the sum of their credits, episodes whose shares are not one, and namespaces miscounted."""
        with self._database.read() as session:
            stands = {r[0]: standing.standing_of(r) for r in session.rows(_STANDINGS)}
            opened = openings.every(session)
            credits_ = session.rows(_CREDITS)
            shares = session.rows(_SHARES, unit=UNIT)
            miscounted = list(populations.wrong(session))
        totals = dict.fromkeys(stands, Evidence())
        bases = dict.fromkeys(stands, Evidence())
        problems = []
        given = [(o.seq, o.epoch, e) for o, e in opened.items()]
        given += [(seq, epoch, Credit(*rest).evidence) for seq, epoch, *rest in credits_]
        for seq, epoch, evidence in watched(given, "adding up", progress):
            if seq not in stands:
                problems.append(f"credit for memory number {seq}, which is not there")
                continue
            totals[seq] += evidence
            if epoch < stands[seq].epoch:
                bases[seq] += evidence
        for seq, s in stands.items():
            problems += _differences(f"memory number {seq} has", s.evidence, totals[seq])
            problems += _differences(
                f"memory number {seq} has in its baseline", s.baseline, bases[seq]
            )
        problems += [f"the shares of run {id_!r} do not add up to one" for (id_,) in shares]
        return problems + [
            f"namespace {key} is kept as {said}, its memories are {there}"
            for key, said, there in miscounted
        ]

    def rewards(self) -> list[tuple[float, float]]:
        """Time of settlement and reward of every settled run, oldest first."""
        with self._database.read() as session:
            return [(at, reward) for at, reward in session.rows(_REWARDS)]

    def suppressions(self) -> list[float]:
        """When memories were suppressed, by the policy or a person, oldest first."""
        with self._database.read() as session:
            return [float(at) for (at,) in session.rows(_SUPPRESSIONS)]

    def schema_version(self) -> int:
        """The schema version of the database."""
        with self._database.read() as session:
            return session.number(_VERSION)

    def policy_at(self, at: float) -> dict[str, Any]:
        """The policy that was in force at a time, as it was stored."""
        with self._database.read() as session:
            row = session.row(_POLICY_AT, at=at)
        return {} if row is None else dict(json.loads(row[0]))

    def parts(self, run_id: str) -> list[Part]:
        """Every memory of one run, by rank.

        Raises:
            UnknownRunError: If no episode has that id.
        """
        with self._database.read() as session:
            row = session.row(_FIND, id=run_id)
            if row is None:
                raise UnknownRunError(run_id)
            rows = session.rows(_PARTS, eid=row[0])
        return [
            Part(
                r[0],
                r[1],
                r[2],
                r[3],
                Arm(r[4]),
                r[5],
                bool(r[6]),
                Credit(*r[7:11]),
                standing.standing_of(r[12:]),
                r[11],
            )
            for r in rows
        ]


def worth_points(
    settlements: Sequence[Settlement], opening: Evidence = NOTHING
) -> tuple[WorthPoint, ...]:
    """The worth after each settlement, added up from the first, on top of what was rolled up."""
    total, points = opening, []
    for s in settlements:
        total += s.evidence
        at = datetime.fromtimestamp(s.settled_at, UTC)
        points.append(WorthPoint(at, s.episode_id, s.reward, s.weight, total))
    return tuple(points)


def _differences(who: str, kept: Evidence, added: Evidence) -> Iterator[str]:
    """What is wrong in the counters of a memory, as the integers that they are: a difference may be of one unit."""
    if kept != added:
        both = [(n, k, a) for n, k, a in zip(Evidence._fields, kept, added, strict=True) if k != a]
        wrong = ", ".join(f"{name} {k} and not {a}" for name, k, a in both)
        yield f"{who} {wrong}, as its table keeps them; what counts is the latter, the sum of the credits in its ledger"


def _by_episode(session: Session) -> Iterator[list[int]]:
    rows: list[tuple[Any, ...]] = session.rows(_SHOWN, episodes=LOOK_BACK)
    for _, some in groupby(rows, key=itemgetter(0)):
        yield [seq for _, seq in some]


_SETTLEMENTS = (
    "SELECT x.seq, p.eid, p.id, p.settled_at, p.reward, x.context, x.weight, x.positive, x.size, "
    "x.surprise FROM exposures x JOIN episodes p ON p.eid = x.eid WHERE x.size > 0 AND x.seq IN :values "
    f"AND x.{standing.LATEST}"
)
_LIVE = Statement(
    "SELECT seq FROM memories WHERE namespace = :namespace AND id = :id AND retired_at IS NULL"
)
_ALL_LIVE = Statement(
    "SELECT seq, id FROM memories WHERE namespace = :namespace AND retired_at IS NULL ORDER BY seq"
)
_ENDS = Statement("SELECT written_at, expires_at FROM memories WHERE seq = :seq")
_VECTORS = "SELECT seq, vector FROM memories WHERE seq IN :values"
_HAVE_VECTOR = Statement(
    "SELECT m.seq FROM memories m JOIN evidence e ON e.seq = m.seq WHERE m.namespace = :namespace "
    "AND m.retired_at IS NULL AND LENGTH(m.vector) > 0 ORDER BY e.retrievals DESC, m.seq DESC"
)
_COMPANIONS = Statement(
    "SELECT m.id, COUNT(*) FROM exposures x JOIN exposures y ON y.eid = x.eid AND y.seq <> x.seq "
    "JOIN memories m ON m.seq = y.seq WHERE x.seq = :seq AND x.shown = 1 AND y.shown = 1 "
    "GROUP BY m.id ORDER BY 2 DESC, m.id LIMIT :limit"
)
_SHOWN = Statement(
    "SELECT x.eid, x.seq FROM exposures x WHERE x.shown = 1 AND x.size > 0 "
    f"AND x.{standing.LATEST} ORDER BY x.eid, x.seq"
)
_REJECTIONS = (
    "SELECT seq, reason, evidence, number FROM actions "
    "WHERE kind IN ('reject', 'approve', 'reverify') AND seq IN :values"
)
_LAST_ACTOR = (
    "SELECT a.seq, a.actor FROM actions a WHERE a.status_after IS NOT NULL AND a.seq IN :values "
    "AND NOT EXISTS (SELECT 1 FROM actions b WHERE b.seq = a.seq AND b.number > a.number "
    "AND b.status_after IS NOT NULL)"
)
_STANDINGS = Statement(f"SELECT {standing.STANDING_COLUMNS} FROM evidence e ORDER BY e.seq")
_CREDITS = Statement(
    "SELECT seq, epoch, weight, positive, size, surprise FROM exposures WHERE size > 0"
)
_SHARES = Statement(
    "SELECT p.id FROM episodes p JOIN exposures x ON x.eid = p.eid WHERE x.size > 0 "
    "GROUP BY p.id HAVING SUM(x.weight) <> :unit ORDER BY p.id"
)
_REWARDS = Statement(
    "SELECT settled_at, reward FROM episodes "
    "WHERE reward IS NOT NULL AND settled_at IS NOT NULL ORDER BY settled_at, eid"
)
_SUPPRESSIONS = Statement("SELECT at FROM actions WHERE kind = 'suppress' ORDER BY at")
_VERSION = Statement("SELECT value FROM meta WHERE key = 'schema_version'")
_POLICY_AT = Statement(
    "SELECT document FROM policies WHERE at <= :at ORDER BY version DESC LIMIT 1"
)
_FIND = Statement(
    "SELECT eid FROM episodes WHERE eid = COALESCE("
    "(SELECT eid FROM aliases WHERE alias = :id), (SELECT eid FROM episodes WHERE id = :id))"
)
_PARTS = Statement(
    "SELECT m.id, m.text, x.rank, x.similarity, x.arm, x.propensity, x.shown, x.weight, "
    "x.positive, x.size, x.surprise, (SELECT MAX(a.kind || ': ' || a.reason) FROM actions a "
    "WHERE a.seq = x.seq AND a.actor = 'policy' AND a.at = p.settled_at), "
    f"{standing.STANDING_COLUMNS} FROM exposures x JOIN episodes p ON p.eid = x.eid "
    "JOIN memories m ON m.seq = x.seq JOIN evidence e ON e.seq = x.seq "
    "WHERE x.eid = :eid ORDER BY x.rank, x.seq"
)
