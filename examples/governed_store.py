"""A LangGraph store that learns which of its items help: search it as before, in any node or tool.

Run it: python examples/governed_store.py
"""

from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from langchain_memoryworth import (
    GovernedStore,
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    Policy,
)

embedding = DeterministicFakeEmbedding(size=64)
inner = InMemoryStore(index={"dims": 64, "embed": embedding, "fields": ["text"]})
inner.put(("facts",), "stale", {"text": "Prague is the capital of Czechoslovakia."})
inner.put(("facts",), "fresh", {"text": "Prague is the capital of the Czech Republic."})
# The paper's rule acts on few outcomes, and in a store of so few memories; the default is more careful.
store = GovernedStore(inner, MemoryWorthStore("sqlite://", embedding, policy=Policy.paper(v_min=3)))


def answer(state: MessagesState, *, store: BaseStore) -> dict:
    """Answer from the memory that is nearest."""
    found = store.search(("facts",), query=state["messages"][-1].content, limit=1)
    return {"messages": [("ai", found[0].value["text"])]}


graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile(store=store)
handler = MemoryWorthCallbackHandler(store, lambda run: "Republic" in str(run.outputs["messages"]))
for _ in range(4):
    result = graph.invoke(
        {"messages": ["Prague is the capital of Czechoslovakia."]}, {"callbacks": [handler]}
    )
    print(result["messages"][-1].content)
print([memory.id for memory in store.suppressed()])
