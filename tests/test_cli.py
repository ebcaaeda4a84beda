"""The command line as a user runs it: in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("langchain-memoryworth")


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, cwd=cwd, timeout=240, check=False
    )


def test_help_names_the_commands():
    done = run("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout


def test_version():
    assert run("version").stdout.strip() == version("langchain-memoryworth")
    assert json.loads(run("version", "--json").stdout) == {
        "version": version("langchain-memoryworth")
    }


def test_a_wrong_option_is_a_usage_error_without_a_traceback():
    done = run("demo", "--episodes", "none")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_missing_extra_names_the_pip_command():
    code = (
        "import sys; sys.modules['typer'] = None; "
        "from langchain_memoryworth.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'langchain-memoryworth[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_of_ours_is_one_line(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("this is no database" * 100)
    done = run(
        "demo", "--episodes", "1", "--database", f"sqlite:///{tmp_path}/notes.txt", cwd=tmp_path
    )
    assert done.returncode == 1
    assert "no SQLite file" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("plot", ["nowhere/demo.png", "."])
def test_a_plot_that_cannot_be_written_is_said_before_the_work_is_done(tmp_path: Path, plot: str):
    done = run("demo", "--plot", plot, "--database", f"{tmp_path}/kept.db", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {plot}: give a file in a folder that is there")
    assert list(tmp_path.iterdir()) == []


def test_a_short_demo_runs_to_its_end(tmp_path: Path):
    done = run("demo", "--episodes", "4", "--block", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Tasks done" in done.stdout
    assert done.stderr == ""
    assert (tmp_path / "memoryworth-demo.png").exists()
