"""What a program pays before it does anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from benchmarks.fresh import python
from benchmarks.rows import Row, ratio_row
from benchmarks.timing import Pairs, Spread

_OURS = (
    "from langchain_memoryworth import MemoryWorthStore, MemoryWorthRetriever, "
    "MemoryWorthCallbackHandler, SuppressionFilter, Policy"
)
_THEIRS = (
    "from langchain_core.vectorstores import VectorStore; "
    "from langchain_core.retrievers import BaseRetriever; import sqlalchemy, faiss"
)


def run(*, quick: bool) -> list[Row]:
    """Two rows: the import, and the command line."""
    rounds = 1 if quick else 15
    imports = _in_turn(lambda: _import(_OURS), lambda: _import(_THEIRS), rounds)
    command = _in_turn(lambda: _run(_help()), lambda: _run([sys.executable, "-c", ""]), rounds)
    return [
        ratio_row(
            "import of the main names",
            "`VectorStore`, `BaseRetriever`, sqlalchemy and faiss",
            imports,
            target=1.3,
        ),
        Row(
            "`langchain-memoryworth --help`",
            "an interpreter that does nothing",
            command.ratio,
            figure=Spread.of(command.ours),
            unit="s",
            about="in all",
            target=0.5,
        ),
    ]


def _in_turn(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> Pairs:
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return Pairs(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def _import(statement: str) -> float:
    clock = "from time import perf_counter as now; start = now()"
    return float(python(f"{clock}; {statement}; print(now() - start)"))


def _help() -> list[str]:
    script = Path(sys.executable).parent / "langchain-memoryworth"
    if script.exists():
        return [str(script), "--help"]
    code = "from langchain_memoryworth.cli.main import main; main()"
    return [sys.executable, "-c", code, "--help"]


def _run(command: list[str]) -> float:
    start = perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ)
    return perf_counter() - start
