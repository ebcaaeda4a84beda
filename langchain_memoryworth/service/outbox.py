"""Work that must not run on an event loop's thread: done by one thread of our own, in order, and drained before reads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context

SIZE = 1_000
"""Pieces of work that may wait: each holds what its run retrieved, so a database that is down must not fill the memory."""

# Set while work is done, also in the threads that the work starts with a copied context: an outcome function may ask a
# chain that retrieves, and to wait for itself would be for ever.
_working: ContextVar[object] = ContextVar("memory_worth_working", default=None)


class Outbox:
    """A queue with one worker thread, started at the first use.

    Nothing that is put in is ever dropped. What is bounded is who may put in more: a plain thread always waits for its
    work to be done, and on an event loop `room` is awaited first.

    Attributes:
        size: Pieces of work that may wait.
        waited: How often somebody had to wait for room.
    """

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self.waited = 0
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._undone = 0

    @property
    def full(self) -> bool:
        """Whether this thread or task is to wait before it puts in more; work that is being done here never is."""
        return self._undone >= self.size and _working.get() is not self

    async def room(self) -> None:
        """Wait until there is room; the event loop goes on meanwhile."""
        self.waited += self.full
        while self.full and self._last is not None:
            # `wait` leaves the work alone when the waiting task is cancelled, and takes no thread of the loop's executor.
            await asyncio.wait([asyncio.wrap_future(self._last)])

    def do(self, work: Callable[[], None]) -> None:
        """Run `work` here and now, or on the worker if this thread runs an event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.drain()  # what was put in before comes first
            work()
            return
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix="memoryworth")
            self._undone += 1
            self._last = self._executor.submit(self._run, copy_context().run, work)

    def _run(self, run: Callable[..., None], work: Callable[[], None]) -> None:
        try:
            run(self._work, work)
        finally:
            with self._lock:
                self._undone -= 1

    def _work(self, work: Callable[[], None]) -> None:
        _working.set(self)
        work()

    def drain(self) -> None:
        """Wait until everything that was put in is done, unless this is part of it."""
        last = self._last
        if last is not None and not last.done() and _working.get() is not self:
            last.exception()

    def close(self) -> None:
        """Drain, and end the thread. Work that put in more, as a chain in an outcome function does, is waited for too."""
        while True:
            with self._lock:
                executor, self._executor = self._executor, None
            if executor is None:
                return
            executor.shutdown(wait=True)
