"""Tables in the docs that are written from what is tested.

`python -m tests.tables` writes them all; the tests of each fail while it is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
_WRITERS = ("compatibility", "run_life")

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """One table of one page, between two comments.

    Attributes:
        page: File name in docs/.
        writer: Module in tests/ that knows the rows; its name is in the comments.
        head: Names of the columns.
        rows: One for each line.
    """

    page: str
    writer: str
    head: Row
    rows: Callable[[], Iterator[Row]]

    @property
    def path(self) -> Path:
        return DOCS / self.page

    @property
    def _ends(self) -> tuple[str, str]:
        return f"<!-- written by tests/{self.writer}.py -->", f"<!-- /{self.writer} -->"

    def text(self, lines: Iterable[Row]) -> str:
        """The lines in Markdown."""
        whole = [self.head, ("---",) * len(self.head), *lines]
        return "\n".join("| " + " | ".join(line) + " |" for line in whole)

    def written(self) -> list[Row]:
        """The lines that stand in the page."""
        begin, end = self._ends
        page = self.path.read_text(encoding="utf-8")
        inside = page.split(begin, 1)[1].split(end, 1)[0].strip().splitlines()
        return [tuple(c.strip() for c in line.strip("|").split("|")) for line in inside[2:]]

    def rewritten(self, page: str) -> str:
        """The page with a new table."""
        begin, end = self._ends
        before, rest = page.split(begin, 1)
        _, after = rest.split(end, 1)
        return f"{before}{begin}\n\n{self.text(self.rows())}\n\n{end}{after}"


if __name__ == "__main__":
    for name in _WRITERS:
        table: Table = import_module(f"tests.{name}").TABLE
        page = table.path.read_text(encoding="utf-8")
        table.path.write_text(table.rewritten(page), encoding="utf-8")
        sys.stdout.write(f"{table.path}: {len(table.written())} rows\n")
