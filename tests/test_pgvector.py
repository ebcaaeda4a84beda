"""Vectors in the database: the tests of the store again on pgvector, by the exact path and by the graph, and what is its own.

Imported tests run with the fixtures of this module, so that one set of claims holds for FAISS and for pgvector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import make_url

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import InvalidInputError, MissingExtensionError
from langchain_memoryworth.vectors import pgvector_index
from tests.fakes import (
    Clock,
    HashedWords,
    assert_exact,
    assert_is_top,
    brute,
    execute,
    query,
    unit,
)
from tests.ledger_server import Server, new_schema
from tests.policies import plain
from tests.postgres import documented_grants
from tests.test_statuses import (  # noqa: F401
    test_what_a_person_suppresses_is_shown_on_probation_and_no_more,
)
from tests.test_store import (  # noqa: F401  # the tests and fixtures of the store
    library,
    pair,
    test_a_changed_text_starts_fresh_and_the_old_one_finds_its_evidence,
    test_a_correction_reinstates,
    test_a_filter_and_a_floor_together,
    test_a_filter_sees_changed_metadata,
    test_a_new_vector_for_the_same_text_is_used,
    test_a_pool_is_of_what_is_in_service,
    test_a_suppressed_memory_comes_back_by_evidence,
    test_a_zero_vector_is_near_to_nothing,
    test_an_empty_store_finds_nothing,
    test_an_id_repeated_in_a_batch_is_its_last_text,
    test_delete_and_re_add_finds_evidence_and_status,
    test_deleting_all_keeps_other_namespaces_and_the_evidence,
    test_explain_search_says_what_was_held_back_and_why,
    test_exploration_shows_the_nearest_suppressed_in_the_last_place,
    test_exploration_takes_nothing_that_would_not_have_been_served,
    test_filters_return_the_k_nearest_that_match,
    test_hidden_memories_are_not_credited,
    test_k_active_are_returned_however_many_suppressed_are_nearer,
    test_mmr_keeps_filters_and_suppression,
    test_namespaces_are_compared_by_whole_segments,
    test_one_id_in_two_namespaces_has_two_evidences,
    test_per_call_rank_overrules_the_policys,
    test_relevance_is_one_plus_cosine_over_two,
    test_restore_counts_only_what_comes_later,
    test_scores_have_one_direction,
    test_suppression_in_one_namespace_does_not_reach_another,
    test_the_ranking_is_that_of_brute_force,
    test_vectors_of_any_length_are_compared_by_angle,
)

StoreMaker = Callable[..., MemoryWorthStore]


@pytest.fixture(params=["exact", "graph"])
def url(request: pytest.FixtureRequest, postgres: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Postgres with pgvector; `graph` sends every search through it, however few memories there are."""
    if request.param == "graph":
        monkeypatch.setattr(pgvector_index, "EXACT", 0)
    return postgres.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def make_store(embedding: HashedWords, clock: Clock) -> Iterator[StoreMaker]:
    opened: list[MemoryWorthStore] = []

    def make(url: str, **options: Any) -> MemoryWorthStore:
        options = {"embedding": embedding, "clock": clock, **options, "index": "pgvector"}
        opened.append(MemoryWorthStore(url, **options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(make_store: StoreMaker, url: str) -> MemoryWorthStore:
    return make_store(url)


def clustered(n: int, d: int = 16) -> np.ndarray:
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((20, d))
    rows = centres[rng.integers(0, 20, n)] + 0.3 * rng.standard_normal((n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_k_is_k_when_nine_in_ten_around_the_query_are_held_back(
    make_store: StoreMaker, url: str
) -> None:
    """As a topic: where a graph without iterative scan returns next to nothing."""
    store = make_store(url, policy=plain(exploration=0.0))
    rows = clustered(2_000)
    store.add_embeddings(
        [(str(i), r) for i, r in enumerate(rows)], ids=list(map(str, range(2_000)))
    )
    query_ = rows[0]
    nearest = np.argsort(-(rows @ query_))[:1_800]
    execute(
        store,
        "UPDATE evidence SET status = 'suppressed' WHERE seq IN "
        "(SELECT seq FROM memories WHERE id = ANY(:ids))",
        ids=list(map(str, nearest.tolist())),
    )
    found = store.similarity_search_by_vector(query_.tolist(), k=8)
    assert len(found) == 8
    scores, _ = brute(store, unit(query_), store.policy.rank)
    assert_is_top([str(d.id) for d in found], scores, 8)


def test_the_graph_is_used_and_finds_nearly_all(make_store: StoreMaker, url: str) -> None:
    store = make_store(url, policy=plain(exploration=0.0))
    rows = clustered(3_000)
    store.add_embeddings(
        [(str(i), r) for i, r in enumerate(rows)], ids=list(map(str, range(3_000)))
    )
    hits = 0
    for q in rows[:50]:
        found = {d.id for d in store.similarity_search_by_vector(q.tolist(), k=10)}
        hits += len(found & {str(i) for i in np.argsort(-(rows @ q))[:10]})
    assert hits >= 475  # recall@10 of .95
    if pgvector_index.EXACT == 0:
        index = store.governor.replica._spaces[()].index
        with store.governor.database.read() as session:
            session.run(pgvector_index._GRAPH, {"ef": "100"})
            plan = session.rows(
                pgvector_index.Statement("EXPLAIN " + index._statements["near"].sql),  # type: ignore[union-attr]
                query=pgvector_index.written(rows[0].astype(np.float32)),
                namespace="[]",
                statuses=["active"],
                now=0.0,
                born=float("-inf"),
                floor=float("-inf"),
                limit=10,
            )
        assert "vectors_near" in str(plan)


def test_vectors_that_were_there_before_are_copied(
    url: str, make_store: StoreMaker, embedding: HashedWords
) -> None:
    """And those that a worker with FAISS stores from then on."""
    with MemoryWorthStore(url, embedding) as faiss:
        faiss.add_texts(["apple", "pear"], ids=["a", "p"])
        assert query(faiss, "SELECT 1 FROM pg_tables WHERE tablename = 'vectors'") == []
        store = make_store(url)
        assert [d.id for d in store.similarity_search("pear", k=1)] == ["p"]
        faiss.add_texts(["plum", "kiwi"], ids=["u", "a"])
        assert [d.id for d in store.similarity_search("plum", k=1)] == ["u"]
        assert [d.page_content for d in store.similarity_search("kiwi", k=1)] == ["kiwi"]
        store.add_texts(["fig"], ids=["f"])
        assert [d.id for d in faiss.similarity_search("fig", k=1)] == ["f"]


def test_no_copy_of_what_was_erased_is_left(store: MemoryWorthStore) -> None:
    from langchain_memoryworth.ledger.erasure import Erasure

    store.add_texts(["apple", "pear"], ids=["a", "p"])
    assert query(store, "SELECT COUNT(*) FROM vectors") == [(2,)]
    Erasure(store.governor.database).ids((), ["a"], "me", "", 0.0)
    assert query(store, "SELECT COUNT(*) FROM vectors") == [(1,)]
    assert [d.id for d in store.similarity_search("apple", k=2)] == ["p"]


def test_an_outcome_does_not_touch_the_vectors(store: MemoryWorthStore) -> None:
    store.add_texts(["apple"], ids=["a"])
    before = query(store, "SELECT ctid::text, xmin::text FROM vectors")
    with store.episode("run"):
        store.similarity_search("apple", k=1)
    store.record_outcome("run", False)
    assert query(store, "SELECT ctid::text, xmin::text FROM vectors") == before


def test_the_documented_role_is_enough(make_store: StoreMaker, url: str) -> None:
    """The owner has opened the store after the first memory was added."""
    role = f"worker_{make_url(url).database}"
    with make_store(url) as owner:
        owner.add_texts(["apple"], ids=["a"])
        for statement in documented_grants(role):
            execute(owner, statement)
    worker = make_store(url.replace("postgres:", f"{role}:"), policy=plain(v_min=1))
    worker.add_texts(["pear"], ids=["p"])
    with worker.episode("run"):
        assert {d.id for d in worker.similarity_search("apple", k=2)} == {"a", "p"}
    worker.record_outcome("run", False)
    assert worker.similarity_search("apple", k=2) == []
    worker.restore("a")
    assert [d.id for d in worker.similarity_search("pear", k=2)] == ["a"]
    worker.erase("a")
    assert query(worker, "SELECT current_user, COUNT(*) FROM vectors") == [(role, 1)]
    assert_exact(worker)


def test_workers_of_the_documented_role_go_on_when_the_owner_switches_it_on(
    make_store: StoreMaker, url: str, embedding: HashedWords
) -> None:
    worker_role, reader_role = (f"{kind}_{make_url(url).database}" for kind in ("flat", "reader"))
    with MemoryWorthStore(url, embedding) as owner:
        owner.add_texts(["apple"], ids=["a"])
        for statement in (
            *documented_grants(worker_role),
            f"CREATE ROLE {reader_role} LOGIN",
            f"GRANT USAGE ON SCHEMA memoryworth TO {reader_role}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA memoryworth TO {reader_role}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA memoryworth GRANT SELECT ON TABLES TO {reader_role}",
        ):
            execute(owner, statement)
    with MemoryWorthStore(url.replace("postgres:", f"{worker_role}:"), embedding) as worker:
        make_store(url)
        worker.add_texts(["pear"], ids=["p"])
        worker.erase("a")
        assert query(worker, "SELECT current_user, COUNT(*) FROM vectors") == [(worker_role, 1)]
    reader = make_store(url.replace("postgres:", f"{reader_role}:"))
    assert [d.id for d in reader.similarity_search("pear", k=2)] == ["p"]


def test_a_server_without_pgvector_says_so(ledger: Server, embedding: HashedWords) -> None:
    with pytest.raises(MissingExtensionError, match="CREATE EXTENSION vector"):
        MemoryWorthStore(new_schema(ledger), embedding, index="pgvector")


def test_sqlite_has_no_pgvector(embedding: HashedWords, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs a Postgres"):
        MemoryWorthStore(f"sqlite:///{tmp_path}/m.db", embedding, index="pgvector")
    assert list(tmp_path.iterdir()) == []
