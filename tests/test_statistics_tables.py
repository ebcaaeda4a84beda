"""The scripts behind the tables of the statistics page run, and put their table where it belongs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tables import put, table

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = {
    "benchmarks.verdict_rules": ["the paper: ratio < .40", "confidence sequence"],
    "benchmarks.traffic_shift": ["contexts given, margin .15"],
    "benchmarks.outages": ["all fail", "every memory succeeds"],
    "benchmarks.diversity_floor": ["| 0.85 | 500 | 64% |"],
    "benchmarks.hard_pool": ["`Policy.paper()`", "`Policy()`"],
}


def marks(name: str) -> tuple[str, str]:
    return f"<!-- begin: python -m {name} -->", f"<!-- end: python -m {name} -->"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_writes_its_table_between_its_marks(name: str, tmp_path: Path) -> None:
    begin, end = marks(name)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    command = [sys.executable, "-m", name, "--quick", "--into", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert text.startswith(f"before\n{begin}\n")
    assert text.endswith(f"{end}\nafter\n")
    assert "old" not in text.splitlines()
    for row in SCRIPTS[name]:
        assert row in text


def test_every_detector_has_its_rows() -> None:
    from benchmarks.drift_detectors import KINDS, measured

    for kind in KINDS[0], KINDS[3]:
        rows = measured(kind, 4)
        assert [row[0] for row in rows] == [kind.name] * (1 if kind.limit is None else 2)
        assert {len(row) for row in rows} == {10}


def test_the_page_has_the_marks_of_every_script() -> None:
    page = (ROOT / "docs" / "statistics.md").read_text()
    for name in (*SCRIPTS, "benchmarks.drift_detectors"):
        begin, end = marks(name)
        assert page.index(begin) < page.index(end)


def test_a_page_without_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here")
    with pytest.raises(ValueError, match="begin: it"):
        put(page, "it", "table")


def test_a_table_is_markdown() -> None:
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
