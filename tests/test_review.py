"""The review queue: what gets in and what does not, in which order, and that a decision is what happens."""

from __future__ import annotations

import pytest

from langchain_memoryworth import MemoryWorthStore, Policy
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.records import Memory, Status
from langchain_memoryworth.service.proposals import SUGGESTION, Proposal, Why
from tests.conftest import StoreMaker
from tests.fakes import assert_exact, execute
from tests.policies import plain

FAST = plain(v_min=4, hysteresis=0.0, exploration=0.0)
NUMBERS = iter(range(10**9))


def run(store: MemoryWorthStore, text: str, rewards: str, k: int = 1, context: str | None = None):
    """Runs that retrieve for a text, `+` with success and `-` without."""
    for sign in rewards:
        name = f"r{next(NUMBERS)}"
        with store.episode(name) as episode:
            store.similarity_search(text, k=k)
        if context is not None:
            execute(
                store,
                "UPDATE exposures SET context = :c WHERE eid = "
                "(SELECT eid FROM episodes WHERE id = :id)",
                c=context,
                id=name,
            )
        episode.record(sign == "+")


def filled(make_store: StoreMaker, url: str = "sqlite://", policy: Policy = FAST):
    store = make_store(url, policy=policy)
    store.add_texts(["red", "green", "blue", "white"], ids=["a", "b", "c", "d"])
    return store


def found(store: MemoryWorthStore) -> set[tuple[Why, str, str | None]]:
    return {(p.why, p.memory_id, p.other_id) for p in store.review()}


def one(store: MemoryWorthStore, why: Why) -> Proposal:
    [proposal] = [p for p in store.review() if p.why is why]
    return proposal


def test_nothing_wants_a_person_in_a_healthy_store(make_store: StoreMaker, url: str):
    store = filled(make_store, url)
    for text in ("red", "green", "blue", "white"):
        run(store, text, "++++-+")
    assert store.review() == []


def test_low_and_not_yet_decided(make_store: StoreMaker, url: str):
    store = filled(make_store, url)
    run(store, "green", "++++")
    run(store, "red", "---")
    proposal = one(store, Why.LOW)
    assert (proposal.memory_id, proposal.action) == ("a", "deprecate")
    assert proposal.policy_action == "suppressed after 1 more retrievals like these"
    assert proposal.evidence == store.evidence("a")
    assert proposal.belief.low < proposal.belief.mean < proposal.belief.high < 0.7
    assert len(proposal.runs) == 3
    assert store.run(proposal.runs[0]).reward == 0.0
    run(store, "red", "-")
    assert store.memory("a").status is Status.SUPPRESSED
    assert one(store, Why.LOW).policy_action == "stays suppressed"
    store.pin("a")
    assert found(store) == set()


def test_stale_was_high_and_is_declining(make_store: StoreMaker, url: str):
    store = filled(make_store, url, plain(v_min=4, suppress=False))
    run(store, "red", "+" * 10 + "-" * 10)
    run(store, "green", "+-" * 10)
    run(store, "blue", "-" * 5 + "+" * 15)
    proposal = one(store, Why.STALE)
    assert (proposal.memory_id, proposal.action) == ("a", "reverify")
    assert proposal.trend == -1.0
    assert "worth 1.00 in its earlier runs, 0.00 in its later ones" in proposal.reason


def test_mixed_across_contexts_where_they_are_recorded(make_store: StoreMaker, url: str):
    store = filled(make_store, url)
    run(store, "red", "++++++++", context="easy")
    run(store, "red", "--------", context="hard")
    run(store, "green", "++++----", context="easy")
    proposal = one(store, Why.MIXED)
    assert proposal.memory_id == "a"
    assert proposal.contexts == {"easy": 1.0, "hard": 0.0}


def test_a_pair_that_nothing_tells_apart(make_store: StoreMaker, url: str):
    store = make_store(url, policy=FAST)
    store.add_texts(["red sun", "red moon", "green sea", "blue sky"], ids=["a", "b", "c", "d"])
    run(store, "red", "+-+-+-+-", k=2)
    run(store, "green sea", "++++++++++")
    proposal = one(store, Why.INDISTINGUISHABLE)
    assert (proposal.memory_id, proposal.other_id) == ("a", "b")
    assert proposal.other_text == "red moon"
    assert proposal.companions == (("b", 8),)
    run(store, "red sun", "++")  # one without the other: 8 of 10 runs
    assert Why.INDISTINGUISHABLE not in {p.why for p in store.review()}


def test_near_duplicates_with_their_summed_evidence(make_store: StoreMaker, url: str):
    store = make_store(url, policy=FAST)
    store.add_texts(["red sun rises now", "sun red now rises", "blue"], ids=["a", "b", "c"])
    run(store, "blue", "++")
    run(store, "red sun rises now", "+-", k=2)
    proposal = one(store, Why.DUPLICATE)
    assert (proposal.memory_id, proposal.other_id, proposal.action) == ("a", "b", "merge")
    assert proposal.evidence == store.evidence("a") + store.evidence("b")
    store.decide(proposal, "approve", actor="eva")
    assert store.memory("a").status is Status.DEPRECATED
    assert store.memory("b").status is Status.ACTIVE
    assert store.history("a")[0].reason.startswith("duplicate #2: ")
    assert Why.DUPLICATE not in {p.why for p in store.review()}


def test_near_duplicates_of_the_most_retrieved_where_all_pairs_are_too_many(
    make_store: StoreMaker, url: str, monkeypatch: pytest.MonkeyPatch
):
    store = make_store(url, policy=FAST)
    pairs = [("red sun rises", "sun rises red"), ("cold blue sea", "sea cold blue")]
    store.add_texts([t for pair in pairs for t in pair], ids=["a", "b", "c", "d"])
    store.add_texts(["green"], ids=["e"])
    duplicates = {(Why.DUPLICATE, "a", "b"), (Why.DUPLICATE, "c", "d")}
    assert found(store) == duplicates
    with store.episode() as episode:
        store.similarity_search("sea cold blue", k=2)
    episode.record(True)
    monkeypatch.setattr("langchain_memoryworth.service.reviewer.MOST_COSINES", 2 * 5 + 4)
    assert found(store) == {(Why.DUPLICATE, "c", "d")}  # c and d with all five
    monkeypatch.setattr("langchain_memoryworth.service.reviewer.MOST_COSINES", 0)
    assert found(store) == {(Why.DUPLICATE, "c", "d")}  # one of them with all five
    monkeypatch.setattr("langchain_memoryworth.service.reviewer.MOST_COSINES", 4 * 5)
    assert found(store) == duplicates


def test_runs_are_read_as_far_back_as_a_review_looks(
    make_store: StoreMaker, monkeypatch: pytest.MonkeyPatch
):
    store = filled(make_store, policy=plain(v_min=4, suppress=False))
    run(store, "red", "+" * 10 + "-" * 10)
    assert one(store, Why.STALE).trend == -1.0
    monkeypatch.setattr("langchain_memoryworth.service.reviewer.LOOK_BACK", 10)
    assert Why.STALE not in {p.why for p in store.review()}  # of these ten all failed


def test_an_older_text_that_a_newer_near_duplicate_contradicts(make_store: StoreMaker):
    store = make_store(policy=plain(v_min=4, suppress=False))
    store.add_texts(["the port is open now", "blue"], ids=["old", "c"])
    run(store, "the port is open now", "-" * 12)
    store.add_texts(["the port open is now"], ids=["new"])
    store.deprecate("old")
    run(store, "the port is open now", "+" * 12)
    store.restore("old")
    proposal = one(store, Why.CONTRADICTED)
    assert (proposal.memory_id, proposal.other_id) == ("old", "new")
    store.decide(proposal, "approve")
    assert store.memory("old").status is Status.DEPRECATED
    assert store.memory("new").status is Status.ACTIVE


def test_over_served_in_most_runs_whatever_they_are_about(make_store: StoreMaker, url: str):
    store = filled(make_store, url)
    run(store, "red", "+-+-+-+-++")
    assert one(store, Why.OVER_SERVED).memory_id == "a"
    run(store, "green", "+-+-+-+-++")
    assert found(store) == set()  # half is not most


def test_the_most_valuable_come_first(make_store: StoreMaker):
    store = make_store(policy=plain(v_min=4, suppress=False))
    store.add_texts(["red", "green", "blue"], ids=["a", "b", "c"])
    run(store, "green", "+" * 30)
    run(store, "red", "-" * 4)
    run(store, "blue", "-" * 16)
    queue = [p for p in store.review() if p.why is Why.LOW]
    assert [p.memory_id for p in queue] == ["c", "a"]  # it costs four times as many runs
    assert [p.value for p in queue] == sorted((p.value for p in queue), reverse=True)
    for p in queue:
        share = p.evidence.retrievals / 50
        pool = 30 / 50
        assert p.value == pytest.approx((pool - p.belief.mean) * share * p.belief.deviation)
    assert len(store.review(1)) == 1


# -- decisions


@pytest.mark.parametrize(
    ("decision", "status"),
    [
        ("approve", Status.DEPRECATED),
        ("deprecate", Status.DEPRECATED),
        ("pin", Status.PINNED),
        ("reject", Status.SUPPRESSED),
    ],
)
def test_a_decision_is_done_and_on_record(
    make_store: StoreMaker, url: str, decision: str, status: Status
):
    store = filled(make_store, url)
    run(store, "red", "----")
    store.decide(one(store, Why.LOW), decision, actor="eva", reason="looked at it")
    assert store.memory("a").status is status
    last = store.history("a")[-1]
    assert (last.actor, last.reason) == ("eva", "low: looked at it")
    assert found(store) == set()
    assert_exact(store)


def test_a_rejected_proposal_comes_back_only_with_new_evidence(make_store: StoreMaker, url: str):
    store = filled(make_store, url, plain(v_min=4, suppress=False))
    run(store, "red", "----")
    run(store, "green", "+" * 6)
    run(store, "white", "+" * 6)
    store.decide(one(store, Why.LOW), "reject")
    assert found(store) == set()
    run(store, "green", "+")
    run(store, "red", "-")
    assert found(store) == set()
    run(store, "red", "-")  # two of four retrievals that a verdict needs
    assert found(store) == {(Why.LOW, "a", None)}


def test_rejecting_one_pair_says_nothing_of_another(make_store: StoreMaker):
    store = make_store(policy=FAST)
    texts = ["red sun rises now", "sun red now rises", "now red sun rises"]
    store.add_texts(texts, ids=["a", "b", "c"])
    pairs = {p for p in found(store) if p[0] is Why.DUPLICATE}
    assert len(pairs) == 3
    first = next(p for p in store.review() if (p.memory_id, p.other_id) == ("a", "b"))
    store.decide(first, "reject")
    assert found(store) == pairs - {(Why.DUPLICATE, "a", "b")}


def test_many_at_once(make_store: StoreMaker):
    store = filled(make_store)
    for text in ("red", "green", "blue"):
        run(store, text, "----")
    run(store, "white", "+" * 9)
    queue = store.review()
    assert {p.memory_id for p in queue} == {"a", "b", "c"}
    store.decide(queue, "approve", actor="eva")
    assert [m.id for m in store.memories("deprecated")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [(True, Status.ACTIVE), (False, Status.DEPRECATED), (None, Status.SUPPRESSED)],
)
def test_the_users_own_check_decides_a_re_verification(
    make_store: StoreMaker, answer: bool | None, status: Status
):
    store = filled(make_store)
    run(store, "red", "----")
    asked: list[Memory] = []

    def verify(memory: Memory) -> bool | None:
        asked.append(memory)
        return answer

    store.decide(one(store, Why.LOW), "reverify", verify=verify)
    assert [(m.id, m.text) for m in asked] == [("a", "red")]
    assert store.memory("a").status is status
    assert "reverify" in [a.kind for a in store.history("a")]
    assert found(store) == set()


def test_a_decision_that_does_not_fit_changes_nothing(make_store: StoreMaker):
    store = filled(make_store)
    run(store, "red", "----")
    proposal = one(store, Why.LOW)
    with pytest.raises(InvalidInputError, match="'kill'; give one of"):
        store.decide(proposal, "kill")
    with pytest.raises(InvalidInputError, match="merging needs two"):
        store.decide(proposal, "merge")
    with pytest.raises(InvalidInputError, match="needs verify="):
        store.decide([proposal], "reverify")
    assert [a.kind for a in store.history("a")] == ["suppress"]


def test_every_reason_has_a_suggestion():
    assert set(SUGGESTION) == set(Why)
