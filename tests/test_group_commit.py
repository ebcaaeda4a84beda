"""Outcomes of several threads in one transaction: exact, acknowledged when committed, and each its own caller's affair."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore, Outcome, Policy
from langchain_memoryworth.errors import (
    InvalidInputError,
    StorageFullError,
    StoreClosedError,
    UnknownRunError,
)
from langchain_memoryworth.ledger.group_commit import MOST, GroupCommit
from langchain_memoryworth.records import EpisodeKey
from tests.fakes import HashedWords, assert_exact, counters, fold_of_ledger, query

StoreMaker = Callable[..., MemoryWorthStore]
AT_ONCE = timedelta(0)
IDS = [str(i) for i in range(6)]


def filled(store: MemoryWorthStore, runs: int) -> MemoryWorthStore:
    store.add_texts([f"text {i}" for i in IDS], ids=IDS)
    for n in range(runs):
        documents: list[Any] = [Document("", id=IDS[(n + j) % len(IDS)]) for j in range(3)]
        store.governor.journal.expose_documents(EpisodeKey(f"run{n}"), documents)
    return store


def assert_whole(store: MemoryWorthStore) -> None:
    assert_exact(store)
    assert {s: total for s, (total, _) in counters(store).items()} == fold_of_ledger(store)


def wait_for(group: GroupCommit[Any, Any] | None, waiting: int) -> None:
    assert group is not None
    while group.waiting < waiting:
        time.sleep(0.001)


class HeldUp:
    """A credit rule that keeps the first transaction open until so many outcomes wait for their turn."""

    __qualname__ = "held_up"

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.store: MemoryWorthStore | None = None
        self.began = threading.Event()

    def __call__(self, shown: Sequence[Any]) -> list[float]:
        if self.store is not None and not self.began.is_set():
            self.began.set()
            wait_for(self.store.governor.group, self.waiting)
        return [1.0] * len(shown)


def gathered(
    make_store: StoreMaker,
    url: str,
    said: Sequence[tuple[str, Any]],
    *,
    window: timedelta = AT_ONCE,
    runs: int = 8,
) -> tuple[MemoryWorthStore, list[Future[bool]]]:
    """One outcome whose transaction stays open until all the others wait, which then go into the next."""
    held_up = HeldUp(len(said))
    ticks = count(1_750_000_000)
    store = make_store(
        url,
        policy=Policy(credit=held_up),
        group_commit=window,
        clock=lambda: float(next(ticks)),
    )
    held_up.store = filled(store, runs)
    with ThreadPoolExecutor(len(said) + 1) as pool:
        first = pool.submit(store.record_outcome, f"run{len(said)}", outcome=True)
        held_up.began.wait()
        others = [pool.submit(store.record_outcome, run, outcome) for run, outcome in said]
    return store, [first, *others]


def test_those_who_come_during_a_transaction_share_the_next(
    make_store: StoreMaker, url: str
) -> None:
    store, done = gathered(make_store, url, [(f"run{n}", n % 2 == 0) for n in range(7)])
    assert [f.result() for f in done] == [True] * 8
    assert_whole(store)
    # All outcomes of a transaction have its time.
    assert query(store, "SELECT COUNT(*) FROM outcomes GROUP BY at ORDER BY at") == [(1,), (7,)]


def test_one_that_is_refused_is_the_affair_of_its_caller(make_store: StoreMaker, url: str) -> None:
    said = [("run0", True), ("nobody", True), ("run1", False), ("run2", Outcome(1.0, ("?",)))]
    store, done = gathered(make_store, url, said)
    with pytest.raises(UnknownRunError, match="nobody"):
        done[2].result()
    with pytest.raises(InvalidInputError, match="not retrieved"):
        done[4].result()
    assert [done[i].result() for i in (0, 1, 3)] == [True] * 3
    assert query(store, "SELECT COUNT(*) FROM outcomes") == [(3,)]
    assert_whole(store)


def test_threads_that_record_correct_and_repeat_stay_exact(
    make_store: StoreMaker, url: str
) -> None:
    store = filled(make_store(url, group_commit=timedelta(milliseconds=1)), 40)

    def work(thread: int) -> list[bool]:
        said = [store.record_outcome(f"run{n}", n % 3 == 0) for n in range(thread % 4, 40, 4)]
        said += [store.record_outcome(f"run{n}", 0.5) for n in range(thread, 40, 8)]
        return [*said, store.withdraw_outcome(f"run{thread}")]

    with ThreadPoolExecutor(8) as pool:
        done = [f.result() for f in [pool.submit(work, n) for n in range(8)]]
    assert [said[-1] for said in done] == [True] * 8
    assert query(store, "SELECT COUNT(*) FROM episodes WHERE reward IS NOT NULL") == [(32,)]
    assert_whole(store)


async def test_outcomes_that_are_awaited_together(make_store: StoreMaker, url: str) -> None:
    store = filled(make_store(url, group_commit=AT_ONCE), 20)
    said = [store.arecord_outcome(f"run{n}", outcome=True) for n in range(20)]
    assert await asyncio.gather(*said) == [True] * 20
    assert_whole(store)


def test_closing_writes_what_waits(make_store: StoreMaker, file_url: str) -> None:
    said = [(f"run{n}", True) for n in range(3)]
    store, done = gathered(make_store, file_url, said, window=timedelta(days=1))
    with ThreadPoolExecutor(3) as pool:
        # These wait a day for a third.
        done += [pool.submit(store.record_outcome, f"run{n}", outcome=True) for n in (4, 5)]
        wait_for(store.governor.group, 2)
        pool.submit(store.close).result()
    assert [f.result() for f in done] == [True] * 6
    with pytest.raises(StoreClosedError):
        store.record_outcome("run0", outcome=False)
    again = make_store(file_url, policy=Policy())
    assert query(again, "SELECT COUNT(*) FROM outcomes") == [(6,)]
    assert_whole(again)


def test_a_child_process_begins_with_nobody_waiting(make_store: StoreMaker, file_url: str) -> None:
    store = filled(make_store(file_url, group_commit=AT_ONCE), 2)
    assert store.record_outcome("run0", outcome=True)
    child = os.fork()
    if not child:
        os._exit(0 if store.record_outcome("run1", outcome=True) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert query(store, "SELECT COUNT(*) FROM outcomes") == [(2,)]
    assert_whole(store)


@pytest.mark.parametrize("window", [timedelta(seconds=-1), 2, "2 ms", timedelta.max])
def test_what_is_no_window(make_store: StoreMaker, window: Any) -> None:
    with pytest.raises(InvalidInputError, match="group_commit"):
        make_store(group_commit=window)


# -- the group itself -----------------------------------------------------------------------------------------------


class Writer:
    """Writes numbers, the first time when so many others wait; some of its calls fail."""

    def __init__(self, waiting: int, *failures: BaseException, window: timedelta = AT_ONCE) -> None:
        self.group: GroupCommit[int, int] = GroupCommit(self, window)
        self.began = threading.Event()
        self.groups: list[list[int]] = []
        self._waiting = waiting
        self._failures = list(failures)

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.groups.append(list(items))
        if not self.began.is_set():
            self.began.set()
            wait_for(self.group, self._waiting)
        if self._failures and len(self.groups) > 1:
            raise self._failures.pop()
        return [-i for i in items]

    def run(self, items: Sequence[int]) -> list[Future[int]]:
        with ThreadPoolExecutor(len(items) + 1) as pool:
            first = pool.submit(self.group.do, 0)
            self.began.wait()
            return [first, *(pool.submit(self.group.do, i) for i in items)]


def test_storage_that_fails_is_not_asked_again_for_each_of_them() -> None:
    writer = Writer(3, StorageFullError("full"))
    first, *others = writer.run([1, 2, 3])
    assert first.result() == 0
    assert {type(f.exception()) for f in others} == {StorageFullError}
    assert [len(g) for g in writer.groups] == [1, 3]


def test_who_is_interrupted_leaves_the_others_to_the_next_one() -> None:
    writer = Writer(3, KeyboardInterrupt())
    first, *others = writer.run([1, 2, 3])
    assert first.result() == 0
    interrupted = [f for f in others if isinstance(f.exception(), KeyboardInterrupt)]
    assert len(interrupted) == 1
    assert {-f.result() for f in others if f not in interrupted} < {1, 2, 3}
    assert writer.group.waiting == 0


def test_who_comes_back_first_waits_for_as_many_as_there_were() -> None:
    writer = Writer(3, window=timedelta(days=1))
    writer.run([1, 2, 3])
    with ThreadPoolExecutor(3) as pool:
        early = [pool.submit(writer.group.do, i) for i in (4, 5)]
        wait_for(writer.group, 2)
        assert len(writer.groups) == 2
        assert writer.group.do(6) == -6
        assert [f.result() for f in early] == [-4, -5]
    assert [sorted(g) for g in writer.groups] == [[0], [1, 2, 3], [4, 5, 6]]


def test_who_was_alone_waits_for_nobody() -> None:
    group: GroupCommit[int, int] = GroupCommit(lambda items: items, timedelta(days=1))
    assert [group.do(i) for i in range(3)] == [0, 1, 2]


def test_a_group_is_bounded() -> None:
    writer = Writer(MOST + 20)
    done = writer.run(range(1, MOST + 21))
    assert [f.result() for f in done] == [-i for i in range(MOST + 21)]
    assert [len(g) for g in writer.groups] == [1, MOST, 20]


# -- kill -9 --------------------------------------------------------------------------------------------------------

_RECORDER = """
import sys, threading
from datetime import timedelta
from langchain_memoryworth import MemoryWorthStore
from tests.fakes import HashedWords
store = MemoryWorthStore(sys.argv[1], HashedWords(dimension=8), group_commit=timedelta(milliseconds=1))
def work(thread):
    for n in range(thread, 800, 8):
        store.record_outcome(f"run{n}", n % 3 == 0)
        sys.stdout.write(f"run{n}\\n"); sys.stdout.flush()
for thread in range(8):
    threading.Thread(target=work, args=(thread,)).start()
"""


@pytest.mark.parametrize("acknowledged", [1, 50, 300])
def test_kill_9_loses_nothing_that_was_acknowledged(shared_url: str, acknowledged: int) -> None:
    with MemoryWorthStore(shared_url, HashedWords(dimension=8)) as store:
        filled(store, 800)
    recorder = subprocess.Popen(
        [sys.executable, "-c", _RECORDER, shared_url],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parent.parent,
        text=True,
    )
    with recorder:
        assert recorder.stdout is not None
        heard = [recorder.stdout.readline() for _ in range(acknowledged)]
        os.kill(recorder.pid, signal.SIGKILL)
        heard += recorder.stdout.readlines()
    said = {line.strip() for line in heard if line.endswith("\n")}
    with MemoryWorthStore(shared_url, HashedWords(dimension=8)) as store:
        settled = "SELECT id FROM episodes WHERE reward IS NOT NULL"
        there = [id_ for (id_,) in query(store, settled)]
        assert said <= set(there)
        twice = "SELECT eid FROM outcomes GROUP BY eid HAVING COUNT(*) > 1"
        assert query(store, twice) == []
        assert_whole(store)
