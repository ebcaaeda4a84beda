"""What the tests of faults count, one JSON line each, in the file that `MEMORYWORTH_TALLY` names; nowhere without it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple


class Tally(NamedTuple):
    """The counters of one run of one test.

    Attributes:
        test: Its name.
        engine: Of the database.
        faults: How often the fault happened.
        acknowledged: Writes that a caller was told of as done.
        lost: Those of them that are not there afterwards.
        twice: Those that are there more than once.
    """

    test: str
    engine: str
    faults: int
    acknowledged: int
    lost: int
    twice: int


def tally(url: str, *, faults: int, acknowledged: int, lost: int, twice: int) -> None:
    """Write down what a test has counted; then it has to be nothing that was lost or came twice."""
    file = os.environ.get("MEMORYWORTH_TALLY")
    if file is not None:
        test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].partition("[")[0].split(" ")[0]
        line = Tally(
            test, url.partition(":")[0].partition("+")[0], faults, acknowledged, lost, twice
        )
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line._asdict()) + "\n")
    assert (lost, twice) == (0, 0)


def read(file: Path) -> list[Tally]:
    """All that was written down; nothing if there is no such file."""
    if not file.exists():
        return []
    return [Tally(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
