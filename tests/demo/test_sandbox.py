"""The sandbox survives what goes wrong in a snippet, and leaves nothing behind."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from langchain_memoryworth.demo.sandbox import Sandbox, SandboxError

LIMIT = timedelta(seconds=1)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(time_limit=LIMIT) as running:
        yield running


@pytest.fixture(autouse=True)
def still_answers(sandbox: Sandbox) -> Iterator[None]:
    """After whatever a test did, the next run must be answered, and rightly."""
    yield
    assert sandbox.run("result = 6 * 7", check="result == 42").ok


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A dead process whose parent has not asked for its status still has an id.
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def wait_until_dead(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(pid)


def test_setup_code_and_check_share_their_names(sandbox: Sandbox) -> None:
    result = sandbox.run("result = a + 1", setup="a = 1", check="result == a + 1")
    assert result.ok
    assert result.error is None
    assert 0 < result.seconds < 1


def test_check_may_be_statements(sandbox: Sandbox) -> None:
    assert sandbox.run("result = 1", check="x = result\nassert x == 1").ok
    assert not sandbox.run("result = 1", check="x = result\nassert x == 2").ok


@pytest.mark.parametrize(
    ("code", "setup", "check", "error"),
    [
        ("result = 1", "", "result == 2", "check: does not hold for result = 1"),
        ("result = 1", "", "result.x", "check: AttributeError: 'int' object has no attribute 'x'"),
        ("result = 1", "1 / 0", "True", "setup: ZeroDivisionError: division by zero"),
        ("1 / 0", "", "True", "ZeroDivisionError: division by zero"),
        ("result =", "", "True", "SyntaxError: invalid syntax (<recipe>, line 1)"),
        ("raise SystemExit(0)", "", "True", "SystemExit: 0"),
        ("import sys; sys.exit('bye')", "", "True", "SystemExit: bye"),
        ("raise KeyboardInterrupt", "", "True", "KeyboardInterrupt: "),
        ("pass", "", "result == 1", "check: NameError: name 'result' is not defined"),
    ],
)
def test_failures_are_told_apart(
    sandbox: Sandbox, code: str, setup: str, check: str, error: str
) -> None:
    result = sandbox.run(code, setup=setup, check=check)
    assert not result.ok
    assert result.error == error


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import sys; sys.stdin.read(); import threading; threading.Event().wait()",
    ],
)
def test_time_limit(sandbox: Sandbox, code: str) -> None:
    started = time.monotonic()
    result = sandbox.run(code)
    assert time.monotonic() - started < 5
    assert result.error == "time limit of 1 s exceeded"
    assert not result.ok


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import os; os._exit(0)", "ended early without a report (exit code 0)"),
        ("import os; os._exit(7)", "ended early without a report (exit code 7)"),
        ("import os; os.abort()", "ended early without a report (signal SIGABRT)"),
        ("import os; os.kill(os.getpid(), 9)", "ended early without a report (signal SIGKILL)"),
        # The pipe for the report is gone then.
        ("import os; os.closerange(3, 200)", "ended early without a report (exit code 0)"),
    ],
)
def test_sudden_end(sandbox: Sandbox, code: str, error: str) -> None:
    result = sandbox.run(code)
    assert not result.ok
    assert result.error == error


def test_output_is_captured_and_is_no_answer(sandbox: Sandbox) -> None:
    code = """
import os, sys
print('{"ok": true, "error": null}')
print("oops", file=sys.stderr)
sys.stdout.flush()
os.write(1, b"\\xff\\n")
os.system("echo from a shell")
raise ValueError("no")
"""
    result = sandbox.run(code)
    assert result.error == "ValueError: no"
    for part in ('{"ok": true', "oops", "\ufffd", "from a shell"):
        assert part in result.output


def test_long_output_and_long_errors_are_cut(sandbox: Sandbox) -> None:
    result = sandbox.run("print('é' * 3_000_000); raise ValueError('\U0001f600' * 1_000_000)")
    assert not result.ok
    assert len(result.output) == 10_000
    assert result.error is not None
    assert len(result.error) == 2_000


def test_output_that_fills_the_disk_is_stopped(sandbox: Sandbox) -> None:
    result = sandbox.run("while True: print('x' * 1_000_000)")
    assert not result.ok
    assert len(result.output) == 10_000


def test_closed_streams(sandbox: Sandbox) -> None:
    assert sandbox.run("import sys; sys.stdout.close(); sys.stderr = None; result = 1").ok


def test_result_that_cannot_be_shown(sandbox: Sandbox) -> None:
    code = "class Shy:\n    def __repr__(self): raise RuntimeError('shy')\nresult = Shy()"
    assert sandbox.run(code, check="False").error == "check: RuntimeError: shy"


def test_error_that_cannot_be_shown(sandbox: Sandbox) -> None:
    code = "class Shy(Exception):\n    def __str__(self): raise RuntimeError('shy')\nraise Shy"
    result = sandbox.run(code)
    assert not result.ok
    assert result.error == "Shy: (the message cannot be shown)"


def test_forks_of_a_snippet_are_ended(sandbox: Sandbox) -> None:
    code = """
import os, time
child = os.fork()
if child == 0:
    time.sleep(60)
print(child)
result = child
"""
    result = sandbox.run(code, check="result > 0")
    assert result.ok
    assert result.seconds < 1
    assert wait_until_dead(int(result.output))


def test_fork_that_runs_on_does_not_report(sandbox: Sandbox) -> None:
    code = """
import os
child = os.fork()
if child:
    os.waitpid(child, 0)
result = child
"""
    assert sandbox.run(code, check="result > 0").ok


def test_every_run_starts_afresh(sandbox: Sandbox) -> None:
    spoil = """
import builtins, math, os, pathlib
math.pi = 3
builtins.leftover = 1
os.environ["LEFTOVER"] = "1"
pathlib.Path("leftover").write_text("x")
result = os.getcwd()
print(result)
"""
    folder = Path(sandbox.run(spoil).output.strip())
    assert not folder.exists()
    look = "import math, os; result = (math.pi > 3.1, 'LEFTOVER' in os.environ, os.listdir())"
    assert sandbox.run(look, check="result == (True, False, [])").ok
    assert sandbox.run("leftover").error == "NameError: name 'leftover' is not defined"


def test_libraries_are_loaded(sandbox: Sandbox) -> None:
    check = "{'numpy', 'pydantic', 'sqlalchemy', 'langchain_core', 'langgraph'} <= result"
    assert sandbox.run("import sys; result = set(sys.modules)", check=check).ok


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_server_has_one_thread(sandbox: Sandbox) -> None:
    # Not in a run: a fork has one thread whatever the server has.
    assert len(list(Path(f"/proc/{sandbox.pid}/task").iterdir())) == 1


def test_warnings_do_not_fail_a_run(sandbox: Sandbox) -> None:
    result = sandbox.run("import warnings; warnings.warn('old', DeprecationWarning); result = 1")
    assert result.ok
    assert result.output == ""


def test_calls_from_several_threads(sandbox: Sandbox) -> None:
    def square(n: int) -> bool:
        return sandbox.run(f"result = {n} ** 2", check=f"result == {n * n}").ok

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(square, range(24)))


def test_runs_are_fast(sandbox: Sandbox) -> None:
    seconds = sorted(sandbox.run("result = 1").seconds for _ in range(15))
    # The target is 30 ms; the margin is for busy machines.
    assert seconds[len(seconds) // 2] < 0.15


def test_server_is_gone_after_exit() -> None:
    with Sandbox() as running:
        pid = running.pid
        assert pid is not None
        assert is_alive(pid)
    assert running.pid is None
    assert not is_alive(pid)
    with pytest.raises(SandboxError, match="not running"):
        running.run("result = 1")


def test_killed_server_is_noticed() -> None:
    with Sandbox() as running:
        assert running.pid is not None
        os.kill(running.pid, 9)
        with pytest.raises(SandboxError, match="server"):
            running.run("result = 1")


def test_entering_twice_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="already running"):
        sandbox.__enter__()


def test_not_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(SandboxError, match=r"os\.fork"), Sandbox():
        pass


def test_time_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        Sandbox(time_limit=timedelta(0))
