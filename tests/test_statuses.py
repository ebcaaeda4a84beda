"""The life of a memory: the table is what the code does, every change is on record, all but erasure can be undone."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from pydantic import ValidationError

from langchain_memoryworth import MemoryWorthStore, Policy, SuppressionFilter
from langchain_memoryworth.errors import (
    InvalidInputError,
    InvalidTransitionError,
    MemoryNotFoundError,
)
from langchain_memoryworth.ledger.lists import as_list, in_list
from langchain_memoryworth.ledger.memories import _HELD
from langchain_memoryworth.policy import Quarantine
from langchain_memoryworth.records import Arm, Status
from langchain_memoryworth.service.external import Candidate, ExternalMemories
from langchain_memoryworth.statuses import AUTOMATIC, EXPLORED, SERVED, TABLE, as_markdown
from langchain_memoryworth.vectors.index import Kind
from tests.conftest import StoreMaker
from tests.fakes import Clock, HashedWords, assert_exact, execute, query
from tests.policies import plain

ROOT = Path(__file__).parents[1]
PERSONS = ["restore", "suppress", "pin", "unpin", "deprecate", "erase"]
FAST = plain(v_min=2, hysteresis=0.0, exploration=0.0)
WARY = Quarantine(trusted=("crm",), outcomes=2, sources=2)


def run(store: MemoryWorthStore, name: str, text: str, reward: float, source: str = "user") -> None:
    with store.episode(name) as episode:
        store.similarity_search(text, k=1)
    episode.record(reward, source=source)


def suppressed(make_store: StoreMaker, url: str = "sqlite://", policy: Policy = FAST):
    store = make_store(url, policy=policy)
    store.add_texts(["red"], ids=["a"])
    run(store, "e1", "red", False)
    run(store, "e2", "red", False)
    assert status(store) is Status.SUPPRESSED
    return store


def status(store: MemoryWorthStore, id_: str = "a") -> Status:
    return store.memory(id_).status


def served(store: MemoryWorthStore, text: str = "red", k: int = 4) -> list[str | None]:
    return [d.id for d in store.similarity_search(text, k=k)]


# -- the table


def test_the_table_in_the_docs_is_the_one_in_the_code():
    assert as_markdown() in (ROOT / "docs/governance.md").read_text()


@pytest.mark.parametrize(
    ("before", "kind"), list(product([s for s in Status if s is not Status.ERASED], PERSONS))
)
def test_a_decision_leads_where_the_table_says_and_is_refused_elsewhere(
    make_store: StoreMaker, url: str, before: Status, kind: str
):
    store = make_store(url)
    store.add_texts(["red"], ids=["a"])
    execute(store, "UPDATE evidence SET status = :s", s=before.value)
    allowed = {s for t in TABLE if t.kind == kind and before in t.before for s in t.after}
    actions = len(store.actions())
    if allowed and kind == "erase":
        store.erase("a")
        assert query(store, "SELECT status FROM evidence") == [("erased",)]
        return
    if allowed:
        getattr(store, kind)("a")
        assert status(store) in allowed
        [written] = store.actions()[: len(store.actions()) - actions]
        assert (written.kind, written.before, written.after) == (kind, before, status(store))
        return
    if kind == "unpin":  # nothing to take away
        store.unpin("a")
    else:
        with pytest.raises(InvalidTransitionError, match=f"cannot {kind} memory 'a'"):
            getattr(store, kind)("a")
    assert status(store) is before
    assert len(store.actions()) == actions


def test_what_the_policy_may_change_is_what_the_table_gives_to_it():
    rows = [t for t in TABLE if t.by == "policy"]
    assert {s for t in rows for s in (*t.before, *t.after)} == AUTOMATIC
    assert not SERVED & EXPLORED
    for name in Status:
        assert FAST.next_status(name, store_evidence(0, 9)) in (
            {Status.SUPPRESSED} if name is Status.ACTIVE else {name, Status.ACTIVE}
        )


def store_evidence(good: int, bad: int):
    from langchain_memoryworth.estimators.evidence import UNIT, Evidence

    n = good + bad
    return Evidence(good * UNIT, bad * UNIT, n * UNIT, n * UNIT, n)


@pytest.mark.parametrize("by", ["deprecated", "withheld", "pinned"])
def test_statistics_do_not_overrule_a_person(make_store: StoreMaker, by: str):
    store = make_store(policy=FAST)
    store.add_texts(["red"], ids=["a"])
    for n in range(4):
        with store.episode(f"e{n}"):
            store.similarity_search("red", k=1)
    {"deprecated": store.deprecate, "withheld": store.suppress, "pinned": store.pin}[by]("a")
    for n in range(4):
        store.record_outcome(f"e{n}", by != "pinned")
    assert status(store) == by
    assert_exact(store)


# -- what is on record


def test_every_change_says_who_when_why_and_on_what_evidence(
    make_store: StoreMaker, clock: Clock, url: str
):
    store = suppressed(make_store, url)
    clock.forward(days=1)
    store.restore("a", actor="eva", reason="it is right after all")
    first, second = store.history("a")
    assert (first.kind, first.actor) == ("suppress", "policy")
    assert (first.before, first.after) == (Status.ACTIVE, Status.SUPPRESSED)
    assert first.reason == "worth 0.000 over 2 retrievals, theta_low 0.4, v_min 2"
    assert first.evidence._replace(surprise=0) == store_evidence(0, 2)
    assert (second.kind, second.actor, second.reason) == ("restore", "eva", "it is right after all")
    assert second.at - first.at == timedelta(days=1)
    assert second.evidence._replace(surprise=0) == store_evidence(0, 2)
    assert [a.number for a in store.actions()[:2]] == [second.number, first.number]


def test_history_of_an_unknown_memory_is_an_error(store: MemoryWorthStore):
    with pytest.raises(MemoryNotFoundError, match="nobody"):
        store.history("nobody")


# -- undo


@pytest.mark.parametrize("kind", ["restore", "suppress", "pin", "deprecate"])
def test_undo_puts_everything_back(make_store: StoreMaker, url: str, kind: str):
    store = suppressed(make_store, url)
    before = query(store, "SELECT * FROM evidence")
    getattr(store, kind)("a")
    assert status(store) is not Status.SUPPRESSED
    undone = store.undo(store.history("a")[-1], actor="eva", reason="wrong one")
    assert query(store, "SELECT * FROM evidence") == before
    assert (undone.kind, undone.actor, undone.reason) == ("undo", "eva", "wrong one")
    assert undone.undoes == store.history("a")[-2].number
    assert served(store) == []


def test_undo_of_unpin_pins_again(make_store: StoreMaker):
    store = suppressed(make_store)
    store.pin("a")
    store.unpin("a")
    assert status(store) is Status.SUPPRESSED
    store.undo(store.history("a")[-1])
    assert status(store) is Status.PINNED


def test_undoing_the_policy_lasts_until_new_evidence(make_store: StoreMaker):
    store = suppressed(make_store)
    store.undo(store.history("a")[-1])
    assert status(store) is Status.ACTIVE
    run(store, "e3", "red", False)  # with the old evidence, this would suppress it at once
    assert status(store) is Status.ACTIVE
    run(store, "e4", "red", False)
    assert status(store) is Status.SUPPRESSED
    assert_exact(store)


def test_only_the_last_word_can_be_taken_back_and_then_the_one_before(make_store: StoreMaker):
    store = suppressed(make_store)
    store.restore("a")
    store.pin("a")
    _, restore, pin = store.history("a")
    with pytest.raises(InvalidInputError, match=rf"take back action {pin.number} \(pin\) first"):
        store.undo(restore)
    store.undo(pin.number)
    with pytest.raises(InvalidInputError, match="is taken back already"):
        store.undo(pin)
    store.undo(restore)
    assert status(store) is Status.SUPPRESSED
    assert_exact(store)


def test_an_undo_can_be_undone(make_store: StoreMaker):
    store = suppressed(make_store)
    store.restore("a")
    undone = store.undo(store.history("a")[-1])
    assert status(store) is Status.SUPPRESSED
    store.undo(undone)
    assert status(store) is Status.ACTIVE
    run(store, "e3", "red", False)
    assert status(store) is Status.ACTIVE  # the baseline is back as well
    assert_exact(store)


def test_what_cannot_be_undone(make_store: StoreMaker):
    store = make_store(policy=plain(v_min=3))
    store.add_texts(["red"], ids=["a"])
    store.deprecate("a")
    deprecate = store.history("a")[-1]
    [policy] = [a for a in store.actions() if a.kind == "policy"]
    store.erase("a")
    with pytest.raises(InvalidInputError, match="'policy', which cannot be taken back"):
        store.undo(policy)
    with pytest.raises(InvalidInputError, match="'erase', which cannot be taken back"):
        store.undo(store.actions()[0])
    with pytest.raises(InvalidInputError, match="take back action"):
        store.undo(deprecate)
    with pytest.raises(InvalidInputError, match="there is no action 99"):
        store.undo(99)


def test_a_restore_after_an_undone_restore_takes_everything_for_its_baseline(
    make_store: StoreMaker, url: str
):
    store = suppressed(make_store, url)
    store.restore("a")
    run(store, "e3", "red", False)
    store.undo(next(a for a in store.history("a") if a.kind == "restore"))
    assert_exact(store)
    store.restore("a")
    assert_exact(store)
    store.record_outcome("e3", True)  # corrected later, it still belongs to the time before
    assert_exact(store)
    assert store.explain("a").recent.retrievals == 0


@hypothesis_settings(max_examples=25)
@given(
    steps=st.lists(
        st.sampled_from(
            ["good", "bad", "restore", "suppress", "pin", "unpin", "deprecate", "undo", "correct"]
        ),
        max_size=14,
    )
)
def test_counters_stay_exact_whatever_is_decided_and_undone(steps: list[str]):
    with MemoryWorthStore("sqlite://", HashedWords(), clock=Clock(), policy=FAST) as store:
        store.add_texts(["red", "red blue"], ids=["a", "b"])
        for n, step in enumerate(steps):
            take(store, step, f"e{n}")
            assert_exact(store)
            for action in store.history("a"):
                assert action.before is not None


def take(store: MemoryWorthStore, step: str, name: str) -> None:
    if step in ("good", "bad"):
        with store.episode(name) as episode:
            store.similarity_search("red", k=2)
        if store.governor.journal.run_ids()[-1:] == [name]:  # something was there to be shown
            episode.record(step == "good")
    elif step == "correct":
        for id_ in store.governor.journal.run_ids():
            store.record_outcome(id_, 0.25)
    elif step == "undo":
        for action in store.history("a")[-1:]:
            store.undo(action)
    else:
        try:
            getattr(store, step)("a")
        except InvalidTransitionError:
            assert step in ("suppress", "pin", "deprecate")


# -- suppressed by a person


@pytest.mark.parametrize("suppress", [True, False])
def test_what_a_person_suppresses_is_shown_on_probation_and_no_more(
    make_store: StoreMaker, url: str, suppress: bool
):
    store = make_store(url, policy=plain(exploration=1.0, suppress=suppress))
    store.add_texts(["red", "red green"], ids=["a", "b"])
    store.suppress("a", actor="eva", reason="looks wrong")
    assert served(store) == ["b"]
    assert [m.id for m in store.suppressed()] == ["a"]
    assert (store.health().withheld, store.health().suppressed) == (1, 0)
    assert "withheld by a person" in store.explain_search("red").held_back[0].reason
    words = str(store.explain("a"))
    assert "not served. It is withheld by eva on" in words
    assert "(looks wrong)" in words
    with store.episode("e1"):
        assert served(store, k=1) == ["a"]
    [exposure] = store.run("e1").exposures
    assert exposure.arm is Arm.PROBATION
    store.restore("a")
    assert served(store) == ["a", "b"]


def test_evidence_does_not_lift_it_and_the_review_asks_a_person(make_store: StoreMaker, url: str):
    store = make_store(url, policy=FAST.model_copy(update={"exploration": 1.0}))
    store.add_texts(["red", "green", "blue"], ids=["a", "b", "c"])
    run(store, "e1", "red", True)
    run(store, "e2", "red", True)
    store.suppress("a")
    assert not store.review()  # that it was HIGH before is what the person overruled
    run(store, "e3", "red", True)
    run(store, "e4", "red", True)
    assert status(store) is Status.WITHHELD
    [proposal] = [p for p in store.review() if p.why == "contested"]
    assert proposal.action == "restore"
    assert "worth 1.00 over 2 retrievals since" in proposal.reason
    store.decide(proposal, "approve", actor="eva")
    assert status(store) is Status.ACTIVE
    assert store.history("a")[-1].kind == "approve"
    assert_exact(store)


# -- deprecated


def test_memories_of_a_status_are_those_that_have_it(
    make_store: StoreMaker, url: str, clock: Clock
):
    policy = plain(v_min=2, hysteresis=0.0, exploration=0.0, quarantine=WARY)
    store = make_store(url, policy=policy, clock=clock)
    ids = ["red", "green", "blue", "white", "black", "brown"]
    source = {"source": "crm"}
    store.add_texts(ids, ids=ids, metadatas=[source] * 6)
    store.add_texts(["pink", "grey"], ids=["pink", "grey"])  # of nobody who is trusted
    store.add_texts(["mauve"], ids=["mauve"], metadatas=[source], ttl=timedelta(days=1))
    for number in range(2):
        run(store, f"run {number}", "red", False)
    store.suppress(["green", "mauve"])
    store.pin("blue")
    store.deprecate("white")
    store.delete(["black"])
    store.add_texts(["elsewhere"], ids=["red"], namespace="other", metadatas=[source])
    clock.forward(days=2)
    everyone = store.memories()
    assert [m.id for m in everyone] == ["red", "green", "blue", "white", "brown", "pink", "grey"]
    for status in Status:
        assert store.memories(status) == [m for m in everyone if m.status is status]
    assert {m.status for m in everyone} == set(Status) - {Status.ERASED}
    assert [m.id for m in store.suppressed()] == ["red", "green"]


def test_what_is_held_back_is_found_without_looking_at_the_rest(make_store: StoreMaker):
    store = make_store()
    sql = in_list(_HELD, 2).sql
    given = {"namespace": "[]", "now": 0.0, "born": 0.0, **as_list(["suppressed", "withheld"])}
    plan = " ".join(str(row[3]) for row in query(store, f"EXPLAIN QUERY PLAN {sql}", **given))
    assert "USING INDEX evidence_held" in plan
    assert "SCAN m" not in plan


@pytest.mark.parametrize("index", ["flat", "hnsw"])
def test_a_deprecated_memory_is_kept_and_never_served(
    make_store: StoreMaker, url: str, index: Kind
):
    store = make_store(url, policy=plain(exploration=1.0), index=index)
    store.add_texts(["red", "red green"], ids=["a", "b"])
    assert served(store) == ["a", "b"]
    store.deprecate("a", reason="since March")
    with store.episode("e1"):
        assert served(store) == ["b"]  # not even on probation
    assert store.memory("a").text == "red"
    assert [m.id for m in store.memories("deprecated")] == ["a"]
    assert store.health().deprecated == 1
    store.restore("a")
    assert served(store) == ["a", "b"]


def test_another_store_on_the_file_hides_it_at_its_next_call(make_store: StoreMaker, file_url: str):
    first, second = make_store(file_url), make_store(file_url)
    first.add_texts(["red", "red green"], ids=["a", "b"])
    assert served(second) == ["a", "b"]
    first.deprecate("a")
    assert served(second) == ["b"]


def test_filters_and_memories_elsewhere_hide_it_too(make_store: StoreMaker):
    store = make_store(policy=plain(exploration=1.0))
    store.add_texts(["red", "green"], ids=["a", "b"])
    store.deprecate("a")
    documents = [Document("red", id="a"), Document("green", id="b")]
    assert [d.id for d in SuppressionFilter(store).invoke(documents)] == ["b"]
    external = ExternalMemories(store.governor)
    with store.episode("e1"):
        choices = external.choose(
            [Candidate("a", "red"), Candidate("b", "green")], 2, external.caller()
        )
    assert [(c.place, c.arm) for c in choices] == [(1, Arm.SERVED)]
    assert store.governor.collection.left_out("") == 1


# -- quarantine


def quarantined(make_store: StoreMaker, url: str, **changes: float) -> MemoryWorthStore:
    store = make_store(url, policy=plain(quarantine=WARY, **{"exploration": 1.0, **changes}))
    store.add_texts(["red", "red green"], [{"source": "web"}, {"source": "crm"}], ids=["a", "b"])
    return store


def test_only_new_texts_of_untrusted_sources_wait(make_store: StoreMaker, url: str):
    store = quarantined(make_store, url)
    assert (status(store, "a"), status(store, "b")) == (Status.QUARANTINED, Status.ACTIVE)
    assert served(store) == ["b"]
    [action] = store.history("a")
    assert (action.kind, action.actor) == ("quarantine", "policy")
    assert action.reason == "source 'web' is not trusted"
    store.add_texts(["red green"], [{"source": "web"}], ids=["b"])  # the text is known
    assert status(store, "b") is Status.ACTIVE
    store.add_texts(["blue"], [{}], ids=["b"])
    assert status(store, "b") is Status.QUARANTINED
    assert store.health().quarantined == 2


def test_it_is_shown_at_the_exploration_rate_and_no_more(make_store: StoreMaker):
    store = quarantined(make_store, "sqlite://", exploration=0.2)
    arms = []
    for n in range(400):
        with store.episode(f"e{n}"):
            arms += [(h.id, h.arm, h.propensity) for h in store.governor.retrieval.recall("red", 1)]
    shown = [a for a in arms if a[0] == "a"]
    assert set(shown) == {("a", Arm.PROBATION, 0.2)}
    assert 56 <= len(shown) <= 104  # 80 expected, three standard deviations of 8


def test_a_flood_in_quarantine_gets_no_more_than_the_exploration_rate(make_store: StoreMaker):
    store = quarantined(make_store, "sqlite://", exploration=0.2)
    store.add_texts(["red"] * 50, [{"source": "web"}] * 50, ids=[f"flood{n}" for n in range(50)])
    waiting = []
    for n in range(400):
        with store.episode(f"e{n}"):
            arms = [h.arm for h in store.governor.retrieval.recall("red", 2)]
        assert arms[0] is Arm.SERVED  # the last place at most
        waiting += [a for a in arms if a is Arm.PROBATION]
    assert 56 <= len(waiting) <= 104  # 80 expected, three standard deviations of 8


def test_enough_outcomes_of_enough_sources_release_it(make_store: StoreMaker, url: str):
    store = quarantined(make_store, url)
    for n in range(3):
        run(store, f"e{n}", "red", True)
    assert status(store) is Status.QUARANTINED  # three outcomes, but one voice
    run(store, "e3", "red", True, source="evaluator")
    assert status(store) is Status.ACTIVE
    assert store.history("a")[-1].kind == "release"
    assert "a" in served(store)


def test_two_voices_about_one_run_are_one_outcome(make_store: StoreMaker):
    store = quarantined(make_store, "sqlite://")
    run(store, "e0", "red", True, source="evaluator")
    store.record_outcome("e0", 0.9)  # other than the first, so that it is judged again
    assert status(store) is Status.QUARANTINED
    run(store, "e1", "red", True)
    assert status(store) is Status.ACTIVE


def test_a_withdrawn_voice_does_not_count(make_store: StoreMaker):
    store = quarantined(make_store, "sqlite://")
    run(store, "e0", "red", True, source="evaluator")
    store.withdraw_outcome("e0", source="evaluator")
    store.record_outcome("e0", True)
    run(store, "e1", "red", True)
    assert status(store) is Status.QUARANTINED


def test_bad_outcomes_do_not_release_it(make_store: StoreMaker):
    store = quarantined(make_store, "sqlite://")
    for n in range(12):
        run(store, f"e{n}", "red", False, source=["user", "evaluator"][n % 2])
    assert status(store) is Status.QUARANTINED


def test_a_person_releases_it_and_undo_sends_it_back(make_store: StoreMaker):
    store = quarantined(make_store, "sqlite://", exploration=0.0)
    store.restore("a", actor="eva")
    assert "a" in served(store)
    store.undo(store.history("a")[-1])
    assert status(store) is Status.QUARANTINED
    assert served(store) == ["b"]


def test_a_policy_without_quarantine_releases_all(make_store: StoreMaker, file_url: str):
    quarantined(make_store, file_url)
    store = make_store(file_url, policy=Policy())
    assert status(store) is Status.ACTIVE
    assert store.history("a")[-1].kind == "release"


def test_a_policy_with_a_rule_for_it_comes_back_from_the_database(
    make_store: StoreMaker, file_url: str
):
    policy = plain(quarantine=WARY, ttl={("acme",): timedelta(days=2), (): timedelta(days=9)})
    make_store(file_url, policy=policy)
    assert make_store(file_url).policy == policy


# -- time to live


@pytest.mark.parametrize("index", ["flat", "hnsw"])
def test_an_expired_memory_is_not_returned_by_anything(
    make_store: StoreMaker, clock: Clock, url: str, index: Kind
):
    store = make_store(url, index=index)
    store.add_texts(["red"], ids=["a"], ttl=timedelta(hours=1))
    store.add_texts(["red green"], ids=["b"])
    clock.forward(seconds=3_599)
    assert served(store) == ["a", "b"]
    assert store.explain("a").expires_at == store.memory("a").added_at + timedelta(hours=1)
    clock.forward(seconds=1)
    assert served(store) == ["b"]
    assert served(store, k=1) == ["b"]
    assert store.get_by_ids(["a", "b"])[0].id == "b"
    assert [m.id for m in store.memories()] == ["b"]
    assert [h.id for h in store.explain_search("red").served] == ["b"]
    assert store.review() == []
    for ask in (store.memory, store.worth, store.evidence, store.explain, store.worth_history):
        with pytest.raises(MemoryNotFoundError):
            ask("a")


def test_late_feedback_does_not_bring_it_back(make_store: StoreMaker, clock: Clock, url: str):
    store = make_store(url)
    store.add_texts(["red"], ids=["a"], ttl=timedelta(hours=1))
    with store.episode("e1") as episode:
        assert served(store) == ["a"]
    clock.forward(days=1)
    assert served(store) == []
    episode.record(True)
    assert served(store) == []
    assert_exact(store)


def test_storing_it_again_begins_a_new_life_with_the_old_evidence(
    make_store: StoreMaker, clock: Clock, url: str
):
    store = make_store(url)
    store.add_texts(["red"], ids=["a"], ttl=timedelta(hours=1))
    run(store, "e1", "red", True)
    clock.forward(seconds=1_800)
    store.add_texts(["red"], ids=["a"], ttl=timedelta(hours=1))
    clock.forward(seconds=3_000)
    assert served(store) == ["a"]
    clock.forward(days=1)
    assert served(store) == []
    store.add_texts(["red"], ids=["a"])
    clock.forward(days=999)
    assert served(store) == ["a"]
    assert store.evidence("a").retrievals == 1


def test_a_namespace_has_a_life_of_its_own_by_whole_segments(
    make_store: StoreMaker, clock: Clock, url: str
):
    lives = {("acme",): timedelta(days=30), ("acme", "chat"): timedelta(days=1)}
    store = make_store(url, policy=plain(ttl=lives))
    spaces = [(), ("acme",), ("acme", "chat", "ada"), ("acme-corp",)]
    for space in spaces:
        store.add_texts(["red"], ids=["a"], namespace=space)

    def alive() -> list[tuple[str, ...]]:
        found = [s for s in spaces if store.similarity_search("red", namespace=s)]
        assert found == [s for s in spaces if store.memories(namespace=s)]
        return found

    assert alive() == spaces
    clock.forward(days=1)
    assert alive() == [(), ("acme",), ("acme-corp",)]
    clock.forward(days=29)
    assert alive() == [(), ("acme-corp",)]


def test_the_earlier_of_both_ends_counts(make_store: StoreMaker, clock: Clock):
    store = make_store(policy=plain(ttl={(): timedelta(days=2)}))
    store.add_texts(["red", "green"], ids=["a", "b"], ttl=timedelta(days=5))
    store.add_texts(["blue"], ids=["c"], ttl=timedelta(days=1))
    clock.forward(days=1)
    assert {m.id for m in store.memories()} == {"a", "b"} == set(served(store, "red"))
    clock.forward(days=1)
    assert store.memories() == []
    assert served(store) == []


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1), 60])
def test_a_time_to_live_that_is_none(store: MemoryWorthStore, ttl: object):
    with pytest.raises(InvalidInputError, match="longer than 0"):
        store.add_texts(["red"], ttl=ttl)  # type: ignore[arg-type]
    with pytest.raises((ValidationError, InvalidInputError)):
        plain(ttl={(): timedelta(0)})


async def test_the_async_twins(make_store: StoreMaker):
    store = make_store()
    await store.aadd_texts(["red"], ids=["a"], ttl=timedelta(days=1))
    await store.adeprecate("a")
    [action] = await store.ahistory("a")
    await store.aundo(action)
    assert (await store.aexplain("a")).served
    assert await store.areview() == []
    assert (await store.aactions())[0].kind == "undo"
    assert (await store.aerase("a")).memories == 1


@pytest.mark.parametrize("decide", ["restore", "suppress", "pin", "deprecate", "erase"])
@pytest.mark.parametrize("who", [{"actor": None}, {"reason": 5}], ids=["actor", "reason"])
def test_who_decides_and_why_are_texts(
    make_store: StoreMaker, url: str, decide: str, who: dict[str, object]
) -> None:
    store = suppressed(make_store, url)
    known = store.history("a")
    with pytest.raises(InvalidInputError, match="who decides and why"):
        getattr(store, decide)("a", **who)
    assert store.history("a") == known
    assert status(store) is Status.SUPPRESSED
