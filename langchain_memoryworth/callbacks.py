"""The callback handler: it knows which run is whose, what each one has in front of the model, and how it ended."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document

from langchain_memoryworth.errors import InvalidInputError, RunFailedError
from langchain_memoryworth.governor import governor_of
from langchain_memoryworth.judges import OutcomeFunction, Run
from langchain_memoryworth.runs import Root

USED_EVENT = "memory_worth.used"
"""Custom event by which a run says which memories it used: `dispatch_custom_event(USED_EVENT, {"ids": [...]})`."""

# Not of one handler: a ContextVar is never freed. The last episode of each handler, by the handler's identity.
_last: ContextVar[Mapping[int, str]] = ContextVar("memory_worth_last_episode")


class MemoryWorthCallbackHandler(BaseCallbackHandler):
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
        self._source = source

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
        return _last.get({}).get(id(self))

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
                inputs=inputs,
                tags=tags,
                metadata=metadata,
                name=kwargs.get("name"),
            )
            if entry.root.run_id == run_id:
                _last.set({**_last.get({}), id(self): entry.root.episode.id})

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
        with self._governor.losses.guard("what a run retrieved"):
            entry = self._governor.runs.get(run_id)
            if entry is None or entry.outer is None:
                return
            given = {d.id: d for d in documents if d.id is not None}
            inner, outer = entry.root.groups.setdefault(entry.outer, (set(), set()))
            if entry.outer != run_id:
                inner.update(given)
                return
            outer.update(given)
            entry.root.documents.update(given)
            self._take_over(entry.root, list(given.values()), entry.root.dropped(run_id))

    def on_retriever_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever failed; what its inner retrievers gave went nowhere."""
        with self._governor.losses.guard("what a run retrieved"):
            entry = self._governor.runs.get(run_id)
            if entry is not None and entry.outer == run_id:
                self._take_over(entry.root, [], entry.root.dropped(run_id))

    def _take_over(self, root: Root, given: Sequence[Document], dropped: set[str]) -> None:
        new = [d for d in given if d.id not in root.exposed]
        if dropped:
            root.forget(dropped)
            self._later("what a run dropped", lambda: self._governor.hide(root.episode.id, dropped))
        if new:
            self._later(
                "what a run retrieved",
                lambda: self._governor.expose_documents(root.episode, new, root),
            )

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
        """The run says which memories it used."""
        if name != USED_EVENT:
            return
        with self._governor.losses.guard("which memories a run used"):
            root = self._governor.runs.root(run_id)
            if root is not None:
                ids = [str(i) for i in data["ids"]]
                self._later(
                    "which memories a run used",
                    lambda: self._governor.mark_used(root.episode.id, ids),
                )

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
        self._end(run_id, outputs, None)

    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chain or graph raised; whether that is a failure is for the outcome function to say."""
        self._end(run_id, None, error)

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
        root = self._governor.runs.root(run_id)
        if root is not None:
            root.tool_errors.append(repr(error))
        self._end(run_id, None, error)

    def _end(self, run_id: UUID, result: Any, error: BaseException | None) -> None:
        with self._governor.losses.guard("a run's end"):
            entry = self._governor.runs.get(run_id)
            if entry is None or entry.root.run_id != run_id or id(self) in entry.root.ended_for:
                return
            # LangGraph may report an end and an error of one run; the first one counts.
            entry.root.ended_for.add(id(self))
            if self._outcome is None or (error is not None and not isinstance(error, Exception)):
                return  # cancelled, interrupted, or closed early: nothing is known
            root = entry.root
            self._later("an outcome", lambda: self._judge(root, result, error))

    def _judge(self, root: Root, result: Any, error: BaseException | None) -> None:
        if self._outcome is None or not root.exposed:
            return
        try:
            judgement = self._outcome(_finished(root, result, error))
        except RunFailedError:
            return  # it asked for the outputs of a run that has none: not known
        if judgement is not None:
            self._governor.record_outcome(root.episode.id, judgement, source=self._source)

    def _later(self, step: str, work: Callable[[], object]) -> None:
        def guarded() -> None:
            with self._governor.losses.guard(step):
                work()

        self._governor.outbox.do(guarded)


def _finished(root: Root, result: Any, error: BaseException | None) -> Run:
    return Run(
        run_id=str(root.run_id),
        episode_id=root.episode.id,
        name=root.name,
        inputs=root.inputs,
        error=error,
        memories=tuple(d for i, d in root.documents.items() if i in root.exposed),
        tags=tuple(root.tags),
        metadata=dict(root.metadata),
        thread_id=root.episode.thread_id,
        tool_errors=tuple(root.tool_errors),
        result=result,
    )
