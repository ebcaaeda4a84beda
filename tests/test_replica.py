"""Loading an index: in parts, and the log says how far it has come."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from langchain_memoryworth import MemoryWorthStore

StoreMaker = Callable[..., MemoryWorthStore]


def test_the_log_says_how_far_loading_has_come(
    make_store: StoreMaker,
    url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("langchain_memoryworth.replica.TELL_EVERY", 100)
    monkeypatch.setattr("langchain_memoryworth.memories._PART", 64)
    store = make_store(url)
    store.add_texts([f"text {i}" for i in range(250)])
    store.add_texts(["elsewhere"], namespace="small")
    with caplog.at_level(logging.INFO, logger="langchain_memoryworth"):
        assert len(store.similarity_search("text 7", k=300)) == 250
        store.similarity_search("text 8")
        store.similarity_search("elsewhere", namespace="small")
    assert [r.message for r in caplog.records] == [
        "[]: 128 of 250 memories loaded",
        "[]: 250 of 250 memories loaded",
    ]
