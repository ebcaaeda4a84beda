"""The command line at a real terminal, and every command with inputs that are wrong: a reason, an exit code, no traceback."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.cli.commands import app
from langchain_memoryworth.cli.main import main
from tests.fakes import Clock, HashedWords
from tests.policies import plain

COMMAND = str(Path(sys.executable).with_name("langchain-memoryworth"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store, a file that is none, and a folder."""
    url = f"sqlite:///{tmp_path / 'memories.db'}"
    policy = plain(v_min=2, exploration=0.0)
    with MemoryWorthStore(url, HashedWords(), policy=policy, clock=Clock()) as store:
        store.add_texts(["red [bold]text[/bold]", "green"], ids=["bad", "pinned"])
        for n in range(3):
            with store.episode(f"r{n}") as episode:
                store.similarity_search("red", k=1)
            episode.record(False)
        store.pin("pinned")
    (tmp_path / "notes.txt").write_text("this is no database\n" * 100)
    (tmp_path / "folder").mkdir()
    return tmp_path


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("MEMORYWORTH_DATABASE", "NO_COLOR")}
    return {**kept, "TERM": "xterm-256color", "COLUMNS": "100", **more}


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=environment(**more),
        timeout=120,
    )


def at_terminal(folder: Path, *arguments: str) -> str:
    """What a terminal is sent, on stdout and stderr."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (30, 100))
    with subprocess.Popen(
        [COMMAND, *arguments], stdout=theirs, stderr=theirs, cwd=folder, env=environment()
    ) as process:
        os.close(theirs)
        sent = b"".join(_read(ours))
    assert process.returncode == 0, sent
    return sent.decode()


def _read(file: int) -> Iterator[bytes]:
    with open(file, "rb", buffering=0) as reader:
        try:
            while block := reader.read(65536):
                yield block
        except OSError:  # how Linux says that the other side has closed
            return


WRONG: dict[str, list[list[str]]] = {
    "status": [["-d", "nowhere.db"], ["-d", "notes.txt"], ["-d", ""]],
    "list": [["--limit", "0"], ["--status", "wild"], ["-n", "a//b"]],
    "show": [[], ["ghost"], ["bad", "-n", "elsewhere"]],
    "explain": [[], ["ghost"], ["--run", "ghost"]],
    "effects": [["-d", "nowhere.db"], ["--limit", "0"], ["-n", "a//b"]],
    "lift": [["ghost"], ["-d", "notes.txt"], ["-n", "a//b"]],
    "paths": [["-d", "nowhere.db"], ["--limit", "0"], ["-n", "a//b"]],
    "plan": [["ghost"], ["bad", "--rate", "1"], ["bad", "--lift", "0"]],
    "learn-pairs": [[], ["-d", "notes.txt"], ["-n", "a//b"]],
    "review": [["--why", "wild"], ["--decide", "wild"], ["--memory", "x", "--decide", "reject"]],
    "suppress": [[], ["ghost"], ["pinned"]],
    "restore": [[], ["ghost"], ["bad", "ghost"]],
    "pin": [[], ["ghost"], ["bad", "-d", "folder"]],
    "unpin": [[], ["ghost"], ["-n"]],
    "deprecate": [[], ["ghost"], ["pinned"]],
    "undo": [[], ["first"], ["9999"]],
    "erase": [[], ["ghost", "--yes"], ["--subject", "user", "--yes"], ["bad"]],
    "outcome": [["r0"], ["ghost", "true"], ["r0", "INCORRECTLY"], ["r0", "1", "--used", "x"]],
    "revoke": [[], ["ghost"], ["user", "--voter", "ghost"], ["user"]],
    "export": [[], ["notes.txt"], ["nowhere/all.jsonl"], ["folder", "--force"]],
    "import": [["nowhere.jsonl"], ["notes.txt"], ["folder"], ["notes.txt", "--format", "csv"]],
    "report": [["nowhere/r.html"], ["folder"], ["--plots", "notes.txt"]],
    "compact": [[], ["--older-than", "-1", "--yes"], ["--older-than", "1"]],
    "vacuum": [["-d", "nowhere.db"], ["--wild"], []],
    "doctor": [["-d", "nowhere.db"], ["--wild"], ["-d", "foo://bar"]],
    "migrate": [["-d", "nowhere.db"], ["more"], ["-d", "notes.txt"]],
    "demo": [["--episodes", "0"], ["--block", "none"], ["--seed", "x"]],
    "paper": [["--episodes", "0"], ["--seeds", "0"], ["--out"]],
    "version": [["more"], ["--wild"], ["--json", "more"]],
}


def test_every_command_is_tried_with_three_wrong_inputs():
    assert set(WRONG) == {c.name or c.callback.__name__ for c in app.registered_commands}
    assert all(len(inputs) >= 3 for inputs in WRONG.values())


@pytest.mark.parametrize("name", sorted(WRONG))
def test_wrong_inputs_have_a_reason_and_change_nothing(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MEMORYWORTH_DATABASE", raising=False)
    before = (folder / "memories.db").read_bytes()
    there = sorted(folder.iterdir())
    for wrong in WRONG[name]:
        monkeypatch.setattr(sys, "argv", ["langchain-memoryworth", name, *wrong])
        with pytest.raises(SystemExit) as left:  # any other exception would be a traceback
            main()
        reason = capsys.readouterr().err
        assert left.value.code in (1, 2), (wrong, reason)
        assert reason.strip(), wrong
        if left.value.code == 1 and "[y/N]" not in reason:
            assert reason.splitlines()[-1].startswith("error: "), (wrong, reason)
    assert (folder / "memories.db").read_bytes() == before
    assert [p for p in sorted(folder.iterdir()) if not p.name.startswith("memories.db-")] == there


def test_tables_are_drawn_and_stored_text_is_no_markup(folder: Path):
    shown = at_terminal(folder, "list")
    assert "──" in shown
    assert "red [bold]text[/bold]" in shown
    assert "\x1b[31msuppressed" in shown
    assert "──" not in run(folder, "list").stdout


@pytest.mark.parametrize(
    ("arguments", "step"),
    [
        (["export", "all.jsonl"], "writing"),
        (["import", "all.jsonl", "--yes"], "reading"),
        (["doctor"], "adding up"),
        (["migrate"], "migrating"),
        (["report"], "drawing"),
        (["paper", "1", "--seeds", "1", "--episodes", "20", "--out", "paper"], "seeds"),
    ],
)
def test_long_work_shows_how_far_it_is_at_a_terminal_and_nowhere_else(
    folder: Path, arguments: list[str], step: str
):
    if arguments[0] == "import":
        run(folder, "export", "all.jsonl")
    if arguments[0] == "export":
        assert run(folder, "export", "quiet.jsonl").stderr == ""
    assert f"{step}:" in at_terminal(folder, *arguments)
    again = [*arguments, "--force"] if arguments[0] == "export" else arguments
    said = at_terminal(folder, *again, "--json")
    assert isinstance(json.loads(said), dict)  # and nothing else


def test_the_shell_completes_commands_and_options(folder: Path):
    for words, offered in [("su", "suppress"), ("list --st", "--status")]:
        done = run(
            folder,
            _LANGCHAIN_MEMORYWORTH_COMPLETE="complete_bash",
            COMP_WORDS=f"langchain-memoryworth {words}",
            COMP_CWORD=str(len(words.split())),
        )
        assert offered in done.stdout.split(), done
