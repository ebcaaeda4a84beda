"""Generated tables in a page: each stands between two marks that name the command."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def put(page: Path, command: str, text: str) -> None:
    """Replace what stands between the marks of this command.

    Raises:
        ValueError: If the page has no such marks.
    """
    begin, end = f"<!-- begin: {command} -->", f"<!-- end: {command} -->"
    old = page.read_text()
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(old):
        raise ValueError(f"{page} has no {begin} ... {end}; add the two lines where the table goes")
    page.write_text(pattern.sub(lambda _: f"{begin}\n\n{text}\n\n{end}", old))


def arguments(command: str, about: str | None) -> argparse.Namespace:
    """The options that all scripts of tables have."""
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=about)
    parser.add_argument("--into", type=Path, help="the page to write into; else the terminal")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to test the script")
    return parser.parse_args()


def show(command: str, text: str, options: argparse.Namespace) -> None:
    """Print the table, or put it into its page."""
    if options.into is None:
        print(text)
    else:
        put(options.into, f"python -m {command}", text)
