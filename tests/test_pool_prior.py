"""What a namespace says of a memory before its own outcomes do: learnt from a real store, kept, and judged by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from langchain_memoryworth import MemoryWorthStore, Policy, Status, Verdict
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.prior import prior_of_pool
from tests.fakes import assert_exact, query
from tests.notes import filled, run, suppressed
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]
SUCCESSES = (10, 9, 8, 10, 9)
"""Of ten retrievals of each memory, in turn: a pool of good ones."""


def pool(**fields: object) -> Policy:
    return plain(prior="pool", confidence=0.95, **fields)


def lived(store: MemoryWorthStore, memories: int = 30) -> MemoryWorthStore:
    """Each memory of a pool has been retrieved ten times, alone."""
    for i in range(memories):
        for j in range(10):
            run(store, f"m{i}-{j}", [f"m{i}"], j < SUCCESSES[i % 5])
    return store


def test_it_is_the_prior_of_the_counters(make_store: StoreMaker, url: str) -> None:
    store = lived(filled(make_store, 31, pool(), url))
    assert store.explain("m30").belief.mean == 0.5  # flat, until somebody learns
    found = store.learn_prior()
    stands = [m.evidence for m in store.memories()]
    expected = prior_of_pool([e.worth for e in stands], [e.effective_size for e in stands])
    assert tuple(found) == (*expected, 30)
    assert found.mean == pytest.approx(0.92)
    assert store.explain("m30").belief.mean == found.mean
    assert_exact(store)


def test_it_stays_until_it_is_learnt_again(make_store: StoreMaker) -> None:
    store = lived(filled(make_store, 31, pool()))
    first = store.learn_prior()
    for i in range(30):
        run(store, f"late-{i}", [f"m{i}"], False)
    assert store.explain("m30").belief.mean == first.mean
    second = store.learn_prior()
    assert second.mean < first.mean
    for i in range(30):
        store.withdraw_outcome(f"late-{i}")
    assert store.learn_prior() == first  # to the last bit


def test_verdicts_and_statuses_begin_with_it(make_store: StoreMaker) -> None:
    """2 of 13 is LOW to whoever knows nothing; among memories that nearly all succeed it takes more to say so."""
    store = lived(filled(make_store, 31, pool()))
    for j in range(13):
        run(store, f"bad-{j}", ["m30"], j < 2)
    assert suppressed(store) == {"m30"}
    found = store.learn_prior()
    assert store.memory("m30").verdict is Verdict.UNCERTAIN
    assert store.memory("m30").status is Status.ACTIVE
    assert f"prior {found.alpha:.2f} to {found.beta:.2f}" in store.history("m30")[-1].reason
    for j in range(20):
        run(store, f"worse-{j}", ["m30"], False)
    assert suppressed(store) == {"m30"}
    assert_exact(store)


def test_a_correction_is_judged_by_the_same_prior(make_store: StoreMaker) -> None:
    store = lived(filled(make_store, 31, pool()))
    store.learn_prior()
    for j in range(40):
        run(store, f"bad-{j}", ["m30"], False)
    assert suppressed(store) == {"m30"}
    for j in range(40):
        store.record_outcome(f"bad-{j}", True)
    assert suppressed(store) == set()
    assert_exact(store)


def test_a_memory_without_evidence_ranks_by_it(make_store: StoreMaker) -> None:
    """Two texts that are equally near: one of worth .8, and a new one of a pool with .92."""
    policy = pool(rank=(0.5, 0.5))
    store = lived(filled(make_store, 30, policy))
    store.add_texts(["asked for"], ids=["known"])
    for j in range(10):
        run(store, f"known-{j}", ["known"], j < 8)
    store.add_texts(["asked for "], ids=["new"])

    def order() -> list[str | None]:
        return [d.id for d in store.similarity_search("asked for", k=2)]

    assert order() == ["known", "new"]  # .8 against 1/2
    store.learn_prior()
    assert order() == ["new", "known"]


def test_putting_the_policy_in_force_learns_it_for_all_namespaces(
    make_store: StoreMaker, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/notes.db"
    store = lived(filled(make_store, 31, plain(), url))
    store.add_texts(["elsewhere"], ids=["m0"], namespace="acme")
    again = make_store(url, policy=pool())
    mean = again.explain("m30").belief.mean
    assert mean == pytest.approx(0.92)
    assert again.explain("m0", namespace="acme").belief.mean == 0.5
    assert make_store(url).explain("m30").belief.mean == mean  # another process
    assert store.explain("m30").belief.mean == mean  # one that was there before


def test_who_knows_a_prior_gives_it(make_store: StoreMaker, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/notes.db"
    make_store(url, policy=plain(prior=(8, 2), confidence=0.95))
    store = filled(make_store, 1, None, url)  # as it was stored
    assert store.policy.prior == (8.0, 2.0)
    assert store.explain("m0").belief.mean == pytest.approx(0.8)
    for j in range(13):
        run(store, f"r{j}", ["m0"], j < 2)
    assert suppressed(store) == set()  # it is LOW to a flat prior
    with pytest.raises(InvalidInputError, match="prior is"):
        store.learn_prior()


@pytest.mark.parametrize("prior", [(0, 1), (1.0,), (-1, 2), "flat", 1.5, (float("inf"), 1)])
def test_what_is_no_prior(prior: object) -> None:
    with pytest.raises(ValidationError, match="prior"):
        Policy(prior=prior)  # type: ignore[arg-type]


def test_without_the_policy_there_is_nothing_to_learn(make_store: StoreMaker) -> None:
    store = filled(make_store, 1, plain())
    with pytest.raises(InvalidInputError, match=r"prior is 0.5.*Policy\(prior='pool'\)"):
        store.learn_prior()


def test_what_is_erased_leaves_no_prior(make_store: StoreMaker) -> None:
    store = lived(filled(make_store, 30, pool()))
    store.learn_prior()
    sql = "SELECT COUNT(*) FROM meta WHERE key LIKE 'prior:%'"
    assert query(store, sql) == [(1,)]
    store.erase_namespace(())
    assert query(store, sql) == [(0,)]


async def test_async_twin(make_store: StoreMaker) -> None:
    store = lived(filled(make_store, 30, pool()))
    assert (await store.alearn_prior()).memories == 30
