"""Commands that move: export, import, and a report."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_memoryworth.cli.console import (
    AsJson,
    Space,
    Store,
    Yes,
    bars,
    confirmed,
    opened,
    say,
)
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.records import Imported

if TYPE_CHECKING:
    from langchain_memoryworth.progress import Progress
    from langchain_memoryworth.service.logs import LogEntry
    from langchain_memoryworth.service.unembedded import UnembeddedStore

DEFAULT = "memories.db"


class Format(StrEnum):
    """What a file to be imported is."""

    EXPORT = "export"
    CSV = "csv"
    LANGSMITH = "langsmith"
    LANGFUSE = "langfuse"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(export)
    app.command("import")(import_)
    app.command()(report)


def export(
    path: Annotated[Path, typer.Argument(help="Where the JSON Lines go.")],
    database: Store = DEFAULT,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write memories, evidence, runs, outcomes and decisions into one file."""
    if path.exists() and not force:
        raise InvalidInputError(f"{path} is there already; give --force to replace it", value=path)
    with opened(database) as store, bars(hidden=as_json) as progress:
        lines = store.export_file(path, progress=progress)
    say({"path": str(path), "lines": lines}, as_json=as_json, human=f"{lines} lines in {path}")


def import_(
    path: Annotated[Path, typer.Argument(help="An export, or a log.")],
    format_: Annotated[Format, typer.Option("--format", help="What it is.")] = Format.EXPORT,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--map", help="Of a CSV: run=COLUMN, memories=, outcome=, at=, source=, used="
        ),
    ] = None,
    score: Annotated[
        str, typer.Option(help="Of LangSmith and Langfuse: the feedback that is the outcome.")
    ] = "user_score",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is new.")] = False,
    database: Store = DEFAULT,
    namespace: Space = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take over an export, or turn a log into evidence; what is there already is not counted twice."""
    with opened(database, namespace) as store:
        entries = None if format_ is Format.EXPORT else _entries(path, format_, column, score)
        with bars(hidden=as_json) as progress:
            done = _take(store, path, entries, progress, dry_run=True)
        if not dry_run:
            confirmed(f"{_words(done)}. Write it?", yes=yes)
            with bars(hidden=as_json) as progress:
                done = _take(store, path, entries, progress, dry_run=False)
    end = ["nothing was written"] if dry_run else []
    say(done, as_json=as_json, human=[_words(done), *done.skipped, *end])


def report(
    path: Annotated[Path, typer.Argument(help="Where the HTML goes.")] = Path("memoryworth.html"),
    plots: Annotated[Path | None, typer.Option(help="A folder for the plots as PNG.")] = None,
    database: Store = DEFAULT,
    namespace: Space = "",
    as_json: AsJson = False,
) -> None:
    """Write one HTML file with plots, health and review queue; it opens offline."""
    with opened(database, namespace) as store, bars(hidden=as_json) as progress:
        from langchain_memoryworth.reports.report import write_report

        write_report(store, path, plots=plots, progress=progress)
    say({"path": str(path)}, as_json=as_json, human=str(path))


def _take(
    store: UnembeddedStore,
    path: Path,
    entries: list[LogEntry] | None,
    progress: Progress,
    *,
    dry_run: bool,
) -> Imported:
    if entries is None:
        return store.import_file(path, dry_run=dry_run, progress=progress)
    return store.import_log(entries, dry_run=dry_run, progress=progress)


def _entries(path: Path, format_: Format, columns: list[str] | None, score: str) -> list[LogEntry]:
    from langchain_memoryworth.service.logs import (
        from_csv,
        from_langfuse,
        from_langsmith,
        json_lines,
    )

    if format_ is Format.CSV:
        mapping = dict(c.partition("=")[::2] for c in columns or ())
        return list(from_csv(path, mapping))
    if format_ is Format.LANGSMITH:
        return from_langsmith(json_lines(path), feedback=score)
    return from_langfuse(json_lines(path), score=score)


def _words(done: Imported) -> str:
    return (
        f"{done.memories} new memories ({done.known_memories} known), {done.episodes} new runs "
        f"({done.known_episodes} known), {done.outcomes} outcomes, {len(done.skipped)} with something "
        "left out"
    )
