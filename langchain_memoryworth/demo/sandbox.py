"""Run snippets of Python in short-lived processes forked from a warm server process.

Importing langchain-core in a fresh interpreter takes longer than most recipes run. So one server
process imports the libraries once, and every run is a fork of it: the run starts with the
libraries loaded and with nothing that an earlier run left behind.

The sandbox protects against accidents (endless loops, `os._exit`, noisy output, files left in the
working directory, half-finished forks). It does not protect against malice: a snippet runs with
the rights of the user, sees the network and the file system, and may leave its process group.
Do not feed it code that you would not run yourself.

`Sandbox` is the client; `python -m langchain_memoryworth.demo.sandbox` runs the server. They
exchange JSON objects, one a line, over the server's standard input and output.
"""

from __future__ import annotations

import json
import os
import subprocess  # nosec B404  # a server of ours, in a process of its own so that it can be ended
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import IO, Any, Self

_DEFAULT_LIMIT = timedelta(seconds=5)
_GOODBYE_SECONDS = 5.0

# One thread a library: a fork copies only the calling thread, so a pool of others would be lost
# with its locks held. Tracing is off so that no recipe talks to a server.
_SERVER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "PYTHONHASHSEED": "0",
    "PYTHONIOENCODING": "utf-8",
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of one run.

    Attributes:
        ok: Whether the snippet ran to its end and its check held.
        error: Why not, on one line or more; `None` when `ok`. Starts with `setup:` when the
            setup failed, with `check:` when the check raised or did not hold.
        output: What the run wrote to standard output and standard error, cut off when long.
        seconds: Wall time of the run as the server saw it.
    """

    ok: bool
    error: str | None
    output: str
    seconds: float = 0.0


class SandboxError(RuntimeError):
    """The sandbox itself could not start or went away; says nothing about a snippet."""


class Sandbox:
    """A server process that runs snippets, each in a fork of its own.

    Use it as a context manager. `run` may be called from several threads; runs happen one after
    the other. It isolates from accidents, not from malice: see the module's docstring.

    Args:
        time_limit: Wall time after which a run is killed, together with the processes it forked.

    Raises:
        SandboxError: On entry, when the platform has no `os.fork` (Windows) or the server does
            not start.

    Example:
        >>> with Sandbox() as sandbox:
        ...     sandbox.run("result = a + 1", setup="a = 1", check="result == 2").ok
        True
    """

    def __init__(self, time_limit: timedelta = _DEFAULT_LIMIT) -> None:
        if time_limit <= timedelta(0):
            raise ValueError(f"time_limit must be positive, not {time_limit}")
        self._limit = time_limit.total_seconds()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._complaints: IO[str] | None = None
        self._resources = ExitStack()
        self._requests = 0

    @property
    def pid(self) -> int | None:
        """Process id of the server; `None` outside the context."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Self:
        """Start the server and wait until it has imported the libraries."""
        if not hasattr(os, "fork"):
            raise SandboxError("the sandbox needs os.fork, which this platform does not offer")
        with self._lock:
            if self._process is not None:
                raise SandboxError("the sandbox is already running")
            self._start()
            try:
                self._read_line()
            except BaseException:
                self._stop()
                raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the server."""
        with self._lock:
            self._stop()

    def run(self, code: str, *, setup: str = "", check: str = "True") -> RunResult:
        """Run a snippet and judge its result.

        Args:
            code: The snippet. It assigns the variable `result`.
            setup: Code that runs before it and defines its inputs.
            check: An expression over `result` (and the other variables) that must be true, or
                statements that must not raise.

        Returns:
            Whether all three went well, and why not.

        Raises:
            SandboxError: When the server is not running or went away.
        """
        with self._lock:
            self._requests += 1
            self._write_line(
                {
                    "id": self._requests,
                    "setup": setup,
                    "code": code,
                    "check": check,
                    "limit": self._limit,
                }
            )
            answer = self._read_line()
            # An interrupted call leaves its answer in the pipe: skip to the one asked for.
            while answer["id"] != self._requests:
                answer = self._read_line()
        return RunResult(answer["ok"], answer["error"], answer["output"], answer["seconds"])

    def _start(self) -> None:
        with ExitStack() as resources:
            # A file, not a pipe: nobody reads it unless the server fails, and a pipe fills up.
            self._complaints = resources.enter_context(
                tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
            )
            self._process = subprocess.Popen(  # nosec B603  # this interpreter, no shell, no argument from outside
                [sys.executable, "-m", "langchain_memoryworth.demo.sandbox"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env={**os.environ, **_SERVER_ENVIRONMENT},
                text=True,
                encoding="utf-8",
                # A Ctrl-C in the terminal is the client's to handle; it then closes the server.
                start_new_session=True,
            )
            self._resources = resources.pop_all()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            try:
                # Closes standard input, which the server reads as "goodbye".
                process.communicate(timeout=_GOODBYE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self._complaints = None
        self._resources.close()

    def _write_line(self, message: dict[str, Any]) -> None:
        if self._process is None or self._process.stdin is None:
            raise SandboxError("the sandbox is not running: use it as a context manager")
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise SandboxError(f"the sandbox server is gone: {self._last_words()}") from error

    def _read_line(self) -> dict[str, Any]:
        if self._process is None or self._process.stdout is None:
            raise SandboxError("the sandbox is not running: use it as a context manager")
        line = self._process.stdout.readline()
        if not line:
            raise SandboxError(f"the sandbox server ended: {self._last_words()}")
        message: dict[str, Any] = json.loads(line)
        return message

    def _last_words(self) -> str:
        if self._complaints is None:
            return "no message"
        self._complaints.seek(0)
        return self._complaints.read()[-2000:].strip() or "no message"


if __name__ == "__main__":
    from langchain_memoryworth.demo.sandbox_server import serve

    serve()
