"""Two nodes for any LangGraph graph: one recalls memories into the state, one says how it went.

What joins them is the episode's id in the state. So it goes wherever the state goes: through checkpoints, interrupts and
subgraphs, and into another process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast
from uuid import NAMESPACE_OID, uuid4, uuid5

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config, run_in_executor
from langgraph.runtime import get_runtime

from langchain_memoryworth.adapters.graph_state import (
    From,
    carried_episode,
    declared,
    tools_called,
    value_of,
)
from langchain_memoryworth.adapters.recaller import Recaller, named_episode
from langchain_memoryworth.adapters.retriever import MemoryWorthRetriever
from langchain_memoryworth.errors import InvalidInputError, StateKeyError, UnknownRunError
from langchain_memoryworth.outcomes.judges import Judgement
from langchain_memoryworth.records import EpisodeKey, Namespace, Outcome
from langchain_memoryworth.service.governor import governor_of
from langchain_memoryworth.service.namespaces import checked
from langchain_memoryworth.tracking.lifecycle import is_control_flow


class RecallNode(Runnable[Any, dict[str, Any]]):
    """A node that puts memories into the state, and the id of the episode that they belong to.

    If the state carries an episode, it joins that one, so that a loop is one episode. Otherwise one begins, which is the
    same for every attempt at this step of the graph and for all nodes beside it. A recording that fails never breaks
    the run, it is counted in `store.health()`; a search that fails raises, for a `RetryPolicy` to deal with.

    Args:
        store: The store.
        query: Key or function of the state for what is looked for; nothing is recalled for None or an empty text.
        k: How many memories, for the store's own retriever.
        namespace: Where that looks: segments, in which `{name}` is filled in from the runtime's context, the run's
            metadata or its configurable; or a function of the state. None means the store's own.
        retriever: Another one, such as `store.as_retriever(...)`, `govern(...)` or one of yours.
        documents: Key that gets the documents; None for nowhere.
        ids: Key that gets their ids; None for nowhere.
        episode: Key that carries the episode's id. The state's schema must have all three.
        name: Of the node.

    Raises:
        InvalidInputError: If an argument cannot be meant; in a run, if the query is no text.
        StateKeyError: In a run, if the state has not one of the keys.

    Examples:
        >>> from typing import TypedDict
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph.graph import START, StateGraph
        >>> from langchain_memoryworth import MemoryWorthStore
        >>> class State(TypedDict, total=False):
        ...     question: str
        ...     documents: list
        ...     episode_id: str | None
        ...     answer: str
        >>> store = MemoryWorthStore("sqlite://", DeterministicFakeEmbedding(size=8))
        >>> [memory_id] = store.add_texts(["the answer is 42"])
        >>> def answer(state):
        ...     return {"answer": state["documents"][0].page_content}
        >>> recall = RecallNode(store, "question", ids=None)
        >>> outcome = OutcomeNode(store, lambda state: "42" in state["answer"])
        >>> builder = StateGraph(State).add_sequence([recall, answer, outcome]).add_edge(START, "recall")
        >>> builder.compile().invoke({"question": "what is the answer?"})["answer"]
        'the answer is 42'
        >>> store.worth(memory_id)
        1.0
    """

    def __init__(
        self,
        store: Any,
        query: From,
        *,
        k: int = 4,
        namespace: Sequence[str] | str | Callable[[Any], Sequence[str] | str] | None = None,
        retriever: BaseRetriever | None = None,
        documents: str | None = "documents",
        ids: str | None = "memory_ids",
        episode: str = "episode_id",
        name: str = "recall",
    ) -> None:
        governor = governor_of(store)
        self.name = self.__name__ = name  # `add_node` reads the one, `add_sequence` the other
        self._query = _source("query", query)
        self._episode = _key("episode", episode)
        self._documents = None if documents is None else _key("documents", documents)
        self._ids = None if ids is None else _key("ids", ids)
        _distinct(self._documents, self._ids, self._episode)
        self._namespace = _plain("namespace", namespace) if callable(namespace) else None
        fixed = None if namespace is None or callable(namespace) else checked(namespace)
        if retriever is not None and not isinstance(retriever, BaseRetriever):
            raise InvalidInputError(
                f"retriever={retriever!r}; give a retriever of LangChain", value=retriever
            )
        if not isinstance(k, int) or k < 1:
            raise InvalidInputError(f"k={k!r}; give a whole number of at least 1", value=k)
        own = retriever or MemoryWorthRetriever(store=governor, k=k)
        if namespace is not None and not isinstance(own, MemoryWorthRetriever):
            raise InvalidInputError(
                f"namespace={namespace!r} is for a retriever of the store; tell it to yours",
                value=namespace,
            )
        self._recaller = Recaller(governor, own, fixed)

    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Recall for a state; returns what is new in it."""
        asked = self._asked(input, config)
        if asked is None:
            return self._update([])
        found = self._recaller.recall(asked.key, asked.query, asked.namespace, config)
        return self._update(found, asked)

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """`invoke` that awaits the retriever."""
        asked = self._asked(input, config)
        if asked is None:
            return self._update([])
        found = await self._recaller.arecall(asked.key, asked.query, asked.namespace, config)
        return self._update(found, asked)

    def _asked(self, state: Any, config: RunnableConfig | None) -> _Asked | None:
        carried = carried_episode(state, config, self._episode)
        for written in (self._documents, self._ids):
            if written is not None:
                declared(state, config, written)
        query = value_of(state, self._query)
        if query is None or query == "":
            return None
        if not isinstance(query, str):
            raise InvalidInputError(
                f"the query is {query!r}; give a key of the state with text, or a function that returns one",
                value=query,
            )
        runtime = _runtime()
        episode_id = named_episode(ensure_config(config)) or carried or self._begun(runtime)
        namespace = (
            self._recaller.namespace(runtime, config)
            if self._namespace is None
            else checked(self._namespace(state))
        )
        key = self._recaller.key(episode_id, runtime)
        return _Asked(key, query, namespace, begins=episode_id != carried)

    def _begun(self, runtime: Any) -> str:
        # Of the step and not of this node's task: what is recalled beside it is in front of the same model.
        info = getattr(runtime, "execution_info", None)
        if info is None:
            return str(uuid4())
        return str(uuid5(NAMESPACE_OID, f"{info.checkpoint_id}/{self._episode}"))

    def _update(self, found: Sequence[Document], asked: _Asked | None = None) -> dict[str, Any]:
        update: dict[str, Any] = {}
        if self._documents is not None:
            update[self._documents] = list(found)
        if self._ids is not None:
            update[self._ids] = [d.id for d in found if d.id is not None]
        # Only what is new: nodes beside each other must not write the same key, unless it has a reducer.
        if asked is not None and asked.begins:
            update[self._episode] = asked.key.id
        return update


class OutcomeNode(Runnable[Any, dict[str, Any]]):
    """A node that says how the episode went which the state carries, and takes it out of the state.

    An outcome that is None, or a key that has no value yet, means that it is not known: the episode is over all the same,
    and waits for `store.record_outcome`. The same node run again says the same thing again, or corrects it. It never
    breaks the run: what cannot be recorded, and what the function raises, is counted in `store.health()`.

    Args:
        store: The store.
        outcome: Key or function of the state for True, False, a reward in [0, 1], an `Outcome`, or None; a mapping has one
            for each metric. A function may ask a person with `interrupt(...)`.
        used: Key or function of the state for the ids of the memories that were used, or None.
        episode: Key that carries the episode's id.
        source: Under which name outcomes are recorded.
        name: Of the node.

    Raises:
        InvalidInputError: If an argument cannot be meant.
        StateKeyError: In a run, if the state has not one of the keys.
    """

    def __init__(
        self,
        store: Any,
        outcome: From,
        *,
        used: From | None = None,
        episode: str = "episode_id",
        source: str = "node",
        name: str = "outcome",
    ) -> None:
        self._governor = governor_of(store)
        self.name = self.__name__ = name  # `add_node` reads the one, `add_sequence` the other
        self._outcome = _source("outcome", outcome)
        self._used = None if used is None else _source("used", used)
        self._episode = _key("episode", episode)
        self._source = _key("source", source)

    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Settle the episode of a state; returns what is new in it."""
        episode_id = carried_episode(input, config, self._episode)
        if episode_id is not None:
            self._settle(episode_id, input, config)
        return {self._episode: None}

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """`invoke` off the event loop: the function of the outcome may block."""
        return await run_in_executor(None, self.invoke, input, config)

    def _settle(self, episode_id: str, state: Any, config: RunnableConfig | None) -> None:
        try:
            judgement = self._judgement(state, config)
            with tools_called(self._governor, state) as path:
                self._governor.journal.record_judgement(
                    episode_id, judgement, source=self._source, path=path
                )
        except UnknownRunError:
            pass  # nothing was found for it, or what could not be written down is counted already
        except StateKeyError:
            raise
        # Whatever it is, the user's run is worth more than our record of it.
        except Exception as error:
            if is_control_flow(error):
                raise
            self._governor.losses.failed("an outcome", error)

    def _judgement(self, state: Any, config: RunnableConfig | None) -> Judgement:
        judgement = value_of(state, self._outcome, config)
        used = self._use(state, config)
        if used is None:
            return cast("Judgement", judgement)
        if isinstance(judgement, Mapping):
            return {metric: _using(o, used) for metric, o in judgement.items()}
        return _using(judgement, used)

    def _use(self, state: Any, config: RunnableConfig | None) -> Any:
        """What was used; a function that cannot say it does not cost the outcome."""
        if self._used is None:
            return None
        try:
            return value_of(state, self._used, config)
        except StateKeyError:
            raise
        except Exception as error:
            if is_control_flow(error):
                raise
            self._governor.losses.failed("what a run used", error)
            return None


class _Asked(NamedTuple):
    key: EpisodeKey
    query: str
    namespace: Namespace | None
    begins: bool


def _using(outcome: Any, used: Any) -> Outcome | None:
    if outcome is None or isinstance(outcome, Outcome):
        return outcome
    return Outcome(outcome, used)


# -- arguments -------------------------------------------------------------------------------------------------


def _runtime() -> Any:
    """The runtime of the graph that this is called in; None outside of one."""
    with suppress(RuntimeError, KeyError):
        return get_runtime()
    return None


def _key(name: str, key: Any) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidInputError(f"{name}={key!r}; give a text that is not empty", value=key)
    return key


def _distinct(*keys: str | None) -> None:
    given = [k for k in keys if k is not None]
    if len(set(given)) < len(given):
        raise InvalidInputError(
            f"documents, ids and episode are {given}; give each a key of its own", value=given
        )


def _plain(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if inspect.iscoroutinefunction(function):
        raise InvalidInputError(f"{name} is a coroutine function; give a plain one", value=function)
    return function


def _source(name: str, source: Any) -> From:
    return _plain(name, source) if callable(source) else _key(name, source)
