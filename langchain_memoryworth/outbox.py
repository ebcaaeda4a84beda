"""Work that must not run on an event loop's thread: done by one thread of our own, in order, and drained before reads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context


class Outbox:
    """A queue with one worker thread, started at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._worker: int | None = None

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

    def _run(self, run: Callable[[Callable[[], None]], None], work: Callable[[], None]) -> None:
        self._worker = threading.get_ident()
        run(work)

    def drain(self) -> None:
        """Wait until everything that was put in is done."""
        last = self._last
        if last is not None and not last.done() and threading.get_ident() != self._worker:
            last.exception()

    def close(self) -> None:
        """Drain, and end the thread."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)
