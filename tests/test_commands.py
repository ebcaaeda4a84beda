"""The commands for operators: every one with `--json`, exit codes, no traceback, no surprise for a terminal."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.cli.commands import app
from langchain_memoryworth.errors import InvalidInputError, MemoryWorthError
from langchain_memoryworth.records import Status
from langchain_memoryworth.terminal import clean
from tests.conftest import StoreMaker
from tests.fakes import Clock, HashedWords, execute
from tests.ledger_server import Server, new_schema
from tests.policies import plain

EVIL = "red \x1b]0;owned\x07\x1b[2J\u202e alert\nsecond"
Cli = Callable[..., Result]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store with a bad memory, a good one, and one whose text attacks a terminal."""
    path = tmp_path / "m.db"
    policy = plain(v_min=2, exploration=0.0)
    with MemoryWorthStore(
        f"sqlite:///{path}", HashedWords(), policy=policy, clock=Clock()
    ) as store:
        store.add_texts(
            ["red", "green", EVIL],
            [{"user": "ada"}, {}, {"note\x1b": EVIL}],
            ids=["bad", "good", "evil\x1b[1m"],
        )
        store.add_texts(["red"], ids=["elsewhere"], namespace=("acme", "chat"))
        for n in range(4):
            with store.episode(f"r{n}") as episode:
                store.similarity_search("red" if n < 2 else "green", k=1)
            episode.record(n >= 2)
        with store.episode("open"):
            store.similarity_search("green", k=1)
        store.pin("evil\x1b[1m", reason=EVIL, actor=EVIL)
    return path


@pytest.fixture
def cli(file: Path) -> Cli:
    runner = CliRunner()

    def call(*arguments: str, input: str | None = None) -> Result:
        return runner.invoke(
            app, list(arguments), env={"MEMORYWORTH_DATABASE": str(file)}, input=input
        )

    return call


def answer(result: Result) -> Any:
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def test_status(cli: Cli):
    document = answer(cli("status", "--json"))
    assert document["health"]["memories"] == 4
    assert document["health"]["suppressed"] == document["health"]["pinned"] == 1
    assert document["health"]["pending"] + document["health"]["expired"] == 1
    assert document["policy"]["v_min"] == 2
    assert "suppressed is what is below 0.4 from 2 retrievals on" in cli("status").stdout


def test_list(cli: Cli):
    assert [m["id"] for m in answer(cli("list", "--json"))] == ["bad", "evil\x1b[1m", "good"]
    assert [m["id"] for m in answer(cli("list", "--status", "suppressed", "--json"))] == ["bad"]
    assert [m["id"] for m in answer(cli("list", "-n", "acme/chat", "--json"))] == ["elsewhere"]
    assert len(cli("list", "--limit", "1").stdout.splitlines()) == 2


def test_status_names_every_namespace(cli: Cli):
    spaces = answer(cli("status", "--json"))["namespaces"]
    assert spaces == [
        {"namespace": [], "memories": 3},
        {"namespace": ["acme", "chat"], "memories": 1},
    ]
    answer(cli("erase", "elsewhere", "-n", "acme/chat", "--yes", "--json"))
    assert "acme/chat" not in cli("status").stdout


def test_show_and_explain(cli: Cli):
    document = answer(cli("show", "bad", "--json"))
    assert document["memory"]["evidence"]["worth"] == 0.0
    assert document["history"][0]["kind"] == "suppress"
    assert [p["episode_id"] for p in document["runs"]] == ["r0", "r1"]
    assert "bad  suppressed  low" in cli("show", "bad").stdout
    assert "r0 " not in cli("show", "bad", "--runs", "1").stdout
    assert answer(cli("explain", "bad", "--json"))["served"] is False
    assert "It is suppressed by policy" in cli("explain", "bad").stdout
    assert answer(cli("explain", "--run", "r0", "--json"))["reward"] == 0.0
    assert "run r0" in cli("explain", "--run", "r0").stdout
    assert cli("explain").exit_code == 2


@pytest.mark.parametrize(
    ("command", "id_", "status"),
    [
        ("suppress", "good", "withheld"),
        ("restore", "bad", "active"),
        ("pin", "bad", "pinned"),
        ("unpin", "evil\x1b[1m", "active"),
        ("deprecate", "good", "deprecated"),
    ],
)
def test_decisions_are_on_record_and_can_be_undone(cli: Cli, command: str, id_: str, status: str):
    before = answer(cli("show", id_, "--json"))["memory"]["status"]
    assert answer(cli(command, id_, "--actor", "eva", "-r", "so", "--json")) == {id_: status}
    last = answer(cli("show", id_, "--json"))["history"][-1]
    assert (last["kind"], last["actor"], last["reason"]) == (command, "eva", "so")
    undone = answer(cli("undo", str(last["number"]), "--json"))
    assert undone["after"] == before
    assert answer(cli("show", id_, "--json"))["memory"]["status"] == before
    assert f"{clean(id_)}: {status}" in cli(command, id_).stdout


def test_review_and_bulk_decisions(cli: Cli):
    queue = answer(cli("review", "--json"))
    assert [(p["why"], p["memory_id"], p["action"]) for p in queue] == [("low", "bad", "deprecate")]
    assert "deprecate?" in cli("review").stdout
    assert cli("review", "--decide", "approve", input="n\n").exit_code == 1
    assert answer(cli("show", "bad", "--json"))["memory"]["status"] == "suppressed"
    assert cli("review", "--decide", "approve", "--memory", "good", "--yes").exit_code == 1
    answer(cli("review", "--decide", "approve", "--why", "low", "--yes", "--json"))
    assert answer(cli("show", "bad", "--json"))["memory"]["status"] == "deprecated"
    assert cli("review").stdout == "nothing wants a person\n"


def test_review_of_one_memory_shows_what_a_decision_needs(cli: Cli):
    shown = cli("review", "--memory", "bad").stdout
    assert "bad: red" in shown
    assert "retrievals=2" in shown
    assert "runs: r1, r0" in shown


def test_effects_and_their_audit(cli: Cli, file: Path):
    found = answer(cli("effects", "--json"))
    assert found[0]["memory_id"] == "bad"
    assert found[0]["effect"] < 0 < found[-1]["effect"]
    exact = answer(cli("effects", "--exact", "--json"))
    assert exact[0]["memory_id"] == "bad"
    assert exact[0]["effect"] != found[0]["effect"]
    assert answer(cli("effects", "bad", "--exact", "--json")) == exact[:1]
    assert "P(harm)" in cli("effects", "--limit", "1").stdout.splitlines()[0]
    assert len(answer(cli("effects", "--limit", "1", "--json"))) == 1


def test_paths(cli: Cli, file: Path):
    with MemoryWorthStore(f"sqlite:///{file}", HashedWords(), clock=Clock()) as store:
        for n in (2, 3):
            store.governor.journal.keep_path(f"r{n}", ("search", EVIL))
    [rest, path] = answer(cli("paths", "--json"))
    assert (rest["path"], rest["episodes"], rest["settled"]) == ([], 3, 2)
    assert (path["path"], path["settled"]) == (["search", EVIL], 2)
    assert rest["success"]["high"] > path["success"]["low"] > rest["success"]["low"]
    lines = cli("paths").stdout
    assert "(no tool)" in lines
    assert "\x1b" not in lines
    assert cli("paths", "--namespace", "nobody").stdout == "no runs there\n"


def test_lift(cli: Cli, file: Path):
    document = answer(cli("lift", "--json"))
    assert (document["lifts"], document["calibrated_worth"]) == ([], None)
    assert "nothing was ever held out" in document["why_not"]
    policy = plain(v_min=2, exploration=0.0, hold_out=0.5)
    with MemoryWorthStore(
        f"sqlite:///{file}", HashedWords(), policy=policy, clock=Clock()
    ) as store:
        store.add_texts([f"blue {i}" for i in range(12)], ids=[f"b{i}" for i in range(12)])
        for n in range(60):
            with store.episode(f"lift-{n}") as episode:
                store.similarity_search("blue", k=6)
            episode.record(n % 3 == 0)
    document = answer(cli("lift", "--json"))
    assert document["why_not"] is None
    assert set(document["calibrated_worth"]) >= {m["memory_id"] for m in document["lifts"]}
    lines = cli("lift", "b1").stdout.splitlines()
    assert "calibrated worth" in lines[0]
    assert f"{document['calibrated_worth']['b1']:+.3f}" in lines[-1]
    assert cli("lift", "nobody").exit_code == 1


def test_plan(cli: Cli, file: Path):
    assert "nothing is held out" in cli("plan").stdout
    [plan] = answer(cli("plan", "good", "--lift", "0.2", "--json"))
    assert (plan["memory_id"], plan["rate"], plan["share"], plan["time"]) == (
        "good",
        0.5,
        0.5,
        None,
    )
    assert plan["needed"] == plan["remaining"] == plan["episodes"] / 2
    lines = cli("plan", "good", "bad", "--lift", "0.2", "--rate", "0.1").stdout.splitlines()
    assert lines[0].split()[-2:] == ["episodes", "days"]
    assert [line.split()[:2] for line in lines[1:]] == [["good", "0.1"], ["bad", "0.1"]]
    refused = cli("plan", "good", "--rate", "1")
    assert refused.exit_code == 1
    assert cli("plan", "nobody").exit_code == 1


def test_learn_pairs(cli: Cli, file: Path):
    assert cli("learn-pairs").exit_code == 1
    policy = plain(exploration=0.0, diversity_floor=0.2)
    with MemoryWorthStore(
        f"sqlite:///{file}", HashedWords(), policy=policy, clock=Clock()
    ) as store:
        for n in range(20):
            with store.episode(f"pair-{n}"):
                store.similarity_search("green", k=2)
    [pair] = answer(cli("learn-pairs", "--json"))
    assert pair["together"] == 20
    assert "companion alone" in cli("learn-pairs").stdout.splitlines()[0]
    assert "no pair is habitual" in cli("learn-pairs", "-n", "acme/chat").stdout


def test_outcome(cli: Cli):
    assert answer(cli("outcome", "open", "true", "--used", "good", "--json"))["changed"] is True
    assert "nothing new" in cli("outcome", "open", "1", "--used", "good").stdout
    assert "recorded" in cli("outcome", "open", "--withdraw").stdout
    for wrong in (["open"], ["open", "true", "--withdraw"]):
        assert cli("outcome", *wrong).exit_code == 2
    for wrong in (["open", "INCORRECTLY"], ["open", "7"], ["nobody", "true"]):
        result = cli("outcome", *wrong)
        assert isinstance(result.exception, MemoryWorthError)


def test_erasing_asks_first(cli: Cli, file: Path):
    assert b"elsewhere" in file.read_bytes()
    refused = cli("erase", "bad", input="n\n")
    assert refused.exit_code == 1
    assert "erase bad for good?" in refused.stderr
    assert cli("erase", "bad").exit_code == 1  # nobody there to ask
    assert cli("erase", "bad", "ghost", "--yes").exit_code == 1
    assert answer(cli("show", "bad", "--json"))["memory"]["text"] == "red"
    assert answer(cli("erase", "bad", "--yes", "--json")) == {"memories": 1, "scrubbed": True}
    assert cli("show", "bad").exit_code == 1
    done = cli("erase", "--whole-namespace", "--below", "-n", "acme", input="y\n")
    assert "1 texts erased" in done.stdout
    assert b"elsewhere" not in file.read_bytes()


def test_erasing_a_subject(cli: Cli):
    assert answer(cli("erase", "--subject", "user=ada", "--yes", "--json"))["memories"] == 1
    for wrong in ([], ["bad", "--whole-namespace"], ["--subject", "user"]):
        assert cli("erase", *wrong, "--yes").exit_code == 2


def test_revoking_a_source_asks_first(cli: Cli):
    assert [s["source"] for s in answer(cli("status", "--json"))["sources"]] == ["user"]
    assert "withdraw 4 outcomes of user for good?" in cli("revoke", "user", input="n\n").stderr
    assert "no outcome of 'ada' of 'user'" in str(cli("revoke", "user", "--voter", "ada").exception)
    assert answer(cli("revoke", "user", "--yes", "--json")) == {"withdrawn": 4}
    assert answer(cli("show", "bad", "--json"))["memory"]["status"] == "active"
    assert answer(cli("doctor", "--json"))["problems"] == []


@pytest.mark.parametrize("days", ["inf", "nan", "1e300", "-1", "x"])
def test_an_age_that_is_none_is_a_usage_error(cli: Cli, days: str):
    done = cli("compact", "--older-than", days, "--yes")
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)


def test_compacting_asks_first(cli: Cli, file: Path):
    before = answer(cli("status", "--json"))
    refused = cli("compact", "--older-than", "0", input="n\n")
    assert refused.exit_code == 1
    assert "is older than 0 days? It cannot be taken back." in refused.stderr
    assert answer(cli("status", "--json")) == before
    done = answer(cli("compact", "--older-than", "0", "--yes", "--json"))
    assert done["episodes"] > 0
    assert "0 runs rolled up" in cli("compact", "--older-than", "0", "--yes").stdout
    assert answer(cli("doctor", "--json"))["problems"] == []
    assert cli("vacuum").exit_code == 1
    size = file.stat().st_size
    assert answer(cli("vacuum", "--yes", "--json")) == {"done": True}
    assert file.stat().st_size <= size


def test_a_file_that_others_keep_busy_is_not_done(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("langchain_memoryworth.ledger.engines.BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(file)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM memories").fetchone()
        for arguments, said in (
            ((), "not done: others keep the file busy"),
            (("--json",), '"done": false'),
        ):
            result = cli("vacuum", "--yes", *arguments)
            assert (result.exit_code, said in result.stdout) == (1, True)
    assert cli("vacuum", "--yes").exit_code == 0


@pytest.mark.parametrize(
    "url",
    ["postgresql+psycopg:/u:secret@h/db", "postgresql+psycopg://u@127.0.0.1:1/db?password=secret"],
)
def test_no_password_is_shown(cli: Cli, url: str):
    result = cli("doctor", "--database", url)
    assert isinstance(result.exception, MemoryWorthError)
    assert "secret" not in f"{result.exception} {result.output}"


def test_export_and_import(cli: Cli, tmp_path: Path):
    path = tmp_path / "all.jsonl"
    assert answer(cli("export", str(path), "--json"))["lines"] == len(path.read_text().splitlines())
    assert "--force" in str(cli("export", str(path)).exception)
    assert cli("export", str(path), "--force").exit_code == 0
    dry = cli("import", str(path), "--dry-run")
    assert "0 new memories (4 known), 0 new runs (5 known)" in dry.stdout
    assert "nothing was written" in dry.stdout
    assert answer(cli("import", str(path), "--yes", "--json"))["known_episodes"] == 5
    path.write_text("{}")
    assert "header of an export" in str(cli("import", str(path), "--yes").exception)


def test_importing_logs(cli: Cli, tmp_path: Path):
    path = tmp_path / "log.csv"
    path.write_text("id,docs,ok\nx1,good,yes\nx2,ghost,no\n")
    columns = ["--map", "run=id", "--map", "memories=docs", "--map", "outcome=ok"]
    refused = cli("import", str(path), "--format", "csv", *columns, input="n\n")
    assert refused.exit_code == 1
    assert "1 new runs" in refused.stderr
    done = cli("import", str(path), "--format", "csv", *columns, "--yes")
    assert "run x2: ghost not in the store" in done.stdout
    assert answer(cli("show", "good", "--json"))["memory"]["evidence"]["retrievals"] == 3
    path.write_text(json.dumps([{"id": "t", "scores": [], "observations": []}]))
    again = answer(cli("import", str(path), "--format", "langfuse", "--dry-run", "--json"))
    assert again["episodes"] == 0
    path.write_text(json.dumps([{"id": "t", "run_type": "chain"}]))
    assert answer(cli("import", str(path), "--format", "langsmith", "--yes", "--json"))


def test_doctor_finds_a_counter_that_is_no_sum(cli: Cli, file: Path):
    assert "sums of their ledger" in cli("doctor").stdout
    assert answer(cli("doctor", "--scrub", "--json")) == {
        "problems": [],
        "warnings": [],
        "scrubbed": True,
    }
    with MemoryWorthStore(f"sqlite:///{file}", HashedWords()) as store:
        execute(store, "UPDATE evidence SET positive = positive + 1 WHERE seq = 2")
        execute(store, "UPDATE exposures SET weight = weight + 1 WHERE eid = 1")
    result = cli("doctor", "--json")
    assert result.exit_code == 3
    problems = json.loads(result.stdout)["problems"]
    assert [p.split(" has ")[0] for p in problems[:2]] == ["memory number 1", "memory number 2"]
    assert re.search(r"2 has positive (\d+) and not (\d+), .* the sum of the credits", problems[1])
    assert problems[2] == "the shares of run 'r0' do not add up to one"


def test_migrate(cli: Cli):
    assert answer(cli("migrate", "--json"))["schema_version"] >= 1
    assert "schema version" in cli("migrate").stdout


# -- what a terminal and a program get


def test_stored_text_cannot_drive_the_terminal(cli: Cli, tmp_path: Path):
    commands = [
        ["list"],
        ["show", "evil\x1b[1m"],
        ["explain", "evil\x1b[1m"],
        ["review"],
        ["status"],
        ["pin", "evil\x1b[1m"],
        ["restore", "evil\x1b[1m", "-r", EVIL],
    ]
    for command in commands:
        result = cli(*command)
        assert result.exit_code == 0, (command, result.exception)
        assert not [c for c in result.output if c != "\n" and clean(c) != c], command
        assert "second" not in result.output.splitlines()  # nor forge a line of its own


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x7f", "\x9b", "\r", "\u202e", "\u2028"])
def test_characters_that_mean_something_to_a_terminal_are_escaped(character: str):
    assert character not in clean(f"a{character}b")
    assert clean(f"a{character}b").startswith("a\\")
    assert clean("naïve café 漢字") == "naïve café 漢字"


def test_errors_are_one_clean_line(file: Path):
    command = Path(sys.executable).with_name("langchain-memoryworth")
    for arguments, code, words in [
        (["show", "gh\x1bost"], 1, "error: no memory 'gh\\x1bost' in namespace ()"),
        (["status", "-d", "nowhere.db"], 1, "error: there is no store at sqlite:///nowhere.db"),
        (["pin"], 2, "Missing argument"),
        (["list", "--status", "wild"], 2, "'wild'"),
    ]:
        done = subprocess.run(
            [command, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "MEMORYWORTH_DATABASE": str(file), "TERM": "dumb"},
            cwd=file.parent,
            timeout=120,
        )
        assert done.returncode == code
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stderr
    assert not (file.parent / "nowhere.db").exists()


@pytest.mark.parametrize("command", ["status", "doctor", "migrate", "list"])
def test_a_wrong_name_is_no_empty_store(ledger: Server, cli: Cli, command: str):
    place = new_schema(ledger)
    result = cli(command, "--database", place)
    assert isinstance(result.exception, InvalidInputError)
    assert re.search(r"no store at .* in the schema 't\d+'", str(result.exception))
    with psycopg.connect(ledger.url.replace("+psycopg", "")) as connection:
        name = place.rpartition("=")[2]
        made = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [name])
        assert made.fetchall() == []


@pytest.mark.parametrize("command", [("vacuum",), ("doctor", "--scrub")])
def test_a_server_is_not_written_anew(
    ledger: Server, cli: Cli, make_store: StoreMaker, command: tuple[str, ...]
):
    place = new_schema(ledger)
    make_store(place)
    result = cli(*command, "--database", place)
    assert isinstance(result.exception, InvalidInputError)
    assert "VACUUM FULL" in str(result.exception)


def test_who_erases_on_a_server_is_told_what_its_owner_has_to_do(
    ledger: Server, cli: Cli, make_store: StoreMaker
):
    place = new_schema(ledger)
    make_store(place).add_texts(["red"], ids=["a"])
    done = cli("erase", "a", "--yes", "--database", place)
    assert done.exit_code == 0
    assert "VACUUM FULL" in done.stdout
    assert "busy" not in done.stdout


def test_no_embedding_model_is_loaded(file: Path):
    code = (
        "import sys; sys.argv = ['x', 'list', '-d', sys.argv[1], '--json'];"
        "from langchain_memoryworth.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} "
        "& {'torch', 'sentence_transformers', 'transformers', 'matplotlib', 'scipy'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_help_waits_for_nothing_heavy():
    code = (
        "import sys, langchain_memoryworth.cli.commands\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} "
        "& {'numpy', 'pydantic', 'sqlalchemy', 'langchain_core', 'faiss'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr


NAMES = sorted(c.name or c.callback.__name__ for c in app.registered_commands if c.callback)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_and_json(cli: Cli, name: str):
    result = cli(name, "--help")
    assert result.exit_code == 0
    assert "--json" in result.output


def test_without_a_model_nothing_can_be_searched(make_store: StoreMaker, file: Path):
    from langchain_memoryworth.service.unembedded import UnembeddedStore

    with UnembeddedStore(f"sqlite:///{file}", clock=Clock()) as store:
        assert store.governor.embedding_name == "hashed-words"
        assert {m.status for m in store.memories()} == {
            Status.SUPPRESSED,
            Status.ACTIVE,
            Status.PINNED,
        }
        with pytest.raises(MemoryWorthError, match="without its embedding model"):
            store.explain_search("red")
        assert "UnembeddedStore" in repr(store)
