"""Work that must not run on an event loop's thread: done by one thread of our own, in order, and drained before reads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context

# Set while work is done, also in the threads that the work starts with a copied context: an outcome function may ask a
# chain that retrieves, and to wait for itself would be for ever.
_working: ContextVar[object] = ContextVar("memory_worth_working", default=None)


class Outbox:
    """A queue with one worker thread, started at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

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
            self._last = self._executor.submit(self._run, copy_context().run, work)

    def _run(self, run: Callable[..., None], work: Callable[[], None]) -> None:
        run(self._work, work)

    def _work(self, work: Callable[[], None]) -> None:
        _working.set(self)
        work()

    def drain(self) -> None:
        """Wait until everything that was put in is done, unless this is part of it."""
        last = self._last
        if last is not None and not last.done() and _working.get() is not self:
            last.exception()

    def close(self) -> None:
        """Drain, and end the thread."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)
