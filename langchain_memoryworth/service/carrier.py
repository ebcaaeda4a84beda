"""The use cases of moving: export everything, import it elsewhere, and turn logs that are there already into evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from langchain_memoryworth.errors import UnknownRunError
from langchain_memoryworth.estimators.credit import reward_of
from langchain_memoryworth.ledger.archive import Archive
from langchain_memoryworth.ledger.parcel import Header
from langchain_memoryworth.ledger.recording import Exposure, Said
from langchain_memoryworth.ledger.session import Session
from langchain_memoryworth.ledger.transfer import read, write
from langchain_memoryworth.progress import Progress, unwatched, watched
from langchain_memoryworth.records import (
    EpisodeKey,
    Imported,
    Namespace,
    Outcome,
    OutcomeKey,
)
from langchain_memoryworth.service.collection import content_id
from langchain_memoryworth.service.logs import LogEntry, Retrieved
from langchain_memoryworth.service.open_store import OpenStore


class Carrier:
    """What a governor offers for moving; ask for it with `governor.carrier`.

    Args:
        store: What is moved.
    """

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._database = store.database
        self._settings = store.settings
        self._archive = Archive(store.database, store.mirror.write)
        self._memories = store.memories
        self._ledger = store.ledger

    def export(self, path: Path, progress: Progress = unwatched) -> int:
        """Write everything into a file; returns the number of lines."""
        return write(path, self._archive.pack(), progress)

    def take(self, path: Path, *, dry_run: bool, progress: Progress = unwatched) -> Imported:
        """Take over an export.

        Raises:
            ImportFileError: If it is damaged or hostile; nothing is written then.
            EmbeddingMismatchError: If its vectors are of another model than those here.
            InvalidOutcomeError: If an outcome in it is graded, and the policy has a `flip_rate`.
        """
        parcel = read(path, progress)
        transaction = self._database.read if dry_run else self._database.write
        with transaction() as session:
            self._check_model(session, parcel.header, dry_run=dry_run)
            policy = self._settings.policy(session)
            policy.check_labels(e.reward for e in parcel.episodes)
            return self._archive.unpack(
                session, parcel, policy, self._store.clock(), dry_run=dry_run, progress=progress
            )

    def _check_model(self, session: Session, header: Header, *, dry_run: bool) -> None:
        if header.embedding is not None and header.dimension is not None:
            self._settings.check_embedding(
                session, header.embedding, header.dimension, keep=not dry_run
            )

    def take_log(
        self,
        namespace: Namespace,
        entries: Sequence[LogEntry],
        *,
        dry_run: bool,
        progress: Progress = unwatched,
    ) -> Imported:
        """Write down runs of a log, as if they had happened here.

        A run that is known is left as it is. Memories that are not in the store are left out, and named. Runs are written one by
        one: after a crash the same log goes on where it was.

        Raises:
            InvalidOutcomeError: If a reward is none; nothing is written then.
        """
        entries = [
            e if e.reward is None else replace(e, reward=reward_of(e.reward)) for e in entries
        ]
        self._store.policy.check_labels(e.reward for e in entries)
        seqs = self._locate(namespace, entries)
        memories: set[int] = set()
        written, known, outcomes, skipped = 0, 0, 0, []
        for entry in watched(entries, "writing runs", progress):
            found = {s: i for i, r in enumerate(entry.retrieved) if (s := seqs.get(r)) is not None}
            absent = [r.id or "a text" for r in entry.retrieved if r not in seqs]
            if absent:
                skipped.append(f"run {entry.run_id}: {', '.join(absent)} not in the store")
            if self._is_known(entry.run_id):
                known += 1
                continue
            if not found:
                continue
            written += 1
            outcomes += entry.reward is not None
            memories |= set(found)
            if not dry_run:
                self._write(entry, found)
        return Imported(0, len(memories), written, known, outcomes, dry_run, tuple(skipped))

    def _is_known(self, run_id: str) -> bool:
        try:
            self._ledger.episode(run_id)
        except UnknownRunError:
            return False
        return True

    def _locate(self, namespace: Namespace, entries: Sequence[LogEntry]) -> dict[Retrieved, int]:
        asked = {r for e in entries for r in e.retrieved}
        by_text = {r: content_id(namespace, r.text) for r in asked if r.text is not None}
        ids = sorted({r.id for r in asked if r.id is not None} | set(by_text.values()))
        with self._database.read() as session:
            versions = self._memories.versions(session, namespace, ids)
        live = {id_: v.seq for id_, all_ in versions.items() for v in all_ if v.live}
        found = {}
        for r in asked:
            seq = live.get(r.id or "") or live.get(by_text.get(r, ""))
            if seq is not None:
                found[r] = seq
        return found

    def _write(self, entry: LogEntry, found: dict[int, int]) -> None:
        now = self._store.clock() if entry.at is None else entry.at.timestamp()
        exposures = [Exposure(seq, rank, None) for seq, rank in found.items()]
        with self._database.write() as session:
            policy = self._settings.policy(session)
            self._ledger.expose(session, EpisodeKey(entry.run_id), exposures, policy, now)
            ids = {t.id for t in self._memories.texts(session, list(found)).values()}
        if entry.reward is None:
            return
        used = None if entry.used is None else tuple(sorted(set(entry.used) & ids))
        key = OutcomeKey(entry.source, "", "")
        said = Said(entry.run_id, key, Outcome(entry.reward, used))
        self._ledger.record(said, policy=self._settings.policy, now=now)
