"""What happens at the events of runs: begin, retrieve, say, stop, go on, end. The handler only hands them over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.documents import Document

from langchain_memoryworth.errors import RunFailedError
from langchain_memoryworth.estimators.paths import Path
from langchain_memoryworth.outcomes.attribution import Attribution, note_use
from langchain_memoryworth.outcomes.judges import OutcomeFunction, Run, breaks_of
from langchain_memoryworth.records import EpisodeKey
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.tracking import lifecycle
from langchain_memoryworth.tracking.roots import Pause, Root
from langchain_memoryworth.tracking.runs import RunEntry

USED_EVENT = "memory_worth.used"
"""Custom event by which a run says which memories it used: `dispatch_custom_event(USED_EVENT, {"ids": [...]})`."""

SHOWN_EVENT = "memory_worth.shown"
"""Custom event by which a run says which of the memories it retrieved reached the prompt, when it left some out."""

# Not of one handler: a ContextVar is never freed. The last run of each recorder and its episode, by its number.
_last: ContextVar[Mapping[int, tuple[UUID, str]]] = ContextVar("memory_worth_last_episode")
_LAST_OF = 16
_numbers = count()


class _Ended(NamedTuple):
    """A root at its end, as an outcome function will be shown it; what it retrieved may be yet to be written down."""

    root: Root
    inputs: Any
    metadata: Mapping[str, Any]
    tags: Sequence[str]
    result: Any
    error: BaseException | None
    tool_errors: tuple[str, ...]
    path: Path

    def run(self) -> Run:
        root = self.root
        return Run(
            run_id=str(root.run_id),
            episode_id=root.episode.id,
            name=root.name,
            inputs=self.inputs,
            error=self.error,
            memories=tuple(d for i, d in tuple(root.documents.items()) if i in root.exposed),
            tags=tuple(self.tags),
            metadata=dict(self.metadata),
            thread_id=root.episode.thread_id,
            tool_errors=self.tool_errors,
            result=self.result,
        )


class Recorder:
    """Writes down for one handler what its runs do. No method raises, and none works on the database in an event loop.

    Args:
        governor: Where it is written down.
        outcome: From a finished run to what happened in it.
        source: Under which name.
        used: From a finished run to which memories it was made from.
        told: Whether LangGraph is sure to tell of interrupts and resumes; if not they are inferred, where they can be.
    """

    def __init__(
        self,
        governor: Governor,
        outcome: OutcomeFunction | None,
        source: str,
        *,
        used: Attribution | None,
        told: bool,
    ) -> None:
        self.governor = governor
        self.source = source
        self._outcome = outcome
        self._used = used
        self._breaks = () if outcome is None else breaks_of(outcome)
        self._told = told
        self._number = next(_numbers)

    @property
    def last_episode_id(self) -> str | None:
        """The episode of the last run that began in this thread or task."""
        last = _last.get({}).get(self._number)
        if last is None:
            return None
        run_id, episode_id = last
        entry = self.governor.runs.get(run_id)
        known = entry is not None and entry.root.run_id == run_id
        return entry.root.episode.id if entry is not None and known else episode_id

    # -- runs begin and retrieve ------------------------------------------------------------------------------

    def begin(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        inputs: Any,
        tags: Sequence[str] | None,
        metadata: Mapping[str, Any] | None,
        name: str | None,
        *,
        retriever: bool = False,
        tool: str | None = None,
        streamed: bool = False,
    ) -> None:
        """A run begins."""
        with self.governor.losses.guard("a run's start"):
            entry = self.governor.runs.start(
                run_id,
                parent_run_id,
                retriever=retriever,
                tool=tool,
                streamed=streamed,
                inputs=inputs,
                tags=tags,
                metadata=metadata,
                name=name,
            )
            if entry.root.run_id == run_id:
                self._begin_root(entry, inputs)
            elif entry.root.asks:
                self._infer_resume(entry.root)

    def _begin_root(self, entry: RunEntry, inputs: Any) -> None:
        root = entry.root
        last = {**_last.get({}), self._number: (root.run_id, root.episode.id)}
        while len(last) > _LAST_OF:
            del last[next(iter(last))]
        _last.set(last)
        if root.again:
            root.again = False
            self._later(
                "a run id used again",
                root,
                lambda: self.governor.journal.begin_again(root.episode),
            )
        # LangGraph tells of a resume right after the start of the graph, before anything below it begins.
        root.asks = not self._told and lifecycle.asks_to_resume(inputs)

    def retrieved(self, run_id: UUID, documents: Sequence[Document]) -> None:
        """A retriever ended with these documents; only what the outermost one gives can be in front of the model."""
        runs = self.governor.runs
        with self.governor.losses.guard("what a run retrieved"):
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
        # Not always the root's: a step of a run may have an episode around it.
        episode = self.governor.runs.episode(run_id, root.metadata) or root.episode
        self._later(
            "what a run retrieved",
            root,
            lambda: self._settle_retrieval(root, run_id, given, episode),
        )

    def _settle_retrieval(
        self, root: Root, run_id: UUID, given: Mapping[str, Document], episode: EpisodeKey
    ) -> None:
        dropped = root.dropped(run_id)
        if dropped:
            root.unexpose(dropped)
            with self.governor.losses.guard("what a run dropped"):
                self.governor.journal.hide(episode.id, dropped)
        # A parallel retrieval may have given meanwhile what this one dropped.
        regained = root.kept() & dropped
        given = {**{i: d for i, d in tuple(root.documents.items()) if i in regained}, **given}
        new = [d for i, d in given.items() if i in regained or i not in root.exposed]
        if new:
            self.governor.journal.expose_documents(episode, new, root)

    def said(self, name: str, data: Any, run_id: UUID) -> None:
        """The run says which memories it used, or which were shown."""
        if name not in (USED_EVENT, SHOWN_EVENT):
            return
        with self.governor.losses.guard(f"the event {name}"):
            root = self.governor.runs.root(run_id)
            if root is None:
                return
            ids = {str(i) for i in data["ids"]}
            if name == USED_EVENT:
                self._later(
                    "which memories a run used",
                    root,
                    lambda: self.governor.journal.mark_used(root.episode.id, ids),
                )
            else:
                self._later(
                    "which memories were shown", root, lambda: self._narrow(root, run_id, ids)
                )

    def _narrow(self, root: Root, run_id: UUID, ids: set[str]) -> None:
        dropped = root.narrow(ids, self.governor.runs.scopes(run_id, root))
        if dropped:
            root.forget(dropped)
            self.governor.journal.hide(root.episode.id, dropped)

    # -- runs stop and go on ----------------------------------------------------------------------------------

    def stopped(self, run_id: UUID | None, checkpoint_id: str) -> None:
        """A graph stops, to go on later; its end event follows and looks like success."""
        with self.governor.losses.guard("an interrupt"):
            entry = self.governor.runs.get(run_id)
            if entry is not None and entry.thread_id is not None and run_id is not None:
                pause = Pause(entry.thread_id, checkpoint_id)
                entry.root.pauses += ((run_id, pause),)

    def went_on(self, run_id: UUID | None, checkpoint_id: str) -> None:
        """A graph goes on, as a new run."""
        with self.governor.losses.guard("a resume"):
            entry = self.governor.runs.get(run_id)
            if entry is not None and entry.root.run_id == run_id:
                entry.root.asks = False
            # A graph below us is resumed with its parent; one with a thread of its own is not our run.
            if entry is not None and (entry.root.run_id == run_id or not entry.root.written):
                self._go_on(entry, (checkpoint_id,))

    def _infer_resume(self, root: Root) -> None:
        """Nobody told whether the graph goes on: by its inputs it does."""
        root.asks = False
        entry = self.governor.runs.get(root.run_id)
        if entry is not None:
            self._go_on(entry, ())

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
                self.governor.journal.resume(root, thread_id, checkpoints, latest=not addressed)
            finally:
                root.resuming = False

        self._later("a resume", root, resume)

    # -- runs end ---------------------------------------------------------------------------------------------

    def tool_failed(self, run_id: UUID, error: BaseException) -> None:
        """A tool raised; an interrupt in a tool is no failure of it."""
        with self.governor.losses.guard("a tool's error"):
            entry = self.governor.runs.get(run_id)
            if entry is not None and not lifecycle.is_control_flow(error):
                entry.root.tool_errors += (repr(error),)

    def ended(
        self, run_id: UUID, result: Any, error: BaseException | None, inputs: Any = None
    ) -> None:
        """A run ended, with a result or an error; only the root's end asks for the outcome."""
        with self.governor.losses.guard("a run's end"):
            entry = self.governor.runs.get(run_id)
            if entry is None:
                return
            root = entry.root
            if root.run_id != run_id:
                if error is not None and entry.parent == root.run_id and entry.thread_id:
                    self._unwound(root, entry.thread_id, error)
            # LangGraph may report an end and an error of one run; the first one counts.
            elif self._number not in root.ended_for:
                root.ended_for += (self._number,)
                self.governor.runs.hold(root)
                try:
                    self._end_root(root, result, error, inputs)
                finally:
                    self.governor.runs.release(root)

    def _unwound(self, root: Root, thread_id: str, error: BaseException) -> None:
        """An interrupt that unwinds to the root stops it, also where no lifecycle event says so."""
        if lifecycle.is_interrupt(error):
            root.pauses = ((root.run_id, Pause(thread_id, "")), *root.pauses)

    def _end_root(self, root: Root, result: Any, error: BaseException | None, inputs: Any) -> None:
        if root.asks:
            self._infer_resume(root)
        early = root.streamed and error is None and lifecycle.stopped_early(result)
        if root.streamed and inputs is not None:
            root.inputs = inputs  # of a stream they are known at its end only
        self.governor.runs.end(root)
        path = root.path
        pause = self._pause(root, result, error)
        if pause is not None:
            root.paused = error is None
            at = (
                self.governor.now().timestamp()
            )  # not when its turn comes: what is shown after it is not of it
            self._later(
                "where a run stopped",
                root,
                lambda: self.governor.journal.pause(root.episode, pause, at, path),
            )
        if root.paused:
            return
        ended = _Ended(
            root,
            root.inputs,
            root.metadata,
            root.tags,
            result,
            error,
            root.tool_errors,
            path,
        )
        asked = self._outcome is not None or self._used is not None
        if asked and not early and self._may_be_known(error):
            self._later("an outcome", root, lambda: self._judge(ended))
        elif path:
            self._later("a run's tools", root, lambda: self._keep_path(ended))

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

    def _judge(self, ended: _Ended) -> None:
        if not ended.root.exposed:
            self._keep_path(ended)
            return
        run = ended.run()
        if self._used is not None:
            note_use(self.governor, self._used, run)
        judgement = None
        if self._outcome is not None:
            # A run that has no outputs was asked for them; what else is raised costs nothing but the outcome.
            with self.governor.losses.guard("an outcome"), suppress(RunFailedError):
                judgement = self._outcome(run)
        self.governor.journal.record_judgement(
            run.episode_id, judgement, source=self.source, path=ended.path
        )

    def _keep_path(self, ended: _Ended) -> None:
        """Write down the tools alone; of a run without memories only if it is a part of another's episode."""
        if ended.root.exposed or ended.root.named:
            self.governor.journal.keep_path(ended.root.episode.id, ended.path)

    def _later(self, step: str, root: Root, work: Callable[[], object]) -> None:
        runs = self.governor.runs

        def guarded() -> None:
            try:
                with self.governor.losses.guard(step):
                    work()
            finally:
                runs.release(root)

        runs.hold(root)
        self.governor.outbox.do(guarded)
