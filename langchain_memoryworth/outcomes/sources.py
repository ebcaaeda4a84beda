"""Outcomes from where they already are: feedback services are asked what was said of runs, and the ledger follows.

A pull may be repeated and interrupted as one likes: what a service says is recorded under its own id for it, so nothing
counts twice, what was corrected is corrected, and what was deleted is withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from langchain_core.runnables import run_in_executor

from langchain_memoryworth.errors import UnknownRunError
from langchain_memoryworth.records import Outcome
from langchain_memoryworth.service.governor import Governor, governor_of

_T = TypeVar("_T")

CHUNK = 50
"""Ids in one request; they travel in the URL."""


class Feedback(NamedTuple):
    """One thing that a service says of a run.

    Attributes:
        id: The service's own id of it; it stays when the feedback is corrected.
        run_ids: By which the run may be known here, the likeliest first.
        key: What was judged, such as `correctness`.
        score: As the service has it: a number, a bool, a category, or None.
        created_at: When it was first said.
        version: When it was last changed.
    """

    id: str
    run_ids: tuple[str, ...]
    key: str
    score: Any
    created_at: datetime | None
    version: datetime | None


class OutcomeSource(Protocol):
    """A service that holds feedback.

    Attributes:
        name: The source under which its outcomes are recorded; `Policy.sources` may list it.
        name_of: From a run id to what the service calls the run; None if it calls it by that id.
    """

    name: str
    name_of: Callable[[str], str] | None

    def since(self, moment: datetime | None, keys: Sequence[str] | None) -> Iterator[Feedback]:
        """What was said at or after a moment, None for ever, of some keys or of all."""

    def again(self, said: Mapping[str, str]) -> Iterator[Feedback]:
        """What is left of feedback that was read before: from its id to the run's. Deleted ones are left out."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull did.

    Attributes:
        recorded: Outcomes that are new or were corrected.
        unchanged: Those that were known.
        withdrawn: Those whose feedback was deleted, or says nothing any more.
        ignored: Feedback that is no outcome.
        unknown: Feedback on runs that are not in the ledger.
        until: When the newest feedback was given; the next pull may start `since` there.
    """

    recorded: int = 0
    unchanged: int = 0
    withdrawn: int = 0
    ignored: int = 0
    unknown: int = 0
    until: datetime | None = None


def as_reward(feedback: Feedback) -> bool | float | None:
    """The default reading: bools and numbers in [0, 1] are outcomes, nothing else is.

    Examples:
        >>> as_reward(Feedback("f", ("r",), "stars", 4, None, None)) is None
        True
    """
    score = feedback.score
    return score if isinstance(score, (bool, int, float)) and 0 <= score <= 1 else None


def pull(
    store: Any,
    source: OutcomeSource,
    *,
    since: datetime | None = None,
    keys: Sequence[str] | None = None,
    outcome: Callable[[Feedback], bool | float | Outcome | None] = as_reward,
    by_key: bool = False,
    follow: timedelta | None = timedelta(days=30),
    progress: Callable[[Pulled], None] | None = None,
) -> Pulled:
    """Bring the ledger up to what a service says.

    Args:
        store: The store.
        source: The service.
        since: Only feedback given at or after it; None means all. Corrections and deletions are found by `follow`.
        keys: Only feedback of these keys; None means all.
        outcome: From feedback to an outcome, None if it is none. Scores of any scale are the service's affair, so a
            scale of stars or of -1 and 1 needs a function.
        by_key: Each key is a metric of its own, and `Policy.metric` says which one drives worth. Otherwise all of them
            speak of the outcome as such, and the newest counts.
        follow: Outcomes pulled before are looked up again if their run began within this time before `since`, or
            before now; None means all of them.
        progress: Told how far it is, after each `CHUNK` of feedback.

    Returns:
        What was done.

    Raises:
        InvalidOutcomeError: If `outcome` gives what is none.
        Exception: Whatever the service's client raises. What was read before is recorded; pull again.
    """
    work = _Pull(governor_of(store), source, outcome, keys, by_key, progress or (lambda _: None))
    old = work.known(since, follow)
    for chunk in _chunks(source.since(since, keys), CHUNK):
        work.take(chunk)
    for ids in _chunks((i for i in old if i not in work.seen), CHUNK):
        said = {i: old[i] for i in ids}
        work.take(source.again(said))
        work.withdraw({i: run for i, run in said.items() if i not in work.seen})
    return work.done


async def apull(store: Any, source: OutcomeSource, **options: Any) -> Pulled:
    """`pull` off the event loop, with the same arguments: the services' clients wait for their answers."""
    return await run_in_executor(None, partial(pull, store, source, **options))


@dataclass(slots=True)
class _Pull:
    governor: Governor
    source: OutcomeSource
    outcome: Callable[[Feedback], bool | float | Outcome | None]
    keys: Sequence[str] | None
    by_key: bool
    progress: Callable[[Pulled], None]
    done: Pulled = Pulled()
    seen: dict[str, datetime | None] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] | None = None

    def known(self, since: datetime | None, follow: timedelta | None) -> dict[str, str]:
        """The run by feedback id, of what was pulled before."""
        moment = None if follow is None else (since or self.governor.now()) - follow
        said = self.governor.journal.said_by(self.source.name, moment)
        self.metrics = {key.source_id: key.metric for _, key in said}
        return {key.source_id: run_id for run_id, key in said}

    def take(self, feedback: Iterable[Feedback]) -> None:
        for one in feedback:
            if one.id in self.seen and not _newer(one.version, self.seen[one.id]):
                continue  # pages move while they are read
            self.seen[one.id] = one.version
            if self.keys is None or one.key in self.keys:
                self._record(one)
        self.progress(self.done)

    def withdraw(self, said: Mapping[str, str]) -> None:
        """Take back what the service no longer says."""
        for feedback_id, run_id in said.items():
            gone = self._write(run_id, None, feedback_id, self.metrics[feedback_id])
            self._count(withdrawn=int(gone))
        self.progress(self.done)

    def _record(self, one: Feedback) -> None:
        judged = self.outcome(one)
        metric = one.key if self.by_key else ""
        before = self.metrics.get(one.id)
        changed = None
        for run_id in one.run_ids:
            changed = self._try(run_id, one.id, judged, metric, before)
            if changed is not None:
                break
        until = max(filter(None, (self.done.until, one.created_at)), default=None)
        self.done = replace(self.done, until=until)
        if changed is None:
            self._count(unknown=1)
        elif judged is None:
            self._count(withdrawn=int(changed), ignored=int(not changed))
        else:
            self._count(recorded=int(changed), unchanged=int(not changed))

    def _try(
        self,
        run_id: str,
        feedback_id: str,
        judged: bool | float | Outcome | None,
        metric: str,
        before: str | None,
    ) -> bool | None:
        for name in (run_id, self._named(run_id)):
            if name is None:
                continue
            try:
                changed = self._write(name, judged, feedback_id, metric)
                if before is not None and before != metric:
                    self._write(name, None, feedback_id, before)
            except UnknownRunError:
                continue
            return changed
        return None

    def _write(
        self, run_id: str, judged: bool | float | Outcome | None, feedback_id: str, metric: str
    ) -> bool:
        return self.governor.journal.record_outcome(
            run_id, judged, source=self.source.name, source_id=feedback_id, metric=metric
        )

    def _named(self, name: str) -> str | None:
        """Our name of a run that the service calls by another."""
        if self.source.name_of is None:
            return None
        if self.names is None:
            self.names = {self.source.name_of(i): i for i in self.governor.journal.run_ids()}
        return self.names.get(name)

    def _count(self, **more: int) -> None:
        self.done = replace(
            self.done, **{name: getattr(self.done, name) + n for name, n in more.items()}
        )


def _chunks(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def _newer(version: datetime | None, than: datetime | None) -> bool:
    return version is not None and than is not None and version > than
