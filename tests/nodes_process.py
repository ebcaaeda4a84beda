"""One process of a graph with memories that stops and goes on elsewhere: python -m tests.nodes_process URL SAVER begin|resume."""

from __future__ import annotations

import sys
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

from langchain_memoryworth import MemoryWorthStore
from tests.fakes import HashedWords
from tests.nodes_fixtures import State, built, outcome, recall


def ask(state: State) -> Any:
    return {"success": interrupt("Was it right?")}


def main(url: str, saver: str, step: str) -> None:
    with MemoryWorthStore(url, HashedWords()) as store, SqliteSaver.from_conn_string(saver) as kept:
        nodes = (
            ("recall", recall(store)),
            ("ask", ask),
            ("more", recall(store, lambda s: "bread")),
            ("outcome", outcome(store)),
        )
        config: Any = {"configurable": {"thread_id": "t"}}
        given: Any = {"query": "apple"} if step == "begin" else Command(resume=True)
        built(*nodes).compile(checkpointer=kept).invoke(given, config)


if __name__ == "__main__":
    main(*sys.argv[1:])
