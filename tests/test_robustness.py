"""What must not happen: a wrong argument, a wrong file or a full disk that changes anything, and pickle."""

from __future__ import annotations

import ast
import contextlib
import gc
import hashlib
import math
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from sqlalchemy import event

import langchain_memoryworth
from langchain_memoryworth import MemoryWorthStore, Policy, Status
from langchain_memoryworth.errors import (
    CorruptStorageError,
    DimensionMismatchError,
    EmbeddingMismatchError,
    ForeignStorageError,
    InvalidInputError,
    InvalidOutcomeError,
    InvalidVectorError,
    MemoryNotFoundError,
    MemoryWorthError,
    ModelUnavailableError,
    NamespaceError,
    SchemaVersionError,
    StorageBusyError,
    StorageError,
    StorageFullError,
    StorageReadOnlyError,
    UnknownRunError,
)
from langchain_memoryworth.ledger import database
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.schema import MIGRATIONS
from langchain_memoryworth.ledger.session import Statement
from langchain_memoryworth.records import EpisodeKey, Outcome
from langchain_memoryworth.vectors.embeddings import SentenceTransformerEmbeddings
from tests.fakes import HashedWords, assert_exact, dump, execute, live, query
from tests.policies import plain
from tests.tally import tally

StoreMaker = Callable[..., MemoryWorthStore]
Call = Callable[[MemoryWorthStore], Any]
SOURCE = Path(langchain_memoryworth.__file__).parent


class Broken(HashedWords):
    """An embedding model that gives whatever it is told to."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.answer

    def embed_query(self, text: str) -> list[float]:
        return self.answer


def fill(store: MemoryWorthStore) -> None:
    store.add_texts(["apple", "pear"], [{"n": 1}, {"n": 2}], ids=["a", "b"])
    with store.episode("run"):
        store.similarity_search("apple", k=2)
    store.record_outcome("run", True)


def vector(*numbers: float) -> list[float]:
    return [*numbers, *[0.0] * (32 - len(numbers))]


BAD: dict[str, tuple[type[Exception], Call]] = {
    # texts
    "texts is a string": (InvalidInputError, lambda s: s.add_texts("apple")),
    "texts is None": (InvalidInputError, lambda s: s.add_texts(None)),  # type: ignore[arg-type]
    "ids is a string": (InvalidInputError, lambda s: s.add_texts(["x", "y"], ids="xy")),  # type: ignore[arg-type]
    "metadatas is a mapping": (InvalidInputError, lambda s: s.add_texts(["x"], {"n": 1})),  # type: ignore[arg-type]
    "embeddings is None": (InvalidInputError, lambda s: s.add_embeddings(None)),  # type: ignore[arg-type]
    "embeddings are no pairs": (
        InvalidInputError,
        lambda s: s.add_embeddings([("x", vector(), 1)]),  # type: ignore[list-item]
    ),
    "a text is no string": (InvalidInputError, lambda s: s.add_texts(["x", 7])),  # type: ignore[list-item]
    "a text is None": (InvalidInputError, lambda s: s.add_texts([None])),  # type: ignore[list-item]
    "a text is half a character": (InvalidInputError, lambda s: s.add_texts(["x", "\ud800"])),
    "an id is half a character": (InvalidInputError, lambda s: s.add_texts(["x"], ids=["\ud800"])),
    "fewer ids": (InvalidInputError, lambda s: s.add_texts(["x", "y"], ids=["x"])),
    "more ids": (InvalidInputError, lambda s: s.add_texts(["x"], ids=["x", "y"])),
    "fewer metadatas": (InvalidInputError, lambda s: s.add_texts(["x", "y"], [{}])),
    "metadata NaN": (InvalidInputError, lambda s: s.add_texts(["x"], [{"v": math.nan}])),
    "metadata object": (InvalidInputError, lambda s: s.add_texts(["x"], [{"v": object()}])),
    "metadata set": (InvalidInputError, lambda s: s.add_texts(["x", "y"], [{}, {"v": {1}}])),
    "metadata None": (InvalidInputError, lambda s: s.add_texts(["x"], [None])),  # type: ignore[list-item]
    "metadata half a character": (
        InvalidInputError,
        lambda s: s.add_texts(["x"], [{"v": "\udfff"}]),
    ),
    # vectors
    "vector NaN": (InvalidVectorError, lambda s: s.add_embeddings([("x", vector(math.nan))])),
    "vector inf": (InvalidVectorError, lambda s: s.add_embeddings([("x", vector(math.inf))])),
    "vectors ragged": (
        InvalidVectorError,
        lambda s: s.add_embeddings([("x", vector()), ("y", [1.0])]),
    ),
    "vector of words": (InvalidVectorError, lambda s: s.add_embeddings([("x", ["a"] * 32)])),  # type: ignore[list-item]
    "vector empty": (InvalidVectorError, lambda s: s.add_embeddings([("x", [])])),
    "vector of another dimension": (
        DimensionMismatchError,
        lambda s: s.add_embeddings([("x", [1.0, 2.0])]),
    ),
    "query of another dimension": (
        DimensionMismatchError,
        lambda s: s.similarity_search_by_vector([1.0]),
    ),
    "query NaN": (InvalidVectorError, lambda s: s.similarity_search_by_vector(vector(math.nan))),
    "two queries": (
        InvalidVectorError,
        lambda s: s.similarity_search_by_vector([vector(1.0), vector(2.0)]),  # type: ignore[list-item]
    ),
    # searches
    "k 0": (InvalidInputError, lambda s: s.similarity_search("x", k=0)),
    "k -1": (InvalidInputError, lambda s: s.similarity_search("x", k=-1)),
    "k 1.5": (InvalidInputError, lambda s: s.similarity_search("x", k=1.5)),  # type: ignore[arg-type]
    "k '4'": (InvalidInputError, lambda s: s.similarity_search("x", k="4")),  # type: ignore[arg-type]
    "k None": (InvalidInputError, lambda s: s.similarity_search("x", k=None)),  # type: ignore[arg-type]
    "filter list": (InvalidInputError, lambda s: s.similarity_search("x", filter=["n"])),
    "filter string": (InvalidInputError, lambda s: s.similarity_search("x", filter="n")),
    "filter operator": (
        InvalidInputError,
        lambda s: s.similarity_search("x", filter={"n": {"$like": 1}}),
    ),
    "filter $or": (
        InvalidInputError,
        lambda s: s.similarity_search("x", filter={"$or": [{"n": 1}, {"n": 2}]}),
    ),
    "filter mixed": (
        InvalidInputError,
        lambda s: s.similarity_search("x", filter={"n": {"$gt": 1, "m": 2}}),
    ),
    "a search has no such option": (InvalidInputError, lambda s: s.similarity_search("x", foo=1)),
    "nor an explanation": (InvalidInputError, lambda s: s.explain_search("x", foo=1)),
    "score_threshold where there is none": (
        InvalidInputError,
        lambda s: s.similarity_search("x", score_threshold=0.5),
    ),
    "score_threshold 5": (
        InvalidInputError,
        lambda s: s.similarity_search_with_relevance_scores("x", score_threshold=5),
    ),
    "score_threshold word": (
        InvalidInputError,
        lambda s: s.similarity_search_with_relevance_scores("x", score_threshold="x"),
    ),
    "context number": (InvalidInputError, lambda s: s.similarity_search("x", context=5)),
    "query None": (InvalidInputError, lambda s: s.similarity_search(None)),  # type: ignore[arg-type]
    "query mapping": (InvalidInputError, lambda s: s.as_retriever().invoke({"question": "x"})),  # type: ignore[arg-type]
    "explained query": (InvalidInputError, lambda s: s.explain_search(["x"])),  # type: ignore[arg-type]
    "rank number": (InvalidInputError, lambda s: s.similarity_search("x", rank=1)),
    "rank word": (InvalidInputError, lambda s: s.similarity_search("x", rank="worth")),
    "rank too short": (InvalidInputError, lambda s: s.similarity_search("x", rank=(1,))),
    "min_similarity word": (
        InvalidInputError,
        lambda s: s.similarity_search("x", min_similarity="high"),
    ),
    "min_similarity 5": (InvalidInputError, lambda s: s.similarity_search("x", min_similarity=5)),
    "min_similarity NaN": (
        InvalidInputError,
        lambda s: s.similarity_search("x", min_similarity=math.nan),
    ),
    "min_similarity bool": (
        InvalidInputError,
        lambda s: s.similarity_search("x", min_similarity=True),
    ),
    "lambda_mult 5": (
        InvalidInputError,
        lambda s: s.max_marginal_relevance_search("x", lambda_mult=5),
    ),
    "lambda_mult word": (
        InvalidInputError,
        lambda s: s.max_marginal_relevance_search("x", lambda_mult="x"),  # type: ignore[arg-type]
    ),
    "fetch_k 0": (InvalidInputError, lambda s: s.max_marginal_relevance_search("x", fetch_k=0)),
    "fetch_k word": (
        InvalidInputError,
        lambda s: s.max_marginal_relevance_search("x", fetch_k="20"),  # type: ignore[arg-type]
    ),
    "rank negative": (InvalidInputError, lambda s: s.similarity_search("x", rank=(-1, 1))),
    "rank zero": (InvalidInputError, lambda s: s.similarity_search("x", rank=(0, 0))),
    "rank NaN": (InvalidInputError, lambda s: s.similarity_search("x", rank=(math.nan, 1))),
    "rank recency": (InvalidInputError, lambda s: s.similarity_search("x", rank=(1, 0, 1))),
    # namespaces
    "namespace empty segment": (
        NamespaceError,
        lambda s: s.similarity_search("x", namespace=("",)),
    ),
    "namespace number": (NamespaceError, lambda s: s.add_texts(["x"], namespace=(7,))),  # type: ignore[arg-type]
    "namespace number alone": (NamespaceError, lambda s: s.similarity_search("x", namespace=7)),
    "namespace set": (NamespaceError, lambda s: s.add_texts(["x"], namespace={"a", "b"})),  # type: ignore[arg-type]
    "namespace mapping": (NamespaceError, lambda s: s.add_texts(["x"], namespace={"a": 1})),  # type: ignore[arg-type]
    "namespace of another run": (NamespaceError, lambda s: s.add_texts(["x"], namespace="{user}")),
    # outcomes
    "outcome string": (InvalidOutcomeError, lambda s: s.record_outcome("run", "INCORRECT")),  # type: ignore[arg-type]
    "outcome NaN": (InvalidOutcomeError, lambda s: s.record_outcome("run", math.nan)),
    "outcome 2": (InvalidOutcomeError, lambda s: s.record_outcome("run", 2)),
    "outcome -1": (InvalidOutcomeError, lambda s: s.record_outcome("run", -1)),
    "outcome huge": (InvalidOutcomeError, lambda s: s.record_outcome("run", 10**400)),
    "outcome array": (InvalidOutcomeError, lambda s: s.record_outcome("run", np.ones(1))),  # type: ignore[arg-type]
    "outcome None": (InvalidInputError, lambda s: s.record_outcome("run", None)),  # type: ignore[arg-type]
    "outcome None inside": (
        InvalidOutcomeError,
        lambda s: s.record_outcome("run", Outcome(None)),  # type: ignore[arg-type]
    ),
    "outcomes are ids": (InvalidInputError, lambda s: s.record_outcomes(["run"])),  # type: ignore[list-item]
    "outcomes number": (InvalidInputError, lambda s: s.record_outcomes(5)),  # type: ignore[arg-type]
    "outcomes mapping": (InvalidInputError, lambda s: s.record_outcomes({"run": True})),  # type: ignore[arg-type]
    "pending word": (InvalidInputError, lambda s: s.pending("x")),  # type: ignore[arg-type]
    "pending -1": (InvalidInputError, lambda s: s.pending(-1)),
    "status unknown": (InvalidInputError, lambda s: s.memories("hidden")),
    "episode of a context": (InvalidInputError, lambda s: s.episode(context=5).__enter__()),  # type: ignore[arg-type]
    "restore None": (InvalidInputError, lambda s: s.restore(None)),  # type: ignore[arg-type]
    "erase None": (InvalidInputError, lambda s: s.erase(None)),  # type: ignore[arg-type]
    "unknown run": (UnknownRunError, lambda s: s.record_outcome("other", True)),
    "run None": (UnknownRunError, lambda s: s.record_outcome(None, True)),
    "used unknown": (InvalidInputError, lambda s: s.record_outcome("run", True, used=["a", "z"])),
    "used string": (InvalidInputError, lambda s: s.record_outcome("run", True, used="a")),
    "used numbers": (InvalidInputError, lambda s: s.record_outcome("run", True, used=[1, "z"])),  # type: ignore[list-item]
    "used None inside": (InvalidInputError, lambda s: s.record_outcome("run", True, used=[None])),  # type: ignore[list-item]
    "used number": (InvalidInputError, lambda s: s.record_outcome("run", True, used=3)),  # type: ignore[arg-type]
    "source empty": (InvalidInputError, lambda s: s.record_outcome("run", True, source="")),
    "source None": (InvalidInputError, lambda s: s.record_outcome("run", True, source=None)),  # type: ignore[arg-type]
    "source_id number": (InvalidInputError, lambda s: s.record_outcome("run", True, source_id=7)),  # type: ignore[arg-type]
    "source half a character": (
        InvalidInputError,
        lambda s: s.record_outcome("run", False, source="\ud800"),
    ),
    "marked used unknown": (
        InvalidInputError,
        lambda s: s.governor.journal.mark_used("run", ["z"]),
    ),
    # decisions
    "restore unknown": (MemoryNotFoundError, lambda s: s.restore(["a", "z"])),
    "pin unknown": (MemoryNotFoundError, lambda s: s.pin("z")),
    "unpin unknown": (MemoryNotFoundError, lambda s: s.unpin("z")),
    "memory unknown": (MemoryNotFoundError, lambda s: s.memory("z")),
    "worth unknown": (MemoryNotFoundError, lambda s: s.worth("z", namespace="other")),
    # a string where a list of ids is meant would be taken letter by letter
    "delete a string": (InvalidInputError, lambda s: s.delete("ab")),  # type: ignore[arg-type]
    "get a string": (InvalidInputError, lambda s: s.get_by_ids("ab")),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_argument_is_named_and_changes_nothing(store: MemoryWorthStore, name: str) -> None:
    fill(store)
    expected, call = BAD[name]
    before = dump(store)
    with pytest.raises(expected) as error:
        call(store)
    assert dump(store) == before
    assert len(str(error.value).splitlines()) == 1
    assert isinstance(error.value, MemoryWorthError)
    # and the store still works
    assert [d.id for d in store.similarity_search("apple", k=1)] == ["a"]
    assert store.record_outcome("run", 0.5)


@pytest.mark.parametrize("name", [n for n, (e, _) in BAD.items() if e == InvalidInputError])
def test_a_wrong_argument_of_a_fresh_store_leaves_it_fresh(
    store: MemoryWorthStore, name: str
) -> None:
    """Above all it must not settle the dimension that every later vector has to have."""
    before = dump(store)
    expected, call = BAD[name]
    with contextlib.suppress(expected, UnknownRunError):
        call(store)
    assert dump(store) == before
    store.add_embeddings([("x", [1.0, 2.0])])
    assert len(store.similarity_search_by_vector([1.0, 2.0])) == 1


def test_a_statement_that_was_run_before_refuses_what_is_no_text(store: MemoryWorthStore) -> None:
    """sqlite3 then speaks of another row that is available."""
    fill(store)
    assert store.record_outcomes([("run", False)]) == [True]
    with pytest.raises(InvalidInputError, match="is no text that can be stored"):
        store.record_outcomes([("\ud800", True)])


def test_the_value_is_in_the_message_and_an_attribute(store: MemoryWorthStore) -> None:
    fill(store)
    for call, value in (
        (lambda: store.record_outcome("run", "INCORRECT"), "INCORRECT"),  # type: ignore[arg-type]
        (lambda: store.similarity_search("x", k=0), 0),
        (lambda: store.add_texts("apple"), "apple"),
        (lambda: store.record_outcome("run", True, used=["zebra"]), ["zebra"]),
        (lambda: store.add_texts(["x"], namespace=("a", "")), ("a", "")),
    ):
        with pytest.raises(InvalidInputError) as error:
            call()
        assert error.value.value == value
        if value != "apple":
            assert repr(value) in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        {"index": "ivf"},
        {"durability": "none"},
        {"embedding": "all-MiniLM"},
        {"namespace": ("a", "")},
        {"url": "memories.db"},
        {"url": "nosuchdb:///x"},
        {"policy": {"theta_low": 0.3}},
        {"policy": Policy},
        {"embedding_name": 5},
        {"url": "sqlite+aiosqlite:///memories.db"},
        {"url": "sqlite://memories.db"},
        {"url": "sqlite:///memories.db?schema=team_a"},
        {"url": ""},
        {"namespace": None},
    ],
    ids=repr,
)
def test_a_store_that_cannot_be_meant_is_not_opened(make_store: StoreMaker, options: Any) -> None:
    with pytest.raises(InvalidInputError) as error:
        make_store(**options)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    "answer",
    [[], [[1.0] * 32], [[1.0] * 32] * 3, [[math.nan] * 32] * 2, [[1.0], [1.0, 2.0]], None],
    ids=["none", "too few", "too many", "NaN", "ragged", "None"],
)
def test_an_embedding_model_that_breaks_its_word(
    make_store: StoreMaker, url: str, answer: Any
) -> None:
    store = make_store(url, embedding=Broken(answer))
    before = dump(store)
    with pytest.raises(InvalidVectorError):
        store.add_texts(["x", "y"])
    assert dump(store) == before


# -- another model --------------------------------------------------------------------------------------------------


def test_a_model_of_another_dimension_under_the_same_name(
    make_store: StoreMaker, file_url: str
) -> None:
    with make_store(file_url) as store:
        fill(store)
        before = dump(store)
    again = make_store(file_url, embedding=HashedWords(dimension=16))
    with pytest.raises(DimensionMismatchError) as error:
        again.add_texts(["plum"])
    assert (error.value.expected, error.value.got) == (32, 16)
    with pytest.raises(DimensionMismatchError):
        again.similarity_search("apple")
    assert dump(again) == before


def test_two_models_that_fill_a_fresh_store_at_once(make_store: StoreMaker, file_url: str) -> None:
    """Both were opened while nothing was there to compare with; the second to write is refused."""
    one = make_store(file_url)
    two = make_store(file_url, embedding=HashedWords(model_name="other"))
    three = make_store(file_url, embedding=HashedWords(dimension=16))
    one.add_texts(["apple"], ids=["a"])
    before = dump(one)
    for late in (two, three):
        with pytest.raises((EmbeddingMismatchError, DimensionMismatchError)):
            late.add_texts(["pear"])
    assert dump(one) == before


# -- files ----------------------------------------------------------------------------------------------------------


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "content",
    [
        b"this is a text file, and no database at all\n" * 50,
        b"\x00" * 5_000,
        b"PK\x03\x04" * 999,
    ],
    ids=["text", "zeros", "zip"],
)
def test_a_file_that_is_no_database(make_store: StoreMaker, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "memories.db"
    path.write_bytes(content)
    before = digest(path)
    with pytest.raises(CorruptStorageError, match=r"memories\.db"):
        make_store(f"sqlite:///{path}")
    assert digest(path) == before


def test_a_truncated_database(make_store: StoreMaker, tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    with make_store(f"sqlite:///{path}") as store:
        fill(store)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def use() -> None:
        store = make_store(f"sqlite:///{path}")
        store.similarity_search("apple")
        store.health()
        dump(store)

    with pytest.raises(CorruptStorageError):
        use()


def test_a_damaged_page_is_a_typed_error_wherever_it_is_hit(
    make_store: StoreMaker, tmp_path: Path
) -> None:
    path = tmp_path / "memories.db"
    with make_store(f"sqlite:///{path}") as store:
        store.add_texts([f"text {i}" for i in range(300)])
    whole = path.read_bytes()
    page = 16_384
    hit = 0
    for start in range(page, len(whole), page):
        path.write_bytes(whole[:start] + b"\xa5" * page + whole[start + page :])
        try:
            with make_store(f"sqlite:///{path}") as store:
                store.similarity_search("text 7", k=300)
                store.suppressed()
                store.health()
                store.add_texts(["text 1", "new"])
        except CorruptStorageError:
            hit += 1
    assert hit > 0


def test_a_database_of_another_program_stays_byte_for_byte(
    make_store: StoreMaker, tmp_path: Path
) -> None:
    path = tmp_path / "photos.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("INSERT INTO photos (name) VALUES ('sunset')")
    connection.close()
    before = digest(path)
    with pytest.raises(ForeignStorageError, match="photos"):
        make_store(f"sqlite:///{path}")
    gc.collect()
    assert digest(path) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["photos.db"]


def test_a_database_of_a_newer_release(make_store: StoreMaker, tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    url = f"sqlite:///{path}"
    with make_store(url) as store:
        fill(store)
        execute(store, "UPDATE meta SET value = '99' WHERE key = 'schema_version'")
        before = dump(store)
    with pytest.raises(SchemaVersionError, match="99") as error:
        make_store(url)
    assert (error.value.found, error.value.supported) == (99, len(MIGRATIONS))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT COUNT(*) FROM memories").fetchone() == (2,)
    connection.execute(
        "UPDATE meta SET value = ? WHERE key = 'schema_version'", [str(len(MIGRATIONS))]
    )
    connection.commit()
    connection.close()
    store = make_store(url)
    before["meta"] = [
        r if r[0] != "schema_version" else (r[0], str(len(MIGRATIONS))) for r in before["meta"]
    ]
    assert dump(store) == before


def test_an_empty_file_is_a_fresh_store(make_store: StoreMaker, tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    path.touch()
    fill(make_store(f"sqlite:///{path}"))


def test_a_folder_that_does_not_exist(make_store: StoreMaker, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="folder"):
        make_store(f"sqlite:///{tmp_path}/nowhere/memories.db")
    with pytest.raises(StorageError, match="check that it is a file"):
        make_store(f"sqlite:///{tmp_path}")


def read_only(path: Path) -> str:
    return f"sqlite:///file:{path}?mode=ro&uri=true"


def test_a_read_only_file_is_read_and_not_written(make_store: StoreMaker, tmp_path: Path) -> None:
    path = tmp_path / "memories.db"
    with make_store(f"sqlite:///{path}", policy=plain(theta_low=0.3)) as store:
        fill(store)
        before = dump(store)
    store = make_store(read_only(path))
    assert store.policy.theta_low == 0.3
    assert [d.id for d in store.similarity_search("apple", k=1)] == ["a"]
    assert store.worth("a") == 1.0
    assert store.run("run").reward == 1.0
    assert store.health().episodes == 1
    writes: list[Callable[[], object]] = [
        lambda: store.add_texts(["plum"]),
        lambda: store.delete(["a"]),
        lambda: store.record_outcome("run", False),
        lambda: store.withdraw_outcome("run"),
        lambda: store.restore("a"),
        lambda: store.pin("a"),
    ]
    for write in writes:
        with pytest.raises(StorageReadOnlyError, match="can be written"):
            write()
    with pytest.raises(StorageReadOnlyError):
        make_store(read_only(path), policy=plain(theta_low=0.1))
    assert dump(store) == before


def test_what_cannot_be_recorded_is_counted_and_the_documents_are_given(
    make_store: StoreMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memories.db"
    with make_store(f"sqlite:///{path}") as store:
        fill(store)
    store = make_store(read_only(path))
    for _ in range(3):
        with store.episode("new"):
            assert [d.id for d in store.similarity_search("apple", k=1)] == ["a"]
    health = store.health()
    assert not health.ok
    assert health.failures == {"what a run retrieved": 3}
    assert "StorageReadOnlyError" in (health.last_failure or "")
    assert len([r for r in caplog.records if r.name == "langchain_memoryworth"]) == 1


def limit(store: MemoryWorthStore, pages: int) -> None:
    """Every connection of the store may have so many pages more, as on a full disk."""
    ((count,),) = query(store, "PRAGMA page_count")
    held = store.governor.database
    most = int(count) + pages
    event.listen(
        held.engine, "connect", lambda c, _: c.execute(f"PRAGMA max_page_count={most}").close()
    )
    held.close_idle()


def test_a_full_disk_keeps_the_previous_state(make_store: StoreMaker, file_url: str) -> None:
    store = make_store(file_url)
    fill(store)
    limit(store, 2)
    before = dump(store)
    with pytest.raises(StorageFullError, match="nothing of this write was kept"):
        store.add_texts([f"{i} " * 5_000 for i in range(200)])
    assert dump(store) == before
    assert_exact(store)
    assert next(d.id for d in store.similarity_search("apple", k=9)) == "a"
    assert store.record_outcome("run", False)  # what fits still goes
    assert store.worth("a") == 0.0
    limit(store, 10_000)  # space was freed
    store.add_texts([f"{i} " * 5_000 for i in range(20)])
    assert store.health().memories == 22


def test_outcomes_until_the_disk_is_full_are_all_or_nothing(
    make_store: StoreMaker, file_url: str
) -> None:
    store = make_store(file_url)
    store.add_texts([f"text {i}" for i in range(8)], ids=[str(i) for i in range(8)])
    limit(store, 3)
    acknowledged, failed = set(), 0
    for i in range(3_000):
        run = f"run{i}"
        with store.episode(run):
            store.similarity_search("text", k=8)
        try:
            store.record_outcome(run, i % 2 == 0)
        except (StorageFullError, UnknownRunError):
            failed += 1
            if failed == 3:
                break
        else:
            acknowledged.add(run)
    assert failed == 3
    settled = {str(r[0]) for r in query(store, "SELECT id FROM episodes WHERE reward IS NOT NULL")}
    lost, more = acknowledged - settled, settled - acknowledged
    tally(file_url, faults=failed, acknowledged=len(acknowledged), lost=len(lost), twice=len(more))
    assert_exact(store)
    assert all(r.counters[4] == len(acknowledged) for r in live(store))


def test_a_fresh_store_on_a_full_disk_stays_usable(make_store: StoreMaker, file_url: str) -> None:
    store = make_store(file_url)
    before = dump(store)
    limit(store, 1)
    with pytest.raises(StorageFullError):
        store.add_texts([f"{i} " * 5_000 for i in range(200)])
    assert dump(store) == before


def test_the_file_is_all_there_is(make_store: StoreMaker, tmp_path: Path) -> None:
    """A copy of a closed store is the whole store: no index file, nothing beside it."""
    path = tmp_path / "memories.db"
    with make_store(f"sqlite:///{path}", policy=plain(v_min=1, exploration=0.0)) as store:
        fill(store)
        store.governor.journal.expose_documents(EpisodeKey("bad"), [Document("", id="b")])
        store.record_outcome("bad", False)
        store.withdraw_outcome("run")
        assert store.memory("b").status is Status.SUPPRESSED
        before = dump(store)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["memories.db"]
    copy = tmp_path / "elsewhere.db"
    shutil.move(path, copy)
    again = make_store(f"sqlite:///{copy}")
    assert dump(again) == before
    assert [d.id for d in again.similarity_search("pear", k=2)] == ["a"]


# -- source ---------------------------------------------------------------------------------------------------------


FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "copyreg"}


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_no_pickle_is_read_or_written(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(a.name for a in node.names)]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant)
            assert node.value.value is False
        elif isinstance(node, ast.Attribute):
            assert node.attr not in {"read_pickle", "to_pickle", "allow_dangerous_deserialization"}
        assert not {n.split(".")[0] for n in names} & FORBIDDEN


def test_a_new_file_that_another_process_is_writing_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own timeout does not hold for the switch to WAL, so the first of several openers would shut the others out."""
    path = tmp_path / "memories.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waited = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            other.rollback()

    monkeypatch.setattr(database, "_wait", wait)
    with MemoryWorthStore(f"sqlite:///{path}", HashedWords()) as store:
        store.add_texts(["text"])
        assert store.health().memories == 1
    other.close()
    assert waited == [0.0, 0.002, 0.004]


def test_a_writer_asks_for_its_turn_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite looks less and less often, and among processes that write without a pause it looked in vain for 30 s."""
    path = tmp_path / "memories.db"
    asked = []
    is_turn = Database._is_turn

    def counted(self: Database, *args: Any, **options: Any) -> bool:
        got_it = is_turn(self, *args, **options)
        asked.append(got_it)
        if len(asked) == 3:
            other.rollback()
        return got_it

    with MemoryWorthStore(f"sqlite:///{path}", HashedWords()) as store:
        store.add_texts(["text"])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(Database, "_is_turn", counted)
        store.add_texts(["another"])
        assert asked == [False, False, False, True]
        assert store.health().memories == 2
        other.close()


def test_who_gets_no_turn_is_told_so_and_may_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memories.db"
    with MemoryWorthStore(f"sqlite:///{path}", HashedWords()) as store:
        store.add_texts(["text"])
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as patch:
            patch.setattr(database, "BUSY_TIMEOUT_S", -1)
            with pytest.raises(StorageBusyError, match="try again"):
                store.add_texts(["another"])
        other.rollback()
        other.close()
        store.add_texts(["another"])
        assert store.health().memories == 2
        with store.governor.database.write() as session:
            assert session.number(Statement("PRAGMA busy_timeout")) == 30_000


def test_a_model_that_cannot_be_had_is_named_with_what_to_do(tmp_path: Path) -> None:
    """The tests are without a network, as a reader may be."""
    missing = SentenceTransformerEmbeddings("nobody/no-such-model")
    with MemoryWorthStore(f"sqlite:///{tmp_path}/memories.db", missing) as store:
        with pytest.raises(ModelUnavailableError, match="embedding=") as refused:
            store.add_texts(["text"])
        assert store.health().memories == 0
    assert refused.value.model == "nobody/no-such-model"
    assert "\n" not in str(refused.value)
