"""The handler's queue while the database is slow: bounded, and nothing of it is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from langchain_core.callbacks import adispatch_custom_event

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore, Run
from langchain_memoryworth.adapters.recorder import USED_EVENT
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.service.outbox import Outbox
from langchain_memoryworth.tracking.runs import RECENT_ROOTS
from tests.fakes import assert_exact
from tests.runs_fixtures import Foreign, credits_of, filled, rewards, text

StoreMaker = Callable[..., MemoryWorthStore]
SIZE, RUNS = 4, 40
# Of one event: where a run stopped and what its outcome is, say.
AT_ONCE = 2


@pytest.fixture
def busy(make_store: StoreMaker, shared_url: str) -> MemoryWorthStore:
    """A store whose queue is short."""
    store = filled(make_store(shared_url))
    store.governor.outbox = Outbox(SIZE)
    return store


@contextmanager
def locked(url: str) -> Iterator[ExitStack]:
    """Another connection holds the lock of all writers until it is let go."""
    other = Database(url)
    other.prepare()
    with ExitStack() as lock:
        lock.callback(other.close)
        lock.enter_context(other.write())
        yield lock


def chain_of(store: MemoryWorthStore) -> tuple[Any, dict[str, Any]]:
    async def last(documents: Any) -> str:
        await adispatch_custom_event(USED_EVENT, {"ids": ["apple"]})
        return text(documents)

    handler = MemoryWorthCallbackHandler(store, lambda run: True)
    return Foreign(ids=("bread", "apple")) | last, {"callbacks": [handler]}


async def crowded(store: MemoryWorthStore) -> None:
    """Go on until a run waits, and then for as long as any of the others could go further."""
    while not store.governor.outbox.waited:  # noqa: ASYNC110  # there is no event for what must not happen
        await asyncio.sleep(0)
    for _ in range(500):
        await asyncio.sleep(0)


@pytest.mark.parametrize("at_once", [1, 10])
def test_more_runs_than_are_remembered_end_while_the_database_is_locked(
    busy: MemoryWorthStore, shared_url: str, at_once: int
) -> None:
    """What they retrieved is known until it is written down, and their outcome asked for."""
    busy.governor.outbox = Outbox()
    chain, config = chain_of(busy)

    async def session() -> None:
        with locked(shared_url):
            for _ in range(2 * RECENT_ROOTS // at_once):
                runs = (chain.ainvoke("?", config) for _ in range(at_once))
                assert await asyncio.gather(*runs) == ["bread apple"] * at_once

    asyncio.run(session())
    assert set(rewards(busy).values()) == {1.0}
    runs = 2 * RECENT_ROOTS // at_once * at_once
    assert credits_of(busy) == {"bread": runs, "apple": runs}
    assert_exact(busy)
    known = busy.governor.runs._entries.values()
    assert sum(bool(e.root.documents) for e in {e.root.run_id: e for e in known}.values()) <= (
        RECENT_ROOTS + at_once
    )


def test_runs_on_an_event_loop_wait_for_a_slow_database_and_the_loop_does_not(
    busy: MemoryWorthStore, shared_url: str
) -> None:
    chain, config = chain_of(busy)
    outbox = busy.governor.outbox

    async def session() -> None:
        with locked(shared_url) as lock:
            runs = [asyncio.create_task(chain.ainvoke("?", config)) for _ in range(RUNS)]
            await crowded(busy)
            assert not any(r.done() for r in runs)
            assert SIZE <= outbox._undone <= SIZE + AT_ONCE
            lock.close()
        assert await asyncio.gather(*runs) == ["bread apple"] * RUNS

    asyncio.run(session())
    assert list(rewards(busy).values()) == [1.0] * RUNS
    assert credits_of(busy) == {"bread": RUNS, "apple": RUNS}
    health = busy.health()
    assert health.ok
    assert health.waited > 0
    assert_exact(busy)


def test_a_run_that_is_cancelled_while_it_waits_takes_nothing_of_the_others_with_it(
    busy: MemoryWorthStore, shared_url: str
) -> None:
    chain, config = chain_of(busy)

    async def session() -> int:
        with locked(shared_url) as lock:
            runs = [asyncio.create_task(chain.ainvoke("?", config)) for _ in range(RUNS)]
            await crowded(busy)
            for run in runs[::2]:
                run.cancel()
            lock.close()
        ends = await asyncio.gather(*runs, return_exceptions=True)
        return sum(e == "bread apple" for e in ends)

    whole = asyncio.run(session())
    assert whole >= RUNS / 2
    assert list(rewards(busy).values()).count(1.0) == whole
    assert busy.health().ok
    assert_exact(busy)


def test_a_plain_thread_waits_for_its_own_work(busy: MemoryWorthStore, shared_url: str) -> None:
    handler = MemoryWorthCallbackHandler(busy, lambda run: True)
    chain = Foreign(ids=("apple",)) | text
    ended = []

    def work() -> None:
        for _ in range(SIZE):
            chain.invoke("?", {"callbacks": [handler]})
            ended.append(busy.governor.outbox._undone)

    threads = [threading.Thread(target=work) for _ in range(3)]
    with locked(shared_url):
        for thread in threads:
            thread.start()
        assert ended == []  # no thread can be past its first run: nothing can be written
    for thread in threads:
        thread.join()
    assert ended == [0] * 3 * SIZE
    assert busy.evidence("apple").retrievals == 3 * SIZE
    assert busy.health().waited == 0


def test_a_synchronous_run_on_an_event_loop(busy: MemoryWorthStore, shared_url: str) -> None:
    """A program that calls `invoke` in a coroutine blocks its loop itself; its runs are bounded all the same."""
    handler = MemoryWorthCallbackHandler(busy, lambda run: True)
    chain = Foreign(ids=("apple",)) | text
    depths = []

    async def session() -> None:
        for _ in range(RUNS):
            chain.invoke("?", {"callbacks": [handler]})
            depths.append(busy.governor.outbox._undone)

    asyncio.run(session())
    assert max(depths) <= SIZE + AT_ONCE
    assert busy.evidence("apple").retrievals == RUNS
    assert busy.health().ok


def test_close_waits_for_what_is_queued(make_store: StoreMaker, shared_url: str) -> None:
    store = filled(make_store(shared_url))
    chain, config = chain_of(store)

    async def session() -> int:
        with locked(shared_url):
            await asyncio.gather(*(chain.ainvoke("?", config) for _ in range(RUNS)))
            return store.governor.outbox._undone

    assert asyncio.run(session()) >= RUNS
    store.close()
    with make_store(shared_url) as again:
        assert again.evidence("apple").retrievals == RUNS
        assert_exact(again)


def test_an_outcome_function_with_a_loop_of_its_own_does_not_wait_for_itself(
    busy: MemoryWorthStore, make_store: StoreMaker, shared_url: str
) -> None:
    busy.governor.outbox = Outbox(1)
    inner, _ = chain_of(busy)

    def outcome(run: Run) -> bool:
        judge = MemoryWorthCallbackHandler(busy, lambda run: True, source="judge")
        return asyncio.run(inner.ainvoke("?", {"callbacks": [judge]})) == "bread apple"

    handler = MemoryWorthCallbackHandler(busy, outcome)
    chain = Foreign(ids=("apple",)) | text

    async def session() -> None:
        await asyncio.gather(*(chain.ainvoke("?", {"callbacks": [handler]}) for _ in range(5)))

    asyncio.run(session())
    busy.close()
    with make_store(shared_url) as again:
        assert list(rewards(again).values()) == [1.0] * 10
    assert busy.governor.losses.failures == {}
