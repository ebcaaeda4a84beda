"""The runner: seeds are kept, resumed, keyed by what they depend on, and run in two processes."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os

import numpy as np
import pytest

from langchain_memoryworth.errors import InvalidInputError, MissingExtraError
from langchain_memoryworth.experiments import EXPERIMENTS, report, run, runner
from langchain_memoryworth.experiments.experiment import (
    Comparison,
    Curve,
    Experiment,
    Figure,
    Level,
    Mark,
    Panel,
    Section,
)
from langchain_memoryworth.experiments.published import Published

calls: list[tuple[int, int]] = []


def simulate(seed: int, episodes: int):
    calls.append((seed, episodes))
    return {"value": np.random.default_rng(seed).random(3), "length": episodes}


def describe(results, episodes):
    x = np.array([1, 2, 3])
    panel = Panel("a", "y", (Curve("c", x, results["value"]),), (Mark(3, 0.5),), (Level(0.4, "θ"),))
    return Section(
        setup=f"toy of {episodes}",
        comparisons=(Comparison("q", Published(0.5, "p. 1"), results["value"][:, -1]),),
        figures=(Figure("toy", "a toy", (panel,)),),
    )


@pytest.fixture
def toy(monkeypatch) -> Experiment:
    experiment = Experiment("toy", "Toy", simulate, describe, episodes=7)
    monkeypatch.setitem(EXPERIMENTS, "toy", experiment)
    monkeypatch.setattr(runner, "WORKERS", 99)  # in this process: a worker does not know the toy
    calls.clear()
    return experiment


def test_a_run_leaves_page_figures_and_curves(toy, tmp_path):
    page = run(["toy"], seeds=2, out=tmp_path)
    assert page == tmp_path / "report.md"
    assert "## Toy" in page.read_text(encoding="utf-8")
    assert "Seeds 0 to 1, 7 episodes each" in page.read_text(encoding="utf-8")
    assert {"toy.png", "toy.svg", "toy.csv"} <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "cache" / ".gitignore").read_text(encoding="utf-8") == "*\n"


@pytest.fixture
def undrawn(monkeypatch) -> None:
    """Drawing takes most of the time of a toy, and is tested elsewhere."""
    monkeypatch.setattr(report, "draw", lambda *_: None)


@pytest.mark.usefixtures("undrawn")
def test_an_interrupted_run_goes_on_where_it_stopped(toy, tmp_path, monkeypatch):
    def interrupted(seed, episodes):
        if seed == 2:
            raise KeyboardInterrupt
        return simulate(seed, episodes)

    broken = dataclasses.replace(toy, simulate=interrupted)
    monkeypatch.setitem(EXPERIMENTS, "toy", broken)
    with pytest.raises(KeyboardInterrupt):
        run(["toy"], seeds=4, out=tmp_path)
    assert [seed for seed, _ in calls] == [0, 1]
    monkeypatch.setitem(EXPERIMENTS, "toy", toy)
    run(["toy"], seeds=4, out=tmp_path)
    assert [seed for seed, _ in calls] == [0, 1, 2, 3]
    assert not list((tmp_path / "cache").glob("*.partial"))


@pytest.mark.usefixtures("undrawn")
def test_more_seeds_keep_the_first_ones(toy, tmp_path):
    run(["toy"], seeds=2, out=tmp_path)
    run(["toy"], seeds=3, out=tmp_path)
    assert [seed for seed, _ in calls] == [0, 1, 2]


@pytest.mark.usefixtures("undrawn")
def test_other_episodes_parameters_or_versions_are_run_again(toy, tmp_path, monkeypatch):
    run(["toy"], seeds=1, out=tmp_path)
    run(["toy"], seeds=1, out=tmp_path, episodes=9)
    other = dataclasses.replace(toy, parameters={"k": 9})
    monkeypatch.setitem(EXPERIMENTS, "toy", other)
    run(["toy"], seeds=1, out=tmp_path)
    monkeypatch.setattr(runner, "package_version", lambda: "9.9")
    run(["toy"], seeds=1, out=tmp_path)
    assert calls == [(0, 7), (0, 9), (0, 7), (0, 7)]


def test_results_survive_the_cache_to_the_last_bit(toy, tmp_path):
    jobs = runner.plan(toy, 2, 7, tmp_path)
    for job in jobs:
        runner.compute(job)
    results = runner.load(jobs)
    expected = [np.random.default_rng(seed).random(3) for seed in (0, 1)]
    assert np.array_equal(results["value"], expected)
    assert results["length"].tolist() == [7.0, 7.0]


@pytest.mark.usefixtures("undrawn")
def test_two_processes_give_what_one_gives(tmp_path, monkeypatch):
    before = os.environ.get("OMP_NUM_THREADS")
    run(["4"], seeds=2, out=tmp_path / "two", episodes=200)
    assert os.environ.get("OMP_NUM_THREADS") == before
    monkeypatch.setattr(runner, "WORKERS", 99)
    run(["4"], seeds=2, out=tmp_path / "one", episodes=200)

    def results(name):
        files = sorted((tmp_path / name / "cache").glob("*.json"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    assert results("two") == results("one")
    csv = "figure4.csv"
    assert (tmp_path / "two" / csv).read_bytes() == (tmp_path / "one" / csv).read_bytes()


def test_the_thread_limit_is_put_back(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with runner._one_thread():
        assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "3"
    monkeypatch.delenv("OMP_NUM_THREADS")
    with runner._one_thread():
        pass
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize("names", [["6"], [], ["1", "nonsense"]])
def test_an_unknown_experiment_is_named(names, tmp_path):
    with pytest.raises(InvalidInputError, match="there are 1, 2, 3, 4"):
        run(names, seeds=1, out=tmp_path)


@pytest.mark.parametrize(("seeds", "episodes"), [(0, None), (1, 0)])
def test_nothing_to_run_is_refused(seeds, episodes, tmp_path):
    with pytest.raises(InvalidInputError, match="at least 1"):
        run(["4"], seeds=seeds, out=tmp_path, episodes=episodes)


@pytest.mark.parametrize("module", ["scipy", "matplotlib"])
def test_a_missing_extra_is_named_before_anything_runs(toy, tmp_path, monkeypatch, module):
    real = importlib.import_module

    def missing(name, package=None):
        if name.partition(".")[0] == module:
            raise ModuleNotFoundError(name)
        return real(name, package)

    monkeypatch.setattr("langchain_memoryworth.experiments.extras.import_module", missing)
    with pytest.raises(MissingExtraError, match=rf"'{module}'.*\[paper\]") as caught:
        run(["toy"], seeds=1, out=tmp_path)
    assert caught.value.extra == "paper"
    assert not calls


def test_a_package_that_is_not_installed_has_no_version(monkeypatch):
    def unknown(name):
        raise runner.PackageNotFoundError(name)

    monkeypatch.setattr(runner, "version", unknown)
    assert runner.package_version() == "unknown"


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_every_registered_experiment_has_a_name_a_page_and_json_results(name):
    experiment = EXPERIMENTS[name]
    assert experiment.name == name
    json.dumps({k: np.asarray(v).tolist() for k, v in experiment.simulate(0, 20).items()})
    assert experiment.simulate.__module__.startswith("langchain_memoryworth.experiments.")
