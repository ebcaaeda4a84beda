"""The server end of the sandbox: forks a process for every request and reports how it ended.

It runs as a process of its own, see `langchain_memoryworth.demo.sandbox`. Needs POSIX.
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings
from contextlib import suppress
from typing import IO, Any, NoReturn

# Imported before the first fork. None of them starts a thread: torch and faiss stay out.
_LIBRARIES = (
    "asyncio",
    "dataclasses",
    "inspect",
    "xml.etree.ElementTree",
    "numpy",
    "pydantic",
    "sqlalchemy",
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.ext.declarative",
    "sqlalchemy.orm",
    "langchain_core.documents",
    "langchain_core.embeddings",
    "langchain_core.language_models",
    "langchain_core.messages",
    "langchain_core.output_parsers",
    "langchain_core.prompts",
    "langchain_core.retrievers",
    "langchain_core.runnables",
    "langchain_core.tools",
    "langchain_core.vectorstores",
    "langgraph.checkpoint.memory",
    "langgraph.graph",
    "langgraph.prebuilt",
)
_MAX_OUTPUT_CHARS = 10_000
_MAX_ERROR_CHARS = 2_000
_MAX_FILE_BYTES = 64 * 1024 * 1024
# A pipe holds this much without a reader; the longest report (all characters escaped) fits.
_PIPE_BYTES = 65_536


def serve() -> None:
    """Answer requests from standard input until it ends."""
    # Keep the protocol's channels to ourselves: whatever is printed goes to standard error, and
    # the duplicates are closed on exec.
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _LIBRARIES:
            importlib.import_module(name)
    gc.freeze()
    _answer(answers, {"ready": True})
    for line in requests:
        request = json.loads(line)
        _answer(answers, {"id": request["id"], **_run(request, (requests, answers))})


def _answer(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _run(request: dict[str, Any], private: tuple[IO[str], ...]) -> dict[str, Any]:
    """Run one request in a fork; `private` are the files the fork must not touch."""
    folder = tempfile.mkdtemp(prefix="memoryworth-run-")
    started = time.perf_counter()
    try:
        with tempfile.TemporaryFile() as output:
            ok, error = _fork(request, private, folder, output)
            output.seek(0)
            # At most four bytes a character in UTF-8.
            printed = output.read(4 * _MAX_OUTPUT_CHARS).decode("utf-8", "replace")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "ok": ok,
        "error": error,
        "output": printed[:_MAX_OUTPUT_CHARS],
        "seconds": time.perf_counter() - started,
    }


def _fork(
    request: dict[str, Any], private: tuple[IO[str], ...], folder: str, output: IO[bytes]
) -> tuple[bool, str | None]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(request, private, folder, output.fileno(), writer)
    os.close(writer)
    try:
        status, timed_out = _wait(pid, request["limit"])
        if timed_out:
            return False, f"time limit of {request['limit']:g} s exceeded"
        return _read_report(reader, status)
    finally:
        os.close(reader)


def _wait(pid: int, limit: float) -> tuple[int, bool]:
    """Wait for a child, kill it at the limit, and then kill whatever it forked."""
    timed_out = False

    def kill(*_: object) -> None:
        nonlocal timed_out
        timed_out = True
        _kill(pid)

    signal.signal(signal.SIGALRM, kill)
    signal.setitimer(signal.ITIMER_REAL, limit)
    _, status = os.waitpid(pid, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    _kill_group(pid)
    return status, timed_out


def _kill(pid: int) -> None:
    # By its own id too: the child may not have made its group yet, or have left it.
    _kill_group(pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    # macOS answers "not permitted" instead of "no such process" for a group of dead processes.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _read_report(reader: int, status: int) -> tuple[bool, str | None]:
    """Read what the child reported, if it got that far."""
    # Not to its end: a process that the recipe forked may still hold the other end open.
    os.set_blocking(reader, False)
    try:
        report = json.loads(os.read(reader, _PIPE_BYTES))
        return bool(report["ok"]), report["error"]
    except (BlockingIOError, ValueError):
        code = os.waitstatus_to_exitcode(status)
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return False, f"ended early without a report ({how})"


def _child(
    request: dict[str, Any], private: tuple[IO[str], ...], folder: str, output: int, writer: int
) -> NoReturn:
    """Run the request in this process, report, and leave without any clean-up of the server's."""
    me = os.getpid()
    try:
        _confine(private, folder, output, request["limit"])
        error = _execute(request)
        for stream in (sys.stdout, sys.stderr):
            # The recipe may have closed them.
            with suppress(ValueError, OSError, AttributeError):
                stream.flush()
        # A recipe that forks comes here twice; only the first process reports.
        if os.getpid() == me:
            report = {"ok": error is None, "error": error and error[:_MAX_ERROR_CHARS]}
            os.write(writer, json.dumps(report).encode())
    except BaseException:
        # Goes to the output of the run; the missing report tells that something went wrong.
        traceback.print_exc()
    finally:
        os._exit(0)


def _confine(private: tuple[IO[str], ...], folder: str, output: int, limit: float) -> None:
    os.setsid()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for file in private:
        os.close(file.fileno())
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    seconds = math.ceil(limit) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.resetwarnings()
    warnings.simplefilter("ignore")


def _execute(request: dict[str, Any]) -> str | None:
    """Run setup, recipe and check in a fresh module; return what went wrong.

    Running code is the purpose here, hence `exec`.
    """
    # A registered module, as dataclasses and pydantic look up names in `sys.modules`.
    module = types.ModuleType("recipe")
    sys.modules["recipe"] = module
    step = "setup: "
    try:
        _evaluate(request["setup"], "<setup>", module.__dict__)
        step = ""
        _evaluate(request["code"], "<recipe>", module.__dict__)
        step = "check: "
        if not _holds(request["check"], module.__dict__):
            return f"check: does not hold for result = {module.__dict__.get('result')!r}"
    # Whatever a recipe raises is its outcome, `SystemExit` and `KeyboardInterrupt` too.
    except BaseException as error:
        return f"{step}{_describe(error)}"
    return None


def _describe(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:
        message = "(the message cannot be shown)"
    return f"{type(error).__name__}: {message}"


def _holds(check: str, namespace: dict[str, Any]) -> bool:
    try:
        expression = compile(check, "<check>", "eval")
    except SyntaxError:
        _evaluate(check, "<check>", namespace)
        return True
    return bool(eval(expression, namespace))  # nosec B307  # as in _evaluate


def _evaluate(source: str, name: str, namespace: dict[str, Any]) -> None:
    code = compile(source, name, "exec")
    exec(code, namespace)  # nosec B102  # the demo's own recipes, in a process that limits itself first
