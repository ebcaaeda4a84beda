"""The entry point of `langchain-memoryworth`: errors of ours are one line, not a traceback."""

from __future__ import annotations

import sys
from typing import NoReturn

from langchain_memoryworth.errors import MemoryWorthError, MissingExtraError
from langchain_memoryworth.terminal import clean


def main() -> None:
    """Run the command line."""
    try:
        _run()
    except MemoryWorthError as error:
        _refuse(str(error))
    except OSError as error:  # a folder that is not there, a file that may not be written
        _refuse(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _refuse(reason: str) -> NoReturn:
    print(f"error: {clean(reason)}", file=sys.stderr)
    sys.exit(1)


def _run() -> None:
    try:
        import typer  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("cli", "typer") from error
    from langchain_memoryworth.cli.commands import app

    app()
