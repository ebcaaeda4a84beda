"""What the tests of agents share: a chat model that answers by what it is asked, and remembers it; ways to call an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

THREAD = {"configurable": {"thread_id": "t"}}
Go = Callable[..., Any]


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"{where} is what there is"


@tool
def fails(where: str) -> str:
    """Break."""
    raise LookupError(where)


def echo() -> Answering:
    return Answering(answer=lambda messages: f"about {messages[-1].text}")


def ask(word: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(word)]}


class Answering(BaseChatModel):
    """Answers by a function of the messages; one instance serves any number of runs at once."""

    answer: Callable[[Sequence[BaseMessage]], AIMessage | str]
    prompts: list[list[BaseMessage]] = []  # noqa: RUF012 - pydantic copies it for each instance

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.prompts.append(list(messages))
        said = self.answer(messages)
        message = AIMessage(said) if isinstance(said, str) else said.model_copy()
        return ChatResult(generations=[ChatGeneration(message=message)])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Answering:
        return self

    @property
    def _llm_type(self) -> str:
        return "answering"

    @property
    def systems(self) -> list[str]:
        """The system prompts that it got."""
        return [" ".join(m.text for m in p if m.type == "system") for p in self.prompts]


def calls(name: str, **arguments: Any) -> AIMessage:
    """A model's wish to call a tool."""
    return AIMessage("", tool_calls=[ToolCall(name=name, args=arguments, id=f"call-{name}")])


def first_then(wish: AIMessage, answer: str = "done") -> Answering:
    """Calls a tool at first, and answers when the tool has spoken."""
    return Answering(answer=lambda ms: answer if ms[-1].type == "tool" else wish)


def _invoke(agent: Any, *args: Any, **kwargs: Any) -> Any:
    return agent.invoke(*args, **kwargs)


def _ainvoke(agent: Any, *args: Any, **kwargs: Any) -> Any:
    return asyncio.run(agent.ainvoke(*args, **kwargs))


def _stream(agent: Any, *args: Any, **kwargs: Any) -> Any:
    return list(agent.stream(*args, stream_mode="values", **kwargs))[-1]


def _astream(agent: Any, *args: Any, **kwargs: Any) -> Any:
    async def last() -> Any:
        return [v async for v in agent.astream(*args, stream_mode="values", **kwargs)][-1]

    return asyncio.run(last())


WAYS: dict[str, Go] = {
    "invoke": _invoke,
    "ainvoke": _ainvoke,
    "stream": _stream,
    "astream": _astream,
}
