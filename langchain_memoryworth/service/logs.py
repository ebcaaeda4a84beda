"""Logs that a user already has, read as "these memories were retrieved, this happened". Pure: entries in, entries out.

Nothing is guessed: an outcome is a bool, a number in [0, 1], or one of a few exact words, so that INCORRECT is not correct; a
run without an outcome is unknown, and a run that ended with an error has not failed by that.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain_memoryworth.errors import ImportFileError, InvalidInputError

_WORDS = {
    **dict.fromkeys(("true", "yes", "success", "succeeded", "correct", "pass", "passed"), 1.0),
    **dict.fromkeys(("false", "no", "failure", "failed", "incorrect", "fail"), 0.0),
}


@dataclass(frozen=True, slots=True)
class Retrieved:
    """One memory that a log says was retrieved: by its id, or where it has none by its text."""

    id: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One run of a log.

    Attributes:
        run_id: Its id; by it the same run is recognised when a log is imported twice.
        retrieved: In the order of their ranks.
        reward: In [0, 1]; None while unknown.
        at: When it began.
        source: Who says how it went.
        used: Ids of the memories that the answer was made from, if the log says so.
        line: Of the file, for messages.
    """

    run_id: str
    retrieved: tuple[Retrieved, ...]
    reward: float | None
    at: datetime | None = None
    source: str = "import"
    used: tuple[str, ...] | None = None
    line: int = field(default=0, compare=False)


def reward_in(value: Any) -> float | None:
    """An outcome as logs have it; None for nothing at all.

    Raises:
        InvalidInputError: If it is none that can be told.

    Examples:
        >>> reward_in("INCORRECT"), reward_in("0.5"), reward_in(True), reward_in(" ")
        (0.0, 0.5, 1.0, None)
        >>> reward_in("mostly correct")
        Traceback (most recent call last):
        langchain_memoryworth.errors.InvalidInputError: 'mostly correct' is no outcome; give true, false, or a reward in [0, 1]
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    number: float | None = None
    if isinstance(value, str):
        word = value.strip().lower()
        number = _WORDS.get(word)
        if number is None:
            number = _number(word)
    elif isinstance(value, (bool, int, float)):
        number = float(value)
    if number is None or not 0 <= number <= 1:
        raise InvalidInputError(
            f"{value!r} is no outcome; give true, false, or a reward in [0, 1]", value=value
        )
    return number


def _number(word: str) -> float | None:
    with suppress(ValueError):
        return float(word)
    return None


# -- CSV --------------------------------------------------------------------------------------------------------------


def from_csv(path: Path, mapping: Mapping[str, str], *, separator: str = ";") -> Iterator[LogEntry]:
    """Runs of a CSV file, of one row each, or of one row per memory.

    Args:
        path: UTF-8, with a line of column names.
        mapping: From `run`, `memories`, `outcome`, and if there are such `at` (ISO 8601), `source`, `used`, to the names of
            the columns.
        separator: Between the ids in one field.

    Raises:
        ImportFileError: Naming the line.
    """
    missing = {"run", "memories", "outcome"} - set(mapping)
    unknown = set(mapping) - {"run", "memories", "outcome", "at", "source", "used"}
    if missing or unknown:
        wrong = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        wrong += [f"has {', '.join(sorted(unknown))}, which mean nothing"] if unknown else []
        raise InvalidInputError(
            f"the mapping {' and '.join(wrong)}; give run, memories and outcome, and maybe at, source, "
            "used",
            value=dict(mapping),
        )
    rows: dict[str, LogEntry] = {}
    for line, row in _rows(path, mapping):
        entry = _of_row(path, line, row, mapping, separator)
        before = rows.get(entry.run_id)
        rows[entry.run_id] = entry if before is None else _joined(path, before, entry)
    yield from rows.values()


def _rows(path: Path, mapping: Mapping[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            absent = set(mapping.values()) - set(reader.fieldnames or ())
            if absent:
                raise ImportFileError(str(path), 1, f"there is no column {sorted(absent)}")
            for row in reader:
                yield reader.line_num, {k: v or "" for k, v in row.items() if isinstance(k, str)}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ImportFileError(str(path), 0, f"it cannot be read as CSV ({error})") from error


def _of_row(
    path: Path, line: int, row: Mapping[str, str], mapping: Mapping[str, str], separator: str
) -> LogEntry:
    def ids(key: str) -> tuple[str, ...]:
        parts = (p.strip() for p in row.get(mapping.get(key, ""), "").split(separator))
        return tuple(p for p in parts if p)

    run_id = row[mapping["run"]].strip()
    if not run_id:
        raise ImportFileError(str(path), line, "the run has no id")
    try:
        return LogEntry(
            run_id,
            tuple(Retrieved(i) for i in ids("memories")),
            reward_in(row[mapping["outcome"]]),
            _time(row.get(mapping.get("at", ""))),
            row.get(mapping.get("source", ""), "").strip() or "import",
            ids("used") if row.get(mapping.get("used", "")) else None,
            line,
        )
    except InvalidInputError as error:
        raise ImportFileError(str(path), line, str(error)) from error


def _joined(path: Path, before: LogEntry, after: LogEntry) -> LogEntry:
    if (before.reward, before.source) != (after.reward, after.source):
        raise ImportFileError(
            str(path), after.line, f"run {after.run_id!r} has two outcomes in the file"
        )
    used = (
        None
        if before.used is None and after.used is None
        else (before.used or ()) + (after.used or ())
    )
    return LogEntry(
        before.run_id,
        before.retrieved + after.retrieved,
        before.reward,
        before.at,
        before.source,
        used,
        before.line,
    )


# -- LangSmith and Langfuse -------------------------------------------------------------------------------------------


def from_langsmith(runs: Iterable[Mapping[str, Any]], *, feedback: str) -> list[LogEntry]:
    """Runs as LangSmith exports them, put together by their trace.

    Args:
        runs: Dicts of runs; those of type `retriever` have `outputs.documents`, the root has `feedback_stats`.
        feedback: The feedback key whose average is the outcome.
    """
    traces: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        trace = _mapping(run, "run").get("trace_id") or run.get("id")
        if trace is None:
            raise ImportFileError("", 0, "a run has neither trace_id nor id")
        traces.setdefault(str(trace), []).append(run)
    return [_of_trace(trace, some, feedback) for trace, some in traces.items()]


def _of_trace(trace: str, runs: Sequence[Mapping[str, Any]], feedback: str) -> LogEntry:
    root = next((r for r in runs if not r.get("parent_run_id")), runs[0])
    stats = root.get("feedback_stats") or {}
    said = _mapping(stats, "feedback_stats").get(feedback) or {}
    documents: list[Retrieved] = []
    for run in sorted(runs, key=lambda r: str(r.get("start_time") or "")):
        if run.get("run_type") == "retriever":
            documents += _documents(run.get("outputs"))
    average = said.get("avg") if isinstance(said, Mapping) else None
    return LogEntry(
        trace,
        tuple(dict.fromkeys(documents)),
        reward_in(average),
        _time(root.get("start_time")),
        "langsmith",
    )


def from_langfuse(traces: Iterable[Mapping[str, Any]], *, score: str) -> list[LogEntry]:
    """Traces as Langfuse exports them, with their observations and scores.

    Args:
        traces: Dicts of traces; observations of type `RETRIEVER` have the documents as `output`.
        score: Name of the score that is the outcome; the last of that name counts.
    """
    entries = []
    for trace in traces:
        if not _mapping(trace, "trace").get("id"):
            raise ImportFileError("", 0, "a trace has no id")
        documents: list[Retrieved] = []
        for observation in trace.get("observations") or ():
            if str(_mapping(observation, "observation").get("type")).upper() == "RETRIEVER":
                documents += _documents(observation.get("output"))
        values = [
            s.get("value")
            for s in trace.get("scores") or ()
            if isinstance(s, Mapping) and s.get("name") == score
        ]
        entries.append(
            LogEntry(
                str(trace["id"]),
                tuple(dict.fromkeys(documents)),
                reward_in(values[-1] if values else None),
                _time(trace.get("timestamp")),
                "langfuse",
            )
        )
    return entries


def json_lines(path: Path) -> list[Any]:
    """The objects of a file: JSON Lines, or one JSON list.

    Raises:
        ImportFileError: If it is neither.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if text.lstrip().startswith("["):
            listed: list[Any] = json.loads(text)
            return listed
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        kind = type(error).__name__
        raise ImportFileError(
            str(path), 0, f"it is neither JSON Lines nor a list ({kind})"
        ) from error


def _documents(output: Any) -> list[Retrieved]:
    if isinstance(output, Mapping):
        output = output.get("documents", output.get("output"))
    if not isinstance(output, Sequence) or isinstance(output, str):
        return []
    return [_document(d) for d in output if isinstance(d, Mapping)]


def _document(document: Mapping[str, Any]) -> Retrieved:
    inner = document.get("kwargs")  # as LangChain serialises one
    document = inner if isinstance(inner, Mapping) else document
    metadata = document.get("metadata")
    id_ = document.get("id")
    if id_ is None and isinstance(metadata, Mapping):
        id_ = metadata.get("id")
    text = document.get("page_content", document.get("text"))
    return Retrieved(None if id_ is None else str(id_), text if isinstance(text, str) else None)


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ImportFileError("", 0, f"a {what} is {type(value).__name__}, not an object")
    return value


def _time(value: Any) -> datetime | None:
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    try:
        at = datetime.fromisoformat(str(value).strip())
    except ValueError as error:
        raise InvalidInputError(f"{value!r} is no time in ISO 8601", value=value) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)
