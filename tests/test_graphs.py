"""The graph of `hnsw` on a file: taken over where it fits, caught up, and never worse than building it anew."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.vectors.coordinates import TERMS, Coordinates
from langchain_memoryworth.vectors.graphs import Graphs
from langchain_memoryworth.vectors.index import Graph, VectorIndex

StoreMaker = Callable[..., MemoryWorthStore]
WithGraph = Literal["hnsw", "hnsw-fp16"]
KINDS: tuple[WithGraph, ...] = ("hnsw", "hnsw-fp16")
D = 16
WEIGHTS = [1.0, *[0.0] * TERMS]


def vectors_of(count: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, D)).astype(np.float32)
    rows: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return rows


def index_of(kind: WithGraph, vectors: np.ndarray) -> VectorIndex:
    index = VectorIndex(D, kind)
    n = len(vectors)
    index.upsert(np.arange(n), vectors, np.zeros((n, TERMS)), np.zeros(n, bool))
    return index


# -- in memory ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_that_took_a_graph_over_answers_as_the_one_that_built_it(kind: WithGraph) -> None:
    n = 3_000
    vectors = vectors_of(n)
    built, taken = index_of(kind, vectors), VectorIndex(D, kind)
    assert taken.take_over(built.graph())
    assert (len(taken), len(taken.hollow()), taken.worn) == (0, n, True)
    order = np.random.default_rng(1).permutation(n)
    for part in np.array_split(order, 7):
        m = len(part)
        taken.upsert(part, vectors[part], np.zeros((m, TERMS)), np.zeros(m, bool))
    assert (len(taken), len(taken.hollow()), taken.worn) == (n, 0, False)
    new, seqs = vectors_of(50, seed=2), np.arange(n, n + 50)
    for index in (built, taken):
        index.upsert(seqs, new, np.zeros((50, TERMS)), np.zeros(50, bool))
        index.hold(dict.fromkeys(seqs[:20].tolist(), True))
    for query in vectors_of(40, seed=3):
        one, other = (index.search(query, WEIGHTS, 10) for index in (built, taken))
        assert one.seqs.tolist() == other.seqs.tolist()
        assert np.array_equal(one.scores, other.scores)


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_does_not_fit_is_refused_and_nothing_is_changed(kind: WithGraph) -> None:
    vectors = vectors_of(30)
    good = index_of(kind, vectors).graph()
    other: WithGraph = "hnsw" if kind == "hnsw-fp16" else "hnsw-fp16"
    wider = VectorIndex(D + 8, kind)
    wider.upsert(
        np.arange(30),
        np.eye(30, D + 8, dtype=np.float32),
        np.zeros((30, TERMS)),
        np.zeros(30, bool),
    )
    wrong = [
        index_of(other, vectors).graph(),
        wider.graph(),
        good._replace(seqs=good.seqs[:-1], marks=good.marks[:-1]),
        good._replace(marks=good.marks[:-1]),
        good._replace(links=good.links[: len(good.links) // 2]),
        good._replace(links=np.zeros(0, np.uint8)),
        good._replace(links=np.random.default_rng(0).integers(0, 256, 1000).astype(np.uint8)),
    ]
    index = VectorIndex(D, kind)
    for graph in wrong:
        assert not index.take_over(graph)
    assert len(index.search(vectors[0], WEIGHTS, 3).seqs) == 0
    index.upsert(np.arange(30), vectors, np.zeros((30, TERMS)), np.zeros(30, bool))
    assert index.search(vectors[7], WEIGHTS, 1).seqs.tolist() == [7]


def test_a_graph_wears_by_vectors_that_changed_and_by_rows_that_are_gone() -> None:
    vectors = vectors_of(100)
    zeros, shown = np.zeros((100, TERMS)), np.zeros(100, bool)
    index = index_of("hnsw", vectors)
    index.upsert(np.arange(10), vectors_of(10, seed=1), zeros[:10], shown[:10])
    assert not index.worn
    index.upsert(np.arange(10, 11), vectors_of(1, seed=2), zeros[:1], shown[:1])
    assert index.worn
    index.upsert(np.arange(11), vectors[:11], zeros[:11], shown[:11])  # and back
    assert not index.worn
    index.remove(np.arange(50))
    assert not index.worn
    index.remove(np.arange(51))
    assert index.worn


# -- on a file ------------------------------------------------------------------------------------------------------


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were linked into graphs, call by call."""
    found: list[int] = []
    append = Coordinates.append

    def counted(self: Coordinates, vectors: Any, terms: Any) -> None:
        found.append(len(vectors))
        append(self, vectors, terms)

    monkeypatch.setattr(Coordinates, "append", counted)
    return found


def add(store: MemoryWorthStore, vectors: np.ndarray, first: int = 0, **options: Any) -> None:
    numbers = range(first, first + len(vectors))
    pairs = [(f"text {n}", v.tolist()) for n, v in zip(numbers, vectors, strict=True)]
    store.add_embeddings(pairs, ids=[str(n) for n in numbers], **options)


def build(make_store: StoreMaker, url: str, vectors: np.ndarray) -> None:
    """A store of these vectors that was searched once, so that its graph is on a file."""
    with make_store(url, index="hnsw") as store:
        add(store, vectors)
        best(store, vectors[0])


def best(store: MemoryWorthStore, query: np.ndarray, k: int = 5) -> list[str | None]:
    return [d.id for d in store.similarity_search_by_vector(query.tolist(), k)]


def graph_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.graph"))


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """A URL, and the options that keep its graphs in `tmp_path`."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/m.db", {}
    else:
        yield request.getfixturevalue("postgres"), {"graph_folder": tmp_path}


@pytest.mark.parametrize("index", KINDS)
def test_a_store_opens_with_the_graph_that_was_kept_and_catches_up(
    make_store: StoreMaker,
    place: tuple[str, dict[str, Any]],
    tmp_path: Path,
    linked: list[int],
    index: WithGraph,
) -> None:
    url, options = place
    vectors = vectors_of(400)
    with make_store(url, index=index, **options) as store:
        add(store, vectors)
        assert best(store, vectors[7], 1) == ["7"]
    assert sum(linked) == 400
    (file,) = graph_files(tmp_path)
    linked.clear()
    with make_store(url, **options) as other:  # without a graph
        add(other, vectors_of(30, seed=1), first=400)
        other.delete(["3"])
        other.add_embeddings([("another text", vectors[4].tolist())], ids=["4"])
        assert best(other, vectors[3], 1) != ["3"]
    expected = [*map(str, range(430))]
    del expected[3]
    linked.clear()
    with make_store(url, index=index, **options) as store:
        assert sorted(best(store, vectors[0], 1000), key=lambda i: int(str(i))) == expected
        assert sum(linked) == 31  # the new ones, and the new text of the fourth
        assert best(store, vectors[7], 1) == ["7"]
        store.add_embeddings([("text 3", vectors[3].tolist())], ids=["3"])  # comes back
        assert best(store, vectors[3], 1) == ["3"]
        assert sum(linked) == 31
    linked.clear()
    with make_store(url, index=index, **options) as store:
        assert best(store, vectors[3], 1) == ["3"]
    assert linked == []
    assert graph_files(tmp_path) == [file]
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda _: b"no archive",
        lambda data: data[:-100],
        lambda data: (
            data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
        ),
    ],
    ids=["empty", "other", "cut off", "one bit"],
)
def test_a_damaged_graph_is_built_anew_and_the_log_says_so(
    make_store: StoreMaker,
    tmp_path: Path,
    linked: list[int],
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[bytes], bytes],
) -> None:
    url, vectors = f"sqlite:///{tmp_path}/m.db", vectors_of(400)
    build(make_store, url, vectors)
    (file,) = graph_files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    linked.clear()
    with (
        caplog.at_level(logging.WARNING, logger="langchain_memoryworth"),
        make_store(url, index="hnsw") as store,
    ):
        assert best(store, vectors[9], 1) == ["9"]
    assert sum(linked) == 400
    assert [str(file) in r.message and "built anew" in r.message for r in caplog.records] == [True]
    linked.clear()
    with make_store(url, index="hnsw") as store:
        assert best(store, vectors[9], 1) == ["9"]
    assert linked == []


def test_a_graph_with_pickled_objects_in_it_is_not_read(
    make_store: StoreMaker, tmp_path: Path, linked: list[int]
) -> None:
    url, vectors = f"sqlite:///{tmp_path}/m.db", vectors_of(40)
    build(make_store, url, vectors)
    (file,) = graph_files(tmp_path)
    with file.open("wb") as target:
        np.savez(target, seqs=np.array([object()]), marks=np.zeros(1), links=np.zeros(1))
    linked.clear()
    with make_store(url, index="hnsw") as store:
        assert best(store, vectors[9], 1) == ["9"]
    assert sum(linked) == 40


def test_the_graph_of_another_database_is_built_anew(
    make_store: StoreMaker, tmp_path: Path, linked: list[int]
) -> None:
    """The same numbers, other vectors: as after a file was replaced by another one of its name."""
    for name, seed in (("a", 0), ("b", 1)):
        with make_store(f"sqlite:///{tmp_path}/{name}.db", index="hnsw") as store:
            add(store, vectors_of(400, seed))
            best(store, vectors_of(1)[0])
    mine, theirs = graph_files(tmp_path)
    shutil.copy(theirs, mine)
    linked.clear()
    with make_store(f"sqlite:///{tmp_path}/a.db", index="hnsw") as store:
        for n, vector in enumerate(vectors_of(400)):
            assert best(store, vector, 1) == [str(n)]
    assert sum(linked) == 400


def test_a_graph_much_smaller_than_the_store_is_built_anew(
    make_store: StoreMaker, tmp_path: Path, linked: list[int]
) -> None:
    url, vectors = f"sqlite:///{tmp_path}/m.db", vectors_of(100)
    with make_store(url, index="hnsw") as store:
        add(store, vectors[:40])
        best(store, vectors[0])
    with make_store(url) as store:
        add(store, vectors)
    linked.clear()
    with make_store(url, index="hnsw") as store:
        assert best(store, vectors[99], 1) == ["99"]
    assert sum(linked) == 100


def test_what_was_erased_leaves_the_file_with_the_next_search(
    make_store: StoreMaker, tmp_path: Path, linked: list[int]
) -> None:
    url, vectors = f"sqlite:///{tmp_path}/m.db", vectors_of(200)
    build(make_store, url, vectors)
    (file,) = graph_files(tmp_path)
    before = Graphs("hnsw", "", tmp_path / "m.db", None).read((), D)
    assert before is not None
    assert before.marks.all()
    data = file.read_bytes()
    assert not any(v.tobytes() in data for v in vectors)  # nor was any vector there
    linked.clear()
    with make_store(url, index="hnsw") as store:
        store.erase("5")
        assert best(store, vectors[5], 300)[0] != "5"
        assert len(best(store, vectors[5], 300)) == 199
    after = Graphs("hnsw", "", tmp_path / "m.db", None).read((), D)
    assert after is not None
    assert np.flatnonzero(after.marks == 0).tolist() == [5]
    assert linked == []


def test_a_folder_that_goes_away_costs_only_the_graph(
    make_store: StoreMaker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "graphs"
    folder.mkdir()
    vectors = vectors_of(50)
    store = make_store(f"sqlite:///{tmp_path}/m.db", index="hnsw", graph_folder=folder)
    add(store, vectors)
    folder.rmdir()
    with caplog.at_level(logging.WARNING, logger="langchain_memoryworth"):
        assert best(store, vectors[9], 1) == ["9"]
        store.close()
    assert [r.message.startswith("the graph is not kept in ") for r in caplog.records] == [True]
    with make_store(f"sqlite:///{tmp_path}/m.db", index="hnsw") as store:
        assert best(store, vectors[9], 1) == ["9"]


def test_two_stores_and_two_namespaces_in_one_folder_keep_apart(
    make_store: StoreMaker, tmp_path: Path, linked: list[int]
) -> None:
    vectors = {(name, space): vectors_of(60, seed) for seed, (name, space) in enumerate(PLACES)}
    for _ in range(2):
        linked.clear()
        for name in ("a", "b"):
            url = f"sqlite:///{tmp_path}/{name}.db"
            with make_store(url, index="hnsw", graph_folder=str(tmp_path)) as store:
                for space in ("x", "y"):
                    mine = vectors[name, space]
                    if linked.count(60) < 4 and not store.get_by_ids(["0"], namespace=space):
                        add(store, mine, namespace=space)
                    found = store.similarity_search_by_vector(mine[8].tolist(), 1, namespace=space)
                    assert [d.id for d in found] == ["8"]
    assert linked == []
    assert len(graph_files(tmp_path)) == 4


PLACES = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


@pytest.mark.parametrize("index", ["flat", "flat-fp16"])
def test_without_a_graph_there_is_no_file(
    make_store: StoreMaker, tmp_path: Path, index: str
) -> None:
    with make_store(f"sqlite:///{tmp_path}/m.db", index=index, graph_folder=tmp_path) as store:
        add(store, vectors_of(30))
        best(store, vectors_of(1)[0])
    assert graph_files(tmp_path) == []


def test_in_memory_nothing_is_kept(make_store: StoreMaker) -> None:
    with make_store("sqlite://", index="hnsw") as store:
        add(store, vectors_of(30))
        assert best(store, vectors_of(30)[4], 1) == ["4"]
    assert Graphs("hnsw", "sqlite://", None, None).path((), D) is None


@pytest.mark.parametrize("folder", ["nowhere", "", 3, b"/", True])
def test_a_folder_that_is_none_is_refused(
    make_store: StoreMaker, tmp_path: Path, folder: Any
) -> None:
    with pytest.raises(InvalidInputError, match="make it first") as caught:
        make_store(f"sqlite:///{tmp_path}/m.db", index="hnsw", graph_folder=folder)
    assert caught.value.value == folder
    assert list(tmp_path.iterdir()) == []


def test_columns_of_other_types_are_no_graph(tmp_path: Path) -> None:
    graphs = Graphs("hnsw", "", tmp_path / "m.db", None)
    good = index_of("hnsw", vectors_of(10)).graph()
    graphs.keep((), D, good)
    read = graphs.read((), D)
    assert read is not None
    assert all(np.array_equal(a, b) for a, b in zip(read, good, strict=True))
    graphs.keep((), D, Graph(good.seqs.astype(np.float64), good.marks, good.links))  # type: ignore[arg-type]
    assert graphs.read((), D) is None
