"""Feedback of LangSmith as outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from langchain_memoryworth.errors import MissingExtraError
from langchain_memoryworth.outcomes.sources import Feedback


class LangSmithFeedback:
    """Feedback of LangSmith. Run ids are the same there; feedback on a step counts for the trace that it is in.

    Args:
        client: `langsmith.Client`; None makes one from the environment.
        project_id: Only feedback of this project.
        name: See `OutcomeSource`.
    """

    def __init__(
        self, client: Any = None, *, project_id: str | UUID | None = None, name: str = "langsmith"
    ) -> None:
        if client is None:
            try:
                from langsmith import Client
            except ImportError as error:
                raise MissingExtraError("langsmith", "langsmith") from error
            client = Client()
        self.name = name
        self.name_of = None
        self._client = client
        self._within = {} if project_id is None else {"session": str(project_id)}

    def since(self, moment: datetime | None, keys: Sequence[str] | None) -> Iterator[Feedback]:
        """See `OutcomeSource`."""
        options: dict[str, Any] = dict(self._within)
        if moment is not None:
            options["min_created_at"] = moment.astimezone(UTC).isoformat()
        if keys is not None:
            options["feedback_key"] = list(keys)
        return map(self._read, self._client.list_feedback(**options))

    def again(self, said: Mapping[str, str]) -> Iterator[Feedback]:
        """See `OutcomeSource`. All feedback on the runs in one request; what is not there is asked for by its id."""
        from langsmith.utils import LangSmithNotFoundError

        missing = set(said)
        runs = sorted({run_id for run_id in said.values() if _is_uuid(run_id)})
        for one in map(self._read, self._client.list_feedback(run_ids=runs) if runs else ()):
            if one.id in missing:
                missing.discard(one.id)
                yield one
        for feedback_id in sorted(missing):
            try:
                yield self._read(self._client.read_feedback(feedback_id))
            except LangSmithNotFoundError:
                continue

    def _read(self, one: Any) -> Feedback:
        ids = tuple(dict.fromkeys(str(i) for i in (one.run_id, one.trace_id) if i is not None))
        score = one.value if one.score is None else one.score
        version = one.modified_at or one.created_at
        return Feedback(str(one.id), ids, one.key, score, _aware(one.created_at), _aware(version))


def _aware(moment: datetime | None) -> datetime | None:
    """LangSmith's times come without a zone, and mean UTC."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
