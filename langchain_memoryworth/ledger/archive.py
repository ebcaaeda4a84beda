"""The whole ledger out of a database and into another: what `transfer` calls a parcel, as rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langchain_memoryworth.errors import ImportFileError
from langchain_memoryworth.estimators.evidence import Evidence
from langchain_memoryworth.estimators.use import Use, checked_use, shares_of, to_document
from langchain_memoryworth.ledger import lists, openings, populations, rates, standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.erasure import tombstone
from langchain_memoryworth.ledger.memories import Copy
from langchain_memoryworth.ledger.packing import pack
from langchain_memoryworth.ledger.parcel import (
    ActionLine,
    EpisodeLine,
    ExposureLine,
    MemoryLine,
    OpeningLine,
    Parcel,
    RateLine,
    sums,
)
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.progress import Progress, unwatched, watched
from langchain_memoryworth.records import Imported, namespace_key


class _Plan(NamedTuple):
    """What of a parcel is new.

    Attributes:
        number: From the numbers of the file to those of the database.
        known: Numbers of the file whose memories are there already.
        namespaces: Of the memories, by number of the file; empty of an erased one.
        openings: Balances of runs that are not known here.
        base_rates: Likewise, by place.
        closed: Hashes of the ids of those runs.
    """

    number: Mapping[int, int]
    known: frozenset[int]
    memories: Sequence[MemoryLine]
    episodes: Sequence[EpisodeLine]
    namespaces: Mapping[int, str]
    openings: Sequence[OpeningLine]
    base_rates: Sequence[RateLine]
    closed: Sequence[int]

    def place(self, exposure: ExposureLine) -> rates.Place:
        """Whose base rate an exposure counts for."""
        return rates.Place(self.namespaces[exposure.memory], exposure.context or "")

    @property
    def fresh(self) -> frozenset[int]:
        return frozenset(m.number for m in self.memories)


class Archive:
    """Reads a parcel from the database, and writes one into it, each in one transaction."""

    def __init__(self, database: Database, mirror: Copy | None = None) -> None:
        self._database = database
        self._mirror = mirror

    def pack(self) -> Parcel:
        """Everything in the database but its policy and its runs in progress."""
        with self._database.read() as session:
            return pack(session)

    def unpack(
        self,
        session: Session,
        parcel: Parcel,
        policy: Policy,
        now: float,
        *,
        dry_run: bool,
        progress: Progress = unwatched,
    ) -> Imported:
        """Write what is new of a parcel; with `dry_run` only say what that would be.

        Memories of the same namespace, id and text, and episodes of the same id, are there already. Evidence is the sum of
        the new episodes. New memories keep their status, for known ones the policy judges.

        Raises:
            ImportFileError: If only some of the runs that were rolled up there are known here: their sums cannot be parted.
        """
        plan = _plan(session, parcel)
        actions = [a for a in parcel.actions if a.memory in plan.fresh]
        if not dry_run:
            self._write(session, plan, actions, policy, now, progress)
        return Imported(
            memories=len(plan.memories),
            known_memories=len(plan.known),
            episodes=len(plan.episodes),
            known_episodes=len(parcel.episodes) - len(plan.episodes),
            outcomes=sum(len(e.outcomes) for e in plan.episodes),
            dry_run=dry_run,
        )

    def _write(
        self,
        session: Session,
        plan: _Plan,
        actions: Sequence[ActionLine],
        policy: Policy,
        now: float,
        progress: Progress,
    ) -> None:
        known = standing.read(session, [plan.number[n] for n in plan.known])
        totals = sums(plan.episodes, plan.openings)
        bases = _baselines(plan)
        for memory in plan.memories:
            self._write_memory(session, memory, plan.number[memory.number])
            seq, n = plan.number[memory.number], memory.number
            standing.set_evidence(session, seq, memory.epoch, totals[n], bases[n])
        populations.came(session, [plan.number[m.number] for m in plan.memories])
        if self._mirror is not None:
            vectors = [(plan.number[m.number], m.floats()) for m in plan.memories]
            self._mirror(session, vectors)
        base_rates = rates.Rates({})
        for episode in watched(plan.episodes, "writing runs", progress):
            eid = self._write_episode(session, episode, plan, known)
            places = [plan.place(x) for x in episode.exposures if x.size]
            base_rates.move(eid, ((), None), (places, episode.reward))
            standing.add_to_strata(
                session,
                [
                    (plan.number[x.memory], x.context, x.credit().evidence)
                    for x in episode.exposures
                    if x.size and x.context
                ],
            )
        self._write_openings(session, plan, known, base_rates)
        base_rates.save(session)
        deltas = [
            standing.Delta(known[seq], totals[n])
            for n in sorted(plan.known)
            if totals[n] != Evidence() and (seq := plan.number[n])
        ]
        if deltas:
            standing.add(session, deltas, policy, now)
        # Numbers are the database's own to give: on Postgres its sequence would not know of any other.
        numbers: dict[int, int] = {}
        for action in actions:
            row = _action_row(action, plan, numbers)
            numbers[action.number] = session.number(_ADD_ACTION, **row)
        standing.changed_many(session, sorted({*plan.number.values()}))

    def _write_openings(
        self,
        session: Session,
        plan: _Plan,
        known: Mapping[int, standing.Standing],
        base_rates: rates.Rates,
    ) -> None:
        for o in plan.openings:
            seq, evidence = plan.number[o.memory], o.evidence.evidence()
            epoch = known[seq].epoch if seq in known else o.epoch
            openings.add(session, {openings.Opening(seq, o.context, o.source, epoch): evidence})
            if o.context:
                standing.add_to_strata(session, [(seq, o.context, evidence)])
        for rate in plan.base_rates:
            place = rates.Place(namespace_key(rate.namespace), rate.context)
            base_rates.open_with(place, rates.Rate(rate.episodes, rate.reward))
        openings.close(session, plan.closed)

    def _write_memory(self, session: Session, m: MemoryLine, seq: int) -> None:
        gone = m.namespace is None
        if not gone and m.retired_at is None:
            # Another text may stand under this id; the one that is imported is older news, and does not replace it.
            taken = session.row(_LIVE, namespace=namespace_key(m.namespace or ()), id=m.id)
        else:
            taken = None
        session.run(
            _ADD_MEMORY,
            {
                "seq": seq,
                "namespace": "" if m.namespace is None else namespace_key(m.namespace),
                "id": tombstone(seq) if gone else m.id,
                "text": m.text,
                "metadata": json.dumps(m.metadata, ensure_ascii=False, allow_nan=False),
                "vector": m.floats().tobytes(),
                "added_at": m.added_at,
                "written_at": m.written_at,
                "expires_at": m.expires_at,
                "retired_at": m.written_at if taken is not None else m.retired_at,
            },
        )
        evidence = {"seq": seq, "status": m.status.value, "hold_out": m.hold_out}
        session.run(_ADD_EVIDENCE, evidence)

    def _write_episode(
        self,
        session: Session,
        e: EpisodeLine,
        plan: _Plan,
        known: Mapping[int, standing.Standing],
    ) -> int:
        columns = e.model_dump(include=set(_EPISODE_COLUMNS))
        path = json.dumps(e.path) if e.path else None
        eid = session.number(_ADD_EPISODE, **columns, path=path)
        for alias in e.aliases:
            session.run(_ADD_ALIAS, {"alias": alias, "eid": eid})
        names = {tombstone(n): tombstone(s) for n, s in plan.number.items()}
        for o in e.outcomes:
            used = None if o.used is None else _renamed(o.used, names)
            session.run(_ADD_OUTCOME, {**o.model_dump(), "eid": eid, "used": used})
        for x in e.exposures:
            seq = plan.number[x.memory]
            values = x.model_dump(exclude={"memory"})
            if seq in known and x.epoch is not None:
                values["epoch"] = known[seq].epoch
            values |= {
                "eid": eid,
                "seq": seq,
                "arm": x.arm.value,
                "shown": int(x.shown),
            }
            session.run(_ADD_EXPOSURE, values)
        standing.changed(session, "episode", eid)
        return eid


def _renamed(use: Use, names: Mapping[str, str]) -> str:
    shares = {names.get(i, i): share for i, share in shares_of(use).items()}
    return to_document(checked_use(shares))


def _plan(session: Session, parcel: Parcel) -> _Plan:
    texts: dict[tuple[str, str, str], int] = {}
    ids = list({m.id for m in parcel.memories})
    for seq, ns, id_, text in lists.select_in(session, _BY_IDS, ids):
        texts[ns, id_, text] = seq
    there = {i for (i,) in lists.select_in(session, _EPISODE_IDS, [e.id for e in parcel.episodes])}
    gone = openings.closed(session, [openings.key(e.id) for e in parcel.episodes])
    episodes = [e for e in parcel.episodes if e.id not in there and openings.key(e.id) not in gone]
    rolled_up = _rolled_up(session, parcel)
    balances = parcel.openings if rolled_up else ()
    needed = {x.memory for e in episodes for x in e.exposures} | {o.memory for o in balances}
    number: dict[int, int] = {}
    fresh: list[MemoryLine] = []
    last = session.number(_LAST_MEMORY)
    for m in parcel.memories:
        if m.namespace is not None:
            known = texts.get((namespace_key(m.namespace), m.id, m.text))
            if known is not None:
                number[m.number] = known
                continue
        elif last and m.number not in needed:
            continue  # nothing of an erased memory is new but the episodes that it was in
        fresh.append(m)
    keep = not last  # into an empty store with the numbers of the file
    for place, m in enumerate(fresh, 1):
        number[m.number] = m.number if keep else last + place
    namespaces = {
        m.number: "" if m.namespace is None else namespace_key(m.namespace) for m in parcel.memories
    }
    known_numbers = frozenset(number) - {m.number for m in fresh}
    base = parcel.rates if rolled_up else ()
    return _Plan(number, known_numbers, fresh, episodes, namespaces, balances, base, rolled_up)


def _rolled_up(session: Session, parcel: Parcel) -> list[int]:
    """The runs that were rolled up there, if none of them is known here; none if all are."""
    keys = parcel.rolled_up
    if not keys:
        return []
    here = openings.closed(session, keys)
    alive = {openings.key(str(id_)) for (id_,) in session.rows(_ALL_EPISODE_IDS)}
    if not here and alive.isdisjoint(keys):
        return keys
    if len(here) == len(set(keys)):
        return []
    raise ImportFileError(
        "",
        0,
        "some of the runs that were rolled up there are known here, and would be counted twice; import an "
        "export from before they were rolled up, or import into an empty store",
    )


def _baselines(plan: _Plan) -> dict[int, Evidence]:
    """What was settled before the last restore, by number of the file."""
    epochs = {m.number: m.epoch for m in plan.memories}
    totals: dict[int, Evidence] = defaultdict(Evidence)
    for o in plan.openings:
        if o.epoch < epochs.get(o.memory, 0):
            totals[o.memory] += o.evidence.evidence()
    for episode in plan.episodes:
        for x in episode.exposures:
            if x.size and x.epoch is not None and x.epoch < epochs.get(x.memory, 0):
                totals[x.memory] += x.credit().evidence
    return totals


def _action_row(a: ActionLine, plan: _Plan, numbers: Mapping[int, int]) -> dict[str, Any]:
    return {
        "seq": plan.number[a.memory],
        "kind": a.action,
        "actor": a.actor,
        "reason": a.reason,
        "at": a.at,
        "evidence": None if a.evidence is None else json.dumps(a.evidence.model_dump()),
        "before": None if a.before is None else a.before.value,
        "after": None if a.after is None else a.after.value,
        "epoch": a.epoch,
        "undoes": None if a.undoes is None else numbers.get(a.undoes),
    }


_BY_IDS = "SELECT seq, namespace, id, text FROM memories WHERE namespace <> '' AND id IN :values"
_EPISODE_IDS = "SELECT id FROM episodes WHERE id IN :values"
_ALL_EPISODE_IDS = Statement("SELECT id FROM episodes")
_EPISODE_COLUMNS = ("id", "thread_id", "started_at", "settled_at", "reward")
_LIVE = Statement(
    "SELECT seq FROM memories WHERE namespace = :namespace AND id = :id AND retired_at IS NULL"
)
_LAST_MEMORY = Statement("SELECT MAX(seq) FROM memories")
_ADD_MEMORY = Statement(
    "INSERT INTO memories (seq, namespace, id, text, metadata, vector, added_at, written_at, "
    "expires_at, retired_at) VALUES (:seq, :namespace, :id, :text, :metadata, :vector, :added_at, "
    ":written_at, :expires_at, :retired_at)"
)
_ADD_EVIDENCE = Statement(
    "INSERT INTO evidence (seq, status, hold_out) VALUES (:seq, :status, :hold_out)"
)
_ADD_EPISODE = Statement(
    "INSERT INTO episodes (id, thread_id, started_at, settled_at, reward, path) "
    "VALUES (:id, :thread_id, :started_at, :settled_at, :reward, :path) RETURNING eid"
)
_ADD_ALIAS = Statement(
    "INSERT INTO aliases (alias, eid) VALUES (:alias, :eid) ON CONFLICT (alias) DO NOTHING"
)
_ADD_EXPOSURE = Statement(
    "INSERT INTO exposures (eid, seq, rank, similarity, context, arm, propensity, shown, used, at, "
    "last_at, weight, positive, size, surprise, expected, epoch, heard) VALUES (:eid, :seq, :rank, "
    ":similarity, :context, :arm, :propensity, :shown, :used, :at, :last_at, :weight, :positive, "
    ":size, :surprise, :expected, :epoch, (SELECT MIN(number) FROM outcomes WHERE eid = :eid))"
)
_ADD_OUTCOME = Statement(
    "INSERT INTO outcomes (eid, source, source_id, metric, reward, used, at) "
    "VALUES (:eid, :source, :source_id, :metric, :reward, :used, :at)"
)
_ADD_ACTION = Statement(
    "INSERT INTO actions (seq, kind, actor, reason, at, evidence, status_before, status_after, "
    "epoch, undoes) VALUES (:seq, :kind, :actor, :reason, :at, :evidence, :before, :after, :epoch, "
    ":undoes) RETURNING number"
)
