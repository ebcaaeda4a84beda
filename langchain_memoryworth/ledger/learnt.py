"""Contexts that nobody named: memories retrieved together tell what kind of task asks, or the topic of the query does.

Fitted when somebody asks for it, and kept in the database, so that every process tells the same context from the same
retrieval, and a fit after it hands the names on. What is kept are numbers of memories, or centres of query vectors; no text
and no id, and no query.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators import clusters
from langchain_memoryworth.estimators.clusters import Clusters, Vectors
from langchain_memoryworth.estimators.contexts import Contexts, fit
from langchain_memoryworth.ledger import standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.records import LearntContext, Namespace, namespace_key

PREFIX = "learnt-"
"""What the names of learnt contexts begin with."""

THREADS = 1_024
"""Conversations whose queries a process adds up for their intent; the one that asked longest ago goes first."""

_KEY = "contexts:"


class Asked(NamedTuple):
    """What was asked.

    Attributes:
        vector: The query's, shape (d,).
        thread_id: The conversation that it belongs to, if that is known.
    """

    vector: NDArray[np.float32]
    thread_id: str | None


class Topics(NamedTuple):
    """Clusters of queries.

    Attributes:
        sessions: Whether all queries of a conversation so far tell its context, and not the last one alone.
    """

    clusters: Clusters
    sessions: bool


class _Intents:
    """What conversations have asked about until now, in memory alone: the sum of their query vectors."""

    def __init__(self) -> None:
        self._sums: dict[tuple[Namespace, str], tuple[Vectors, Vectors]] = {}

    def of(self, namespace: Namespace, asked: Asked) -> Vectors:
        """The direction of all that the conversation has asked, this query among it, shape (1, d)."""
        vector = np.atleast_2d(np.asarray(asked.vector, dtype=np.float64))
        if asked.thread_id is None:
            return vector
        key = (namespace, asked.thread_id)
        last, total = self._sums.pop(key, (vector * 0, vector * 0))
        if total.shape != vector.shape:
            total = vector * 0
        if not np.array_equal(last, vector):  # a retry asks nothing new
            total = total + vector
        self._sums[key] = vector, total
        for old in list(self._sums)[:-THREADS]:
            self._sums.pop(old, None)
        return total if total.any() else vector


class Learnt:
    """The learnt contexts of all namespaces of one database.

    Args:
        database: Where the ledger is, and what was learnt from it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: tuple[int, Mapping[str, Contexts | Topics]] = (0, {})
        self._intents = _Intents()

    def of(
        self,
        session: Session,
        namespace: Namespace,
        seqs: Sequence[int],
        asked: Asked | None = None,
    ) -> str:
        """The context of a retrieval by the numbers of its memories, or by its query; empty if nothing was learnt.

        Where queries tell it, a retrieval without one that is known has none.
        """
        if not seqs:
            return ""
        times, models = self._known
        if times != (now := session.number(_TIMES)):  # in this process or another
            rows = session.rows(_MODELS)
            models = {key: _model(document) for key, document in rows}
            self._known = now, models
        model = models.get(_KEY + namespace_key(namespace))
        if isinstance(model, Contexts):
            return f"{PREFIX}{model.of(seqs)}"
        if model is None or asked is None or len(asked.vector) != model.clusters.centres.shape[1]:
            return ""  # also of another embedding model than the queries that it was learnt from
        vector = self._intents.of(namespace, asked) if model.sessions else asked.vector
        return f"{PREFIX}{model.clusters.of(vector)[0]}"

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
            before = self._before(session, space)
            model = fit(sets, previous=before if isinstance(before, Contexts) else None)
            if not isinstance(before, Contexts):
                first = _first_free(session, space, before)
                model = replace(model, ids=model.ids + first, next_id=model.next_id + first)
            self._keep(session, space, _document(model))
        return _named(model.ids, model.share)

    def learn_topics(
        self, namespace: Namespace, queries: ArrayLike, count: int, *, sessions: bool
    ) -> tuple[LearntContext, ...]:
        """Fit clusters to queries, and keep their centres for what is retrieved from now on.

        Args:
            namespace: Whose retrievals they are for.
            queries: Unit vectors, shape (q, d).
            count: Clusters wanted, at least 1.
            sessions: See `Topics`.

        Raises:
            InvalidInputError: If there is no query, one is not finite or 0, or the count is below 1.
        """
        space = namespace_key(namespace)
        with self._database.write() as session:
            before = self._before(session, space)
            old = before.clusters if isinstance(before, Topics) else None
            if old is not None and old.centres.shape[1] != np.shape(queries)[-1]:
                old = None  # of another embedding model
            found = clusters.fit(queries, count, previous=old)
            if old is None:
                first = _first_free(session, space, before)
                found = replace(found, ids=found.ids + first, next_id=found.next_id + first)
            self._keep(session, space, _document_of(Topics(found, sessions)))
        share = (found.of(queries)[:, None] == found.ids).mean(axis=0)
        return _named(found.ids, share)

    def _before(self, session: Session, space: str) -> Contexts | Topics | None:
        row = session.row(_MODEL, key=_KEY + space)
        return None if row is None else _model(row[0])

    def _keep(self, session: Session, space: str, document: str) -> None:
        session.run(_KEEP, {"key": _KEY + space, "value": document})
        session.run(_ONCE_MORE)

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


def _first_free(session: Session, space: str, before: Contexts | Topics | None) -> int:
    """A number above all that the ledger knows, from an import or learnt before and dropped, and those handed out last."""
    last = before.clusters if isinstance(before, Topics) else before
    names = [str(c) for (c,) in session.rows(_NAMES, namespace=space)]
    numbers = [n.removeprefix(PREFIX) for n in names if n.startswith(PREFIX)]
    known = max((int(n) + 1 for n in numbers if n.isdecimal()), default=0)
    return max(known, 0 if last is None else last.next_id)


def _named(ids: NDArray[np.int64], share: Vectors) -> tuple[LearntContext, ...]:
    order = np.argsort(-share, kind="stable")
    return tuple(LearntContext(f"{PREFIX}{ids[i]}", float(share[i])) for i in order)


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


def _document_of(topics: Topics) -> str:
    found = topics.clusters
    centres = found.centres.astype("<f4")
    return json.dumps(
        {
            "centres": base64.b64encode(centres.tobytes()).decode("ascii"),
            "dimension": centres.shape[1],
            "ids": found.ids.tolist(),
            "next_id": found.next_id,
            "sessions": topics.sessions,
        }
    )


def _model(document: str) -> Contexts | Topics:
    kept: dict[str, Any] = json.loads(document)
    if "centres" in kept:
        flat = np.frombuffer(base64.b64decode(kept["centres"]), "<f4").astype(np.float64)
        centres, ids = flat.reshape(-1, kept["dimension"]), np.array(kept["ids"], dtype=np.int64)
        return Topics(Clusters(centres, ids, kept["next_id"]), kept["sessions"])
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
    f"AND x.{standing.LATEST} ORDER BY x.eid, x.seq"
)
_NAMES = Statement(
    # What was rolled up is in the rates only, and what has no outcome yet in the exposures only.
    "SELECT context FROM rates WHERE namespace = :namespace UNION "
    "SELECT x.context FROM exposures x JOIN memories m ON m.seq = x.seq "
    "WHERE m.namespace = :namespace AND x.context IS NOT NULL"
)
