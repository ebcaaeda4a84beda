"""Contexts that nobody named, learnt from the ledger: memories retrieved together tell what kind of task asks.

Fitted when somebody asks for it, and kept in the database, so that every process tells the same context from the same
retrieval, and a fit after it hands the names on. What is kept are numbers of memories, no text and no id.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.contexts import Contexts, fit
from langchain_memoryworth.ledger.database import Database, Session, Statement
from langchain_memoryworth.records import LearntContext, Namespace, namespace_key

PREFIX = "learnt-"
"""What the names of learnt contexts begin with."""

_KEY = "contexts:"


class Learnt:
    """The learnt contexts of all namespaces of one database.

    Args:
        database: Where the ledger is, and what was learnt from it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: tuple[int, Mapping[str, Contexts]] = (0, {})

    def of(self, session: Session, namespace: Namespace, seqs: Sequence[int]) -> str:
        """The context of a retrieval by the numbers of its memories; empty if nothing was learnt."""
        if not seqs:
            return ""
        times, models = self._known
        if times != (now := session.number(_TIMES)):  # in this process or another
            rows = session.rows(_MODELS)
            models = {key: _model(document) for key, document in rows}
            self._known = now, models
        model = models.get(_KEY + namespace_key(namespace))
        return "" if model is None else f"{PREFIX}{model.of(seqs)}"

    def learn(self, namespace: Namespace, episodes: int) -> tuple[LearntContext, ...]:
        """Fit contexts to the latest episodes, and keep them for what is retrieved from now on.

        Raises:
            InvalidInputError: If the window is no whole number of at least 1, or nothing was retrieved in it.
        """
        if not isinstance(episodes, int) or episodes < 1:
            raise InvalidInputError(
                f"episodes={episodes!r}; give a whole number of at least 1", value=episodes
            )
        space = namespace_key(namespace)
        with self._database.write() as session:
            sets = _sets(session, space, episodes)
            if not sets:
                raise InvalidInputError(
                    "no episode has retrieved anything here yet; learn contexts when some have",
                    value=namespace,
                )
            row = session.row(_MODEL, key=_KEY + space)
            model = fit(sets, previous=None if row is None else _model(row[0]))
            if row is None:
                model = _renumbered(model, _first_free(session, space))
            session.run(_KEEP, {"key": _KEY + space, "value": _document(model)})
            session.run(_ONCE_MORE)
        return _named(model)

    def drop(self, namespace: Namespace) -> None:
        """Tell no context any more; what was counted by context stays."""
        with self._database.write() as session:
            session.run(_DROP, {"key": _KEY + namespace_key(namespace)})
            session.run(_ONCE_MORE)


def forget_empty(session: Session) -> None:
    """Take out what was learnt of namespaces without a memory, so that not even their name is left."""
    session.run(_DROP_EMPTY)


def _sets(session: Session, space: str, episodes: int) -> list[list[int]]:
    sets: dict[int, list[int]] = defaultdict(list)
    for eid, seq in session.rows(_RETRIEVED, namespace=space, episodes=episodes):
        sets[eid].append(seq)
    return list(sets.values())


def _first_free(session: Session, space: str) -> int:
    """A number above all that the ledger knows: from an import, or learnt before and dropped."""
    names = [str(c) for (c,) in session.rows(_NAMES, namespace=space)]
    numbers = [n.removeprefix(PREFIX) for n in names if n.startswith(PREFIX)]
    return max((int(n) + 1 for n in numbers if n.isdecimal()), default=0)


def _renumbered(model: Contexts, first: int) -> Contexts:
    return Contexts(
        model.community, model.profile, model.share, model.ids + first, model.next_id + first
    )


def _named(model: Contexts) -> tuple[LearntContext, ...]:
    order = np.argsort(-model.share, kind="stable")
    return tuple(LearntContext(f"{PREFIX}{model.ids[i]}", float(model.share[i])) for i in order)


def _document(model: Contexts) -> str:
    return json.dumps(
        {
            "community": [[seq, n] for seq, n in model.community.items()],
            "profile": model.profile.tolist(),
            "share": model.share.tolist(),
            "ids": model.ids.tolist(),
            "next_id": model.next_id,
        }
    )


def _model(document: str) -> Contexts:
    kept: dict[str, Any] = json.loads(document)
    return Contexts(
        dict(kept["community"]),
        np.array(kept["profile"]),
        np.array(kept["share"]),
        np.array(kept["ids"], dtype=np.int64),
        kept["next_id"],
    )


_TIMES = Statement("SELECT value FROM meta WHERE key = 'learnt'")
_ONCE_MORE = Statement(
    "INSERT INTO meta (key, value) VALUES ('learnt', '1') ON CONFLICT (key) "
    "DO UPDATE SET value = CAST(CAST(meta.value AS INTEGER) + 1 AS TEXT)"
)
_MODELS = Statement(f"SELECT key, value FROM meta WHERE key LIKE '{_KEY}%'")
_MODEL = Statement("SELECT value FROM meta WHERE key = :key")
_KEEP = Statement(
    "INSERT INTO meta (key, value) VALUES (:key, :value) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
_DROP = Statement("DELETE FROM meta WHERE key = :key")
_DROP_EMPTY = Statement(
    f"DELETE FROM meta WHERE key LIKE '{_KEY}%' AND NOT EXISTS "
    f"(SELECT 1 FROM memories WHERE namespace = SUBSTR(meta.key, {len(_KEY) + 1}))"
)
_RETRIEVED = Statement(
    "SELECT x.eid, x.seq FROM exposures x JOIN memories m ON m.seq = x.seq "
    "WHERE m.namespace = :namespace AND x.arm <> 'held_back' "
    "AND x.eid > (SELECT COALESCE(MAX(eid), 0) FROM episodes) - :episodes ORDER BY x.eid, x.seq"
)
_NAMES = Statement(
    # What was rolled up is in the rates only, and what has no outcome yet in the exposures only.
    "SELECT context FROM rates WHERE namespace = :namespace UNION "
    "SELECT x.context FROM exposures x JOIN memories m ON m.seq = x.seq "
    "WHERE m.namespace = :namespace AND x.context IS NOT NULL"
)
