"""The middleware in deep agents, and in an agent that goes on in another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deepagents import create_deep_agent

from langchain_memoryworth import MemoryWorthMiddleware
from tests.agents_fixtures import WAYS, Answering
from tests.conftest import StoreMaker
from tests.runs_fixtures import Judge, credits_of, filled, rewards


@pytest.mark.parametrize("way", WAYS)
def test_it_works_in_deep_agents(make_store: StoreMaker, way: str) -> None:
    store = filled(make_store())
    model = Answering(answer=lambda messages: f"about {messages[-1].text}")
    agent = create_deep_agent(
        model=model, middleware=[MemoryWorthMiddleware(store, k=1, outcome=Judge())]
    )

    WAYS[way](agent, {"messages": "apple"})

    assert '<memory id="apple">' in model.systems[0]
    assert credits_of(store) == {"apple": 1}
    assert store.health().ok


def test_an_interrupted_turn_goes_on_in_another_process(
    make_store: StoreMaker, file_url: str, tmp_path: Path
) -> None:
    store = filled(make_store(file_url))

    def process(step: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.agent_process", file_url, tmp_path / "saver.db", step],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    begun, ended = process("begin"), process("reject")

    assert (begun[0], ended[0]) == ("interrupted", "ended")
    assert begun[1] == ended[1]
    assert rewards(store) == {ended[1]: 0.0}
    assert credits_of(store) == {"apple": 1}
