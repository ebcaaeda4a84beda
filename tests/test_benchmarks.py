"""Every benchmark runs, and its rows arrive on the page. Nothing is asserted of the times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import curve, million, network
from benchmarks.data import K, opened, unit_vectors
from benchmarks.page import render
from benchmarks.reasons import REASONS, reason
from benchmarks.rows import Row, excess_row, ratio_row
from benchmarks.sentences import grown, sentences
from benchmarks.subjects import SUBJECTS
from benchmarks.timing import Pairs, Side, Spread, all_in_turn
from tests.fakes import assert_exact, query

ROOT = Path(__file__).resolve().parents[1]
EXPECTED = {
    "search": ["0% suppressed", "30% suppressed", "90% suppressed", "block by block"],
    "retrieval": ["looked up only", "in an episode |", "in an episode, after an outcome"],
    "outcome": [
        "8 documents shown",
        "our statements alone",
        "a success alone",
        "a failure alone",
        "search, documents",
        "outcomes by `record_outcomes`",
        "outcomes a second",
        "NORMAL",
        "FULL",
    ],
    "outcome_postgres": [
        "and their outcome",
        "outcomes by `record_outcomes`",
        "psycopg",
        "outcomes a second",
    ],
    "threads": ["group commit", "SQLite", "Postgres", "outcomes a second"],
    "stores": ["InMemoryVectorStore", "of langchain-community", "30% held back"],
    "langgraph_stores": [
        "`InMemoryStore` of LangGraph, search among",
        "memory of",
        "`InMemoryStore` of LangGraph, counters",
        "`SqliteStore` of LangGraph, search among",
        "two batches",
        "item by item",
    ],
    "postgres_store": ["`PostgresStore`", "with a filter", "two batches", "item by item"],
    "pgvector": ["0% held back", "90% held back topic", "recall@10", "the graph"],
    "chroma": ["no filter", "a filter"],
    "minilm": ["recorded in an episode |", "with the scan itself"],
    "memory": ["opened and asked"],
    "opening": ["file to first answer"],
    "startup": ["import of the main names", "--help"],
    "handler": ["sync chain", "async chain", "with a retrieval", "events of that chain"],
    "estimators": ["LOW by bounds", "change detector", "credit by use", "all of them"],
}


def test_every_subject_is_expected() -> None:
    assert set(EXPECTED) == {s.name for s in SUBJECTS}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_quick_run_fills_the_page(name: str, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--out", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert f"`OMP_NUM_THREADS=1 python -m benchmarks {name}`" in text
    assert "CPU: " in text
    assert "A quick run" in text
    for case in EXPECTED[name]:
        assert case in text


def test_an_unknown_name_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "there are search, retrieval" in done.stderr


def test_both_sides_get_the_same_rounds_in_turn() -> None:
    seen: dict[str, list[int]] = {"a": [], "b": []}
    taken = all_in_turn(
        [[Side(seen["a"].append), Side(seen["a"].append)], [Side(seen["b"].append)]],
        rounds=4,
        warmup=2,
    )
    assert [len(t) for t in taken] == [4, 4]
    assert seen["b"] == list(range(6))
    assert seen["a"] == sorted(seen["b"] * 2)


def test_a_miss_is_said_on_the_page() -> None:
    pairs = Pairs((2.0, 2.0, 2.0), (1.0, 1.0, 1.0))
    rows = [
        ratio_row("slow", "bare", pairs, target=1.25),
        excess_row("late", "bare", pairs, unit="ms", target=900.0),
        ratio_row("fast", "bare", pairs, target=1.5, at_least=True),
        Row("absent", "bare", None, note="not installed"),
    ]
    assert [r.met for r in rows] == [False, False, True, None]
    page = render({SUBJECTS[0]: rows}, ["CPU: one"], command="x", quick=False)
    assert "1 of 3 targets are met. Missed:" in page
    assert "- slow, against bare: **missed by 60%** (2.00): around FAISS's own scan" in page
    assert "**missed by 100 ms** (1000 ms)" in page
    assert "| absent | bare | - | not measured |  |  | not installed |" in page


def test_every_subject_with_a_target_can_say_why_it_is_missed() -> None:
    without = {s.name for s in SUBJECTS} - {name for name, _ in REASONS}
    assert without == {"memory", "chroma", "threads", "pgvector"}  # they have none
    for (name, part), text in REASONS.items():
        assert part in " ".join(EXPECTED[name])
        assert reason(name, part) == text


def test_rows_survive_the_way_from_the_child() -> None:
    row = Row("a", "b", Spread(1.0, 0.5, 2.0), figure=Spread(3.0, 2.0, 4.0), unit="us")
    assert Row.from_json(row.to_json()) == row


def test_a_million_in_small(tmp_path: Path) -> None:
    vectors = grown(unit_vectors(300), 3_000)
    results = million.measured(tmp_path, vectors, unit_vectors(5, seed=1))
    lines = results.graph
    assert [(x.where, x.share) for x in lines] == list(million.CASES)
    assert all(x.recall >= 0.9 for x in lines)
    assert lines[0].exact == 0
    assert lines[-1].exact == 1  # nine in ten around the query
    assert results.rounded.recall >= 0.9
    assert list(results.opened) == [name for name, _ in (*million.OPENINGS, *million.FROM_POSTGRES)]
    alike = million.likeness(unit_vectors(200), unit_vectors(5, seed=1), 3_000)
    assert alike.real == 1  # as 64 of 200 nodes are nearly all
    text = million.page(results, 3_000, alike)
    assert text.count("\n| ") == 2 * 2 + len(lines) + len(results.opened)


def test_sentences_are_those_of_docstrings(tmp_path: Path) -> None:
    plain = "The first sentence says what this module is for."
    (tmp_path / "a.py").write_text(
        f'"""{plain} Too short.\n\n>>> x = f(1) + g[2] * {{3}} - h(4)"""'
    )
    (tmp_path / "broken.py").write_text("def (")
    assert list(sentences([tmp_path])) == [plain]


def test_the_line_in_small() -> None:
    """Of the round trips nothing is asserted: they are told from times."""
    costs = network.measured(20, 30, (1, 2), delay=0.01, times=1)
    recorded = ("looked up only", "in an episode")
    flat, pgvector, few = (
        [c for c in costs if c.call.startswith(f'`index="{index}"`, {count} memories')]
        for index, count in (("flat", 30), ("pgvector", 30), ("pgvector", 20))
    )
    for searches in (flat, pgvector, few):
        assert [c.call.split(", ")[-1] for c in searches] == list(recorded)
    outcomes = costs[2:4]
    assert [c.call for c in outcomes] == ["`record_outcome`", "`record_outcomes`, 2 runs"]
    query_ = 384 * 9  # characters at least
    assert flat[0].sent < query_
    assert all(query_ < c.sent < 3 * query_ for c in (pgvector[0], few[0]))  # once, not twice
    assert pgvector[0].received > few[0].received > K * 60
    assert network.page(costs).count("\n| ") == 2 + len(costs)


def test_the_curve_in_small(tmp_path: Path) -> None:
    """The stores that it makes by SQL are such as the store itself would have made."""
    points = curve.measured(tmp_path, 30, 16, (1, 3), rounds=2)
    assert [(p.what, p.count) for p in points] == [
        ("memories", 30),
        ("memories", 90),
        ("runs", 30),
        ("runs", 90),
    ]
    for name, memories, runs in (("memories-3", 90, 30), ("runs-3", 16, 90)):
        with opened(tmp_path / f"{name}.db") as store:
            assert len(store.memories()) == memories
            assert len(query(store, "SELECT 1 FROM episodes WHERE id LIKE 'run-%'")) == runs
            assert_exact(store)
    assert curve.page(points).count("\n| ") == 2 + len(points)
    curve.draw(points, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
