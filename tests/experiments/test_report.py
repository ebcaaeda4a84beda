"""The page: what counts as agreement, what is replaced, and what is left alone."""

from __future__ import annotations

import csv
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from langchain_memoryworth.experiments import EXPERIMENTS, report
from langchain_memoryworth.experiments.experiment import (
    Comparison,
    Curve,
    Experiment,
    Figure,
    Panel,
    Section,
    Table,
    mean_std,
    spread,
)
from langchain_memoryworth.experiments.figures import draw, write_csv
from langchain_memoryworth.experiments.published import Published
from langchain_memoryworth.experiments.report import BEGIN, END, Entry, Stamp, replace, write

STAMP = Stamp(seeds=2, version="1.2.3", day=date(2026, 1, 2))


def entry(name: str, text: str) -> Entry:
    experiment = Experiment(name, f"Experiment {name}", lambda *_: {}, lambda *_: Section(""))
    return Entry(experiment, Section(text), 1000, STAMP)


@pytest.mark.parametrize(
    ("published", "ours", "within"),
    [
        (Published(0.50, ""), [0.504, 0.504], True),  # lost in the printed rounding
        (Published(0.50, ""), [0.51, 0.51], False),
        (Published(0.50, ""), [0.40, 0.70], True),  # inside the spread of the seeds
        (Published(0.500, "", digits=3), [0.504, 0.504], False),
    ],
)
def test_agreement_is_the_spread_or_the_rounding(published, ours, within):
    assert Comparison("q", published, np.array(ours)).within is within


def test_the_table_says_what_differs():
    rows = (
        Comparison("a", Published(0.9, "Table 1", spread=0.02), np.array([0.89, 0.91])),
        Comparison("b", Published(0.0, "Fig. 4", digits=3), np.array([0.5, 0.5])),
    )
    table = report.comparison_table(rows).splitlines()
    assert table[2] == "| a | Table 1 | 0.90 ± 0.02 | 0.900 ± 0.014 | +0.000 | yes |"
    assert table[3] == "| b | Fig. 4 | 0.000 | 0.5000 ± 0.0000 | +0.5000 | **no** |"


def test_one_seed_has_no_spread():
    assert spread(np.ones((1, 3))).tolist() == [0.0, 0.0, 0.0]
    assert mean_std(np.array([0.25])) == "0.250 ± 0.000"


def test_sections_of_others_and_the_frame_stay():
    page = f"# Mine\n\n{BEGIN}\n{END}\n\nThe end.\n"
    once = replace(page, {"2": "two\n", "1": "one\n"})
    again = replace(once, {"2": "TWO\n"})
    assert again.startswith("# Mine\n\n")
    assert again.endswith("\n\nThe end.\n")
    assert again.index("one") < again.index("TWO")
    assert "two" not in again
    assert replace(again, {"2": "TWO\n"}) == again


def test_a_page_beside_the_folder_is_rewritten(tmp_path):
    out = tmp_path / "paper"
    out.mkdir()
    page = tmp_path / "paper.md"
    page.write_text(f"Frame.\n{BEGIN}\nold\n{END}\n", encoding="utf-8")
    assert write([entry("1", "setup of one")], out) == page
    text = page.read_text(encoding="utf-8")
    assert "Frame." in text
    assert "setup of one" in text
    assert "old" not in text
    assert not (out / "report.md").exists()


def test_a_page_without_markers_is_left_alone(tmp_path):
    out = tmp_path / "paper"
    out.mkdir()
    page = tmp_path / "paper.md"
    page.write_text("hand-written", encoding="utf-8")
    assert write([entry("1", "one")], out) == out / "report.md"
    assert page.read_text(encoding="utf-8") == "hand-written"


def test_figures_are_linked_from_where_the_page_stands():
    x = np.array([1, 2])
    panel = Panel("p", "y", (Curve("c", x, np.ones((2, 2))),))
    section = Section(
        "setup",
        figures=(Figure("f", "caption", (panel,)),),
        tables=(Table("t", ("a", "b"), (("1", "2"),)),),
        notes=("note",),
    )
    text = report.render(Entry(EXPERIMENTS["1"], section, 1000, STAMP), "paper/")
    assert "![f](paper/f.png)" in text
    assert "t:\n\n| a | b |\n| --- | --- |\n| 1 | 2 |" in text
    assert "langchain-memoryworth 1.2.3, generated on 2026-01-02" in text
    assert text.endswith("note\n\n")


@pytest.fixture
def figure() -> Figure:
    x = np.array([1, 10, 100])
    measured = Curve("measured", x, np.array([[1.0, 0.5, 0.2], [3.0, 0.7, 0.2]]))
    theory = Curve("theory", x, np.array([[2.0, 0.6, 0.2]]), theory=True)
    scales = ("linear", "log-x", "log-log")
    return Figure("f", "c", tuple(Panel(s, "y", (measured, theory), scale=s) for s in scales))


def test_the_csv_has_every_point_of_every_curve(figure, tmp_path):
    write_csv(figure, tmp_path)
    with (tmp_path / "f.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 3
    assert rows[0] == {
        "panel": "linear",
        "curve": "measured",
        "x": "1",
        "mean": "2.00000",
        "std": "1.41421",
        "seeds": "2",
    }


def test_figures_are_the_same_on_each_run(figure, tmp_path):
    pictures = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        draw(figure, folder)
        assert (folder / "f.png").stat().st_size > 1000
        pictures.append((folder / "f.svg").read_bytes())
    assert pictures[0] == pictures[1]


def test_the_committed_page_has_the_markers_and_its_figures():
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "paper.md").read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    for name in ("figure1", "figure2", "figure3", "figure4", "assumptions"):
        assert f"paper/{name}.png" in text
        for suffix in ("png", "svg", "csv"):
            assert (docs / "paper" / f"{name}.{suffix}").stat().st_size < 300_000
