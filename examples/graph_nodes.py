"""Two nodes in any graph: one recalls into the state, one says how it went. A loop between them is one episode.

Run it: python examples/graph_nodes.py
"""

from typing import TypedDict

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.graph import START, StateGraph

from langchain_memoryworth import MemoryWorthStore, OutcomeNode, RecallNode


class State(TypedDict, total=False):
    """What the nodes share; `documents`, `memory_ids` and `episode_id` are for the memories."""

    queries: list[str]
    documents: list[Document]
    memory_ids: list[str]
    episode_id: str | None
    deployed: bool


def act(state: State) -> State:
    """Stands in for a model that does what it reads, and looks for something else where that fails."""
    return {"deployed": "pipeline" in str(state["documents"]), "queries": state["queries"][1:]}


store = MemoryWorthStore("sqlite://", DeterministicFakeEmbedding(size=32))
store.add_texts(["Run deploy.sh.", "Start the pipeline."], ids=["script", "pipeline"])
builder = StateGraph(State).add_node("act", act)
builder.add_node("recall", RecallNode(store, lambda state: state["queries"][0], k=1))
builder.add_node("outcome", OutcomeNode(store, "deployed", used="memory_ids"))
builder.add_edge(START, "recall").add_edge("recall", "act")
builder.add_conditional_edges("act", lambda state: "outcome" if state["deployed"] else "recall")
builder.compile().invoke({"queries": ["Run deploy.sh.", "Start the pipeline."]})
for memory in store.memories():
    print(memory.id, memory.evidence)
