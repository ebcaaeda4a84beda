"""The change detector beside the ledger: it moves on with each outcome, and a correction replays it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore, Status
from langchain_memoryworth.estimators.drift import Heard, current, fresh, pack, update
from langchain_memoryworth.ledger import regimes, standing
from langchain_memoryworth.ledger.session import Statement
from langchain_memoryworth.records import EpisodeKey
from tests.fakes import assert_exact, execute, query
from tests.notes import filled, run
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]
DRIFT = plain(decline=0.99, confidence=0.95, exploration=0.0)


def kept(store: MemoryWorthStore) -> dict[int, bytes]:
    return {seq: bytes(state) for seq, state in query(store, "SELECT seq, state FROM regimes")}


def assert_replayed(store: MemoryWorthStore) -> None:
    """What is kept is a replay as far as it has come, its anchors likewise, and what is asked for is one of everything."""
    for table in ("regimes", "regime_anchors"):
        for seq, state, number in query(store, f"SELECT seq, state, upto FROM {table}"):
            assert bytes(state) == replayed(store, number).get(seq, pack(fresh(1))[0])
    with store.governor.database.read() as session:
        seqs = [seq for (seq,) in session.rows(Statement("SELECT seq FROM evidence"))]
        stands = standing.read(session, seqs)
        asked = regimes.states(session, list(stands.values()))
    everything = replayed(store)
    for seq, state in asked.items():
        assert pack(state)[0] == everything.get(seq, pack(fresh(1))[0])


def replayed(store: MemoryWorthStore, upto: int | None = None) -> dict[int, bytes]:
    """The states by the ledger alone, in the order in which outcomes were first given."""
    rows = query(
        store,
        "SELECT x.seq, (SELECT MIN(o.number) FROM outcomes o WHERE o.eid = x.eid) AS number, "
        "p.started_at, p.reward, x.size, x.expected FROM exposures x "
        "JOIN episodes p ON p.eid = x.eid JOIN evidence e ON e.seq = x.seq "
        "WHERE x.size > 0 AND x.epoch >= e.epoch ORDER BY number",
    )
    found: dict[int, np.ndarray] = {}
    for seq, number, at, reward, size, expected in rows:
        if upto is None or number <= upto:
            state = found.get(seq, fresh(1))
            found[seq] = update(state, reward, at=at, size=size / 2**32, expected=expected)
    return {seq: pack(state)[0] for seq, state in found.items()}


def test_a_good_memory_that_goes_stale_is_hidden_soon(make_store: StoreMaker, url: str) -> None:
    """After 100 good retrievals the ratio would take 150 failures to fall below .4."""
    store = filled(make_store, 1, DRIFT, url)
    for i in range(100):
        run(store, f"good-{i}", ["m0"], i % 7 != 0)
    assert store.memory("m0").status is Status.ACTIVE
    failures = 0
    while store.memory("m0").status is Status.ACTIVE and failures < 60:
        run(store, f"bad-{failures}", ["m0"], False)
        failures += 1
    assert 5 <= failures <= 20
    assert store.worth("m0") > 0.6
    assert "declined with P >= 0.99" in store.history("m0")[-1].reason
    assert_replayed(store)
    [state] = regimes_of(store, "m0")
    found = current(state)
    assert (found.mean[0] < 0.3, found.before[0] > 0.8) == (True, True)


def regimes_of(store: MemoryWorthStore, memory_id: str) -> list[np.ndarray]:
    seq = store.governor.collection.versions([memory_id])[memory_id][0].seq
    with store.governor.database.read() as session:
        stands = standing.read(session, [seq])
        return [regimes.states(session, [stands[seq]])[seq]]


def test_without_the_rule_nothing_is_kept(make_store: StoreMaker) -> None:
    store = filled(make_store, 1, plain(), "sqlite://")
    run(store, "r", ["m0"], True)
    assert kept(store) == {}


def heard(store: MemoryWorthStore) -> dict[int, int]:
    """How many outcomes are in what is kept, by memory."""
    rows = query(
        store,
        "SELECT r.seq, COUNT(x.eid) FROM regimes r LEFT JOIN exposures x ON x.seq = r.seq "
        "AND x.size > 0 AND x.heard <= r.upto GROUP BY r.seq",
    )
    return {seq: int(count) for seq, count in rows}


def test_successes_wait_for_a_failure_but_not_for_ever(make_store: StoreMaker, url: str) -> None:
    store = filled(make_store, 2, DRIFT, url)
    for i in range(3):
        run(store, f"good-{i}", ["m0", "m1"], True)
    assert heard(store) == {}
    run(store, "bad", ["m0"], False)
    assert heard(store) == {1: 4}
    run(store, "good again", ["m0"], True)
    assert heard(store) == {1: 4}
    store.record_outcome("bad", True)
    assert heard(store) == {1: 5}
    assert_replayed(store)
    for i in range(regimes.MOST_WAITING):
        run(store, f"more-{i}", ["m1"], True)
    assert heard(store) == {1: 5, 2: regimes.MOST_WAITING}
    assert_replayed(store)


def test_a_late_outcome_and_what_is_not_heard_yet(make_store: StoreMaker, url: str) -> None:
    """The order is that of first outcomes, whenever the runs began and whatever is said of them again."""
    store = filled(make_store, 2, DRIFT, url)
    for name in ("a", "b", "c", "d"):
        store.governor.journal.expose_documents(EpisodeKey(name), [Document("", id="m0")])
    for name, outcome in (("c", False), ("a", True), ("d", False), ("b", 0.5)):
        store.record_outcome(name, outcome)
        assert_replayed(store)
    store.withdraw_outcome("a")
    store.record_outcome("a", False)
    store.governor.journal.expose_documents(EpisodeKey("c"), [Document("", id="m1")])
    assert_replayed(store)
    assert heard(store)[1] == 4


def test_what_is_corrected_while_the_rule_is_off_is_seen_when_it_is_back(
    make_store: StoreMaker, file_url: str
) -> None:
    store = filled(make_store, 1, DRIFT, file_url)
    for i in range(6):
        run(store, f"r{i}", ["m0"], False)
    store.close()
    store = make_store(file_url, policy=plain(decline=None))
    store.record_outcome("r2", True)
    run(store, "unheard", ["m0"], 0.5)
    store.close()
    store = make_store(file_url, policy=DRIFT)
    run(store, "r6", ["m0"], False)
    assert_replayed(store)
    assert heard(store) == {1: 8}


def test_an_import_is_heard_after_what_was_there(
    make_store: StoreMaker, file_url: str, tmp_path: Path
) -> None:
    store = filled(make_store, 2, DRIFT, "sqlite://")
    run(store, "elsewhere", ["m0", "m1"], False)
    store.export_file(tmp_path / "all.jsonl")
    here = filled(make_store, 2, DRIFT, file_url)
    run(here, "here", ["m0"], False)
    here.import_file(tmp_path / "all.jsonl")
    assert_replayed(here)
    run(here, "after", ["m0"], False)
    assert heard(here) == {1: 3}
    assert_replayed(here)


def test_the_rule_may_begin_later(make_store: StoreMaker, file_url: str) -> None:
    store = filled(make_store, 2, plain(suppress=False), file_url)
    for i in range(80):
        run(store, f"r{i}", ["m0", "m1"], i < 50)
    store.close()
    store = make_store(file_url, policy=DRIFT)
    run(store, "last", ["m0"], False)
    assert_replayed(store)
    assert store.memory("m0").status is Status.SUPPRESSED


def test_after_a_restore_it_starts_anew(make_store: StoreMaker, url: str) -> None:
    store = filled(make_store, 1, DRIFT, url)
    for i in range(60):
        run(store, f"r{i}", ["m0"], i < 40)
    assert store.memory("m0").status is Status.SUPPRESSED
    store.restore("m0")
    run(store, "one more", ["m0"], False)
    assert store.memory("m0").status is Status.ACTIVE
    assert_replayed(store)


@pytest.mark.parametrize("seed", range(4))
def test_corrections_give_what_a_full_replay_gives(
    make_store: StoreMaker, url: str, seed: int
) -> None:
    """Random outcomes, corrections near and far, withdrawals, late exposures and restores."""
    rng = np.random.default_rng(seed)
    store = filled(make_store, 4, plain(decline=0.99, suppress=seed % 2 == 0), url)
    done: list[str] = []
    for i in range(220):
        ids = [f"m{j}" for j in rng.choice(4, 2, replace=False)]
        what = rng.random()
        if what < 0.75 or len(done) < 5:
            run(store, f"r{i}", ids, float(rng.choice([0.0, 1.0, 0.5])))
            done.append(f"r{i}")
        elif what < 0.9:
            back = (
                int(rng.integers(1, 8)) if rng.random() < 0.7 else int(rng.integers(1, len(done)))
            )
            store.record_outcome(done[-back], float(rng.random()))
        elif what < 0.95:
            store.withdraw_outcome(done[-int(rng.integers(1, 6))])
        elif what < 0.98:
            run_id = done[-int(rng.integers(1, 6))]
            store.governor.journal.expose_documents(EpisodeKey(run_id), [Document("", id=ids[0])])
        else:
            store.restore(ids[0])
    assert_exact(store)
    assert_replayed(store)
    many = [(f"b{i}", bool(i % 3)) for i in range(90)]
    for name, _ in many:
        store.governor.journal.expose_documents(
            EpisodeKey(name), [Document("", id="m0"), Document("", id="m1")]
        )
    store.record_outcomes(many)
    store.record_outcomes([("b3", True), ("b80", 0.5), (done[0], True)])
    assert_replayed(store)


def test_a_correction_replays_no_more_than_it_reaches_back(
    make_store: StoreMaker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anchors are two in each doubling of the distance, so a replay begins at most half of it farther back."""
    store = filled(make_store, 1, plain(decline=0.99, suppress=False), url)
    many = [f"r{i}" for i in range(40 * regimes.MOST_WAITING)]
    for name in many:
        store.governor.journal.expose_documents(EpisodeKey(name), [Document("", id="m0")])
    store.record_outcomes([(name, i % 3 > 0) for i, name in enumerate(many)])
    taken: list[int] = []
    real = regimes.updates

    def counting(states: np.ndarray, outcomes: list[list[Heard]]) -> np.ndarray:
        taken.append(sum(map(len, outcomes)))
        return real(states, outcomes)

    monkeypatch.setattr(regimes, "updates", counting)
    for back in (1, 100, 700, 2_000, 2):
        taken.clear()
        store.record_outcome(many[-back], 0.25)
        assert back <= sum(taken) <= 1.5 * back + 2 * regimes.MOST_WAITING
    assert_replayed(store)
    [(anchors,)] = query(store, "SELECT COUNT(*) FROM regime_anchors")
    assert anchors <= 2 * np.log2(40) + 2


def test_a_state_of_another_release_is_replayed(make_store: StoreMaker) -> None:
    store = filled(make_store, 1, DRIFT, "sqlite://")
    for i in range(10):
        run(store, f"r{i}", ["m0"], i % 2)
    execute(store, "UPDATE regimes SET state = :state", state=b"\x07old")
    run(store, "next", ["m0"], False)
    assert_replayed(store)


def test_an_erased_memory_leaves_no_detector(make_store: StoreMaker) -> None:
    store = filled(make_store, 2, DRIFT, "sqlite://")
    run(store, "r", ["m0", "m1"], False)
    store.erase("m0")
    assert len(kept(store)) == 1
