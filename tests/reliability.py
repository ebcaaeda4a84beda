"""Writes docs/reliability.md: what was killed or broken how often, and what was lost.

`python -m tests.reliability --kills 100 --outcomes 2000` runs the tests that count it, and makes the page of their counters. It
writes no page if one of them fails. With `--tally FILE` it goes on where it was stopped: what a test has counted is kept there.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.tally import Tally, read

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
CASES = {
    "test_concurrency.test_kill_9_loses_nothing_that_was_acknowledged": "`kill -9` of a writer at a random moment",
    "test_concurrency.test_a_kill_during_the_first_seconds_leaves_a_store_or_nothing": (
        "`kill -9` while the tables are made"
    ),
    "test_postgres.test_a_restart_in_the_middle_of_writers_loses_nothing_and_doubles_nothing": (
        "restart of the server under three writers"
    ),
    "test_postgres.test_a_commit_that_was_not_answered_is_written_once": (
        "connection lost while a commit is answered"
    ),
    "test_robustness.test_outcomes_until_the_disk_is_full_are_all_or_nothing": "disk full",
    "test_workers.test_a_clock_that_goes_backwards": "clock set back by 400 days",
    "test_concurrency.test_many_processes_open_one_fresh_database_at_once": (
        "migrations at once, in processes"
    ),
    "test_postgres.test_two_migrations_at_once_are_one": "migrations at once, in threads",
    "test_postgres.test_a_reader_during_a_migration_sees_all_of_it_or_nothing": (
        "reader in the middle of a migration"
    ),
    "test_workers.test_a_fork_shares_nothing": "fork with the store open, both go on writing",
    "test_workers.test_four_processes_with_duplicates_and_corrections": (
        "four processes at once, with duplicates, corrections and withdrawals"
    ),
}
"""The tests that count, and what they do; a fault is one kill, one restart, one refused write, one process."""

_HEAD = "| fault | database | how often | acknowledged | lost | twice | test |\n|---|---|---|---|---|---|---|"


def nodes() -> list[str]:
    """The cases as pytest names them."""
    return [f"tests/{file}.py::{test}" for file, test in (case.split(".") for case in CASES)]


def rows(tallies: Iterable[Tally]) -> list[str]:
    """The table's lines: each test on each database, its runs added up."""
    totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 4)
    for t in tallies:
        for i, value in enumerate((t.faults, t.acknowledged, t.lost, t.twice)):
            totals[t.test, t.engine][i] += value
    lines = []
    for case, what in CASES.items():
        file, test = case.split(".")
        for engine in ("sqlite", "postgresql"):
            if (test, engine) in totals:
                counts = " | ".join(f"{n:,}" for n in totals[test, engine])
                lines.append(f"| {what} | {engine} | {counts} | `tests/{file}.py::{test}` |")
    return lines


def page(tallies: Sequence[Tally], command: str) -> str:
    """The whole page."""
    missing = [case for case in CASES if case.split(".")[1] not in {t.test for t in tallies}]
    if missing:
        raise SystemExit(f"nothing was counted by {', '.join(missing)}")
    when = datetime.now(UTC).date()
    return "\n".join(
        [
            "# Reliability",
            "",
            (
                f"Written by `{command}` on {when}: Python {platform.python_version()}, "
                f"SQLAlchemy {version('sqlalchemy')}, psycopg {version('psycopg')}, {os.cpu_count()} cores, "
                f"{platform.system()}."
            ),
            "The numbers are those that the tests counted; where a test makes a fixed number of writes, that is what stands under",
            "*acknowledged*. The same tests run with smaller numbers in `make test`; `make soak` runs them with those of this page,",
            "and writes it.",
            "",
            _HEAD,
            *rows(tallies),
            "",
            "*Acknowledged* is what a caller was told of as done before the fault, or beside it. *Lost* is what of that was not in the",
            "database afterwards, *twice* what was there more than once. The tests of kills of a writer, restarts, lost connections, a full",
            "disk, clocks, forks and four processes also compare every counter with the fold of the ledger, to the last bit; after each kill of",
            "a writer SQLite is asked, too (`PRAGMA integrity_check`).",
            "",
            "A kill is that of the process: what it costs is nothing with either setting of `durability`. A power failure is not tested",
            'here; SQLite and Postgres promise to survive it with `durability="full"`.',
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of a writer, on each database")
    parser.add_argument("--outcomes", type=int, default=2_000, help="of each of four processes")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--tally", type=Path, help="keeps what was counted, to go on from there")
    given = parser.parse_args(arguments)
    command = f"python -m tests.reliability --kills {given.kills} --outcomes {given.outcomes}"
    with TemporaryDirectory(prefix="memoryworth-") as folder:
        kept = given.tally or Path(folder) / "tally.jsonl"
        for node in nodes():
            if node.partition("::")[2] not in {t.test for t in read(kept)}:
                counted = _counted(node, Path(folder) / "new.jsonl", given.kills, given.outcomes)
                with kept.open("a", encoding="utf-8") as lines:  # at once: never half of a test
                    lines.write(counted)
        given.out.write_text(page(read(kept), command), encoding="utf-8")
    sys.stdout.write(f"{given.out} written\n")


def _counted(node: str, new: Path, kills: int, outcomes: int) -> str:
    """What one test counts, on all databases."""
    environment = {
        **os.environ,
        "MEMORYWORTH_TALLY": str(new),
        "MEMORYWORTH_KILLS": str(kills),
        "MEMORYWORTH_OUTCOMES": str(outcomes),
    }
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--timeout=0", node]
    new.unlink(missing_ok=True)
    if subprocess.run(test, cwd=ROOT, env=environment).returncode:
        raise SystemExit(f"{node} failed; no page was written")
    return new.read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
