"""Explanations say what the ledger has, in words and numbers that add up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import MemoryNotFoundError, UnknownRunError
from langchain_memoryworth.estimators.beta import cdf, quantile
from langchain_memoryworth.estimators.credible import belief
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.policy import Quarantine
from langchain_memoryworth.records import Arm, Status
from tests.conftest import StoreMaker
from tests.fakes import Clock, assert_exact
from tests.policies import plain

FAST = plain(v_min=2, hysteresis=0.05, exploration=0.0)


def run(store: MemoryWorthStore, name: str, text: str, reward: float, k: int = 1, **more) -> None:
    with store.episode(name) as episode:
        store.similarity_search(text, k=k)
    episode.record(reward, **more)


def words(store: MemoryWorthStore, id_: str = "a") -> str:
    return store.explain(id_).why


# -- one memory


def test_an_active_one(make_store: StoreMaker, url: str):
    store = make_store(url)
    store.add_texts(["red", "red green"], ids=["a", "b"])
    run(store, "e1", "red", True, k=2)
    explanation = store.explain("a")
    assert explanation.served
    assert explanation.memory == store.memory("a")
    assert explanation.companions == (("b", 1),)
    assert explanation.history == ()
    assert explanation.expires_at is None
    assert explanation.why == (
        "It is active: a verdict needs 10 retrievals, so it is uncertain; "
        "worth 1.00 over 1 retrievals."
    )
    assert "a: served" in str(explanation)
    assert "0.500 successes and 0.000 failures by weight, 1 settled runs" in str(explanation)


def test_a_suppressed_one_says_since_when_why_and_how_back(make_store: StoreMaker, clock: Clock):
    store = make_store(policy=FAST)
    store.add_texts(["red"], ids=["a"])
    run(store, "e1", "red", False)
    clock.forward(days=1)
    run(store, "e2", "red", False)
    explanation = store.explain("a")
    assert not explanation.served
    assert explanation.why == (
        "It is suppressed by policy on 2025-06-16 (worth 0.000 over 2 retrievals, theta_low 0.4, "
        "v_min 2); worth 0.00 over 2 retrievals. It is still shown in 0% of the runs it would lead, "
        "and comes back at a worth of 0.45, or by restore."
    )
    store.restore("a")
    assert "uncertain; worth 0.50 over 0 retrievals since the last restore" in words(store)
    assert store.explain("a").recent == Evidence()


def test_the_other_statuses(make_store: StoreMaker):
    rule = Quarantine(trusted=("crm",), outcomes=3, sources=2)
    store = make_store(policy=plain(quarantine=rule, exploration=1.0))
    store.add_texts(["red"], ids=["a"])
    run(store, "e1", "red", True)
    assert words(store) == (
        "It is in quarantine by policy on 2025-06-15 (source None is not trusted): 1 of 3 outcomes, "
        "from 1 of 2 sources, at a worth of 1.00; shown in at most 100% of the runs."
    )
    store.pin("a", actor="eva", reason="a safety rule")
    assert words(store).startswith("It is pinned by eva on 2025-06-15 (a safety rule): served")
    store.unpin("a")
    store.deprecate("a", actor="eva")
    assert words(store) == (
        "It is deprecated by eva on 2025-06-15: kept for the record, until it is restored."
    )
    assert not store.explain("a").served


def test_the_verdicts_in_words(make_store: StoreMaker):
    store = make_store(policy=plain(v_min=1, suppress=False))
    store.add_texts(["red", "blue"], ids=["a", "b"])
    run(store, "e1", "red", True)
    run(store, "e2", "blue", False)
    assert "it is high, and only below 0.4 it would be suppressed" in words(store)
    assert "it is low, but this policy suppresses nothing" in words(store, "b")


def test_an_unknown_one_is_an_error(store: MemoryWorthStore):
    with pytest.raises(MemoryNotFoundError, match="'a'"):
        store.explain("a")


# -- one run


def test_a_run_says_what_was_shown_and_what_its_outcome_changed(make_store: StoreMaker, url: str):
    # 1.5, as a used memory among bystanders weighs more than one of two: 1.805 retrievals in two runs
    store = make_store(url, policy=plain(v_min=1.5, exploration=0.0))
    store.add_texts(["red", "red green", "red blue"], ids=["a", "b", "c"])
    run(store, "e1", "red", False, k=2)
    with store.episode("e2"):
        store.similarity_search("red", k=3)
    before = store.explain_run("e2")
    assert (before.reward, before.said_by) == (None, None)
    assert "no outcome yet" in str(before)
    assert [p.weight for p in before.parts] == [0.0] * 3
    dropped = before.parts[2].memory_id
    store.governor.journal.hide("e2", [dropped])
    store.record_outcome("e2", False, used=["a"], source="user")
    store.record_outcome("e2", True, source="handler")

    after = store.explain_run("e2")
    assert (after.reward, after.said_by) == (0.0, "user")
    parts = {p.memory_id: p for p in after.parts}
    assert [p.memory_id for p in after.shown] == [p.memory_id for p in after.parts if p.shown]
    assert not parts[dropped].shown
    assert "dropped by a filter" in parts[dropped].why
    a = parts["a"]
    assert a.weight == pytest.approx(0.99)
    assert a.status is Status.SUPPRESSED
    assert "suppress: worth 0.000 over 1.805 retrievals" in a.why
    assert "suppressed now (worth 0.00 over 1.805 retrievals, theta_low 0.4)" in a.why
    assert (a.worth, a.worth_without) == (store.worth("a"), 0.0)
    assert str(after).count("\n") == 4
    store.withdraw_outcome("e2", source="user")
    turned = {p.memory_id: p for p in store.explain_run("e2").parts}["a"]
    assert turned.worth_without == 0.0
    assert turned.worth > 0.4
    assert turned.status is Status.ACTIVE


def test_probation_is_named(make_store: StoreMaker):
    store = make_store(policy=plain(v_min=1, exploration=1.0))
    store.add_texts(["red"], ids=["a"])
    run(store, "e1", "red", False)
    with store.episode("e2"):
        store.similarity_search("red", k=1)
    [part] = store.explain_run("e2").parts
    assert part.arm is Arm.PROBATION
    assert "held back, shown on probation with probability 1" in part.why


def test_what_was_held_back_is_on_record_where_the_policy_asks(
    make_store: StoreMaker, clock: Clock, url: str
):
    policy = plain(v_min=2, hysteresis=0.0, exploration=0.0, record_held_back=True)
    store = make_store(url, policy=policy)
    store.add_texts(["red", "red green", "blue"], ids=["a", "b", "c"])
    for n in range(2):
        with store.episode(f"e{n}") as episode:
            store.similarity_search("red", k=1)
        episode.record(False)
    before = store.evidence("a")
    clock.forward(days=1)
    with store.episode("e2") as episode:
        assert [d.id for d in store.similarity_search("red", k=1)] == ["b"]
    episode.record(True)
    told = store.explain_run("e2")
    assert told.held_back_known
    assert [(p.memory_id, p.arm, p.shown) for p in told.parts] == [
        ("b", Arm.SERVED, True),
        ("a", Arm.HELD_BACK, False),
    ]
    assert "  - a at similarity 1.000: held back by its status then, suppressed now" in str(told)
    assert store.evidence("a") == before
    assert [d.id for d in store.governor.journal.shown_documents("e2")] == ["b"]
    assert not [m for m in store.lift() if m.memory_id == "a"]
    assert_exact(store)


def test_what_was_not_recorded_is_not_claimed(make_store: StoreMaker):
    store = make_store()
    store.add_texts(["red"], ids=["a"])
    with store.episode("e1"):
        store.similarity_search("red", k=1)
    told = store.explain_run("e1")
    assert not told.held_back_known
    assert "what was held back is not on record; see Policy.record_held_back" in str(told)


def test_an_alias_finds_the_run_and_an_unknown_id_does_not(make_store: StoreMaker):
    store = make_store()
    store.add_texts(["red"], ids=["a"])
    run(store, "e1", "red", True)
    with pytest.raises(UnknownRunError):
        store.explain_run("nobody")
    with store.episode("e1"):
        store.similarity_search("red", k=1)
    assert store.explain_run("e1").id == "e1"


# -- over time


def test_history_of_worth_adds_up_to_the_counters(make_store: StoreMaker, clock: Clock, url: str):
    store = make_store(url)
    store.add_texts(["red", "red green"], ids=["a", "b"])
    for n, reward in enumerate([True, False, 0.25]):
        clock.forward(days=1)
        run(store, f"e{n}", "red", reward, k=2)
    points = store.worth_history("a")
    assert [p.episode_id for p in points] == ["e0", "e1", "e2"]
    assert [p.reward for p in points] == [1.0, 0.0, 0.25]
    assert [round(p.worth, 3) for p in points] == [1.0, 0.5, 0.417]
    assert [p.evidence.retrievals for p in points] == [1, 2, 3]
    assert points[-1].evidence == store.evidence("a")
    assert points[1].at - points[0].at == timedelta(days=1)
    store.record_outcome("e0", False)  # a correction counts from when it was made
    assert [p.episode_id for p in store.worth_history("a")] == ["e1", "e0", "e2"]
    assert store.worth_history("a")[-1].evidence == store.evidence("a")


def test_runs_of_one_moment_are_in_the_order_in_which_they_began(make_store: StoreMaker, url: str):
    store = make_store(url)
    store.add_texts(["red"], ids=["a"])
    names = ["r99", "r100", "r101"]  # as text, the second would come first
    for name in names:
        run(store, name, "red", True)
    assert [p.episode_id for p in store.worth_history("a")] == names


# -- how sure


@given(
    a=st.floats(1, 400),
    b=st.floats(1, 400),
    x=st.floats(0, 1),
    p=st.floats(0.01, 0.99),
)
def test_the_beta_distribution_is_scipys(a: float, b: float, x: float, p: float):
    assert cdf(x, a, b) == pytest.approx(beta.cdf(x, a, b), abs=1e-9)
    assert beta.cdf(quantile(p, a, b), a, b) == pytest.approx(p, abs=1e-5)


def test_beliefs_narrow_and_stand_at_the_rate():
    def of(good: int, bad: int) -> Evidence:
        n = good + bad
        return Evidence(good * UNIT, bad * UNIT, n * UNIT, n * UNIT, n)

    few, many = belief(of(3, 1)), belief(of(300, 100))
    assert few.low < many.low < 0.75 < many.high < few.high
    assert few.deviation > 4 * many.deviation
    assert belief(Evidence()).deviation == pytest.approx(12**-0.5)
    low, _, high, deviation = belief(of(7, 3))
    assert (low, high) == pytest.approx(beta.interval(0.9, 8, 4), abs=1e-8)
    assert deviation == pytest.approx(beta.std(8, 4))
