"""docs/reliability.md is made of what the tests counted, and names tests that exist."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.reliability import CASES, PAGE, main, nodes, page
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
    text = page(tallies, "the command")
    assert f"| sqlite | 6 | 2,000 | 2 | 0 | `tests/test_concurrency.py::{first}` |" in text
    with pytest.raises(SystemExit, match="nothing was counted by"):
        page(tallies[:1], "the command")


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


def test_a_run_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, out = tmp_path / "tally.jsonl", tmp_path / "page.md"
    slow = "test_workers.test_a_clock_that_goes_backwards"
    done = [counted(c.split(".")[1], "sqlite") for c in CASES if c != slow]
    kept.write_text("".join(json.dumps(t._asdict()) + "\n" for t in done))
    monkeypatch.delenv("MEMORYWORTH_TALLY", raising=False)
    main(["--kills", "1", "--outcomes", "8", "--tally", str(kept), "--out", str(out)])
    assert read(kept)[: len(done)] == done  # nothing of it was run again
    engines = {t.engine for t in read(kept)[len(done) :]}
    assert engines == {"sqlite", "postgresql"}
    assert "--kills 1 --outcomes 8" in out.read_text()
