"""Many threads, several processes, and kill -9: nothing acknowledged is lost, nothing is counted twice.

`MEMORYWORTH_KILLS=500` is what `make soak` runs.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore, Status
from langchain_memoryworth.records import EpisodeKey
from tests.fakes import (
    HashedWords,
    assert_exact,
    assert_is_top,
    brute,
    counters,
    fold_of_ledger,
    live,
    query,
    unit,
)
from tests.policies import plain
from tests.tally import tally

StoreMaker = Callable[..., MemoryWorthStore]
HERE = Path(__file__).resolve().parent
KILLS = int(os.environ.get("MEMORYWORTH_KILLS", "25"))


def ledger_is_whole(store: MemoryWorthStore) -> None:
    """Counters equal the sum of the credits, and the credits what the outcomes say."""
    assert_exact(store)
    totals = {seq: total for seq, (total, _) in counters(store).items()}
    assert totals == fold_of_ledger(store)


def together(*jobs: Callable[[], None]) -> None:
    """Start all at one moment; the first error of any is raised."""
    barrier = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        barrier.wait()
        job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(run, job) for job in jobs]:
            done.result()


# -- threads --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uncertain", ["prior", "pool"])
def test_eight_threads_adding_searching_and_recording(
    make_store: StoreMaker, url: str, uncertain: Any
) -> None:
    store = make_store(
        url,
        policy=plain(uncertain=uncertain, rank=(0.7, 0.3), exploration=0.2, v_min=4),  # type: ignore[arg-type]
    )
    threads, rounds = 8, 40
    store.add_texts([f"fixed {i}" for i in range(30)], ids=[f"f{i}" for i in range(30)])
    wrong: list[str] = []

    def work(n: int) -> Callable[[], None]:
        def job() -> None:
            draw = random.Random(n)
            for i in range(rounds):
                mine = f"t{n}-{i}"
                store.add_texts([f"own{n}x{i}"], ids=[mine])
                # what was added is found at once, and pinned it cannot be held back meanwhile
                store.pin(mine)
                hits = store.governor.retrieval.recall(f"own{n}x{i}", 1, rank=(1, 0), track=False)
                if [h.id for h in hits] != [mine] or abs(hits[0].similarity - 1) > 1e-5:
                    wrong.append(mine)
                with store.episode(f"run {n} {i}"):
                    found = store.similarity_search(f"fixed {draw.randrange(30)}", k=5)
                if len(found) != 5 or len({d.id for d in found}) != 5:
                    wrong.append(f"run {n} {i}: {[d.id for d in found]}")
                store.record_outcome(f"run {n} {i}", draw.random() < 0.3)
                if i % 3 == 0:
                    store.record_outcome(f"run {n} {draw.randrange(i + 1)}", draw.random())
                if i % 4 == 0:
                    store.withdraw_outcome(f"run {n} {draw.randrange(i + 1)}")
                if i % 5 == 0:
                    store.explain_search("fixed", k=4)
                    store.add_texts([f"changed by {n}"], ids=[f"f{draw.randrange(30)}"])

        return job

    together(*(work(n) for n in range(threads)))
    assert wrong == []
    ledger_is_whole(store)
    health = store.health()
    assert health.ok
    assert health.memories == 30 + threads * rounds
    assert health.episodes == threads * rounds
    vector = unit(HashedWords().embed_query("fixed 3"))
    scores, _ = brute(store, vector, (0.7, 0.3, 0.0))
    hits = store.governor.retrieval.recall_by_vector(vector, 50, track=False)
    assert_is_top([h.id for h in hits], scores, 50)


def test_threads_that_correct_one_episode(make_store: StoreMaker, url: str) -> None:
    store = make_store(url)
    store.add_texts([f"t{i}" for i in range(8)], ids=[str(i) for i in range(8)])
    with store.episode("run"):
        store.similarity_search("t", k=8)

    def work(n: int) -> Callable[[], None]:
        def job() -> None:
            for i in range(30):
                store.record_outcome("run", (i + n) % 2, source="user", source_id=str(n % 3))
                if i % 7 == n % 7:
                    store.withdraw_outcome("run", source="user", source_id=str(n % 3))

        return job

    together(*(work(n) for n in range(8)))
    ledger_is_whole(store)
    # 2^-32 * 8 = one retrieval each, or none at all if the last word was a withdrawal
    assert {r.counters[4] for r in live(store)} <= {0, 1}


def test_a_search_never_misses_a_text_that_is_being_replaced(
    make_store: StoreMaker, shared_url: str
) -> None:
    """Each of the ten is there before and after every change, so every search must find ten."""
    store = make_store(shared_url)
    ids = [str(i) for i in range(10)]
    store.add_texts([f"text {i} 0" for i in ids], ids=ids)
    done = threading.Event()
    short: list[int] = []

    def change() -> None:
        try:
            for n in range(150):
                store.add_texts([f"text {i} {n % 3}" for i in ids], ids=ids)
        finally:
            done.set()

    def look() -> None:
        while not done.is_set():
            found = store.similarity_search("text", k=20)
            if sorted(str(d.id) for d in found) != ids:
                short.append(len(found))

    together(change, look, look, look)
    assert short == []


def test_threads_under_a_policy_that_changes(make_store: StoreMaker, shared_url: str) -> None:
    """Whatever thread loads the index, afterwards it is the one of the policy in force."""
    store = make_store(shared_url, policy=plain(rank=(0.5, 0.5), uncertain="prior", prior=0.1))  # type: ignore[arg-type]
    store.add_texts([f"text {i}" for i in range(40)], ids=[str(i) for i in range(40)])
    done = threading.Event()

    def change() -> None:
        try:
            for n in range(25):
                policy = plain(
                    rank=(0.5, 0.5), uncertain="worth" if n % 2 else "prior", v_min=n % 4
                )  # type: ignore[arg-type]
                make_store(shared_url, policy=policy).close()
        finally:
            done.set()

    def work(n: int) -> Callable[[], None]:
        def job() -> None:
            i = 0
            while not done.is_set():
                i += 1
                with store.episode(f"{n}-{i}"):
                    store.similarity_search(f"text {i % 40}", k=4)
                # Mostly successes: where all had failed, nothing would be served, and no episode begun.
                store.record_outcome(f"{n}-{i}", i % 3 != 0)

        return job

    together(change, work(0), work(1), work(2))
    assert store.health().ok
    assert_exact(store)
    vector = unit(HashedWords().embed_query("text 3"))
    scores, _ = brute(store, vector, store.policy.rank)
    hits = store.governor.retrieval.recall_by_vector(vector, 40, track=False)
    assert_is_top([h.id for h in hits], scores, 40)


def test_threads_that_open_one_fresh_file_at_once(shared_url: str) -> None:
    stores: list[MemoryWorthStore] = []

    def open_() -> None:
        stores.append(MemoryWorthStore(shared_url, HashedWords()))

    together(*[open_] * 8)
    for n, store in enumerate(stores):
        store.add_texts([f"text {n}"])
    for store in stores:
        assert store.health().memories == 8
        store.close()


# -- processes ------------------------------------------------------------------------------------------------------


def test_two_stores_on_one_file_see_each_other_at_their_next_call(
    make_store: StoreMaker, shared_url: str
) -> None:
    """Two engines on one file are to SQLite what two processes are; that of real processes is below."""
    one = make_store(shared_url, policy=plain(v_min=2, exploration=0.0))
    two = make_store(shared_url)
    assert two.similarity_search("apple") == []
    one.add_texts(["apple", "pear"], ids=["a", "p"])
    assert [d.id for d in two.similarity_search("apple", k=1)] == ["a"]
    for i in range(2):
        with two.episode(f"run{i}"):
            two.similarity_search("apple", k=1)
        one.record_outcome(f"run{i}", False)
    assert two.worth("a") == 0.0
    assert [m.id for m in two.suppressed()] == ["a"]
    assert [d.id for d in two.similarity_search("apple", k=2)] == ["p"]
    two.restore("a")
    assert [d.id for d in one.similarity_search("apple", k=2)] == ["a", "p"]
    two.add_texts(["cherry"], ids=["a"])
    assert [d.page_content for d in one.similarity_search("cherry", k=1)] == ["cherry"]
    one.delete(["p"])
    assert [d.id for d in two.similarity_search("pear", k=2)] == ["a"]
    two.pin("a")
    assert one.memory("a").status is Status.PINNED
    assert one.health().pinned == 1


PEER = """
import sys
from langchain_memoryworth import MemoryWorthStore, Policy
from tests.fakes import HashedWords
with MemoryWorthStore(sys.argv[1], HashedWords()) as store:
    for line in sys.stdin:
        print(repr(eval(line, {"store": store, "Policy": Policy})), flush=True)
"""


@contextmanager
def peer(url: str) -> Iterator[Callable[[str], Any]]:
    """Another process with the store open; what it is told to evaluate, it answers."""
    process = subprocess.Popen(
        [sys.executable, "-c", PEER, url],
        cwd=HERE.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(expression: str) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(expression + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, "the other process has died"
        return eval(line)  # noqa: S307  # a repr of our own making

    try:
        yield ask
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def test_two_processes_see_each_other_at_their_next_call(
    make_store: StoreMaker, shared_url: str
) -> None:
    here = make_store(shared_url, policy=plain(v_min=2, exploration=0.0))
    here.add_texts(["apple", "pear"], ids=["a", "p"])
    with peer(shared_url) as there:
        search = "[d.id for d in store.similarity_search('apple', k=2)]"
        assert there(search) == ["a", "p"]
        assert there("store.add_texts(['plum'], ids=['u'])") == ["u"]
        assert [d.id for d in here.similarity_search("plum", k=1)] == ["u"]
        for i in range(2):
            with here.episode(f"run{i}"):
                here.similarity_search("apple", k=1)
            assert there(f"store.record_outcome('run{i}', False)") is True
        assert here.worth("a") == 0.0
        assert "a" not in [d.id for d in here.similarity_search("apple", k=3)]
        assert there("[m.id for m in store.suppressed()]") == ["a"]
        assert "a" not in there(search)
        here.restore("a")
        assert there(search)[0] == "a"
        assert there("store.pin('a')") is None
        assert here.memory("a").status is Status.PINNED
        here.add_texts(["kiwi"], ids=["p"])
        assert there("[d.page_content for d in store.similarity_search('kiwi', k=1)]") == ["kiwi"]
        assert there("store.delete(['u'])") is True
        assert here.get_by_ids(["u"]) == []
        with make_store(shared_url, policy=plain(theta_low=0.1)):
            pass
        assert there("store.health().ok and store.policy.theta_low") == 0.1
    ledger_is_whole(here)


def start_writer(url: str, seed: int) -> subprocess.Popen[bytes]:
    """A writer that imports what it needs, and begins at `go`."""
    return subprocess.Popen(
        [sys.executable, str(HERE / "writer.py"), url, str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PGAPPNAME": "writer"},
    )


def go(writer: subprocess.Popen[bytes]) -> None:
    assert writer.stdin is not None
    writer.stdin.write(b"go\n")
    writer.stdin.close()


def test_processes_that_write_at_once_stay_exact(make_store: StoreMaker, shared_url: str) -> None:
    store = make_store(shared_url, embedding=HashedWords(dimension=8))
    store.add_texts([f"word{i}" for i in range(30)], ids=[f"m{i}" for i in range(30)])
    writers = [start_writer(shared_url, seed) for seed in (1, 2, 3)]
    for writer in writers:
        go(writer)
    heard = [Heard() for _ in writers]
    while min(len(h.settled) for h in heard) < 60:
        for writer, h in zip(writers, heard, strict=True):
            h.listen(writer, until=len(h.settled) + 5)
    for writer, h in zip(writers, heard, strict=True):
        writer.kill()
        h.rest(writer)
    for h in heard:
        assert check(store, h) == (0, 0)
    ledger_is_whole(store)


# -- kill -9 --------------------------------------------------------------------------------------------------------


@dataclass
class Heard:
    """What a writer said that it had done; the last line may be about something after it."""

    shown: set[str] = field(default_factory=set)
    settled: dict[str, float] = field(default_factory=dict)
    calls: int = 0  # outcomes that were acknowledged, also those that were withdrawn again
    buffer: bytes = b""

    def take(self, data: bytes) -> None:
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            word, *rest = line.decode().split(" ")
            self.calls += word in ("settled", "withdrawn")
            if word == "shown":
                self.shown.add(rest[0])
            elif word == "settled":
                self.settled[rest[0]] = float(rest[1])
            elif word == "withdrawn":
                del self.settled[rest[0]]

    def listen(self, writer: subprocess.Popen[bytes], *, until: int) -> None:
        """Read until so many outcomes are acknowledged."""
        while len(self.settled) < until:
            self.take(self._some(writer))

    def listen_for(self, writer: subprocess.Popen[bytes], seconds: float) -> None:
        """Read for a while; the delay is not synchronisation, it is the random moment of the kill."""
        assert writer.stdout is not None
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([writer.stdout], [], [], left)[0]:
                self.take(self._some(writer))

    def rest(self, writer: subprocess.Popen[bytes]) -> None:
        """What was still in the pipe of a writer that was killed."""
        assert writer.stdout is not None
        self.take(writer.stdout.read())
        writer.stdout.close()
        writer.wait(30)

    @staticmethod
    def _some(writer: subprocess.Popen[bytes]) -> bytes:
        assert writer.stdout is not None
        data = os.read(writer.stdout.fileno(), 65_536)
        assert data, "the writer has died by itself"
        return data


def check(store: MemoryWorthStore, heard: Heard) -> tuple[int, int]:
    """Everything acknowledged is there exactly once, and at most one call more, the one that was cut off.

    Returns:
        How many runs are lost, and how many are there twice.
    """
    rewards = dict(query(store, "SELECT id, reward FROM episodes"))
    gone = heard.shown - rewards.keys()
    differing = {r for r, reward in heard.settled.items() if rewards.get(r, -1) != reward} - gone
    # The call in flight may have corrected or withdrawn one of them without having said so.
    excused = len(differing) == 1 and all(rewards[run] in (0.5, None) for run in differing)
    doubled = query(store, "SELECT id FROM episodes GROUP BY id HAVING COUNT(*) > 1")
    return len(gone) + (0 if excused else len(differing)), len(doubled)


def settled_down(store: MemoryWorthStore) -> None:
    """The file is sound; or the server has noticed that the writer is dead."""
    if store.governor.url.startswith("sqlite"):
        assert query(store, "PRAGMA integrity_check") == [("ok",)]
        return
    mine = "application_name = 'writer' AND datname = current_database()"
    while query(store, f"SELECT pid FROM pg_stat_activity WHERE {mine}"):
        time.sleep(0.001)  # until then it may still be committing what it had been told


def kill_and_check(url: str, count: int) -> tuple[int, int, int]:
    """Kill a writing process `count` times at moments of a fixed list, and look at the file after each.

    Returns:
        How many outcomes were acknowledged in all, how many of them are lost, and how many there twice.
    """
    draw = random.Random(20_260_101)
    delays = [draw.uniform(0.0, 0.4) for _ in range(count)]
    acknowledged, lost, twice = 0, 0, 0
    with MemoryWorthStore(url, HashedWords(dimension=8)) as store:
        store.add_texts([f"word{i}" for i in range(30)], ids=[f"m{i}" for i in range(30)])
    # Importing takes a writer longer than its work here, so the next one starts up meanwhile.
    waiting = start_writer(url, 0)
    for seed, delay in enumerate(delays):
        writer, waiting = waiting, start_writer(url, seed + 1)
        heard = Heard()
        try:
            go(writer)
            heard.listen(writer, until=1)
            heard.listen_for(writer, delay)
        finally:
            os.kill(writer.pid, signal.SIGKILL)
            heard.rest(writer)
            if seed == count - 1:
                waiting.kill()
                waiting.communicate()
        acknowledged += heard.calls
        with MemoryWorthStore(url, HashedWords(dimension=8)) as store:
            settled_down(store)
            gone, doubled = check(store, heard)
            lost, twice = lost + gone, twice + doubled
            ledger_is_whole(store)
            vector = unit(HashedWords(dimension=8).embed_query("word1"))
            scores, _ = brute(store, vector, store.policy.rank)
            found = store.governor.retrieval.recall_by_vector(vector, 10, track=False)
            assert_is_top([h.id for h in found], scores, 10)
    return acknowledged, lost, twice


@pytest.mark.timeout(120 + 40 * KILLS)
def test_kill_9_loses_nothing_that_was_acknowledged(shared_url: str) -> None:
    acknowledged, lost, twice = kill_and_check(shared_url, KILLS)
    assert acknowledged >= KILLS
    tally(shared_url, faults=KILLS, acknowledged=acknowledged, lost=lost, twice=twice)


def test_a_kill_during_the_first_seconds_leaves_a_store_or_nothing(shared_url: str) -> None:
    """Cut off while the tables are made: the database opens, and is complete or fresh."""
    draw = random.Random(7)
    for n in range(4):
        url = f"{shared_url}_{n}"
        ready = subprocess.Popen(
            [sys.executable, "-c", CREATOR, url], cwd=HERE.parent, stdout=subprocess.PIPE
        )
        assert ready.stdout is not None
        assert ready.stdout.readline() == b"imported\n"
        select.select([], [], [], draw.uniform(0.0, 0.06))
        os.kill(ready.pid, signal.SIGKILL)
        ready.wait(30)
        ready.stdout.close()
        with MemoryWorthStore(url, HashedWords()) as store:
            assert store.add_texts(["text"], ids=["m"]) == ["m"]
            assert len(store.similarity_search("text")) == 1
            found = store.health().memories
            tally(shared_url, faults=1, acknowledged=1, lost=1 - found, twice=0)


CREATOR = """
import sys
from langchain_memoryworth import MemoryWorthStore, Policy
from tests.fakes import HashedWords
embedding = HashedWords()
print("imported", flush=True)
with MemoryWorthStore(sys.argv[1], embedding) as store:
    store.add_texts(["text"], ids=["m"])
    sys.stdin.read()
"""


def test_many_processes_open_one_fresh_database_at_once(shared_url: str) -> None:
    url = shared_url
    code = CREATOR.replace(
        'print("imported", flush=True)', 'print("imported", flush=True)\nsys.stdin.readline()'
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, url],
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    try:
        for p in processes:
            assert p.stdout is not None
            assert p.stdout.readline() == b"imported\n"
        for p in processes:
            assert p.stdin is not None
            p.stdin.write(b"go\n")
            p.stdin.flush()
        ended = [(*p.communicate(timeout=60), p.returncode) for p in processes]
    finally:  # one that is left running would make whichever test comes next fail
        for p in processes:
            p.kill()
            p.communicate()
    assert ended == [(b"", b"", 0)] * 3
    with MemoryWorthStore(url, HashedWords()) as store:
        found = store.health().memories
    tally(url, faults=3, acknowledged=1, lost=int(found < 1), twice=int(found > 1))


def test_an_open_reader_does_not_see_half_a_write(make_store: StoreMaker, shared_url: str) -> None:
    """Eight memories share each outcome, so at any moment all eight counters are equal."""
    writer = make_store(shared_url, policy=plain(suppress=False))
    ids = [str(i) for i in range(8)]
    writer.add_texts([f"t{i}" for i in ids], ids=ids)
    reader = make_store(shared_url)
    done = threading.Event()
    torn: list[object] = []

    def write() -> None:
        try:
            for n in range(200):
                key = EpisodeKey(str(n))
                writer.governor.journal.expose_documents(key, [Document("", id=i) for i in ids])
                writer.record_outcome(str(n), n % 2 == 0)
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            seen = {m.evidence for m in reader.governor.collection.get(ids).values()}
            if len(seen) != 1:
                torn.append(seen)

    together(write, read, read)
    assert torn == []
    assert np.unique([r.counters[4] for r in live(writer)]).tolist() == [200]
