"""A store of numbered notes, and runs in which some of them were shown and that went one way or the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore, Policy
from langchain_memoryworth.records import EpisodeKey


def filled(
    make_store: Callable[..., MemoryWorthStore],
    count: int,
    policy: Policy | None = None,
    url: str = "sqlite://",
) -> MemoryWorthStore:
    """A store with the memories m0, m1, ...; without a policy it has the default one."""
    store = make_store(url, policy=policy)
    store.add_texts([f"note {i}" for i in range(count)], ids=[f"m{i}" for i in range(count)])
    return store


def run(store: MemoryWorthStore, name: str, ids: Sequence[str], outcome: float) -> None:
    """One run with these memories in front of the model, and its outcome."""
    store.governor.journal.expose_documents(EpisodeKey(name), [Document("", id=i) for i in ids])
    store.record_outcome(name, outcome)


def suppressed(store: MemoryWorthStore) -> set[str]:
    """Ids of what is held back."""
    return {m.id for m in store.suppressed()}
