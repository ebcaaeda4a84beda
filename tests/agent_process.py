"""One process of an agent that is interrupted and goes on elsewhere: python -m tests.agent_process URL SAVER begin|reject."""

from __future__ import annotations

import sys

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from langchain_memoryworth import MemoryWorthMiddleware, MemoryWorthStore, rejections_as_failure
from tests.agents_fixtures import calls, first_then
from tests.fakes import HashedWords


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def main(url: str, saver: str, step: str) -> None:
    with MemoryWorthStore(url, HashedWords()) as store, SqliteSaver.from_conn_string(saver) as kept:
        agent = create_agent(
            first_then(calls("send", text="apple")),
            [send],
            middleware=[
                MemoryWorthMiddleware(store, k=1, outcome=rejections_as_failure()),
                HumanInTheLoopMiddleware({"send": True}),
            ],
            checkpointer=kept,
        )
        given = (
            {"messages": "send apple"}
            if step == "begin"
            else Command(resume={"decisions": [{"type": "reject"}]})
        )
        config = {"configurable": {"thread_id": "t"}}
        result = agent.invoke(given, config)
        print("interrupted" if "__interrupt__" in result else "ended")
        print(MemoryWorthMiddleware.episode_id(agent.get_state(config)))


if __name__ == "__main__":
    main(*sys.argv[1:])
