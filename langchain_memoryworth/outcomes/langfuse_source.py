"""Scores of Langfuse as outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_memoryworth.errors import MissingExtraError
from langchain_memoryworth.outcomes.sources import Feedback


class LangfuseScores:
    """Scores of Langfuse.

    A trace there has an id of its own. By default it is taken to be made from the run's id, by tracing with
    `CallbackHandler(trace_context={"trace_id": Langfuse.create_trace_id(seed=str(run_id))})`; a trace id that is an
    alias of a run in the ledger is found too.

    Args:
        client: `langfuse.Langfuse`, or its `api`; None makes one from the environment.
        trace_id: From a run id to the id of its trace.
        name: See `OutcomeSource`.
    """

    def __init__(
        self,
        client: Any = None,
        *,
        trace_id: Callable[[str], str] | None = None,
        name: str = "langfuse",
    ) -> None:
        if client is None or trace_id is None:
            try:
                from langfuse import Langfuse, get_client
            except ImportError as error:
                raise MissingExtraError("langfuse", "langfuse") from error
            client = get_client() if client is None else client
            trace_id = trace_id or (lambda run_id: Langfuse.create_trace_id(seed=run_id))
        self.name = name
        self._scores = getattr(client, "api", client).scores
        self.name_of = trace_id

    def since(self, moment: datetime | None, keys: Sequence[str] | None) -> Iterator[Feedback]:
        """See `OutcomeSource`."""
        return self._pages(
            name=None if keys is None else ",".join(keys),
            from_timestamp=None if moment is None else moment.astimezone(UTC),
        )

    def again(self, said: Mapping[str, str]) -> Iterator[Feedback]:
        """See `OutcomeSource`."""
        return self._pages(id=",".join(said))

    def _pages(self, **options: Any) -> Iterator[Feedback]:
        cursor: str | None = None
        while True:
            page = self._scores.get_many(limit=100, cursor=cursor, fields="subject", **options)
            yield from map(self._read, page.data)
            cursor = page.meta.cursor
            if cursor is None:
                return

    def _read(self, one: Any) -> Feedback:
        subject = one.subject
        place = getattr(subject, "trace_id", None) if subject.kind == "observation" else subject.id
        ids = () if place is None else (str(place),)
        return Feedback(one.id, ids, one.name, one.value, one.timestamp, one.updated_at)
