"""Erasure, proven on the bytes: no text, id or metadata value is left in the file, its WAL, or any index."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import event

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError, UnknownRunError
from tests.conftest import StoreMaker
from tests.fakes import (
    Clock,
    HashedWords,
    assert_exact,
    counters,
    dump,
    execute,
    fold_of_ledger,
    query,
)
from tests.policies import plain

WORDS = "zebra lives at Elm Street"
TRACES = [b"zebra", b"Elm Street", b"id-of-ada", b"ada@example.org", b"about ada"]


def filled(store: MemoryWorthStore) -> MemoryWorthStore:
    """A store in which one memory has been everywhere that a memory can be."""
    store.add_texts(
        [WORDS, "zebra eats grass"],
        [{"user": "ada@example.org"}, {"user": "bob"}],
        ids=["id-of-ada", "b"],
    )
    store.add_texts(["zebra old text"], [{"user": "ada@example.org"}], ids=["id-of-ada"])
    store.add_texts([WORDS], [{"user": "ada@example.org"}], ids=["id-of-ada"])
    for n, reward in enumerate([True, False, 0.5]):
        with store.episode(f"e{n}") as episode:
            store.similarity_search("zebra", k=2)
        episode.record(reward, used=["id-of-ada"] if n else ["id-of-ada", "b"])
    store.record_outcome("e1", True, used=["b"])
    store.pin("id-of-ada", reason="about ada", actor="ada@example.org")
    return store


def bytes_of(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


def test_nothing_of_it_is_left_in_the_files(make_store: StoreMaker, file_url: str, tmp_path: Path):
    store = make_store(file_url)
    execute(store, "PRAGMA secure_delete = OFF")  # not every SQLite overwrites what it frees
    filled(store)
    vector = np.frombuffer(
        query(store, "SELECT vector FROM memories WHERE text = :t", t=WORDS)[0][0], np.float32
    ).tobytes()
    before = bytes_of(tmp_path)
    assert all(t in before for t in TRACES)  # else the search below proves nothing
    assert vector in before

    erased = store.erase("id-of-ada", reason="she asked", actor="operator")

    assert erased == (2, True)
    after = bytes_of(tmp_path)
    assert [t for t in [*TRACES, vector] if t in after] == [b"zebra"]  # b's own text has the word
    assert b"zebra lives" not in after
    assert b"zebra old" not in after
    store.close()
    after = bytes_of(tmp_path)
    assert [t for t in [*TRACES[1:], vector] if t in after] == []


def test_nor_in_any_row(make_store: StoreMaker, url: str):
    store = filled(make_store(url))
    store.erase("id-of-ada")
    rows = repr(dump(store)).encode()
    assert [t for t in TRACES[1:] if t in rows] == []


@pytest.mark.parametrize("credit", ["uniform", "similarity"])
def test_the_sums_stay_and_so_does_the_worth_of_others(
    make_store: StoreMaker, url: str, credit: str
):
    store = filled(make_store(url, policy=plain(credit=credit)))  # type: ignore[arg-type]
    before, other = counters(store), store.evidence("b")
    store.erase("id-of-ada")
    assert counters(store) == before
    assert store.evidence("b") == other
    assert_exact(store)
    assert fold_of_ledger(store) == {s: c for s, (c, _) in counters(store).items()}
    store.record_outcome("e0", False, used=["b"])  # the run can still be corrected
    assert_exact(store)
    assert fold_of_ledger(store) == {s: c for s, (c, _) in counters(store).items()}


def test_a_run_names_it_no_more(make_store: StoreMaker, url: str):
    store = filled(make_store(url))
    store.erase("id-of-ada")
    assert {x.memory_id for x in store.run("e0").exposures} == {"b", "erased:1"}
    assert store.run("e0").outcomes[0].used == ("b", "erased:1")
    assert {d.id for d in store.governor.journal.shown_documents("e0")} == {"b"}
    assert "Elm" not in str(store.explain_run("e0"))
    for ask in (store.memory, store.explain, store.history, store.worth_history):
        with pytest.raises(MemoryNotFoundError):
            ask("id-of-ada")
    actions = [a for a in store.actions() if a.memory_id == "erased:1"]
    assert [a.kind for a in actions] == ["erase", "pin"]
    assert actions[1].reason == actions[1].actor == ""
    assert actions[1].evidence is not None


def test_a_used_id_that_another_namespace_has_as_well_stays_theirs(make_store: StoreMaker):
    store = make_store()
    store.add_texts(["red"], ids=["a"])
    store.add_texts(["red"], ids=["a"], namespace="acme")
    store.add_texts(["green"], ids=["b"])
    with store.episode("e1") as episode:
        store.similarity_search("red", k=2)
        store.similarity_search("red", k=2, namespace="acme")
    episode.record(True, used=["a"])
    before = counters(store)
    store.erase("a")
    assert counters(store) == before
    assert store.run("e1").outcomes[0].used == ("a", "erased:1")
    store.record_outcome("e1", False, source="evaluator")
    assert_exact(store)
    assert fold_of_ledger(store) == {s: c for s, (c, _) in counters(store).items()}


@pytest.mark.parametrize("index", ["flat", "hnsw"])
def test_every_worker_forgets_it_at_its_next_call(
    make_store: StoreMaker, file_url: str, index: str
):
    first = filled(make_store(file_url, index=index))
    second = make_store(file_url, index=index)
    assert "id-of-ada" in [d.id for d in second.similarity_search("zebra")]
    seq = query(first, "SELECT seq FROM memories WHERE text = :t", t=WORDS)[0][0]
    replica = second.governor.replica
    assert seq in replica._spaces[()].index
    first.erase("id-of-ada")
    assert [d.id for d in second.similarity_search("zebra")] == ["b"]
    assert seq not in replica._spaces[()].index  # not hidden: gone from its memory
    assert second.get_by_ids(["id-of-ada"]) == []


def test_it_stays_gone_after_reopening_and_may_be_stored_anew(
    make_store: StoreMaker, file_url: str
):
    store = filled(make_store(file_url))
    store.erase("id-of-ada")
    store.close()
    again = make_store(file_url)
    assert [d.id for d in again.similarity_search("zebra")] == ["b"]
    again.add_texts([WORDS], ids=["id-of-ada"])
    assert again.evidence("id-of-ada").retrievals == 0  # it does not find its old evidence
    assert again.history("id-of-ada") == ()
    assert_exact(again)


def test_it_is_not_served_when_it_is_erased_between_search_and_delivery(
    make_store: StoreMaker, file_url: str, monkeypatch: pytest.MonkeyPatch
):
    store, other = filled(make_store(file_url)), make_store(file_url)
    select = store.governor.retrieval._select

    def select_then_erase(*arguments: object) -> object:
        chosen = select(*arguments)  # type: ignore[arg-type]
        other.erase("id-of-ada")
        return chosen

    monkeypatch.setattr(store.governor.retrieval, "_select", select_then_erase)
    with store.episode("late"):
        assert [d.id for d in store.similarity_search("zebra", k=2)] == ["b"]
    assert [x.memory_id for x in store.run("late").exposures] == ["b"]


def test_an_unknown_id_erases_nothing(make_store: StoreMaker, url: str):
    store = filled(make_store(url))
    before = dump(store)
    with pytest.raises(MemoryNotFoundError, match="'x'"):
        store.erase(["id-of-ada", "x"])
    with pytest.raises(MemoryNotFoundError):
        store.erase("id-of-ada", namespace="acme")
    assert dump(store) == before


def test_a_namespace_goes_by_whole_segments(make_store: StoreMaker, url: str):
    store = make_store(url)
    spaces = [(), ("acme",), ("acme", "chat"), ("acme-corp",), ("a%",)]
    for space in spaces:
        store.add_texts(["red"], ids=["a"], namespace=space)

    def left() -> list[tuple[str, ...]]:
        return [s for s in spaces if store.memories(namespace=s)]

    assert store.erase_namespace("acme").memories == 1
    assert left() == [(), ("acme", "chat"), ("acme-corp",), ("a%",)]
    assert store.erase_namespace("acme", below=True).memories == 1
    assert left() == [(), ("acme-corp",), ("a%",)]
    assert '"acme"' not in repr(dump(store))
    assert store.erase_namespace("nobody").memories == 0
    store.delete(["a"], namespace="a%")
    assert store.erase_namespace((), below=True).memories == 3
    assert left() == []
    assert not [s for s in ('"acme', '"a%') if s in repr(dump(store))]


def test_a_subject_goes_in_every_namespace_retired_versions_too(make_store: StoreMaker, url: str):
    store = make_store(url)
    store.add_texts(
        ["one", "two", "three"],
        [{"user": "ada"}, {"user": "bob"}, {"user": ["bob", "ada"]}],
        ids=["a", "b", "c"],
    )
    store.add_texts(["four"], [{"user": "ada"}], ids=["d"], namespace="acme")
    store.delete(["a"])
    assert store.erase_subject({"user": "ada"}).memories == 3
    assert [m.id for m in store.memories()] == ["b"]
    assert store.memories(namespace="acme") == []
    assert b"ada" not in repr(dump(store)).encode()
    with pytest.raises(InvalidInputError, match="subject is empty"):
        store.erase_subject({})


@pytest.mark.parametrize("subject", [5, "user=ada", ["user"], {5: "ada"}])
def test_a_subject_that_is_no_metadata_is_named(make_store: StoreMaker, subject: Any) -> None:
    store = filled(make_store())
    before = dump(store)
    with pytest.raises(InvalidInputError, match="no metadata; give a mapping") as caught:
        store.erase_subject(subject)
    assert caught.value.value == subject
    assert dump(store) == before


def test_a_file_that_others_keep_busy_is_scrubbed_later(
    make_store: StoreMaker, file_url: str, tmp_path: Path
):
    store, reader = filled(make_store(file_url)), make_store(file_url)

    def impatient(connection: sqlite3.Connection, _record: object, _proxy: object) -> None:
        connection.execute("PRAGMA busy_timeout=50")  # or the test waits for half a minute

    event.listen(store.governor.database.engine, "checkout", impatient)
    with reader.governor.database.read() as session:
        session.number(_one())  # its snapshot needs the old WAL
        assert store.erase("id-of-ada") == (2, False)
        assert store.similarity_search("Elm Street")[0].id == "b"
    assert store.scrub()
    assert b"Elm Street" not in bytes_of(tmp_path)


def _one():
    from langchain_memoryworth.ledger.session import Statement

    return Statement("SELECT COUNT(*) FROM memories")


@hypothesis_settings(max_examples=20)
@given(data=st.data())
def test_counters_stay_exact_whatever_is_erased(data: st.DataObject):
    with MemoryWorthStore(
        "sqlite://", HashedWords(), clock=Clock(), policy=plain(v_min=1)
    ) as store:
        ids = ["a", "b", "c"]
        store.add_texts(["red", "red green", "red blue"], ids=ids)
        for n in range(data.draw(st.integers(1, 8))):
            step = data.draw(st.sampled_from(["run", "run", "erase", "again", "add"]))
            if step == "run":
                with store.episode(f"e{n}") as episode:
                    found = [d.id for d in store.similarity_search("red", k=2)]
                if found:
                    some = st.sampled_from(found)
                    graded = st.dictionaries(some, st.integers(0, 3))
                    used = data.draw(st.none() | st.lists(some, unique=True) | graded)
                    episode.record(data.draw(st.sampled_from([True, False, 0.3])), used=used)
            elif step == "again":
                for id_ in store.governor.journal.run_ids():
                    store.record_outcome(id_, data.draw(st.booleans()))
            elif step == "add":
                store.add_texts(["red again"], ids=["a"])
            else:
                some = [m.id for m in store.memories()]
                if some:
                    store.erase(data.draw(st.sampled_from(some)))
            assert_exact(store)
            assert fold_of_ledger(store) == {s: c for s, (c, _) in counters(store).items()}
    gc.collect()


def test_an_outcome_of_an_unknown_run_is_still_unknown(make_store: StoreMaker):
    store = filled(make_store())
    store.erase(["id-of-ada", "b"])
    with pytest.raises(UnknownRunError):
        store.record_outcome("nobody", True)
    assert store.record_outcome("e0", 0.25)
