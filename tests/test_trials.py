"""Randomised hold-out: who is drawn about, what the run gets instead, and what the ledger keeps of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.store.memory import InMemoryStore

from langchain_memoryworth import GovernedStore, MemoryWorthStore, govern
from langchain_memoryworth.errors import (
    InvalidInputError,
    InvalidTransitionError,
    MemoryNotFoundError,
    NotIdentifiableError,
)
from langchain_memoryworth.estimators.draws import holds_out, uniform
from langchain_memoryworth.records import Arm
from langchain_memoryworth.reports.report import gather
from langchain_memoryworth.reports.sections import causes
from tests.fakes import HashedWords, assert_exact
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]
TEXTS = [f"tea note {i}" for i in range(6)]
IDS = [f"m{i}" for i in range(6)]


def filled(make_store: StoreMaker, **policy: object) -> MemoryWorthStore:
    store = make_store(policy=plain(exploration=0.0, **policy))
    store.add_texts(TEXTS, ids=IDS)
    return store


def searched(store: MemoryWorthStore, episode_id: str, k: int = 3) -> list[str]:
    with store.episode(episode_id):
        return [d.id for d in store.as_retriever(search_kwargs={"k": k}).invoke("tea")]


def arms(store: MemoryWorthStore, episode_id: str) -> dict[str, tuple[Arm, float, bool]]:
    record = store.governor.journal.episode(episode_id)
    return {x.memory_id: (x.arm, x.propensity, x.shown) for x in record.exposures}


def test_a_uniform_draw_is_uniform() -> None:
    """Kolmogorov-Smirnov over 4,000 draws, at 1.95/sqrt(n): passed by 99.9% of fair ones, and the seed is fixed."""
    n = 4000
    drawn = sorted(uniform(0, f"run-{i}", i % 7) for i in range(n))
    distance = max(max((i + 1) / n - u, u - i / n) for i, u in enumerate(drawn))
    assert distance < 1.95 / math.sqrt(n)


def test_the_next_memory_takes_the_place_of_one_held_out(make_store: StoreMaker) -> None:
    store = filled(make_store)
    order = searched(store, "before", k=6)
    store.hold_out(order[0], rate=0.5, reason="does it matter?")
    seen = set()
    for i in range(40):
        found = searched(store, f"run-{i}")
        drawn = arms(store, f"run-{i}")
        out = [m for m, (arm, _, _) in drawn.items() if arm is Arm.HELD_OUT]
        seen.add(tuple(out))
        assert found == (order[1:4] if out else order[:3])
        for m in found:
            assert drawn[m] == (Arm.SERVED, 0.5 if m == order[0] else 1.0, True)
        for m in out:
            assert drawn[m] == (Arm.HELD_OUT, 0.5, False)
    assert seen == {(), (order[0],)}


def test_a_memory_has_one_arm_in_one_episode(make_store: StoreMaker) -> None:
    store = filled(make_store, hold_out=0.5)
    for i in range(20):
        assert searched(store, f"run-{i}", k=2) == searched(store, f"run-{i}", k=2)
        drawn = arms(store, f"run-{i}")
        searched(store, f"run-{i}", k=4)
        later = arms(store, f"run-{i}")
        assert {m: later[m] for m in drawn} == drawn


def test_everything_may_be_held_out_but_what_is_pinned(make_store: StoreMaker) -> None:
    store = filled(make_store, hold_out=0.6)
    store.pin("m2", reason="a safety rule")
    held: dict[str, int] = dict.fromkeys(IDS, 0)
    for i in range(100):
        searched(store, f"run-{i}", k=6)
        for m, (arm, propensity, _) in arms(store, f"run-{i}").items():
            held[m] += arm is Arm.HELD_OUT
            assert propensity == (1.0 if m == "m2" else 0.6 if arm is Arm.HELD_OUT else 0.4)
    assert held.pop("m2") == 0
    # 100 draws at 0.6: sd 4.9; four of them on either side of 60.
    assert all(40 <= n <= 80 for n in held.values())
    store.unpin("m2")
    assert any(
        arms(store, f"later-{i}")["m2"][0] is Arm.HELD_OUT
        for i in range(20)
        if searched(store, f"later-{i}", k=6) is not None
    )


def test_what_is_held_out_earns_nothing(make_store: StoreMaker) -> None:
    store = filled(make_store)
    store.hold_out(IDS, rate=0.5)
    shown: dict[str, int] = dict.fromkeys(IDS, 0)
    for i in range(30):
        with store.episode(f"run-{i}") as episode:
            for d in store.similarity_search("tea", k=2):
                shown[d.id] += 1
        episode.record(True)
    assert {m: store.evidence(m).retrievals for m in IDS} == shown
    assert_exact(store)


def test_searching_without_a_run_draws_nothing(make_store: StoreMaker) -> None:
    store = filled(make_store)
    before = [d.id for d in store.similarity_search("tea", k=3)]
    store.hold_out(IDS, rate=0.99)
    assert [d.id for d in store.similarity_search("tea", k=3)] == before
    assert [h.id for h in store.explain_search("tea", k=3).served] == before


def test_diversity_chooses_anew_without_what_is_held_out(make_store: StoreMaker) -> None:
    store = filled(make_store)
    store.hold_out(IDS[:5], rate=0.9)
    for i in range(20):
        with store.episode(f"run-{i}"):
            found = store.max_marginal_relevance_search("tea", k=3, fetch_k=4)
        drawn = arms(store, f"run-{i}")
        assert {d.id for d in found} == {m for m, (_, _, shown) in drawn.items() if shown}
        for m, (arm, _, _) in drawn.items():
            seq = store.governor.collection.versions([m])[m][0].seq
            assert (arm is Arm.HELD_OUT) == (m != "m5" and holds_out(0, f"run-{i}", seq, 0.9))


def test_another_process_follows_a_trial(make_store: StoreMaker, shared_url: str) -> None:
    one, two = make_store(shared_url), make_store(shared_url)
    one.add_texts(TEXTS, ids=IDS)
    searched(two, "before")
    one.hold_out("m1", rate=0.3, actor="ada", reason="trial 7")
    assert two.trials() == {"m1": 0.3}
    out = [i for i in range(60) if "m1" not in searched(two, f"run-{i}", k=6)]
    seq = two.governor.collection.versions(["m1"])["m1"][0].seq
    assert out == [i for i in range(60) if holds_out(0, f"run-{i}", seq, 0.3)] != []
    two.end_hold_out("m1", reason="enough")
    assert one.trials() == {}
    assert all("m1" in searched(one, f"end-{i}", k=6) for i in range(20))
    kinds = [(a.kind, a.actor, a.reason) for a in one.history("m1")]
    assert kinds == [("trial", "ada", "rate 0.3: trial 7"), ("trial", "user", "ended: enough")]


def test_the_lift_of_a_trial_is_that_of_the_ledger(store: MemoryWorthStore) -> None:
    store.add_texts(TEXTS, ids=IDS)
    store.hold_out("m1", rate=0.25)
    arms_: tuple[list[float], list[float]] = ([], [])
    for i in range(60):
        with store.episode(f"run-{i}") as episode:
            store.similarity_search("tea", k=6)
        reward = (i % 5) / 4
        if i % 3:
            episode.record(reward)
            arms_[arms(store, f"run-{i}")["m1"][0] is Arm.HELD_OUT].append(reward)
    shown, held_out = (np.array(a) for a in arms_)
    [found] = store.lift("m1")
    assert (found.shown, found.held_out) == (len(shown), len(held_out))
    assert found.value == pytest.approx(shown.mean() - held_out.mean())
    assert found.effective_size == pytest.approx(4 / (1 / len(shown) + 1 / len(held_out)))
    assert found.low < found.value < found.high
    assert found.worth == store.worth("m1")
    assert store.lift() == (found,)
    store.record_outcome("run-1", 1.0)
    assert store.lift("m1") != (found,)


def test_a_memory_that_was_never_drawn_about_has_no_lift(make_store: StoreMaker) -> None:
    store = filled(make_store)
    searched(store, "run")
    store.record_outcome("run", True)
    assert store.lift() == ()
    [found] = store.lift("m1")
    assert (found.value, found.deviation, found.low, found.high) == (None, None, -1.0, 1.0)
    assert "not identifiable" in str(found)
    with pytest.raises(MemoryNotFoundError):
        store.lift("nobody")


# -- calibrated worth -------------------------------------------------------------------------------------------


def tried(make_store: StoreMaker, share: float, episodes: int = 150) -> MemoryWorthStore:
    """Hard and easy tasks in turn, 16 memories for 6 places, everything held out with a probability."""
    store = make_store(policy=plain(exploration=0.0, hold_out=share, suppress=False))
    store.add_texts([f"tea note {i}" for i in range(16)], ids=[f"m{i}" for i in range(16)])
    rng = np.random.default_rng(8)
    for i in range(episodes):
        asked = " ".join(f"note {j}" for j in rng.choice(16, 6, replace=False))
        with store.episode(f"run-{i}", context=("easy", "hard", "")[i % 3]) as episode:
            store.similarity_search(f"tea {asked}", k=6)
        episode.record(rng.random() < (0.9, 0.3, 0.5)[i % 3])
    return store


def test_calibrated_worth_is_the_regression_of_the_lifts_on_worth_within_contexts(
    make_store: StoreMaker,
) -> None:
    store = tried(make_store, 0.3)
    lifts = {m.memory_id: m for m in store.lift()}
    rows, values, sizes = [], [], []
    for memory in store.memories():
        whole, *inside = store.by_context(memory.id)
        outside = whole.evidence
        for part in inside:
            outside -= part.evidence
        parts = [(p.evidence, p.base_rate) for p in inside] + [(outside, whole.base_rate)]
        size = np.array([e.effective_size for e, _ in parts])
        above = (size * [e.worth - base for e, base in parts]).sum() / (size.sum() + 10)
        found = lifts[memory.id]
        rows.append([1.0, above, np.log1p(memory.evidence.retrievals)])
        values.append(found.value)
        sizes.append(found.effective_size)
    design, root = np.array(rows), np.sqrt(sizes)
    slopes = np.linalg.lstsq(design * root[:, None], np.array(values) * root, rcond=None)[0]
    expected = dict(zip([m.id for m in store.memories()], design @ slopes, strict=True))
    calibrated = store.calibrated_worth()
    assert {c.memory_id: c.value for c in calibrated} == pytest.approx(expected)
    assert [c.value for c in calibrated] == sorted(c.value for c in calibrated)
    assert {c.retrievals for c in calibrated} == {m.evidence.retrievals for m in store.memories()}


def test_calibrated_worth_is_refused_where_too_little_was_held_out(make_store: StoreMaker) -> None:
    with pytest.raises(NotIdentifiableError, match="nothing was ever held out"):
        filled(make_store).calibrated_worth()
    with pytest.raises(NotIdentifiableError, match=r"hold-out of \d\.\d%.*more than 2%"):
        tried(make_store, 0.015, 60).calibrated_worth()
    store = filled(make_store)
    store.hold_out("m1", rate=0.5)
    for i in range(20):
        searched(store, f"run-{i}")
        store.record_outcome(f"run-{i}", i % 2)
    with pytest.raises(NotIdentifiableError, match=r"only 1 memories.*takes ten"):
        store.calibrated_worth()


def test_causes_are_shown_beside_worth(make_store: StoreMaker) -> None:
    store = tried(make_store, 0.3)
    heads, rows = causes(gather(store)).table or ((), ())
    assert heads == ("memory", "worth", "shown", "held out", "lift", "calibrated")
    foretold = {c.memory_id: f"{c.value:+.3f}" for c in store.calibrated_worth()}
    assert {row[0]: row[-1] for row in rows} == foretold
    few = filled(make_store)
    few.hold_out("m1", rate=0.5)
    searched(few, "run")
    few.record_outcome("run", True)
    section = causes(gather(few))
    assert "No calibrated worth: a hold-out of 0.0%" in section.note
    assert section.table is not None
    assert [(row[0], row[-2:]) for row in section.table[1]] == [("m1", ("not identifiable", "-"))]


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5, math.nan, "half", True, None])
def test_a_wrong_rate(make_store: StoreMaker, rate: object) -> None:
    store = filled(make_store)
    with pytest.raises(InvalidInputError, match="in \\(0, 1\\)"):
        store.hold_out("m1", rate=rate)  # type: ignore[arg-type]
    assert store.trials() == {}


def test_memories_that_cannot_be_in_a_trial(make_store: StoreMaker) -> None:
    store = filled(make_store)
    store.pin("m0")
    store.deprecate("m1")
    with pytest.raises(InvalidTransitionError, match="unpin it first"):
        store.hold_out(["m2", "m0"])
    with pytest.raises(InvalidTransitionError, match="restore it first"):
        store.hold_out("m1")
    with pytest.raises(MemoryNotFoundError):
        store.hold_out(["m2", "nobody"])
    assert store.trials() == {}


async def test_async_twins(make_store: StoreMaker) -> None:
    store = filled(make_store)
    await store.ahold_out("m1", rate=0.5)
    assert await store.atrials() == {"m1": 0.5}
    await store.aend_hold_out("m1")
    assert await store.atrials() == {}


# -- memories that live elsewhere -------------------------------------------------------------------------------


def test_a_governed_vector_store_holds_out_and_refills(make_store: StoreMaker) -> None:
    notes = InMemoryVectorStore.from_texts(TEXTS, HashedWords(), ids=IDS)
    store = make_store(policy=plain(hold_out=0.5, exploration=0.0))
    retriever = govern(notes, store, k=3)
    order = [d.id for d in notes.similarity_search("tea", k=6)]
    for i in range(30):
        with store.episode(f"run-{i}") as episode:
            found = [d.id for d in retriever.invoke("tea")]
        out = [m for m in order if holds_out(0, f"run-{i}", m, 0.5)]
        assert found == [m for m in order if m not in out][:3]
        drawn = arms(store, f"run-{i}")
        last = order.index(found[-1]) if len(found) == 3 else 6
        assert {m for m, x in drawn.items() if x[0] is Arm.HELD_OUT} == {
            m for m in out if order.index(m) < last
        }
        assert all(p == 0.5 for _, p, _ in drawn.values())
        episode.record(True)
    assert_exact(store)


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_governed_langgraph_store_holds_out_and_pages_are_full(
    make_store: StoreMaker, everywhere: bool
) -> None:
    inner = InMemoryStore(index={"dims": 32, "embed": HashedWords()})
    keeper = make_store(policy=plain(hold_out=0.5 if everywhere else 0.0, exploration=0.0))
    store = GovernedStore(inner, keeper)
    for i in range(30):
        store.put(("notes",), f"n{i}", {"text": f"tea note {i}"})
    order = [i.key for i in inner.search(("notes",), query="tea", limit=30)]
    name = {key: store.memory_id(("notes",), key) for key in order}
    if not everywhere:
        with store.episode("first"):
            store.search(("notes",), query="tea", limit=30)
        store.hold_out(list(name.values()), rate=0.5)
    for i in range(20):
        with store.episode(f"run-{i}"):
            pages = [
                [x.key for x in store.search(("notes",), query="tea", limit=3, offset=offset)]
                for offset in (0, 3)
            ]
        shown = [key for key in order if not holds_out(0, f"run-{i}", name[key], 0.5)]
        assert pages == [shown[:3], shown[3:6]]
        drawn = arms(store, f"run-{i}")
        last = order.index(shown[5])
        assert {m for m, x in drawn.items() if x[0] is Arm.HELD_OUT} == {
            name[k] for k in order[:last] if k not in shown
        }
