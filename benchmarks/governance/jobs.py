"""What there is to compute, each piece kept in a file as soon as it is done, so that a stopped run goes on."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.governance import (
    attribution,
    bars,
    calibration,
    cost,
    credit,
    diversity,
    facts,
    memento,
    ours,
    play,
    pools,
    recursive,
    rules,
    strata,
    trials,
    world,
)
from benchmarks.governance.centred import centred
from benchmarks.governance.learnt import Learnt
from benchmarks.governance.ours import ours as ours_under
from benchmarks.governance.play import SCENARIOS, closed, world_of
from benchmarks.governance.rules import COMPARATORS, Rule
from langchain_memoryworth import policy
from langchain_memoryworth.estimators import (
    base_rates,
    bonus,
    clusters,
    contexts,
    drift,
    effects,
    hitchhikers,
    lift,
    overlap,
    ridge,
)
from langchain_memoryworth.estimators import credit as shares
from langchain_memoryworth.estimators import strata as stratified
from langchain_memoryworth.outcomes import attribution as rules_of_use
from langchain_memoryworth.policy import Policy

EPISODES, SEEDS = 6_000, 20
FEW = 5
"""Seeds at most where every one is worked through by several estimators."""

RULES: dict[str, type[Rule]] = {
    **COMPARATORS,
    "**ours**": ours_under(Policy()),
    "worth as bonus, weight .3": centred(0.3),
    "worth as bonus, weight 1": centred(1.0),
    "ours, half-life 500": ours_under(Policy(), half_life=500.0),
    "ours, half-life 150": ours_under(Policy(), half_life=150.0),
    "ours, suppression only": ours_under(Policy(effect_weight=0.0)),
    "ours, contexts learnt": Learnt,
    "ours, without contexts": ours_under(Policy(), by_context=False),
}

_SOURCES: dict[str, tuple[ModuleType, ...]] = {
    "world": (world, facts, play, base_rates, bonus, contexts, drift, effects, policy),
    "bars": (
        bars,
        pools,
        strata,
        trials,
        recursive,
        effects,
        ridge,
        contexts,
        clusters,
        lift,
        stratified,
    ),
    "calibration": (calibration, pools, strata, ridge, lift, stratified),
    "diversity": (diversity, pools, effects, ridge, hitchhikers),
    "memento": (memento, clusters, effects),
    "cost": (cost, effects, contexts, hitchhikers),
    "credit": (credit, world, facts, play, rules, ours, bonus, effects, shares),
    "attribution": (attribution, rules_of_use, overlap),
}
"""The code behind each kind of result: it is computed anew when that changes."""


@dataclass(frozen=True, slots=True)
class Job:
    """One piece.

    Attributes:
        kind: `world`, `bars`, `calibration`, `diversity`, `credit`, `memento`, `attribution` or `cost`.
        name: Of the scenario, else empty.
        rule: Key of `RULES`, else empty.
        seeds: How many.
        episodes: Of each.
        folder: Of the log, for `memento` and `attribution`.
    """

    kind: str
    name: str = ""
    rule: str = ""
    seeds: int = SEEDS
    episodes: int = EPISODES
    folder: str = ""

    def run(self) -> Any:
        """The result as JSON has it."""
        return {
            "world": self._world,
            "bars": lambda: bars.measure(self.seeds, self.episodes),
            "diversity": lambda: [
                c._asdict() for c in diversity.cells(self.seeds, self._lengths())
            ],
            "memento": lambda: {n: s._asdict() for n, s in memento.scores(Path(self.folder))},
            "cost": cost.measure,
            "credit": lambda: credit.successes(self.seeds, self.episodes),
            "attribution": lambda: [f._asdict() for f in attribution.measure(Path(self.folder))],
            "calibration": lambda: calibration.correlations(
                self.seeds, min(10_000, 30 * self.episodes)
            ),
        }[self.kind]()

    def _lengths(self) -> tuple[int, ...]:
        return tuple(n for n in diversity.EPISODES if n <= self.episodes * 2) or (self.episodes,)

    def _world(self) -> dict[str, Any]:
        scenario = next(s for s in SCENARIOS if s.name == self.name)
        built = world_of(replace(scenario, episodes=self.episodes), self.seeds)
        played = play.play(built, RULES[self.rule])
        return {
            name: np.asarray(values).round(5).tolist() for name, values in played._asdict().items()
        }

    def file(self, folder: Path) -> Path:
        """Where the result is kept: another file after any change of the code."""
        sources = _sources(self.kind)
        if self.rule:
            modules = {base.__module__ for base in RULES[self.rule].__mro__[:-1]}
            sources += "".join(inspect.getsource(import_module(name)) for name in sorted(modules))
        digest = hashlib.sha256((repr(self) + sources).encode()).hexdigest()[:16]
        return folder / f"{self.kind}-{digest}.json"


@cache
def _sources(kind: str) -> str:
    return "".join(inspect.getsource(module) for module in _SOURCES[kind])


Results = dict[Job, Any]


def planned(seeds: int, episodes: int, log: Path | None) -> list[Job]:
    """All pieces of the page."""
    jobs = [
        Job("world", scenario.name, rule, seeds, episodes)
        for scenario in SCENARIOS
        for rule in RULES
    ]
    few = min(seeds, FEW)
    kinds = ("bars", "calibration", "diversity")
    jobs += [Job(kind, seeds=few, episodes=episodes) for kind in kinds]
    jobs += [Job("credit", seeds=seeds, episodes=episodes), Job("cost")]
    if log is not None:
        jobs += [Job(kind, folder=str(log)) for kind in ("memento", "attribution")]
    return jobs


def complete(
    jobs: Sequence[Job], folder: Path, *, workers: int, progress: Callable[[int, int], None]
) -> Results:
    """Run what is missing, in this process if there is one worker; the results of all jobs."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {job: job.file(folder) for job in jobs}
    missing = [job for job in jobs if not files[job].exists()]
    done = len(jobs) - len(missing)
    progress(done, len(jobs))
    for number, (job, result) in enumerate(_results(missing, workers), start=done + 1):
        part = files[job].with_suffix(".part")
        part.write_text(json.dumps(result))
        part.replace(files[job])
        progress(number, len(jobs))
    return {job: json.loads(file.read_text()) for job, file in files.items()}


def _results(jobs: Sequence[Job], workers: int) -> Iterator[tuple[Job, Any]]:
    if workers == 1:
        yield from ((job, job.run()) for job in jobs)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(job.run): job for job in jobs}
        yield from ((running[future], future.result()) for future in as_completed(running))


def only(results: Results, kind: str) -> Any:
    """The result of the one job of a kind; None if it was not run."""
    return next((result for job, result in results.items() if job.kind == kind), None)


def share_closed(results: Results, name: str, rule: str) -> np.ndarray:
    """Share of the regret that a rule closes in a world, one for each seed."""
    found = {job.rule: result for job, result in results.items() if job.name == name}
    played = [
        play.Played(*(np.array(found[r][f]) for f in play.Played._fields))
        for r in (rule, "plain similarity", "oracle")
    ]
    return closed(*played)
