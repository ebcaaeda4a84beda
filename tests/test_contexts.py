"""Contexts: worth within them, their numbers over refits, and what can and cannot be learnt without labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.governance.pools import Log, memory_worth, online_effects, topic_pool
from benchmarks.governance.strata import by_co_retrieval, by_query, confounded, queries, within
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators import clusters, contexts
from langchain_memoryworth.estimators.strata import stratified_worth
from langchain_memoryworth.experiments.simulator import spearman

EPISODES = 10_000
SEEDS = 5


def rho(estimate, log):
    return float(spearman(estimate, log.utility))


def mean_rho(context_of, **world):
    logs = [confounded(seed, EPISODES, **world) for seed in range(SEEDS)]
    return np.mean([rho(within(log, context_of(log, s)), log) for s, log in enumerate(logs)])


# -- worth within contexts -----------------------------------------------------------------------------------------------


def test_given_contexts_rank_specialists_with_generalists():
    log = confounded(0, EPISODES)
    assert rho(memory_worth(log), log) < 0.15
    assert mean_rho(lambda log, _: log.context) >= 0.80


@given(st.permutations(range(4)), st.integers(0, 10**6))
def test_the_order_of_the_contexts_does_not_matter(order, seed):
    rng = np.random.default_rng(seed)
    worth, size, base = rng.random((3, 4)), rng.random((3, 4)) * 50, rng.random(4)
    mixed = stratified_worth(worth[:, order], size[:, order], base[list(order)])
    assert mixed == pytest.approx(stratified_worth(worth, size, base), abs=1e-12)


def test_a_context_without_evidence_says_nothing():
    assert stratified_worth([[0.9, 0.5]], [[0, 0]], [0.1, 0.1], strength=0).tolist() == [0.0]
    assert stratified_worth([[0.9, 0.5]], [[0, 90]], [0.1, 0.4]).tolist() == pytest.approx([0.09])
    with pytest.raises(InvalidInputError, match="negative"):
        stratified_worth([[0.5]], [[-1.0]], [0.5])


# -- co-retrieval ----------------------------------------------------------------------------------------------------------


def test_communities_find_hard_tasks_without_labels():
    log = confounded(1, EPISODES)
    found = by_co_retrieval(log)
    assert len(set(found.tolist())) == 2
    assert max(np.mean(found == log.context), np.mean(found != log.context)) > 0.9
    assert mean_rho(lambda log, _: by_co_retrieval(log)) >= 0.75


def test_communities_find_topics_and_so_take_their_difficulty_out():
    values = []
    for seed in range(3):
        log = topic_pool(seed, EPISODES, difficulty=0.15)
        found = by_co_retrieval(log)
        values.append(rho(online_effects(Log(log.shown, log.success, found, log.utility)), log))
    assert np.mean(values) >= 0.78


def test_where_nothing_tells_the_tasks_apart_there_is_one_context():
    log = confounded(2, 3_000, shared=True)
    assert len(set(by_co_retrieval(log).tolist())) == 1


def worlds(seed, episodes=400):
    rng = np.random.default_rng(seed)
    names = [[f"{topic}{i}" for i in range(12)] for topic in "abc"]
    topics = rng.integers(3, size=episodes)
    return topics, [rng.permutation(names[t])[:4].tolist() for t in topics]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_a_refit_keeps_the_numbers_and_new_contexts_get_new_ones(seed):
    _, sets = worlds(seed)
    first = contexts.fit(sets)
    again = contexts.fit(sets[::-1], previous=first)
    assert [again.of(s) for s in sets] == [first.of(s) for s in sets]

    only_c_and_new = [s for s in sets if s[0][0] == "c"]
    only_c_and_new += [[m.replace("c", "d") for m in s] for s in only_c_and_new]
    later = contexts.fit(only_c_and_new, previous=first)
    by_letter = {s[0][0]: later.of(s) for s in only_c_and_new}
    assert by_letter["c"] == first.of(next(s for s in sets if s[0][0] == "c"))
    assert by_letter["d"] not in first.ids
    assert by_letter["d"] >= first.next_id


def test_the_order_of_a_set_does_not_matter_and_strangers_are_allowed():
    topics, sets = worlds(3)
    found = contexts.fit(sets)
    assert [found.of(s[::-1]) for s in sets] == [found.of(s) for s in sets]
    assert len({(t, found.of(s)) for t, s in zip(topics, sets, strict=True)}) == 3
    assert found.of(["a0", "a1", "stranger"]) == found.of(["a0", "a1"])
    assert found.of([]) in found.ids
    with pytest.raises(InvalidInputError, match="episode"):
        contexts.fit([])


# -- query clusters ----------------------------------------------------------------------------------------------------------


def test_query_clusters_need_as_many_clusters_as_there_are_topics():
    def count(n):
        return mean_rho(lambda log, s: by_query(queries(log, s, spread=0.3), n))

    assert count(20) >= 0.75
    assert count(2) < 0.4


def test_overlapping_topics_cannot_be_told_apart_by_their_queries():
    assert mean_rho(lambda log, s: by_query(queries(log, s, spread=6.0), 20)) < 0.3


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_cluster_numbers_survive_a_refit(seed):
    rng = np.random.default_rng(seed)
    centres = np.eye(6)[:4]
    points = np.repeat(centres, 20, axis=0) + 0.1 * rng.standard_normal((80, 6))
    first = clusters.fit(points, 4, seed=seed)
    again = clusters.fit(rng.permutation(points), 4, previous=first, seed=seed)
    assert (again.of(points) == first.of(points)).all()

    moved = np.vstack([points[20:], np.eye(6)[4] + 0.1 * rng.standard_normal((20, 6))])
    later = clusters.fit(moved, 4, previous=first, seed=seed)
    assert len(set(later.ids.tolist())) == 4
    assert later.next_id >= first.next_id


def test_fewer_queries_than_clusters_give_fewer_clusters(capfd):
    queries_ = [[1, 0], [1, 0], [0, 1]]
    first = clusters.fit(np.eye(2)[[0, 1, 1, 0]] + 0.1 * np.eye(4, 2), 4)
    for previous in (None, first):
        assert len(clusters.fit(queries_, 5, previous=previous).ids) == 2
    assert capfd.readouterr() == ("", "")  # FAISS would warn on stdout


def test_all_queries_count_and_the_seed_decides_alone():
    rng = np.random.default_rng(3)
    many = np.repeat(np.eye(8), 300, axis=0) + 0.4 * rng.standard_normal((2400, 8))
    found = clusters.fit(many, 2, seed=1)
    assert (clusters.fit(many, 2, seed=1).centres == found.centres).all()
    points = many / np.linalg.norm(many, axis=1, keepdims=True)
    sums = np.array([points[found.of(many) == i].sum(axis=0) for i in found.ids])
    # A round of Lloyd's algorithm over all of them, where FAISS by itself would take a sample of 512.
    assert np.allclose(sums / np.linalg.norm(sums, axis=1, keepdims=True), found.centres, atol=0.02)


@pytest.mark.parametrize("queries_", [[[0.0, 0.0]], [[np.nan, 1.0]], np.zeros((0, 2))])
def test_queries_that_are_none_are_refused(queries_):
    with pytest.raises(InvalidInputError, match="queries"):
        clusters.fit(queries_, 2)
    with pytest.raises(InvalidInputError, match="count"):
        clusters.fit([[1.0]], 0)
