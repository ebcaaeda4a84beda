"""Memories for agents of `langchain.agents.create_agent` and deepagents: recalled, put into the prompt, and judged.

The only module that knows `langchain.agents`. What belongs to one turn is in the agent's state, private and overwritten
by the next turn; the instance holds settings only, so that any number of runs may share it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from langgraph.runtime import get_runtime

from langchain_memoryworth.adapters.prompts import (
    DEFAULT_TEMPLATE,
    Template,
    checked_template,
    render,
    with_system,
)
from langchain_memoryworth.adapters.retriever import MemoryWorthRetriever
from langchain_memoryworth.adapters.turns import STATE_KEY, Turns, document_of, episode_id_of, plain
from langchain_memoryworth.adapters.write_back import ToolName, write_back_tools
from langchain_memoryworth.errors import InvalidInputError, MissingExtraError
from langchain_memoryworth.outcomes.attribution import Attribution
from langchain_memoryworth.outcomes.judges import (
    OutcomeFunction,
    check_rules,
    is_rejection,
    text_of,
)
from langchain_memoryworth.service.governor import governor_of
from langchain_memoryworth.service.namespaces import checked

try:
    from langchain.agents.middleware.types import AgentMiddleware, AgentState, PrivateStateAttr
except ImportError as error:
    raise MissingExtraError("agents", "langchain") from error


class MemoryWorthState(AgentState[Any]):
    """An agent's state with the turn it is in: the episode, and the memories recalled."""

    memory_worth: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class MemoryWorthMiddleware(AgentMiddleware[MemoryWorthState, Any, Any]):
    """Gives an agent its memories, and the memories their outcome.

    Each turn is an episode, also when it is interrupted and goes on in another process. It works with and without a
    `MemoryWorthCallbackHandler`: beside one, both speak of the same episode, and evidence is not doubled. It never
    raises into the agent's run: what fails is counted in `store.health()`, and the agent goes on without memories.

    Args:
        store: The store.
        retriever: What recalls, such as `store.as_retriever(...)`; by default the store's own with `k`.
        k: How many memories, for the default retriever.
        namespace: Where a retriever of the store looks, and the tools write; `{name}` is filled in from the runtime's
            context, the run's metadata or its configurable. None means the store's own.
        recall: Once for each run of the `agent`, or before each `model` call.
        query: From the agent's state to what is looked for, None for nothing; by default the last human message, or
            before each model call the message that the model answers.
        place: At the end of the `system` prompt, or in a `message` of its own before the last human one.
        template: A text with `{memories}` in it, or a function of the documents; see `prompts.render`.
        outcome: From the finished turn to what happened in it, as for the handler; also asked, with `run.error`, when
            a model or a tool raises. None means that outcomes come from a handler, or later by id.
        source: Under which name its outcomes are recorded.
        used: From the finished turn to the memories that it was made from, as for the handler.
        episode: One `turn`, or all turns of a `thread` until there is an outcome.
        tools: Tools for the agent to write its memory by: `remember`, `forget`.

    Raises:
        InvalidInputError: If an argument cannot be meant.

    Examples:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.language_models import FakeListChatModel
        >>> from langchain_memoryworth import MemoryWorthStore
        >>> store = MemoryWorthStore("sqlite://", DeterministicFakeEmbedding(size=8))
        >>> [memory_id] = store.add_texts(["the answer is 42"])
        >>> memories = MemoryWorthMiddleware(store, outcome=lambda run: "42" in run.outputs["messages"][-1].text)
        >>> agent = create_agent(FakeListChatModel(responses=["It is 42."]), middleware=[memories])
        >>> agent.invoke({"messages": "What is the answer?"})["messages"][-1].text
        'It is 42.'
        >>> store.worth(memory_id)
        1.0
    """

    state_schema = MemoryWorthState

    def __init__(
        self,
        store: Any,
        *,
        retriever: BaseRetriever | None = None,
        k: int = 4,
        namespace: Sequence[str] | str | None = None,
        recall: Literal["agent", "model"] = "agent",
        query: Callable[[Mapping[str, Any]], str | None] | None = None,
        place: Literal["system", "message"] = "system",
        template: Template = DEFAULT_TEMPLATE,
        outcome: OutcomeFunction | None = None,
        source: str = "middleware",
        used: Attribution | None = None,
        episode: Literal["turn", "thread"] = "turn",
        tools: Sequence[ToolName] = (),
    ) -> None:
        _one_of("recall", recall, ("agent", "model"))
        _one_of("place", place, ("system", "message"))
        _one_of("episode", episode, ("turn", "thread"))
        check_rules(source, outcome=outcome, used=used)
        governor = governor_of(store)
        self._turns = Turns(
            governor,
            retriever or MemoryWorthRetriever(store=governor, k=k),
            namespace=None if namespace is None else checked(namespace),
            spans=episode,
            outcome=outcome,
            source=source,
            used=used,
        )
        self._losses = governor.losses
        self._recall, self._place = recall, place
        self._query = query or (_last_human if recall == "agent" else _last_heard)
        self._template = checked_template(template)
        self.tools = write_back_tools(governor, tools, lambda: self._turns.namespace(get_runtime()))

    @staticmethod
    def episode_id(state: Any) -> str | None:
        """The episode of the last turn, by which an outcome can be recorded later.

        Args:
            state: The agent's state as `agent.get_state(config)` gives it, or as hooks and tools see it.
        """
        return episode_id_of(state if isinstance(state, Mapping) else state.values)

    # -- hooks ------------------------------------------------------------------------------------------------

    def before_agent(self, state: MemoryWorthState, runtime: Any) -> dict[str, Any]:
        """Begin the turn's episode, and recall if that is done once."""
        turn = self._turns.begin(state, runtime)
        if self._recall == "agent":
            turn["memories"] = plain(self._turns.recall(turn, self._ask(state), runtime))
        return {STATE_KEY: turn}

    async def abefore_agent(self, state: MemoryWorthState, runtime: Any) -> dict[str, Any]:
        """`before_agent` that awaits the retriever."""
        turn = await run_in_executor(None, self._turns.begin, state, runtime)
        if self._recall == "agent":
            turn["memories"] = plain(await self._turns.arecall(turn, self._ask(state), runtime))
        return {STATE_KEY: turn}

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Put the memories into the prompt."""
        turn = request.state.get(STATE_KEY) or {}
        documents = _documents(turn)
        if self._recall == "model":
            documents = self._turns.recall(turn, self._ask(request.state), request.runtime)
        asked = self._with_memories(request, turn, documents)
        try:
            return handler(asked)
        except Exception as error:
            self._turns.close(request.state, error)
            raise

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """`wrap_model_call` that awaits the retriever."""
        turn = request.state.get(STATE_KEY) or {}
        documents = _documents(turn)
        if self._recall == "model":
            documents = await self._turns.arecall(turn, self._ask(request.state), request.runtime)
        asked = await run_in_executor(None, self._with_memories, request, turn, documents)
        try:
            return await handler(asked)
        except Exception as error:
            await run_in_executor(None, self._turns.close, request.state, error)
            raise

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Let the outcome function see what a tool raises: `after_agent` is not called then."""
        try:
            return handler(request)
        except Exception as error:
            self._turns.close(request.state, error)
            raise

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """`wrap_tool_call` under async."""
        try:
            return await handler(request)
        except Exception as error:
            await run_in_executor(None, self._turns.close, request.state, error)
            raise

    def after_agent(self, state: MemoryWorthState, runtime: Any) -> None:
        """Ask the outcome function about the turn."""
        self._turns.close(state)

    async def aafter_agent(self, state: MemoryWorthState, runtime: Any) -> None:
        """`after_agent` off the event loop: an outcome function may block."""
        await run_in_executor(None, self._turns.close, state)

    # -- inside -----------------------------------------------------------------------------------------------

    def _ask(self, state: Mapping[str, Any]) -> str | None:
        with self._losses.guard("the query of a recall"):
            return self._query(state)
        return None

    def _with_memories(
        self, request: Any, turn: Mapping[str, Any], documents: Sequence[Document]
    ) -> Any:
        if not documents:
            return request
        with self._losses.guard("the prompt of a recall"):
            text = render(documents, self._template)
            if self._place == "system":
                return request.override(system_message=with_system(request.system_message, text))
            messages = list(request.messages)
            human = [i for i, m in enumerate(messages) if m.type == "human"]
            messages.insert(human[-1] if human else 0, HumanMessage(text))
            return request.override(messages=messages)
        self._turns.not_shown(turn, documents)
        return request


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidInputError(f"{name}={value!r}; there are {known}", value=value)


def _last_human(state: Mapping[str, Any]) -> str | None:
    return next((text_of(m) for m in reversed(state["messages"]) if m.type == "human"), None)


def _last_heard(state: Mapping[str, Any]) -> str | None:
    heard = (m for m in reversed(state["messages"]) if m.type in ("human", "tool"))
    # That a call was rejected says nothing of what is needed now.
    return next((text_of(m) for m in heard if not is_rejection(m)), None)


def _documents(turn: Mapping[str, Any]) -> list[Document]:
    return [document_of(m) for m in turn.get("memories", ())]
