"""Every example runs, offline, and shows what it says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

SHOWN = {
    "chain_with_handler": "suppressed: worth 0.000 over 3 retrievals",
    "delayed_feedback": "hits-=1.000",
    "episode_outside_one_run": "pipeline Evidence(worth=1.000",
    "graph_nodes": "pipeline Evidence(worth=1.000, hits+=0.990",
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_says(name: str, capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert SHOWN[name] in capsys.readouterr().out


def test_a_stale_memory_gives_way_in_the_chain(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(EXAMPLES / "chain_with_handler.py"), run_name="__main__")
    answers = [
        line[:46].strip() for line in capsys.readouterr().out.splitlines() if "stale:" in line
    ]
    assert answers[:3] == ["Prague is a city in Czechoslovakia."] * 3
    assert answers[3:] == ["The Czech Republic has Prague as its capital."] * 2
