"""Beside the stores of LangGraph on one host: searches, and the counters of an outcome kept in their items."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from langchain_core.embeddings import Embeddings

from benchmarks import fresh
from benchmarks.data import DIMENSION, K, filled, folder, opened, queries, text_of, unit_vectors
from benchmarks.rows import Row, ratio_row
from benchmarks.timing import Pairs, Side, Spread, all_in_turn
from langchain_memoryworth import MemoryWorthStore

_SPACE = ("memories",)
_IN_MEMORY = "`InMemoryStore` of LangGraph"
_SQLITE = "`SqliteStore` of LangGraph"
_OURS = "ours, recorded in an episode"
_OUTCOME = "ours: an outcome of 8 memories"


class Known(Embeddings):
    """Vectors by text, so that no store pays for a model."""

    def __init__(self, count: int) -> None:
        self._vectors = {text_of(i): v for i, v in enumerate(unit_vectors(count))}
        self._vectors |= {f"query {i}": v for i, v in enumerate(queries())}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """As a model gives them: new lists of floats."""
        return [self._vectors[t].tolist() for t in texts]

    def embed_query(self, text: str) -> list[float]:
        """Likewise."""
        return self.embed_documents([text])[0]


def run(*, quick: bool) -> list[Row]:
    """Rows of each store."""
    many, few = (120, 50) if quick else (100_000, 1_000)
    rounds, some, outcomes = (1, 1, 2) if quick else (3, 10, 60)
    with folder() as place:
        return [
            _in_memory(place, many, rounds),
            _memory(place, many),
            _sqlite_search(place, many, some),
            *_in_memory_outcomes(place, few, outcomes),
            *(row for way in _WAYS for row in _outcomes(place, few, way, outcomes)),
        ]


def index_of(known: Known) -> Any:
    """The configuration of a store of LangGraph; SqliteStore reads `text_fields`, the others `fields`."""
    return {"dims": DIMENSION, "embed": known, "fields": ["text"], "text_fields": ["text"]}


def fill(theirs: Any, count: int) -> None:
    """Items with a text and two counters."""
    from langgraph.store.base import PutOp

    for start in range(0, count, 1_000):
        numbers = range(start, min(start + 1_000, count))
        theirs.batch([PutOp(_SPACE, str(n), _item(n)) for n in numbers])


def _item(number: int) -> dict[str, Any]:
    return {"text": text_of(number), "positive": 0, "negative": 0, "held": number % 10 < 3}


def search(theirs: Any, **options: Any) -> Callable[[int], object]:
    """A search by one of the known queries."""
    return lambda i: theirs.search(_SPACE, query=f"query {i % 64}", limit=K, **options)


def recorded(store: MemoryWorthStore) -> Callable[[int], object]:
    """The same search of ours, written down."""
    asked = [q.tolist() for q in queries()]

    def work(i: int) -> None:
        with store.episode(str(uuid.uuid4())):
            store.similarity_search_by_vector(asked[i % len(asked)], K)

    return work


def _in_memory(place: Path, count: int, rounds: int) -> Row:
    theirs = in_memory(Known(count), count)
    with filled(place / "memory.db", unit_vectors(count)) as store:
        sides = [[Side(recorded(store))], [Side(search(theirs))]]
        taken = all_in_turn(sides, rounds=rounds, warmup=1)
    return ratio_row(
        f"{_IN_MEMORY}, search among {count:,}",
        _OURS,
        Pairs(taken[1], taken[0]),
        mode="NORMAL",
        target=250.0,
        at_least=True,
    )


def _memory(place: Path, count: int) -> Row:
    """Both in processes of their own."""
    code = (
        "from benchmarks.opener import measure; from benchmarks.langgraph_stores import Known, in_memory; "
        f"known = Known({count}); measure(lambda *_: in_memory(known, {count}), '')"
    )
    theirs = float(json.loads(fresh.python(code))["bytes"])
    ours = max(fresh.ours(place / "memory.db").bytes, 1.0)
    ratio = Spread.of([theirs / ours])
    case = f"{_IN_MEMORY}, memory of {count:,}"
    return Row(case, "ours, opened and asked", ratio, target=10.0, at_least=True)


def in_memory(known: Known, count: int) -> Any:
    """A store of LangGraph, filled."""
    from langgraph.store.memory import InMemoryStore

    theirs = InMemoryStore(index=index_of(known))
    fill(theirs, count)
    return theirs


def _connected(path: Path, pragmas: Sequence[str]) -> Any:
    # The sqlite3 of some Pythons cannot load the extension that vector search needs.
    from pysqlite3 import dbapi2

    connection = dbapi2.connect(str(path), check_same_thread=False, isolation_level=None)
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _sqlite(path: Path, count: int, pragmas: Sequence[str]) -> Any:
    from langgraph.store.sqlite import SqliteStore

    store = SqliteStore(_connected(path, pragmas), index=index_of(Known(count)))
    store.setup()
    fill(store, count)
    return store


def _sqlite_search(place: Path, count: int, rounds: int) -> Row:
    theirs = _sqlite(place / "theirs.db", count, _NORMAL.theirs)
    with opened(place / "memory.db") as store:
        sides = [[Side(recorded(store))], [Side(search(theirs))]]
        taken = all_in_turn(sides, rounds=rounds, warmup=1)
    theirs.conn.close()
    case = f"{_SQLITE}, search among {count:,}"
    return ratio_row(
        case, _OURS, Pairs(taken[1], taken[0]), mode="NORMAL", target=30.0, at_least=True
    )


def _in_memory_outcomes(place: Path, count: int, rounds: int) -> list[Row]:
    theirs = in_memory(Known(count), count)
    with filled(place / "outcomes.db", unit_vectors(count)) as store:
        return counted(_IN_MEMORY, theirs, store, count, rounds, "NORMAL; theirs keeps nothing")


class _Way(NamedTuple):
    """How both write, and how many times as long theirs was to take: in two batches, and one by one."""

    name: str
    ours: Literal["normal", "full"]
    theirs: tuple[str, ...]
    batched: float
    single: float


_NORMAL = _Way("NORMAL", "normal", ("journal_mode=WAL", "synchronous=NORMAL"), 5.0, 5.0)
_WAYS = (
    _NORMAL,
    _Way("FULL", "full", ("journal_mode=WAL", "synchronous=FULL"), 5.0, 20.0),
    _Way("FULL; theirs as it comes, with a rollback journal", "full", (), 5.0, 20.0),
)


def _outcomes(place: Path, count: int, way: _Way, rounds: int) -> list[Row]:
    number = _WAYS.index(way)
    path = place / f"outcomes-{number}.db"
    filled(path, unit_vectors(count), way.ours).close()
    theirs = _sqlite(place / f"theirs-{number}.db", count, way.theirs)
    with opened(path, way.ours) as store:
        targets = (way.batched, way.single, None)
        rows = counted(_SQLITE, theirs, store, count, rounds, way.name, targets)
    theirs.conn.close()
    return rows


def counted(
    name: str,
    theirs: Any,
    store: MemoryWorthStore,
    count: int,
    rounds: int,
    mode: str,
    targets: Sequence[float | None] = (None, None, None),
) -> list[Row]:
    """The counters of an outcome kept in items of theirs, in each way there is, beside an outcome of ours."""
    ways = {
        "in two batches": _batched(theirs, count),
        "item by item": _single(theirs, count),
        "in two batches, their vectors left as they are": _batched(theirs, count, index=False),
    }
    sides = [[_outcome(store)], *([Side(work)] for work in ways.values())]
    ours, *others = all_in_turn(sides, rounds=rounds, warmup=1)
    return [
        ratio_row(
            f"{name}, counters of 8 items read and written {how}",
            _OUTCOME,
            Pairs(taken, ours),
            mode=mode,
            target=target,
            at_least=True,
        )
        for how, target, taken in zip(ways, targets, others, strict=True)
    ]


def _outcome(store: MemoryWorthStore) -> Side:
    ids: dict[int, str] = {}
    asked = queries()

    def before(i: int) -> None:
        with store.episode() as episode:
            store.governor.retrieval.recall_by_vector(asked[i % len(asked)], K)
            ids[i] = episode.id

    return Side(lambda i: store.record_outcome(ids[i], outcome=i % 3 > 0), before)


def _batched(
    theirs: Any, count: int, *, index: Literal[False] | None = None
) -> Callable[[int], object]:
    from langgraph.store.base import GetOp, PutOp

    def work(i: int) -> None:
        keys = _keys(i, count)
        items = theirs.batch([GetOp(_SPACE, key) for key in keys])
        theirs.batch([PutOp(_SPACE, t.key, _counted(t.value), index=index) for t in items])

    return work


def _single(theirs: Any, count: int) -> Callable[[int], object]:
    def work(i: int) -> None:
        for key in _keys(i, count):
            value = _counted(theirs.get(_SPACE, key).value)
            theirs.put(_SPACE, key, value)

    return work


def _keys(number: int, count: int) -> list[str]:
    return [str((number * 31 + 7 * j) % count) for j in range(K)]


def _counted(value: dict[str, Any]) -> dict[str, Any]:
    return value | {"positive": value["positive"] + 1}
