"""The half of the ledger that holds texts: add, retire, revive and read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth import statuses
from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError
from langchain_memoryworth.estimators.evidence import Evidence
from langchain_memoryworth.ledger import lists, populations, priors, standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.policy import Policy, Quarantine
from langchain_memoryworth.records import Memory, Namespace, Status, namespace_key

Copy = Callable[[Session, Sequence[tuple[int, NDArray[np.float32]]]], None]
"""Keeps vectors that are being stored in another place too, in the same transaction."""


class _Version(NamedTuple):
    seq: int
    id: str
    text: str
    retired_at: float | None


class Text(NamedTuple):
    """What a hit needs of a memory."""

    id: str
    text: str
    metadata: Mapping[str, Any]


class NewMemory(NamedTuple):
    """A memory to be stored; the vector is float32 of shape (d,) and unit length.

    Attributes:
        expires_at: Unix time after which it is not returned any more.
    """

    id: str
    text: str
    metadata: Mapping[str, Any]
    vector: NDArray[np.float32]
    expires_at: float | None = None


class Version(NamedTuple):
    """One version of a memory, and whether it is held back.

    Attributes:
        external: Its text and vector are elsewhere; `text` is a digest.
        explored: It may still be shown on probation.
        pinned: It is never held out.
        hold_out: Probability with which it is left out of prompts, None if it is in no trial of its own.
        parting: How many draws part it from its habitual companions, None if it has none.
    """

    seq: int
    id: str
    text: str
    live: bool
    external: bool
    held: bool
    explored: bool
    pinned: bool
    hold_out: float | None
    parting: int | None


def document(metadata: Mapping[str, Any], memory_id: str) -> str:
    """Metadata as JSON.

    Raises:
        InvalidInputError: If a value is no JSON.
    """
    try:
        return json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the metadata of memory {memory_id!r} cannot be stored as JSON ({error}); give strings, "
            "numbers, bools, lists and dicts",
            value=metadata,
        ) from error


class Memories:
    """Texts, metadata and vectors in the database."""

    def __init__(self, database: Database, mirror: Copy | None = None) -> None:
        self._database = database
        self._mirror = mirror

    # -- writing ----------------------------------------------------------------------------------------------

    def add(
        self,
        session: Session,
        namespace: Namespace,
        new: Sequence[NewMemory],
        now: float,
        quarantine: Quarantine | None = None,
    ) -> None:
        """Insert or update; evidence stays with the text.

        The same text under the same id keeps its evidence, another text starts fresh, and a text that comes back
        finds the evidence that it had. A new text of an untrusted source starts in quarantine.
        """
        last = {m.id: m for m in new}  # an id given twice means its last text
        documents = {m.id: document(m.metadata, m.id) for m in last.values()}
        ns = namespace_key(namespace)
        versions = self._versions(session, ns, list(last))
        insert: list[NewMemory] = []
        revive: list[tuple[int, NewMemory]] = []
        update: list[tuple[int, NewMemory]] = []
        retire: list[int] = []
        for m in last.values():
            known = versions.get(m.id, [])
            live = next((v for v in known if v.retired_at is None), None)
            same = next((v for v in known if v.text == m.text), None)
            if live is not None and live is not same:
                retire.append(live.seq)
            if same is None:
                insert.append(m)
            else:
                (update if same is live else revive).append((same.seq, m))
        self._retire(session, retire, now)
        self._rewrite(session, revive + update, documents, now)
        populations.came(session, [seq for seq, _ in revive])
        first = self._insert(session, ns, insert, documents, now)
        for seq, m in enumerate(insert, first):
            if quarantine is not None and not quarantine.trusts(m.metadata):
                start = standing.Standing(seq, Status.ACTIVE, 0, Evidence(), Evidence())
                reason = f"{quarantine.key} {m.metadata.get(quarantine.key)!r} is not trusted"
                kind = statuses.automatic(Status.ACTIVE, Status.QUARANTINED)
                standing.move(session, start, Status.QUARANTINED, kind, "policy", reason, now)

    def retire(self, namespace: Namespace, ids: Sequence[str] | None, now: float) -> int:
        """Take memories out of service; their evidence is kept for a return. None means all."""
        with self._database.write() as session:
            if ids is None:
                rows = session.rows(_LIVE_SEQS, namespace=namespace_key(namespace))
            else:
                rows = lists.select_in(
                    session,
                    _LIVE_BY_ID,
                    list(dict.fromkeys(ids)),
                    namespace=namespace_key(namespace),
                )
            self._retire(session, [r[0] for r in rows], now)
        return len(rows)

    def _versions(self, session: Session, ns: str, ids: Sequence[str]) -> dict[str, list[_Version]]:
        found: dict[str, list[_Version]] = {}
        for row in lists.select_in(session, _VERSIONS, ids, namespace=ns):
            version = _Version(*row)
            found.setdefault(version.id, []).append(version)
        return found

    def _retire(self, session: Session, seqs: Sequence[int], now: float) -> None:
        if seqs:
            populations.leave(session, seqs)
            session.run_many(_RETIRE, [{"seq": s, "now": now} for s in seqs])
            standing.changed_many(session, seqs)

    def _rewrite(
        self,
        session: Session,
        rows: Sequence[tuple[int, NewMemory]],
        documents: Mapping[str, str],
        now: float,
    ) -> None:
        if rows:
            session.run_many(
                _REWRITE,
                [
                    {
                        "seq": seq,
                        "metadata": documents[m.id],
                        "vector": m.vector.tobytes(),
                        "now": now,
                        "expires_at": m.expires_at,
                    }
                    for seq, m in rows
                ],
            )
            if self._mirror is not None:
                self._mirror(session, [(seq, m.vector) for seq, m in rows])
            standing.changed_many(session, [seq for seq, _ in rows])

    def _insert(
        self,
        session: Session,
        ns: str,
        new: Sequence[NewMemory],
        documents: Mapping[str, str],
        now: float,
    ) -> int:
        """Store new texts; returns the number of the first."""
        first = session.number(_LAST_SEQ) + 1
        if not new:
            return first
        session.run_many(
            _INSERT,
            [
                {
                    "seq": seq,
                    "namespace": ns,
                    "id": m.id,
                    "text": m.text,
                    "metadata": documents[m.id],
                    "vector": m.vector.tobytes(),
                    "now": now,
                    "expires_at": m.expires_at,
                }
                for seq, m in enumerate(new, first)
            ],
        )
        seqs = range(first, first + len(new))
        session.run_each(_INSERT_EVIDENCE, [(seq,) for seq in seqs])
        populations.came(session, seqs)
        if self._mirror is not None:
            self._mirror(session, [(seq, m.vector) for seq, m in zip(seqs, new, strict=True)])
        standing.changed(session, "memories", seqs[0], seqs[-1])
        return first

    # -- reading ----------------------------------------------------------------------------------------------

    def texts(self, session: Session, seqs: Sequence[int]) -> dict[int, Text]:
        """Texts by number, retired ones too, but none that was erased."""
        rows = lists.select_in(session, _TEXTS, seqs)
        return {seq: Text(id_, text, _decode(doc)[0]) for seq, id_, text, doc in rows}

    def get(
        self, namespace: Namespace, ids: Sequence[str], policy: Policy, now: float
    ) -> dict[str, Memory]:
        """Live memories by id; unknown ids and those past their time are left out."""
        found = self._read(namespace, policy, now, _GET, list(dict.fromkeys(ids)))
        return {memory.id: memory for memory in found.values()}

    def one(self, namespace: Namespace, memory_id: str, policy: Policy, now: float) -> Memory:
        """One live memory.

        Raises:
            MemoryNotFoundError: If there is none by that id.
        """
        found = self.get(namespace, [memory_id], policy, now)
        if not found:
            raise MemoryNotFoundError.of(namespace, [memory_id])
        return found[memory_id]

    def all(
        self,
        namespace: Namespace,
        wanted: frozenset[Status] | None,
        policy: Policy,
        now: float,
    ) -> list[Memory]:
        """Live memories of some statuses, or of any, oldest first."""
        if wanted is None:
            return list(self._read(namespace, policy, now, _ALL).values())
        # The index of those that are not served leads to them; without it all would be looked at.
        sql = _OF_STATUS if wanted & statuses.SERVED else _HELD
        found = self._read(namespace, policy, now, sql, [status.value for status in wanted])
        return [found[seq] for seq in sorted(found)]

    def of_note(self, namespace: Namespace, policy: Policy, now: float) -> dict[int, Memory]:
        """Live memories, by number, of which more is known than their text: that have evidence, or are not simply active."""
        return self._read(namespace, policy, now, _OF_NOTE)

    def numbered(
        self, namespace: Namespace, seqs: Sequence[int], policy: Policy, now: float
    ) -> dict[int, Memory]:
        """Live memories by their numbers; others are left out."""
        return self._read(namespace, policy, now, _NUMBERED, seqs)

    def _read(
        self,
        namespace: Namespace,
        policy: Policy,
        now: float,
        sql: Statement | str,
        values: Sequence[Any] = (),
    ) -> dict[int, Memory]:
        """By number; a text is a query with a list of values."""
        given: dict[str, Any] = {
            "namespace": namespace_key(namespace),
            "now": now,
            "born": born_after(policy, namespace, now),
        }
        with self._database.read() as session:
            if isinstance(sql, Statement):
                rows = session.rows(sql, **given)
            else:
                rows = lists.select_in(session, sql, values, **given)
            judge = priors.informed(session, policy, namespace_key(namespace))
        return {r[4]: _memory(r, namespace, judge) for r in rows}

    def locate(self, session: Session, ids: Sequence[str], prefer: Namespace) -> dict[str, int]:
        """Numbers of live memories by id alone, as documents of other retrievers carry them.

        An id that stands in several namespaces is taken from the preferred one, or left out as ambiguous.
        """
        found: dict[str, dict[str, int]] = {}
        for id_, ns, seq in lists.select_in(session, _LOCATE, list(dict.fromkeys(ids))):
            found.setdefault(id_, {})[ns] = seq
        preferred = namespace_key(prefer)
        return {
            id_: places.get(preferred, next(iter(places.values())))
            for id_, places in found.items()
            if preferred in places or len(places) == 1
        }

    # -- memories that live elsewhere -------------------------------------------------------------------------

    def versions(
        self, session: Session, namespace: Namespace, ids: Sequence[str]
    ) -> dict[str, list[Version]]:
        """All versions by id, those that are retired too; ids without any are left out."""
        found: dict[str, list[Version]] = {}
        rows = lists.select_in(
            session, _STANDS, list(dict.fromkeys(ids)), namespace=namespace_key(namespace)
        )
        for seq, id_, text, retired_at, size, status, hold_out, parting in rows:
            stands = Status(status)
            version = Version(
                seq,
                id_,
                text,
                live=retired_at is None,
                external=not size,
                held=stands not in statuses.SERVED,
                explored=stands in statuses.EXPLORED,
                pinned=stands is Status.PINNED,
                hold_out=hold_out,
                parting=parting,
            )
            found.setdefault(id_, []).append(version)
        return found

    def place(
        self, session: Session, namespace: Namespace, digests: Mapping[str, str], now: float
    ) -> dict[str, int]:
        """Numbers of external memories by id, written down where they are not; the rest is not touched.

        An id that is a memory of this store stands for that one, whatever its digest.
        """
        found = self.placed(session, namespace, digests)
        new = [
            NewMemory(i, digest, {}, np.empty(0, np.float32))
            for i, digest in digests.items()
            if i not in found
        ]
        if new:
            self.add(session, namespace, new, now)
            found = self.placed(session, namespace, digests)
        return found

    def placed(
        self, session: Session, namespace: Namespace, digests: Mapping[str, str]
    ) -> dict[str, int]:
        """Those of `place` that are written down already."""
        return {
            v.id: v.seq
            for versions in self.versions(session, namespace, list(digests)).values()
            for v in versions
            if v.live and (v.text == digests[v.id] or not v.external)
        }

    def held_back(self, session: Session, namespace: Namespace, prefix: str) -> int:
        """How many memories are held back whose ids start with a text."""
        return session.number(
            _HELD_BACK, namespace=namespace_key(namespace), prefix=prefix, length=len(prefix)
        )


def born_after(policy: Policy, namespace: Namespace, now: float) -> float:
    """Unix time before which a memory of a namespace must have been stored to be past its time."""
    life = policy.life(namespace)
    return float("-inf") if life is None else now - life.total_seconds()


def _memory(row: Any, namespace: Namespace, policy: Policy) -> Memory:
    standing_ = standing.standing_of(row[4:])
    return Memory(
        id=row[0],
        text=row[1],
        metadata=json.loads(row[2]),
        namespace=namespace,
        added_at=datetime.fromtimestamp(row[3], UTC),
        evidence=standing_.evidence,
        verdict=policy.verdict(standing_.evidence),
        status=standing_.status,
    )


_decode = json.JSONDecoder().raw_decode  # without the checks of `loads`: it is our own JSON
_VERSIONS = (
    "SELECT seq, id, text, retired_at FROM memories WHERE namespace = :namespace AND id IN :values"
)
_STANDS = (
    "SELECT m.seq, m.id, m.text, m.retired_at, LENGTH(m.vector), e.status, e.hold_out, "
    "e.parting FROM memories m "
    "JOIN evidence e ON e.seq = m.seq WHERE m.namespace = :namespace AND m.id IN :values"
)
# From the few that are held back to their memories; SQLite keeps the order of a CROSS JOIN.
_HELD_BACK = Statement(
    "SELECT COUNT(*) FROM evidence e CROSS JOIN memories m "
    "WHERE e.status <> 'active' AND e.status <> 'pinned' "
    "AND m.seq = e.seq AND m.namespace = :namespace "
    "AND SUBSTR(m.id, 1, :length) = :prefix"
)
_LIVE_BY_ID = (
    "SELECT seq FROM memories WHERE namespace = :namespace AND retired_at IS NULL AND id IN :values"
)
_LIVE_SEQS = Statement(
    "SELECT seq FROM memories WHERE namespace = :namespace AND retired_at IS NULL"
)
_LOCATE = "SELECT id, namespace, seq FROM memories WHERE retired_at IS NULL AND id IN :values"
_RETIRE = Statement("UPDATE memories SET retired_at = :now WHERE seq = :seq")
_REWRITE = Statement(
    "UPDATE memories SET metadata = :metadata, vector = :vector, retired_at = NULL, "
    "written_at = :now, expires_at = :expires_at WHERE seq = :seq"
)
_LAST_SEQ = Statement("SELECT MAX(seq) FROM memories")
_INSERT = Statement(
    "INSERT INTO memories "
    "(seq, namespace, id, text, metadata, vector, added_at, written_at, expires_at) "
    "VALUES (:seq, :namespace, :id, :text, :metadata, :vector, :now, :now, :expires_at)"
)
_INSERT_EVIDENCE = Statement("INSERT INTO evidence (seq) VALUES (:seq)")
_TEXTS = "SELECT seq, id, text, metadata FROM memories WHERE namespace <> '' AND seq IN :values"
_WHOLE = f"SELECT m.id, m.text, m.metadata, m.added_at, {standing.STANDING_COLUMNS} "
_VALID = (
    "m.namespace = :namespace AND m.retired_at IS NULL "
    "AND (m.expires_at IS NULL OR m.expires_at > :now) AND m.written_at > :born"
)
_BY_MEMORY = f"{_WHOLE}FROM memories m JOIN evidence e ON e.seq = m.seq WHERE {_VALID}"
_BY_EVIDENCE = (
    f"{_WHOLE}FROM evidence e CROSS JOIN memories m WHERE m.seq = e.seq AND {_VALID} AND "
)
_GET = f"{_BY_MEMORY} AND m.id IN :values"
_NUMBERED = f"{_BY_MEMORY} AND m.seq IN :values"
_OF_STATUS = f"{_BY_MEMORY} AND e.status IN :values"
_ALL = Statement(f"{_BY_MEMORY} ORDER BY m.seq")
_HELD = f"{_BY_EVIDENCE}e.status <> 'active' AND e.status <> 'pinned' AND e.status IN :values"
_OF_NOTE = Statement(f"{_BY_EVIDENCE}(e.retrievals > 0 OR e.status <> 'active')")
