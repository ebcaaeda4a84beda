"""What all commands share: which store, how it is opened, and how an answer is printed, for people or as JSON."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.evidence import Evidence, Verdict
from langchain_memoryworth.progress import Progress, unwatched
from langchain_memoryworth.records import Status
from langchain_memoryworth.terminal import clean

if TYPE_CHECKING:
    from tqdm import tqdm

    from langchain_memoryworth.service.unembedded import UnembeddedStore

Store = Annotated[
    str,
    typer.Option(
        "--database",
        "-d",
        envvar="MEMORYWORTH_DATABASE",
        help="A SQLite file, or a database URL.",
    ),
]
Space = Annotated[
    str, typer.Option("--namespace", "-n", help="Segments with / between them; none by default.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Actor = Annotated[str, typer.Option("--actor", help="Who decides, for the record.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why, for the record.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of memories.")]


def segments(namespace: str) -> tuple[str, ...]:
    """A namespace as it is given on the command line.

    Examples:
        >>> segments("acme/chat"), segments("")
        (('acme', 'chat'), ())
    """
    return tuple(namespace.split("/")) if namespace else ()


def url_of(database: str) -> str:
    """The URL of a database that may be given as the name of a SQLite file.

    Examples:
        >>> url_of("memories.db"), url_of("postgresql+psycopg://db/agents")
        ('sqlite:///memories.db', 'postgresql+psycopg://db/agents')
    """
    # One that lacks a slash is no file either: its error is to be that of a URL, which shows no password.
    return database if re.match(r"[\w+]{2,}:/", database) else f"sqlite:///{database}"


@contextmanager
def opened(database: str, namespace: str = "") -> Iterator[UnembeddedStore]:
    """The store, without its embedding model; it must be there.

    Raises:
        InvalidInputError: If there is none.
    """
    # Not before a command needs it: `--help` is to answer at once.
    from langchain_memoryworth.service.unembedded import UnembeddedStore

    with UnembeddedStore(url_of(database), namespace=segments(namespace)) as store:
        yield store


def on_a_file(store: UnembeddedStore) -> None:
    """Before a command that writes the file anew.

    Raises:
        InvalidInputError: If there is none, but a server.
    """
    if store.governor.database.kind != "sqlite":
        url = store.governor.url
        raise InvalidInputError(
            f"{url} is on a server, which frees space for new rows by itself; only VACUUM FULL, by its owner, writes the tables "
            "anew, gives space back to the disk, and leaves nothing in their files of what was erased",
            value=url,
        )


class Columns(NamedTuple):
    """A table: drawn on a terminal, and elsewhere text in columns as wide as they need to be, one row a line.

    Examples:
        >>> print(Columns(("id", "worth"), [("a", 0.5), ("longer", 1.0)]))
        id      worth
        a       0.5
        longer  1.0
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def __str__(self) -> str:
        cells = [self.heads, *([clean(c, width=60) for c in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.heads))]
        return "\n".join(
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
            for row in cells
        )


def say(
    value: Any, *, as_json: bool, human: str | Columns | Sequence[str | Columns] | None = None
) -> None:
    """Print an answer: as JSON, or for people, in parts. Every stored text in it is cleaned."""
    if as_json:
        typer.echo(json.dumps(plain(value), ensure_ascii=True, allow_nan=False))
        return
    whole = str(value) if human is None else human
    for part in [whole] if isinstance(whole, (str, Columns)) else whole:
        if isinstance(part, Columns) and sys.stdout.isatty():
            _draw(part)
        else:
            typer.echo("\n".join(clean(line) for line in str(part).split("\n")))


def _draw(columns: Columns) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns.heads, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in columns.rows:  # as Text, so that a stored [red] is four letters and two brackets
        table.add_row(*(Text(clean(c, width=300), style=_STYLES.get(c, "")) for c in row))
    Console().print(table)


@contextmanager
def bars(*, hidden: bool) -> Iterator[Progress]:
    """Progress as a bar on stderr; nothing with --json, or where no terminal looks."""
    if hidden or not sys.stderr.isatty():
        yield unwatched
        return
    from tqdm import tqdm

    shown: dict[str, tqdm[Any]] = {}

    def show(step: str, done: int, total: int) -> None:
        if step not in shown:
            _close(shown)
            shown[step] = tqdm(total=total, desc=step, leave=False)
        shown[step].update(done - shown[step].n)

    try:
        yield show
    finally:
        _close(shown)


def _close(shown: dict[str, tqdm[Any]]) -> None:
    while shown:
        shown.popitem()[1].close()


def confirmed(question: str, *, yes: bool) -> None:
    """Go on only if a person says so.

    Raises:
        typer.Abort: If not.
    """
    if not yes:
        typer.confirm(clean(question), abort=True, err=True)


def plain(value: Any) -> Any:
    """A value as JSON has it; counters with what they say, times in seconds."""
    if isinstance(value, Evidence):
        return {**value._asdict(), "worth": value.worth, "effective_size": value.effective_size}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    elif is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    return _single(value)


def _single(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no infinity
    return value.isoformat() if isinstance(value, datetime) else value


_STYLES: Mapping[Any, str] = {
    Status.SUPPRESSED: "red",
    Status.WITHHELD: "magenta",
    Status.QUARANTINED: "yellow",
    Status.PINNED: "green",
    Status.DEPRECATED: "dim",
    Verdict.LOW: "red",
    Verdict.HIGH: "green",
}
