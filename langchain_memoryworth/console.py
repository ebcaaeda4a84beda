"""What all commands share: which store, how it is opened, and how an answer is printed, for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.evidence import Evidence
from langchain_memoryworth.terminal import clean

if TYPE_CHECKING:
    from langchain_memoryworth.unembedded import UnembeddedStore

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


@contextmanager
def opened(database: str, namespace: str = "") -> Iterator[UnembeddedStore]:
    """The store, without its embedding model; it must be there.

    Raises:
        InvalidInputError: If there is no such file.
    """
    url = database if "://" in database else f"sqlite:///{database}"
    path = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else None
    if path and not Path(path.split("?", 1)[0]).is_file():
        raise InvalidInputError(f"there is no store at {path}; give --database", value=database)
    # Not before a command needs it: `--help` is to answer at once.
    from langchain_memoryworth.unembedded import UnembeddedStore

    with UnembeddedStore(url, namespace=segments(namespace)) as store:
        yield store


def say(value: Any, *, as_json: bool, human: str | None = None) -> None:
    """Print an answer: as JSON, or for people."""
    if as_json:
        typer.echo(json.dumps(plain(value), ensure_ascii=True, allow_nan=False))
    else:
        typer.echo("\n".join(clean(line) for line in str(human or value).split("\n")))


def table(rows: Iterable[Sequence[Any]], *heads: str) -> str:
    """Rows in columns as wide as they need to be, numbers to the right; every cell is cleaned."""
    cells = [list(heads), *([clean(c, width=60) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def confirmed(question: str, *, yes: bool) -> None:
    """Go on only if a person says so.

    Raises:
        typer.Abort: If not.
    """
    if not yes:
        typer.confirm(clean(question), abort=True, err=True)


def plain(value: Any) -> Any:
    """A value as JSON has it; counters with what they say."""
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
    if isinstance(value, Enum):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else value
