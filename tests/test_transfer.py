"""Export and import: a round trip is identity, nothing is counted twice, and a hostile file changes nothing."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import BaseModel

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import (
    EmbeddingMismatchError,
    ImportFileError,
    InvalidInputError,
)
from langchain_memoryworth.ledger.parcel import (
    ActionLine,
    Counters,
    EpisodeLine,
    ExposureLine,
    Header,
    MemoryLine,
    OutcomeLine,
)
from langchain_memoryworth.records import EpisodeKey
from langchain_memoryworth.service.logs import (
    LogEntry,
    Retrieved,
    from_csv,
    from_langfuse,
    from_langsmith,
    json_lines,
    reward_in,
)
from tests.conftest import StoreMaker
from tests.fakes import Clock, HashedWords, assert_exact, counters, dump, fold_of_ledger, query
from tests.policies import plain

FAST = plain(v_min=2, hysteresis=0.0, exploration=0.0)
MOVED = ("memories", "evidence", "episodes", "aliases", "exposures", "outcomes")


def lived(store: MemoryWorthStore) -> MemoryWorthStore:
    """A store with something of everything."""
    store.add_texts(["red", "red green"], [{"n": 1.5, "of": ["é", None]}, {}], ids=["a", "b"])
    store.add_texts(["red"], ids=["a"], namespace="acme", ttl=timedelta(days=3))
    for n, reward in enumerate([False, True, 0.3, False]):
        with store.episode(f"e{n}", thread_id="t" if n else None) as episode:
            store.similarity_search("red", k=2)
        episode.record(reward, source_id=str(n), used={"a": 1, "b": 3} if n == 2 else None)
    store.record_outcome("e0", True, source="evaluator", metric="tone")
    store.governor.journal.mark_used("e0", {"a": 2, "b": 1})
    store.record_outcome("e3", True)
    store.withdraw_outcome("e3")
    store.add_texts(["red again"], ids=["b"])
    store.add_texts(["secret"], ids=["s"])
    with store.episode("es") as episode:
        found = store.similarity_search("secret", k=2)
    episode.record(True, used={"s": 2, found[1].id: 1})
    store.restore("a")
    store.pin("b", reason="so \u001b[31m")
    store.undo(store.history("b")[-1])
    store.suppress("b")
    store.hold_out("a", rate=0.25)
    store.erase("s")
    with store.governor.database.write() as session:
        store.governor.ledger.open_episode(session, EpisodeKey("e0", ("alias",)), 0.0)
    return store


def content(store: MemoryWorthStore) -> dict[str, list[tuple[Any, ...]]]:
    tables = dump(store)
    moved = {t: tables[t] for t in MOVED}
    moved["outcomes"] = sorted((r[1:] for r in tables["outcomes"]), key=repr)
    moved["exposures"] = [r[:-1] for r in tables["exposures"]]  # the last is a number of an outcome
    moved["actions"] = [r[1:9] for r in tables["actions"] if r[1] is not None]
    return moved


# -- round trip


@pytest.mark.parametrize(
    ("record", "model"),
    [
        ("header, the first line", Header),
        ("memory, one version of a text", MemoryLine),
        ("evidence, in a memory or action", Counters),
        ("episode, one run", EpisodeLine),
        ("exposure, in an episode", ExposureLine),
        ("outcome, in an episode", OutcomeLine),
        ("action, one decision", ActionLine),
    ],
)
def test_the_docs_name_every_field(record: str, model: type[BaseModel]):
    page = (Path(__file__).parents[1] / "docs/governance.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith(f"| {record} |")]
    assert re.findall(r"`(\w+)`", row) == [f for f in model.model_fields if f != "kind"]


def test_a_round_trip_is_identity(make_store: StoreMaker, url: str, tmp_path: Path):
    store = lived(make_store(url, policy=FAST))
    lines = store.export_file(tmp_path / "all.jsonl")
    assert lines == len((tmp_path / "all.jsonl").read_text().splitlines())
    other = make_store(f"sqlite:///{tmp_path}/other.db", policy=FAST)
    report = other.import_file(tmp_path / "all.jsonl")
    assert (report.memories, report.episodes) == (5, 5)
    assert content(other) == content(store)
    assert_exact(other)
    other.export_file(tmp_path / "again.jsonl")
    first, second = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("all.jsonl", "again.jsonl")
    )
    for line in (*first, *second):  # the change of policy has a number too
        if line["kind"] == "action":
            del line["number"], line["undoes"]
    assert first == second
    assert [d.id for d in other.similarity_search("red")] == [
        d.id for d in store.similarity_search("red")
    ]
    assert [(a.kind, a.before, a.after) for a in other.history("b")] == [
        (a.kind, a.before, a.after) for a in store.history("b")
    ]


def test_the_ledger_goes_on_where_it_was(make_store: StoreMaker, tmp_path: Path):
    store = lived(make_store(policy=FAST))
    store.export_file(tmp_path / "all.jsonl")
    other = make_store(f"sqlite:///{tmp_path}/other.db", policy=FAST)
    other.import_file(tmp_path / "all.jsonl")
    for one in (store, other):
        one.record_outcome("alias", False)
        one.record_outcome("e2", True, used=["a"])
        one.withdraw_outcome("es")
        one.undo([a for a in one.history("a") if a.kind == "restore"][-1])
        assert_exact(one)
    assert counters(other) == counters(store)
    folds = fold_of_ledger(other)
    assert folds == {s: c for s, (c, _) in counters(other).items()}


def test_nothing_is_counted_twice(make_store: StoreMaker, url: str, tmp_path: Path):
    store = lived(make_store(url, policy=FAST))
    store.export_file(tmp_path / "all.jsonl")
    before = content(store)
    report = store.import_file(tmp_path / "all.jsonl")
    assert (report.memories, report.episodes, report.outcomes) == (0, 0, 0)
    assert (report.known_memories, report.known_episodes) == (4, 5)
    assert content(store) == before


def test_into_a_store_that_has_lived_too(make_store: StoreMaker, url: str, tmp_path: Path):
    lived(make_store(policy=FAST)).export_file(tmp_path / "all.jsonl")
    store = make_store(url, policy=FAST)
    store.add_texts(["other", "red"], ids=["x", "a"])
    with store.episode("mine") as episode:
        store.similarity_search("red", k=2)
    episode.record(True)
    store.restore("a")
    own = store.evidence("a")
    report = store.import_file(tmp_path / "all.jsonl")
    assert (report.memories, report.known_memories) == (4, 1)
    assert store.evidence("a").retrievals == own.retrievals + 4
    assert_exact(store)
    store.record_outcome("es", False)
    store.record_outcome("e1", False)
    assert_exact(store)
    assert fold_of_ledger(store) == {s: c for s, (c, _) in counters(store).items()}
    again = store.import_file(tmp_path / "all.jsonl")
    assert (again.memories, again.episodes) == (0, 0)


def test_imported_evidence_may_suppress_a_known_memory(make_store: StoreMaker, tmp_path: Path):
    bad = make_store(policy=FAST)
    bad.add_texts(["red"], ids=["a"])
    for n in range(3):
        with bad.episode(f"e{n}") as episode:
            bad.similarity_search("red", k=1)
            episode.record(False) if n else None
    for n in range(3):
        bad.record_outcome(f"e{n}", False)
    bad.export_file(tmp_path / "bad.jsonl")
    store = make_store(f"sqlite:///{tmp_path}/other.db", policy=FAST)
    store.add_texts(["red"], ids=["a"])
    assert store.similarity_search("red")
    store.import_file(tmp_path / "bad.jsonl")
    assert store.memory("a").status == "suppressed"
    assert store.similarity_search("red") == []


def test_a_dry_run_says_the_same_and_writes_nothing(
    make_store: StoreMaker, url: str, tmp_path: Path
):
    lived(make_store(policy=FAST)).export_file(tmp_path / "all.jsonl")
    store = make_store(url, policy=FAST)
    before = dump(store)
    dry = store.import_file(tmp_path / "all.jsonl", dry_run=True)
    assert dump(store) == before
    assert store.import_file(tmp_path / "all.jsonl") == dry._replace(dry_run=False)


def test_vectors_of_another_model_are_refused(make_store: StoreMaker, tmp_path: Path):
    lived(make_store(policy=FAST)).export_file(tmp_path / "all.jsonl")
    store = make_store(f"sqlite:///{tmp_path}/o.db", embedding=HashedWords(8, "small"))
    store.add_texts(["x"])
    before = dump(store)
    for dry_run in (True, False):
        with pytest.raises(EmbeddingMismatchError, match="small"):
            store.import_file(tmp_path / "all.jsonl", dry_run=dry_run)
    assert dump(store) == before


@hypothesis_settings(max_examples=15)
@given(data=st.data())
def test_any_store_survives_the_journey(data: st.DataObject):
    texts = st.text(alphabet='ab \u001b\n"é\U0001f600', min_size=1, max_size=6)
    ids = ["a", "b", "c"]
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryWorthStore("sqlite://", HashedWords(), clock=Clock(), policy=FAST) as store,
        MemoryWorthStore("sqlite://", HashedWords(), clock=Clock(), policy=FAST) as other,
    ):
        for n in range(data.draw(st.integers(0, 10))):
            match data.draw(st.sampled_from(["add", "run", "run", "restore", "erase", "delete"])):
                case "add":
                    store.add_texts([data.draw(texts)], ids=[data.draw(st.sampled_from(ids))])
                case "run":
                    with store.episode(f"e{n}") as episode:
                        found = store.similarity_search(data.draw(texts), k=2)
                    if found:
                        episode.record(data.draw(st.sampled_from([True, False, 1 / 3])))
                case "delete":
                    store.delete([data.draw(st.sampled_from(ids))])
                case step:
                    for m in store.memories()[:1]:
                        getattr(store, step)(m.id)
        path = Path(folder) / "all.jsonl"
        store.export_file(path)
        other.import_file(path)
        assert content(other) == content(store)
        assert_exact(other)
        again = Path(folder) / "again.jsonl"
        other.export_file(again)
        assert again.read_bytes() == path.read_bytes()


# -- hostile files


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


Change = Callable[[list[dict[str, Any]]], None]


def first(lines: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(line for line in lines if line["kind"] == kind)


def setter(kind: str, /, **values: Any) -> Change:
    return lambda lines: first(lines, kind).update(values)


def in_exposure(**values: Any) -> Change:
    return lambda lines: first(lines, "episode")["exposures"][0].update(values)


def more_votes(lines: list[dict[str, Any]]) -> None:
    first(lines, "memory")["evidence"]["positive"] += 2**40


def twice(kind: str) -> Change:
    return lambda lines: lines.append(first(lines, kind))


HOSTILE: dict[str, tuple[Change, str]] = {
    "no header": (lambda lines: lines.pop(0) and None, "header of an export"),
    "a newer version": (setter("header", version=2), "version 2, this release knows 1"),
    "an unknown key": (setter("memory", extra=1), "extra: Extra inputs"),
    "an unknown kind": (setter("memory", kind="code"), "'code'"),
    "votes that nobody cast": (more_votes, "is not what its episodes add up to"),
    "credit beyond the share": (in_exposure(positive=2**32, weight=1), "is none"),
    "shares beyond one": (in_exposure(weight=2**32, positive=0), "add up to"),
    "a negative share": (in_exposure(weight=-1), "weight: Input should be greater"),
    "a memory from nowhere": (in_exposure(memory=999), "which is not in the file"),
    "a reward of 7": (setter("episode", reward=7), "reward: Input should be less"),
    "credit without a reward": (setter("episode", reward=None), "has no reward"),
    "a number twice": (twice("memory"), "is given twice"),
    "an episode twice": (twice("episode"), "is given twice"),
    "an unknown status": (setter("memory", status="root"), "status: Input should be"),
    "a number as text": (setter("memory", number="1"), "number: Input should be a valid int"),
    "a huge number": (setter("memory", number=2**70), "number: Input should be less"),
    "no vector": (setter("memory", vector="@@@"), "no base64 of float32"),
    "half a vector": (setter("memory", vector="AAAA"), "no base64 of float32"),
    "a short vector": (setter("memory", vector="AAAAAA=="), "has 1 dimensions"),
    "an infinite vector": (
        setter(
            "memory",
            vector=base64.b64encode(np.full(32, np.inf, np.float32).tobytes()).decode(),
        ),
        "not finite",
    ),
    "a tombstone with a text": (setter("memory", namespace=None), "erased memory"),
    "an action of nothing": (setter("action", memory=999), "which is not in the file"),
    "no id": (setter("memory", id=""), "it has no id"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_changes_nothing(
    make_store: StoreMaker, file_url: str, tmp_path: Path, name: str
):
    change, problem = HOSTILE[name]
    lived(make_store(policy=FAST)).export_file(tmp_path / "all.jsonl")
    lines = lines_of(tmp_path / "all.jsonl")
    change(lines)
    (tmp_path / "all.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    store = make_store(file_url)
    before = dump(store)
    with pytest.raises(ImportFileError, match=problem) as raised:
        store.import_file(tmp_path / "all.jsonl")
    assert raised.value.line >= 1
    assert dump(store) == before


HEAD = Header(dimension=None).model_dump_json().encode() + b"\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00\x01\x02",
        b"\xff\xfe",
        b"[1, 2]",
        b"null",
        b'{"kind": "header"',
        HEAD + b"[" * 100_000,
        HEAD + b'{"kind": "memory", "number": NaN}',
        HEAD + b"42",
        HEAD + "ü".encode("latin-1"),
    ],
)
def test_what_is_no_export_is_a_typed_error(make_store: StoreMaker, tmp_path: Path, raw: bytes):
    (tmp_path / "x.jsonl").write_bytes(raw)
    with pytest.raises(ImportFileError, match=r"x\.jsonl, (line \d|the file): "):
        make_store().import_file(tmp_path / "x.jsonl")


def test_a_line_without_end_is_refused_before_it_is_parsed(
    make_store: StoreMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("langchain_memoryworth.ledger.transfer.LONGEST_LINE", 1000)
    (tmp_path / "x.jsonl").write_bytes(HEAD + b'{"a": "' + b"x" * 2000)
    with pytest.raises(ImportFileError, match="line 2: it is longer than 1000 bytes"):
        make_store().import_file(tmp_path / "x.jsonl")


def test_a_file_that_is_not_there(make_store: StoreMaker, tmp_path: Path):
    with pytest.raises(ImportFileError, match="cannot be read"):
        make_store().import_file(tmp_path / "nothing.jsonl")


# -- logs


def entry(run_id: str, ids: str, reward: float | None, **more: Any) -> LogEntry:
    return LogEntry(run_id, tuple(Retrieved(i) for i in ids.split()), reward, **more)


def test_history_becomes_evidence_on_day_one(make_store: StoreMaker, url: str, clock: Clock):
    store = make_store(url, policy=FAST)
    store.add_texts(["red", "green"], ids=["a", "b"])
    when = datetime(2025, 1, 2, tzinfo=UTC)
    log = [
        entry("r1", "a b", True, at=when),
        entry("r2", "a", False, used=("a",)),
        entry("r3", "a", None),
        entry("r4", "a ghost", 0.5),
        entry("r5", "ghost", True),
    ]
    before = dump(store)
    dry = store.import_log(log, dry_run=True)
    assert dump(store) == before
    report = store.import_log(log)
    assert report == dry._replace(dry_run=False)
    assert (report.episodes, report.outcomes, report.known_memories) == (4, 3, 2)
    assert report.skipped == (
        "run r4: ghost not in the store",
        "run r5: ghost not in the store",
    )
    assert store.evidence("a").retrievals == 3
    assert store.worth("a") == pytest.approx((0.5 + 0 + 0.5) / 2.5)
    assert store.run("r1").started_at == when
    assert store.run("r1").outcomes[0].source == "import"
    assert store.run("r3").reward is None
    again = store.import_log(log)
    assert (again.episodes, again.known_episodes) == (0, 4)
    assert store.evidence("a").retrievals == 3
    store.record_outcome("r3", True)  # it is an ordinary run from here on
    assert_exact(store)


def test_a_log_with_a_reward_that_is_none_writes_nothing(make_store: StoreMaker):
    store = make_store()
    store.add_texts(["red"], ids=["a"])
    with pytest.raises(InvalidInputError, match="7"):
        store.import_log([entry("r1", "a", True), entry("r2", "a", 7.0)])
    assert store.governor.journal.run_ids() == []


def test_a_csv_with_one_row_per_run_or_per_memory(make_store: StoreMaker, tmp_path: Path):
    store = make_store(policy=FAST)
    store.add_texts(["red", "green"], ids=["a", "b"])
    mapping = {"run": "Run Id", "memories": "docs", "outcome": "ok", "at": "when"}
    (tmp_path / "log.csv").write_text(
        "when,Run Id,docs,ok\n"
        "2025-01-02T03:04:05Z,r1,a; b,INCORRECT\n"
        ",r2,a,yes\n,r2,b,yes\n,r3,a,\n",
        encoding="utf-8-sig",
    )
    entries = list(from_csv(tmp_path / "log.csv", mapping))
    assert [e.run_id for e in entries] == ["r1", "r2", "r3"]
    assert [e.reward for e in entries] == [0.0, 1.0, None]
    assert entries[1].retrieved == (Retrieved("a"), Retrieved("b"))
    assert entries[0].at == datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert store.import_log(entries).outcomes == 2
    assert store.worth("a") == 0.5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("run,docs\nr1,a\n", "there is no column"),
        ("run,docs,ok\nr1,a,mostly correct\n", "line 2: 'mostly correct' is no outcome"),
        ("run,docs,ok\nr1,a,7\n", "'7' is no outcome"),
        ("run,docs,ok\nr1,a,nan\n", "'nan' is no outcome"),
        ("run,docs,ok\n,a,1\n", "the run has no id"),
        ("run,docs,ok\nr1,a,1\nr1,b,0\n", "two outcomes"),
        ('run,docs,ok\n"r1,a,1\n', "cannot be read as CSV"),
    ],
)
def test_a_csv_that_is_wrong_names_the_line(tmp_path: Path, text: str, problem: str):
    (tmp_path / "log.csv").write_text(text)
    mapping = {"run": "run", "memories": "docs", "outcome": "ok"}
    with pytest.raises(ImportFileError, match=problem):
        list(from_csv(tmp_path / "log.csv", mapping))


def test_a_mapping_that_is_wrong_says_what_it_lacks(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="lacks"):
        list(from_csv(tmp_path / "log.csv", {"run": "r", "colour": "c"}))


LANGSMITH = [
    {
        "id": "root-1",
        "trace_id": "t1",
        "run_type": "chain",
        "parent_run_id": None,
        "start_time": "2025-01-02T03:04:05.123456",
        "error": "boom",
        "feedback_stats": {"thumb": {"n": 2, "avg": 0.5}, "other": {"n": 1, "avg": 1.0}},
    },
    {
        "id": "child",
        "trace_id": "t1",
        "run_type": "retriever",
        "parent_run_id": "root-1",
        "start_time": "2025-01-02T03:04:06",
        "outputs": {
            "documents": [
                {"page_content": "red", "metadata": {}, "id": "a", "type": "Document"},
                {"kwargs": {"page_content": "green", "metadata": {"id": "b"}}, "lc": 1},
                {"page_content": "red", "metadata": {}, "id": "a"},
            ]
        },
    },
    {"id": "t2", "run_type": "chain", "outputs": {"answer": "x"}, "error": "boom"},
]
LANGFUSE = [
    {
        "id": "t1",
        "timestamp": "2025-01-02T03:04:05.000Z",
        "observations": [
            {"type": "RETRIEVER", "output": [{"page_content": "a text without an id"}]},
            {"type": "GENERATION", "output": [{"id": "b"}]},
        ],
        "scores": [{"name": "thumb", "value": 0}, {"name": "thumb", "value": 1}],
    },
    {"id": "t2", "observations": [], "scores": [{"name": "other", "value": 1}]},
]


def test_langsmith_runs(tmp_path: Path):
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, LANGSMITH)))
    one, two = from_langsmith(json_lines(tmp_path / "runs.jsonl"), feedback="thumb")
    assert one.run_id == "t1"
    assert one.retrieved == (Retrieved("a", "red"), Retrieved("b", "green"))
    assert one.reward == 0.5
    assert one.at == datetime(2025, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)
    assert (two.retrieved, two.reward) == ((), None)  # an error is no failure


def test_langfuse_traces_and_texts_without_ids(make_store: StoreMaker, tmp_path: Path):
    (tmp_path / "traces.json").write_text(json.dumps(LANGFUSE))
    entries = from_langfuse(json_lines(tmp_path / "traces.json"), score="thumb")
    assert [e.reward for e in entries] == [1.0, None]
    store = make_store(policy=FAST)
    [id_] = store.add_texts(["a text without an id"])
    assert store.import_log(entries).outcomes == 1
    assert store.worth(id_) == 1.0


@pytest.mark.parametrize(
    "read",
    [
        lambda: from_langsmith(["x"], feedback="f"),  # type: ignore[list-item]
        lambda: from_langsmith([{"run_type": "chain"}], feedback="f"),
        lambda: (
            from_langsmith([{"id": "a", "feedback_stats": []}], feedback="f")
            and from_langsmith([{"id": "a", "feedback_stats": "x"}], feedback="f")
        ),
        lambda: from_langfuse([7], score="s"),  # type: ignore[list-item]
        lambda: from_langfuse([{"name": "x"}], score="s"),
        lambda: from_langfuse([{"id": "x", "observations": [3]}], score="s"),
    ],
)
def test_logs_of_another_shape_are_typed_errors(read: Callable[[], object]):
    with pytest.raises(ImportFileError):
        read()


def test_a_log_that_is_no_json(tmp_path: Path):
    (tmp_path / "x.jsonl").write_text("{")
    with pytest.raises(ImportFileError, match="neither JSON Lines nor a list"):
        json_lines(tmp_path / "x.jsonl")


@pytest.mark.parametrize("value", ["partially", "2", "-1", "inf", 1.5, [], {}, "correct!"])
def test_an_outcome_is_never_guessed(value: object):
    with pytest.raises(InvalidInputError, match="is no outcome"):
        reward_in(value)


def test_pgvector_finds_what_was_imported_and_forgets_what_was_erased(
    make_store: StoreMaker, postgres: str, tmp_path: Path
):
    lived(make_store(policy=FAST)).export_file(tmp_path / "all.jsonl")
    url = postgres.replace("postgresql://", "postgresql+psycopg://")
    store = make_store(url, policy=FAST, index="pgvector")
    store.import_file(tmp_path / "all.jsonl")
    found = [d.id for d in store.similarity_search("red", k=3)]
    assert sorted(found) == [m.id for m in store.memories() if m.status == "active"]
    with store.episode(
        "later"
    ) as episode:  # the numbers that the database gives go on after those imported
        store.similarity_search("red", k=1)
    episode.record(True)
    held = query(store, "SELECT seq FROM vectors")
    store.erase(found[0])
    assert len(query(store, "SELECT seq FROM vectors")) < len(held)
    assert found[0] not in [d.id for d in store.similarity_search("red", k=3)]
