"""What only a server can do to a store: restart in the middle, pool transactions, say no, be asked by many at once."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from traceback import format_exception
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import (
    ForeignStorageError,
    InvalidInputError,
    StorageBusyError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnavailableError,
)
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.engines import BUSY_TIMEOUT_S, lock_number
from langchain_memoryworth.ledger.recording import Exposure
from langchain_memoryworth.ledger.session import Statement
from langchain_memoryworth.records import EpisodeKey
from langchain_memoryworth.tracking.roots import Pause, Root
from tests.fakes import HashedWords, assert_exact, execute, fold_of_ledger, query
from tests.ledger_server import Server, ledger_server, new_schema
from tests.policies import plain
from tests.postgres import documented_grants
from tests.tally import tally

StoreMaker = Callable[..., MemoryWorthStore]


@pytest.fixture
def place(ledger: Server) -> str:
    return new_schema(ledger)


@pytest.fixture
def mortal() -> Iterator[Server]:
    """A server that a test may stop."""
    with ledger_server() as server:
        yield server


def test_without_an_installed_postgres_the_packaged_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.ledger_server.DEBIAN", Path("/nowhere"))
    with ledger_server() as server, admin(server) as connection:
        assert connection.execute("SHOW data_directory").fetchone() == (f"{server.folder}/data",)


def admin(server: Server) -> psycopg.Connection[Any]:
    return psycopg.connect(server.url.replace("postgresql+psycopg", "postgresql"), autocommit=True)


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


def expose(store: MemoryWorthStore, run: str, *ids: str) -> None:
    store.governor.journal.expose_documents(EpisodeKey(run), [Document("", id=i) for i in ids])


def outcomes_of(store: MemoryWorthStore) -> list[tuple[Any, ...]]:
    return query(
        store,
        "SELECT e.id, o.source, COUNT(*) FROM outcomes o JOIN episodes e ON e.eid = o.eid "
        "GROUP BY e.id, o.source HAVING COUNT(*) > 1",
    )


# -- where it is ----------------------------------------------------------------------------------------------------


def test_everything_is_in_a_schema_of_its_own(ledger: Server, make_store: StoreMaker) -> None:
    place, other = new_schema(ledger), new_schema(ledger)
    one, two = make_store(place), make_store(other)
    one.add_texts(["text"], ids=["m"])
    assert two.similarity_search("text") == []
    with admin(ledger) as connection:
        found = connection.execute(
            "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'evidence'"
        ).fetchall()
        assert {(schema_of(place),), (schema_of(other),)} <= set(found)
        assert ("public",) not in found


@pytest.mark.parametrize("name", ["a b", 'x"; DROP', "1st", "ü", "pg_mine", "a" * 64, ""])
def test_a_schema_has_a_plain_name(make_store: StoreMaker, ledger: Server, name: str) -> None:
    with pytest.raises(InvalidInputError, match="schema="):
        make_store(f"{ledger.url}&schema={name}")


def test_a_schema_may_have_capitals(make_store: StoreMaker, ledger: Server) -> None:
    """Without quotes the server makes two names one, so two teams one store."""
    place = f"{ledger.url}&schema=Team"
    with make_store(place) as store:
        store.add_texts(["text"], ids=["m"])
    assert make_store(f"{ledger.url}&schema=team").similarity_search("text") == []
    assert [d.id for d in make_store(place).similarity_search("text")] == ["m"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://u:secret@h:port/db",
        "postgresql+psycopg://u:secret/db",
        "postgresql+psycopg://h:port/db?password=se@cret",
        "postgresql+psycopg:/u:secret@h/db",
        "x:/u:se@cret@h/db",
        "host=h password=secret",
        "sqlite://u:se@cret@h/db",
    ],
)
def test_a_url_that_is_none_is_shown_without_its_password(make_store: StoreMaker, url: str) -> None:
    with pytest.raises(InvalidInputError, match="is no database URL") as caught:
        make_store(url)
    assert "cret" not in "".join(format_exception(caught.value)).partition("InvalidInputError")[2]
    assert "cret" not in str(caught.value.value)


@pytest.mark.parametrize(
    "place",
    [
        "u:se@cret@h/db",
        "u:se@cret/x@h/db",
        "u:se?cret@h/db",
        "u:se?x=cret@h/db",
        "u:se@h?x=&cret@h/db",
        "?password=se@cret",
    ],
)
def test_a_password_that_may_end_elsewhere_is_to_be_escaped(make_store: StoreMaker, place: str):
    """What is behind its end would be read as a host, and shown."""
    with pytest.raises(InvalidInputError, match="write %40") as caught:
        make_store(f"postgresql+psycopg://{place}")
    assert "cret" not in f"{caught.value} {caught.value.value}"


@pytest.mark.parametrize("options", ["password=se@cret", "sslpassword=secret&password=secret"])
def test_a_password_among_the_options_is_not_shown(
    make_store: StoreMaker, place: str, options: str
) -> None:
    with make_store(f"{place}&{options}") as store:
        assert "cret" not in repr(store)
        assert store.governor.url.partition("?")[0] == place.partition("?")[0]
    with pytest.raises(StorageUnavailableError) as caught:
        make_store(f"postgresql+psycopg://app:se%40cret@127.0.0.1:1/db?{options}")
    assert "app:***@127.0.0.1:1/db" in str(caught.value)
    assert "cret" not in str(caught.value)


def test_an_option_that_the_driver_does_not_have(make_store: StoreMaker) -> None:
    with pytest.raises(InvalidInputError, match='"poolsize" in the URL'):
        make_store("postgresql+psycopg://x@/x?poolsize=3")


def test_a_server_that_is_too_old(
    make_store: StoreMaker, place: str, ledger: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_memoryworth.ledger.database._OLDEST_SERVER", 99)
    with pytest.raises(StorageError, match="version 99 or newer"):
        make_store(place)
    with admin(ledger) as connection:
        made = connection.execute(
            "SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema_of(place)]
        ).fetchall()
    assert made == []


@pytest.mark.parametrize(
    "url", ["mysql://x/y", "postgresql+asyncpg://x/y", "postgresql+psycopg2://x"]
)
def test_another_engine_is_refused(make_store: StoreMaker, url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"postgresql\+psycopg"):
        make_store(url)


def test_tables_of_another_program_are_left_alone(ledger: Server, make_store: StoreMaker) -> None:
    place = new_schema(ledger)
    with admin(ledger) as connection:
        connection.execute(f"CREATE SCHEMA {schema_of(place)}")
        connection.execute(f"CREATE TABLE {schema_of(place)}.mine (x int)")
        with pytest.raises(ForeignStorageError, match="mine"):
            make_store(place)
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema_of(place)]
        ).fetchall()
    assert tables == [("mine",)]


def test_a_server_that_is_not_there(make_store: StoreMaker, tmp_path: Any) -> None:
    with pytest.raises(StorageUnavailableError, match="check that the server is up"):
        make_store(f"postgresql+psycopg://x@/x?host={tmp_path}")


# -- no state in the session ----------------------------------------------------------------------------------------


def test_every_transaction_may_run_on_another_connection(
    make_store: StoreMaker, ledger: Server, place: str
) -> None:
    """A proxy that pools transactions hands each one to any connection, and keeps nothing for the next."""
    store = make_store(place, policy=plain(v_min=1, exploration=0.0))
    engine = store.governor.database.engine
    left: list[tuple[Any, ...]] = []
    from sqlalchemy import event

    def reset(connection: Any, _record: object) -> None:
        left.extend(
            connection.execute(
                "SELECT current_setting('search_path'), current_setting('lock_timeout'), "
                "(SELECT COUNT(*) FROM pg_prepared_statements), "
                "(SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' "
                "AND pid = pg_backend_pid())"
            ).fetchall()
        )
        connection.execute("DISCARD ALL")

    event.listen(engine, "checkin", reset)
    for n in range(8):
        store.add_texts([f"text {n}"], ids=[str(n)])
        with store.episode(str(n)):
            store.similarity_search(f"text {n}", k=2)
        store.record_outcome(str(n), n % 2 == 0)
    assert_exact(store)
    assert len(left) >= 32
    assert set(left) == {('"$user", public', "0", 0, 0)}


def test_one_connection_is_enough(make_store: StoreMaker, place: str) -> None:
    store = make_store(place, pool_size=1)
    store.add_texts(["a", "b"], ids=["a", "b"])
    with store.episode("run"):
        store.similarity_search("a", k=1, filter={"x": 1})
        store.similarity_search("a", k=1)
    store.record_outcome("run", True)
    assert store.worth("a") == 1.0
    assert store.governor.database.engine.pool.size() == 1


def test_the_pool_is_as_large_as_the_user_says(make_store: StoreMaker, place: str) -> None:
    store = make_store(place, pool_size=3)
    store.add_texts(["a"], ids=["a"])
    barrier = threading.Barrier(3)

    def work() -> None:
        with store.governor.database.read() as session:
            session.number(Statement("SELECT 1"))
            barrier.wait(30)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert not barrier.broken
    assert store.governor.database.engine.pool.checkedin() == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [0, -1, 2.5, "3", True])
def test_a_pool_has_at_least_one_connection(make_store: StoreMaker, place: str, size: Any) -> None:
    with pytest.raises(InvalidInputError, match="pool_size"):
        make_store(place, pool_size=size)


# -- what a server says ---------------------------------------------------------------------------------------------


def raising(store: MemoryWorthStore, code: str) -> None:
    """Let the server refuse each new outcome with an error of its own."""
    execute(
        store,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END$$",
    )
    execute(
        store,
        "CREATE TRIGGER refuse BEFORE INSERT ON outcomes FOR EACH ROW EXECUTE FUNCTION refuse()",
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("53100", StorageFullError),
        ("53300", StorageBusyError),
        ("25006", StorageReadOnlyError),
        ("42501", StorageReadOnlyError),
        ("55P03", StorageBusyError),
        ("57014", StorageBusyError),
        ("54000", InvalidInputError),
        ("P0001", StorageError),
    ],
)
def test_errors_of_the_server_have_our_names_and_nothing_is_kept(
    make_store: StoreMaker, place: str, code: str, kind: type[Exception]
) -> None:
    store = make_store(place)
    store.add_texts(["a"], ids=["a"])
    expose(store, "run", "a")
    raising(store, code)
    with pytest.raises(kind) as raised:
        store.record_outcome("run", True)
    assert type(raised.value) is kind
    assert query(store, "SELECT COUNT(*) FROM outcomes") == [(0,)]
    execute(store, "DROP TRIGGER refuse ON outcomes")
    assert store.record_outcome("run", True)
    assert_exact(store)


def test_a_role_that_may_only_read(
    make_store: StoreMaker, ledger: Server, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with make_store(place) as store:
        store.add_texts(["a"], ids=["a"])
    role = f"reader_{schema_of(place)}"
    with admin(ledger) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema_of(place)} TO {role}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema_of(place)} TO {role}")
    reader = make_store(place.replace("postgres@", f"{role}@"))
    assert [d.id for d in reader.similarity_search("a", k=1)] == ["a"]
    with pytest.raises(StorageReadOnlyError, match="grant it"):
        reader.add_texts(["b"])
    with pytest.raises(StorageReadOnlyError, match="grant it"):
        reader.erase("a")
    # Nothing but the error: the driver would write of the statements that were sent after the one that was refused.
    assert [r.getMessage() for r in caplog.records if r.name.startswith("psycopg")] == []


def test_the_documented_role_is_enough(make_store: StoreMaker, ledger: Server, place: str) -> None:
    with make_store(place):
        pass
    role = f"worker_{schema_of(place)}"
    with admin(ledger) as connection:
        for statement in documented_grants(role, schema_of(place)):
            connection.execute(statement)
    store = make_store(place.replace("postgres@", f"{role}@"), policy=plain(v_min=1))
    store.add_texts(["a"], ids=["a"])
    with store.episode("run"):
        store.similarity_search("a", k=1)
    store.record_outcome("run", False)
    store.restore("a")
    store.pin("a")
    store.delete(["a"])
    assert_exact(store)


# -- several at once ------------------------------------------------------------------------------------------------


def undoing(store: MemoryWorthStore, event: str, code: str, times: int) -> None:
    """Let the server undo so many transactions at an event, such as an insert into a table."""
    execute(store, "CREATE SEQUENCE tries")
    execute(
        store,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN IF nextval('tries') <= {times} THEN "
        f"RAISE EXCEPTION 'again' USING ERRCODE = '{code}'; END IF; RETURN NEW; END$$",
    )
    execute(store, f"CREATE TRIGGER refuse BEFORE {event} FOR EACH ROW EXECUTE FUNCTION refuse()")


@pytest.mark.parametrize(("code", "times"), [("40001", 2), ("40P01", 1)])
def test_what_the_server_undid_is_done_again_once(
    make_store: StoreMaker, place: str, code: str, times: int
) -> None:
    store = make_store(place)
    store.add_texts(["a"], ids=["a"])
    expose(store, "run", "a")
    undoing(store, "INSERT ON outcomes", code, times)
    assert store.record_outcome("run", True)
    assert query(store, "SELECT last_value FROM tries") == [(times + 1,)]
    assert query(store, "SELECT COUNT(*) FROM outcomes") == [(1,)]
    assert_exact(store)


@pytest.mark.parametrize("event", ["INSERT ON pauses", "UPDATE ON pauses", "INSERT ON aliases"])
def test_where_a_run_stops_and_goes_on_is_written_down_though_the_server_undid_it(
    make_store: StoreMaker, place: str, event: str
) -> None:
    store = make_store(place)
    store.add_texts(["a"], ids=["a"])
    expose(store, "run", "a")
    undoing(store, event, "40P01", 1)
    journal = store.governor.journal
    journal.pause(EpisodeKey("run"), Pause("thread", "here"), 1.0, ("look",))
    root = Root(uuid4(), EpisodeKey("resumed"))
    journal.resume(root, "thread", ("here",), latest=False)
    assert root.episode == EpisodeKey("run", ("resumed",), "thread")
    assert store.run("resumed").path == ("look",)
    assert query(store, "SELECT last_value FROM tries") == [(2,)]


def test_a_run_id_is_used_again_though_the_server_undid_it(
    make_store: StoreMaker, place: str
) -> None:
    store = make_store(place)
    store.add_texts(["a"], ids=["a"])
    expose(store, "run", "a")
    undoing(store, "INSERT ON episodes", "40001", 1)
    store.governor.journal.begin_again(EpisodeKey("run"))
    assert store.run("run").id == "run#2"


def test_a_change_that_commits_late_is_not_missed(make_store: StoreMaker, place: str) -> None:
    """The lower revision is committed last: a cursor of revisions would have passed it by."""
    writer, reader = make_store(place), make_store(place)
    writer.add_texts(["a", "b"], ids=["a", "b"])
    assert len(reader.similarity_search("a", k=2)) == 2
    database = writer.governor.database
    retire = Statement("UPDATE memories SET retired_at = 1 WHERE id = :id")
    tell = Statement(
        "INSERT INTO changes (kind, low, high) "
        "SELECT 'memories', seq, seq FROM memories WHERE id = :id RETURNING revision"
    )
    with database.write(alone=False) as slow:
        slow.run(retire, {"id": "a"})
        first = slow.number(tell, id="a")
        with database.write(alone=False) as fast:
            fast.run(retire, {"id": "b"})
            assert fast.number(tell, id="b") > first
        assert [d.id for d in reader.similarity_search("a", k=2)] == ["a"]
        assert [d.id for d in reader.similarity_search("a", k=2)] == ["a"]
    assert reader.similarity_search("a", k=2) == []
    # What was over when it last looked is not read again.
    assert reader.governor.replica._cursor.seen == frozenset()


def test_an_outcome_reads_no_more_after_many_runs(make_store: StoreMaker, place: str) -> None:
    """Also where the server has no statistics yet, as before its first ANALYZE."""
    store = make_store(place)
    ids = [str(i) for i in range(8)]
    store.add_texts(ids, ids=ids)
    for name in ("first", "second"):
        expose(store, name, *ids)
        store.record_outcome(name, False)
    for statement in COPIES_OF_RUNS:
        execute(store, statement, count=20_000)
    expose(store, "third", *ids)
    store.record_outcome("third", False)  # the change detectors hear of the copies, once
    store.similarity_search("1")  # which loads the memories
    before = rows_read(store, place)
    for name in ("fourth", "fifth"):
        expose(store, name, *ids)
        store.record_outcome(name, False)
    store.record_outcome("third", True)
    with store.episode("sixth"):
        assert len(store.similarity_search("1", k=8)) == 8
    after = rows_read(store, place)
    assert after - before < 2_000
    assert query(store, "SELECT COUNT(*) FROM outcomes") == [(20_006,)]
    assert rows_read(store, place) - after >= 20_006  # it does count


def test_an_outcome_in_a_namespace_that_holds_back_its_share_reads_no_more_memories(
    make_store: StoreMaker, place: str
) -> None:
    store = make_store(place, policy=plain(max_suppressed=0.001, v_min=1))
    ids = [str(i) for i in range(2_000)]
    store.add_texts(ids, ids=ids)
    read = []
    for i in range(12):
        before = rows_read(store, place)
        expose(store, f"run {i}", str(i))
        store.record_outcome(f"run {i}", False)
        read.append(rows_read(store, place) - before)
    assert {m.id for m in store.suppressed()} == {"0", "1"}
    assert max(read[2:]) < 500


def test_outcomes_at_once_do_not_hold_back_more_than_a_share(
    make_store: StoreMaker, place: str
) -> None:
    store = make_store(place, pool_size=8, policy=plain(max_suppressed=0.05, v_min=1))
    ids = [str(i) for i in range(20)]
    store.add_texts(ids, ids=ids)
    for id_ in ids:
        expose(store, f"run {id_}", id_)
    barrier = threading.Barrier(8)

    def work(which: int) -> None:
        barrier.wait(30)
        for id_ in ids[which::8]:
            store.record_outcome(f"run {id_}", False)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(store.suppressed()) == 1
    assert_exact(store)


COPIES_OF_RUNS = (
    (
        "INSERT INTO episodes (eid, id, started_at, settled_at, reward) SELECT 1000 + n, 'copy ' || n, e.started_at, "
        "e.settled_at, e.reward FROM generate_series(1, :count) n, episodes e WHERE e.id = 'second'"
    ),
    (
        "INSERT INTO exposures SELECT 1000 + n, x.seq, x.rank, x.similarity, x.context, x.arm, x.propensity, x.shown, x.used, "
        "x.at, x.last_at, x.weight, x.positive, x.size, x.surprise, x.expected, x.epoch, 1000 + n "
        "FROM generate_series(1, :count) n, exposures x WHERE x.eid = 2 AND x.seq = 1 + n % 8"
    ),
    (
        "INSERT INTO outcomes (number, eid, source, source_id, metric, reward, at) SELECT 1000 + n, 1000 + n, o.source, "
        "o.source_id, o.metric, o.reward, o.at FROM generate_series(1, :count) n, outcomes o WHERE o.eid = 2"
    ),
    "SELECT setval(pg_get_serial_sequence('outcomes', 'number'), 30000)",
    "SELECT setval(pg_get_serial_sequence('episodes', 'eid'), 30000)",
)


def rows_read(store: MemoryWorthStore, place: str) -> int:
    """Rows and entries of indexes that were read in a schema until now, by the server's own count."""
    query(store, "SELECT pg_stat_force_next_flush()")
    [(count,)] = query(
        store,
        "SELECT (SELECT SUM(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = :schema) + "
        "(SELECT SUM(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = :schema)",
        schema=schema_of(place),
    )
    return int(count)


def test_settlements_of_shared_memories_run_beside_each_other(
    make_store: StoreMaker, place: str
) -> None:
    """One waits in the middle of its transaction; another episode of other memories is settled meanwhile."""
    store = make_store(place)
    store.add_texts(["a", "b"], ids=["a", "b"])
    expose(store, "one", "a")
    expose(store, "two", "b")
    with store.governor.database.write(alone=False) as session:
        session.run(Statement("SELECT 1 FROM evidence WHERE seq = 1 FOR UPDATE"))
        session.rows(Statement("SELECT 1"))
        assert store.record_outcome("two", True)
    assert store.record_outcome("one", True)


def test_external_memories_that_are_known_are_shown_beside_settlements(
    make_store: StoreMaker, place: str
) -> None:
    """Only one that is new has to be alone: for this it would wait here until it gives up."""
    store = make_store(place)
    digests = {"x": "sha256:x", "y": "sha256:y"}
    shown = {"x": Exposure(0, 0, None), "y": Exposure(0, 1, None)}
    store.governor.journal.expose_external(EpisodeKey("one"), digests, shown, None)
    with store.governor.database.write(alone=False) as session:
        session.rows(Statement("SELECT 1"))
        store.governor.journal.expose_external(EpisodeKey("two"), digests, shown, None)
    assert store.record_outcome("two", True)
    rows = query(store, "SELECT COUNT(*), COUNT(DISTINCT seq) FROM exposures")
    assert rows == [(4, 2)]


def test_opposite_orders_do_not_block_each_other(make_store: StoreMaker, place: str) -> None:
    store = make_store(place, pool_size=4)
    ids = [f"m{i}" for i in range(8)]
    store.add_texts(ids, ids=ids)
    for n in range(40):
        expose(store, str(n), *(ids if n % 2 else reversed(ids)))
    failures: list[BaseException] = []

    def work(part: int) -> None:
        try:
            for n in range(part, 40, 4):
                store.record_outcome(str(n), n % 3 == 0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failures == []
    assert query(
        store, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ) == [(0,)]
    assert_exact(store)
    assert {m.evidence.retrievals for m in store.memories()} == {40}


def test_one_episode_from_many_sides_is_one(make_store: StoreMaker, place: str) -> None:
    store = make_store(place, pool_size=4)
    store.add_texts(["a", "b", "c", "d"], ids=["a", "b", "c", "d"])
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def work(id_: str) -> None:
        try:
            for n in range(10):
                barrier.wait(30)
                expose(store, f"run{n}", id_)
                store.record_outcome(f"run{n}", id_ == "a", source=id_)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in "abcd"]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failures == []
    assert query(store, "SELECT COUNT(*) FROM episodes") == [(10,)]
    assert_exact(store)
    folded = fold_of_ledger(store)
    rows = query(store, "SELECT seq, positive, negative, size, squared, retrievals FROM evidence")
    assert {r[0]: r[1:] for r in rows} == folded


# -- the server goes ------------------------------------------------------------------------------------------------


def test_a_restart_between_two_calls_is_not_noticed(mortal: Server, make_store: StoreMaker) -> None:
    store = make_store(new_schema(mortal))
    store.add_texts(["a"], ids=["a"])
    mortal.stop()
    mortal.start()
    assert [d.id for d in store.similarity_search("a", k=1)] == ["a"]
    expose(store, "run", "a")
    mortal.stop()
    mortal.start()
    assert store.record_outcome("run", True)
    assert store.health().ok
    gc.collect()


def test_a_restart_in_the_middle_of_writers_loses_nothing_and_doubles_nothing(
    mortal: Server, make_store: StoreMaker
) -> None:
    store = make_store(new_schema(mortal), pool_size=3)
    store.add_texts([f"t{i}" for i in range(8)], ids=[f"t{i}" for i in range(8)])
    acknowledged: list[list[str]] = [[], [], []]
    failures: list[BaseException] = []
    done = threading.Event()

    def work(part: int) -> None:
        try:
            n = 0
            while not done.is_set():
                run = f"{part}-{n}"
                expose(store, run, f"t{n % 8}", f"t{(n + part + 1) % 8}")
                store.record_outcome(run, n % 2 == 0)
                store.record_outcome(run, n % 2 == 0)  # a duplicate
                store.record_outcome(run, n % 3 == 0)  # a correction
                acknowledged[part].append(run)
                n += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for _ in range(2):
        seen = [len(a) for a in acknowledged]
        mortal.stop()
        mortal.start()
        # Each writer goes on after it.
        while not failures and any(len(a) <= n for a, n in zip(acknowledged, seen, strict=True)):
            threading.Event().wait(0.01)
    done.set()
    for t in threads:
        t.join(60)
    assert failures == []
    assert_exact(store)
    rewards = dict(query(store, "SELECT id, reward FROM episodes"))
    runs = [r for part in acknowledged for r in part]
    lost = [r for r in runs if rewards.get(r) != float(int(r.partition("-")[2]) % 3 == 0)]
    # An outcome that was written and then corrected has two rows; three would be one of them twice.
    twice = [count for *_, count in outcomes_of(store) if count > 2]
    tally("postgresql:", faults=2, acknowledged=len(runs), lost=len(lost), twice=len(twice))


def test_a_commit_that_was_not_answered_is_written_once(make_store: StoreMaker, place: str) -> None:
    """The connection goes when the server has committed and before it could say so."""
    store = make_store(place)
    store.add_texts(["a"], ids=["a"])
    expose(store, "run", "a")
    database = store.governor.database
    opened, cut = database._opened, []

    @contextmanager
    def cut_off(connection: Any) -> Iterator[None]:
        with opened.pipeline(connection):
            yield
        if not cut:
            cut.append(1)
            connection.driver_connection.close()
            raise psycopg.OperationalError("the connection is lost")

    database._opened = replace(opened, pipeline=cut_off)
    store.record_outcome("run", True)
    assert cut == [1]
    [(count,)] = query(store, "SELECT COUNT(*) FROM outcomes")
    tally(place, faults=len(cut), acknowledged=1, lost=int(count < 1), twice=int(count > 1))
    assert store.worth("a") == 1.0
    assert_exact(store)


def test_a_server_that_stays_away_is_an_error_with_a_name_after_thirty_seconds(
    mortal: Server, make_store: StoreMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(new_schema(mortal))
    store.add_texts(["a"], ids=["a"])
    expose(store, "run", "a")
    now = [0.0]
    waiting = "langchain_memoryworth.ledger.database"
    monkeypatch.setattr(f"{waiting}.time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(f"{waiting}._wait", lambda pause: now.append(now.pop() + pause))
    calls: list[Callable[[], object]] = [
        lambda: store.similarity_search("a"),
        lambda: store.record_outcome("run", True),
        lambda: expose(store, "another", "a"),
        lambda: store.add_texts(["b"]),
        lambda: store.restore("a", actor="eva", reason="not done twice, but waited for"),
    ]
    mortal.stop()
    try:
        for call in calls:
            now[0] = 0.0
            with pytest.raises(StorageUnavailableError):
                call()
            # The next pause, of a second, would have ended after it.
            assert BUSY_TIMEOUT_S - 1.0 < now[0] <= BUSY_TIMEOUT_S
    finally:
        mortal.start()
    assert len(store.similarity_search("a")) == 1


# -- migrations -----------------------------------------------------------------------------------------------------


def test_two_migrations_at_once_are_one(place: str) -> None:
    barrier = threading.Barrier(4)
    opened: list[Database] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            barrier.wait(30)
            database = Database(place)
            opened.append(database)
            database.prepare()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failures == []
    for database in opened:
        with database.read() as session:
            assert session.rows(Statement("SELECT value FROM meta")) == [("1",)]
            [(versions,)] = session.rows(Statement("SELECT COUNT(*) FROM meta"))
        database.close()
        tally(place, faults=1, acknowledged=1, lost=int(versions < 1), twice=int(versions > 1))


def test_a_reader_during_a_migration_sees_all_of_it_or_nothing(ledger: Server, place: str) -> None:
    schema = schema_of(place)
    with admin(ledger) as connection:
        # Whoever migrates holds the lock; here it is held for him, so that he stands in the middle.
        connection.execute("BEGIN")
        connection.execute(f"SELECT pg_advisory_xact_lock({lock_number(schema)})")
        opened: list[MemoryWorthStore] = []
        thread = threading.Thread(
            target=lambda: opened.append(MemoryWorthStore(place, HashedWords()))
        )
        thread.start()
        with admin(ledger) as other:
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while not other.execute(waiting).fetchall():
                pass
            assert opened == []
            tables = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = %s"
            assert other.execute(tables, [schema]).fetchone() == (0,)
            connection.execute("COMMIT")
            thread.join(60)
            (found,) = other.execute(tables, [schema]).fetchall()
            assert found[0] >= 10
    [(versions,)] = query(opened[0], "SELECT COUNT(*) FROM meta")
    opened[0].close()
    tally(place, faults=1, acknowledged=1, lost=int(versions < 1), twice=int(versions > 1))
