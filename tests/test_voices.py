"""Whose word decides, and a source that is revoked: the counters are as if it had never spoken."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.ledger import lists
from langchain_memoryworth.records import EpisodeKey, Status
from langchain_memoryworth.service.proposals import Why
from tests.conftest import StoreMaker
from tests.fakes import Clock, HashedWords, assert_exact, query
from tests.policies import plain

FAST = plain(v_min=2, hysteresis=0.0, exploration=0.0)
# Not `surprise`: what was expected of a run is what was known when it was settled.
COUNTERS = (
    "SELECT seq, status, epoch, positive, negative, size, squared, retrievals, base_positive, "
    "base_negative, base_size, base_squared, base_retrievals FROM evidence ORDER BY seq"
)
SAID = st.tuples(
    st.sampled_from(["user", "evaluator", "bot"]),
    st.sampled_from(["", "ada"]),
    st.sampled_from(["", "speed"]),
    st.sampled_from([True, False, None]),
)


def episode(store: MemoryWorthStore, name: str, text: str = "red", k: int = 1) -> None:
    with store.episode(name):
        store.similarity_search(text, k=k)


def filled(store: MemoryWorthStore) -> MemoryWorthStore:
    store.add_texts(["red", "green", "red green"], ids=["a", "b", "c"])
    return store


# -- several voters of one run


@pytest.mark.parametrize("order", list(itertools.permutations(["ada", "bob", "eve"])))
def test_one_voter_of_three_cannot_turn_a_run_round(make_store: StoreMaker, url: str, order: tuple):
    store = filled(make_store(url, policy=plain(votes="median")))
    episode(store, "r", k=2)
    for voter in order:
        store.record_outcome("r", voter != "eve", source_id=voter)
    store.record_outcome("r", False, source="handler")  # another source has no vote beside users
    assert store.run("r").reward == 1.0
    assert store.worth("a") == 1.0
    store.record_outcome("r", False, source_id="bob")
    assert store.worth("a") == 0.0
    store.withdraw_outcome("r", source_id="eve")
    assert store.worth("a") == 0.5
    store.withdraw_outcome("r", source_id="bob")
    store.withdraw_outcome("r", source_id="ada")
    assert store.worth("a") == 0.0  # the handler's
    assert_exact(store)


def test_the_newest_voter_decides_if_the_policy_does_not_say_otherwise(store: MemoryWorthStore):
    episode(filled(store), "r")
    for voter in ("ada", "bob", "eve"):
        store.record_outcome("r", voter != "eve", source_id=voter)
    assert store.worth("a") == 0.0


def test_a_broken_evaluator_among_three_sinks_no_memory(make_store: StoreMaker):
    """It says False of every run; the two others say what happened, which is good. By the newest word worth would be 0."""
    guarded, open_ = (
        filled(make_store(policy=plain(v_min=2, votes=votes))) for votes in ("median", "newest")
    )
    for store in (guarded, open_):
        for n in range(4):
            episode(store, f"r{n}")
            for judge in ("first", "second", "broken"):
                good = judge != "broken"
                store.record_outcome(f"r{n}", good, source="evaluator", source_id=judge)
    assert (guarded.worth("a"), open_.worth("a")) == (1.0, 0.0)
    assert guarded.suppressed() == []
    assert "a" in {m.id for m in open_.suppressed()}


# -- nobody alone can sink a memory

TWO = {"v_min": 4, "exploration": 0.0, "corroborated": True}


def votes(
    store: MemoryWorthStore, name: str, good: Sequence[bool], source: str = "user", by: str = ""
) -> None:
    """Runs that showed "a" alone, each with the outcome of one voter."""
    for n, outcome in enumerate(good):
        store.governor.journal.expose_documents(EpisodeKey(f"{name}-{n}"), [Document("", id="a")])
        store.record_outcome(f"{name}-{n}", outcome, source=source, source_id=by)


def status(store: MemoryWorthStore) -> Status:
    return store.memory("a").status


@pytest.mark.parametrize("confidence", [None, 0.9])
def test_one_loud_voter_cannot_sink_a_memory_and_two_can(
    make_store: StoreMaker, url: str, confidence: float | None
):
    guarded = filled(make_store(url, policy=plain(confidence=confidence, **TWO)))
    open_ = filled(make_store(policy=plain(confidence=confidence, v_min=4, exploration=0.0)))
    for store in (guarded, open_):
        votes(store, "ada", [True] * 4, by="ada")
        votes(store, "eve", [False] * 40, by="eve")
    assert (status(guarded), status(open_)) == (Status.ACTIVE, Status.SUPPRESSED)
    assert "not without the word of one voter" in guarded.explain("a").why
    votes(guarded, "bob", [False] * 20, by="bob")
    assert status(guarded) is Status.SUPPRESSED  # by eve without bob, by bob and ada without eve
    assert_exact(guarded)


def test_a_broken_evaluator_cannot_sink_a_memory(make_store: StoreMaker):
    store = filled(make_store(policy=plain(**TWO)))
    votes(store, "good", [True] * 5)
    votes(store, "bad", [False] * 30, source="evaluator")
    assert status(store) is Status.ACTIVE


def test_who_decides_alone_suppresses_nothing(make_store: StoreMaker):
    store = filled(make_store(policy=plain(**TWO)))
    votes(store, "r", [False] * 20)
    assert status(store) is Status.ACTIVE


def test_when_one_of_two_takes_it_back_the_memory_comes_back(make_store: StoreMaker, url: str):
    store = filled(make_store(url, policy=plain(**TWO)))
    votes(store, "eve", [False] * 10, by="eve")
    votes(store, "bob", [False] * 10, by="bob")
    assert status(store) is Status.SUPPRESSED
    assert store.revoke_source("user", source_id="bob") == 10
    assert status(store) is Status.ACTIVE
    assert "one voter" in store.history("a")[-1].reason
    assert_exact(store)


def test_nobody_alone_makes_a_decline(make_store: StoreMaker):
    """A good memory that fails from some day on: by the word of eve alone, and then by that of ada, too."""
    policy = plain(decline=0.99, theta_low=0.4, confidence=0.95, **TWO)
    store, open_ = (
        filled(make_store(policy=policy)),
        filled(make_store(policy=policy.model_copy(update={"corroborated": False}))),
    )
    for each in (store, open_):
        for by in ("ada", "bob", "eve"):
            votes(each, by, [True] * 40, by=by)
        votes(each, "eve-later", [False] * 40, by="eve")
    assert (status(store), status(open_)) == (Status.ACTIVE, Status.SUPPRESSED)
    votes(store, "ada-later", [False] * 40, by="ada")
    assert status(store) is Status.SUPPRESSED
    assert "declined" in store.history("a")[-1].reason


def test_what_was_rolled_up_is_one_voice_of_its_source(make_store: StoreMaker, clock: Clock):
    store = filled(make_store(policy=plain(**TWO), clock=clock))
    votes(store, "eve", [False] * 10, by="eve")
    clock.forward(days=100)
    assert store.compact(timedelta(days=50)).episodes >= 9
    votes(store, "bob", [False] * 2, by="bob")
    assert status(store) is Status.ACTIVE  # bob's are too few without what was rolled up
    votes(store, "bob-again", [False] * 2, by="bob")
    assert status(store) is Status.SUPPRESSED
    assert_exact(store)


# -- runs that voters do not agree about


def test_a_run_that_voters_differ_about_counts_for_nothing(make_store: StoreMaker, url: str):
    store = filled(make_store(url, policy=plain(max_deviation=0.3)))
    episode(store, "r", k=2)
    store.record_outcome("r", True, source_id="ada")
    before = store.evidence("a")
    assert before.retrievals == 1
    store.record_outcome("r", False, source_id="bob")
    assert (store.run("r").reward, store.evidence("a").retrievals) == (None, 0)
    assert "differ too much" in str(store.explain_run("r"))
    assert_exact(store)
    store.record_outcome("r", 0.5, source_id="bob")  # a deviation of .25
    assert store.run("r").reward == 0.5
    store.record_outcome("r", 0.0, source="evaluator")
    assert store.run("r").reward is None  # other sources differ, too
    store.record_outcome("r", 0.0, source="evaluator", metric="style")
    store.withdraw_outcome("r", source="evaluator")
    assert store.run("r").reward == 0.5  # of another metric nothing counts
    store.withdraw_outcome("r", source_id="bob")
    assert store.evidence("a")[:5] == before[:5]  # but for the surprise: what was expected is anew
    assert_exact(store)


def test_what_is_left_out_is_no_failure(make_store: StoreMaker):
    """Half of the runs are disputed; of the others all but a few go well."""
    store = filled(make_store(policy=plain(v_min=2, max_deviation=0.4, votes="median")))
    for n in range(20):
        episode(store, f"r{n}")
        for judge, good in (("first", n != 6), ("second", n % 2 == 0 and n != 6)):
            store.record_outcome(f"r{n}", good, source="evaluator", source_id=judge)
    assert store.evidence("a").retrievals == 10
    assert store.worth("a") == pytest.approx(0.9)
    assert store.base_rate() == pytest.approx((9 + 1) / (10 + 2))
    assert_exact(store)


# -- who decides


@hypothesis_settings(max_examples=30)
@given(said=st.lists(SAID, max_size=8), metric=st.sampled_from(["", "speed"]))
def test_who_decides_is_who_the_settlement_went_by(said: list, metric: str):
    with MemoryWorthStore(
        "sqlite://", HashedWords(), clock=Clock(), policy=plain(metric=metric)
    ) as store:
        filled(store)
        episode(store, "r")
        for source, source_id, of, outcome in said:
            if outcome is None:
                store.withdraw_outcome("r", source=source, source_id=source_id, metric=of)
            else:
                store.record_outcome("r", outcome, source=source, source_id=source_id, metric=of)
        told = store.explain_run("r").said_by
        assert [s.source for s in store.sources()] == ([] if told is None else [told])


def test_shares_of_sources_and_voters(make_store: StoreMaker, url: str):
    store = filled(make_store(url))
    assert store.sources() == []
    for n in range(8):
        episode(store, f"r{n}")
        store.record_outcome(f"r{n}", True, source="evaluator")
    for n in range(6):  # a user's word goes before an evaluator's
        store.record_outcome(f"r{n}", True, source="user", source_id="ada" if n else "bob")
    first, second = store.sources()
    assert (first.source, first.runs, first.share) == ("user", 6, 0.75)
    assert (first.voters, first.loudest, first.loudest_share) == (2, "ada", 0.625)
    assert (second.source, second.runs, second.loudest) == ("evaluator", 2, "")
    assert (first.is_loud, second.is_loud) == (True, False)
    assert store.health().loud == {"user/ada": 0.625}


@pytest.mark.parametrize(("source", "voter"), [("user", "ada"), ("evaluator", "")])
def test_who_speaks_alone_is_not_too_loud(make_store: StoreMaker, source: str, voter: str):
    store = filled(make_store())
    episode(store, "r")
    store.record_outcome("r", True, source=source, source_id=voter)
    assert not store.sources()[0].is_loud
    assert store.health().loud == {}


# -- revoking


def test_revoking_is_as_if_it_had_never_spoken(
    make_store: StoreMaker, url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lists, "CHUNK", 3)  # so that there are several transactions
    policy = plain(suppress=False)  # or what it said would have changed what was retrieved
    store, without = make_store(url, policy=policy), make_store(policy=policy)
    for each in (store, without):
        filled(each)
        for n in range(10):
            episode(each, f"r{n}", "red" if n % 2 else "green", k=2)
            each.record_outcome(f"r{n}", n % 3 == 0, source="user", source_id=f"v{n % 4}")
            if each is store:
                each.record_outcome(f"r{n}", False, source="bot", source_id="x")
                each.record_outcome(f"r{n}", False, source="user", source_id="liar")
    store.restore("a")
    without.restore("a")
    assert query(store, COUNTERS) != query(without, COUNTERS)
    assert store.revoke_source("user", source_id="liar", actor="eva", reason="spam") == 10
    assert store.revoke_source("bot") == 10
    assert query(store, COUNTERS) == query(without, COUNTERS)
    assert_exact(store)
    assert [s.source for s in store.sources()] == ["user"]
    assert store.revoke_source("bot") == 0  # nothing is left of it


def test_it_is_on_record_and_not_undone(make_store: StoreMaker):
    store = filled(make_store())
    episode(store, "r")
    store.record_outcome("r", False, source="bot")
    store.revoke_source("bot", actor="eva", reason="it is broken")
    action = store.actions()[0]
    assert (action.kind, action.actor) == ("revoke", "eva")
    assert action.reason == "bot: 1 outcomes; it is broken"
    with pytest.raises(InvalidInputError, match="'revoke', which cannot be taken back"):
        store.undo(action)
    assert store.run("r").reward is None
    assert store.record_outcome("r", True, source="bot")  # a new word counts


def test_a_run_whose_id_was_used_again_is_meant_itself(make_store: StoreMaker, url: str):
    from langchain_memoryworth.records import EpisodeKey

    store = filled(make_store(url))
    episode(store, "r")
    store.record_outcome("r", False, source="bot")
    store.governor.journal.begin_again(EpisodeKey("r"))
    episode(store, "r")
    store.record_outcome("r", True, source="user")
    assert store.evidence("a").retrievals == 2
    assert store.revoke_source("bot") == 1
    assert (store.evidence("a").retrievals, store.worth("a")) == (1, 1.0)


async def test_it_has_an_async_twin(make_store: StoreMaker):
    store = filled(make_store())
    episode(store, "r")
    store.record_outcome("r", False, source="bot")
    assert [s.source for s in await store.asources()] == ["bot"]
    assert await store.arevoke_source("bot") == 1


# -- review


def test_one_voice_is_named_and_a_restore_proposed(make_store: StoreMaker, url: str):
    store = filled(make_store(url, policy=FAST.model_copy(update={"v_min": 4.0, "theta_low": 0.6})))
    for n in range(12):
        episode(store, f"r{n}")
    for n in range(12):
        by = "liar" if n % 2 else f"v{n % 3}"
        store.record_outcome(f"r{n}", n % 2 == 0, source="user", source_id=by)
    assert store.memory("a").status is Status.SUPPRESSED
    proposals = {p.why: p for p in store.review()}
    assert set(proposals) == {Why.ONE_VOICE, Why.OVER_SERVED}  # and not LOW as well
    proposal = proposals[Why.ONE_VOICE]
    assert proposal.action == "restore"
    assert proposal.reason.endswith("1.00 over 6 retrievals without the word of user/liar")
    store.decide(proposal, "approve")
    assert store.memory("a").status is Status.ACTIVE


def test_where_all_agree_or_only_one_speaks_nobody_is_accused(make_store: StoreMaker):
    store = filled(make_store(policy=FAST.model_copy(update={"v_min": 4.0})))
    for n in range(12):
        text = "red" if n % 2 else "green"
        episode(store, f"r{n}", text)
        by = f"v{n % 3}" if text == "red" else "ada"
        store.record_outcome(f"r{n}", False, source="user", source_id=by)
    assert {p.why for p in store.review()} == {Why.LOW}
