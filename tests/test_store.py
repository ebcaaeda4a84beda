"""The store: evidence follows the text, k active memories are served, the ranking is exact, and people have the last word."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_memoryworth import (
    Evidence,
    MemoryWorthStore,
    Outcome,
    Shown,
    Status,
    Verdict,
)
from langchain_memoryworth.errors import (
    EmbeddingMismatchError,
    InvalidCreditError,
    InvalidInputError,
    InvalidOutcomeError,
    MemoryNotFoundError,
    StoreClosedError,
    UnknownRunError,
)
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.records import Arm, EpisodeKey
from tests.fakes import (
    Clock,
    HashedWords,
    assert_exact,
    assert_is_top,
    brute,
    counters,
    dump,
    fold_of_ledger,
    live,
    query,
    unit,
)
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]
ROOT = Path(__file__).resolve().parents[1]
EAGER = plain(v_min=3, exploration=0.0)
"""Judges after three retrievals, so that a test needs only a few episodes."""


def show(store: MemoryWorthStore, episode_id: str, *ids: str, **options: Any) -> list[str]:
    """Retrieve exactly these memories in an episode, as far as they are active."""
    ((width,),) = query(store, "SELECT MAX(LENGTH(vector)) / 4 FROM memories")
    with store.episode(episode_id):
        found = store.similarity_search_by_vector(
            [1.0] * int(width), k=len(ids), filter=lambda d: d.id in ids, **options
        )
    return [str(d.id) for d in found]


def settle(store: MemoryWorthStore, outcomes: list[bool], *ids: str, **options: Any) -> None:
    for outcome in outcomes:
        episode_id = str(uuid4())
        assert sorted(show(store, episode_id, *ids, **options)) == sorted(ids)
        store.record_outcome(episode_id, outcome)


def suppress(store: MemoryWorthStore, *ids: str) -> None:
    """Let memories fail, each alone, until they are held back."""
    for id_ in ids:
        settle(store, [False] * int(store.policy.v_min), id_)
    held = {m.id for m in store.suppressed()}
    assert set(ids) <= held


def ids_of(documents: list[Document]) -> list[str]:
    return [str(d.id) for d in documents]


def basis(i: int, d: int = 8) -> list[float]:
    return np.eye(d)[i].tolist()


# -- evidence belongs to the text -----------------------------------------------------------------------------------


def test_a_changed_text_starts_fresh_and_the_old_one_finds_its_evidence(
    store: MemoryWorthStore,
) -> None:
    store.add_texts(["version a"], ids=["m"])
    settle(store, [True, True, False], "m")
    of_a = store.evidence("m")
    assert of_a._replace(surprise=0) == Evidence(2 * UNIT, UNIT, 3 * UNIT, 3 * UNIT, 3)
    store.add_texts(["version b"], ids=["m"])
    assert store.evidence("m") == Evidence()
    assert [d.page_content for d in store.get_by_ids(["m"])] == ["version b"]
    settle(store, [False], "m")
    of_b = store.evidence("m")
    store.add_texts(["version a"], ids=["m"])
    assert store.evidence("m") == of_a
    store.add_texts(["version b"], ids=["m"])
    assert store.evidence("m") == of_b
    assert store.health().memories == 1
    assert len(store.similarity_search("version", k=9)) == 1
    assert_exact(store)


def test_metadata_alone_keeps_evidence(store: MemoryWorthStore) -> None:
    store.add_texts(["same"], [{"v": 1}], ids=["m"])
    settle(store, [True], "m")
    before = store.memory("m")
    store.add_texts(["same"], [{"v": 2, "deep": {"list": [1, None, "ü"]}}], ids=["m"])
    after = store.memory("m")
    assert after.evidence == before.evidence != Evidence()
    assert after.metadata == {"v": 2, "deep": {"list": [1, None, "ü"]}}
    assert after.added_at == before.added_at
    (document,) = store.similarity_search("same", k=1)
    assert document.metadata == after.metadata


def test_delete_and_re_add_finds_evidence_and_status(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(["bad", "good"], ids=["bad", "good"])
    suppress(store, "bad")
    evidence = store.evidence("bad")
    store.delete(["bad"])
    with pytest.raises(MemoryNotFoundError):
        store.evidence("bad")
    assert store.suppressed() == []
    assert store.get_by_ids(["bad"]) == []
    store.add_texts(["bad"], ids=["bad"])
    assert store.evidence("bad") == evidence
    assert [m.id for m in store.suppressed()] == ["bad"]
    assert ids_of(store.similarity_search("bad", k=2)) == ["good"]


def test_deleting_all_keeps_other_namespaces_and_the_evidence(store: MemoryWorthStore) -> None:
    store.add_texts(["one", "two"], ids=["1", "2"])
    store.add_texts(["one"], ids=["1"], namespace="other")
    settle(store, [True], "1")
    store.delete()
    assert store.similarity_search("one", k=9) == []
    assert ids_of(store.similarity_search("one", k=9, namespace="other")) == ["1"]
    store.add_texts(["one"], ids=["1"])
    assert store.worth("1") == 1.0


def test_deleting_nothing_deletes_nothing(store: MemoryWorthStore) -> None:
    store.add_texts(["one"], ids=["1"])
    store.delete([])
    store.delete(["unknown"])
    assert store.health().memories == 1


def test_a_pending_outcome_settles_on_the_version_that_was_shown(store: MemoryWorthStore) -> None:
    store.add_texts(["version a"], ids=["m"])
    show(store, "run", "m")
    store.add_texts(["version b"], ids=["m"])
    store.record_outcome("run", False)
    assert store.evidence("m") == Evidence()
    store.add_texts(["version a"], ids=["m"])
    assert store.evidence("m") == Evidence(0, UNIT, UNIT, UNIT, 1, -UNIT // 2)


def test_a_pending_outcome_settles_on_a_deleted_memory(store: MemoryWorthStore) -> None:
    store.add_texts(["text"], ids=["m"])
    show(store, "run", "m")
    store.delete(["m"])
    assert store.record_outcome("run", True)
    store.add_texts(["text"], ids=["m"])
    assert store.worth("m") == 1.0


def test_two_versions_in_one_episode_share_it(store: MemoryWorthStore) -> None:
    store.add_texts(["version a"], ids=["m"])
    show(store, "run", "m")
    store.add_texts(["version b"], ids=["m"])
    show(store, "run", "m")
    store.record_outcome("run", True)
    assert store.evidence("m").hits_positive == 0.5
    assert [e.memory_id for e in store.run("run").exposures] == ["m", "m"]
    assert_exact(store)


def test_missing_ids_are_a_hash_of_namespace_and_text(store: MemoryWorthStore) -> None:
    (first,) = store.add_texts(["text"])
    assert store.add_texts(["text", "text"]) == [first, first]
    assert store.health().memories == 1
    (other,) = store.add_texts(["text"], namespace="other")
    (changed,) = store.add_texts(["Text"])
    assert len({first, other, changed}) == 3


def test_ids_and_hashes_may_be_mixed(store: MemoryWorthStore) -> None:
    given = store.add_texts(["a", "b"], ids=["mine", None])  # type: ignore[list-item]
    assert given[0] == "mine"
    assert [d.page_content for d in store.get_by_ids(given)] == ["a", "b"]


def test_an_id_repeated_in_a_batch_is_its_last_text(store: MemoryWorthStore) -> None:
    texts = ["first text", "other text", "second text", "third text"]
    metadatas = [{"n": n} for n in range(4)]
    given = store.add_texts(texts, metadatas, ids=["m", "n", "m", "m"])
    assert given == ["m", "n", "m", "m"]
    assert [(d.page_content, d.metadata) for d in store.get_by_ids(["m", "n"])] == [
        ("third text", {"n": 3}),
        ("other text", {"n": 1}),
    ]
    # no vector was shifted
    for text, id_ in (("third text", "m"), ("other text", "n")):
        ((document, similarity),) = store.similarity_search_with_score(text, k=1)
        assert document.id == id_
        assert similarity == pytest.approx(1.0, abs=1e-6)


def test_there_and_back_in_one_batch_keeps_evidence(store: MemoryWorthStore) -> None:
    store.add_texts(["a"], ids=["m"])
    settle(store, [True], "m")
    store.add_texts(["b", "a"], ids=["m", "m"])
    assert store.worth("m") == 1.0
    assert store.health().memories == 1


def test_a_new_vector_for_the_same_text_is_used(store: MemoryWorthStore) -> None:
    store.add_embeddings([("t", basis(0)), ("u", basis(1))], ids=["t", "u"])
    assert ids_of(store.similarity_search_by_vector(basis(0), k=1)) == ["t"]
    store.add_embeddings([("t", basis(2))], ids=["t"])
    assert ids_of(store.similarity_search_by_vector(basis(2), k=1)) == ["t"]
    assert ids_of(store.similarity_search_by_vector(basis(1), k=1)) == ["u"]


@pytest.mark.parametrize(
    "text", ["", " ", "a\x00b", "emoji 🎲", "line\nbreak", "x" * 100_000, "'; --"]
)
def test_any_text_comes_back_as_it_was(store: MemoryWorthStore, text: str) -> None:
    (id_,) = store.add_embeddings([(text, basis(0))], [{"k\x00": text}])
    (document,) = store.get_by_ids([id_])
    assert document.page_content == text
    assert document.metadata == {"k\x00": text}
    assert store.similarity_search_by_vector(basis(0), k=1) == [document]


# -- namespaces -----------------------------------------------------------------------------------------------------

NAMESPACES = [
    (),
    ("acme",),
    ("acme-corp",),
    ("acme", "corp"),
    ("acm",),
    ("a_b",),
    ("axb",),
    ("a%",),
    ("a", "b"),
    ('a", "b',),
    ("ACME",),
    ("[]",),
    ("ü",),
    ("a.b",),
    ("a/b",),
]


def test_namespaces_are_compared_by_whole_segments(store: MemoryWorthStore) -> None:
    for n, namespace in enumerate(NAMESPACES):
        store.add_texts([f"text {n}", f"shared {n}"], ids=["only", f"id{n}"], namespace=namespace)
    assert store.health().memories == 2 * len(NAMESPACES)
    for n, namespace in enumerate(NAMESPACES):
        found = store.similarity_search("text shared", k=99, namespace=namespace)
        assert sorted(d.page_content for d in found) == [f"shared {n}", f"text {n}"]
        (document,) = store.get_by_ids(["only"], namespace=namespace)
        assert document.page_content == f"text {n}"


def test_a_string_is_one_segment(store: MemoryWorthStore) -> None:
    store.add_texts(["text"], ids=["m"], namespace="acme")
    assert ids_of(store.similarity_search("text", namespace=("acme",))) == ["m"]


def test_one_id_in_two_namespaces_has_two_evidences(store: MemoryWorthStore) -> None:
    store.add_texts(["text"], ids=["m"], namespace="a")
    store.add_texts(["text"], ids=["m"], namespace="b")
    settle(store, [True], "m", namespace="a")
    settle(store, [False], "m", namespace="b")
    assert store.worth("m", namespace="a") == 1.0
    assert store.worth("m", namespace="b") == 0.0
    store.pin("m", namespace="a")
    store.delete(["m"], namespace="b")
    assert store.memory("m", namespace="a").status is Status.PINNED
    with pytest.raises(MemoryNotFoundError):
        store.memory("m", namespace="b")
    with pytest.raises(MemoryNotFoundError):
        store.memory("m")


def test_a_document_of_another_retriever_is_taken_from_the_stores_own_namespace(
    make_store: StoreMaker, url: str
) -> None:
    store = make_store(url, namespace="mine")
    store.add_texts(["t", "u"], ids=["both", "here"])
    store.add_texts(["t", "v", "w"], ids=["both", "there", "twice"], namespace="other")
    store.add_texts(["w"], ids=["twice"], namespace="third")
    documents = [Document("x", id=i) for i in ("both", "here", "there", "twice", "no", None)]
    store.governor.journal.expose_documents(EpisodeKey("run"), documents)
    store.record_outcome("run", True)
    # `twice` stands in two namespaces, neither of them the store's: nobody can say which was meant.
    assert {e.memory_id for e in store.run("run").exposures} == {"both", "here", "there"}
    assert store.worth("both") == 1.0
    assert store.evidence("both", namespace="other") == Evidence()
    assert store.evidence("there", namespace="other").retrievals == 1


def test_suppression_in_one_namespace_does_not_reach_another(
    make_store: StoreMaker, url: str
) -> None:
    store = make_store(url, policy=EAGER)
    for namespace in ("a", "b"):
        store.add_texts(["text"], ids=["m"], namespace=namespace)
    settle(store, [False] * 3, "m", namespace="a")
    assert [m.id for m in store.suppressed(namespace="a")] == ["m"]
    assert store.suppressed(namespace="b") == []
    assert store.similarity_search("text", namespace="a") == []
    assert len(store.similarity_search("text", namespace="b")) == 1


# -- filters --------------------------------------------------------------------------------------------------------


@pytest.fixture
def library(store: MemoryWorthStore) -> MemoryWorthStore:
    rng = np.random.default_rng(7)
    n = 2_000
    vectors = rng.standard_normal((n, 16))
    metadatas = [
        {"n": i, "lang": "en" if i % 3 else "de", "rare": i in (3, 1_234, 1_999), "s": str(i)}
        for i in range(n)
    ]
    metadatas[0]["extra"] = None
    store.add_embeddings(
        [(f"text {i}", v) for i, v in enumerate(vectors)], metadatas, ids=[str(i) for i in range(n)]
    )
    return store


FILTERS: list[tuple[Any, Callable[[dict[str, Any]], bool]]] = [
    ({"lang": "de"}, lambda m: m["lang"] == "de"),
    ({"lang": "de", "n": {"$lt": 100}}, lambda m: m["lang"] == "de" and m["n"] < 100),
    ({"n": {"$gte": 10, "$lte": 12}}, lambda m: 10 <= m["n"] <= 12),
    ({"n": {"$gt": 10, "$ne": 1_500}}, lambda m: m["n"] > 10 and m["n"] != 1_500),
    ({"n": {"$in": [5, 6, 1_700]}}, lambda m: m["n"] in (5, 6, 1_700)),
    ({"lang": {"$nin": ["de"]}}, lambda m: m["lang"] != "de"),
    ({"n": {"$eq": 1_999}}, lambda m: m["n"] == 1_999),
    ({"s": {"$gt": 5}}, lambda m: False),  # a string and a number do not compare
    ({"extra": None}, lambda m: "extra" in m),
    ({"absent": {"$ne": 1}}, lambda m: False),
    ({"rare": True}, lambda m: m["rare"]),
    ({}, lambda m: True),
    (lambda d: d.metadata["n"] % 7 == 0, lambda m: m["n"] % 7 == 0),
    (lambda d: d.page_content == "text 77", lambda m: m["n"] == 77),
    (lambda d: d.id == "1999", lambda m: m["n"] == 1_999),
]


def test_filters_return_the_k_nearest_that_match(library: MemoryWorthStore) -> None:
    rows = live(library)
    metadata = {d.id: d.metadata for d in library.get_by_ids([r.id for r in rows])}
    rng = np.random.default_rng(8)
    for filter_, matches in FILTERS:
        vector = unit(rng.standard_normal(16))
        scores = {r.id: float(r.vector @ vector) for r in rows if matches(metadata[r.id])}
        for k in (1, 10):
            found = library.similarity_search_by_vector(vector.tolist(), k=k, filter=filter_)
            assert_is_top(ids_of(found), scores, k)


def test_a_filter_and_a_floor_together(library: MemoryWorthStore) -> None:
    vector = unit(np.random.default_rng(9).standard_normal(16))
    scores = {r.id: float(r.vector @ vector) for r in live(library) if int(r.id) % 3 == 0}
    above = {i: s for i, s in scores.items() if s >= 0.3}
    assert 10 < len(above) < len(scores)
    found = library.similarity_search_by_vector(
        vector.tolist(), k=500, filter={"lang": "de"}, min_similarity=0.3
    )
    assert_is_top(ids_of(found), above, 500)


def test_a_filter_sees_changed_metadata(store: MemoryWorthStore) -> None:
    store.add_texts(["text"], [{"v": 1}], ids=["m"])
    assert store.similarity_search("text", filter={"v": 1})
    store.add_texts(["text"], [{"v": 2}], ids=["m"])
    assert store.similarity_search("text", filter={"v": 1}) == []
    assert ids_of(store.similarity_search("text", filter={"v": 2})) == ["m"]


def test_mmr_keeps_filters_and_suppression(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(
        ["red apple", "red apple pie", "green pear", "red plum"],
        [{"n": n} for n in range(4)],
        ids=["0", "1", "2", "3"],
    )
    suppress(store, "1")
    found = store.max_marginal_relevance_search(
        "red apple", k=2, fetch_k=4, lambda_mult=0.1, filter={"n": {"$lt": 3}}
    )
    assert ids_of(found) == ["0", "2"]


# -- k active memories ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["flat", "hnsw", "flat-fp16", "hnsw-fp16"])
def test_k_active_are_returned_however_many_suppressed_are_nearer(
    make_store: StoreMaker, url: str, index: str
) -> None:
    store = make_store(url, policy=plain(v_min=1, exploration=0.0), index=index)
    near = [(f"near {i}", [1.0, 0.001 * i, 0.0]) for i in range(200)]
    far = [(f"far {i}", [-1.0, 0.001 * i, 0.1]) for i in range(5)]
    store.add_embeddings(near, ids=[f"n{i}" for i in range(200)])
    store.add_embeddings(far, ids=[f"f{i}" for i in range(5)])
    store.add_embeddings(near, ids=[f"n{i}" for i in range(200)], namespace="other")
    for i in range(0, 200, 50):
        part = [f"n{j}" for j in range(i, i + 50)]
        settle(store, [False], *part)
    assert len(store.suppressed()) == 200
    for k in (1, 4, 5, 9):
        found = ids_of(store.similarity_search_by_vector([1.0, 0.0, 0.0], k=k))
        assert len(found) == min(k, 5)
        assert set(found) <= {f"f{i}" for i in range(5)}
    assert len(store.similarity_search_by_vector([1.0, 0.0, 0.0], k=9, namespace="other")) == 9


def test_an_empty_store_finds_nothing(store: MemoryWorthStore) -> None:
    assert store.similarity_search("anything") == []
    assert store.similarity_search("anything", namespace="nowhere") == []
    assert store.max_marginal_relevance_search("anything") == []
    assert store.explain_search("anything").served == ()
    assert store.suppressed() == []
    assert store.get_by_ids(["m"]) == []
    assert store.add_texts([]) == []
    store.add_texts(["text"])
    assert store.similarity_search("anything", namespace="nowhere") == []


# -- ranking --------------------------------------------------------------------------------------------------------


def test_a_pool_is_of_what_is_in_service(make_store: StoreMaker, url: str, clock: Clock) -> None:
    """What was deleted, deprecated or is past its time has no say in the worth of those without a verdict, as if loaded anew."""
    policy = plain(v_min=100, uncertain="pool", exploration=0.0, rank=(0.0, 1.0))
    store = make_store(url, policy=policy)
    store.add_texts(["blue one", "blue two", "blue three", "blue"], ids=["good", "out", "old", "m"])
    store.add_texts(["blue short"], ids=["short"], ttl=timedelta(days=1))
    settle(store, [True], "good")
    for id_ in ("out", "old", "short"):
        settle(store, [False], id_)

    def score() -> float:
        hits = store.governor.retrieval.recall("blue", 9, track=False)
        return next(h.score for h in hits if h.id == "m")

    assert score() == pytest.approx(1 / 4)
    store.delete(["out"])
    assert score() == pytest.approx(1 / 3)
    store.deprecate("old")
    assert score() == pytest.approx(1 / 2)
    clock.forward(days=2)
    assert score() == pytest.approx(1.0)


@pytest.mark.parametrize("uncertain", ["worth", "prior", "pool"])
@pytest.mark.parametrize("index", ["flat", "hnsw"])
def test_the_ranking_is_that_of_brute_force(
    make_store: StoreMaker, url: str, clock: Clock, uncertain: Any, index: str
) -> None:
    policy = plain(
        v_min=4,
        uncertain=uncertain,
        prior=0.35,
        exploration=0.0,
        rank=(0.6, 0.4),  # type: ignore[arg-type]
        recency_half_life=timedelta(days=5),
    )
    store = make_store(url, policy=policy, index=index)
    rng = np.random.default_rng(10)
    n = 120
    for i in range(n):
        clock.forward(days=float(rng.uniform(0, 0.5)))
        store.add_embeddings([(f"t{i}", rng.standard_normal(12))], ids=[str(i)])
    quality = rng.random(n)
    ranks = [(1.0, 0.0, 0.0), (0.6, 0.4, 0.0), (0.2, 0.8, 0.3), (0.0, 1.0, 0.0), (0.3, 0.0, 2.0)]
    for step in range(90):
        vector = unit(rng.standard_normal(12))
        rank = ranks[step % len(ranks)]
        floor = 0.1 if step % 3 == 0 else None
        scores, similarities = brute(store, vector, rank, now=clock.now, floor=floor)
        episode_id = f"e{step}"
        with store.episode(episode_id):
            hits = store.governor.retrieval.recall_by_vector(
                vector, 6, rank=rank, min_similarity=floor
            )
        assert_is_top([h.id for h in hits], scores, 6)
        np.testing.assert_allclose([h.score for h in hits], [scores[h.id] for h in hits], atol=2e-6)
        np.testing.assert_allclose(
            [h.similarity for h in hits], [similarities[h.id] for h in hits], atol=2e-6
        )
        if hits:
            share = np.mean([quality[int(h.id)] for h in hits])
            store.record_outcome(episode_id, float(share))
        clock.forward(days=0.2)
    assert store.suppressed()
    assert {Verdict.UNCERTAIN, Verdict.LOW} < {
        m.verdict for m in map(store.memory, map(str, range(n)))
    }
    assert_exact(store)


def test_recency_stays_exact_over_hundreds_of_half_lives(
    make_store: StoreMaker, clock: Clock
) -> None:
    policy = plain(recency_half_life=timedelta(hours=1), exploration=0.0)
    store = make_store(policy=policy)
    for i in range(8):
        store.add_embeddings([(f"t{i}", basis(i))], ids=[str(i)])
        vector = unit([1.0] * 8)
        scores, _ = brute(store, vector, (0.1, 0.0, 1.0), now=clock.now)
        hits = store.governor.retrieval.recall_by_vector(vector, 8, rank=(0.1, 0.0, 1.0))
        assert_is_top([h.id for h in hits], scores, 8)
        clock.forward(days=1 + 2 * i)


def test_per_call_rank_overrules_the_policys(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=plain(v_min=1, uncertain="worth", exploration=0.0))
    store.add_embeddings([("near", [1, 0]), ("far", [0, 1])], ids=["near", "far"])
    settle(store, [True], "far")
    settle(store, [True, False], "near")
    query_ = [1.0, 0.1]
    assert ids_of(store.similarity_search_by_vector(query_, k=1)) == ["near"]
    assert ids_of(store.similarity_search_by_vector(query_, k=1, rank=(0.1, 0.9))) == ["far"]
    ((_, similarity),) = [
        (h.id, h.similarity)
        for h in store.governor.retrieval.recall_by_vector(query_, 1, rank=(0, 1))
    ]
    assert similarity == pytest.approx(0.1 / np.hypot(1, 0.1), abs=1e-6)


def test_scores_have_one_direction(store: MemoryWorthStore) -> None:
    store.add_embeddings([("p", [2, 0]), ("q", [1, 1]), ("o", [-3, 0])], ids=["p", "q", "o"])
    hits = store.governor.retrieval.recall_by_vector([5.0, 0.0], 3)
    assert [h.id for h in hits] == ["p", "q", "o"]
    np.testing.assert_allclose([h.similarity for h in hits], [1, 0.5**0.5, -1], atol=1e-6)


def test_relevance_is_one_plus_cosine_over_two(store: MemoryWorthStore) -> None:
    store.add_texts(["apple", "pear plum", "apple pie"])
    with_cosine = store.similarity_search_with_score("apple", k=3)
    with_relevance = store.similarity_search_with_relevance_scores("apple", k=3)
    assert [d for d, _ in with_relevance] == [d for d, _ in with_cosine]
    for (_, relevance), (_, cosine) in zip(with_relevance, with_cosine, strict=True):
        assert relevance == pytest.approx((1 + cosine) / 2)
    above = store.similarity_search_with_relevance_scores("apple", k=3, score_threshold=0.75)
    assert [d.id for d, _ in above] == [d.id for d, c in with_cosine if c >= 0.5]


def test_vectors_of_any_length_are_compared_by_angle(store: MemoryWorthStore) -> None:
    store.add_embeddings(
        [("tiny", [1e-30, 1e-30]), ("huge", [3e38, 0.0]), ("plain", [0.0, 2.0])],
        ids=["tiny", "huge", "plain"],
    )
    scored = {h.id: h.similarity for h in store.governor.retrieval.recall_by_vector([1e30, 0.0], 3)}
    assert scored == pytest.approx({"huge": 1.0, "tiny": 0.5**0.5, "plain": 0.0}, abs=1e-6)


def test_a_zero_vector_is_near_to_nothing(store: MemoryWorthStore) -> None:
    store.add_embeddings([("zero", [0, 0]), ("one", [1, 0])], ids=["zero", "one"])
    hits = store.governor.retrieval.recall_by_vector([1.0, 0.0], 2)
    assert [(h.id, round(h.similarity, 6)) for h in hits] == [("one", 1.0), ("zero", 0.0)]
    assert {h.similarity for h in store.governor.retrieval.recall_by_vector([0.0, 0.0], 2)} == {0.0}


# -- outcomes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair(store: MemoryWorthStore) -> MemoryWorthStore:
    store.add_texts(["apple", "pear"], ids=["a", "b"])
    show(store, "run", "a", "b")
    return store


def test_reading_is_not_reinforcement(pair: MemoryWorthStore) -> None:
    for _ in range(20):
        show(pair, "run", "a")
        show(pair, str(uuid4()), "a")
    assert pair.evidence("a") == Evidence()
    assert pair.run("run").reward is None


def test_the_same_outcome_twice_changes_nothing(pair: MemoryWorthStore) -> None:
    assert pair.record_outcome("run", True)
    before = dump(pair)
    assert not pair.record_outcome("run", True)
    assert not pair.record_outcome("run", 1.0)
    assert not pair.record_outcome("run", Outcome(1.0))
    assert dump(pair) == before


def test_the_same_use_in_another_order_is_the_same_outcome(pair: MemoryWorthStore) -> None:
    assert pair.record_outcome("run", True, used=["a", "b"])
    before = dump(pair)
    for used in (["b", "a"], ("a", "b", "a"), {"a", "b"}, iter(["b", "a"])):
        assert not pair.record_outcome("run", True, used=used)
    assert dump(pair) == before
    assert pair.record_outcome("run", True, used=["a"])


def test_a_correction_reverses_to_the_last_bit(pair: MemoryWorthStore) -> None:
    empty = counters(pair)
    pair.record_outcome("run", True)
    once = counters(pair)
    pair.record_outcome("run", 0.3)
    assert pair.worth("a") == pytest.approx(0.3)
    pair.record_outcome("run", False)
    assert pair.worth("a") == 0.0
    pair.record_outcome("run", True)
    assert counters(pair) == once
    assert pair.withdraw_outcome("run")
    assert counters(pair) == empty
    assert pair.run("run").reward is None
    assert not pair.withdraw_outcome("run")
    assert_exact(pair)


def test_outcomes_are_kept_by_source_and_the_sources_own_id(pair: MemoryWorthStore) -> None:
    pair.record_outcome("run", False, source="handler")
    assert pair.run("run").reward == 0.0
    pair.record_outcome("run", 0.7, source="evaluator")
    assert pair.run("run").reward == 0.7
    pair.record_outcome("run", 0.4, source="user", source_id="first voter")
    pair.record_outcome("run", 0.6, source="user", source_id="second voter")
    assert pair.run("run").reward == 0.6  # the newest of one source
    pair.record_outcome("run", 0.5, source="user", source_id="first voter")
    assert pair.run("run").reward == 0.5
    pair.record_outcome("run", True, source="handler")  # a lower source does not matter
    assert pair.run("run").reward == 0.5
    assert len(pair.run("run").outcomes) == 4
    assert pair.evidence("a").retrievals == 1  # never doubled
    for voter in ("first voter", "second voter"):
        assert pair.withdraw_outcome("run", source="user", source_id=voter)
    assert pair.run("run").reward == 0.7
    assert pair.withdraw_outcome("run", source="evaluator")
    assert pair.run("run").reward == 1.0
    assert pair.withdraw_outcome("run", source="handler")
    assert pair.run("run").reward is None
    assert pair.evidence("a") == Evidence()


def test_unlisted_sources_come_last_newest_first(pair: MemoryWorthStore) -> None:
    pair.record_outcome("run", 0.1, source="x")
    pair.record_outcome("run", 0.2, source="y")
    assert pair.run("run").reward == 0.2
    pair.record_outcome("run", 0.3, source="x")
    assert pair.run("run").reward == 0.3
    pair.record_outcome("run", 0.9, source="handler")
    assert pair.run("run").reward == 0.9


def test_the_order_of_the_sources_is_the_policys(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=plain(sources=("judge", "user")))
    store.add_texts(["t"], ids=["m"])
    show(store, "run", "m")
    store.record_outcome("run", True, source="user")
    store.record_outcome("run", False, source="judge")
    store.record_outcome("run", True, source="evaluator")
    assert store.worth("m") == 0.0
    assert counters(store) == {s: (c, (0,) * 5) for s, c in fold_of_ledger(store).items()}


def test_late_exposures_are_taken_in(pair: MemoryWorthStore) -> None:
    pair.add_texts(["plum"], ids=["c"])
    pair.record_outcome("run", True)
    assert pair.evidence("a").hits_positive == 0.5
    show(pair, "run", "c")
    thirds = [pair.evidence(i).positive for i in "abc"]
    assert sum(thirds) == UNIT
    assert max(thirds) - min(thirds) <= 1
    assert pair.run("run").reward == 1.0
    assert_exact(pair)


def test_a_memory_counts_once_per_episode(pair: MemoryWorthStore) -> None:
    for _ in range(3):
        show(pair, "run", "a", "b")
        show(pair, "run", "a")
    pair.record_outcome("run", True)
    show(pair, "run", "a")
    assert [pair.evidence(i).hits_positive for i in "ab"] == [0.5, 0.5]
    assert pair.evidence("a").retrievals == 1


def test_the_first_rank_and_the_highest_similarity_are_kept(store: MemoryWorthStore) -> None:
    store.add_texts(["apple pie", "apple", "pear"], ids=["ap", "a", "p"])
    with store.episode("run"):
        first = store.similarity_search_with_score("apple", k=2)
        second = store.similarity_search_with_score("apple pie", k=2)
        store.similarity_search("pear", k=3)
    assert [d.id for d, _ in first] == ["a", "ap"]
    assert [d.id for d, _ in second] == ["ap", "a"]
    by_id = {e.memory_id: e for e in store.run("run").exposures}
    assert [by_id[i].rank for i in ("a", "ap")] == [0, 1]
    assert [by_id[i].similarity for i in ("a", "ap")] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_hidden_memories_are_not_credited(pair: MemoryWorthStore) -> None:
    assert pair.governor.journal.hide("run", ["a", "unknown"]) == 1
    assert pair.governor.journal.hide("run", ["a"]) == 0
    pair.record_outcome("run", True)
    assert pair.evidence("a") == Evidence()
    assert pair.evidence("b") == Evidence(UNIT, 0, UNIT, UNIT, 1, UNIT // 2)
    show(pair, "run", "a")  # retrieved again, it is shown after all
    assert pair.evidence("a").hits_positive == 0.5
    pair.governor.journal.hide("run", ["a"])
    pair.governor.journal.hide("run", ["b"])
    assert pair.evidence("b") == Evidence()
    assert pair.governor.journal.hide("no such run", ["a"]) == 0
    assert_exact(pair)


def test_use_decides_whatever_the_rule(pair: MemoryWorthStore) -> None:
    pair.record_outcome("run", True, used=["b"])
    assert pair.evidence("a").hits_positive == pytest.approx(0.01)
    assert pair.evidence("b").hits_positive == pytest.approx(0.99)
    pair.record_outcome("run", True, used=[])
    assert pair.evidence("a") == pair.evidence("b") == Evidence()
    pair.record_outcome("run", True)
    assert pair.evidence("a").hits_positive == 0.5
    pair.governor.journal.mark_used("run", ["a"])
    assert pair.evidence("a").hits_positive == pytest.approx(0.99)
    assert_exact(pair)


def test_what_two_steps_of_a_run_used_adds_up(pair: MemoryWorthStore) -> None:
    """A custom event of one tool must not undo that of another."""
    pair.governor.journal.mark_used("run", ["a"])
    pair.governor.journal.mark_used("run", ["b"])
    pair.record_outcome("run", True)
    assert [pair.evidence(i).hits_positive for i in "ab"] == [0.5, 0.5]


def test_an_outcome_that_names_use_overrules_what_the_run_said(pair: MemoryWorthStore) -> None:
    pair.governor.journal.mark_used("run", ["a"])
    pair.record_outcome("run", True, used=["b"])
    assert pair.evidence("b").hits_positive == pytest.approx(0.99)


def test_credit_by_similarity_and_by_a_function(make_store: StoreMaker, url: str) -> None:
    seen: list[Shown] = []

    def by_rank(shown: Any) -> list[float]:
        seen.extend(shown)
        return [2.0 - m.rank for m in shown]

    store = make_store(url, policy=plain(credit=by_rank, w_min=0))
    store.add_texts(["apple", "apple pie"], ids=["a", "b"])
    show(store, "run", "a", "b")
    store.record_outcome("run", True)
    first = next(m.memory_id for m in seen if m.rank == 0)
    assert store.evidence(first).hits_positive == pytest.approx(2 / 3)
    assert {m.similarity for m in seen if m.similarity is not None} != set()


def test_a_credit_function_that_fails_leaves_everything_as_it_was(
    make_store: StoreMaker, url: str
) -> None:
    store = make_store(url, policy=plain(credit=lambda shown: [float("nan")] * len(shown)))
    store.add_texts(["t"], ids=["m"])
    show(store, "run", "m")
    before = dump(store)
    with pytest.raises(InvalidCreditError):
        store.record_outcome("run", True)
    assert dump(store) == before


def test_an_episode_is_found_by_its_aliases(store: MemoryWorthStore) -> None:
    store.add_texts(["t"], ids=["m"])
    key = EpisodeKey("episode", aliases=("trace", "resumed", "episode"), thread_id="thread")
    store.governor.journal.expose_documents(key, [Document("t", id="m")])
    for name, outcome in (("trace", True), ("resumed", False), ("episode", 0.5)):
        assert store.record_outcome(name, outcome)
        assert store.run(name).id == "episode"
    assert store.worth("m") == 0.5
    assert store.run("trace").thread_id == "thread"
    assert store.health().episodes == 1


def test_run_ids_may_be_uuids(store: MemoryWorthStore) -> None:
    store.add_texts(["t"], ids=["m"])
    run_id = uuid4()
    show(store, str(run_id), "m")
    assert store.record_outcome(run_id, True)
    assert store.run(run_id).id == str(run_id)
    assert store.withdraw_outcome(run_id)


def test_an_unknown_run_is_an_error_that_names_it(store: MemoryWorthStore) -> None:
    for call in (
        lambda: store.record_outcome("nobody", True),
        lambda: store.withdraw_outcome("nobody"),
        lambda: store.run("nobody"),
        lambda: store.governor.journal.mark_used("nobody", []),
    ):
        before = dump(store)
        with pytest.raises(UnknownRunError, match="nobody") as error:
            call()
        assert error.value.run_id == "nobody"
        assert dump(store) == before


def test_an_episode_object_records_itself(store: MemoryWorthStore) -> None:
    store.add_texts(["t"], ids=["m"])
    with store.episode() as one, store.episode("named", thread_id="th") as two:
        store.similarity_search("t")
    assert one.id != two.id == "named"
    assert two.record(0.25, source="evaluator", source_id="x", used=["m"])
    assert store.run("named").outcomes[0].source_id == "x"
    assert store.run("named").thread_id == "th"
    assert "named" in repr(two)


async def test_the_async_twins_do_the_same(store: MemoryWorthStore) -> None:
    store.add_texts(["t"], ids=["m"])
    with store.episode("run"):
        (document,) = await store.asimilarity_search("t", k=1)
    assert document.id == "m"
    assert await store.arecord_outcome("run", True, used=["m"])
    assert store.worth("m") == 1.0
    assert await store.awithdraw_outcome("run")
    assert store.evidence("m") == Evidence()


def test_recording_from_another_process_days_later(
    make_store: StoreMaker, file_url: str, clock: Clock
) -> None:
    store = make_store(file_url)
    store.add_texts(["apple", "pear"], ids=["a", "b"])
    show(store, "run", "a", "b")
    clock.forward(days=3)
    script = f"""
from langchain_memoryworth import MemoryWorthStore
from tests.fakes import HashedWords
with MemoryWorthStore({file_url!r}, HashedWords()) as store:
    print(store.record_outcome("run", False, source="user", used=["a"]))
    print(store.record_outcome("run", False, source="user", used=["a"]))
"""
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["True", "False"]
    assert store.worth("a") == 0.0
    assert store.evidence("a").hits_negative == pytest.approx(0.99)
    assert store.run("run").reward == 0.0
    assert_exact(store)


# -- pending --------------------------------------------------------------------------------------------------------


def test_runs_without_an_outcome_are_pending_and_expire(
    make_store: StoreMaker, url: str, clock: Clock
) -> None:
    store = make_store(url, policy=plain(pending_age=timedelta(days=10)))
    store.add_texts(["t"], ids=["m"])
    for i in range(5):
        show(store, f"run{i}", "m")
        clock.forward(days=3)
    store.record_outcome("run3", True)
    # run0 is 15 days old, run1 12: expired
    assert [e.id for e in store.pending()] == ["run2", "run4"]
    assert [e.id for e in store.pending(limit=1)] == ["run2"]
    health = store.health()
    assert (health.episodes, health.pending, health.expired) == (5, 2, 2)
    assert store.evidence("m").retrievals == 1  # expired is not failed
    assert store.record_outcome("run0", False)  # and not too late either
    assert store.evidence("m").retrievals == 2
    assert store.health().expired == 1
    store.withdraw_outcome("run3")
    assert [e.id for e in store.pending()] == ["run2", "run3", "run4"]


# -- status ---------------------------------------------------------------------------------------------------------


def test_suppression_comes_at_v_min_and_not_before(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=plain(exploration=0.0))
    store.add_texts(["bad"], ids=["m"])
    settle(store, [False] * 9, "m")
    assert store.memory("m").status is Status.ACTIVE
    assert store.verdict("m") is Verdict.UNCERTAIN
    settle(store, [False], "m")
    assert store.memory("m").status is Status.SUPPRESSED
    assert store.verdict("m") is Verdict.LOW
    assert store.similarity_search("bad") == []
    kinds = query(store, "SELECT kind, actor, reason FROM actions WHERE seq IS NOT NULL")
    assert kinds == [
        ("suppress", "policy", "worth 0.000 over 10 retrievals, theta_low 0.4, v_min 10")
    ]


def test_a_correction_reinstates(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(["bad"], ids=["m"])
    for i in range(3):
        show(store, f"run{i}", "m")
        store.record_outcome(f"run{i}", False)
    assert store.memory("m").status is Status.SUPPRESSED
    store.withdraw_outcome("run0")  # two retrievals are left: UNCERTAIN is never suppressed
    assert store.memory("m").status is Status.ACTIVE
    assert ids_of(store.similarity_search("bad")) == ["m"]
    store.record_outcome("run0", False)
    assert store.similarity_search("bad") == []


def test_hysteresis_holds_back_until_the_upper_line(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=plain(hysteresis=0.05, exploration=0.0))
    store.add_texts(["m"], ids=["m"])
    for i in range(100):
        show(store, f"run{i}", "m")
    for i in range(100):
        store.record_outcome(f"run{i}", i < 39)
    assert store.worth("m") == 0.39
    assert store.memory("m").status is Status.SUPPRESSED
    statuses = []
    for i in range(39, 47):
        store.record_outcome(f"run{i}", True)
        statuses.append((round(store.worth("m"), 2), store.memory("m").status.value))
    assert statuses == [
        (0.40, "suppressed"),
        (0.41, "suppressed"),
        (0.42, "suppressed"),
        (0.43, "suppressed"),
        (0.44, "suppressed"),
        (0.45, "active"),
        (0.46, "active"),
        (0.47, "active"),
    ]
    for i, (worth, status) in zip(
        range(46, 38, -1), [(0.46, "active"), (0.45, "active"), (0.44, "active")], strict=False
    ):
        store.record_outcome(f"run{i}", False)
        assert (round(store.worth("m"), 2), store.memory("m").status.value) == (worth, status)


def test_restore_counts_only_what_comes_later(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(["bad"], ids=["m"])
    suppress(store, "m")
    store.restore("m", reason="looks fine", actor="ann")
    assert store.memory("m").status is Status.ACTIVE
    assert store.worth("m") == 0.0  # the past is not forgotten
    settle(store, [False, False], "m")
    assert store.memory("m").status is Status.ACTIVE
    settle(store, [False], "m")
    assert store.memory("m").status is Status.SUPPRESSED
    assert store.evidence("m").retrievals == 6
    assert_exact(store)
    actions = query(store, "SELECT kind, actor, reason FROM actions WHERE kind = 'restore'")
    assert actions == [("restore", "ann", "looks fine")]


def test_a_correction_of_the_time_before_a_restore_stays_in_that_time(
    make_store: StoreMaker, url: str
) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(["bad"], ids=["m"])
    for i in range(4):
        show(store, f"old{i}", "m")
    for i in range(3):
        store.record_outcome(f"old{i}", False)
    store.restore("m")
    settle(store, [False, False], "m")
    for outcome in (True, False, 0.5, False):
        store.record_outcome("old0", outcome)
        assert store.memory("m").status is Status.ACTIVE
        assert_exact(store)
    store.withdraw_outcome("old1")
    store.record_outcome("old1", False)
    assert store.memory("m").status is Status.ACTIVE
    assert_exact(store)
    # shown before the restore, but judged after it: that is later evidence
    store.record_outcome("old3", False)
    assert store.memory("m").status is Status.SUPPRESSED
    store.restore("m")
    store.withdraw_outcome("old3")
    ((_, baseline),) = counters(store).values()
    assert baseline[4] == 5
    assert_exact(store)


def test_restoring_an_active_memory_moves_its_baseline(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(["bad"], ids=["m"])
    settle(store, [False] * 2, "m")
    store.restore("m")
    settle(store, [False] * 2, "m")
    assert store.memory("m").status is Status.ACTIVE
    settle(store, [False], "m")
    assert store.memory("m").status is Status.SUPPRESSED


def test_a_pinned_memory_is_never_held_back(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(["bad", "worse"], ids=["m", "n"])
    store.pin("m", reason="law", actor="bob")
    settle(store, [False] * 10, "m")
    assert store.memory("m").status is Status.PINNED
    assert store.verdict("m") is Verdict.LOW
    assert "m" in ids_of(store.similarity_search("bad", k=2))
    suppress(store, "n")
    store.pin("n")  # from suppressed
    assert sorted(ids_of(store.similarity_search("bad", k=2))) == ["m", "n"]
    store.restore("m")
    assert store.memory("m").status is Status.PINNED
    assert store.health().pinned == 2
    store.unpin("n")
    assert store.memory("n").status is Status.SUPPRESSED
    store.unpin("m")  # restored meanwhile: nothing later speaks against it
    assert store.memory("m").status is Status.ACTIVE
    store.unpin("m")  # is no error
    assert ids_of(store.similarity_search("bad", k=2)) == ["m"]


def test_decisions_about_unknown_memories_change_nothing(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(["a", "b"], ids=["a", "b"])
    suppress(store, "a")
    before = dump(store)
    for decide in (store.restore, store.pin, store.unpin):
        with pytest.raises(MemoryNotFoundError, match="ghost") as error:
            decide(["a", "ghost"])
        assert error.value.ids == ("ghost",)
    assert dump(store) == before


def test_several_memories_are_decided_at_once(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(["a", "b"], ids=["a", "b"])
    suppress(store, "a", "b")
    store.restore(["a", "b", "a"])
    assert store.suppressed() == []
    assert len(query(store, "SELECT 1 FROM actions WHERE kind = 'restore'")) == 2


def test_explain_search_says_what_was_held_back_and_why(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=plain(v_min=3, exploration=1.0))
    texts = ["red apple", "red apple pie", "red plum", "green pear"]
    store.add_texts(texts, ids=["a", "b", "c", "d"])
    suppress(store, "a")
    settle(store, [False] * 3, "d")
    before = dump(store)
    explained = store.explain_search("red apple", k=2)
    assert [h.id for h in explained.served] == ["b", "c"]
    (held,) = explained.held_back  # the pear is suppressed too, but would not be in the first two
    assert (held.id, held.text) == ("a", "red apple")
    assert held.similarity == pytest.approx(1.0, abs=1e-6)
    assert held.evidence.hits_negative == 3
    assert "worth 0.000 over 3 retrievals" in held.reason
    assert "theta_low 0.4" in held.reason
    assert "2 served, 1 held back" in str(explained)
    assert [h.id for h in store.explain_search("red apple", k=4).held_back] == ["a", "d"]
    assert dump(store) == before  # nothing was written down, nothing explored
    assert store.health().unattributed == 0


# -- exploration ----------------------------------------------------------------------------------------------------


def explorer(make_store: StoreMaker, url: str, **policy: Any) -> MemoryWorthStore:
    store = make_store(url, policy=plain(v_min=3, **policy))
    store.add_embeddings(
        [("bad", [1.0, 0.0]), ("worse", [1.0, 0.1]), ("ok", [1.0, 1.0]), ("far", [-1.0, 1.0])],
        ids=["bad", "worse", "ok", "far"],
    )
    store.governor.journal.expose_documents(EpisodeKey("x0"), [Document("", id="bad")])
    for name in ("bad", "worse"):
        for i in range(3):
            run = f"{name}{i}"
            store.governor.journal.expose_documents(EpisodeKey(run), [Document("", id=name)])
            store.record_outcome(run, False)
    assert {m.id for m in store.suppressed()} == {"bad", "worse"}
    return store


def test_exploration_shows_the_nearest_suppressed_in_the_last_place(
    make_store: StoreMaker, url: str
) -> None:
    store = explorer(make_store, url, exploration=1.0)
    with store.episode("run"):
        found = store.similarity_search_by_vector([1.0, 0.0], k=2)
    assert ids_of(found) == ["ok", "bad"]
    by_id = {e.memory_id: e for e in store.run("run").exposures}
    assert (by_id["bad"].arm, by_id["bad"].propensity) == (Arm.PROBATION, 1.0)
    assert by_id["ok"].arm is Arm.SERVED
    store.record_outcome("run", True)
    assert store.evidence("bad").hits_positive == 0.5  # probation earns ordinary credit
    with store.episode("one"):
        assert ids_of(store.similarity_search_by_vector([1.0, 0.0], k=1)) == ["bad"]
    with store.episode("many"):  # more room than active memories
        assert ids_of(store.similarity_search_by_vector([1.0, 0.0], k=9)) == ["ok", "far", "bad"]


def test_exploration_takes_nothing_that_would_not_have_been_served(
    make_store: StoreMaker, url: str
) -> None:
    store = explorer(make_store, url, exploration=1.0)
    with store.episode("away"):
        assert ids_of(store.similarity_search_by_vector([-1.0, 1.0], k=2)) == ["far", "ok"]
    with store.episode("filtered"):
        found = store.similarity_search_by_vector([1.0, 0.0], k=2, filter=lambda d: d.id != "bad")
        assert ids_of(found) == ["ok", "worse"]
    with store.episode("floor"):
        found = store.similarity_search_by_vector([1.0, 1.0], k=3, min_similarity=0.75)
        assert ids_of(found) == ["ok", "worse"]
    with store.episode("above all that is held back"):
        found = store.similarity_search_by_vector([1.0, 1.0], k=3, min_similarity=0.8)
        assert ids_of(found) == ["ok"]
    outside = store.similarity_search_by_vector([1.0, 0.0], k=2)
    assert ids_of(outside) == ["ok", "far"]  # no episode, no exploration


def test_exploration_has_its_probability_and_agrees_on_retries(
    make_store: StoreMaker, url: str
) -> None:
    epsilon, n = 0.3, 400
    store = explorer(make_store, url, exploration=epsilon, seed=11)
    drawn = []
    for i in range(n):
        answers = set()
        for _ in range(2):
            with store.episode(f"run{i}"):
                answers.add(tuple(ids_of(store.similarity_search_by_vector([1.0, 0.0], k=2))))
        assert len(answers) == 1
        drawn.append("bad" in answers.pop())
    # Binomial(400, .3): mean 120, sd 9.2. Five sd: a wrong implementation could hide with p < 1e-6.
    assert abs(sum(drawn) - epsilon * n) < 5 * (n * epsilon * (1 - epsilon)) ** 0.5
    arms = Counter(query(store, "SELECT arm, propensity FROM exposures WHERE eid > 7"))
    assert arms["probation", epsilon] == sum(drawn)
    assert set(arms) == {("probation", epsilon), ("served", 1.0)}


def test_another_seed_draws_otherwise(make_store: StoreMaker) -> None:
    draws = []
    for seed in (1, 2, 1):
        store = explorer(make_store, "sqlite://", exploration=0.5, seed=seed)
        answers = []
        for i in range(40):
            with store.episode(f"run{i}"):
                answers.append(ids_of(store.similarity_search_by_vector([1.0, 0.0], k=2))[-1])
        draws.append(answers)
    assert draws[0] == draws[2] != draws[1]


def test_a_suppressed_memory_comes_back_by_evidence(make_store: StoreMaker, url: str) -> None:
    store = explorer(make_store, url, exploration=1.0)
    for i in range(20):
        with store.episode(f"run{i}"):
            store.similarity_search_by_vector([1.0, 0.0], k=1)
        store.record_outcome(f"run{i}", True)
    # 3 failures, then s successes: worth s/(s+3) reaches .45 at s = 3; then bad is served, and worse has its turn
    assert store.suppressed() == [] or [m.id for m in store.suppressed()] == ["worse"]
    assert store.memory("bad").status is Status.ACTIVE
    assert_exact(store)


def test_no_exploration_where_the_policy_wants_none(make_store: StoreMaker, url: str) -> None:
    store = explorer(make_store, url, exploration=0.0)
    for i in range(50):
        with store.episode(f"run{i}"):
            assert ids_of(store.similarity_search_by_vector([1.0, 0.0], k=2)) == ["ok", "far"]


# -- the policy is shared -------------------------------------------------------------------------------------------


def test_the_policy_is_stored_and_taken_up(make_store: StoreMaker, file_url: str) -> None:
    policy = plain(theta_low=0.2, credit="similarity", sources=("judge",), seed=5)
    with make_store(file_url, policy=policy):
        pass
    store = make_store(file_url)
    assert store.policy == policy
    assert query(store, "SELECT COUNT(*) FROM policies") == [(1,)]
    with make_store(file_url, policy=policy):
        pass
    assert query(store, "SELECT COUNT(*) FROM policies") == [(1,)]


def test_another_policy_is_recorded_and_every_status_worked_out_again(
    make_store: StoreMaker, file_url: str
) -> None:
    first = make_store(file_url, policy=plain(v_min=10, exploration=0.0))
    first.add_texts(["a", "b", "c"], ids=["a", "b", "c"])
    settle(first, [False] * 4, "a")
    settle(first, [False] * 2 + [True] * 2, "b")
    first.pin("c")
    assert first.suppressed() == []
    assert ids_of(first.similarity_search("a", k=1)) == ["a"]
    second = make_store(file_url, policy=plain(v_min=3, theta_low=0.55, exploration=0.0))
    assert {m.id for m in second.suppressed()} == {"a", "b"}
    # the first one, open all the while, follows at its next call
    assert {m.id for m in first.suppressed()} == {"a", "b"}
    assert first.policy == second.policy
    assert ids_of(first.similarity_search("a", k=3)) == ["c"]
    third = make_store(file_url, policy=plain(suppress=False))
    assert first.suppressed() == second.suppressed() == third.suppressed() == []
    assert len(first.similarity_search("a", k=3)) == 3
    kinds = query(first, "SELECT kind, COUNT(*) FROM actions GROUP BY kind ORDER BY kind")
    assert kinds == [("pin", 1), ("policy", 3), ("reinstate", 2), ("suppress", 2)]


def test_outcomes_are_judged_by_the_policy_in_force_and_not_by_that_of_yesterday(
    make_store: StoreMaker, file_url: str
) -> None:
    old = make_store(file_url, policy=plain(v_min=2, exploration=0.0))
    old.add_texts(["a", "b"], ids=["a", "b"])
    for i in range(3):
        old.governor.journal.expose_documents(
            EpisodeKey(f"run{i}"), [Document("", id="a"), Document("", id="b")]
        )
    new = make_store(
        file_url, policy=plain(v_min=50, exploration=0.0, sources=("judge",), w_min=0.2)
    )
    # recording is the first thing that the old one does since
    old.record_outcome("run0", False, source="user")
    old.record_outcome("run1", False, source="user", used=["a"])
    old.record_outcome("run2", False, source="user")
    old.record_outcome("run2", True, source="judge")
    assert new.suppressed() == old.suppressed() == []
    assert new.run("run1").exposures[1].weight == pytest.approx(0.2)
    assert new.run("run2").reward == 1.0
    old.pin("a")
    make_store(file_url, policy=plain(v_min=1, theta_low=0.5, exploration=0.0))
    old.unpin("a")
    assert new.memory("a").status is Status.SUPPRESSED


def test_a_credit_function_must_be_given_again(make_store: StoreMaker, file_url: str) -> None:
    def rule(shown: Any) -> list[float]:
        return [1.0 for _ in shown]

    with make_store(file_url, policy=plain(credit=rule)):
        pass
    with pytest.raises(InvalidInputError, match="rule"):
        make_store(file_url)
    with make_store(file_url, policy=plain(credit=rule)) as store:
        assert store.policy.credit is rule


# -- the store itself -----------------------------------------------------------------------------------------------


def test_health_counts(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=EAGER)
    store.add_texts(["a", "b", "c"], ids=["a", "b", "c"])
    store.add_texts(["a"], namespace="other")
    suppress(store, "a")
    store.pin("b")
    store.delete(["c"])
    show(store, "open", "b")
    store.similarity_search("a")
    store.similarity_search("a")
    health = store.health()
    assert (health.memories, health.suppressed, health.pinned) == (3, 1, 1)
    assert (health.episodes, health.pending, health.expired) == (4, 1, 0)
    assert health.unattributed == 2
    assert health.ok
    assert health.failures == {}
    assert health.last_failure is None


def test_looking_without_showing_is_not_written_down(store: MemoryWorthStore) -> None:
    store.add_texts(["a"], ids=["a"])
    before = dump(store)
    with store.episode("run"):
        assert ids_of(store.similarity_search("a", track=False)) == ["a"]
    assert dump(store) == before
    assert store.health().unattributed == 0


def test_reopened_it_is_as_it_was(make_store: StoreMaker, file_url: str) -> None:
    with make_store(file_url, policy=EAGER) as store:
        store.add_texts(["bad apple", "good pear"], [{"n": 1}, {"n": 2}], ids=["a", "b"])
        store.add_texts(["x"], ids=["a"], namespace=("n", "s"))
        suppress(store, "a")
        before = dump(store)
    again = make_store(file_url)
    assert dump(again) == before
    assert ids_of(again.similarity_search("bad apple", k=2)) == ["b"]
    assert [m.id for m in again.suppressed()] == ["a"]
    assert again.get_by_ids(["b"]) == [Document("good pear", id="b", metadata={"n": 2})]


def test_repr_names_place_and_model_without_the_password(make_store: StoreMaker) -> None:
    assert repr(make_store()) == "MemoryWorthStore('sqlite://', 'hashed-words')"


@pytest.mark.parametrize(
    "clock", [5, lambda: "noon", lambda: float("nan"), lambda: 1e30, lambda now: now]
)
def test_a_clock_that_tells_no_time_makes_no_store(
    make_store: StoreMaker, file_url: str, tmp_path: Path, clock: Any
) -> None:
    with pytest.raises(InvalidInputError, match=r"tells no time .* such as time\.time") as caught:
        make_store(file_url, clock=clock)
    assert caught.value.value is clock
    assert list(tmp_path.iterdir()) == []


def test_closing_is_final_and_twice_is_harmless(make_store: StoreMaker, url: str) -> None:
    with make_store(url) as store:
        store.add_texts(["t"], ids=["m"])
        show(store, "run", "m")
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.add_texts(["u"]),
        lambda: store.delete(["m"]),
        lambda: store.get_by_ids(["m"]),
        lambda: store.similarity_search("t"),
        lambda: store.explain_search("t"),
        lambda: store.record_outcome("run", True),
        lambda: store.withdraw_outcome("run"),
        lambda: store.run("run"),
        store.pending,
        lambda: store.memory("m"),
        store.suppressed,
        lambda: store.restore("m"),
        lambda: store.pin("m"),
        lambda: store.unpin("m"),
        store.health,
    ]
    for call in calls:
        with pytest.raises(StoreClosedError, match="closed"):
            call()
    assert "MemoryWorthStore" in repr(store)


def test_a_store_from_texts(embedding: HashedWords) -> None:
    with MemoryWorthStore.from_texts(
        ["a", "b"], embedding, [{"n": 1}, {"n": 2}], ids=["1", "2"], policy=EAGER
    ) as store:
        assert store.embeddings is embedding
        assert store.policy == EAGER
        assert [d.metadata["n"] for d in store.get_by_ids(["2", "1"])] == [2, 1]


def test_another_model_is_refused_and_a_name_settles_it(
    make_store: StoreMaker, file_url: str
) -> None:
    with make_store(file_url) as store:
        store.add_texts(["t"], ids=["m"])
    other = HashedWords(model_name="other-words")
    with pytest.raises(EmbeddingMismatchError, match="other-words") as error:
        make_store(file_url, embedding=other)
    assert "hashed-words" in error.value.stored
    with make_store(file_url, embedding=other, embedding_name="hashed-words") as again:
        assert ids_of(again.similarity_search("t")) == ["m"]


def test_metadata_is_stored_as_json(store: MemoryWorthStore) -> None:
    store.add_texts(["t"], [{"a": [1, 2.5, None, True, {"b": "ü"}]}], ids=["m"])
    ((raw,),) = query(store, "SELECT metadata FROM memories")
    assert json.loads(str(raw)) == {"a": [1, 2.5, None, True, {"b": "ü"}]}


@pytest.mark.parametrize("outcome", ["INCORRECT", "True", None, 2, -1, float("nan")])
def test_wrong_outcomes_change_nothing(pair: MemoryWorthStore, outcome: Any) -> None:
    before = dump(pair)
    with pytest.raises(InvalidInputError):
        pair.record_outcome("run", outcome)
    for inside in (outcome,):
        with pytest.raises(InvalidOutcomeError):
            pair.record_outcome("run", Outcome(inside))
    assert dump(pair) == before


def test_a_first_run_on_an_empty_store_is_no_error(store: MemoryWorthStore):
    with store.episode() as episode:
        assert store.similarity_search("anything", k=3) == []
    assert episode.record(True) is False
    with pytest.raises(InvalidOutcomeError):
        episode.record("INCORRECT")  # type: ignore[arg-type]
    assert store.health().episodes == 0
