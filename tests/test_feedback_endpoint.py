"""The example of an HTTP endpoint for thumbs: validated, idempotent, and without a word about what is stored."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from langchain_memoryworth import MemoryWorthStore
from tests.conftest import StoreMaker

EXAMPLE = Path(__file__).parents[1] / "examples/feedback_endpoint.py"


@pytest.fixture
def store(make_store: StoreMaker, file_url: str) -> MemoryWorthStore:
    store = make_store(file_url)
    store.add_texts(["red"], ids=["a"])
    with store.episode("r1"):
        store.similarity_search("red", k=1)
    return store


@pytest.fixture
def client(store: MemoryWorthStore, file_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MEMORYWORTH_DATABASE", file_url)
    module = runpy.run_path(str(EXAMPLE), run_name="feedback_endpoint")
    yield TestClient(module["app"])
    module["store"].close()


def put(client: TestClient, body: Any, run_id: str = "r1") -> tuple[int, Any]:
    answer = client.put(f"/runs/{run_id}/thumb", json=body)
    return answer.status_code, answer.json()


def test_a_thumb_counts_once_and_can_be_changed(client: TestClient, store: MemoryWorthStore):
    up = {"good": True, "voter": "ada"}
    assert put(client, up) == (200, {"new": True})
    assert put(client, up) == (200, {"new": False})
    assert (store.worth("a"), store.evidence("a").retrievals) == (1.0, 1)
    assert put(client, {**up, "good": False}) == (200, {"new": True})
    assert (store.worth("a"), store.evidence("a").retrievals) == (0.0, 1)
    assert put(client, {"good": True, "voter": "bob"}) == (200, {"new": True})
    assert store.evidence("a").retrievals == 1  # two voters of one run are one outcome


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"good": "INCORRECT", "voter": "ada"},
        {"good": 1, "voter": "ada"},
        {"good": True, "voter": ""},
        {"good": True, "voter": "a" * 201},
        {"good": True, "voter": "ada", "source": "evaluator"},
    ],
)
def test_what_is_no_thumb_is_refused(client: TestClient, store: MemoryWorthStore, body: Any):
    assert put(client, body)[0] == 422
    assert store.run("r1").reward is None


def test_an_unknown_run_says_nothing_of_others(client: TestClient):
    assert put(client, {"good": True, "voter": "ada"}, "r2") == (404, {"detail": "no such run"})
