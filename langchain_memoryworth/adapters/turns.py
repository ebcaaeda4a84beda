"""The episodes of an agent's turns: where one begins, what is recalled in it, what is said of it in the end.

Knows nothing of agents but a state with messages: what stands in it, and nothing else, joins the steps of a turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal
from uuid import uuid4

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables.config import var_child_runnable_config

from langchain_memoryworth.adapters.graph_state import tools_called
from langchain_memoryworth.adapters.recaller import Recaller, named_episode
from langchain_memoryworth.errors import RunFailedError, UnknownRunError
from langchain_memoryworth.outcomes.attribution import Attribution, note_use
from langchain_memoryworth.outcomes.judges import (
    OutcomeFunction,
    Run,
    is_rejection,
    last_turn,
    text_of,
)
from langchain_memoryworth.records import Namespace
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.tracking.lifecycle import is_control_flow

STATE_KEY = "memory_worth"
"""Where the state of an agent keeps its turn: `episode_id`, and `memories` if they are recalled once."""

_ERROR = "error"
"""Source id of what is said of an error. The agent may get over it: then it is taken back at the end of the turn."""


class Turns:
    """Turns of any number of agents at once; nothing of a turn is kept here.

    Args:
        governor: Of the store.
        retriever: What recalls.
        namespace: For the store's own retriever; placeholders are filled in from the run.
        spans: Whether an episode is one turn, or all turns of a thread until it has an outcome.
        outcome: From a finished turn to what happened in it.
        source: Under which name its outcomes are recorded.
        used: From a finished turn to which memories it was made from.
    """

    def __init__(
        self,
        governor: Governor,
        retriever: BaseRetriever,
        *,
        namespace: Namespace | None,
        spans: Literal["turn", "thread"],
        outcome: OutcomeFunction | None,
        source: str,
        used: Attribution | None = None,
    ) -> None:
        self._governor = governor
        self._recaller = Recaller(governor, retriever, namespace)
        self._spans = spans
        self._outcome = outcome
        self._used = used
        self._source = source

    # -- begin ------------------------------------------------------------------------------------------------

    def begin(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any]:
        """What the state keeps of a new turn; empty if there can be none."""
        with self._governor.losses.guard("the beginning of a turn"):
            return {"episode_id": self._episode_id(state, runtime)}
        return {}

    def _episode_id(self, state: Mapping[str, Any], runtime: Any) -> str:
        named = named_episode(_config())
        if named is not None:
            return named
        before = episode_id_of(state)
        if self._spans == "thread" and before is not None and not self._settled(before):
            return before
        root = self._governor.runs.root(None)
        # Who judges nothing takes part in the episode of the run around it, which a handler will close. Who does judge
        # needs an episode of his own: a run may call several agents, and each outcome is about its own memories.
        if self._outcome is None and root is not None:
            return root.episode.id
        # The same for every attempt at this step, in whatever process.
        info = getattr(runtime, "execution_info", None)
        return str(uuid4()) if info is None else str(info.task_id)

    def _settled(self, episode_id: str) -> bool:
        try:
            return self._governor.journal.episode(episode_id).reward is not None
        except UnknownRunError:
            return False

    def namespace(self, runtime: Any) -> Namespace | None:
        """Where this run's memories are; None means the store's own place."""
        return self._recaller.namespace(runtime)

    # -- recall -----------------------------------------------------------------------------------------------

    def recall(self, turn: Mapping[str, Any], query: str | None, runtime: Any) -> list[Document]:
        """Memories for a query, written down for the turn; none if the search fails, which is counted."""
        if not query or not turn:
            return []
        try:
            key = self._recaller.key(turn["episode_id"], runtime)
            return self._recaller.recall(key, query, self.namespace(runtime))
        # Whatever it is, the user's agent is worth more than its memories.
        except Exception as error:  # noqa: BLE001
            return self._failed(error)

    async def arecall(
        self, turn: Mapping[str, Any], query: str | None, runtime: Any
    ) -> list[Document]:
        """`recall` that awaits the retriever."""
        if not query or not turn:
            return []
        try:
            key = self._recaller.key(turn["episode_id"], runtime)
            return await self._recaller.arecall(key, query, self.namespace(runtime))
        except Exception as error:  # noqa: BLE001
            return self._failed(error)

    def _failed(self, error: Exception) -> list[Document]:
        if is_control_flow(error):
            raise error
        self._governor.losses.failed("a recall", error)
        return []

    def not_shown(self, turn: Mapping[str, Any], documents: Sequence[Document]) -> None:
        """The documents did not reach the prompt after all."""
        with self._governor.losses.guard("what a turn dropped"):
            self._governor.journal.hide(
                turn["episode_id"], [d.id for d in documents if d.id is not None]
            )

    # -- close ------------------------------------------------------------------------------------------------

    def close(self, state: Mapping[str, Any], error: Exception | None = None) -> None:
        """Ask about a turn that has ended, or raised."""
        episode_id = episode_id_of(state)
        if episode_id is None or (error is not None and is_control_flow(error)):
            return
        with self._governor.losses.guard("an outcome"):
            if self._outcome is not None or self._used is not None:
                self._judge(episode_id, state, error)
            elif self._governor.runs.root(None) is None:  # else a handler sees the tools
                with tools_called(self._governor, state) as path:
                    self._governor.journal.keep_path(episode_id, path)

    def _judge(self, episode_id: str, state: Mapping[str, Any], error: Exception | None) -> None:
        recalled = {m["id"]: m for m in state[STATE_KEY].get("memories", ())}
        memories = [
            # What lives elsewhere has its text in the state only.
            document_of(recalled[d.id]) if d.id in recalled else d
            for d in self._governor.journal.shown_documents(episode_id)
        ]
        if not memories:
            return
        run = self._run(episode_id, state, error, memories)
        if self._used is not None:
            note_use(self._governor, self._used, run)
        judgement = None
        if self._outcome is not None:
            # A turn that has no outputs was asked for them; what else is raised costs nothing but the outcome.
            with self._governor.losses.guard("an outcome"), suppress(RunFailedError):
                judgement = self._outcome(run)
        source_id = "" if error is None else _ERROR
        if self._outcome is not None and error is None:
            self._governor.journal.record_outcome(
                episode_id, None, source=self._source, source_id=_ERROR
            )
        with tools_called(self._governor, state) as path:
            self._governor.journal.record_judgement(
                episode_id, judgement, source=self._source, source_id=source_id, path=path
            )

    def _run(
        self,
        episode_id: str,
        state: Mapping[str, Any],
        error: Exception | None,
        memories: Sequence[Document],
    ) -> Run:
        config = _config()
        configurable = config.get("configurable") or {}
        asked, said = last_turn(state)
        root = self._governor.runs.root(None)
        failed = [
            text_of(m)
            for m in said
            if getattr(m, "status", None) == "error" and not is_rejection(m)
        ]
        return Run(
            run_id=episode_id if root is None else str(root.run_id),
            episode_id=episode_id,
            inputs={"messages": asked},
            error=error,
            memories=tuple(memories),
            tags=tuple(config.get("tags") or ()),
            metadata=dict(config.get("metadata") or {}),
            thread_id=configurable.get("thread_id"),
            tool_errors=tuple(failed),
            result={k: v for k, v in state.items() if k not in (STATE_KEY, "jump_to")},
        )


def episode_id_of(state: Mapping[str, Any]) -> str | None:
    """The episode of the turn that a state is in."""
    found: str | None = (state.get(STATE_KEY) or {}).get("episode_id")
    return found


def plain(documents: Sequence[Document]) -> list[dict[str, Any]]:
    """Documents as any checkpointer can keep them."""
    return [{"id": d.id, "text": d.page_content, "metadata": d.metadata} for d in documents]


def document_of(memory: Mapping[str, Any]) -> Document:
    """The inverse of `plain`, for one."""
    return Document(id=memory["id"], page_content=memory["text"], metadata=memory["metadata"])


def _config() -> Mapping[str, Any]:
    return var_child_runnable_config.get() or {}
