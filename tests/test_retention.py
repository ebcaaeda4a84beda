"""Rolling up: no counter changes, what is kept can be corrected, and whoever comes too late or reads too late is told."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore, Status
from langchain_memoryworth.errors import (
    ImportFileError,
    InvalidInputError,
    RolledUpRunError,
    UnknownRunError,
)
from langchain_memoryworth.ledger import regimes, standing
from langchain_memoryworth.policy import Quarantine
from langchain_memoryworth.records import EpisodeKey
from tests.fakes import (
    Clock,
    assert_exact,
    counters,
    dump,
    execute,
    fold_of_ledger,
    query,
    rates,
    strata,
)
from tests.policies import plain
from tests.test_concurrency import peer

StoreMaker = Callable[..., MemoryWorthStore]
MONTH = timedelta(days=30)
IDS = tuple("abcdef")


def filled(store: MemoryWorthStore) -> MemoryWorthStore:
    store.add_texts([f"text {i}" for i in IDS], ids=list(IDS))
    return store


def run(store: MemoryWorthStore, name: str, ids: Any, context: str = "") -> None:
    key = EpisodeKey(name, aliases=(f"trace-{name}",), context=context)
    store.governor.journal.expose_documents(key, [Document("", id=i) for i in ids])


def history(store: MemoryWorthStore, clock: Clock, days: int, *, seed: int = 3) -> list[str]:
    """A run a day: contexts, use, several sources, corrections, withdrawals, restores; one in six has no outcome."""
    draw = random.Random(seed)
    names = [f"run {seed} {n}" for n in range(days)]
    for n, name in enumerate(names):
        clock.forward(days=1)
        shown = draw.sample(IDS, draw.randint(1, 4))
        run(store, name, shown, draw.choice(["", "hard", "easy"]))
        if n % 6 == 5:
            continue
        used = draw.sample(shown, 1) if n % 4 == 0 else None
        store.record_outcome(name, draw.choice([True, False, 1 / 3]), used=used)
        if n % 3 == 0:
            store.record_outcome(name, draw.random(), source="evaluator", metric="")
        if n % 5 == 0:
            store.record_outcome(name, draw.random(), source="user")
        if n % 7 == 0:
            store.withdraw_outcome(name)
        if n % 11 == 0:
            store.restore(draw.choice(IDS))
    return names


def sums(store: MemoryWorthStore) -> tuple[Any, ...]:
    evidence = query(store, "SELECT * FROM evidence ORDER BY seq")
    return evidence, rates(store), strata(store)


def whole(store: MemoryWorthStore) -> None:
    assert_exact(store)
    assert {s: t for s, (t, _) in counters(store).items()} == fold_of_ledger(store)
    assert store.governor.steward.check() == []


def test_no_counter_changes_and_the_window_can_still_be_corrected(
    make_store: StoreMaker, url: str, clock: Clock
) -> None:
    store = filled(make_store(url, policy=plain(v_min=3, exploration=0.0)))
    names = history(store, clock, 90)
    before = sums(store)
    worths = {i: store.worth(i) for i in IDS}
    done = store.compact(MONTH)
    assert done.episodes == 59  # the day that is on the edge is kept
    assert sums(store) == before
    whole(store)
    assert {i: store.worth(i) for i in IDS} == worths
    # Corrected, withdrawn and new: the window works as ever, and every restore can be taken back.
    for n, name in enumerate(names[-28:]):
        store.record_outcome(name, n % 3 == 0)
        if n % 4 == 0:
            store.withdraw_outcome(name)
    whole(store)
    for action in store.actions(limit=1000):
        if action.memory_id in ("a", "b") and action.before is not None and action.kind != "undo":
            store.undo(action.number)
            whole(store)
    assert store.compact(MONTH).episodes == 0
    history(store, clock, 40, seed=4)
    assert store.compact(timedelta(0)).episodes > 60
    whole(store)
    # Those that may still get an outcome, and the newest, whose number would be given again.
    assert store.health().episodes == store.health().pending + 1


def test_what_is_rolled_up_is_gone_and_says_so(
    make_store: StoreMaker, url: str, clock: Clock
) -> None:
    store = filled(make_store(url))
    names = history(store, clock, 60)
    store.compact(clock_time(clock) - MONTH)
    worths = {i: store.worth(i) for i in IDS}
    for late in (names[0], f"trace-{names[0]}"):
        with pytest.raises(RolledUpRunError, match="was rolled up by `compact`") as caught:
            store.record_outcome(late, True)
        assert caught.value.run_id == late
        with pytest.raises(RolledUpRunError):
            store.record_outcomes([(names[-1], True), (late, True)])
        with pytest.raises(RolledUpRunError):
            store.run(late)
        with pytest.raises(RolledUpRunError):
            store.withdraw_outcome(late)
    with pytest.raises(UnknownRunError) as unknown:
        store.record_outcome("never heard of", True)
    assert not isinstance(unknown.value, RolledUpRunError)
    assert {i: store.worth(i) for i in IDS} == worths
    for table in ("exposures", "outcomes", "aliases"):
        assert query(store, f"SELECT COUNT(*) FROM {table} WHERE eid <= 20") == [(0,)]
    everything = repr([t for n, t in dump(store).items() if n != "actions"])
    assert repr(names[0]) not in everything
    # The last point of a memory's history is what it is worth.
    for i in IDS:
        points = store.worth_history(i)
        assert points[-1].evidence == store.evidence(i)


def clock_time(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock(), UTC)


def test_runs_that_may_still_get_an_outcome_are_kept(
    make_store: StoreMaker, url: str, clock: Clock
) -> None:
    store = filled(make_store(url, policy=plain(pending_age=timedelta(days=50))))
    for name in ("settled", "pending", "corrected", "shown again"):
        run(store, name, "ab")
        if name != "pending":
            store.record_outcome(name, True)
    clock.forward(days=20)
    store.record_outcome("corrected", False)
    run(store, "shown again", "c")
    store.withdraw_outcome("shown again")
    run(store, "newest", "a")
    clock.forward(days=15)
    assert store.compact(MONTH).episodes == 1
    kept = {id_ for (id_,) in query(store, "SELECT id FROM episodes")}
    assert kept == {"pending", "corrected", "shown again", "newest"}
    assert store.record_outcome("pending", False)
    whole(store)
    clock.forward(days=40)
    assert store.compact(MONTH).episodes == 2  # neither the newest, nor that of the newest outcome
    assert store.health().pending == 0
    whole(store)


def test_what_a_trial_drew_is_kept(make_store: StoreMaker, url: str, clock: Clock) -> None:
    store = filled(make_store(url))
    store.hold_out("a", rate=0.5)
    for n in range(30):
        clock.forward(days=1)
        with store.episode(f"run {n}"):
            store.similarity_search("text a", k=2)
        store.record_outcome(f"run {n}", n % 2 == 0)
    run(store, "without a draw", "bc")
    store.record_outcome("without a draw", True)
    run(store, "newest", "b")
    store.record_outcome("newest", True)
    before = store.lift("a")
    clock.forward(days=100)
    assert store.compact(MONTH).episodes == 1
    assert store.lift("a") == before
    whole(store)


def test_quarantine_still_knows_who_has_spoken(
    make_store: StoreMaker, url: str, clock: Clock
) -> None:
    rule = Quarantine(key="origin", trusted=("us",), sources=2)
    store = make_store(url, policy=plain(v_min=2, quarantine=rule, exploration=0.0))
    store.add_texts(["text", "another"], [{"origin": "them"}, {}], ids=["q", "a"])
    for n in range(4):
        run(store, f"run {n}", "q")
        store.record_outcome(f"run {n}", True, source="ada")
    assert store.memory("q").status is Status.QUARANTINED
    clock.forward(days=100)
    run(store, "another", "a")
    store.record_outcome("another", True)
    run(store, "newest", "q")
    assert store.compact(MONTH).episodes == 4
    store.record_outcome("newest", True, source="bob")
    assert store.memory("q").status is Status.ACTIVE
    whole(store)


def test_an_erased_memory_leaves_no_name_behind(
    make_store: StoreMaker, url: str, clock: Clock
) -> None:
    store = filled(make_store(url))
    store.add_texts(["secret"], ids=["s"], namespace="person")
    key = EpisodeKey("hers", context="illness")
    seqs = query(store, "SELECT seq FROM memories WHERE id = 's'")
    assert len(seqs) == 1
    with store.episode("hers", context="illness"):
        store.similarity_search("secret", k=1, namespace="person")
    store.record_outcome(key.id, True)
    history(store, clock, 60)
    store.compact(MONTH)
    store.erase("s", namespace="person")
    store.erase(["a"])
    whole(store)
    tables = repr({n: t for n, t in dump(store).items() if n in ("rates", "openings", "strata")})
    assert "person" not in tables
    assert "illness" not in tables
    assert "hard" in tables  # which others were in, too


@pytest.mark.parametrize("before", [90, "2025-01-01", datetime(2020, 1, 1), timedelta(days=-1)])  # noqa: DTZ001
def test_what_is_no_age_is_refused(store: MemoryWorthStore, before: Any) -> None:
    with pytest.raises(InvalidInputError, match="before="):
        store.compact(before)


def test_it_goes_on_where_it_was_cut_off(
    make_store: StoreMaker, url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_memoryworth.ledger.retention.BATCH", 7)
    store = filled(make_store(url))
    history(store, clock, 60)
    before = sums(store)
    seen: list[tuple[str, int, int]] = []

    def cut_off(*far: Any) -> None:
        seen.append(far)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.compact(MONTH, progress=cut_off)
    assert sums(store) == before
    whole(store)
    assert store.compact(MONTH).episodes == 29 - 2 * 7
    assert sums(store) == before
    whole(store)
    assert [step for step, *_ in seen] == ["rolling up"] * 2
    assert all(0 < done <= total for _, done, total in seen)


# -- changes --------------------------------------------------------------------------------------------------------


def test_a_process_that_was_away_for_too_long_loads_all_anew(
    make_store: StoreMaker, shared_url: str, clock: Clock
) -> None:
    """What it has not seen is not kept: neither a verdict, nor a new text, nor a policy, nor that a memory was erased."""
    here = filled(make_store(shared_url, policy=plain(v_min=2, exploration=0.0)))
    search = "sorted(d.id for d in store.similarity_search('text', k=9))"
    with peer(shared_url) as there, peer(shared_url) as idle:
        assert there(search) == idle(search) == list(IDS)
        for n in range(2):
            run(here, f"bad {n}", "a")
            here.record_outcome(f"bad {n}", False)
        here.add_texts(["text g"], ids=["g"])
        here.erase("b")
        run(here, "newest", "c")
        assert there(search) == ["c", "d", "e", "f", "g"]  # this one has followed
        with make_store(shared_url, policy=plain(theta_low=0.1, v_min=2)):
            pass
        clock.forward(days=100)
        for n in range(3):
            run(here, f"later {n}", "d")
            here.record_outcome(f"later {n}", True)
        clock.forward(days=10)
        here.compact(timedelta(days=5))
        kinds = {kind for (kind,) in query(here, "SELECT kind FROM changes")}
        assert kinds == {"episode", "pruned"}  # that of the newest run, which is kept
        assert idle(search) == there(search) == ["c", "d", "e", "f", "g"]
        assert idle("store.policy.theta_low") == there("store.policy.theta_low") == 0.1
        here.pin("c")
        here.add_texts(["text h"], ids=["h"])
        assert idle(search) == there(search) == ["c", "d", "e", "f", "g", "h"]
    whole(here)


def test_one_that_has_followed_does_not_load_anew(
    make_store: StoreMaker, shared_url: str, clock: Clock
) -> None:
    policy = plain(suppress=False)
    here, there = filled(make_store(shared_url, policy=policy)), make_store(shared_url)
    history(here, clock, 60)
    assert len(there.similarity_search("text", k=9)) == 6
    [space] = there.governor.replica._spaces.values()
    here.compact(MONTH)
    history(here, clock, 3, seed=5)
    assert len(there.similarity_search("text", k=9)) == 6
    assert list(there.governor.replica._spaces.values()) == [space]
    assert query(here, "SELECT COUNT(*) FROM changes WHERE kind = 'pruned'") == [(1,)]


def test_no_more_changes_are_kept_than_anybody_would_follow(
    make_store: StoreMaker, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_memoryworth.ledger.retention.KEPT_CHANGES", 5)
    store = filled(make_store(url))
    for n in range(20):
        store.add_texts([f"text {n}"], ids=["a"])
    for _ in range(2):
        store.compact(MONTH)
        assert query(store, "SELECT COUNT(*) FROM changes") == [(6,)]
    assert [d.page_content for d in store.similarity_search("text 19", k=1)] == ["text 19"]


# -- export and import ----------------------------------------------------------------------------------------------


def test_an_export_holds_the_balances(
    make_store: StoreMaker, url: str, clock: Clock, tmp_path: Path
) -> None:
    store = filled(make_store(url))
    names = history(store, clock, 60)
    early, file = tmp_path / "early.jsonl", tmp_path / "export.jsonl"
    store.export_file(early)
    store.compact(MONTH)
    store.export_file(file)
    with make_store("sqlite://") as copy:
        copy.import_file(file)
        assert sums(copy)[1:] == sums(store)[1:]
        assert counters(copy) == counters(store)
        whole(copy)
        with pytest.raises(RolledUpRunError):
            copy.record_outcome(names[0], True)
        # The same again, and what was exported before it was rolled up: known already.
        for known in (file, early):
            again = copy.import_file(known)
            assert (again.memories, again.episodes) == (0, 0)
            assert counters(copy) == counters(store)
        whole(copy)
    # Into a store that has the same memories and other runs: the balances come on top.
    with make_store("sqlite://") as other:
        filled(other)
        run(other, "its own", "ab")
        other.record_outcome("its own", True)
        other.import_file(file)
        whole(other)
        assert other.evidence("a").retrievals == store.evidence("a").retrievals + 1
    # Into one that has the runs themselves: they would count twice.
    with make_store("sqlite://") as third:
        third.import_file(early)
        before = dump(third)
        with pytest.raises(ImportFileError, match="would be counted twice"):
            third.import_file(file)
        assert dump(third) == before


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"kind":"opening","memory":1', '"kind":"opening","memory":99', "not in the file"),
        ('"kind":"closed"', '"kind":"nothing"', "kind"),
        ('"epoch":0,"evidence":{"positive":', '"epoch":0,"evidence":{"positive":1', "add up"),
    ],
)
def test_a_file_whose_balances_are_wrong_is_refused(
    make_store: StoreMaker, clock: Clock, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    store, file = filled(make_store()), tmp_path / "export.jsonl"
    history(store, clock, 60)
    store.compact(MONTH)
    store.export_file(file)
    lines = file.read_text().splitlines()
    n = next(n for n, line in enumerate(lines) if old in line)
    lines[n] = lines[n].replace(old, new, 1)
    file.write_text("\n".join(lines) + "\n")
    with make_store("sqlite://") as copy, pytest.raises(ImportFileError, match=problem):
        copy.import_file(file)


def test_the_change_detector_begins_where_the_runs_that_are_gone_left_it(
    make_store: StoreMaker, url: str, clock: Clock
) -> None:
    store = filled(make_store(url, policy=plain(decline=0.95, exploration=0.0)))
    history(store, clock, 60)
    seqs = [seq for (seq,) in query(store, "SELECT seq FROM evidence ORDER BY seq")]

    def replayed() -> dict[int, bytes]:
        execute(store, "DELETE FROM regimes")
        with store.governor.database.read() as session:
            stands = standing.read(session, seqs)
            return {
                s: v.tobytes() for s, v in regimes.states(session, list(stands.values())).items()
            }

    before = replayed()
    assert store.compact(MONTH).episodes > 20
    assert replayed() == before
    history(store, clock, 10, seed=9)
    after = replayed()
    assert after != before
    store.compact(timedelta(days=5))
    assert replayed() == after


def test_what_the_change_detectors_had_not_heard_of_runs_that_are_gone_is_not_lost(
    make_store: StoreMaker, url: str, clock: Clock
) -> None:
    """One state lags behind what is rolled up, one has an anchor that does; both go on as if nothing were gone."""
    store, whole = (
        filled(make_store(where, policy=plain(decline=0.95, exploration=0.0)))
        for where in (url, "sqlite://")
    )

    def say(name: str, ids: str, outcome: float) -> None:
        clock.forward(days=1)
        for one in (store, whole):
            run(one, name, ids)
            one.record_outcome(name, outcome)

    def states(one: MemoryWorthStore) -> dict[int, bytes]:
        with one.governor.database.read() as session:
            stands = standing.read(session, [1, 2])
            found = regimes.states(session, list(stands.values()))
        return {seq: state.tobytes() for seq, state in found.items()}

    for n in range(10):
        say(f"old {n}", "ab", n == 5)
    for n in range(10):
        say(f"good {n}", "a", True)
    say("heard", "b", False)
    say("last", "c", True)
    assert store.compact(timedelta(0)).episodes == 21
    for n in range(3):
        say(f"new {n}", "ab", False)
        assert states(store) == states(whole)
    for one in (store, whole):
        one.record_outcome("new 0", True)
        one.record_outcome("new 2", 0.5)
    assert states(store) == states(whole)


@pytest.mark.parametrize("batch", [4, 500])
def test_runs_that_are_kept_are_heard_where_they_belong(
    make_store: StoreMaker,
    url: str,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
) -> None:
    """Those corrected of late, and those in trials, stay between others that are gone, in whatever order these go."""
    monkeypatch.setattr("langchain_memoryworth.ledger.retention.BATCH", batch)
    policy = plain(decline=0.95, exploration=0.0, suppress=False)
    store, whole = (filled(make_store(where, policy=policy)) for where in (url, "sqlite://"))
    names = [f"run {n}" for n in range(60)]
    order = random.Random(5).sample(names, len(names))

    def same() -> None:
        found = []
        for one in (store, whole):
            with one.governor.database.read() as session:
                stands = standing.read(session, [1, 2])
                states = regimes.states(session, list(stands.values()))
                found.append({seq: state.tobytes() for seq, state in states.items()})
        assert found[0] == found[1]

    for one in (store, whole):
        for name in names:
            run(one, name, "ab")
        for n, name in enumerate(order):
            one.record_outcome(name, n % 5 > 0)
    clock.forward(days=100)
    for one in (store, whole):
        for name in names[10:40:2]:
            one.record_outcome(name, 0.25)
        run(one, "newest", "ab")
        one.record_outcome("newest", True)
    assert store.compact(MONTH).episodes == 45
    same()
    for one in (store, whole):
        one.record_outcome("newest", False)  # what had heard it begins anew
    same()
    clock.forward(days=100)
    assert store.compact(MONTH).episodes == 15  # a part of them before what is gone already
    for one in (store, whole):
        one.record_outcome("newest", 0.5)
    same()


def test_what_is_said_after_a_quiet_time_is_heard(
    make_store: StoreMaker, url: str, clock: Clock
) -> None:
    """All that was said is rolled up while a run waits; the next outcome must not get the number of one that is gone."""
    store = filled(make_store(url, policy=plain(decline=0.99, confidence=0.95, exploration=0.0)))
    for n in range(40):
        run(store, f"good {n}", "a")
        store.record_outcome(f"good {n}", n % 7 > 0)
    clock.forward(days=100)
    run(store, "newest", "a")
    store.compact(MONTH)
    for n in range(15):
        run(store, f"bad {n}", "a")
        store.record_outcome(f"bad {n}", False)
    assert store.memory("a").status is Status.SUPPRESSED
    whole(store)
