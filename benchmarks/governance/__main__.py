"""Run the governance benchmark and write `docs/governance-benchmark.md` with its figure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.governance.jobs import EPISODES, SEEDS, complete, planned
from benchmarks.governance.losses import WITH_LOG
from benchmarks.governance.page import write

_PAGE = Path("docs/governance-benchmark.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.governance", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--memento", type=Path, help="folder with training_data.jsonl of Memento")
    parser.add_argument(
        "--out", type=Path, default=_PAGE, help="the page; the figure goes beside it"
    )
    parser.add_argument("--cache", type=Path, default=Path("build/governance"))
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    out: Path = given.out
    if given.memento is None and out.exists() and WITH_LOG in out.read_text(encoding="utf-8"):
        parser.error(
            f"{out} has the results of a log, which this run would lose: give --memento FOLDER, "
            "or the name of another page with --out"
        )
    jobs = planned(given.seeds, given.episodes, given.memento)
    results = complete(jobs, given.cache, workers=given.workers, progress=_bar)
    command = "python -m benchmarks.governance"
    if (given.seeds, given.episodes) != (SEEDS, EPISODES):
        command += f" --seeds {given.seeds} --episodes {given.episodes}"
    if given.memento is not None:
        command += " --memento FOLDER"
    write(results, out, command=command)
    print(f"{out} written")
    return 0


def _bar(done: int, total: int) -> None:
    filled = 40 * done // total
    print(
        f"\r[{'#' * filled}{'.' * (40 - filled)}] {done}/{total}",
        end="",
        file=sys.stderr,
        flush=True,
    )
    if done == total:
        print(file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
