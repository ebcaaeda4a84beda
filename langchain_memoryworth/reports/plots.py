"""The plots of the report, each from plain values onto the axes of matplotlib. Pure but for the drawing."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_memoryworth.errors import MissingExtraError
from langchain_memoryworth.estimators.credible import Belief
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Memory, Status
from langchain_memoryworth.terminal import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Any], None]
"""Draws onto the axes that it is given."""

_COLOURS = {
    Status.ACTIVE: "#1f77b4",
    Status.SUPPRESSED: "#d62728",
    Status.WITHHELD: "#9467bd",
    Status.PINNED: "#2ca02c",
    Status.QUARANTINED: "#ff7f0e",
    Status.DEPRECATED: "#7f7f7f",
}
_LINES = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf")
_GRID = "0.9"


class Rate(NamedTuple):
    """A success rate of some runs, or of a memory in some runs.

    Attributes:
        name: Of the group.
        runs: How many settled runs.
        belief: With 90 % bounds.
    """

    name: str
    runs: int
    belief: Belief


class Path(NamedTuple):
    """The worth of one memory over time.

    Attributes:
        marks: When it was held back, with the worth at that moment.
    """

    name: str
    at: Sequence[datetime]
    worths: Sequence[float]
    marks: Sequence[tuple[datetime, float]]


class Halves(NamedTuple):
    """A memory's worth in the earlier and in the later half of its runs.

    Attributes:
        declined: Whether the 90 % bounds of the later half lie below those of the earlier.
    """

    name: str
    earlier: float
    later: float
    runs: int
    declined: bool


def picture(draw: Draw, *, rows: int = 0) -> bytes:
    """Draw a figure of its own, as PNG.

    Args:
        draw: Draws it.
        rows: How many rows a list of names needs; 0 means the usual height.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    figure = new_figure(rows)
    axes = figure.subplots()
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    draw(axes)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()


def new_figure(rows: int = 0) -> Figure:
    """An empty figure; see `picture`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plot", "matplotlib") from error
    return Figure(figsize=(8, 0.8 + 0.3 * rows if rows else 4.2), layout="constrained")


def worths(axes: Any, memories: Sequence[Memory], policy: Policy) -> None:
    """Every memory by evidence and worth, with the regions of the policy."""
    most = max((m.evidence.effective_size for m in memories), default=0.0)
    right = 1.1 * max(most, policy.v_min, 1.0)
    axes.axvspan(0, policy.v_min, color="0.94")
    axes.fill_between([policy.v_min, right], 0, policy.theta_low, color="#fbe3e1")
    axes.fill_between([policy.v_min, right], policy.theta_high, 1, color="#e2f3df")
    for y, name in ((0.0, "low"), (policy.theta_high, "high")):
        axes.text(right, y + 0.01, f"{name} ", ha="right", va="bottom", color="0.45", fontsize=8)
    axes.text(0, 1.0, " too little to say", va="top", color="0.45", fontsize=8)
    for status, colour in _COLOURS.items():
        some = [m.evidence for m in memories if m.status is status]
        if some:
            points = [e.effective_size for e in some], [e.worth for e in some]
            label = f"{status} ({len(some)})"
            axes.scatter(*points, s=22, color=colour, label=label, alpha=0.8, linewidths=0)
    axes.set(xlim=(0, right), ylim=(-0.03, 1.03), xlabel="effective retrievals", ylabel="worth")
    _legend(axes)


def paths(axes: Any, found: Sequence[Path]) -> None:
    """The worth of some memories over time, a cross where one was held back."""
    for colour, path in zip(_LINES, found, strict=False):
        axes.plot(
            path.at,
            path.worths,
            drawstyle="steps-post",
            marker="o" if len(path.at) == 1 else None,  # a line through one point is not seen
            color=colour,
            label=f"[{path.name}]",
        )
        axes.scatter(*_columns(path.marks), marker="x", s=60, color=colour, zorder=3)
    axes.set(ylim=(-0.03, 1.03), ylabel="worth")
    _dates(axes, [at for p in found for at in p.at])
    _legend(axes)


def periods(
    axes: Any, found: Sequence[tuple[datetime, Rate]], held_back: Sequence[datetime]
) -> None:
    """Success in equal numbers of runs, one after the other, and when memories were held back."""
    if held_back:
        axes.vlines(held_back, 0, 1, color="#d62728", alpha=0.25, lw=1, label="a memory held back")
    _bounds(axes, [at for at, _ in found], [rate for _, rate in found], vertical=True)
    if found:
        label = f"{found[0][1].runs} runs each, 90 % interval"
        axes.plot(
            [a for a, _ in found], [r.belief.mean for _, r in found], "C0-", lw=1, label=label
        )
    axes.set(ylim=(0, 1), ylabel="success rate")
    _dates(axes, [at for at, _ in found])
    _legend(axes)


def rates(axes: Any, found: Sequence[Rate]) -> None:
    """Success rates by name, with their bounds and numbers of runs, the first on top."""
    places = range(len(found))
    _bounds(axes, places, found, vertical=False)
    for place, rate in zip(places, found, strict=True):
        text = f" {rate.belief.mean:.2f}, {rate.runs} runs"
        axes.text(rate.belief.high, place, text, va="center", fontsize=8, color="0.35")
    axes.set_yticks(places, [plain(r.name) for r in found])
    axes.set(xlim=(0, 1.25), ylim=(len(found) - 0.5, -0.5), xlabel="success rate, 90 % interval")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.grid(axis="x", color=_GRID)
    _no_formulas(axes.get_yticklabels())


def halves(axes: Any, found: Sequence[Halves]) -> None:
    """The later half of each memory's runs against the earlier: below the line it has become worse."""
    axes.plot([0, 1], [0, 1], color="0.7", lw=1)
    for declined, colour in ((False, "#1f77b4"), (True, "#d62728")):
        some = [h for h in found if h.declined is declined]
        if some:
            label = f"{'credibly worse' if declined else 'no credible change'} ({len(some)})"
            x, y = [h.earlier for h in some], [h.later for h in some]
            axes.scatter(
                x, y, s=[6 + h.runs / 4 for h in some], color=colour, alpha=0.6, label=label
            )
    named = sorted((h for h in found if h.declined), key=lambda h: h.later - h.earlier)[:6]
    _no_formulas([axes.text(h.earlier, h.later, f" {plain(h.name)}", fontsize=8) for h in named])
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set(xlabel="worth in the earlier half of its runs", ylabel="worth in the later half")
    _legend(axes)


def grid(
    axes: Any,
    names: Sequence[str],
    contexts: Sequence[str],
    cells: Mapping[tuple[int, int], tuple[float, int]],
) -> None:
    """The worth of memories by context, from red at 0 to green at 1, and the number of runs; no cell where there are none."""
    table = [
        [cells.get((i, j), (float("nan"), 0))[0] for j in range(len(contexts))]
        for i in range(len(names))
    ]
    axes.imshow(table, cmap="RdYlGn", vmin=0, vmax=1, aspect="auto", alpha=0.7)
    for (i, j), (worth, runs) in cells.items():
        axes.text(j, i, f"{worth:.2f} ({runs})", ha="center", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), [plain(n) for n in names])
    axes.set_xticks(range(len(contexts)), [plain(c) for c in contexts])
    _no_formulas([*axes.get_yticklabels(), *axes.get_xticklabels()])


def plain(name: str, width: int = 28) -> str:
    r"""Stored text as a label: one short line of characters that every font has.

    Examples:
        >>> plain("café\n")
        'caf\\xe9\\n'
    """
    return clean(name, width=width).encode("ascii", "backslashreplace").decode()


def _bounds(axes: Any, places: Sequence[Any], found: Sequence[Rate], *, vertical: bool) -> None:
    if not found:
        return
    means = [r.belief.mean for r in found]
    errors = [
        [r.belief.mean - r.belief.low for r in found],
        [r.belief.high - r.belief.mean for r in found],
    ]
    style: dict[str, Any] = {"fmt": "o", "color": "C0", "capsize": 3, "ms": 5, "lw": 1.5}
    if vertical:
        axes.errorbar(places, means, yerr=errors, **style)
    else:
        axes.errorbar(means, places, xerr=errors, **style)


def _dates(axes: Any, found: Sequence[datetime]) -> None:
    dates: Any = import_module("matplotlib.dates")
    axes.grid(color=_GRID)
    if len(set(found)) < 2:  # all in one moment: no date would be on the axis
        axes.set_xticks([])
        return
    locator = dates.AutoDateLocator(maxticks=8)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[1]:
        legend = axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        _no_formulas(legend.get_texts())


def _no_formulas(texts: Iterable[Any]) -> None:
    for text in texts:
        text.set_parse_math(False)


def _columns(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [a for a, _ in pairs], [b for _, b in pairs]
