"""The page: published numbers beside ours, figures, tables and notes, between two markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from langchain_memoryworth.experiments.experiment import (
    Comparison,
    Experiment,
    Figure,
    Section,
)
from langchain_memoryworth.experiments.figures import draw, write_csv

BEGIN = "<!-- generated: make paper -->"
END = "<!-- end -->"
_SECTION = "<!-- experiment: {} -->"
_SECTIONS = re.compile(r"<!-- experiment: (\S+) -->\n")


@dataclass(frozen=True, slots=True)
class Stamp:
    """When and with what a section was generated."""

    seeds: int
    version: str
    day: date


@dataclass(frozen=True, slots=True)
class Entry:
    """One experiment with what was found."""

    experiment: Experiment
    section: Section
    episodes: int
    stamp: Stamp


def write(entries: Sequence[Entry], out: Path) -> Path:
    """Write the figures and curves into a folder, and the sections into the page.

    The page is `<out>.md` if that file has the markers (docs/paper.md beside docs/paper/), else
    `out/report.md`. Sections of experiments that were not run stay as they are.

    Args:
        entries: What was run.
        out: Folder, must exist.

    Returns:
        The page.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    for entry in entries:
        for figure in entry.section.figures:
            draw(figure, out)
            write_csv(figure, out)
    beside = out.parent / f"{out.name}.md"
    if beside.exists() and BEGIN in beside.read_text(encoding="utf-8"):
        page, folder = beside, f"{out.name}/"
    else:
        page, folder = out / "report.md", ""
    text = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    sections = {entry.experiment.name: render(entry, folder) for entry in entries}
    page.write_text(replace(text, sections), encoding="utf-8")
    return page


def replace(text: str, sections: dict[str, str]) -> str:
    """Put sections between the markers of a page, by name; those of other experiments stay.

    Args:
        text: The page, with `BEGIN` and `END`.
        sections: Markdown by name of the experiment.
    """
    before, _, rest = text.partition(BEGIN)
    generated, _, after = rest.partition(END)
    pieces = _SECTIONS.split(generated)
    merged = dict(zip(pieces[1::2], pieces[2::2], strict=True)) | sections
    body = "".join(f"{_SECTION.format(name)}\n{merged[name]}" for name in sorted(merged))
    return f"{before}{BEGIN}\n{body}{END}{after}"


def render(entry: Entry, folder: str) -> str:
    """One experiment as Markdown.

    Args:
        entry: The experiment with its section.
        folder: Prefix of the links to the figures, empty or with a slash at its end.
    """
    section, stamp = entry.section, entry.stamp
    run = (
        f"Seeds 0 to {stamp.seeds - 1}, {entry.episodes:,} episodes each, "
        f"langchain-memoryworth {stamp.version}, generated on {stamp.day:%Y-%m-%d}."
    )
    parts = [f"## {entry.experiment.title}", run, section.setup]
    if section.comparisons:
        parts.append(comparison_table(section.comparisons))
    parts += [_figure(figure, folder) for figure in section.figures]
    parts += [
        f"{table.caption}:\n\n{_markdown(table.header, table.rows)}" for table in section.tables
    ]
    return "\n\n".join((*parts, *section.notes)).strip() + "\n\n"


def comparison_table(comparisons: Iterable[Comparison]) -> str:
    """The Markdown table published / ours / difference / within the seeds' spread?"""
    header = (
        "quantity",
        "where",
        "published",
        "ours",
        "difference",
        "within the seeds' spread?",
    )
    return _markdown(header, [_row(c) for c in comparisons])


def _row(c: Comparison) -> tuple[str, ...]:
    digits = max(c.published.digits, 2) + 1
    ours = f"{c.mean:.{digits}f} ± {c.std:.{digits}f}"
    verdict = "yes" if c.within else "**no**"
    return (
        c.quantity,
        c.published.where,
        str(c.published),
        ours,
        f"{c.difference:+.{digits}f}",
        verdict,
    )


def _figure(figure: Figure, folder: str) -> str:
    links = f"[SVG]({folder}{figure.name}.svg), [CSV]({folder}{figure.name}.csv)"
    return f"![{figure.name}]({folder}{figure.name}.png)\n\n*{figure.caption}* {links}"


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
