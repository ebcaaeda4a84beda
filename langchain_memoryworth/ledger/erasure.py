"""Forgetting: text, vector, metadata and every mention of an id go; numbers that identify nobody stay.

The row of a memory becomes a tombstone `erased:<number>`, so that the episodes it was in still add up: what the other
memories got of an outcome does not change because a neighbour is forgotten.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_memoryworth import statuses
from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError
from langchain_memoryworth.estimators.use import checked_use, from_document, shares_of, to_document
from langchain_memoryworth.ledger import (
    learnt,
    lists,
    openings,
    populations,
    priors,
    rates,
    standing,
)
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.records import Namespace, Status, namespace_key


class Erasure:
    """Erasing in the database. What is found and what is erased is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ids(
        self, namespace: Namespace, ids: Sequence[str], actor: str, reason: str, now: float
    ) -> int:
        """Erase memories by id, all versions of their texts; returns how many rows were erased.

        Raises:
            MemoryNotFoundError: If one of them is not there; then nothing is erased.
        """
        wanted = list(dict.fromkeys(ids))
        with self._database.write() as session:
            rows = lists.select_in(session, _BY_ID, wanted, namespace=namespace_key(namespace))
            absent = set(wanted) - {id_ for _, id_ in rows}
            if absent:
                raise MemoryNotFoundError.of(namespace, sorted(absent))
            return self._erase(session, [seq for seq, _ in rows], actor, reason, now)

    def namespace(
        self, namespace: Namespace, below: bool, actor: str, reason: str, now: float
    ) -> int:
        """Erase a namespace, and with `below` those under it."""
        with self._database.write() as session:
            keys = [str(key) for (key,) in session.rows(_NAMESPACES)]
            length = len(namespace)
            fitting = [
                key
                for key in keys
                if tuple(json.loads(key)[: length if below else None]) == namespace
            ]
            rows = lists.select_in(session, _BY_NAMESPACE, fitting)
            return self._erase(session, [seq for (seq,) in rows], actor, reason, now)

    def subject(self, subject: Mapping[str, Any], actor: str, reason: str, now: float) -> int:
        """Erase what has this metadata, in every namespace: each key has the value, or a list that holds it.

        Raises:
            InvalidInputError: If the subject is no metadata, or empty, which everything would be of.
        """
        if not isinstance(subject, Mapping) or not all(isinstance(key, str) for key in subject):
            raise InvalidInputError(
                f"{subject!r} is no metadata; give a mapping whose keys are texts, such as {{'user': 'ada'}}",
                value=subject,
            )
        if not subject:
            raise InvalidInputError("the subject is empty; give metadata such as {'user': 'ada'}")
        with self._database.write() as session:
            seqs = [
                seq
                for seq, document in session.rows(_METADATA)
                if _is_of(json.loads(document), subject)
            ]
            return self._erase(session, seqs, actor, reason, now)

    def _erase(
        self, session: Session, seqs: Sequence[int], actor: str, reason: str, now: float
    ) -> int:
        found = standing.read(session, sorted(seqs))
        self._forget_uses(session, list(found))
        self._forget_rates(session, list(found))
        populations.leave(session, list(found))
        for seq, s in found.items():
            statuses.check("erase", s.status, f"number {seq}")
            session.run(_BURY, {"seq": seq, "id": tombstone(seq), "now": now, "nothing": b""})
            for statement in _SILENCE:
                session.run(statement, {"seq": seq})
            openings.silence(session, seq)
            standing.move(session, s, Status.ERASED, "erase", actor, reason, now)
            standing.changed(session, "erase", seq)
        populations.forget_empty(session)
        rates.forget_openings(session)
        learnt.forget_empty(session)
        priors.forget_empty(session)
        return len(found)

    def _forget_rates(self, session: Session, seqs: Sequence[int]) -> None:
        """Take out of the base rates what only these memories put there, so that no name of theirs is left."""
        eids = sorted({eid for (eid,) in lists.select_in(session, _EPISODES_OF, seqs)})
        gone = set(seqs)
        base = rates.Rates({})
        by_episode: dict[int, list[tuple[int, rates.Place, float]]] = defaultdict(list)
        for eid, seq, reward, *place in lists.select_in(session, _PLACES_IN, eids):
            by_episode[eid].append((seq, rates.Place(*place), reward))
        for eid, given in by_episode.items():
            reward = given[0][2]
            rest = [place for seq, place, _ in given if seq not in gone]
            base.move(eid, ([place for _, place, _ in given], reward), (rest, reward))
        base.save(session, purge=True)

    def _forget_uses(self, session: Session, seqs: Sequence[int]) -> None:
        """Put tombstones into the lists of used ids, so that credit by use still finds the same shares."""
        rows = lists.select_in(session, _EPISODES_OF, seqs)
        eids = sorted({eid for (eid,) in rows})
        present: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for eid, seq, id_ in lists.select_in(session, _IDS_IN, eids):
            present[eid][id_].append(seq)
        gone = set(seqs)
        for number, eid, document in lists.select_in(session, _USES, eids):
            after: dict[str, float] = {}
            for id_, share in shares_of(from_document(document)).items():
                at = present[eid][id_]
                names = [tombstone(s) for s in at if s in gone]
                if not at or set(at) - gone:
                    names.append(id_)
                after |= dict.fromkeys(names, share)
            used = to_document(checked_use(after))
            session.run(_REWRITE_USE, {"number": number, "used": used})


def tombstone(seq: int) -> str:
    """What an erased memory is called where a row of the ledger needs a name.

    Examples:
        >>> tombstone(7)
        'erased:7'
    """
    return f"erased:{seq}"


def _is_of(metadata: Mapping[str, Any], subject: Mapping[str, Any]) -> bool:
    return all(
        key in metadata
        and (metadata[key] == value or (isinstance(metadata[key], list) and value in metadata[key]))
        for key, value in subject.items()
    )


_BY_ID = "SELECT seq, id FROM memories WHERE namespace = :namespace AND id IN :values"
_NAMESPACES = Statement("SELECT DISTINCT namespace FROM memories WHERE namespace <> ''")
_BY_NAMESPACE = "SELECT seq FROM memories WHERE namespace IN :values"
_METADATA = Statement("SELECT seq, metadata FROM memories WHERE namespace <> ''")
_EPISODES_OF = "SELECT DISTINCT eid FROM exposures WHERE seq IN :values"
_IDS_IN = (
    "SELECT x.eid, x.seq, m.id FROM exposures x JOIN memories m ON m.seq = x.seq "
    "WHERE x.eid IN :values"
)
_PLACES_IN = (
    "SELECT x.eid, x.seq, p.reward, m.namespace, COALESCE(x.context, '') FROM exposures x "
    "JOIN memories m ON m.seq = x.seq JOIN episodes p ON p.eid = x.eid "
    "WHERE x.size > 0 AND x.eid IN :values"
)
_USES = "SELECT number, eid, used FROM outcomes WHERE used IS NOT NULL AND eid IN :values"
_REWRITE_USE = Statement("UPDATE outcomes SET used = :used WHERE number = :number")
_BURY = Statement(
    "UPDATE memories SET namespace = '', id = :id, text = '', metadata = '{}', vector = :nothing, "
    "retired_at = COALESCE(retired_at, :now), expires_at = NULL WHERE seq = :seq"
)
_SILENCE = (
    Statement("UPDATE exposures SET context = NULL WHERE seq = :seq"),
    Statement("DELETE FROM strata WHERE seq = :seq"),
    Statement("DELETE FROM regimes WHERE seq = :seq"),
    Statement("DELETE FROM regime_anchors WHERE seq = :seq"),
    Statement("DELETE FROM regime_openings WHERE seq = :seq"),
    # Who decided and why is text of people; what was decided, and on what counts, stays.
    Statement(
        "UPDATE actions SET reason = '', actor = CASE WHEN actor = 'policy' THEN actor ELSE '' END "
        "WHERE seq = :seq"
    ),
)
