"""`govern`: any vector store or retriever, refilled past what is held back, and recorded as what reached the prompt."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MultiQueryRetriever,
    ParentDocumentRetriever,
)
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.language_models import FakeListLLM
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.stores import InMemoryStore
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_text_splitters import CharacterTextSplitter
from pydantic import ValidationError

from langchain_memoryworth import (
    GovernedRetriever,
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    govern,
)
from langchain_memoryworth.errors import InvalidInputError, NamespaceError
from langchain_memoryworth.records import Arm
from tests.conftest import StoreMaker
from tests.fakes import HashedWords, assert_exact
from tests.policies import plain
from tests.runs_fixtures import broken_ledger, shown
from tests.vector_backends import VECTOR_STORES, Place, VectorBackend, uuid_of

STRICT = plain(v_min=1, theta_low=0.4, exploration=0.0)
QUERY = "apple bread cedar"
TEXTS = (
    *(f"{w} {QUERY}" for w in ("delta", "ember", "flint", "grape")),
    QUERY,
    "apple bread",
    "apple",
    "hazel iris",
    "juniper",
    "kale lemon",
)
METADATAS = [{"even": n % 2 == 0} for n in range(len(TEXTS))]
Ask = Callable[..., list[Document]]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    if request.param == "sync":
        return lambda retriever, *a, **k: retriever.invoke(*a, **k)
    return lambda retriever, *a, **k: asyncio.run(retriever.ainvoke(*a, **k))


@pytest.fixture
def memories(make_store: StoreMaker) -> MemoryWorthStore:
    return make_store(policy=STRICT)


@pytest.fixture(params=VECTOR_STORES, ids=lambda b: f"{b.name}-{b.metric}")
def filled(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[VectorBackend, VectorStore]]:
    def postgres() -> str:
        return request.getfixturevalue("postgres")

    with request.param.open(Place(tmp_path, postgres), TEXTS, METADATAS) as store:
        yield request.param, store


@pytest.fixture
def vectors() -> InMemoryVectorStore:
    store = InMemoryVectorStore(HashedWords())
    store.add_texts(list(TEXTS), METADATAS, ids=[uuid_of(t) for t in TEXTS])
    return store


def texts(documents: list[Document]) -> list[str]:
    return [d.page_content for d in documents]


def hold_back(memories: MemoryWorthStore, retriever: GovernedRetriever, *held: str) -> None:
    """Each alone is what a failing run was given: the query is its text, and it is the nearest."""
    for text in held:
        with memories.episode() as episode:
            found = retriever.invoke(text, k=len(TEXTS))
            assert text in texts(found)
        episode.record(False, used=[uuid_of(text)])
    kept = [uuid_of(t) for t in TEXTS if t not in held]
    for id_ in kept:  # bystanders had their share of the failures
        if id_ in {m.id for m in memories.suppressed()}:
            memories.restore(id_)
    assert {m.id for m in memories.suppressed()} == {uuid_of(t) for t in held}


# -- every vector store -------------------------------------------------------------------------------------------------


def test_with_nothing_held_back_it_finds_what_the_store_finds(
    filled: tuple[VectorBackend, VectorStore], memories: MemoryWorthStore, ask: Ask
) -> None:
    backend, store = filled
    for k, filter_ in itertools.product((1, 3, 20), (None, backend.filter)):
        arguments = {} if filter_ is None else {"filter": filter_}
        retriever = govern(store, memories, k=k, search_kwargs=arguments)
        wanted = store.similarity_search(QUERY, k=k, **arguments)
        with memories.episode() as episode:
            found = ask(retriever, QUERY)
        assert texts(found) == texts(wanted)
        assert [d.metadata for d in found] == [d.metadata for d in wanted]
        assert [d.id for d in found] == [uuid_of(t) for t in texts(found)]
        exposures = memories.run(episode.id).exposures
        assert [e.memory_id for e in exposures] == [d.id for d in found]
        assert [e.rank for e in exposures] == list(range(len(found)))
        if not backend.cosines:
            assert {e.similarity for e in exposures} == {None}
    assert memories.health().ok


def test_scores_are_cosines_whatever_the_metric(
    filled: tuple[VectorBackend, VectorStore], memories: MemoryWorthStore, ask: Ask
) -> None:
    backend, store = filled
    with memories.episode() as episode:
        found = ask(govern(store, memories, k=len(TEXTS)), QUERY)
    given = [e.similarity for e in memories.run(episode.id).exposures]
    if not backend.cosines:
        assert given == [None] * len(TEXTS)
        with pytest.raises(InvalidInputError, match="no cosines"):
            govern(store, memories, min_similarity=0.5)
        return
    embedding = HashedWords()
    query = np.array(embedding.embed_query(QUERY))
    for document, similarity in zip(found, given, strict=True):
        vector = np.array(embedding.embed_query(document.page_content))
        cosine = vector @ query / np.linalg.norm(vector) / np.linalg.norm(query)
        assert similarity == pytest.approx(cosine, abs=1e-5)
    assert given == sorted(given, key=lambda s: -s if s is not None else 0)
    near = ask(govern(store, memories, k=len(TEXTS), min_similarity=0.6), QUERY)
    assert texts(near) == texts(found)[: sum(s >= 0.6 for s in given if s is not None)]
    assert 0 < len(near) < len(TEXTS)


def test_it_refills_past_what_is_held_back(
    filled: tuple[VectorBackend, VectorStore], memories: MemoryWorthStore, ask: Ask
) -> None:
    backend, store = filled
    held = {QUERY, *TEXTS[:4]}
    hold_back(memories, govern(store, memories), *held)
    for k, filter_ in itertools.product((1, 2, 4, 20), (None, backend.filter)):
        arguments = {} if filter_ is None else {"filter": filter_}
        whole = texts(store.similarity_search(QUERY, k=len(TEXTS), **arguments))
        found = ask(govern(store, memories, k=k, search_kwargs=arguments), QUERY)
        assert texts(found) == [t for t in whole if t not in held][:k]
    assert memories.health().ok


def test_the_policys_floor_never_cuts_where_scores_are_no_cosines(
    filled: tuple[VectorBackend, VectorStore], make_store: StoreMaker, ask: Ask
) -> None:
    backend, store = filled
    memories = make_store(policy=plain(min_similarity=0.999))
    found = ask(govern(store, memories, k=3), QUERY)
    assert len(found) == (1 if backend.cosines else 3)


# -- refilling ----------------------------------------------------------------------------------------------------------


class Counting(InMemoryVectorStore):
    """Counts how often it is searched, and how many documents it gives."""

    asked: list[int]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Any:
        self.asked.append(k)
        return super().similarity_search_with_score(query, k, **kwargs)


@pytest.fixture
def counting() -> Counting:
    store = Counting(HashedWords())
    store.asked = []
    store.add_texts(list(TEXTS), METADATAS, ids=[uuid_of(t) for t in TEXTS])
    return store


def test_it_asks_once_if_that_is_enough(counting: Counting, memories: MemoryWorthStore) -> None:
    retriever = govern(counting, memories, k=4)
    retriever.invoke(QUERY)
    assert counting.asked == [4]


def test_what_was_seen_is_excluded_from_the_next_look(
    counting: Counting, memories: MemoryWorthStore
) -> None:
    retriever = govern(counting, memories, k=4)
    hold_back(memories, retriever, *TEXTS[:5])
    counting.asked.clear()
    assert len(retriever.invoke(QUERY)) == 4
    assert counting.asked == [4, 4, 4]  # ten texts, and no look at one twice


def test_a_filter_of_the_users_stays_beside_the_exclusion(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore
) -> None:
    wanted = lambda d: d.page_content.startswith(("delta", "ember", "apple"))  # noqa: E731
    retriever = govern(vectors, memories, k=2, search_kwargs={"filter": wanted})
    hold_back(memories, govern(vectors, memories), TEXTS[0], TEXTS[1])
    found = texts(retriever.invoke(QUERY))
    assert len(found) == 2
    assert all(t.startswith("apple") for t in found)


def test_on_faiss_fetch_k_grows_behind_a_filter(
    tmp_path: Path, memories: MemoryWorthStore, ask: Ask
) -> None:
    faiss = next(b for b in VECTOR_STORES if b.name == "FAISS" and b.cosines)
    far = ("juniper", "kale", "lemon")
    near = tuple(f"{QUERY} {n}" for n in range(100))
    metadatas = [{"even": t in far} for t in (*near, *far)]
    with faiss.open(Place(tmp_path, str), (*near, *far), metadatas) as store:
        arguments = {"filter": faiss.filter}
        assert store.similarity_search(QUERY, k=2, **arguments) == []  # it looks at 20 and no more
        retriever = govern(store, memories, k=2, search_kwargs=arguments)
        with memories.episode() as episode:
            (first, _) = ask(retriever, QUERY)
        episode.record(False, used=[first.id])
        memories.restore([m.id for m in memories.suppressed() if m.id != first.id])
        assert set(texts(ask(retriever, QUERY))) == set(far) - {first.page_content}


def test_a_source_that_has_no_more_ends_it(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore
) -> None:
    retriever = govern(vectors, memories, k=len(TEXTS))
    hold_back(memories, retriever, *TEXTS[:3])
    assert len(retriever.invoke(QUERY)) == len(TEXTS) - 3


def test_exploration_gives_the_last_place_to_the_best_held_back(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore
) -> None:
    retriever = govern(vectors, memories, k=3)
    hold_back(memories, retriever, QUERY, TEXTS[1])
    served = texts(retriever.invoke(QUERY))
    memories.governor.policy = memories.policy.model_copy(update={"exploration": 1.0})
    with memories.episode() as episode:
        found = texts(retriever.invoke(QUERY))
    assert found == [*served[:2], QUERY]
    arms = {e.memory_id: e.arm for e in memories.run(episode.id).exposures}
    assert arms.pop(uuid_of(QUERY)) is Arm.PROBATION
    assert set(arms.values()) == {Arm.SERVED}


# -- ids ----------------------------------------------------------------------------------------------------------------


class Listed(BaseRetriever):
    """Gives the first k of its documents."""

    documents: list[Document]
    k: int = 4

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return self.documents[: self.k]


def test_without_ids_equal_texts_are_one_memory(memories: MemoryWorthStore, ask: Ask) -> None:
    documents = [
        Document("tea", metadata={"page": 1}),
        Document("tea", metadata={"page": 2}),
        Document("coffee"),
    ]
    retriever = govern(Listed(documents=documents), memories, k=2)
    with memories.episode() as episode:
        found = ask(retriever, "?")
    assert [(d.page_content, d.metadata) for d in found] == [("tea", {"page": 1}), ("coffee", {})]
    assert documents[0].id is None
    episode.record(False)
    assert ask(retriever, "?") == []
    assert len({m.id for m in memories.suppressed()}) == 2
    # The same id as the store itself gives to a text without one.
    assert memories.add_texts(["milk"]) == [
        d.id for d in ask(govern(Listed(documents=[Document("milk")]), memories), "?")
    ]


def test_with_ids_equal_texts_are_two_memories(memories: MemoryWorthStore) -> None:
    documents = [Document("tea", id="1"), Document("tea", id="2")]
    retriever = govern(Listed(documents=documents), memories, k=1)
    with memories.episode() as episode:
        assert [d.id for d in retriever.invoke("?")] == ["1"]
    episode.record(False)
    assert [d.id for d in retriever.invoke("?")] == ["2"]


def test_the_id_may_stand_in_the_metadata(memories: MemoryWorthStore) -> None:
    documents = [Document("tea", id="x", metadata={"key": 7}), Document("coffee", id="y")]
    retriever = govern(Listed(documents=documents), memories, id_key="key")
    assert [d.id for d in retriever.invoke("?")] == ["7", "y"]


def test_a_changed_text_starts_fresh_or_keeps(memories: MemoryWorthStore) -> None:
    document = Document("tea", id="1")
    source = Listed(documents=[document])
    for on_change, expected in (("fresh", ["cold tea"]), ("keep", [])):
        document.page_content = "tea"
        retriever = govern(source, memories, on_change=on_change, namespace=on_change)
        with memories.episode() as episode:
            retriever.invoke("?")
        episode.record(False)
        assert retriever.invoke("?") == []
        document.page_content = "cold tea"
        assert texts(retriever.invoke("?")) == expected
        document.page_content = "tea"
        document.metadata = {"new": True}
        assert retriever.invoke("?") == []


def test_a_memory_of_the_store_itself_is_that_memory(memories: MemoryWorthStore) -> None:
    memories.add_texts(["black tea"], ids=["1"])
    retriever = govern(Listed(documents=[Document("tea", id="1")]), memories)
    with memories.episode() as episode:
        retriever.invoke("?")
    episode.record(False)
    assert memories.memory("1").text == "black tea"
    assert memories.worth("1") == 0
    assert retriever.invoke("?") == []
    assert memories.similarity_search("black tea") == []


def test_namespaces_are_filled_in_from_the_run(memories: MemoryWorthStore) -> None:
    retriever = govern(
        Listed(documents=[Document("tea", id="1")]), memories, namespace=("users", "{user}")
    )
    with memories.episode() as episode:
        retriever.invoke("?", {"metadata": {"user": "ada"}})
    episode.record(False)
    assert retriever.invoke("?", {"metadata": {"user": "ada"}}) == []
    assert len(retriever.invoke("?", {"metadata": {"user": "bob"}})) == 1
    assert memories.worth("1", namespace=("users", "ada")) == 0
    with pytest.raises(NamespaceError):
        retriever.invoke("?")


# -- retrievers as the source -------------------------------------------------------------------------------------------


def test_a_vector_stores_retriever_is_read_like_its_store(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore
) -> None:
    retriever = govern(vectors.as_retriever(search_kwargs={"k": 2}), memories)
    assert retriever.source is vectors
    with memories.episode() as episode:
        assert len(retriever.invoke(QUERY)) == 2
        assert len(retriever.invoke(QUERY, k=3)) == 3
    assert None not in {e.similarity for e in memories.run(episode.id).exposures}


class Relevant(InMemoryVectorStore):
    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda cosine: (1 + cosine) / 2


@pytest.mark.parametrize("search_type", ["mmr", "similarity_score_threshold"])
def test_other_searches_stay_what_they_are(
    memories: MemoryWorthStore, search_type: str, ask: Ask
) -> None:
    vectors = Relevant(HashedWords())
    vectors.add_texts(list(TEXTS), ids=[uuid_of(t) for t in TEXTS])
    options = {"k": 3, "score_threshold": 0.0} if "threshold" in search_type else {"k": 3}
    source = vectors.as_retriever(search_type=search_type, search_kwargs=options)
    retriever = govern(source, memories)
    before = texts(source.invoke(QUERY))
    assert texts(ask(retriever, QUERY)) == before
    hold_back(memories, govern(vectors, memories), before[0])
    found = texts(ask(retriever, QUERY))
    assert len(found) == 3
    assert before[0] not in found


def test_a_retriever_gives_as_many_as_by_itself(memories: MemoryWorthStore, ask: Ask) -> None:
    documents = [Document(str(i), id=str(i)) for i in range(9)]
    retriever = govern(Listed(documents=documents, k=3), memories)
    with memories.episode() as episode:
        assert texts(ask(retriever, "?")) == ["0", "1", "2"]
    episode.record(False, used=["1"])
    memories.restore(["0", "2"])
    assert texts(ask(retriever, "?")) == ["0", "2", "3"]


class Fixed(BaseRetriever):
    """Cannot be asked for more."""

    documents: list[Document]

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return self.documents


def test_a_retriever_that_cannot_give_more_is_only_filtered(memories: MemoryWorthStore) -> None:
    retriever = govern(Fixed(documents=[Document("a", id="a"), Document("b", id="b")]), memories)
    with memories.episode() as episode:
        retriever.invoke("?")
    episode.record(False, used=["a"])
    memories.restore("b")
    assert texts(retriever.invoke("?")) == ["b"]
    with pytest.raises(InvalidInputError, match="no cosines"):
        govern(Fixed(documents=[]), memories, min_similarity=0.1)
    assert govern(Fixed(documents=[]), memories).invoke("?") == []


# -- through other retrievers: credited is what reached the prompt ------------------------------------------------------


class Drops(BaseDocumentCompressor):
    """Keeps the documents with certain texts."""

    keep: set[str]

    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        return [d for d in documents if d.page_content in self.keep]


def run_of(
    retriever: Any, memories: MemoryWorthStore, ask: Ask, question: str = QUERY
) -> tuple[list[Document], set[str], str]:
    """What reaches the prompt, what is credited, and the run."""
    handler = MemoryWorthCallbackHandler(memories)
    prompts: list[list[Document]] = []
    chain = retriever | RunnableLambda(lambda documents: prompts.append(documents) or "answer")
    ask(chain, question, {"callbacks": [handler]})
    assert memories.health().ok
    run = str(handler.last_episode_id) if ask_is_sync(ask) else _newest(memories)
    memories.record_outcome(run, True)
    credited = {e.memory_id for e in memories.run(run).exposures if e.weight}
    assert_exact(memories)
    return prompts[0], credited, run


def ask_is_sync(ask: Ask) -> bool:
    return "invoke" in ask.__code__.co_names


def _newest(memories: MemoryWorthStore) -> str:
    (pending,) = memories.pending()
    return pending.id


def test_compression(vectors: InMemoryVectorStore, memories: MemoryWorthStore, ask: Ask) -> None:
    kept = {QUERY, TEXTS[2]}
    retriever = ContextualCompressionRetriever(
        base_compressor=Drops(keep=kept), base_retriever=govern(vectors, memories, k=5)
    )
    prompt, credited, _ = run_of(retriever, memories, ask)
    assert set(texts(prompt)) == kept
    assert credited == {uuid_of(t) for t in kept}


def test_multi_query(vectors: InMemoryVectorStore, memories: MemoryWorthStore, ask: Ask) -> None:
    retriever = MultiQueryRetriever.from_llm(
        govern(vectors, memories, k=2), FakeListLLM(responses=["hazel iris\njuniper\napple"])
    )
    prompt, credited, run = run_of(retriever, memories, ask)
    assert len(prompt) == len(set(texts(prompt))) > 2
    assert credited == {d.id for d in prompt} == shown(memories, run)


def test_ensemble(vectors: InMemoryVectorStore, memories: MemoryWorthStore, ask: Ask) -> None:
    governed = govern(vectors, memories, k=3)
    others = govern(
        Listed(documents=[Document("oat", id="oat"), Document(QUERY, id="copy")]), memories
    )
    retriever = EnsembleRetriever(retrievers=[governed, others], weights=[0.5, 0.5])
    prompt, credited, _ = run_of(retriever, memories, ask)
    # It joins equal texts, so of the two copies one id reaches the prompt.
    assert credited == {d.id for d in prompt}
    assert ("copy" in credited) is not (uuid_of(QUERY) in credited)


def test_ensemble_with_an_ungoverned_part(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore, ask: Ask
) -> None:
    plain = Listed(documents=[Document("oat", id="oat")])
    retriever = EnsembleRetriever(
        retrievers=[govern(vectors, memories, k=3), plain], weights=[0.5, 0.5]
    )
    prompt, credited, _ = run_of(retriever, memories, ask)
    assert "oat" in {d.id for d in prompt}
    assert credited == {d.id for d in prompt} - {"oat"}


def _parents(memories: MemoryWorthStore) -> ParentDocumentRetriever:
    retriever = ParentDocumentRetriever(
        vectorstore=InMemoryVectorStore(HashedWords()),
        docstore=InMemoryStore(),
        child_splitter=CharacterTextSplitter(separator=";", chunk_size=1, chunk_overlap=0),
        search_kwargs={"k": 2},
    )
    logging.getLogger("langchain_text_splitters.base").setLevel(logging.ERROR)
    parents = [Document(";".join(TEXTS[i : i + 2])) for i in range(0, len(TEXTS), 2)]
    retriever.add_documents(parents)
    return retriever


def test_parent_documents(memories: MemoryWorthStore, ask: Ask) -> None:
    source = _parents(memories)
    retriever = govern(source, memories)
    prompt, credited, run = run_of(retriever, memories, ask)
    assert texts(prompt) == texts(source.invoke(QUERY))
    assert credited == {d.id for d in prompt}
    memories.record_outcome(run, False)
    refilled = ask(govern(source, memories, k=2), QUERY)
    assert len(refilled) == 2
    assert not credited & {d.id for d in refilled}


def test_a_retriever_tool(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore, ask: Ask
) -> None:
    tool = create_retriever_tool(govern(vectors, memories, k=2), "notes", "Looks up notes.")
    handler = MemoryWorthCallbackHandler(memories)
    chain = RunnableLambda(lambda q: {"query": q}) | tool
    answer = ask(chain, QUERY, {"callbacks": [handler]})
    run = _newest(memories)
    assert shown(memories, run) == {uuid_of(t) for t in TEXTS if t in str(answer).split("\n\n")}
    assert len(shown(memories, run)) == 2


def test_fallbacks_and_batches(vectors: InMemoryVectorStore, memories: MemoryWorthStore) -> None:
    class Broken(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            raise ConnectionError(query)

    retriever = govern(Broken(), memories).with_fallbacks([govern(vectors, memories, k=1)])
    handler = MemoryWorthCallbackHandler(memories, outcome=lambda run: True)
    chain = RunnableLambda(lambda q: q) | retriever
    chain.batch([QUERY, "juniper", "hazel iris"], {"callbacks": [handler]})
    counts = {m.id: m.evidence.retrievals for m in memories.memories()}
    assert counts == {uuid_of(t): 1 for t in (QUERY, "juniper", "hazel iris")}


# -- failures and construction ------------------------------------------------------------------------------------------


def test_what_cannot_be_recorded_costs_the_user_nothing(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore, ask: Ask
) -> None:
    retriever = govern(vectors, memories, k=3)
    wanted = texts(vectors.similarity_search(QUERY, k=3))
    with broken_ledger(memories), memories.episode():
        assert texts(ask(retriever, QUERY)) == wanted
    assert memories.health().failures == {"what a run retrieved": 1}
    memories.close()
    assert texts(ask(retriever, QUERY)) == wanted


def test_a_search_that_fails_raises(memories: MemoryWorthStore, ask: Ask) -> None:
    class Broken(InMemoryVectorStore):
        def similarity_search_with_score(self, *args: Any, **kwargs: Any) -> Any:
            raise ConnectionError("no server")

        async def asimilarity_search_with_score(self, *args: Any, **kwargs: Any) -> Any:
            raise ConnectionError("no server")

    with pytest.raises(ConnectionError):
        ask(govern(Broken(HashedWords()), memories), QUERY)


def test_a_retrieval_outside_every_run_is_counted(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore
) -> None:
    govern(vectors, memories).invoke(QUERY)
    assert memories.health().unattributed == 1


def test_a_store_that_is_not_known_is_asked_for_its_order(
    memories: MemoryWorthStore, ask: Ask
) -> None:
    class Unknown(VectorStore):
        def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            return [Document(str(i), id=str(i)) for i in range(min(k, 6))]

        @classmethod
        def from_texts(cls, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    retriever = govern(Unknown(), memories, k=3)
    with memories.episode() as episode:
        assert texts(ask(retriever, "?")) == ["0", "1", "2"]
    assert {e.similarity for e in memories.run(episode.id).exposures} == {None}
    episode.record(False)
    assert texts(ask(retriever, "?")) == ["3", "4", "5"]


def test_the_meaning_of_scores_may_be_given(memories: MemoryWorthStore) -> None:
    class Distances(InMemoryVectorStore):
        def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Any:
            scored = super().similarity_search_with_score(query, k, **kwargs)
            return [(d, 2 - 2 * s) for d, s in scored]

    store = Distances(HashedWords())
    store.add_texts(list(TEXTS))
    retriever = govern(store, memories, cosine=lambda d: 1 - d / 2, min_similarity=0.99)
    assert texts(retriever.invoke(QUERY)) == [QUERY]


@pytest.mark.parametrize(
    "wrong", [{"k": 0}, {"kk": 1}, {"min_similarity": 2}, {"on_change": "reset"}, {"store": 1}]
)
def test_wrong_fields_raise(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore, wrong: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        GovernedRetriever(**{"source": vectors, "store": memories, **wrong})
    [(name, value)] = wrong.items()
    with pytest.raises(InvalidInputError, match=f"{name}=|no store") as caught:
        govern(**{"source": vectors, "store": memories, **wrong})
    assert caught.value.value == value


def test_what_is_no_source_is_named(memories: MemoryWorthStore) -> None:
    source: Any = "notes"
    with pytest.raises(InvalidInputError, match=r"source='notes'.*VectorStore.*BaseRetriever"):
        govern(source, memories)


def test_what_is_governed_already_is_not_governed_twice(
    vectors: InMemoryVectorStore, memories: MemoryWorthStore
) -> None:
    for source in (memories, memories.as_retriever(), govern(vectors, memories)):
        with pytest.raises(InvalidInputError, match="governed already"):
            govern(source, memories)


def test_what_is_erased_has_to_be_deleted_in_the_source_too(make_store: StoreMaker) -> None:
    """Else it is a new memory, as docs/governance.md says: the ledger has nothing left to know it by."""
    memories = make_store(policy=STRICT)
    source = InMemoryVectorStore(HashedWords())
    source.add_texts(["apple", "kale"], ids=["a", "k"])
    retriever = govern(source, memories, k=1)
    with memories.episode() as episode:
        retriever.invoke("apple")
    episode.record(False)
    assert [m.id for m in memories.suppressed()] == ["a"]
    assert memories.erase("a").memories == 1
    with memories.episode("again"):
        assert [d.id for d in retriever.invoke("apple")] == ["a"]
    assert memories.evidence("a").retrievals == 0
    memories.erase("a")
    source.delete(["a"])
    with memories.episode("gone"):
        assert [d.id for d in retriever.invoke("apple")] == ["k"]
    assert_exact(memories)
