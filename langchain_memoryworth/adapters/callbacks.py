"""The callback handler: it knows which run is whose, what each one has in front of the model, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any, TypeVar, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook
from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent, GraphResumeEvent

from langchain_memoryworth.adapters.recorder import Recorder
from langchain_memoryworth.outcomes.attribution import Attribution
from langchain_memoryworth.outcomes.judges import OutcomeFunction, check_rules
from langchain_memoryworth.service.governor import governor_of

_Event = TypeVar("_Event", bound=Callable[..., None])


class _Patient:
    """A method that is a coroutine while there is more to write down than may wait, and a plain one otherwise.

    LangChain fetches the method of an event once and awaits it if it is a coroutine function: the one place where a run
    on an event loop can be made to wait for the database without stopping the loop.
    """

    def __init__(self, event: Callable[..., None]) -> None:
        self._event = event
        self.__doc__ = event.__doc__

    def __get__(self, handler: MemoryWorthCallbackHandler | None, owner: type) -> Any:
        if handler is None:
            return self._event
        method = MethodType(self._event, handler)
        outbox = handler._recorder.governor.outbox  # noqa: SLF001  # a part of its class
        if not outbox.full:
            return method

        async def later(*args: Any, **kwargs: Any) -> None:
            await outbox.room()
            method(*args, **kwargs)

        return later


def _patient(event: _Event) -> _Event:
    return cast("_Event", _Patient(event))


class MemoryWorthCallbackHandler(GraphCallbackHandler):
    """Attributes retrievals to runs, and turns the results of runs into outcomes.

    Attach it to the outermost call: `chain.invoke(question, config={"callbacks": [handler]})`. One handler serves any
    number of runs and threads at once. It never raises into a run; what it could not do is in `store.health()`.

    Args:
        store: The store whose memories are retrieved.
        outcome: From a finished run to True, False, a reward in [0, 1], an `Outcome`, or None for "not known". None
            in its place means that outcomes come later, through `store.record_outcome`.
        source: Under which name its outcomes are recorded.
        used: From a finished run to the memories that it was made from, such as `by_citation()`, or a weight for each, or
            None for "not known". It holds for every outcome of the run that does not say so itself, also one that comes later.

    Examples:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_memoryworth import MemoryWorthStore
        >>> store = MemoryWorthStore("sqlite://", DeterministicFakeEmbedding(size=8))
        >>> [memory_id] = store.add_texts(["the answer is 42"])
        >>> chain = store.as_retriever() | (lambda docs: docs[0].page_content)
        >>> handler = MemoryWorthCallbackHandler(store, outcome=lambda run: "42" in run.outputs)
        >>> chain.invoke("what is the answer?", config={"callbacks": [handler]})
        'the answer is 42'
        >>> store.worth(memory_id)
        1.0
    """

    # On the event loop's own thread: a hop to another thread costs more than all that is done here. The work on the
    # database goes through the outbox, which leaves that thread.
    run_inline = True
    raise_error = False

    # LangGraph tells it of interrupts and resumes.
    _told = True

    def __init__(
        self,
        store: Any,
        outcome: OutcomeFunction | None = None,
        *,
        source: str = "handler",
        used: Attribution | None = None,
    ) -> None:
        check_rules(source, outcome=outcome, used=used)
        self._recorder = Recorder(governor_of(store), outcome, source, used=used, told=self._told)

    @property
    def ignore_llm(self) -> bool:
        """Nothing is retrieved below a model."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        """Nothing is retrieved below a model."""
        return True

    @property
    def ignore_retry(self) -> bool:
        """Attempts are runs of their own."""
        return True

    @property
    def last_episode_id(self) -> str | None:
        """The episode of the last run that began in this thread or task, for feedback that comes later."""
        return self._recorder.last_episode_id

    def __repr__(self) -> str:
        recorder = self._recorder
        return f"MemoryWorthCallbackHandler({recorder.governor.url!r}, source={recorder.source!r})"

    # -- runs begin -------------------------------------------------------------------------------------------

    @_patient
    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain or graph begins."""
        self._recorder.begin(
            run_id,
            parent_run_id,
            inputs,
            tags,
            metadata,
            kwargs.get("name"),
            streamed="defers_inputs" in kwargs,
        )

    @_patient
    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool begins."""
        name = kwargs.get("name")  # of the run, which the user may have called otherwise
        self._recorder.begin(
            run_id,
            parent_run_id,
            inputs or input_str,
            tags,
            metadata,
            name,
            tool=str((serialized or {}).get("name") or name or "tool"),
        )

    @_patient
    def on_retriever_start(
        self,
        serialized: dict[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever begins."""
        self._recorder.begin(
            run_id, parent_run_id, query, tags, metadata, kwargs.get("name"), retriever=True
        )

    # -- documents --------------------------------------------------------------------------------------------

    @_patient
    def on_retriever_end(
        self,
        documents: Sequence[Document],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever gave documents; only what the outermost one gives can be in front of the model."""
        self._recorder.retrieved(run_id, documents)

    def on_retriever_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever failed; what its inner retrievers gave went nowhere."""
        self._recorder.retrieved(run_id, ())

    @_patient
    def on_custom_event(
        self,
        name: str,
        data: Any,
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """The run says which memories it used, or which were shown."""
        self._recorder.said(name, data, run_id)

    # -- stops and resumes ------------------------------------------------------------------------------------

    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        """A graph stops, to go on later; its end event follows and looks like success."""
        self._recorder.stopped(event.run_id, event.checkpoint_id)

    def on_resume(self, event: GraphResumeEvent) -> None:
        """A graph goes on, as a new run."""
        self._recorder.went_on(event.run_id, event.checkpoint_id)

    # -- runs end ---------------------------------------------------------------------------------------------

    @_patient
    def on_chain_end(
        self,
        outputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain or graph ended; the root's end asks for the outcome."""
        self._recorder.ended(run_id, outputs, None, kwargs.get("inputs"))

    @_patient
    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain or graph raised; whether that is a failure is for the outcome function to say."""
        self._recorder.ended(run_id, None, error, kwargs.get("inputs"))

    @_patient
    def on_tool_end(
        self,
        output: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool ended."""
        self._recorder.ended(run_id, output, None)

    @_patient
    def on_tool_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool raised."""
        self._recorder.tool_failed(run_id, error)
        self._recorder.ended(run_id, None, error)


class _AttachedHandler(MemoryWorthCallbackHandler):
    # LangGraph tells of interrupts and resumes only those handlers that stand in the config, and the code inside may
    # give its runs callbacks of its own.
    _told = False


# Registered once: the list of hooks is global and only grows.
_attached: ContextVar[MemoryWorthCallbackHandler | None] = ContextVar("memory_worth", default=None)
register_configure_hook(_attached, inheritable=True)


@contextmanager
def memory_worth(
    store: Any,
    outcome: OutcomeFunction | None = None,
    *,
    source: str = "handler",
    used: Attribution | None = None,
) -> Iterator[MemoryWorthCallbackHandler]:
    """Attach a handler to every run that begins inside, for code whose config is not in one's hands.

    Not seen are runs in threads that do not copy the context, and generators that are made inside and consumed outside;
    what they retrieve is counted as unattributed in `store.health()`. If a graph is given `callbacks` of its own by a
    LangGraph that does not add them to those around (1.1.8 does not, 1.2.24 does), then a static breakpoint
    (`interrupt_before`, `interrupt_after`) looks like its end.

    Args:
        store: The store whose memories are retrieved.
        outcome: As for `MemoryWorthCallbackHandler`.
        source: Under which name its outcomes are recorded.
        used: As for `MemoryWorthCallbackHandler`.
    """
    handler = _AttachedHandler(store, outcome, source=source, used=used)
    token = _attached.set(handler)
    inherited = var_child_runnable_config.set(_with_callbacks(handler))
    try:
        yield handler
    finally:
        var_child_runnable_config.reset(inherited)
        _attached.reset(token)


def _with_callbacks(handler: MemoryWorthCallbackHandler) -> RunnableConfig:
    """The config that runs inside inherit, with the handler in it."""
    config = var_child_runnable_config.get() or {}
    callbacks = config.get("callbacks")
    if not isinstance(callbacks, BaseCallbackManager):
        return {**config, "callbacks": [handler]}
    inside = callbacks.copy()  # of the run that this is called in
    inside.add_handler(handler)
    return {**config, "callbacks": inside}
