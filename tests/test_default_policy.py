"""What `Policy()` does by itself in a real store, where the paper's rule is known to go wrong."""

from __future__ import annotations

import numpy as np
import pytest

from langchain_memoryworth import Policy
from tests.conftest import StoreMaker
from tests.notes import filled, run, suppressed

K = 4


def test_a_store_without_a_policy_has_the_default(make_store: StoreMaker) -> None:
    assert make_store().policy == Policy()


def test_what_always_fails_where_others_succeed_is_suppressed(make_store: StoreMaker) -> None:
    """`m0` is shown with three good ones and the run fails, which 19 times of 20 it does not without it."""
    store = filled(make_store, 30)
    rng = np.random.default_rng(0)
    for n in range(400):
        ids = [f"m{i}" for i in rng.choice(np.arange(1, 30), K, replace=False)]
        if n % 5 == 0:
            ids[0] = "m0"
        run(store, f"r{n}", ids, "m0" not in ids and rng.random() < 0.95)
    assert suppressed(store) == {"m0"}


@pytest.mark.parametrize(("count", "allowed"), [(19, 0), (20, 4), (50, 10)])
def test_never_more_than_a_fifth_and_none_of_a_small_store(
    make_store: StoreMaker, count: int, allowed: int
) -> None:
    """Half of the memories fail whenever they are used, the others never do."""
    store = filled(make_store, count)
    for n in range(30 * count):
        run(store, f"r{n}", [f"m{n % count}"], n % count >= count // 2)
    assert len(suppressed(store)) == allowed
    assert suppressed(store) <= {f"m{i}" for i in range(count // 2)}


def test_nothing_is_hidden_where_tasks_are_hard(make_store: StoreMaker) -> None:
    """At a success rate of .3 the paper's rule hides nearly all of thirty memories that are alike, the default none."""
    hidden = []
    for policy in (Policy.paper(), Policy()):
        store = filled(make_store, 30, policy)
        rng = np.random.default_rng(1)
        for n in range(600):
            ids = [f"m{i}" for i in rng.choice(30, K, replace=False)]
            run(store, f"r{n}", ids, rng.random() < 0.3)
        hidden.append(len(suppressed(store)))
    assert hidden[0] >= 20
    assert hidden[1] == 0


def test_a_good_memory_that_goes_bad_is_found(make_store: StoreMaker) -> None:
    """From .85 to .2 after 100 retrievals. At .2 its average reaches .4 only after another 225."""
    store = filled(make_store, 30)
    rng = np.random.default_rng(2)
    for n in range(30 * 40):  # the others, so that success is to be expected
        run(store, f"other{n}", [f"m{1 + n % 29}"], rng.random() < 0.8)
    for n in range(100):
        run(store, f"good{n}", ["m0"], rng.random() < 0.85)
    assert suppressed(store) == set()
    for n in range(60):
        for i in range(3):
            run(store, f"beside{n}-{i}", [f"m{1 + (3 * n + i) % 29}"], rng.random() < 0.8)
        run(store, f"bad{n}", ["m0"], rng.random() < 0.2)
        if suppressed(store):
            break
    assert suppressed(store) == {"m0"}
    assert store.evidence("m0").worth > 0.5


def test_failing_moves_a_memory_down_at_once_and_success_moves_it_up_less(
    make_store: StoreMaker,
) -> None:
    """Within `effect_reach` and `effect_lift`, long before there is any verdict."""
    store = make_store()
    store.add_texts(["the tea"] * 3, ids=["fails", "nothing", "helps"])
    for n in range(6):
        run(store, f"f{n}", ["fails"], False)
        run(store, f"h{n}", ["helps"], True)
    hits = store.governor.retrieval.recall("the tea", 3, track=False)
    assert [h.id for h in hits] == ["helps", "nothing", "fails"]
    up, middle, down = (h.score for h in hits)
    assert 0 < up - middle <= store.policy.effect_lift + 1e-6
    assert up - middle < middle - down <= store.policy.effect_reach + 1e-6
    assert len({h.similarity for h in hits}) == 1
