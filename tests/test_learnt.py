"""Contexts that nobody named: learnt from the ledger of a real store, told at retrieval, with names that stay."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore, Policy, govern
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.evidence import UNIT
from tests.conftest import StoreMaker
from tests.fakes import Clock, HashedWords, assert_exact, query

TOPICS = {
    "visa": ("passport", "embassy", "stamp", "border", "fee", "form"),
    "code": tuple("uvwxyz"),
}
K = 3


def topic(store: MemoryWorthStore, namespace: Any = ()) -> MemoryWorthStore:
    """Memories of two topics; the id says which one."""
    for name, words in TOPICS.items():
        store.add_texts(
            [f"{name} {w}" for w in words], ids=[f"{name}-{w}" for w in words], namespace=namespace
        )
    return store


_names = itertools.count()


def live(
    store: MemoryWorthStore, rng: random.Random, episodes: int, reward: Any = None, **options: Any
) -> None:
    """Episodes of the two topics in turn at random, each with three of the words of one."""
    for _ in range(episodes):
        name = rng.choice(list(TOPICS))
        with store.episode(f"e{next(_names)}") as episode:
            asked = " ".join(rng.sample(TOPICS[name], K))
            found = store.similarity_search(f"{name} {asked}", k=K, **options)
        if reward is not None:
            episode.record(reward(name, [d.id for d in found]))


def told(store: MemoryWorthStore) -> dict[str, set[str | None]]:
    """Under which contexts memories of each topic were retrieved."""
    rows = query(store, "SELECT m.id, x.context FROM exposures x JOIN memories m ON m.seq = x.seq")
    names: dict[str, set[str | None]] = {}
    for id_, context in rows:
        names.setdefault(id_.partition("-")[0], set()).add(context)
    return names


def test_nothing_is_told_before_somebody_asks(store: MemoryWorthStore) -> None:
    live(topic(store), random.Random(1), 20)
    assert told(store) == {"visa": {None}, "code": {None}}


def test_each_kind_of_task_gets_a_name_and_keeps_it(make_store: StoreMaker, url: str) -> None:
    store, rng = topic(make_store(url)), random.Random(2)
    live(store, rng, 150)
    found = store.learn_contexts()
    assert len(found) == 2
    assert sum(c.share for c in found) == pytest.approx(1.0)
    live(store, rng, 20)
    (visa,), (code,) = (names - {None} for names in (told(store)[t] for t in ("visa", "code")))
    assert {visa, code} == {c.context for c in found}
    for _ in range(3):
        again = store.learn_contexts(episodes=150)
        assert {c.context for c in again} == {visa, code}
        live(store, rng, 30)
    assert told(store) == {"visa": {None, visa}, "code": {None, code}}


def test_other_processes_tell_the_same(make_store: StoreMaker, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    store, rng = topic(make_store(url)), random.Random(3)
    other = make_store(url)
    live(other, rng, 150)
    found = {c.context for c in store.learn_contexts()}
    live(other, rng, 20)
    later = make_store(url)
    live(later, rng, 20)
    names = told(store)
    assert names["visa"] | names["code"] == {None, *found}
    assert all(len(n) == 2 for n in names.values())
    later.drop_contexts()
    live(other, rng, 5)
    last = query(store, "SELECT context FROM exposures ORDER BY eid DESC LIMIT 1")
    assert last == [(None,)]


def test_who_names_a_context_is_right(store: MemoryWorthStore) -> None:
    live(topic(store), random.Random(4), 150)
    store.learn_contexts()
    with store.episode("mine", context="travel"):
        store.similarity_search("visa passport", k=1)
    store.as_retriever(k=1, context="trip").invoke("visa form", {"metadata": {"episode_id": "r"}})
    rows = query(store, "SELECT p.id, x.context FROM exposures x JOIN episodes p ON p.eid = x.eid")
    assert dict(rows)["mine"] == "travel"
    assert dict(rows)["r"] == "trip"


@pytest.mark.parametrize("reward", [None, lambda name, ids: True], ids=["pending", "settled"])
def test_a_number_is_never_used_for_another_context(store: MemoryWorthStore, reward: Any) -> None:
    rng = random.Random(5)
    live(topic(store), rng, 150)
    before = {c.context for c in store.learn_contexts()}
    live(store, rng, 20, reward=reward)
    store.drop_contexts()
    after = {c.context for c in store.learn_contexts()}
    assert not before & after


class Elsewhere(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: object) -> list[Document]:
        return [Document(query, id=f"visa-{w}") for w in TOPICS["visa"][:K]]


def test_the_handler_and_govern_tell_too(store: MemoryWorthStore) -> None:
    rng = random.Random(6)
    live(topic(store), rng, 150)
    notes = InMemoryVectorStore(HashedWords())
    notes.add_texts([f"note {w}" for w in "abcdef"], ids=[f"note-{w}" for w in "abcdef"])
    governed = govern(notes, store, k=K)
    handler = MemoryWorthCallbackHandler(store)
    for _ in range(100):
        with store.episode():
            governed.invoke("note " + " ".join(rng.sample("abcdef", K)))
    found = {c.context for c in store.learn_contexts()}
    (RunnableLambda(lambda q: q) | Elsewhere()).invoke("stamp", {"callbacks": [handler]})
    with store.episode():
        governed.invoke("note a b c")
    names = told(store)
    assert len(names["visa"] & found) == 1
    assert len(names["note"] & found) == 1
    assert names["visa"] & found != names["note"] & found


def test_namespaces_learn_for_themselves(store: MemoryWorthStore) -> None:
    rng = random.Random(7)
    live(topic(store, "acme"), rng, 150, namespace="acme")
    with pytest.raises(InvalidInputError, match="no episode"):
        store.learn_contexts()
    assert len(store.learn_contexts(namespace="acme")) == 2
    live(topic(store), rng, 5)
    assert query(store, "SELECT DISTINCT context FROM exposures") == [(None,)]
    live(store, rng, 5, namespace="acme")
    assert len(query(store, "SELECT DISTINCT context FROM exposures")) > 1
    assert "acme" in str(query(store, "SELECT key FROM meta"))
    store.erase_namespace("acme")
    assert "acme" not in str(query(store, "SELECT key FROM meta"))


@pytest.mark.parametrize("episodes", [0, -1, 1.5, "all"])
def test_wrong_windows_are_refused(store: MemoryWorthStore, episodes: Any) -> None:
    live(topic(store), random.Random(8), 20)
    with pytest.raises(InvalidInputError, match="episodes="):
        store.learn_contexts(episodes=episodes)
    assert told(store) == {"visa": {None}, "code": {None}}


async def test_async_twins(store: MemoryWorthStore) -> None:
    live(topic(store), random.Random(9), 150)
    assert len(await store.alearn_contexts()) == 2
    await store.adrop_contexts()
    assert "contexts" not in str(query(store, "SELECT key FROM meta"))


# -- clusters of queries ----------------------------------------------------------------------------------------


def asked(rng: random.Random, count: int) -> list[str]:
    """Questions of the two topics in turn, in words of which no text here has all."""
    words = list(TOPICS.items())
    return [
        f"{name} " + " ".join(rng.sample(some, K)) for name, some in (words * count)[: 2 * count]
    ]


def last(store: MemoryWorthStore) -> str | None:
    [(context,)] = query(store, "SELECT context FROM exposures ORDER BY eid DESC LIMIT 1")
    return context


def look(store: MemoryWorthStore, text: str, **options: Any) -> str | None:
    """The context of one more search."""
    with store.episode(f"e{next(_names)}", **options):
        store.similarity_search(text, k=1)
    return last(store)


def test_topics_are_told_by_the_query_and_keep_their_names(
    make_store: StoreMaker, url: str
) -> None:
    store, rng = topic(make_store(url)), random.Random(11)
    found = store.learn_topics(asked(rng, 40), count=2)
    assert [c.share for c in found] == [0.5, 0.5]  # before anything was retrieved
    visa, code = look(store, "visa fee form stamp"), look(store, "code x y z")
    assert {visa, code} == {c.context for c in found}
    for count in (2, 3):
        again = store.learn_topics(asked(rng, 30), count=count)
        assert {c.context for c in again} >= {visa, code}
    live(store, rng, 20)
    assert visa in told(store)["visa"] - told(store)["code"]
    assert code in told(store)["code"] - told(store)["visa"]


def test_vectors_do_as_well_as_texts(store: MemoryWorthStore) -> None:
    questions = asked(random.Random(12), 20)
    vectors = [HashedWords().embed_query(q) for q in questions]
    first = store.learn_topics(vectors, count=2)
    assert store.learn_topics(questions, count=2) == first


def test_other_processes_tell_the_same_topic(make_store: StoreMaker, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'm.db'}"
    store, other = topic(make_store(url)), make_store(url)
    store.learn_topics(asked(random.Random(13), 40), count=2)
    questions = ["visa fee form stamp", "code x y z"]
    names = {q: look(store, q) for q in questions}
    assert {q: look(other, q) for q in questions} == names
    assert {q: look(make_store(url), q) for q in questions} == names
    other.drop_contexts()
    assert look(store, "visa fee") is None


def test_a_conversation_is_about_all_that_it_has_asked(store: MemoryWorthStore) -> None:
    topic(store)
    questions = asked(random.Random(14), 40)
    store.learn_topics(questions, count=2)
    visa, code = look(store, "visa fee form stamp"), look(store, "code u v w")
    assert look(store, "visa fee form stamp", thread_id="ada") == visa
    assert look(store, "code u", thread_id="ada") == code
    store.learn_topics(questions, count=2, sessions=True)
    assert look(store, "code u") == code  # no conversation, no intent
    for text in ("visa fee form stamp", "visa passport border embassy"):
        assert look(store, text, thread_id="bob") == visa
    assert look(store, "code u", thread_id="bob") == visa
    for _ in range(3):  # the same again is a retry
        assert look(store, "code u", thread_id="bob") == visa
    for text in ("code v w", "code x y", "code z u w"):
        later = look(store, text, thread_id="bob")
    assert later == code
    assert look(store, "code u", thread_id="eve") == code


def test_conversations_are_forgotten_before_memory_runs_out(
    store: MemoryWorthStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langchain_memoryworth.ledger.learnt.THREADS", 2)
    topic(store)
    store.learn_topics(asked(random.Random(15), 40), count=2, sessions=True)
    visa = look(store, "visa fee form stamp", thread_id="ada")
    for thread in ("bob", "eve"):
        look(store, "visa fee", thread_id=thread)
    assert look(store, "code u", thread_id="eve") == visa  # still known
    assert look(store, "code u", thread_id="ada") != visa


def test_communities_and_topics_follow_each_other_under_new_names(store: MemoryWorthStore) -> None:
    rng = random.Random(16)
    live(topic(store), rng, 150)
    communities = {c.context for c in store.learn_contexts()}
    topics = {c.context for c in store.learn_topics(asked(rng, 40), count=2)}
    again = {c.context for c in store.learn_contexts()}
    assert not communities & topics
    assert not again & (communities | topics)


def test_where_no_query_is_known_topics_tell_nothing(store: MemoryWorthStore) -> None:
    topic(store)
    store.learn_topics(asked(random.Random(17), 40), count=2)
    handler = MemoryWorthCallbackHandler(store)
    (RunnableLambda(lambda q: q) | Elsewhere()).invoke("stamp", {"callbacks": [handler]})
    assert last(store) is None
    assert look(store, "visa fee", context="mine") == "mine"


def test_no_query_is_kept_and_erasing_the_namespace_takes_the_centres(
    make_store: StoreMaker, tmp_path: Any
) -> None:
    store = topic(make_store(f"sqlite:///{tmp_path / 'm.db'}"), "acme")
    store.learn_topics([*asked(random.Random(18), 40), "visa hunter2"], count=2, namespace="acme")
    assert "centres" in str(query(store, "SELECT value FROM meta"))
    assert b"hunter2" not in b"".join(f.read_bytes() for f in tmp_path.iterdir())
    store.erase_namespace("acme")
    assert "centres" not in str(query(store, "SELECT value FROM meta"))


@pytest.mark.parametrize(
    ("queries", "count", "words"),
    [
        ([], 2, "shape"),
        (["visa"], 0, "count must be at least 1"),
        ([[0.0] * 32], 1, "not 0"),
        ([[1.0, 2.0]], 1, "2"),
        ([[float("nan")] * 32], 1, "not finite"),
    ],
)
def test_queries_that_cannot_be_clustered(
    store: MemoryWorthStore, queries: Any, count: int, words: str
) -> None:
    topic(store)
    with pytest.raises(InvalidInputError, match=words):
        store.learn_topics(queries, count=count)
    assert look(store, "visa fee") is None


def test_centres_of_another_model_tell_nothing(store: MemoryWorthStore) -> None:
    store.learn_topics(
        [[1.0, 0.0], [0.0, 1.0]], count=2
    )  # while nothing says which dimension is right
    topic(store)
    assert look(store, "visa fee") is None
    assert len(store.learn_topics(asked(random.Random(20), 40), count=2)) == 2
    assert look(store, "visa fee") not in (None, "learnt-0", "learnt-1")


async def test_topics_have_an_async_twin(store: MemoryWorthStore) -> None:
    assert len(await store.alearn_topics(asked(random.Random(19), 10), count=2)) == 2


# -- what it is for -------------------------------------------------------------------------------------------------


def auc(scores: dict[str, float], good: Iterable[str]) -> float:
    """Probability that a good memory is above another one, ties count half."""
    pairs = [(scores[g], scores[b]) for g in good for b in scores.keys() - set(good)]
    return sum((g > b) + 0.5 * (g == b) for g, b in pairs) / len(pairs)


def test_hard_tasks_no_longer_make_their_memories_look_bad(make_store: StoreMaker) -> None:
    """The world of Experiment 2: one topic succeeds in .80 of its episodes and one in .20, each good memory adds .06 and each
    other takes as much. Of 24 signs worth confuses the topics, so it is right in about 3 of 4 pairs at best. Within learnt
    contexts a memory has about 225 retrievals of its own, the advantage a standard error of .027, and a pair is right with
    a probability of Phi(.12 / (.027 * sqrt 2)) > .99.
    """
    store = topic(make_store(policy=Policy(suppress=False), clock=Clock()))
    rng = random.Random(10)
    ids = [m.id for m in store.memories()]
    good = {i for n, i in enumerate(ids) if n % 2}

    def reward(name: str, shown: list[str]) -> bool:
        added = sum(0.06 if i in good else -0.06 for i in shown)
        return rng.random() < (0.8 if name == "visa" else 0.2) + added

    live(store, rng, 100, reward)
    store.learn_contexts()
    live(store, rng, 900, reward)
    worth = {i: store.worth(i) for i in ids}
    within = {i: max(store.by_context(i)[1:], key=lambda c: c.evidence.size).advantage for i in ids}
    assert auc(worth, good) < 0.85
    assert auc(within, good) > 0.95
    effects = {e.memory_id: e.effect for e in store.effects()}
    assert auc(effects, good) > 0.9
    assert sum(store.evidence(i).size for i in ids) == 1_000 * K * UNIT
    assert_exact(store)
