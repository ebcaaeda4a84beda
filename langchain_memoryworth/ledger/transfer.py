"""Exports as files: JSON Lines, one record per line, the first one a header.

A file is not trusted: every line is checked against the schema, and the whole against itself, before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from langchain_memoryworth.errors import ImportFileError, InvalidInputError
from langchain_memoryworth.ledger.parcel import (
    FORMAT,
    VERSION,
    ActionLine,
    ClosedLine,
    EpisodeLine,
    Header,
    Line,
    MemoryLine,
    OpeningLine,
    Parcel,
    RateLine,
    check,
)
from langchain_memoryworth.progress import Progress, unwatched, watched

LONGEST_LINE = 64 * 2**20
"""Bytes of one line, beyond which a file is refused before it is parsed."""

_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def write(path: Path, parcel: Parcel, progress: Progress = unwatched) -> int:
    """Write a file; returns how many lines it has. An existing file is replaced only when the new one is complete.

    Raises:
        InvalidInputError: If it is a folder.
    """
    part = path.with_name(path.name + ".part")
    if path.is_dir():
        raise InvalidInputError(f"{path} is a folder; give the name of a file", value=path)
    records = [
        parcel.header,
        *parcel.memories,
        *parcel.openings,
        *parcel.rates,
        *parcel.closed,
        *parcel.episodes,
        *parcel.actions,
    ]
    with part.open("w", encoding="utf-8", newline="\n") as file:
        for record in watched(records, "writing", progress):
            file.write(record.model_dump_json() + "\n")
    part.replace(path)
    return len(records)


def read(path: Path, progress: Progress = unwatched) -> Parcel:
    """Read and check a file.

    Raises:
        ImportFileError: Naming the file, the line, and what is wrong with it.
    """
    try:
        with path.open("rb") as file:
            lines = _lines(file, path.stat().st_size, progress)
            header = _header(next(lines, (1, b"")))
            records = [(n, _parse(n, line)) for n, line in lines]
    except ImportFileError as error:  # a line does not know of which file it is
        raise ImportFileError(str(path), error.line, error.problem) from error
    except OSError as error:
        raise ImportFileError(str(path), 0, f"it cannot be read ({error})") from error
    parcel = Parcel(
        header,
        [r for _, r in records if isinstance(r, MemoryLine)],
        [r for _, r in records if isinstance(r, EpisodeLine)],
        [r for _, r in records if isinstance(r, ActionLine)],
        [r for _, r in records if isinstance(r, OpeningLine)],
        [r for _, r in records if isinstance(r, RateLine)],
        [r for _, r in records if isinstance(r, ClosedLine)],
    )
    wrong = check(parcel)
    if wrong is not None:
        line = next(n for n, r in records if r is wrong[0])
        raise ImportFileError(str(path), line, wrong[1])
    return parcel


def _lines(file: Any, size: int, progress: Progress) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        progress("reading", file.tell(), size)
        if len(line) > LONGEST_LINE:
            raise ImportFileError("", number, f"it is longer than {LONGEST_LINE} bytes")
        if line.strip():
            yield number, line


def _header(numbered: tuple[int, bytes]) -> Header:
    number, line = numbered
    document = _json(number, line)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ImportFileError("", number, "the file does not begin with the header of an export")
    if document.get("version") != VERSION:
        raise ImportFileError(
            "", number, f"it has version {document.get('version')!r}, this release knows {VERSION}"
        )
    try:
        return Header.model_validate(document)
    except ValidationError as error:
        raise ImportFileError("", number, _first(error)) from error


def _parse(number: int, line: bytes) -> Line:
    document = _json(number, line)
    try:
        return _LINE.validate_python(document)
    except ValidationError as error:
        raise ImportFileError("", number, _first(error)) from error


def _json(number: int, line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is one, too
        raise ImportFileError("", number, f"it is no JSON ({type(error).__name__})") from error


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
