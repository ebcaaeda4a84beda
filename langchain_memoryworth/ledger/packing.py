"""The whole ledger out of a database, as the records of an export. Reads only."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_memoryworth.estimators.evidence import Evidence
from langchain_memoryworth.estimators.use import from_document
from langchain_memoryworth.ledger import openings, rates
from langchain_memoryworth.ledger.episodes import path_of
from langchain_memoryworth.ledger.parcel import (
    ActionLine,
    ClosedLine,
    Counters,
    EpisodeLine,
    ExposureLine,
    Header,
    MemoryLine,
    OpeningLine,
    OutcomeLine,
    Parcel,
    RateLine,
)
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.records import Status, evidence_of

_KEYS_IN_LINE = 100_000


def pack(session: Session) -> Parcel:
    """Everything in the database but its policy and its runs in progress, as one transaction sees it."""
    settings = {str(k): str(v) for k, v in session.rows(_SETTINGS)}
    dimension = settings.get("dimension")
    return Parcel(
        Header(
            embedding=settings.get("embedding"),
            dimension=None if dimension is None else int(dimension),
        ),
        [_memory_line(r) for r in session.rows(_MEMORIES)],
        _episode_lines(session),
        [_action_line(r) for r in session.rows(_ACTIONS)],
        [
            OpeningLine(
                memory=o.seq,
                context=o.context,
                source=o.source,
                epoch=o.epoch,
                evidence=_counters(evidence),
            )
            for o, evidence in openings.every(session).items()
        ],
        [
            RateLine(
                namespace=tuple(json.loads(place.namespace)),
                context=place.context,
                episodes=rate.episodes,
                reward=rate.reward,
            )
            for place, rate in rates.openings(session).items()
        ],
        [ClosedLine(keys=tuple(keys)) for keys in _in_lines(sorted(openings.all_closed(session)))],
    )


def _in_lines(keys: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(keys), _KEYS_IN_LINE):
        yield keys[start : start + _KEYS_IN_LINE]


def _memory_line(r: Sequence[Any]) -> MemoryLine:
    return MemoryLine(
        number=r[0],
        namespace=None if not r[1] else tuple(json.loads(r[1])),
        id=r[2],
        text=r[3],
        metadata=json.loads(r[4]),
        vector=base64.b64encode(bytes(r[5])).decode(),
        added_at=r[6],
        written_at=r[7],
        expires_at=r[8],
        retired_at=r[9],
        status=Status(r[10]),
        epoch=r[11],
        evidence=_counters(Evidence(*r[12:18])),
        hold_out=r[18],
    )


def _counters(evidence: Evidence) -> Counters:
    return Counters(**evidence._asdict())


def _episode_lines(session: Session) -> list[EpisodeLine]:
    exposures: dict[int, list[ExposureLine]] = defaultdict(list)
    for eid, *r in session.rows(_EXPOSURES):
        names = tuple(ExposureLine.model_fields)
        values = dict(zip(names, r, strict=True))
        values["shown"] = bool(values["shown"])
        exposures[eid].append(ExposureLine(**values))
    outcomes: dict[int, list[OutcomeLine]] = defaultdict(list)
    for eid, source, source_id, metric, reward, used, at in session.rows(_OUTCOMES):
        said = None if used is None else from_document(used)
        outcomes[eid].append(
            OutcomeLine(
                source=source, source_id=source_id, metric=metric, reward=reward, used=said, at=at
            )
        )
    aliases: dict[int, list[str]] = defaultdict(list)
    for eid, alias in session.rows(_ALIASES):
        aliases[eid].append(alias)
    return [
        EpisodeLine(
            id=id_,
            aliases=tuple(aliases[eid]),
            thread_id=thread_id,
            path=path_of(path),
            started_at=started_at,
            settled_at=settled_at,
            reward=reward,
            exposures=tuple(exposures[eid]),
            outcomes=tuple(outcomes[eid]),
        )
        for eid, id_, thread_id, started_at, settled_at, reward, path in session.rows(_EPISODES)
    ]


def _action_line(r: Sequence[Any]) -> ActionLine:
    return ActionLine(
        number=r[0],
        memory=r[1],
        action=r[2],
        actor=r[3],
        reason=r[4],
        at=r[5],
        evidence=None if r[6] is None else _counters(evidence_of(r[6])),
        before=r[7],
        after=r[8],
        epoch=r[9],
        undoes=r[10],
    )


_SETTINGS = Statement("SELECT key, value FROM meta WHERE key IN ('embedding', 'dimension')")
_MEMORIES = Statement(
    "SELECT m.seq, m.namespace, m.id, m.text, m.metadata, m.vector, m.added_at, m.written_at, "
    "m.expires_at, m.retired_at, e.status, e.epoch, e.positive, e.negative, e.size, e.squared, "
    "e.retrievals, e.surprise, e.hold_out FROM memories m JOIN evidence e ON e.seq = m.seq ORDER BY m.seq"
)
_EPISODES = Statement(
    "SELECT eid, id, thread_id, started_at, settled_at, reward, path FROM episodes ORDER BY eid"
)
_EXPOSURES = Statement(
    "SELECT eid, seq, rank, similarity, context, arm, propensity, shown, used, at, last_at, weight, "
    "positive, size, surprise, expected, epoch FROM exposures ORDER BY eid, seq"
)
_OUTCOMES = Statement(
    "SELECT eid, source, source_id, metric, reward, used, at FROM outcomes ORDER BY number"
)
_ALIASES = Statement("SELECT eid, alias FROM aliases ORDER BY eid, alias")
_ACTIONS = Statement(
    "SELECT number, seq, kind, actor, reason, at, evidence, status_before, status_after, epoch, "
    "undoes FROM actions WHERE seq IS NOT NULL ORDER BY number"
)
