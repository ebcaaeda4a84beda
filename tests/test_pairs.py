"""The diversity floor: which pairs are habitual, who of them is left out in how many episodes, and what that tells."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.store.memory import InMemoryStore

from langchain_memoryworth import GovernedStore, MemoryWorthStore, govern
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.draws import holds_out
from langchain_memoryworth.estimators.hitchhikers import CoRetrievals, partings
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Arm
from tests.fakes import HashedWords, assert_exact
from tests.notes import run
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]
FLOOR = 0.36
RATE = 0.2  # of each of two that are drawn about: 1 - (1 - .36)^(1/2)
TEXTS = [f"tea note {i}" for i in range(6)]
IDS = [f"m{i}" for i in range(6)]


def retrieved(
    store: MemoryWorthStore, name: str, k: int = 2, outcome: float | None = None
) -> list[str]:
    with store.episode(name) as episode:
        found = [d.id or "" for d in store.as_retriever(search_kwargs={"k": k}).invoke("tea")]
    if outcome is not None:
        episode.record(outcome)
    return found


def habitual(
    make_store: StoreMaker, url: str = "sqlite://", **policy: object
) -> tuple[MemoryWorthStore, list[str]]:
    """A store in which the first two for "tea" were shown together 30 times, and the order of all."""
    rules = {"exploration": 0.0, "diversity_floor": FLOOR, "suppress": False, **policy}
    store = make_store(url, policy=plain(**rules))
    store.add_texts(TEXTS, ids=IDS)
    order = retrieved(store, "all", k=6)
    for i in range(30):
        assert retrieved(store, f"before-{i}", outcome=i % 2) == order[:2]
    return store, order


def out_of(store: MemoryWorthStore, name: str) -> dict[str, float]:
    """Who was held out of an episode, and with which probability."""
    exposures = store.run(name).exposures
    return {x.memory_id: x.propensity for x in exposures if x.arm is Arm.HELD_OUT}


def number_of(store: MemoryWorthStore, memory_id: str) -> int:
    return store.governor.collection.versions([memory_id])[memory_id][0].seq


def test_both_of_a_pair_are_left_out_in_turn_and_logged_as_in_a_trial(
    make_store: StoreMaker, url: str
) -> None:
    store, order = habitual(make_store, url)
    [pair] = store.learn_pairs()
    assert ({pair.first, pair.second}, pair.together) == (set(order[:2]), 31)
    numbers = {m: number_of(store, m) for m in order[:2]}
    apart, episodes = 0, 400
    for i in range(episodes):
        found = retrieved(store, f"run-{i}", outcome=i % 2)
        out = [m for m in order[:2] if holds_out(0, f"run-{i}", numbers[m], RATE)]
        assert found == [m for m in order if m not in out][:2]
        assert out_of(store, f"run-{i}") == pytest.approx(dict.fromkeys(out, RATE))
        shown = {x.memory_id: x.propensity for x in store.run(f"run-{i}").exposures if x.shown}
        assert shown == pytest.approx({m: 1 - RATE if m in order[:2] else 1.0 for m in found})
        apart += bool(out)
    # Four standard deviations of a binomial share.
    assert abs(apart - FLOOR * episodes) < 4 * math.sqrt(FLOOR * (1 - FLOOR) * episodes)
    assert_exact(store)


def test_the_same_episode_draws_the_same_in_another_process_and_again(
    make_store: StoreMaker, shared_url: str
) -> None:
    one, _ = habitual(make_store, shared_url)
    two = make_store(shared_url, policy=one.policy)
    retrieved(two, "loaded")
    one.learn_pairs()
    for i in range(20):
        assert (
            retrieved(one, f"run-{i}") == retrieved(two, f"run-{i}") == retrieved(one, f"run-{i}")
        )
    assert any(out_of(two, f"run-{i}") for i in range(20))


def test_what_takes_the_empty_place_is_nobodys_companion(make_store: StoreMaker) -> None:
    """The third memory is only ever shown beside the first or the second, in enough episodes to be reported."""
    store, order = habitual(make_store)
    before = store.learn_pairs()
    for i in range(300):
        retrieved(store, f"run-{i}", outcome=1.0)
    assert store.memory(order[2]).evidence.retrievals > 50
    [pair] = store.learn_pairs()
    assert pair[:2] == before[0][:2]
    assert pair.together > before[0].together


def test_nor_when_the_one_that_made_room_is_another_text_or_erased(
    make_store: StoreMaker, url: str
) -> None:
    store = make_store(url, policy=plain(exploration=0.0, diversity_floor=FLOOR))
    store.add_texts(TEXTS, ids=IDS)
    first, second, third, *_ = retrieved(store, "all", k=6)
    store.hold_out(second, rate=0.5)
    for i in range(80):
        retrieved(store, f"run-{i}")
    pairs = [{first, second}]
    assert [set(p[:2]) for p in store.learn_pairs()] == pairs
    store.add_texts(["another note"], ids=[second])
    assert store.learn_pairs() == ()
    store.erase(second)
    assert store.learn_pairs() == ()
    assert any(third in shown_in(store, f"run-{i}") for i in range(80))


def shown_in(store: MemoryWorthStore, name: str) -> set[str]:
    return {x.memory_id for x in store.run(name).exposures if x.shown}


def test_lifts_tell_the_anchor_from_its_companion(make_store: StoreMaker) -> None:
    """Success is .8 with the anchor and .2 without it, whoever else is there: lifts of .6 and 0, a deviation of about .04."""
    store, (anchor, rider, *_) = habitual(make_store)
    store.learn_pairs()
    for i in range(600):
        with_anchor = anchor in retrieved(store, f"run-{i}")
        store.record_outcome(f"run-{i}", i % 5 < (4 if with_anchor else 1))
    lifts = {m.memory_id: m for m in store.lift()}
    assert set(lifts) == {anchor, rider}
    for name, limit in ((anchor, 0.6), (rider, 0.0)):
        found = lifts[name]
        assert found.value is not None
        assert found.deviation is not None
        assert abs(found.value - limit) < 3 * found.deviation


def test_a_pinned_memory_is_never_left_out_and_its_companion_bears_the_whole_share(
    make_store: StoreMaker,
) -> None:
    store, (first, second, *_) = habitual(make_store)
    store.pin(first)
    store.learn_pairs()
    seen: dict[str, float] = {}
    for i in range(60):
        retrieved(store, f"run-{i}")
        seen |= out_of(store, f"run-{i}")
    assert seen == pytest.approx({second: FLOOR})
    store.pin(second)  # without learning anew
    store.unpin(first)
    for i in range(60):
        retrieved(store, f"later-{i}")
        assert second not in out_of(store, f"later-{i}")


def test_an_anchor_that_is_often_alone_is_not_drawn_about(make_store: StoreMaker) -> None:
    store = make_store(policy=plain(diversity_floor=FLOOR))
    store.add_texts(TEXTS, ids=IDS)
    for i in range(90):
        run(store, f"run-{i}", ["m0", "m1"] if i % 3 == 0 else ["m0"], 1.0)
    assert [p[:3] for p in store.learn_pairs()] == [("m0", "m1", 30)]
    seen: dict[str, float] = {}
    for i in range(60):
        retrieved(store, f"now-{i}", k=6)
        seen |= out_of(store, f"now-{i}")
    assert seen == pytest.approx({"m1": FLOOR})


def test_a_habit_that_ends_is_no_longer_broken(make_store: StoreMaker) -> None:
    store, order = habitual(make_store)
    store.learn_pairs()
    for i in range(40):
        run(store, f"one-{i}", [order[0]], 1.0)
        run(store, f"two-{i}", [order[1]], 1.0)
    assert store.learn_pairs() == ()
    for i in range(40):
        assert retrieved(store, f"run-{i}") == order[:2]
        assert not out_of(store, f"run-{i}")
    kinds = [(a.kind, a.reason) for a in store.actions(2)]
    assert kinds == [
        ("pairs", "0 habitual pairs, drawn about are 0 memories"),
        ("pairs", "1 habitual pairs, drawn about are 2 memories"),
    ]


def test_a_trial_of_its_own_goes_first_and_a_rate_for_everything_is_a_lower_bound(
    make_store: StoreMaker, shared_url: str
) -> None:
    before, order = habitual(make_store, shared_url)
    before.learn_pairs()
    before.close()
    policy = plain(exploration=0.0, diversity_floor=FLOOR, hold_out=0.05)
    store = make_store(shared_url, policy=policy)
    store.hold_out(order[0], rate=0.5)
    seen: dict[str, float] = {}
    for i in range(200):
        retrieved(store, f"run-{i}")
        seen |= out_of(store, f"run-{i}")
    assert [seen[m] for m in order[:3]] == pytest.approx([0.5, RATE, 0.05])
    store.end_hold_out(order[0])
    retrieved(store, "after")
    [drawn] = [x for x in store.run("after").exposures if x.memory_id == order[0]]
    assert drawn.propensity in (pytest.approx(RATE), pytest.approx(1 - RATE))


def test_another_policy_breaks_no_pairs(make_store: StoreMaker, shared_url: str) -> None:
    store, order = habitual(make_store, shared_url)
    store.learn_pairs()
    store.close()
    again = make_store(shared_url, policy=plain(exploration=0.0))
    for i in range(30):
        assert retrieved(again, f"run-{i}") == order[:2]
    with pytest.raises(InvalidInputError, match=r"diversity_floor=0\.1"):
        again.learn_pairs()


def test_a_changed_text_is_another_memory(make_store: StoreMaker) -> None:
    store, order = habitual(make_store)
    store.learn_pairs()
    for name in order[:2]:
        store.add_texts([TEXTS[IDS.index(name)] + " tea"], ids=[name])
    for i in range(30):
        retrieved(store, f"run-{i}")
        assert not out_of(store, f"run-{i}")


async def test_the_async_twin(make_store: StoreMaker) -> None:
    store, order = habitual(make_store)
    [pair] = await store.alearn_pairs()
    assert {pair.first, pair.second} == set(order[:2])


# -- memories that live elsewhere -------------------------------------------------------------------------------


def test_pairs_of_a_governed_vector_store(make_store: StoreMaker) -> None:
    notes = InMemoryVectorStore.from_texts(TEXTS, HashedWords(), ids=IDS)
    store = make_store(policy=plain(diversity_floor=FLOOR, exploration=0.0))
    retriever = govern(notes, store, k=2)
    order = [d.id for d in notes.similarity_search("tea", k=6)]

    def found(name: str) -> list[str | None]:
        with store.episode(name):
            return [d.id for d in retriever.invoke("tea")]

    for i in range(30):
        assert found(f"before-{i}") == order[:2]
    store.learn_pairs()
    for i in range(60):
        out = [m for m in order[:2] if holds_out(0, f"run-{i}", m, RATE)]
        assert found(f"run-{i}") == [m for m in order if m not in out][:2]
        assert out_of(store, f"run-{i}") == pytest.approx(dict.fromkeys(out, RATE))


def test_pages_of_a_governed_langgraph_store_stay_full(make_store: StoreMaker) -> None:
    inner = InMemoryStore(index={"dims": 32, "embed": HashedWords()})
    keeper = make_store(policy=plain(diversity_floor=0.9, exploration=0.0))
    store = GovernedStore(inner, keeper)
    for i in range(12):
        store.put(("notes",), f"n{i}", {"text": f"tea note {i}"})
    for i in range(30):
        with store.episode(f"before-{i}"):
            store.search(("notes",), query="tea", limit=6)
    assert len(keeper.learn_pairs()) == 15
    for i in range(20):
        with store.episode(f"run-{i}"):
            assert len(store.search(("notes",), query="tea", limit=6)) == 6


# -- the arithmetic ---------------------------------------------------------------------------------------------


@given(
    st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=40),
    st.sets(st.integers(0, 6)),
    st.floats(0.001, 0.999),
)
def test_no_pair_is_apart_in_more_than_the_floor_and_free_companions_in_just_that(
    episodes: list[set[int]], fixed: set[int], floor: float
) -> None:
    seen = CoRetrievals()
    for shown in episodes:
        seen.update(shown)
    pairs = seen.report(least=1)
    drawn = partings(pairs, fixed)
    assert not fixed & drawn.keys()
    policy = Policy(diversity_floor=floor)
    for pair in pairs:
        rates = [policy.held_out(None, drawn.get(m)) for m in pair[:2]]
        apart = 1 - math.prod(1 - rate for rate in rates)
        assert apart <= floor + 1e-9
        if all(m in drawn for m in pair[:2]):
            assert apart == pytest.approx(floor)
        assert (pair.second in drawn) == (pair.second not in fixed)


@pytest.mark.parametrize("floor", [-0.1, 1, 1.5, math.nan, "half"])
def test_a_wrong_floor(floor: object) -> None:
    with pytest.raises(ValueError, match="diversity_floor"):
        Policy(diversity_floor=floor)
