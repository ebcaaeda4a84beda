"""One HTML file about a store, with its plots inside: opens offline, runs no script, and every stored text is escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from langchain_memoryworth.errors import InvalidInputError, NotIdentifiableError
from langchain_memoryworth.progress import Progress, unwatched, watched
from langchain_memoryworth.records import Namespace
from langchain_memoryworth.reports import plots as draw
from langchain_memoryworth.reports.sections import (
    QUEUE,
    SECTIONS,
    Facts,
    Section,
    distinct_runs,
    drawn,
)
from langchain_memoryworth.service.operations import GovernedMemories
from langchain_memoryworth.terminal import clean


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
        progress: Told how many sections are drawn.

    Raises:
        InvalidInputError: If the file cannot be one.
        MissingExtraError: If matplotlib is not installed.
    """
    # Before minutes of reading and drawing, not after.
    if path.is_dir() or not path.parent.is_dir():
        raise InvalidInputError(f"{path}: give a file in a folder that is there", value=path)
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
    draw.new_figure()
    facts = gather(store, namespace)
    sections = [make(facts) for make in SECTIONS]
    pictures = {
        s.name: draw.picture(s.plot, rows=s.rows)
        for s in watched(sections, "drawing", progress)
        if s.plot is not None
    }
    if plots is not None:
        for name, picture in pictures.items():
            (plots / f"{name}.png").write_bytes(picture)
    path.write_text(_page(facts, sections, pictures), encoding="utf-8")
    return path


def gather(store: GovernedMemories, namespace: Namespace | None = None) -> Facts:
    """Read all that the report shows of one namespace."""
    steward = store.governor.steward
    own = store.governor.namespace if namespace is None else namespace
    memories = store.memories(namespace=own)
    settlements = steward.settlements(own)
    spaces = {
        n: distinct_runs(settlements.values() if n == own else steward.settlements(n).values())
        for n, _ in steward.namespaces()
    }
    calibrated, why_not = calibration(store, own)
    return Facts(
        where=store.governor.url,
        now=store.governor.now(),
        policy=store.policy,
        health=store.health(),
        memories=memories,
        settlements=settlements,
        spaces=spaces,
        history={m.id: store.history(m.id, namespace=own) for m in drawn(memories)},
        rewards=steward.rewards(),
        held_back=steward.suppressions(),
        declines=store.stale(namespace=own),
        findings=store.assumptions(namespace=own),
        lifts=store.lift(namespace=own),
        paths=store.tool_paths(namespace=own),
        calibrated=calibrated,
        uncalibrated=why_not,
        sources=store.sources(),
        queue=store.review(QUEUE, namespace=own),
    )


def calibration(store: GovernedMemories, namespace: Namespace) -> tuple[dict[str, float], str]:
    """The calibrated worth of each memory by id, or why there is none."""
    try:
        found = store.calibrated_worth(namespace=namespace)
    except NotIdentifiableError as error:
        return {}, str(error)
    return {c.memory_id: c.value for c in found}, ""


# -- the page ---------------------------------------------------------------------------------------------------------


def _page(facts: Facts, sections: Sequence[Section], pictures: Mapping[str, bytes]) -> str:
    where, when = _text(facts.where), f"{facts.now:%Y-%m-%d %H:%M}"
    body = "".join(_part(s, pictures.get(s.name)) for s in sections)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        # Nothing is loaded and nothing runs, whatever a stored text may have slipped in.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        f"<title>Memory Worth: {where}</title><style>{_STYLE}</style>"
        f"<h1>Memory Worth</h1><p>{where}, {when} UTC</p>{body}</html>\n"
    )


def _part(section: Section, picture: bytes | None) -> str:
    if picture is None and section.table is None:
        return ""  # nothing to tell in this store
    parts = [f"<h2>{_text(section.title)}</h2>"]
    if section.note:
        parts.append(f"<p>{_text(section.note)}</p>")
    if picture is not None:
        data = base64.b64encode(picture).decode()
        parts.append(f'<img alt="{_text(section.title)}" src="data:image/png;base64,{data}">')
    if section.table is not None:
        parts.append(_table(*section.table))
    return "".join(parts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return "<p>Nothing.</p>"
    head = "".join(f"<th>{_text(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{_text(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _text(value: object) -> str:
    return escape(clean(value, width=300))


_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;color:#222;max-width:62em;margin:2em auto;padding:0 1em}"
    "h1{margin-bottom:0}h1+p{color:#666;margin-top:0}h2{margin-top:2em}p{max-width:45em;color:#444}"
    "table{border-collapse:collapse;font-size:14px}td,th{border-bottom:1px solid #ddd;padding:.3em .8em;"
    "text-align:left;vertical-align:top;overflow-wrap:anywhere}th{color:#666;font-weight:600}"
    "td+td{min-width:4em}img{max-width:100%;height:auto}"
)
