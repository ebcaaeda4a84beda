"""Group commit: what several threads write at once goes into one transaction, and each waits until that is committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Generic, TypeVar

from langchain_memoryworth.errors import InvalidInputError, StorageError

MOST = 1_000
"""Items that go into one transaction at most; the others go into the next."""

_LONGEST = timedelta(days=1)
"""Of a window. Nobody means one that is longer, and the clocks of some machines do not reach as far."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class GroupCommit(Generic[_T, _R]):
    """Hands items of many threads to one function, a group at a time.

    There is no thread of its own. Whoever finds nobody at work writes for all who wait; those who come meanwhile are the
    next group. Those of a group go on at about the same time, and the first of them to come back would write alone: with a
    `window` it waits for as many as there were. So a caller who has been alone waits for nobody.

    Args:
        write: Writes down items in one transaction, in order, and gives a result for each. Items that were written already
            may come again.
        window: How long who writes waits at most until as many have come as the last time, from 0 to a day.

    Raises:
        InvalidInputError: If `window` is no such time.

    Examples:
        >>> group = GroupCommit(lambda items: [i.upper() for i in items], timedelta(0))
        >>> group.do("one")
        'ONE'
    """

    def __init__(self, write: Callable[[Sequence[_T]], Sequence[_R]], window: timedelta) -> None:
        if not isinstance(window, timedelta) or not timedelta(0) <= window <= _LONGEST:
            raise InvalidInputError(
                f"group_commit={window!r}; give a timedelta from 0 to a day, such as "
                "timedelta(milliseconds=2), or None",
                value=window,
            )
        self.window = window
        self._write = write
        self._waiting: list[tuple[_T, Future[_R]]] = []
        self._changed = threading.Condition()
        self._busy = False
        self._closing = False
        self._usual = 1

    @property
    def waiting(self) -> int:
        """How many items are in no group yet."""
        return len(self._waiting)

    def do(self, item: _T) -> _R:
        """Write an item down; returns when it is committed.

        Raises:
            Exception: What `write` raises for this item alone, or for all of its group if the storage is at fault.
        """
        future: Future[_R] = Future()
        with self._changed:
            self._waiting.append((item, future))
            self._changed.notify_all()
        self._work_until(future.done)
        return future.result()

    def close(self) -> None:
        """Wait for nobody any more, and write what is left."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._work_until(lambda: not self._waiting and not self._busy)

    def _work_until(self, done: Callable[[], bool]) -> None:
        """Write groups whenever nobody else does, until something is done by anybody."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: done() or not self._busy)
                if done():
                    return
                self._busy = True
            try:
                self._write_group()
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _write_group(self) -> None:
        with self._changed:
            self._changed.wait_for(self._gathered, self.window.total_seconds())
            group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            self._settle(group)
        finally:  # it was interrupted, say from the keyboard: the others' turn comes again
            with self._changed:
                self._usual = min(MOST, max(len(group), len(self._waiting)))
                self._waiting[:0] = [one for one in group if not one[1].done()]

    def _gathered(self) -> bool:
        return self._closing or len(self._waiting) >= self._usual

    def _settle(self, group: Sequence[tuple[_T, Future[_R]]]) -> None:
        try:
            found = self._write([item for item, _ in group])
        except Exception as error:  # noqa: BLE001 - it is raised where it belongs
            if len(group) == 1 or isinstance(error, StorageError):
                for _, future in group:
                    future.set_exception(error)
            else:  # one of them is at fault, and the others have nothing to do with it
                for one in group:
                    self._settle([one])
            return
        for (_, future), result in zip(group, found, strict=True):
            future.set_result(result)
