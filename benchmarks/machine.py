"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIBRARIES = (
    "faiss-cpu",
    "numpy",
    "SQLAlchemy",
    "langchain-core",
    "langchain-community",
    "langgraph",
    "pydantic",
)


def description() -> list[str]:
    """The machine and the libraries, one fact a line."""
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return [
        f"CPU: {_cpu()}, {os.cpu_count()} cores; FAISS and BLAS on one thread",
        f"Memory: {_memory_gib():.0f} GiB; files on {_file_system(tempfile.gettempdir())}",
        f"Load when it began (1, 5, 15 minutes): {load}",
        f"{platform.system()} {platform.release()}",
        ", ".join(_versions()),
    ]


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    yield f"SQLite {sqlite3.sqlite_version}"
    for name in _LIBRARIES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"no {name}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _file_system(folder: str) -> str:
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown file system"
    inside = [m for m in mounts if Path(folder).resolve().is_relative_to(m[1])]
    return max(inside, key=lambda m: len(m[1]))[2] if inside else "an unknown file system"
