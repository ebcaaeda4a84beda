"""Measurements in a process of their own, so that nothing that came before counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from langchain_memoryworth.vectors.index import Kind


class Opened(NamedTuple):
    """What it took from a file, or a server, to the first answer.

    Attributes:
        seconds: Without the imports.
        busy: Of them those in which the processor worked for it, and not for others.
        bytes: Anonymous memory that came on top.
    """

    seconds: float
    busy: float
    bytes: float


def ours(where: Path | str, index: Kind = "flat", graph_folder: Path | None = None) -> Opened:
    """A fresh process opens the store and answers one query."""
    folder = None if graph_folder is None else str(graph_folder)
    return _opened(f"partial(ours, index={index!r}, graph_folder={folder!r})", where)


def by_hand(path: Path) -> Opened:
    """A fresh process reads the vectors into FAISS and answers one query."""
    return _opened("by_hand", path)


def touched(count: float) -> float:
    """Seconds that a fresh process takes for nothing but to write to so many bytes of new memory, in pages as FAISS has them."""
    code = (
        "import os, time; os.environ['NUMPY_MADVISE_HUGEPAGE'] = '0'; import numpy; t = time.perf_counter(); "
        "a = numpy.ones({}, numpy.float32); print(time.perf_counter() - t)"
    )
    return float(python(code.format(int(count) // 4)))


def _opened(what: str, where: Path | str) -> Opened:
    names = "from functools import partial; from benchmarks.opener import by_hand, measure, ours"
    return Opened(**json.loads(python(f"{names}; measure({what}, {str(where)!r})")))


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=os.environ
    )
    return done.stdout
