"""Run the benchmarks, each subject in a process of its own, and write the page."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import description
from benchmarks.page import render
from benchmarks.rows import Row
from benchmarks.subjects import SUBJECTS, Subject

_PAGE = Path("docs/benchmarks.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    by_name = {s.name: s for s in SUBJECTS}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(by_name)}")
    parser.add_argument(
        "--out", type=Path, help=f"the page; {_PAGE} when all is measured, else the terminal"
    )
    parser.add_argument("--quick", action="store_true", help="toy sizes, to test the script")
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)  # the child's answer
    given = parser.parse_args(arguments)
    unknown = [n for n in given.names if n not in by_name]
    if unknown:
        parser.error(f"no subject {unknown}; there are {', '.join(by_name)}")
    chosen = [by_name[n] for n in given.names or by_name]
    if given.rows is not None:
        rows = [row.to_json() for subject in chosen for row in subject.run(quick=given.quick)]
        given.rows.write_text(json.dumps(rows))
        return 0
    machine = description()
    results = {subject: _measured(subject, quick=given.quick) for subject in chosen}
    command = " ".join(["python -m benchmarks", *given.names, *["--quick"] * given.quick])
    page = render(results, machine, command=command, quick=given.quick)
    out = given.out or (_PAGE if len(chosen) == len(SUBJECTS) and not given.quick else None)
    if out is None:
        print(page)
    else:
        out.write_text(page)
        print(f"{out} written")
    return int(any(rows == [_failed(subject)] for subject, rows in results.items()))


def _measured(subject: Subject, *, quick: bool) -> list[Row]:
    print(f"{subject.name} ...", file=sys.stderr, flush=True)
    with TemporaryDirectory(prefix="memoryworth-bench-") as folder:
        rows = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks", subject.name, "--rows", str(rows)]
        done = subprocess.run([*command, *["--quick"] * quick], check=False, env=_environment())
        if done.returncode:
            return [_failed(subject)]
        return [Row.from_json(row) for row in json.loads(rows.read_text())]


def _failed(subject: Subject) -> Row:
    return Row(subject.title, "-", None, note="**the benchmark failed**")


def _environment() -> dict[str, str]:
    """One thread; and no OpenBLAS of the wrong processor, which would slow numpy and FAISS alike."""
    skipped = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2")
    kept = {k: v for k, v in os.environ.items() if k not in skipped}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


if __name__ == "__main__":
    sys.exit(main())
