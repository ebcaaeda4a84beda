"""What the tests of the graph nodes share: states, graphs with a recall and an outcome, ways to call them."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, TypedDict

from langchain_core.documents import Document
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from langchain_memoryworth import MemoryWorthStore, OutcomeNode, RecallNode

Call = Callable[..., Any]
CALLS: dict[str, Call] = {
    "sync": lambda graph, value, config, **more: graph.invoke(value, config, **more),
    "async": lambda graph, value, config, **more: asyncio.run(graph.ainvoke(value, config, **more)),
}


class State(TypedDict, total=False):
    query: str
    documents: list[Document]
    memory_ids: list[str]
    episode_id: str | None
    success: bool | float | None
    rounds: Annotated[list[str], operator.add]


class PydanticState(BaseModel):
    query: str
    documents: list[Document] = []
    memory_ids: list[str] = []
    episode_id: str | None = None
    success: bool | float | None = None


@dataclass
class DataclassState:
    query: str
    documents: list[Document] = field(default_factory=list)
    memory_ids: list[str] = field(default_factory=list)
    episode_id: str | None = None
    success: bool | float | None = None


class Together(TypedDict, total=False):
    """A state that nodes beside each other may write to."""

    query: str
    documents: Annotated[list[Document], operator.add]
    memory_ids: Annotated[list[str], operator.add]
    episode_id: Annotated[str | None, lambda before, now: now]
    success: bool | None


def succeed(state: Any) -> dict[str, Any]:
    return {"success": True}


def built(*nodes: tuple[str, Any], state: Any = State, **options: Any) -> Any:
    """Nodes one after the other."""
    builder = StateGraph(state)
    for name, node in nodes:
        builder.add_node(name, node, **options)
    builder.add_edge(START, nodes[0][0])
    for (a, _), (b, _) in pairwise(nodes):
        builder.add_edge(a, b)
    return builder


def recall(store: MemoryWorthStore, query: Any = "query", **options: Any) -> RecallNode:
    return RecallNode(store, query, **{"k": 1, **options})


def outcome(store: MemoryWorthStore, said: Any = "success", **options: Any) -> OutcomeNode:
    return OutcomeNode(store, said, **options)


def whole(store: MemoryWorthStore, *between: tuple[str, Any], state: Any = State) -> Any:
    """A recall, what comes between, success, an outcome."""
    return built(
        ("recall", recall(store)),
        *between,
        ("act", succeed),
        ("outcome", outcome(store)),
        state=state,
    )
