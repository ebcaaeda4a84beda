"""What could not be recorded: counted always, logged once, never raised into the user's run."""

from __future__ import annotations

import logging
import threading
from collections import Counter

logger = logging.getLogger("langchain_memoryworth")


class Losses:
    """Counters of one store, since it was opened."""

    def __init__(self) -> None:
        self.after_fork()
        self._failures: Counter[str] = Counter()
        self.unattributed = 0
        self.last: str | None = None

    def after_fork(self) -> None:
        """A lock that no thread holds: one of the parent's may have held the old one."""
        self._lock = threading.Lock()

    @property
    def failures(self) -> dict[str, int]:
        """How often each step failed."""
        with self._lock:
            return dict(self._failures)

    def unknown_run(self) -> None:
        """Count a retrieval that belongs to no known run."""
        with self._lock:
            self.unattributed += 1

    def failed(self, step: str, error: BaseException) -> None:
        """Count a failure; the first of each step is logged with its traceback."""
        said = _text_of(error)
        with self._lock:
            self._failures[step] += 1
            first = self._failures[step] == 1
            self.last = f"{step}: {type(error).__name__}: {said}"
        if first:
            logger.warning(
                "could not record %s (%s: %s); the run goes on, further ones are only counted, "
                "see store.health()",
                step,
                type(error).__name__,
                said,
                exc_info=error,
            )

    def guard(self, step: str) -> _Guard:
        """Turn any exception inside into a counted failure."""
        return _Guard(self, step)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error of the user's, whose text is code of his, too
        return "its text raises"


class _Guard:
    """Not made with `contextmanager`, which costs as much as what most events have to do."""

    __slots__ = ("_losses", "_step")

    def __init__(self, losses: Losses, step: str) -> None:
        self._losses = losses
        self._step = step

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        # Whatever it is, the user's run is worth more than our record of it.
        if not isinstance(error, Exception):
            return False
        self._losses.failed(self._step, error)
        return True
