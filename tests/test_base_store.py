"""`GovernedStore`: the inner store's answers where nothing is held back, and the same without it where something is.

Every test runs on all stores of `store_backends`, by every way they can be called.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from langchain_memoryworth import GovernedStore, MemoryWorthStore
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.records import Arm
from tests.conftest import StoreMaker
from tests.fakes import DIMENSION, HashedWords, assert_exact, query
from tests.policies import plain
from tests.runs_fixtures import broken_ledger
from tests.store_backends import FACED, Face, Place, StoreBackend, call

STRICT = plain(v_min=1, theta_low=0.4, exploration=0.0)
"""One failure holds a memory back."""
WORDS = ("apple", "bread", "cedar", "delta", "ember", "flint", "grape", "hazel", "iris", "juniper")
NOTES = ("notes", "ada")
QUERY = "apple bread cedar"


class Subject:
    """A governed store on one backend, called in one way."""

    def __init__(self, inner: BaseStore, governed: GovernedStore, face: Face) -> None:
        self.inner = inner
        self.governed = governed
        self.face = face

    async def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return await call(self.face, self.governed, method, *args, **kwargs)

    async def raw(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return await call(self.face, self.inner, method, *args, **kwargs)

    async def fill(self) -> None:
        for number, word in enumerate(WORDS):
            value = {"text": f"{word} {QUERY}" if number % 3 else word, "number": number}
            await self.raw("put", NOTES if number % 2 else ("notes", "bob"), word, value)
        await self.raw("put", ("other",), "apple", {"text": QUERY, "number": 99})

    async def fail(self, *words: str) -> None:
        """Hold items back: each alone is what a failing run was given."""
        for word in words:
            item = next(i for i in await self.full() if i.key == word)
            with self.governed.episode() as episode:
                text, space = item.value["text"], item.namespace
                found = await self("search", space, query=text, limit=1, filter=item.value)
                assert [i.key for i in found] == [word]
            episode.record(False)

    async def full(self, **kwargs: Any) -> list[Any]:
        """All that the inner store has for the query, in its order."""
        return await self.raw("search", ("notes",), query=QUERY, limit=100, **kwargs)


@pytest.fixture
def open_subject(
    make_store: StoreMaker, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., Any]:
    def postgres() -> str:  # the server starts only for those that need it
        return request.getfixturevalue("postgres")

    def opened(backend: StoreBackend, ttl: Any = None) -> Any:
        return backend.open(Place(tmp_path, postgres), ttl)

    return opened


@pytest.fixture(params=FACED, ids=lambda p: f"{p[0].name}-{p[1]}")
async def subject(
    request: pytest.FixtureRequest, open_subject: Callable[..., Any], make_store: StoreMaker
) -> AsyncIterator[Subject]:
    backend, face = request.param
    async with open_subject(backend) as inner:
        yield Subject(inner, GovernedStore(inner, make_store(policy=STRICT)), face)


def flat(result: Any) -> Any:
    """An answer without its times, which no two stores share."""
    if isinstance(result, list):
        return [flat(r) for r in result]
    if hasattr(result, "value"):
        score = getattr(result, "score", None)
        return type(result).__name__, result.namespace, result.key, result.value, score
    return result


def keys(items: list[Any]) -> list[str]:
    return [i.key for i in items]


# -- nothing held back: the inner store's own answers -------------------------------------------------------------------


async def test_searches_are_the_inner_stores(subject: Subject) -> None:
    await subject.fill()
    await subject.raw("put", NOTES, "unindexed", {"text": QUERY, "number": 3}, index=False)
    filters = (None, {"number": 3}, {"number": {"$gte": 4}}, {"text": {"$ne": "delta"}}, {"no": 1})
    spaces = ((), ("notes",), NOTES, ("not", "there"))
    for space, text, filter_, (limit, offset) in itertools.product(
        spaces, (None, QUERY, ""), filters, ((10, 0), (3, 0), (3, 2), (2, 40))
    ):
        asked = {"query": text, "filter": filter_, "limit": limit, "offset": offset}
        with subject.governed.episode():
            assert await subject("search", space, **asked) == await subject.raw(
                "search", space, **asked
            ), (space, asked)
    assert subject.governed.health().ok


async def test_gets_and_namespaces_are_the_inner_stores(subject: Subject) -> None:
    await subject.fill()
    for key in ("apple", "missing", 'quote"and, comma'):
        assert await subject("get", NOTES, key) == await subject.raw("get", NOTES, key)
    for asked in (
        {},
        {"prefix": ("notes",)},
        {"suffix": ("ada",)},
        {"max_depth": 1},
        {"limit": 1},
        {"limit": 1, "offset": 1},
        {"prefix": ("*", "bob")},
    ):
        wanted = await subject.raw("list_namespaces", **asked)
        assert await subject("list_namespaces", **asked) == wanted, asked
        assert wanted or asked.get("offset")


async def test_writes_do_what_they_do_to_the_inner_store(subject: Subject) -> None:
    values: list[dict[str, Any]] = [
        {"text": "plain"},
        {"text": "nested", "deep": {"list": [1, 2.5, None, True]}},
        {"text": "žluťoučký 🐎"},
        {},
    ]
    for number, value in enumerate(values):
        await subject("put", NOTES, str(number), value)
        assert (await subject.raw("get", NOTES, str(number))).value == value
    await subject("put", NOTES, "0", {"text": "changed"})
    await subject("put", NOTES, "1", {"text": "unindexed"}, index=False)
    await subject("delete", NOTES, "2")
    await subject("delete", NOTES, "never there")
    assert (await subject.raw("get", NOTES, "0")).value == {"text": "changed"}
    assert await subject.raw("get", NOTES, "2") is None
    assert not query(subject.governed, "SELECT * FROM memories")


async def test_a_mixed_batch_is_the_inner_stores(subject: Subject) -> None:
    await subject.fill()
    reads = [
        GetOp(NOTES, "bread"),
        SearchOp(("notes",), query=QUERY, limit=3),
        SearchOp(("notes",), limit=2),
        SearchOp(("notes",), query="bread", filter={"number": 1}),
        ListNamespacesOp((MatchCondition("prefix", ("notes",)),)),
        SearchOp(("other",), query=QUERY),
    ]
    with subject.governed.episode() as episode:
        assert await subject("batch", reads) == await subject.raw("batch", reads)
    assert await subject("batch", iter(reads)) == await subject.raw("batch", reads)
    assert await subject("batch", []) == []
    shown = {e.memory_id for e in subject.governed.run(episode.id).exposures}
    assert subject.governed.memory_id(("other",), "apple") in shown
    written = await subject("batch", [PutOp(NOTES, "new", {"text": "new"}), GetOp(NOTES, "bread")])
    assert (written[0], written[1].key) == (None, "bread")
    assert (await subject.raw("get", NOTES, "new")).value == {"text": "new"}


async def test_errors_are_the_inner_stores(subject: Subject) -> None:
    for space in (("a.b",), ("",), ("langgraph",), (), (7,)):
        with pytest.raises(InvalidNamespaceError):
            await subject("put", space, "key", {})
    for space in (("a.b",), ("",), (7,)):
        with pytest.raises(InvalidNamespaceError):
            await subject("search", space, query="apple")
    if isinstance(subject.inner, InMemoryStore):
        with pytest.raises(NotImplementedError, match="InMemoryStore"):
            await subject("put", NOTES, "key", {}, ttl=5)
    else:
        await subject("put", NOTES, "key", {}, ttl=5)
        assert (await subject.raw("get", NOTES, "key")).value == {}


async def test_what_is_not_a_stores_own_method_is_the_inner_stores(subject: Subject) -> None:
    governed, inner = subject.governed, subject.inner
    assert governed.inner is inner
    assert isinstance(governed, BaseStore)
    assert governed.supports_ttl is inner.supports_ttl
    assert governed.ttl_config is inner.ttl_config
    assert governed.index_config is inner.index_config
    assert governed.embeddings is inner.embeddings
    with pytest.raises(AttributeError, match="nothing_like_that"):
        _ = governed.nothing_like_that
    if not isinstance(inner, InMemoryStore):
        assert governed.setup == inner.setup
        assert governed.start_ttl_sweeper == inner.start_ttl_sweeper


# -- something held back ------------------------------------------------------------------------------------------------


async def test_pages_are_those_of_a_store_without_what_is_held_back(subject: Subject) -> None:
    await subject.fill()
    await subject.fail("bread", "cedar", "iris")
    for filter_, (limit, offset) in itertools.product(
        (None, {"number": {"$gte": 2}}, {"number": 1}),
        ((10, 0), (1, 0), (3, 0), (3, 3), (2, 4), (7, 7), (5, 50)),
    ):
        whole = await subject.full(filter=filter_)
        served = [i for i in whole if i.key not in {"bread", "cedar", "iris"}]
        asked = {"query": QUERY, "filter": filter_, "limit": limit, "offset": offset}
        found = await subject("search", ("notes",), **asked)
        assert found == served[offset : offset + limit], asked
    scores = [i.score for i in await subject("search", ("notes",), query=QUERY)]
    assert scores == sorted(scores, reverse=True)


async def test_only_searches_with_a_query_are_blind_to_it(subject: Subject) -> None:
    await subject.fill()
    await subject.fail("bread")
    assert "bread" not in keys(await subject("search", ("notes",), query=QUERY))
    assert "bread" in keys(await subject("search", ("notes",)))
    assert (await subject("get", NOTES, "bread")).value["number"] == 1
    assert "bread" in keys(await subject.raw("search", ("notes",), query=QUERY))


async def test_many_held_back_before_the_first_that_is_served(subject: Subject) -> None:
    for number in range(40):
        await subject.raw("put", NOTES, f"near{number}", {"text": QUERY, "number": number})
    await subject.raw("put", NOTES, "far", {"text": "juniper", "number": 99})
    await subject.fail(*(f"near{n}" for n in range(40)))
    with subject.governed.episode() as episode:
        assert keys(await subject("search", NOTES, query=QUERY, limit=1)) == ["far"]
    (exposure,) = subject.governed.run(episode.id).exposures
    assert (exposure.memory_id, exposure.rank) == (subject.governed.memory_id(NOTES, "far"), 0)


async def test_a_batch_that_writes_searches_before_it_writes(subject: Subject) -> None:
    """Though so much is held back that one look is not enough, a second one would see what was written."""
    for number in range(20):
        value = {"text": f"{QUERY} {QUERY}", "number": number}
        await subject.raw("put", NOTES, f"near{number}", value)
    await subject.raw("put", NOTES, "far", {"text": "juniper", "number": 99})
    await subject.fail(*(f"near{n}" for n in range(20)))
    ops = [SearchOp(("notes",), query=QUERY, limit=1), PutOp(NOTES, "late", {"text": QUERY})]
    found, nothing = await subject("batch", ops)
    assert (keys(found), nothing) == (["far"], None)
    assert "late" in keys(await subject.full())


async def test_a_search_is_recorded_with_rank_and_cosine(subject: Subject) -> None:
    await subject.fill()
    with subject.governed.episode() as episode:
        found = await subject("search", ("notes",), query=QUERY, limit=3, offset=2)
    shown = subject.governed.run(episode.id).exposures
    assert [e.memory_id for e in shown] == [
        subject.governed.memory_id(i.namespace, i.key) for i in found
    ]
    assert [e.rank for e in shown] == [2, 3, 4]
    assert [e.similarity for e in shown] == pytest.approx([i.score for i in found])
    vectors = [HashedWords().embed_query(t) for t in (QUERY, found[0].value["text"])]
    norms = [sum(x * x for x in v) ** 0.5 for v in vectors]
    cosine = sum(a * b for a, b in zip(*vectors, strict=True)) / norms[0] / norms[1]
    assert shown[0].similarity == pytest.approx(cosine, abs=1e-5)
    episode.record(True)
    assert all(subject.governed.worth(e.memory_id) == 1 for e in shown)
    assert_exact(subject.governed)


async def test_values_are_never_touched(subject: Subject) -> None:
    await subject.fill()
    before = [i.value for i in await subject.full()]
    await subject.fail("bread")
    await subject("search", ("notes",), query=QUERY)
    assert [i.value for i in await subject.full()] == before


async def test_a_changed_value_starts_fresh_and_finds_its_evidence_again(subject: Subject) -> None:
    await subject.fill()
    await subject.fail("bread")
    memory = subject.governed.memory_id(NOTES, "bread")
    old = (await subject.raw("get", NOTES, "bread")).value
    await subject("put", NOTES, "bread", {**old, "text": f"bread {QUERY} now"})
    with subject.governed.episode():
        assert "bread" in keys(await subject("search", ("notes",), query=QUERY))
    assert subject.governed.worth(memory) == 0.5
    await subject("put", NOTES, "bread", dict(reversed(old.items())))
    assert "bread" not in keys(await subject("search", ("notes",), query=QUERY))


async def test_evidence_is_kept_on_change_if_asked(subject: Subject) -> None:
    subject.governed = GovernedStore(subject.inner, subject.governed, on_change="keep")
    await subject.fill()
    await subject.fail("bread")
    await subject("put", NOTES, "bread", {"text": f"bread {QUERY} now"})
    assert "bread" not in keys(await subject("search", ("notes",), query=QUERY))
    assert subject.governed.worth(subject.governed.memory_id(NOTES, "bread")) == 0.0


async def test_a_retrieval_that_is_repeated_writes_no_memory(subject: Subject) -> None:
    await subject.fill()
    for _ in range(3):
        with subject.governed.episode():
            await subject("search", ("notes",), query=QUERY, limit=4)
    changes = query(subject.governed, "SELECT low, high FROM changes WHERE kind = 'memories'")
    assert sum(high - low + 1 for low, high in changes) == 4


async def test_exploration_gives_the_last_place_to_the_best_held_back(subject: Subject) -> None:
    await subject.fill()
    await subject.fail("bread", "cedar")
    subject.governed.governor.policy = subject.governed.policy.model_copy(
        update={"exploration": 1.0}
    )
    whole = await subject.full()
    best = next(i for i in whole if i.key in {"bread", "cedar"})
    served = [i for i in whole if i.key not in {"bread", "cedar"}]
    with subject.governed.episode() as episode:
        first = await subject("search", ("notes",), query=QUERY, limit=3)
        second = await subject("search", ("notes",), query=QUERY, limit=3, offset=3)
    assert first == [*served[:2], best]
    assert second == served[2:5]
    arms = {e.memory_id: (e.arm, e.propensity) for e in subject.governed.run(episode.id).exposures}
    explored = subject.governed.memory_id(best.namespace, best.key)
    assert arms.pop(explored) == (Arm.PROBATION, 1.0)
    assert set(arms.values()) == {(Arm.SERVED, 1.0)}
    # Outside an episode nothing is drawn.
    assert await subject("search", ("notes",), query=QUERY, limit=3) == served[:3]


async def test_what_would_not_be_served_anyway_is_not_explored(subject: Subject) -> None:
    await subject.fill()
    whole = await subject.full()
    await subject.fail(whole[3].key)
    subject.governed.governor.policy = subject.governed.policy.model_copy(
        update={"exploration": 1.0}
    )
    with subject.governed.episode():
        assert await subject("search", ("notes",), query=QUERY, limit=3) == whole[:3]
        rest = await subject("search", ("notes",), query=QUERY, limit=50)
    assert rest == [*whole[:3], *whole[4:], whole[3]]


async def test_what_cannot_be_recorded_costs_the_user_nothing(
    subject: Subject, caplog: pytest.LogCaptureFixture
) -> None:
    await subject.fill()
    with broken_ledger(subject.governed), subject.governed.episode():
        found = await subject("search", ("notes",), query=QUERY, limit=3)
    assert found == (await subject.full())[:3]
    assert subject.governed.health().failures == {"what a run retrieved": 1}
    subject.governed.close()
    assert await subject("search", ("notes",), query=QUERY, limit=3) == found
    assert subject.governed.governor.losses.failures["which memories are held back"] >= 1


async def test_a_search_outside_every_run_is_counted(subject: Subject) -> None:
    await subject.fill()
    await subject("search", ("notes",), query=QUERY)
    await subject("search", ("notes",))
    assert subject.governed.health().unattributed == 1


async def test_parallel_searches_are_each_their_own_episodes(subject: Subject) -> None:
    await subject.fill()

    async def one(word: str) -> tuple[str, list[str]]:
        with subject.governed.episode() as episode:
            found = await subject("search", ("notes",), query=word, limit=2)
        return episode.id, [subject.governed.memory_id(i.namespace, i.key) for i in found]

    for id_, given in await asyncio.gather(*(one(w) for w in WORDS)):
        assert [e.memory_id for e in subject.governed.run(id_).exposures] == given


# -- expiry -------------------------------------------------------------------------------------------------------------

_SOON = {
    "sqlite": "UPDATE store SET expires_at = DATETIME('now', '+1 minutes')",
    "postgres": "UPDATE store SET expires_at = NOW() + INTERVAL '1 minutes'",
}
_LEFT = {
    "sqlite": "SELECT key, (JULIANDAY(expires_at) - JULIANDAY('now')) * 1440 FROM store",
    "postgres": "SELECT key, EXTRACT(EPOCH FROM expires_at - NOW()) / 60 FROM store",
}


@pytest.mark.parametrize(
    ("backend", "face"), [p for p in FACED if p[0].ttl], ids=lambda p: getattr(p, "name", p)
)
async def test_what_is_looked_at_and_not_served_lives_no_longer(
    backend: StoreBackend, face: Face, open_subject: Callable[..., Any], make_store: StoreMaker
) -> None:
    ttl = {"refresh_on_read": True, "default_ttl": 60}
    kind = "sqlite" if "Sqlite" in backend.name else "postgres"
    async with open_subject(backend, ttl) as inner:
        subject = Subject(inner, GovernedStore(inner, make_store(policy=STRICT)), face)

        async def execute(sql: str) -> list[Any]:
            cursor = inner.conn.execute(sql)
            rows = (await cursor) if isinstance(cursor, Awaitable) else cursor
            if not sql.startswith("SELECT"):
                return []
            fetched = rows.fetchall()
            return list(await fetched if isinstance(fetched, Awaitable) else fetched)

        for word in ("apple", "bread", "cedar"):
            await subject("put", NOTES, word, {"text": f"{word} {QUERY}"}, ttl=60)
        await subject.fail("bread")
        for refresh, left in ((None, 60), (False, 1)):
            await execute(_SOON[kind])
            found = await subject("search", ("notes",), query=QUERY, limit=1, refresh_ttl=refresh)
            rows = [
                tuple(r.values()) if isinstance(r, dict) else r for r in await execute(_LEFT[kind])
            ]
            minutes = {key: float(value) for key, value in rows}
            assert minutes.pop(found[0].key) == pytest.approx(left, abs=0.5)
            assert list(minutes.values()) == pytest.approx([1, 1], abs=0.5)


# -- construction -------------------------------------------------------------------------------------------------------


def test_it_governs_a_store_with_a_store(make_store: StoreMaker) -> None:
    inner, ledger = InMemoryStore(), make_store()
    governed = GovernedStore(inner, ledger.governor)
    assert governed.governor is ledger.governor
    with pytest.raises(InvalidInputError, match="no LangGraph store"):
        GovernedStore(ledger, ledger)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="already"):
        GovernedStore(governed, ledger)
    with pytest.raises(InvalidInputError, match="no store"):
        GovernedStore(inner, inner)
    with pytest.raises(InvalidInputError, match="'fresh' or 'keep'"):
        GovernedStore(inner, ledger, on_change="reset")  # type: ignore[arg-type]


def test_a_search_of_the_inner_store_is_not_explained_by_other_vectors(
    make_store: StoreMaker,
) -> None:
    governed = GovernedStore(InMemoryStore(), make_store())
    with pytest.raises(InvalidInputError, match=r"store\.explain"):
        governed.explain_search("apple")


def test_what_a_person_takes_out_of_service_is_not_even_explored(make_store: StoreMaker) -> None:
    inner = InMemoryStore(index={"dims": DIMENSION, "embed": HashedWords(), "fields": ["text"]})
    for word in WORDS[:3]:
        inner.put(NOTES, word, {"text": word})
    governed = GovernedStore(inner, make_store(policy=plain(v_min=1, exploration=1.0)))
    with governed.episode():
        governed.search(NOTES, query="apple")
    governed.deprecate(governed.memory_id(NOTES, "apple"), reason="wrong")
    with governed.episode():
        assert "apple" not in keys(governed.search(NOTES, query="apple", limit=2))
        assert "apple" not in keys(governed.search(NOTES, query="apple"))
    assert "deprecate" in str(governed.explain(governed.memory_id(NOTES, "apple")))


def test_ids_cannot_collide() -> None:
    places = [
        (("a", "b"), "c"),
        (("a",), "b/c"),
        (("a",), 'b", "c'),
        (("a", 'b", "c'), "d"),
        (("a:b",), "c"),
        (("ž",), "%_"),
    ]
    assert len({GovernedStore.memory_id(*p) for p in places}) == len(places)


def test_a_neighbour_whose_name_begins_alike_is_not_counted(make_store: StoreMaker) -> None:
    ledger = make_store(policy=STRICT)
    inner = InMemoryStore(index={"dims": DIMENSION, "embed": HashedWords(), "fields": ["text"]})
    governed = GovernedStore(inner, ledger)
    for space in (("acme",), ("acme-corp",), ("acme", "eu")):
        inner.put(space, "k", {"text": QUERY})
    with governed.episode() as episode:
        governed.search(("acme-corp",), query=QUERY)
    episode.record(False)
    held = governed._external.left_out
    from langchain_memoryworth.adapters.base_store import _prefix

    assert [held(5, _prefix(s)) for s in (("acme-corp",), ("acme",), ())] == [1, 0, 1]


def test_scores_of_another_metric_are_not_taken_for_cosines(make_store: StoreMaker) -> None:
    inner = InMemoryStore(index={"dims": DIMENSION, "embed": HashedWords(), "fields": ["text"]})
    inner.put(NOTES, "k", {"text": QUERY})
    inner.index_config["distance_type"] = "l2"  # as PostgresStore has it
    governed = GovernedStore(inner, make_store())
    with governed.episode() as episode:
        governed.search(NOTES, query=QUERY)
    assert governed.run(episode.id).exposures[0].similarity is None


def test_a_store_without_an_index_is_governed_in_its_own_order(make_store: StoreMaker) -> None:
    inner = InMemoryStore()
    for word in WORDS[:4]:
        inner.put(NOTES, word, {"text": word})
    governed = GovernedStore(inner, make_store(policy=STRICT))
    with governed.episode() as episode:
        assert keys(governed.search(NOTES, query="x", limit=1)) == ["apple"]
    episode.record(False)
    assert keys(governed.search(NOTES, query="x", limit=2)) == ["bread", "cedar"]
    assert governed.run(episode.id).exposures[0].similarity is None


def test_the_vectors_of_the_ledger_do_not_know_of_it(make_store: StoreMaker) -> None:
    """One database for memories of its own and for those elsewhere."""
    ledger: MemoryWorthStore = make_store()
    ledger.add_texts(["apple pie"], ids=["own"])
    inner = InMemoryStore(index={"dims": DIMENSION, "embed": HashedWords(), "fields": ["text"]})
    inner.put(NOTES, "k", {"text": "apple"})
    governed = GovernedStore(inner, ledger)
    with governed.episode():
        governed.search(NOTES, query="apple")
    assert [d.id for d in ledger.similarity_search("apple", k=9)] == ["own"]
    assert {m.id for m in ledger.memories()} == {"own", governed.memory_id(NOTES, "k")}
    assert governed.memory(governed.memory_id(NOTES, "k")).text.startswith("sha256:")


def test_the_ledger_may_be_any_database(make_store: StoreMaker, url: str) -> None:
    inner = InMemoryStore(index={"dims": DIMENSION, "embed": HashedWords(), "fields": ["text"]})
    for word in WORDS:
        inner.put(NOTES, word, {"text": word})
    governed = GovernedStore(inner, make_store(url, policy=STRICT))
    for reward in (False, True):
        with governed.episode() as episode:
            found = governed.search(NOTES, query="apple", limit=2)
        episode.record(reward)
    assert {m.id for m in governed.suppressed()} == {
        governed.memory_id(NOTES, i.key) for i in inner.search(NOTES, query="apple", limit=2)
    }
    assert "apple" not in keys(found)
    inner.put(NOTES, "apple", {"text": "apple "})
    with governed.episode() as episode:
        assert keys(governed.search(NOTES, query="apple", limit=1)) == ["apple"]
    episode.record(True)
    assert governed.worth(governed.memory_id(NOTES, "apple")) == 1
    assert governed.health().ok
    assert_exact(governed)
