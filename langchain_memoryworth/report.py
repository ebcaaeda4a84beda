"""One HTML file about a store, with its plots inside: opens offline, runs no script, and every stored text is escaped."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_memoryworth.credible import Belief, belief
from langchain_memoryworth.errors import MissingExtraError
from langchain_memoryworth.evidence import UNIT, Evidence
from langchain_memoryworth.operations import GovernedMemories
from langchain_memoryworth.progress import Progress, unwatched, watched
from langchain_memoryworth.records import Memory, Namespace, Status
from langchain_memoryworth.terminal import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAJECTORIES = 8
"""Memories whose worth is drawn over time: those with the most evidence."""
_COLOURS = {
    Status.ACTIVE: "#1f77b4",
    Status.SUPPRESSED: "#d62728",
    Status.WITHHELD: "#9467bd",
    Status.PINNED: "#2ca02c",
    Status.QUARANTINED: "#ff7f0e",
    Status.DEPRECATED: "#7f7f7f",
}


def write_report(
    store: GovernedMemories,
    path: Path,
    *,
    namespace: Namespace | None = None,
    plots: Path | None = None,
    progress: Progress = unwatched,
) -> Path:
    """Write the report of one namespace.

    Args:
        store: Any governed store.
        path: Where the HTML goes.
        namespace: None means the store's own.
        plots: A folder that gets each plot as PNG, too.
        progress: Told how many plots are drawn.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    pictures = {name: _png(figure) for name, figure in _figures(store, namespace, progress).items()}
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            (plots / f"{name}.png").write_bytes(picture)
    path.write_text(_page(store, namespace, pictures), encoding="utf-8")
    return path


# -- plots ------------------------------------------------------------------------------------------------------------


def _figures(
    store: GovernedMemories, namespace: Namespace | None, progress: Progress
) -> dict[str, Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plot", "matplotlib") from error
    memories = store.memories(namespace=namespace)
    figures = {}
    plots: list[tuple[str, Callable[..., None]]]
    plots = [("worth", _worths), ("trajectories", _paths), ("before_after", _rates)]
    for name, draw in watched(plots, "drawing", progress):
        figure = Figure(figsize=(7, 4), layout="constrained")
        draw(figure.subplots(), store, memories, namespace)
        figures[name] = figure
    return figures


def _worths(
    axes: Any, store: GovernedMemories, memories: Sequence[Memory], _: Namespace | None
) -> None:
    policy = store.policy
    most = max((m.evidence.effective_size for m in memories), default=0.0)
    right = 1.1 * max(most, policy.v_min, 1.0)
    axes.axvspan(0, policy.v_min, color="0.93")
    axes.fill_between([policy.v_min, right], 0, policy.theta_low, color="#f9d6d5")
    axes.fill_between([policy.v_min, right], policy.theta_high, 1, color="#d8efd3")
    for status, colour in _COLOURS.items():
        some = [m.evidence for m in memories if m.status is status]
        x, y = [e.effective_size for e in some], [e.worth for e in some]
        axes.scatter(x, y, s=18, color=colour, label=f"{status} ({len(some)})")
    axes.set(xlim=(0, right), ylim=(-0.03, 1.03), xlabel="effective retrievals", ylabel="worth")
    axes.legend(fontsize=8)
    axes.set_title("Worth against evidence: low, high, and too little to say")


def _paths(
    axes: Any, store: GovernedMemories, memories: Sequence[Memory], namespace: Namespace | None
) -> None:
    for m in sorted(memories, key=lambda m: -m.evidence.effective_size)[:TRAJECTORIES]:
        points = store.worth_history(m.id, namespace=namespace)
        if points:
            name = clean(m.id, width=24).encode("ascii", "backslashreplace").decode()
            worths = [p.worth for p in points]
            axes.plot(range(1, len(worths) + 1), worths, label=f"[{name}]", linewidth=1)
    axes.set(ylim=(-0.03, 1.03), xlabel="settled runs with the memory", ylabel="worth")
    if axes.lines:
        for text in axes.legend(fontsize=7).get_texts():
            text.set_parse_math(False)  # an id is no formula
    axes.set_title("Worth over time")


def _rates(axes: Any, store: GovernedMemories, *_: object) -> None:
    bars = before_and_after(store)
    for place, (_name, runs, b) in enumerate(bars):
        axes.errorbar([place], [b.mean], [[b.mean - b.low], [b.high - b.mean]], fmt="o", capsize=6)
        axes.annotate(f"{runs} runs", (place, b.mean), xytext=(8, 0), textcoords="offset points")
    axes.set_xticks(range(len(bars)), [name for name, _, _ in bars])
    axes.set(xlim=(-0.5, 1.5), ylim=(0, 1), ylabel="success rate, 90 % interval")
    axes.set_title("Runs before and after the first suppression")


def before_and_after(store: GovernedMemories) -> list[tuple[str, int, Belief]]:
    """Success rate of all runs before and after the first suppression: name, number of runs, belief.

    It says what happened, not why: the tasks may have changed at the same time.
    """
    steward = store.governor.steward
    first = steward.first_suppression()
    parts: dict[str, list[float]] = {"before": [], "after": []}
    for at, reward in steward.rewards():
        parts["before" if first is None or at <= first else "after"].append(reward)
    return [(name, len(rewards), _rate(rewards)) for name, rewards in parts.items()]


def _rate(rewards: Sequence[float]) -> Belief:
    good, n = round(sum(rewards) * UNIT), len(rewards) * UNIT
    return belief(Evidence(good, n - good, n, n, len(rewards)))


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


# -- the page ---------------------------------------------------------------------------------------------------------


def _page(store: GovernedMemories, namespace: Namespace | None, pictures: dict[str, bytes]) -> str:
    health = store.health()
    images = "".join(
        f'<h2>{name.replace("_", " ").title()}</h2><img alt="{name}" src="data:image/png;base64,'
        f'{base64.b64encode(picture).decode()}">'
        for name, picture in pictures.items()
    )
    queue = _table(
        ("memory", "text", "why", "reason", "would", "success rate"),
        [
            (p.memory_id, p.text, p.why, p.reason, p.action, p.belief)
            for p in store.review(25, namespace=namespace)
        ],
    )
    counts = _table(("", "count"), [(f.name, getattr(health, f.name)) for f in fields(health)])
    where = _text(store.governor.url)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        # Nothing is loaded and nothing runs, whatever a stored text may have slipped in.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>Memory Worth: {where}</title><style>{_STYLE}</style>"
        f"<h1>Memory Worth</h1><p>{where}, {store.governor.now():%Y-%m-%d %H:%M} UTC</p>"
        f"<h2>Health</h2>{counts}{images}<h2>Review</h2>{queue}</html>\n"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return "<p>Nothing.</p>"
    head = "".join(f"<th>{_text(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{_text(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(value: object) -> str:
    return escape(clean(value, width=300))


_STYLE = (
    "body{font:15px system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}"
    "img{max-width:100%}"
)
