"""Decisions beyond the paper's rule: by bounds, below the base rate, by effect, and never more than a share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from langchain_core.documents import Document
from pydantic import ValidationError

from langchain_memoryworth import MemoryWorthStore, Policy, Status, Verdict
from langchain_memoryworth.errors import InvalidOutcomeError
from langchain_memoryworth.estimators.credible import verdict
from langchain_memoryworth.estimators.effects import STRENGTH
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.records import EpisodeKey
from langchain_memoryworth.service.logs import LogEntry, Retrieved
from tests.fakes import assert_exact, execute, query
from tests.notes import filled, run, suppressed
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]


def counts(good: int, bad: int) -> Evidence:
    n = (good + bad) * UNIT
    return Evidence(good * UNIT, bad * UNIT, n, n, good + bad)


# -- by bounds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("good", "bad"), [(0, 3), (2, 11), (3, 10), (30, 4), (50, 50), (4, 6)])
def test_with_a_confidence_verdicts_are_those_by_bounds(good: int, bad: int) -> None:
    policy = plain(confidence=0.95, v_min=0)
    expected = verdict(good / (good + bad), good + bad, confidence=0.95)
    assert policy.verdict(counts(good, bad)) is expected
    arrays = policy.verdicts(np.array([good / (good + bad)]), np.array([float(good + bad)]))
    assert arrays.tolist() == [expected.value]


def test_chance_alone_hides_less_than_by_the_ratio() -> None:
    """4 failures more than successes in 10 are LOW to the ratio, and no news to the bounds."""
    assert plain().verdict(counts(3, 7)) is Verdict.LOW
    assert plain(confidence=0.95).verdict(counts(3, 7)) is Verdict.UNCERTAIN
    assert plain(confidence=0.95, v_min=20).verdict(counts(0, 10)) is Verdict.UNCERTAIN


def test_what_is_hidden_by_bounds_comes_back_by_bounds(make_store: StoreMaker) -> None:
    store = filled(make_store, 1, plain(confidence=0.95, v_min=0, hysteresis=0.2))
    status = []
    for i in range(14):
        run(store, f"r{i}", ["m0"], i >= 5)
        status.append(store.memory("m0").status)
    first, back = status.index(Status.SUPPRESSED), status.index(Status.ACTIVE, 5)
    policy = store.policy
    assert policy.verdict(counts(0, first + 1)) is Verdict.LOW
    assert policy.verdict(counts(0, first)) is not Verdict.LOW
    # P(p < .4) >= .75 keeps it hidden: the exact cumulative distribution of Beta(1 + s, 6) in scipy's words.
    from scipy.stats import beta

    inside = [beta.cdf(0.4, 1 + s, 6) for s in range(10)]
    assert back == 4 + next(s for s, p in enumerate(inside) if p < 0.75)


# -- flipped outcomes -------------------------------------------------------------------------------------------


def test_verdicts_are_about_the_rate_without_flips() -> None:
    """At .35 with three of ten labels flipped the true rate is .125, and at .65 it is .875."""
    known = plain(flip_rate=0.3)
    assert [known.verdict(counts(g, 20 - g)) for g in (7, 10, 13)] == [
        Verdict.LOW,
        Verdict.MIXED,
        Verdict.HIGH,
    ]
    assert plain().verdict(counts(9, 11)) is Verdict.MIXED  # a true rate of .375
    assert known.verdict(counts(9, 11)) is Verdict.LOW
    bounds = Policy(flip_rate=0.3, margin_low=None)
    assert bounds.verdict(counts(70, 130)) is Verdict.LOW
    assert Policy(margin_low=None).verdict(counts(70, 130)) is not Verdict.LOW
    assert bounds.belief(counts(70, 130)).high < 0.4 < Policy().belief(counts(70, 130)).high
    both = bounds.verdicts(np.array([0.35, 0.65, 0.5]), np.array([200.0, 200.0, 4.0]))
    assert both.tolist() == ["low", "high", "uncertain"]


def test_the_margin_is_below_what_was_to_be_expected_without_flips() -> None:
    """Expected .5, seen .42: .2 below it once three of ten flips are taken out, and .08 as counted."""
    seen = Evidence(84 * UNIT, 116 * UNIT, 200 * UNIT, 200 * UNIT, 200, surprise=-16 * UNIT)
    assert plain(theta_low=0.5, margin_low=0.15).verdict(seen) is not Verdict.LOW
    assert plain(theta_low=0.5, margin_low=0.15, flip_rate=0.3).verdict(seen) is Verdict.LOW


def test_harm_is_as_large_as_it_would_be_without_flips() -> None:
    """Flips of three in ten leave four tenths of an effect: -.03 counted is -.075, beyond a margin of .04."""
    seen = Evidence(
        900_000 * UNIT, 900_000 * UNIT, 10**6 * UNIT, 10**6 * UNIT, 10**6, surprise=-30_000 * UNIT
    )
    fields = {"theta_low": 0.0, "theta_high": 1.0, "harm": 0.95, "harm_margin": 0.04}
    assert plain(**fields).next_status(Status.ACTIVE, seen) is Status.ACTIVE
    known = plain(**fields, flip_rate=0.3)
    assert known.next_status(Status.ACTIVE, seen) is Status.SUPPRESSED


def test_a_store_that_knows_its_flips_hides_the_bad_and_not_the_good(
    make_store: StoreMaker, url: str
) -> None:
    """True rates of .75 and .05 and three labels of ten flipped: .6 and .32 are what is seen."""
    policy = plain(confidence=0.95, flip_rate=0.3, decline=0.99)
    store = filled(make_store, 2, policy, url)
    rng = np.random.default_rng(4)
    for i in range(200):
        success = (rng.random() < (0.05 if i % 2 else 0.75)) ^ (rng.random() < 0.3)
        run(store, f"r{i}", [f"m{i % 2}"], bool(success))
    assert suppressed(store) == {"m1"}
    assert "without flipped outcomes" in str(store.explain("m1"))
    assert "flip_rate 0.3" in store.history("m1")[-1].reason
    assert_exact(store)


def test_a_grade_has_no_other_way_round(make_store: StoreMaker) -> None:
    store = filled(make_store, 1, plain(flip_rate=0.1, metric="solved"))
    run(store, "r0", ["m0"], True)
    before = store.evidence("m0")
    with pytest.raises(InvalidOutcomeError, match=r"0\.7.*flip rate"):
        store.record_outcome("r0", 0.7)
    with pytest.raises(InvalidOutcomeError):
        store.record_outcome("r0", 0.7, metric="solved")
    assert store.evidence("m0") == before
    assert store.record_outcome("r0", 0.7, metric="style")  # kept, and drives nothing
    assert store.evidence("m0") == before


def test_who_has_graded_cannot_begin_to_know_flips(make_store: StoreMaker, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/notes.db"
    store = filled(make_store, 1, plain(), url)
    run(store, "r0", ["m0"], 0.7)
    with pytest.raises(InvalidOutcomeError, match=r"0\.7"):
        make_store(url, policy=plain(flip_rate=0.1))
    assert make_store(url).policy.flip_rate == 0
    store.record_outcome("r0", True)
    assert make_store(url, policy=plain(flip_rate=0.1)).policy.flip_rate == 0.1


def test_no_grade_comes_in_by_an_import(make_store: StoreMaker, tmp_path: Path) -> None:
    graded, file = filled(make_store, 1, plain()), tmp_path / "notes.jsonl"
    run(graded, "r0", ["m0"], 0.7)
    graded.export_file(file)
    store = filled(make_store, 1, plain(flip_rate=0.1))
    with pytest.raises(InvalidOutcomeError, match=r"0\.7"):
        store.import_file(file)
    found = (Retrieved("m0"),)
    entries = [LogEntry("a", found, 1.0), LogEntry("b", found, 0.7)]
    with pytest.raises(InvalidOutcomeError, match=r"0\.7"):
        store.import_log(entries)
    assert store.evidence("m0").retrievals == 0
    assert store.import_log(entries[:1]).outcomes == 1


@pytest.mark.parametrize("rate", [0.5, -0.1, float("nan")])
def test_a_flip_rate_of_a_half_says_nothing(rate: float) -> None:
    with pytest.raises(ValidationError, match="flip_rate"):
        Policy(flip_rate=rate)


# -- below the base rate ----------------------------------------------------------------------------------------


def test_where_tasks_are_hard_nothing_is_hidden_for_it(make_store: StoreMaker, url: str) -> None:
    """Every memory succeeds in 3 of 10 episodes: LOW to the paper, and as good as all others here."""
    for margin, hidden in ((None, 30), (0.1, 0)):
        store = make_store(url if margin else "sqlite://", policy=plain(margin_low=margin))
        store.add_texts([f"note {i}" for i in range(30)], ids=[f"m{i}" for i in range(30)])
        for i in range(300):
            run(store, f"r{i}", [f"m{i % 30}"], (i // 30) in (1, 4, 8))
        assert len(suppressed(store)) == hidden
        assert_exact(store)


def test_an_outage_that_fails_everything_suppresses_nothing(make_store: StoreMaker) -> None:
    hidden = {}
    for margin in (None, 0.15):
        store = filled(make_store, 30, plain(margin_low=margin))
        for i in range(300):  # ten retrievals each, then as many in the outage
            run(store, f"r{i}", [f"m{i % 30}"], i // 30 in (0, 1, 2, 3))
        hidden[margin] = len(suppressed(store))
        for i in range(300, 600):
            run(store, f"r{i}", [f"m{i % 30}"], False)
        assert_exact(store)
        hidden[margin, "outage"] = len(suppressed(store))
    assert hidden == {None: 0, (None, "outage"): 30, 0.15: 0, (0.15, "outage"): 0}


def test_what_fails_while_the_others_succeed_is_hidden(make_store: StoreMaker) -> None:
    store = filled(make_store, 30, plain(margin_low=0.15))
    for i in range(300):
        run(store, f"r{i}", [f"m{i % 30}"], i % 30 != 7 and i % 3 != 0)
    assert suppressed(store) == {"m7"} | {f"m{i}" for i in range(0, 30, 3)}


def test_the_base_rate_of_the_context_counts(make_store: StoreMaker) -> None:
    """In hard tasks 3 of 10 succeed with or without the memory; it was only ever asked there."""
    store = filled(make_store, 20, plain(margin_low=0.1))
    for i in range(400):
        hard = i % 2 == 0
        memory = f"m{(i // 2) % 10 + (0 if hard else 10)}"
        key = EpisodeKey(f"r{i}", context="hard" if hard else "easy")
        store.governor.journal.expose_documents(key, [Document("", id=memory)])
        store.record_outcome(f"r{i}", (i // 20) % 10 in (1, 4, 8) if hard else True)
    assert suppressed(store) == set()


def test_another_policy_judges_by_the_base_rate_too(make_store: StoreMaker, file_url: str) -> None:
    store = filled(make_store, 30, plain(suppress=False), file_url)
    for i in range(300):
        run(store, f"r{i}", [f"m{i % 30}"], (i // 30) in (1, 4, 8))
    store.close()
    assert len(suppressed(make_store(file_url, policy=plain(margin_low=0.1)))) == 0
    assert len(suppressed(make_store(file_url, policy=plain()))) == 30


# -- by effect --------------------------------------------------------------------------------------------------


def test_a_memory_that_does_harm_is_found_among_its_companions(
    make_store: StoreMaker, url: str
) -> None:
    """`bad` fails every second episode that would succeed; its companions share the blame only in their ratio."""
    store = make_store(url, policy=plain(harm=0.95, suppress=True, theta_low=0.0, theta_high=0.6))
    store.add_texts(["a", "b", "c", "bad"], ids=["a", "b", "c", "bad"])
    for i in range(200):
        ids = ["a", "b", "c"]
        if i % 2:
            ids[i // 2 % 3] = "bad"
        run(store, f"r{i}", ids, "bad" not in ids or i % 4 == 1)
    assert suppressed(store) == {"bad"}
    assert "effect -0." in store.history("bad")[-1].reason
    assert_exact(store)


def test_without_companions_or_contexts_an_average_memory_has_no_effect(
    make_store: StoreMaker,
) -> None:
    store = filled(make_store, 20, plain(harm=0.9, theta_low=0.0))
    for i in range(400):
        run(store, f"r{i}", [f"m{i % 20}"], (i // 20) % 5 < 2)
    assert suppressed(store) == set()


def test_a_correction_takes_back_the_surprise_exactly(make_store: StoreMaker, url: str) -> None:
    store = filled(make_store, 6, plain(suppress=False), url)
    rng = np.random.default_rng(3)
    for i in range(60):
        ids = [f"m{j}" for j in rng.choice(6, 3, replace=False)]
        run(store, f"r{i}", ids, float(rng.random() < 0.6))
    before = {f"m{j}": store.evidence(f"m{j}") for j in range(6)}
    store.record_outcome("r10", 0.25)
    store.record_outcome("r59", 0.75)
    assert_exact(store)
    store.withdraw_outcome("r59")
    assert_exact(store)
    store.record_outcome("r59", 0.0)
    assert {m: store.evidence(m) for m in before} != before
    assert_exact(store)


def test_a_batch_learns_in_order(make_store: StoreMaker) -> None:
    """Several outcomes at once are met by what the ones before them taught, as one by one."""
    one, many = (filled(make_store, 4, plain(suppress=False)) for _ in range(2))
    said = []
    for i in range(40):
        ids = [Document("", id=f"m{i % 4}"), Document("", id=f"m{(i + 1) % 4}")]
        for store in (one, many):
            store.governor.journal.expose_documents(EpisodeKey(f"r{i}"), ids)
        said.append((f"r{i}", i % 3 > 0))
    for run_id, outcome in said:
        one.record_outcome(run_id, outcome)
    many.record_outcomes(said)
    assert [one.evidence(f"m{i}") for i in range(4)] == [many.evidence(f"m{i}") for i in range(4)]
    assert_exact(many)


# -- never more than a share ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "share", "most"), [(40, 0.25, 10), (20, 0.01, 1), (19, 0.5, 0)])
def test_the_policy_suppresses_a_share_at_most(
    make_store: StoreMaker, count: int, share: float, most: int
) -> None:
    store = filled(make_store, count, plain(max_suppressed=share, v_min=3))
    for i in range(4 * count):
        run(store, f"r{i}", [f"m{i % count}"], False)
    assert len(suppressed(store)) == most
    assert_exact(store)


def test_a_place_that_is_given_back_is_taken_again(make_store: StoreMaker) -> None:
    """By a restored memory, a deleted one, and one that was suppressed when its text left and came back."""
    store = filled(make_store, 40, plain(max_suppressed=0.0555, v_min=3))  # two of 37 to 54

    def fail(*ids: str) -> None:
        for i in range(3):
            for id_ in ids:
                run(store, f"{id_} {i} {store.evidence(id_).retrievals}", [id_], False)

    fail("m0", "m1", "m2")
    assert suppressed(store) == {"m0", "m1"}
    store.restore("m0")
    fail("m3")
    assert suppressed(store) == {"m1", "m3"}
    store.delete(["m1"])
    fail("m4")
    assert suppressed(store) == {"m3", "m4"}
    [text] = [m.text for m in store.memories() if m.id == "m3"]
    store.add_texts(["another text"], ids=["m3"])
    fail("m5")
    assert suppressed(store) == {"m4", "m5"}
    store.add_texts([text], ids=["m3"])  # it comes back as it stood
    fail("m6")
    assert suppressed(store) == {"m3", "m4", "m5"}
    store.erase(["m4", "m5"])
    fail("m6")
    assert suppressed(store) == {"m3", "m6"}
    assert_exact(store)


def test_what_is_unpinned_is_left_to_all_that_the_policy_says(make_store: StoreMaker) -> None:
    """To the share of the namespace, and to whether one voter alone is enough."""
    store = filled(make_store, 20, plain(max_suppressed=0.1, v_min=1))
    for i in range(5):
        store.pin(f"m{i}")
        run(store, f"r{i}", [f"m{i}"], False)
    store.unpin([f"m{i}" for i in range(5)])
    assert suppressed(store) == {"m0", "m1"}
    assert_exact(store)
    careful = filled(make_store, 20, plain(corroborated=True, v_min=1))
    careful.pin("m0")
    run(careful, "r", ["m0"], False)
    careful.unpin("m0")
    assert suppressed(careful) == set()


def test_an_outcome_for_a_memory_whose_namespace_has_none_left(make_store: StoreMaker) -> None:
    store = filled(make_store, 20, plain(max_suppressed=0.5, v_min=1))
    store.governor.journal.expose_documents(EpisodeKey("late"), [Document("", id="m0")])
    store.delete([f"m{i}" for i in range(19)])
    store.erase(["m19"])
    store.record_outcome("late", False)
    assert query(store, "SELECT status FROM evidence WHERE seq = 1") == [("active",)]
    assert_exact(store)


def test_a_miscount_is_said(make_store: StoreMaker) -> None:
    store = filled(make_store, 20, plain())
    assert store.governor.steward.check() == []
    execute(store, "UPDATE populations SET live = live + 1")
    [problem] = store.governor.steward.check()
    assert "live=21" in problem
    assert "live=20" in problem


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("confidence", 0.5),
        ("confidence", 1.0),
        ("harm", 0.4),
        ("margin_low", -0.1),
        ("max_suppressed", 1.1),
        ("hold_out", 1.0),
    ],
)
def test_wrong_rules(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match=field):
        plain(**{field: value})


def test_the_paper_is_the_paper() -> None:
    """Its three numbers by the ratio alone; whatever else a policy can do is off."""
    expected = {
        "theta_high": 0.60,
        "theta_low": 0.40,
        "v_min": 10,
        "confidence": None,
        "margin_low": None,
        "harm": None,
        "decline": None,
        "max_suppressed": 1.0,
        "effect_weight": 0.0,
        "hysteresis": 0.0,
        "exploration": 0.0,
        "uncertain": "worth",
        "rank": (1.0, 0.0, 0.0),
        "hold_out": 0.0,
        "diversity_floor": 0.0,
    }
    paper = Policy.paper()
    assert {name: getattr(paper, name) for name in expected} == expected
    assert Policy.paper(rank=(0.6, 0.4)).rank == (0.6, 0.4, 0.0)


# -- ranking by effect ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["flat", "pgvector"])
@pytest.mark.parametrize("optimism", [0.5, -1.0])
def test_the_ranking_by_effect_is_exact(
    make_store: StoreMaker, index: str, optimism: float, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres") if index == "pgvector" else "sqlite://"
    policy = plain(
        effect_weight=2.0, effect_reach=0.1, optimism=optimism, suppress=False, exploration=0.0
    )
    store = make_store(url, policy=policy, index=index)
    texts = [f"tea note {i % 7} word{i}" for i in range(40)]
    store.add_texts(texts, ids=[f"m{i}" for i in range(40)])
    rng = np.random.default_rng(5)
    for i in range(120):
        ids = [f"m{j}" for j in rng.choice(40, 4, replace=False)]
        run(store, f"r{i}", ids, float(rng.random() < 0.2 + 0.6 * ("m3" in ids)))
    query = np.array(store.governor.embedding.embed_query("tea note 3"))
    query /= np.linalg.norm(query)
    expected = {}
    for memory in store.memories():
        vector = np.array(store.governor.embedding.embed_query(memory.text))
        e, n = memory.evidence, memory.evidence.size / UNIT
        effect = min(0.05, max(-0.05, (e.surprise / UNIT) / (n + STRENGTH)))
        bonus = 2.0 * (effect + optimism * np.sqrt(0.25 / (n + STRENGTH)))
        expected[memory.id] = query @ vector / np.linalg.norm(vector) + bonus
    best = sorted(expected, key=expected.get, reverse=True)[:10]
    hits = store.governor.retrieval.recall_by_vector(query, 10, track=False)
    assert [h.id for h in hits] == best
    assert [h.score for h in hits] == pytest.approx([expected[m] for m in best], abs=1e-5)


@pytest.mark.parametrize("theta", [0.4, 0.5, 0.7, 0.9])
def test_the_status_is_that_of_the_verdict(theta: float) -> None:
    """The short cut for the usual case never skips a LOW."""
    policy = plain(confidence=0.8, v_min=0, theta_low=theta, theta_high=0.95)
    for good in range(12):
        for bad in range(12):
            low = policy.verdict(counts(good, bad)) is Verdict.LOW
            expected = Status.SUPPRESSED if low else Status.ACTIVE
            assert policy.next_status(Status.ACTIVE, counts(good, bad)) is expected
