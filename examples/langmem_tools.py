"""langmem's tools on a governed store: the agent's own memories, and which of them mislead it.

Run it: python examples/langmem_tools.py    (needs langmem and langchain)
"""

from langchain.agents import create_agent
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore
from langmem import create_manage_memory_tool, create_search_memory_tool

from langchain_memoryworth import GovernedStore, MemoryWorthCallbackHandler, MemoryWorthStore


class Model(FakeMessagesListChatModel):
    """Stands in for a chat model."""

    bind_tools = lambda self, *_, **__: self  # noqa: E731


embedding = DeterministicFakeEmbedding(size=64)
inner = InMemoryStore(index={"dims": 64, "embed": embedding, "fields": ["content"]})
store = GovernedStore(inner, MemoryWorthStore("sqlite://", embedding))

place = ("memories", "{user}")
remember = {"name": "manage_memory", "args": {"content": "Ada flies from Prague"}, "id": "1"}
look = {"name": "search_memory", "args": {"query": "where from?"}, "id": "2"}
turns = [AIMessage("", tool_calls=[remember]), AIMessage("noted")]
turns += [AIMessage("", tool_calls=[look]), AIMessage("From Prague.")]
tools = [create_manage_memory_tool(place), create_search_memory_tool(place)]
agent = create_agent(Model(responses=turns), tools, store=store)

handler = MemoryWorthCallbackHandler(store)
config = {"callbacks": [handler], "configurable": {"user": "ada"}}
for question in ("I live in Prague now.", "Where do I fly from?"):
    print(agent.invoke({"messages": [("user", question)]}, config)["messages"][-1].content)
store.record_outcome(handler.last_episode_id, True)  # thumbs up
print({memory.id: str(memory.evidence) for memory in store.memories()})
