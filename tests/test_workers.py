"""Several processes on one database: who sees what and when, forks, clocks that disagree, and a great many outcomes.

`MEMORYWORTH_OUTCOMES` says how many outcomes each of four processes records, `make soak` sets it to 20,000.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.records import EpisodeKey
from tests.fakes import Clock, query
from tests.policies import plain
from tests.tally import tally
from tests.test_concurrency import ledger_is_whole, peer

StoreMaker = Callable[..., MemoryWorthStore]
ROOT = Path(__file__).resolve().parents[1]
OUTCOMES = int(os.environ.get("MEMORYWORTH_OUTCOMES", "120"))
SEARCH = "[(d.id, d.page_content) for d in store.similarity_search('apple', k=9)]"


def test_four_workers_see_everything_at_their_next_call(
    make_store: StoreMaker, shared_url: str
) -> None:
    """New, changed, held back, restored, retired, deprecated, erased: what one did, all others know in their next search."""
    here = make_store(shared_url, policy=plain(v_min=2, exploration=0.0))
    here.add_texts(["apple", "pear"], ids=["a", "p"])
    with ExitStack() as stack:
        workers = [stack.enter_context(peer(shared_url)) for _ in range(4)]

        def served() -> set[tuple[str, str]]:
            answers = [worker(SEARCH) for worker in workers]
            for answer in answers:
                assert sorted(answer) == sorted(answers[0])
            return set(answers[0])

        assert served() == {("a", "apple"), ("p", "pear")}
        for n, worker in enumerate(workers):
            worker(f"store.add_texts(['plum {n}'], ids=['u{n}'])")
        assert {id_ for id_, _ in served()} == {"a", "p", "u0", "u1", "u2", "u3"}
        workers[1]("store.add_texts(['apple pie'], ids=['a'])")
        assert ("a", "apple pie") in served()
        for n in range(2):
            here.governor.journal.expose_documents(EpisodeKey(f"run{n}"), [Document("", id="a")])
            workers[2 + n](f"store.record_outcome('run{n}', False)")
        assert "a" not in {id_ for id_, _ in served()}
        workers[0]("store.restore('a')")
        assert ("a", "apple pie") in served()
        workers[3]("store.delete(['u3'])")
        workers[2]("store.governor._governance.deprecate((), ['u2'], 'me', '', 0.0)")
        erase = "__import__('langchain_memoryworth.ledger.erasure').ledger.erasure.Erasure"
        workers[1](f"{erase}(store.governor.database).ids((), ['u1'], 'me', '', 0.0)")
        assert {id_ for id_, _ in served()} == {"a", "p", "u0"}
        workers[0]("store.pin('p')")
        assert [w("store.memory('p').status.value") for w in workers] == ["pinned"] * 4
        with make_store(shared_url, policy=plain(theta_low=0.1)):
            pass
        # A policy is taken up with the changes, so by the next search, too.
        assert [w("[store.health().ok, store.policy.theta_low][1]") for w in workers] == [0.1] * 4
    ledger_is_whole(here)


def run(code: str, *arguments: object, count: int = 1) -> list[str]:
    """What some processes print that run the same code at once; each is told its number after the arguments."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments), str(n)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "2"},
        )
        for n in range(count)
    ]
    for p in processes:
        assert p.stdout is not None
        assert p.stdout.readline() == "ready\n"
    for p in processes:
        assert p.stdin is not None
        p.stdin.write("go\n")
        p.stdin.flush()
    ends = [p.communicate(timeout=150 + OUTCOMES) for p in processes]
    for p, (_, errors) in zip(processes, ends, strict=True):
        assert (p.returncode, errors) == (0, "")
    return [out for out, _ in ends]


FORK = """
import os, sys
from langchain_memoryworth import MemoryWorthStore
from tests.fakes import HashedWords
words = HashedWords()
store = MemoryWorthStore(sys.argv[1], words, index=sys.argv[2])
store.add_texts([f"text {i}" for i in range(300)], ids=[str(i) for i in range(300)])
with store.episode("before"):
    store.similarity_search("text 1", k=3)

def work(who):
    for n in range(20):
        with store.episode(f"{who}{n}"):
            assert len(store.similarity_search(f"text {n}", k=3)) == 3
        assert store.record_outcome(f"{who}{n}", n % 2 == 0)
        store.add_texts([f"{who} text {n}"], ids=[f"{who}{n}"])

print("ready", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    work("child")
    store.close()
    os._exit(0)
work("parent")
_, status = os.waitpid(child, 0)
assert status == 0, status
assert len(store.similarity_search("child text 7", k=1)) == 1
assert store.memory("child7").text == "child text 7"
store.close()
"""


@pytest.mark.parametrize("index", ["flat", "hnsw"])
def test_a_fork_shares_nothing(make_store: StoreMaker, shared_url: str, index: str) -> None:
    run(FORK, shared_url, index)
    store = make_store(shared_url)
    ids = {id_ for (id_,) in query(store, "SELECT id FROM episodes")}
    assert ids == {"before"} | {f"{who}{n}" for who in ("child", "parent") for n in range(20)}
    memories = store.health().memories
    ledger_is_whole(store)
    tally(
        shared_url,
        faults=1,
        acknowledged=41 + 340,
        lost=41 - len(ids) + max(0, 340 - memories),
        twice=max(0, memories - 340),
    )


def test_a_fork_of_a_store_in_memory_is_a_copy() -> None:
    code = FORK.replace(
        "store = MemoryWorthStore(sys.argv[1]", "store = MemoryWorthStore('sqlite://'"
    )
    code = code.replace('similarity_search("child text 7", k=1)) == 1', "memories()) == 320")
    code = code.replace('assert store.memory("child7").text == "child text 7"\n', "")
    run(code, "", "flat")


def test_a_clock_that_goes_backwards(make_store: StoreMaker, url: str) -> None:
    """The order of the ledger decides, not the time: two hosts never have the same."""
    ahead = Clock()
    store = make_store(url, clock=ahead, policy=plain(v_min=1, exploration=0.0))
    store.add_texts(["a", "b"], ids=["a", "b"])
    with store.episode("run"):
        store.similarity_search("a", k=1)
    store.record_outcome("run", False)
    assert [m.id for m in store.suppressed()] == ["a"]
    ahead.forward(days=-400)
    assert store.record_outcome("run", True)
    assert store.worth("a") == 1.0
    assert store.suppressed() == []
    store.add_texts(["a", "c"], ids=["b", "c"])
    with store.episode("later"):
        store.similarity_search("c", k=3)
    store.record_outcome("later", True)
    store.delete(["c"])
    store.add_texts(["c"], ids=["c"])
    assert store.memory("c").evidence.retrievals == 1
    ahead.forward(days=800)
    assert store.withdraw_outcome("run")
    ledger_is_whole(store)
    retrievals = store.evidence("a").retrievals
    # Two runs, of which one was settled, corrected and withdrawn; and the text that came back has that of the other.
    lost, twice = max(0, 1 - retrievals), max(0, retrievals - 1)
    tally(url, faults=1, acknowledged=4, lost=lost, twice=twice)


MANY = """
import sys
from langchain_memoryworth import MemoryWorthStore
from tests.fakes import HashedWords
url, count, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = MemoryWorthStore(url, HashedWords())
print("ready", flush=True)
sys.stdin.readline()
for n in range(count):
    # Every other episode is one that all four processes speak about, each as a source of its own.
    run, source = (f"all-{n}", f"worker{number}") if n % 2 else (f"{number}-{n}", "user")
    store.record_outcome(run, n % 3 == 0, source=source)
    if n % 4 == 0:
        assert not store.record_outcome(run, n % 3 == 0, source=source)  # a duplicate
    if n % 5 == 0:
        store.record_outcome(run, 0.25, source=source)  # a correction
    if n % 7 == 0:
        store.withdraw_outcome(run, source=source)
    if n % 14 == 0:
        store.record_outcome(run, 0.75, source=source)
store.close()
"""


def final(n: int) -> float | None:
    """What `MANY` says last."""
    if n % 14 == 0:
        return 0.75
    if n % 7 == 0:
        return None
    return 0.25 if n % 5 == 0 else float(n % 3 == 0)


@pytest.mark.timeout(200 + OUTCOMES)
def test_four_processes_with_duplicates_and_corrections(
    make_store: StoreMaker, shared_url: str
) -> None:
    store = make_store(shared_url)
    store.add_texts([f"text {i}" for i in range(20)], ids=[str(i) for i in range(20)])
    runs = [
        (f"all-{n}" if n % 2 else f"{number}-{n}", n)
        for number in range(4)
        for n in range(OUTCOMES)
    ]
    for n, (name, _) in enumerate(runs):
        shown = {str((n * step + step) % 20) for step in (1, 3, 7)}
        documents: list[Any] = [Document("", id=i) for i in sorted(shown)]
        store.governor.journal.expose_documents(EpisodeKey(name), documents)
    run(MANY, shared_url, OUTCOMES, count=4)
    ledger_is_whole(store)
    said = query(
        store,
        "SELECT e.id, o.source, o.reward FROM outcomes o JOIN episodes e ON e.eid = o.eid "
        "ORDER BY o.number",
    )
    last = {(id_, source): reward for id_, source, reward in said}
    expected = {}
    for number in range(4):
        for n in range(OUTCOMES):
            where = (f"all-{n}", f"worker{number}") if n % 2 else (f"{number}-{n}", "user")
            expected[where] = final(n)
    lost = sum(last.get(where, "none") != said for where, said in expected.items())
    twice = len(last.keys() - expected.keys())
    tally(shared_url, faults=4, acknowledged=len(expected), lost=lost, twice=twice)
