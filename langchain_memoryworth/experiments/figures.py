"""Draw a figure as PNG and SVG, and write its curves as CSV."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from langchain_memoryworth.experiments.experiment import Curve, Figure, Panel
from langchain_memoryworth.experiments.extras import optional

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F")
"""Okabe and Ito's colours, which colour-blind readers can tell apart."""

SIZE = (5.6, 4.4)
"""Inches of one panel."""


def draw(figure: Figure, folder: Path) -> None:
    """Write `<name>.png` and `<name>.svg`.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    matplotlib = optional("matplotlib")
    figure_class = optional("matplotlib.figure").Figure  # not pyplot, which may open a window
    columns = min(2, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    # Text stays text and ids come from a fixed salt: the SVG is small, and the same on each run.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": figure.name}):
        canvas = figure_class(figsize=(SIZE[0] * columns, SIZE[1] * rows), layout="constrained")
        grid = canvas.subplots(rows, columns, squeeze=False)
        for panel, axes in zip(figure.panels, grid.flat, strict=False):  # the last may stay empty
            _panel(panel, axes)
        canvas.savefig(folder / f"{figure.name}.png", dpi=110, metadata={"Software": None})
        canvas.savefig(folder / f"{figure.name}.svg", metadata={"Date": None})


def _panel(panel: Panel, axes: Any) -> None:
    for number, curve in enumerate(panel.curves):
        _curve(curve, COLOURS[number % len(COLOURS)], axes)
    for level in panel.levels:
        axes.axhline(level.y, color="0.5", linestyle=":", linewidth=1)
        axes.annotate(
            level.label,
            (0.01, level.y),
            xytext=(0, 2),
            textcoords="offset points",
            xycoords=("axes fraction", "data"),
            color="0.4",
            fontsize=7,
        )
    if panel.marks:
        x, y = [m.x for m in panel.marks], [m.y for m in panel.marks]
        axes.plot(x, y, "kx", markersize=7, label="published", zorder=5, linestyle="none")
    if panel.scale in {"log-x", "log-log"}:
        axes.set_xscale("log")
    if panel.scale == "log-log":
        axes.set_yscale("log")
    axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))


def _curve(curve: Curve, colour: str, axes: Any) -> None:
    style, shade = ("--", "0.2") if curve.theory else ("-", colour)
    axes.plot(curve.x, curve.mean, style, color=shade, linewidth=1.3, label=curve.label)
    if not curve.theory:
        low, high = curve.mean - curve.std, curve.mean + curve.std
        axes.fill_between(curve.x, low, high, color=colour, alpha=0.15, linewidth=0)


def write_csv(figure: Figure, folder: Path) -> None:
    """Write `<name>.csv`: mean and standard deviation over the seeds, a line for each point."""
    with (folder / f"{figure.name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("panel", "curve", "x", "mean", "std", "seeds"))
        for panel in figure.panels:
            for curve in panel.curves:
                for x, mean, std in zip(curve.x, curve.mean, curve.std, strict=True):
                    writer.writerow(
                        (
                            panel.title,
                            curve.label,
                            x,
                            f"{mean:.5f}",
                            f"{std:.5f}",
                            len(curve.values),
                        )
                    )
