"""What every governed store offers, wherever its memories are: episodes, outcomes, worth, restore and pin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self
from uuid import uuid4

from langchain_core.runnables import run_in_executor

from langchain_memoryworth.errors import InvalidInputError, UnknownRunError
from langchain_memoryworth.estimators.credit import reward_of
from langchain_memoryworth.estimators.evidence import Evidence, Verdict
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import (
    EpisodeKey,
    EpisodeRecord,
    Health,
    Memory,
    Outcome,
    SearchExplanation,
    Status,
)
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.service.insights import Insights
from langchain_memoryworth.service.namespaces import called
from langchain_memoryworth.service.oversight import Oversight
from langchain_memoryworth.tracking.runs import ambient_episode
from langchain_memoryworth.twins import awaitable


class Episode:
    """A run that the program opens itself, with `store.episode()`.

    Attributes:
        id: By which an outcome can be recorded, also later.
    """

    def __init__(self, store: GovernedMemories, episode_id: str) -> None:
        self._store = store
        self.id = episode_id

    def record(
        self,
        outcome: bool | float | Outcome,
        *,
        source: str = "user",
        source_id: str = "",
        metric: str = "",
        used: Iterable[str] | Mapping[str, float] | None = None,
    ) -> bool:
        """`GovernedMemories.record_outcome` of this episode; False also if nothing was retrieved in it.

        That is no error here: a program's first run finds an empty store.
        """
        reward_of(outcome.reward if isinstance(outcome, Outcome) else outcome)
        try:
            return self._store.record_outcome(
                self.id, outcome, source=source, source_id=source_id, metric=metric, used=used
            )
        except UnknownRunError:
            return False

    def __repr__(self) -> str:
        return f"Episode({self.id!r})"


class GovernedMemories(Oversight, Insights):
    """A store with a governor.

    Attributes:
        governor: The use cases behind it.
    """

    governor: Governor

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.governor.policy

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is queued and close the database; a second call does nothing."""
        self.governor.close()

    # -- runs -------------------------------------------------------------------------------------------------

    @contextmanager
    def episode(
        self,
        episode_id: str | None = None,
        *,
        thread_id: str | None = None,
        context: str = "",
    ) -> Iterator[Episode]:
        """Make everything retrieved inside one episode, where no single run holds it together.

        Args:
            episode_id: None means a new one.
            thread_id: The conversation that it belongs to.
            context: The kind of task, such as a topic, if that is known.
        """
        if not isinstance(context, str):
            raise InvalidInputError(f"context={context!r}; give a name as text", value=context)
        episode = Episode(self, str(episode_id or uuid4()))
        with ambient_episode(EpisodeKey(episode.id, thread_id=thread_id, context=context)):
            yield episode

    def record_outcome(
        self,
        run_id: Any,
        outcome: bool | float | Outcome,
        *,
        source: str = "user",
        source_id: str = "",
        metric: str = "",
        used: Iterable[str] | Mapping[str, float] | None = None,
    ) -> bool:
        """Say how a run went; now, later, or from another process.

        The newest outcome of one (source, source_id, metric) counts. Several sources of one run reduce to one outcome by
        `Policy.sources`, so that evidence is never doubled.

        Args:
            run_id: Id of the episode, of its root run, or any alias of it.
            outcome: True, False, or a reward in [0, 1].
            source: Who says so.
            source_id: The source's own id of this outcome, such as a voter or a feedback id.
            metric: What was measured, if there are several; `Policy.metric` says which one drives worth.
            used: Ids of the memories that the result was made from, if known, or a weight for each, on any scale.

        Returns:
            False if just this was known already.

        Raises:
            InvalidOutcomeError: If the outcome is anything else.
            UnknownRunError: If no episode has that id.
        """
        if outcome is None:
            raise InvalidInputError(
                "None is no outcome: an unknown outcome needs no call, a recorded one is taken back "
                "by withdraw_outcome"
            )
        return self.governor.journal.record_outcome(
            run_id, outcome, source=source, source_id=source_id, metric=metric, used=used
        )

    arecord_outcome = awaitable(record_outcome)

    def record_outcomes(
        self,
        outcomes: Iterable[tuple[Any, bool | float | Outcome]],
        *,
        source: str = "user",
        source_id: str = "",
        metric: str = "",
    ) -> list[bool]:
        """`record_outcome` for many runs at once, several times as fast: one transaction, all or nothing.

        Args:
            outcomes: Pairs of a run id and what happened in it, in order; the newest of one run counts.
            source: Who says so.
            source_id: The source's own id of these outcomes.
            metric: What was measured.

        Returns:
            For each one False if just this was known already.

        Raises:
            InvalidOutcomeError: If one of them is no outcome.
            UnknownRunError: If one of the runs is not known.
        """
        pairs = _pairs(outcomes)
        for run_id, outcome in pairs:
            if outcome is None:
                raise InvalidInputError(
                    f"None is no outcome (run {run_id!r}): leave out a run that nothing is known of, "
                    "and take a recorded outcome back by withdraw_outcome"
                )
        return self.governor.journal.record_outcomes(
            pairs, source=source, source_id=source_id, metric=metric
        )

    arecord_outcomes = awaitable(record_outcomes)

    def withdraw_outcome(
        self, run_id: Any, *, source: str = "user", source_id: str = "", metric: str = ""
    ) -> bool:
        """Take an outcome back; the counters are then as if it had never been. False if there was none."""
        return self.governor.journal.record_outcome(
            run_id, None, source=source, source_id=source_id, metric=metric
        )

    awithdraw_outcome = awaitable(withdraw_outcome)

    def run(self, run_id: Any) -> EpisodeRecord:
        """What was retrieved in a run, what happened, and who got what credit."""
        return self.governor.journal.episode(run_id)

    arun = awaitable(run)

    def pending(self, limit: int = 100) -> list[EpisodeRecord]:
        """Runs without an outcome, oldest first, up to `Policy.pending_age` old."""
        if not isinstance(limit, int) or limit < 1:
            raise InvalidInputError(
                f"limit={limit!r}; give a whole number of at least 1", value=limit
            )
        return self.governor.journal.pending(limit)

    apending = awaitable(pending)

    # -- worth ------------------------------------------------------------------------------------------------

    def memory(self, memory_id: str, *, namespace: Sequence[str] | str | None = None) -> Memory:
        """A memory with its text, evidence, verdict and status.

        Raises:
            MemoryNotFoundError: If there is none by that id.
        """
        return self.governor.collection.one(memory_id, called(namespace, None))

    amemory = awaitable(memory)

    def evidence(self, memory_id: str, *, namespace: Sequence[str] | str | None = None) -> Evidence:
        """The counters of a memory."""
        return self.memory(memory_id, namespace=namespace).evidence

    aevidence = awaitable(evidence)

    def worth(self, memory_id: str, *, namespace: Sequence[str] | str | None = None) -> float:
        """Memory Worth in [0, 1], 0.5 with no evidence (eq. 1)."""
        return self.evidence(memory_id, namespace=namespace).worth

    aworth = awaitable(worth)

    def verdict(self, memory_id: str, *, namespace: Sequence[str] | str | None = None) -> Verdict:
        """HIGH, MIXED, LOW or UNCERTAIN (Definition 3.2)."""
        return self.memory(memory_id, namespace=namespace).verdict

    averdict = awaitable(verdict)

    def memories(
        self,
        status: Status | str | None = None,
        *,
        namespace: Sequence[str] | str | None = None,
    ) -> list[Memory]:
        """All memories of a namespace, or those of one status, oldest first."""
        if status is not None and status not in tuple(Status):
            raise InvalidInputError(
                f"status={status!r}; there are {', '.join(Status)}", value=status
            )
        wanted = None if status is None else frozenset({Status(status)})
        return self.governor.collection.all(wanted, called(namespace, None))

    amemories = awaitable(memories)

    def suppressed(self, *, namespace: Sequence[str] | str | None = None) -> list[Memory]:
        """The memories that are held back at present, by the policy or by a person, oldest first."""
        held = frozenset({Status.SUPPRESSED, Status.WITHHELD})
        return self.governor.collection.all(held, called(namespace, None))

    asuppressed = awaitable(suppressed)

    def explain_search(self, query: str, k: int = 4, **kwargs: Any) -> SearchExplanation:
        """What a query would get, and which suppressed memories were held back from it, and why."""
        return self.governor.retrieval.explain_search(query, k, **self._options(kwargs))

    async def aexplain_search(self, query: str, k: int = 4, **kwargs: Any) -> SearchExplanation:
        """`explain_search` off the event loop."""
        return await run_in_executor(None, self.explain_search, query, k, **kwargs)

    def health(self, *, assumptions: bool = False) -> Health:
        """Counts, and what could not be recorded since the store was opened.

        Args:
            assumptions: Also say which of the paper's assumptions the data support, which reads the latest episodes.
        """
        health = self.governor.health()
        return replace(health, assumptions=self.assumptions()) if assumptions else health

    ahealth = awaitable(health)

    def _options(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        if "namespace" not in kwargs:
            return kwargs
        return {**kwargs, "namespace": called(kwargs["namespace"], None)}


def _pairs(outcomes: Iterable[tuple[Any, bool | float | Outcome]]) -> list[tuple[Any, Any]]:
    wrong: Any = outcomes
    pairs = []
    try:
        for wrong in outcomes:
            run_id, outcome = [] if isinstance(wrong, str) else wrong  # two letters are no pair
            pairs.append((run_id, outcome))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{wrong!r} is no outcome of a run; give pairs of a run id and what happened in it, such as [('run-1', True)], "
            "and the items() of a dict",
            value=wrong,
        ) from error
    return pairs
