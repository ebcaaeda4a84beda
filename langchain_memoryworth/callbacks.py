"""The callback handler: it knows which run is whose, what each one has in front of the model, and how it ended."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import Any
from uuid import UUID

from langchain_core.documents import Document
from langchain_core.tracers.context import register_configure_hook
from langgraph.callbacks import GraphCallbackHandler, GraphInterruptEvent, GraphResumeEvent

from langchain_memoryworth import lifecycle
from langchain_memoryworth.errors import InvalidInputError, RunFailedError
from langchain_memoryworth.governor import governor_of
from langchain_memoryworth.judges import OutcomeFunction, Run, breaks_of
from langchain_memoryworth.roots import Pause, Root
from langchain_memoryworth.runs import RunEntry

USED_EVENT = "memory_worth.used"
"""Custom event by which a run says which memories it used: `dispatch_custom_event(USED_EVENT, {"ids": [...]})`."""

SHOWN_EVENT = "memory_worth.shown"
"""Custom event by which a run says which of the memories it retrieved reached the prompt, when it left some out."""

# Not of one handler: a ContextVar is never freed. The last run of each handler and its episode, by the handler's number.
_last: ContextVar[Mapping[int, tuple[UUID, str]]] = ContextVar("memory_worth_last_episode")
_LAST_OF = 16
_numbers = count()


class MemoryWorthCallbackHandler(GraphCallbackHandler):
    """Attributes retrievals to runs, and turns the results of runs into outcomes.

    Attach it to the outermost call: `chain.invoke(question, config={"callbacks": [handler]})`. One handler serves any
    number of runs and threads at once. It never raises into a run; what it could not do is in `store.health()`.

    Args:
        store: The store whose memories are retrieved.
        outcome: From a finished run to True, False, a reward in [0, 1], an `Outcome`, or None for "not known". None
            in its place means that outcomes come later, through `store.record_outcome`.
        source: Under which name its outcomes are recorded.

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
        self, store: Any, outcome: OutcomeFunction | None = None, *, source: str = "handler"
    ) -> None:
        self._governor = governor_of(store)
        if outcome is not None and not callable(outcome):
            raise InvalidInputError(
                f"outcome={outcome!r}; give a function of the run", value=outcome
            )
        if inspect.iscoroutinefunction(outcome):
            raise InvalidInputError(
                "outcome is a coroutine function; give a plain one: under async it is called in a "
                "thread of its own and may block",
                value=outcome,
            )
        self._outcome = outcome
        self._breaks = () if outcome is None else breaks_of(outcome)
        self._source = source
        self._number = next(_numbers)

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
        last = _last.get({}).get(self._number)
        if last is None:
            return None
        run_id, episode_id = last
        entry = self._governor.runs.get(run_id)
        known = entry is not None and entry.root.run_id == run_id
        return entry.root.episode.id if entry is not None and known else episode_id

    def __repr__(self) -> str:
        return f"MemoryWorthCallbackHandler({self._governor.url!r}, source={self._source!r})"

    # -- runs begin -------------------------------------------------------------------------------------------

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
        self._begin(run_id, parent_run_id, inputs, tags, metadata, kwargs)

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
        self._begin(run_id, parent_run_id, inputs or input_str, tags, metadata, kwargs)

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
        self._begin(run_id, parent_run_id, query, tags, metadata, kwargs, retriever=True)

    def _begin(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        inputs: Any,
        tags: Sequence[str] | None,
        metadata: Mapping[str, Any] | None,
        kwargs: Mapping[str, Any],
        *,
        retriever: bool = False,
    ) -> None:
        with self._governor.losses.guard("a run's start"):
            entry = self._governor.runs.start(
                run_id,
                parent_run_id,
                retriever=retriever,
                streamed="defers_inputs" in kwargs,
                inputs=inputs,
                tags=tags,
                metadata=metadata,
                name=kwargs.get("name"),
            )
            if entry.root.run_id == run_id:
                self._begin_root(entry, inputs)

    def _begin_root(self, entry: RunEntry, inputs: Any) -> None:
        root = entry.root
        last = {**_last.get({}), self._number: (root.run_id, root.episode.id)}
        while len(last) > _LAST_OF:
            del last[next(iter(last))]
        _last.set(last)
        if root.again:
            root.again = False
            self._later("a run id used again", lambda: self._governor.begin_again(root.episode))
        if not self._told and lifecycle.asks_to_resume(inputs):
            self._go_on(entry, ())

    # -- documents --------------------------------------------------------------------------------------------

    def on_retriever_end(
        self,
        documents: Sequence[Document],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever gave documents; only what the outermost one gives can be in front of the model."""
        self._end_retriever(run_id, documents)

    def on_retriever_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever failed; what its inner retrievers gave went nowhere."""
        self._end_retriever(run_id, ())

    def _end_retriever(self, run_id: UUID, documents: Sequence[Document]) -> None:
        runs = self._governor.runs
        with self._governor.losses.guard("what a run retrieved"):
            entry = runs.get(run_id)
            if entry is None or entry.outer is None:
                return
            entry.left = True
            if not entry.late:
                self._note(entry, run_id, {d.id: d for d in documents if d.id is not None})
            if entry.root.run_id == run_id:
                runs.end(entry.root)

    def _note(self, entry: RunEntry, run_id: UUID, given: Mapping[str, Document]) -> None:
        root = entry.root
        if entry.outer is not None and entry.outer != run_id:
            root.retrieval(entry.outer).inner.update(given)
            return
        retrieval = root.retrieval(run_id)
        retrieval.given.update(given)
        root.documents.update(given)
        simple = not (retrieval.inner or retrieval.direct or root.resuming)
        if simple and all(i in root.exposed for i in given):
            return  # the store's own retriever: it has written them down already
        self._later("what a run retrieved", lambda: self._settle_retrieval(root, run_id, given))

    def _settle_retrieval(self, root: Root, run_id: UUID, given: Mapping[str, Document]) -> None:
        dropped = root.dropped(run_id)
        if dropped:
            root.forget(dropped)
            with self._governor.losses.guard("what a run dropped"):
                self._governor.hide(root.episode.id, dropped)
        new = [d for i, d in given.items() if i not in root.exposed]
        if new:
            self._governor.expose_documents(root.episode, new, root)

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
        if name not in (USED_EVENT, SHOWN_EVENT):
            return
        with self._governor.losses.guard(f"the event {name}"):
            root = self._governor.runs.root(run_id)
            if root is None:
                return
            ids = {str(i) for i in data["ids"]}
            if name == USED_EVENT:
                self._later(
                    "which memories a run used",
                    lambda: self._governor.mark_used(root.episode.id, ids),
                )
            else:
                self._later("which memories were shown", lambda: self._narrow(root, run_id, ids))

    def _narrow(self, root: Root, run_id: UUID, ids: set[str]) -> None:
        dropped = root.narrow(ids, self._governor.runs.scopes(run_id, root))
        if dropped:
            root.forget(dropped)
            self._governor.hide(root.episode.id, dropped)

    # -- stops and resumes ------------------------------------------------------------------------------------

    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        """A graph stops, to go on later; its end event follows and looks like success."""
        with self._governor.losses.guard("an interrupt"):
            entry = self._governor.runs.get(event.run_id)
            if entry is not None and entry.thread_id is not None and event.run_id is not None:
                pause = Pause(entry.thread_id, event.checkpoint_id)
                entry.root.pauses += ((event.run_id, pause),)

    def on_resume(self, event: GraphResumeEvent) -> None:
        """A graph goes on, as a new run."""
        with self._governor.losses.guard("a resume"):
            entry = self._governor.runs.get(event.run_id)
            # A graph below us is resumed with its parent; one with a thread of its own is not our run.
            if entry is not None and (entry.root.run_id == event.run_id or not entry.root.written):
                self._go_on(entry, (event.checkpoint_id,))

    def _go_on(self, entry: RunEntry, checkpoints: Sequence[str]) -> None:
        root, thread_id = entry.root, entry.thread_id
        if thread_id is None or root.resuming or root.named:
            return
        # A checkpoint in the config is meant literally; LangGraph may fork from it, and name the fork.
        addressed = root.metadata.get("checkpoint_id")
        if addressed:
            checkpoints = (str(addressed), *checkpoints)
        root.resuming = True

        def resume() -> None:
            try:
                self._governor.resume(root, thread_id, checkpoints, latest=not addressed)
            finally:
                root.resuming = False

        self._later("a resume", resume)

    # -- runs end ---------------------------------------------------------------------------------------------

    def on_chain_end(
        self,
        outputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain or graph ended; the root's end asks for the outcome."""
        self._end(run_id, outputs, None, kwargs.get("inputs"))

    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain or graph raised; whether that is a failure is for the outcome function to say."""
        self._end(run_id, None, error, kwargs.get("inputs"))

    def on_tool_end(
        self,
        output: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool ended."""
        self._end(run_id, output, None)

    def on_tool_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool raised."""
        entry = self._governor.runs.get(run_id)
        if entry is not None and not lifecycle.is_control_flow(error):
            entry.root.tool_errors += (repr(error),)
        self._end(run_id, None, error)

    def _end(
        self, run_id: UUID, result: Any, error: BaseException | None, inputs: Any = None
    ) -> None:
        with self._governor.losses.guard("a run's end"):
            entry = self._governor.runs.get(run_id)
            if entry is None:
                return
            root = entry.root
            if root.run_id != run_id:
                if error is not None and entry.parent == root.run_id and entry.thread_id:
                    self._unwound(root, entry.thread_id, error)
            # LangGraph may report an end and an error of one run; the first one counts.
            elif self._number not in root.ended_for:
                root.ended_for += (self._number,)
                self._end_root(root, result, error, inputs)

    def _unwound(self, root: Root, thread_id: str, error: BaseException) -> None:
        """An interrupt that unwinds to the root stops it, also where no lifecycle event says so."""
        if lifecycle.is_interrupt(error):
            root.pauses = ((root.run_id, Pause(thread_id, "")), *root.pauses)

    def _end_root(self, root: Root, result: Any, error: BaseException | None, inputs: Any) -> None:
        early = root.streamed and error is None and lifecycle.stopped_early(result)
        if root.streamed and inputs is not None:
            root.inputs = inputs  # of a stream they are known at its end only
        self._governor.runs.end(root)
        pause = self._pause(root, result, error)
        if pause is not None:
            root.paused = error is None
            self._later("where a run stopped", lambda: self._governor.pause(root.episode, pause))
        if self._outcome is None or root.paused or early or not self._may_be_known(error):
            return
        run = root.inputs, root.metadata, root.tags, root.documents, root.exposed
        self._later("an outcome", lambda: self._judge(root, run, result, error))

    def _pause(self, root: Root, result: Any, error: BaseException | None) -> Pause | None:
        if error is not None:
            thread_id = root.episode.thread_id
            resumable = thread_id is not None and root.written and lifecycle.may_go_on(error)
            return Pause(thread_id, "") if thread_id is not None and resumable else None
        for run_id, pause in reversed(root.pauses):
            if run_id == root.run_id or lifecycle.shows_interrupt(result):
                return pause
        return None

    def _may_be_known(self, error: BaseException | None) -> bool:
        """Of a run that was cancelled, closed early or left by a jump nothing is known, unless the user lists it."""
        if error is None or isinstance(error, self._breaks):
            return True
        return isinstance(error, Exception) and not lifecycle.is_control_flow(error)

    def _judge(
        self, root: Root, state: tuple[Any, ...], result: Any, error: BaseException | None
    ) -> None:
        inputs, metadata, tags, documents, exposed = state
        if self._outcome is None or not exposed:
            return
        run = Run(
            run_id=str(root.run_id),
            episode_id=root.episode.id,
            name=root.name,
            inputs=inputs,
            error=error,
            memories=tuple(d for i, d in tuple(documents.items()) if i in exposed),
            tags=tuple(tags),
            metadata=dict(metadata),
            thread_id=root.episode.thread_id,
            tool_errors=root.tool_errors,
            result=result,
        )
        try:
            judgement = self._outcome(run)
        except RunFailedError:
            return  # it asked for the outputs of a run that has none: not known
        self._governor.record_judgement(root.episode.id, judgement, source=self._source)

    def _later(self, step: str, work: Callable[[], object]) -> None:
        def guarded() -> None:
            with self._governor.losses.guard(step):
                work()

        self._governor.outbox.do(guarded)


class _AttachedHandler(MemoryWorthCallbackHandler):
    # LangGraph tells of interrupts and resumes only those handlers that stand in the config.
    _told = False


# Registered once: the list of hooks is global and only grows.
_attached: ContextVar[MemoryWorthCallbackHandler | None] = ContextVar("memory_worth", default=None)
register_configure_hook(_attached, inheritable=True)


@contextmanager
def memory_worth(
    store: Any, outcome: OutcomeFunction | None = None, *, source: str = "handler"
) -> Iterator[MemoryWorthCallbackHandler]:
    """Attach a handler to every run that begins inside, for code whose config is not in one's hands.

    Not seen are runs in threads that do not copy the context, and generators that are made inside and consumed outside;
    what they retrieve is counted as unattributed in `store.health()`. An interrupt is seen only if it unwinds through
    the graph: a static breakpoint (`interrupt_before`, `interrupt_after`) looks like the end of the run.

    Args:
        store: The store whose memories are retrieved.
        outcome: As for `MemoryWorthCallbackHandler`.
        source: Under which name its outcomes are recorded.
    """
    handler = _AttachedHandler(store, outcome, source=source)
    token = _attached.set(handler)
    try:
        yield handler
    finally:
        _attached.reset(token)
