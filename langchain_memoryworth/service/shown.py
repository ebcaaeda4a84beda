"""The latest credited exposures of a namespace, and what reports make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.estimators.hitchhikers import CoRetrievals
from langchain_memoryworth.estimators.ridge import Ridge, ridge
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.ledger.standing import LATEST, Standing
from langchain_memoryworth.records import LOOK_BACK, Namespace, namespace_key

ENOUGH = 20
"""Retrievals of a memory below which a report says nothing of its companions or changes."""


class Shown(NamedTuple):
    """One credited exposure."""

    eid: int
    seq: int
    size: int
    weight: int
    reward: float
    context: str


def latest(session: Session, namespace: Namespace) -> list[Shown]:
    """Those of the latest 50,000 episodes, in order."""
    rows = session.rows(_SHOWN, namespace=namespace_key(namespace), episodes=LOOK_BACK)
    return [Shown(*r) for r in rows]


def by_episode(shown: Sequence[Shown]) -> Iterator[Iterator[Shown]]:
    """The exposures of one episode after the other."""
    for _, rows in groupby(shown, key=itemgetter(0)):
        yield rows


def together(shown: Sequence[Shown], names: Mapping[int, str]) -> CoRetrievals:
    """Counts of the pairs shown together, by their ids."""
    seen = CoRetrievals()
    for rows in by_episode(shown):
        seen.update(names[x.seq] for x in rows if x.seq in names)
    return seen


def coupling(shown: Sequence[Shown], names: Mapping[int, str]) -> list[float]:
    """The highest share of its episodes that each memory with enough of them spends with one other."""
    seen = together(shown, names)
    best: dict[Any, float] = {m: 0.0 for m, n in seen.shown.items() if n >= ENOUGH}
    for pair in seen.report(together=1e-9, least=1):
        for memory in (pair.first, pair.second):
            if memory in best:
                share = min(1.0, pair.together / seen.shown[memory])
                best[memory] = max(best[memory], share)
    return list(best.values())


def regression(shown: Sequence[Shown], memories: Mapping[str, Standing]) -> Ridge:
    """The batch regression of all these episodes on memories, numbered in their order; see `ridge`.

    Raises:
        InvalidInputError: If there are more memories than one regression takes.
    """
    number = {s.seq: i for i, s in enumerate(memories.values())}
    first = [next(rows) for rows in by_episode(shown)]
    runs = {x.eid: i for i, x in enumerate(first)}
    contexts = {c: i for i, c in enumerate(dict.fromkeys(x.context for x in first))}
    rows = [x for x in shown if x.seq in number]
    return ridge(
        np.array([runs[x.eid] for x in rows], dtype=np.int64),
        np.array([number[x.seq] for x in rows], dtype=np.int64),
        np.array([x.size for x in rows], dtype=np.float64) / UNIT,
        np.array([x.reward for x in first], dtype=np.float64),
        np.array([contexts[x.context] for x in first], dtype=np.int64),
        memories=len(memories),
    )


_SHOWN = Statement(
    "SELECT x.eid, x.seq, x.size, x.weight, p.reward, COALESCE(x.context, '') FROM exposures x "
    "JOIN memories m ON m.seq = x.seq JOIN episodes p ON p.eid = x.eid "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL AND x.size > 0 "
    f"AND x.{LATEST} ORDER BY x.eid, x.seq"
)
