"""An agent with memories: recalled for each turn, put into the prompt, and judged when a person rejects what it does.

Run it: python examples/agent_middleware.py
"""

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_memoryworth import MemoryWorthMiddleware, MemoryWorthStore, rejections_as_failure


class Model(FakeMessagesListChatModel):
    """Stands in for a chat model that does what its memories say."""

    bind_tools = lambda self, *_, **__: self  # noqa: E731


def deploy(command: str) -> str:
    """Run a deploy command."""
    return f"ran {command}"


wish = AIMessage("", tool_calls=[{"name": "deploy", "args": {"command": "deploy.sh"}, "id": "1"}])
model = Model(responses=[wish, AIMessage("Then I leave it.")])
store = MemoryWorthStore("sqlite://", DeterministicFakeEmbedding(size=32))
store.add_texts(["Deploys are done with tools/deploy.sh."], ids=["script"])
memories = MemoryWorthMiddleware(store, outcome=rejections_as_failure(), tools=["remember"])
approval = HumanInTheLoopMiddleware({"deploy": True})
agent = create_agent(model, [deploy], middleware=[memories, approval], checkpointer=InMemorySaver())

thread = {"configurable": {"thread_id": "1"}}
agent.invoke({"messages": "Deploy it, please."}, thread)
agent.invoke(Command(resume={"decisions": [{"type": "reject"}]}), thread)
print(store.evidence("script"))
