"""docs/reliability.md is made of what the tests counted, and names tests that exist."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.reliability import CASES, PAGE, nodes, page
from tests.tally import Tally, read, tally


def counted(test: str, engine: str, lost: int = 0) -> Tally:
    return Tally(test, engine, 3, 1_000, lost, 0)


def test_every_case_is_a_test_that_counts() -> None:
    for case in CASES:
        module, name = case.split(".")
        assert "tally" in getattr(import_module(f"tests.{module}"), name).__code__.co_names
    assert len(nodes()) == len(CASES)


def test_the_page_names_every_case_and_says_that_nothing_was_lost() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert {re.search(r"::(\w+)", row[-1]).group(1) for row in rows} == {  # type: ignore[union-attr]
        case.split(".")[1] for case in CASES
    }
    assert {(row[4], row[5]) for row in rows} == {("0", "0")}
    assert "python -m tests.reliability --kills" in text


def test_the_runs_of_a_test_are_added_up() -> None:
    tests = [case.split(".")[1] for case in CASES]
    first = tests[0]
    tallies = [counted(t, "sqlite") for t in tests] + [counted(first, "sqlite", lost=2)]
    text = page(tallies, "the command", 90.0)
    assert f"| sqlite | 6 | 2,000 | 2 | 0 | `tests/test_concurrency.py::{first}` |" in text
    with pytest.raises(SystemExit, match="nothing was counted by"):
        page(tallies[:1], "the command", 90.0)


def test_what_is_counted_is_written_down_and_must_be_nothing_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tally.jsonl"
    monkeypatch.setenv("MEMORYWORTH_TALLY", str(file))
    tally("postgresql+psycopg://x", faults=1, acknowledged=2, lost=0, twice=0)
    with pytest.raises(AssertionError):
        tally("sqlite://", faults=1, acknowledged=2, lost=1, twice=0)
    name = "test_what_is_counted_is_written_down_and_must_be_nothing_lost"
    assert read(file) == [Tally(name, "postgresql", 1, 2, 0, 0), Tally(name, "sqlite", 1, 2, 1, 0)]
