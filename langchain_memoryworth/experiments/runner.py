"""Run seeds, in two processes at most, and keep every result for the next run to go on from."""

from __future__ import annotations

import hashlib
import inspect
import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from langchain_memoryworth import policy
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators import credit, evidence
from langchain_memoryworth.experiments import report, simulator
from langchain_memoryworth.experiments.experiment import Experiment, Results
from langchain_memoryworth.experiments.extras import optional
from langchain_memoryworth.experiments.registry import EXPERIMENTS, named
from langchain_memoryworth.progress import Progress, unwatched

WORKERS = 2
"""Processes at most."""


@dataclass(frozen=True, slots=True)
class Job:
    """One seed of one experiment: all that a worker needs, and where its result goes."""

    experiment: str
    seed: int
    episodes: int
    path: Path


def run(
    experiments: Sequence[str],
    seeds: int,
    out: Path,
    episodes: int | None = None,
    *,
    progress: Progress = unwatched,
) -> Path:
    """Run experiments of the paper and write their figures, curves and page.

    Every seed is kept in `out/cache` and not run again with the same parameters, code and version.

    Args:
        experiments: Names of the registry, or `all`.
        seeds: Number of seeds, at least 1: they are 0 to seeds - 1.
        out: Folder for the results, made if missing.
        episodes: Episodes per seed, at least 1; the paper's number if None.
        progress: Told how many seeds are done.

    Returns:
        The page: `<out>.md` if it exists and has the markers of `report`, else `out/report.md`.

    Raises:
        InvalidInputError: For an unknown experiment, no seed or no episode.
        MissingExtraError: If matplotlib or scipy is not installed, or what an experiment needs.
    """
    chosen = named(experiments)
    if seeds < 1 or (episodes is not None and episodes < 1):
        raise InvalidInputError(
            f"seeds and episodes must be at least 1, got {seeds} and {episodes}",
            value=(seeds, episodes),
        )
    for module in ("scipy.stats", "matplotlib"):
        optional(module)  # before minutes of work, not after
    for experiment in chosen:
        experiment.ready()
    cache = _cache(out)
    jobs = {e.name: plan(e, seeds, episodes or e.episodes, cache) for e in chosen}
    _complete([job for planned in jobs.values() for job in planned], progress)
    stamp = report.Stamp(seeds, package_version(), datetime.now(UTC).date())
    entries = []
    for experiment in chosen:
        length = episodes or experiment.episodes
        section = experiment.describe(load(jobs[experiment.name]), length)
        entries.append(report.Entry(experiment, section, length, stamp))
    return report.write(entries, out)


def package_version() -> str:
    """Version of this package, or `unknown` where it runs without being installed."""
    try:
        return version("langchain-memoryworth")
    except PackageNotFoundError:
        return "unknown"


def key(experiment: Experiment, episodes: int) -> str:
    """Digest of what a result depends on: parameters, version, and the code that computes it."""
    modules = (inspect.getmodule(experiment.simulate), simulator, credit, evidence, policy)
    sources = [inspect.getsource(module) for module in modules if module is not None]
    parts = [experiment.name, episodes, repr(experiment.parameters), package_version(), *sources]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def plan(experiment: Experiment, seeds: int, episodes: int, cache: Path) -> list[Job]:
    """The jobs of the first seeds; the key is taken once, should the code be edited meanwhile."""
    digest = key(experiment, episodes)
    return [
        Job(experiment.name, seed, episodes, cache / f"{experiment.name}-{seed:03d}-{digest}.json")
        for seed in range(seeds)
    ]


def load(jobs: Sequence[Job]) -> Results:
    """The results of finished jobs of one experiment, stacked along a new first axis."""
    documents = [json.loads(job.path.read_text(encoding="utf-8")) for job in jobs]
    return {
        name: np.array([document[name] for document in documents], dtype=np.float64)
        for name in documents[0]
    }


def compute(job: Job) -> None:
    """Run one seed and keep its result; runs in a worker."""
    measured = EXPERIMENTS[job.experiment].simulate(job.seed, job.episodes)
    document = {name: np.asarray(value).tolist() for name, value in measured.items()}
    partial = job.path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps(document), encoding="utf-8")
    partial.replace(job.path)  # a result is there as a whole or not at all


def _cache(out: Path) -> Path:
    cache = out / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / ".gitignore").write_text("*\n", encoding="utf-8")
    return cache


def _complete(jobs: Sequence[Job], progress: Progress) -> None:
    missing = [job for job in jobs if not job.path.exists()]
    progress("seeds", len(jobs) - len(missing), len(jobs))
    for done, _ in enumerate(_finished(missing), len(jobs) - len(missing) + 1):
        progress("seeds", done, len(jobs))


def _finished(jobs: Sequence[Job]) -> Iterator[Job]:
    """Run jobs and give each as it finishes."""
    if len(jobs) < WORKERS:  # not worth a process
        for job in jobs:
            compute(job)
            yield job
        return
    # Spawned, because forking a process that has threads (torch, a test runner) can hang.
    context = multiprocessing.get_context("spawn")
    with _one_thread(), ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        futures = {pool.submit(compute, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)  # what is finished is kept


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let the workers start with one thread each: numpy reads the variable when it is imported."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
