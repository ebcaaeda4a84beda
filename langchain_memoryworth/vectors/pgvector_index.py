"""Vectors in the database itself, by pgvector: for stores that do not fit into a worker.

What is held back is left out by the same query that ranks, so nothing has to follow the database. The vectors are a copy
beside the memories, written in the same transaction: an outcome that changed the row of a vector would cost a new entry
in its graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.errors import InvalidInputError, MissingExtensionError, StorageError
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.feed import Feed
from langchain_memoryworth.ledger.memories import born_after
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Namespace, namespace_key
from langchain_memoryworth.vectors.coordinates import Floats
from langchain_memoryworth.vectors.index import Found

EXACT = 10_000
"""Up to so many live memories of a namespace all of them are ranked, without the graph."""
_WIDEST_GRAPH = 2_000
"""Dimensions beyond which pgvector makes no graph of float32; every search is exact then."""
_EF_SEARCH = 100
_BATCH = 500

Terms = Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]]


class Mirror:
    """The copies of the vectors.

    Args:
        database: Which holds them. On SQLite there are none.
    """

    def __init__(self, database: Database) -> None:
        self._possible = database.kind == "postgresql"
        self._database = self.database = database

    def checked(self) -> Mirror:
        """Itself, to be searched.

        Raises:
            InvalidInputError: If the database is no Postgres.
        """
        if not self._possible:
            raise InvalidInputError(
                "index='pgvector' needs a Postgres, say postgresql+psycopg://host/name; "
                "give 'flat' or 'hnsw' with SQLite",
                value="pgvector",
            )
        return self

    def prepare(self, dimension: int | None) -> None:
        """Begin to keep copies, of what is there too, if that was not begun by another process.

        Raises:
            MissingExtensionError: If the database has no pgvector.
        """
        with self._database.read() as session:
            ready = self._place(session) is not None
        if not ready:
            self._install()
            with self._database.write() as session:
                if self._place(session) is None:
                    session.run(_KEEP, {"place": self._extension(session)})
        if dimension is not None:
            with self._database.write() as session:
                self._fill(session, dimension)

    def _install(self) -> None:
        with self._database.read() as session:
            if self._extension(session) is not None:
                return
        try:
            with self._database.write() as session:
                session.run(_CREATE_EXTENSION)
        except StorageError as error:
            raise MissingExtensionError("vector") from error

    def _extension(self, session: Session) -> str | None:
        row = session.row(_EXTENSION)
        return None if row is None else str(row[0])

    def _place(self, session: Session) -> str | None:
        """The schema of the extension, None if no copies are kept."""
        row = session.row(_PLACE)
        return None if row is None else str(row[0])

    def _fill(self, session: Session, dimension: int) -> None:
        if session.row(_HAS_TABLE) is None:
            self._create(session, str(self._place(session)), dimension)
        rows = [(seq, np.frombuffer(v, np.float32)) for seq, v in session.rows(_UNCOPIED)]
        for start in range(0, len(rows), _BATCH):
            self.write(session, rows[start : start + _BATCH])

    def _create(self, session: Session, place: str, dimension: int) -> None:
        session.run(
            Statement(
                "CREATE TABLE vectors (seq BIGINT PRIMARY KEY, "
                f'embedding "{place}".vector({dimension}) NOT NULL)'
            )
        )
        for statement in _FORGET:
            session.run(statement)
        if dimension <= _WIDEST_GRAPH:
            session.run(
                Statement(
                    f'CREATE INDEX vectors_near ON vectors USING hnsw (embedding "{place}".vector_ip_ops)'
                )
            )

    def write(self, session: Session, rows: Sequence[tuple[int, Floats]]) -> None:
        """Copy vectors that are being stored, if copies are kept; part of that transaction."""
        if not self._possible or not rows:
            return
        place = self._place(session)
        rows = [(seq, v) for seq, v in rows if len(v)]
        if place is None or not rows:
            return
        if session.row(_HAS_TABLE) is None:
            self._create(session, place, len(rows[0][1]))
        statement = Statement(
            "INSERT INTO vectors (seq, embedding) "
            f'VALUES (:seq, CAST(:v AS "{place}".vector)) '
            "ON CONFLICT (seq) DO UPDATE SET embedding = excluded.embedding"
        )
        session.run_many(statement, [{"seq": seq, "v": written(v)} for seq, v in rows])

    def place(self) -> str:
        """The schema of the extension."""
        with self._database.read() as session:
            return str(self._place(session))


class PgVectorIndex:
    """The memories of one namespace, where they are; as `VectorIndex` to whoever searches.

    Up to `EXACT` memories, and under any floor, the ranking is exact. Beyond, the graph gives the nearest 50*k, and at
    least 400, and these are ranked; fewer than k answers are looked for again, exactly.

    Args:
        database: A Postgres that a `Mirror` has prepared.
        place: The schema of the extension.
        namespace: Whose memories.
        dimension: Of the vectors.
        policy: Which statuses it holds back, and how long memories live.
        terms: The coordinates behind each vector, see `VectorIndex`.
        clock: Unix time of the search.
    """

    gone = 0
    doublings = 64
    held = 1
    """Perhaps: the search for what is held back finds out."""

    def __init__(
        self,
        database: Database,
        place: str,
        namespace: Namespace,
        dimension: int,
        policy: Policy,
        terms: Terms,
        clock: Callable[[], float],
    ) -> None:
        self.dimension = dimension
        self._database = database
        self._namespace = namespace
        self._policy = policy
        self._terms = terms
        self._clock = clock
        self._statements = _statements(place)
        self._few: bool | None = None

    def __len__(self) -> int:
        with self._database.read() as session:
            return session.number(_COUNT, namespace=namespace_key(self._namespace), most=2**62)

    def __contains__(self, seq: int) -> bool:
        return False  # nothing is kept here

    def changed(self) -> None:
        """Memories came or went."""
        self._few = None

    def search(self, query: Floats, weights: Sequence[float], k: int) -> Found:
        """The k best by `weights`, see the class."""
        plain = not any(weights[i] for i in (1, 3, 4))  # the fallback alone moves nothing
        limit = k if plain else max(400, 50 * k)
        if not self._is_small():
            found = self._ranked("near", query, weights, _SERVED, limit=limit)
            if len(found.seqs) >= k:
                return found.take(slice(k))
        exact = k if plain else 2**62
        return self._ranked("exact", query, weights, _SERVED, limit=exact).take(slice(k))

    def within(self, query: Floats, weights: Sequence[float], floor: float) -> Found:
        """All whose similarity is at least `floor`, best by score first."""
        return self._ranked("exact", query, weights, _SERVED, floor=floor)

    def held_back(self, query: Floats, weights: Sequence[float], above: float) -> Found:
        """What is held back and would score above a value, best first."""
        found = self._ranked("exact", query, weights, _HELD)
        return found.take(found.scores > above)

    def vectors(self, seqs: NDArray[np.int64]) -> Floats:
        """The vectors of some memories, float32, shape (n, dimension)."""
        with self._database.read() as session:
            rows = dict(session.rows(_VECTORS, seqs=seqs.tolist()))
        return np.array(
            [np.frombuffer(rows[s], np.float32) for s in seqs.tolist()], dtype=np.float32
        ).reshape(len(seqs), self.dimension)

    def pool(self) -> tuple[int, int]:
        """Successes and total of all memories of the namespace that are in service."""
        with self._database.read() as session:
            row = session.row(_POOL, **self._valid())
        positive, negative = (int(x or 0) for x in row or (0, 0))
        return positive, positive + negative

    def _is_small(self) -> bool:
        few = self._few
        if few is None:
            key = namespace_key(self._namespace)
            with self._database.read() as session:
                few = session.number(_COUNT, namespace=key, most=EXACT + 1) <= EXACT
            self._few = few
        return few

    def _ranked(
        self,
        how: str,
        query: Floats,
        weights: Sequence[float],
        statuses: Sequence[str],
        *,
        limit: int = 2**62,
        floor: float = -np.inf,
    ) -> Found:
        if (
            not self._policy.suppress
        ):  # then what fails is served, but not what a person or quarantine holds back
            moved = ["suppressed"]
            statuses = (
                [*statuses, *moved]
                if statuses is _SERVED
                else [s for s in statuses if s not in moved]
            )
        with self._database.read() as session:
            if how == "near":
                session.run(_GRAPH, {"ef": str(max(_EF_SEARCH, min(limit, 1000)))})
            rows = session.rows(
                self._statements[how],
                query=written(query),
                statuses=list(statuses),
                **self._valid(),
                floor=float(floor),
                limit=limit,
            )
        return self._by_score(rows, weights)

    def _valid(self) -> dict[str, Any]:
        """The parameters of `_VALID`."""
        now = self._clock()
        return {
            "namespace": namespace_key(self._namespace),
            "now": now,
            "born": born_after(self._policy, self._namespace, now),
        }

    def _by_score(self, rows: Sequence[tuple[object, ...]], weights: Sequence[float]) -> Found:
        n = len(rows)
        columns = list(zip(*rows, strict=True)) or [()] * 8
        seqs = np.array(columns[0], dtype=np.int64)
        similarities = np.array(columns[1], dtype=np.float32)
        nothing = np.zeros(n, np.bool_)
        ages = np.array(columns[2], dtype=np.float64)
        feed = Feed(
            seqs=seqs,
            vectors=np.empty((n, 0), np.float32),
            held=nothing,
            waiting=nothing,
            live=~nothing,
            added_at=ages,
            expires_at=ages,
            written_at=ages,
            counters=np.array(columns[3:8], dtype=np.int64).reshape(5, n),
        )
        terms = self._terms(feed.counters, feed.added_at)
        scores = weights[0] * similarities + terms @ np.asarray(weights[1:], dtype=np.float64)
        order = np.lexsort((seqs, -scores))
        return Found(
            seqs[order],
            scores[order].astype(np.float32),
            np.clip(similarities, -1.0, 1.0)[order],
        )


def written(vector: Floats) -> str:
    """A vector as pgvector reads it, to the last bit, which takes nine digits of a float32.

    >>> written(np.array([0.1, 1.0], np.float32))
    '[0.100000001,1]'
    """
    return "[" + ",".join(map("%.9g".__mod__, vector.tolist())) + "]"


def _statements(place: str) -> dict[str, Statement]:
    # The query is kilobytes of text, so it is sent once; what depends on no row is a constant to the graph.
    asked = f'WITH asked AS (SELECT CAST(:query AS "{place}".vector) AS vector) '
    distance = f'v.embedding OPERATOR("{place}".<#>) (SELECT vector FROM asked)'
    select = (
        f"{asked}SELECT v.seq, -({distance}) AS similarity, m.added_at, "
        "e.positive, e.negative, e.size, e.squared, e.surprise "
        "FROM vectors v JOIN memories m ON m.seq = v.seq JOIN evidence e ON e.seq = v.seq "
        f"WHERE {_VALID} AND e.status = ANY(:statuses) "
    )
    near = f"{select}AND CAST(:floor AS FLOAT8) = '-infinity' ORDER BY {distance} LIMIT :limit"
    # As an expression, so that it is not answered by the graph.
    exact = f"{select} AND -({distance}) >= :floor ORDER BY ({distance}) + 0.0, v.seq LIMIT :limit"
    return {"near": Statement(near), "exact": Statement(exact)}


_VALID = (
    "m.namespace = :namespace AND m.retired_at IS NULL "
    "AND (m.expires_at IS NULL OR m.expires_at > :now) AND m.written_at > :born"
)
_SERVED = ["active", "pinned"]
_HELD = ["suppressed", "withheld", "quarantined"]
_EXTENSION = Statement(
    "SELECT n.nspname FROM pg_extension x JOIN pg_namespace n ON n.oid = x.extnamespace "
    "WHERE x.extname = 'vector'"
)
_CREATE_EXTENSION = Statement("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
_PLACE = Statement("SELECT value FROM meta WHERE key = 'pgvector'")
_KEEP = Statement("INSERT INTO meta (key, value) VALUES ('pgvector', :place)")
_HAS_TABLE = Statement(
    "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'vectors'"
)
_UNCOPIED = Statement(
    "SELECT m.seq, m.vector FROM memories m LEFT JOIN vectors v ON v.seq = m.seq "
    "WHERE v.seq IS NULL AND LENGTH(m.vector) > 0"
)
_FORGET = (
    # Whatever takes the vector of a memory away, takes its copy with it.
    Statement(
        "CREATE FUNCTION forget_vector() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN DELETE FROM vectors WHERE seq = OLD.seq; RETURN NULL; END$$"
    ),
    Statement(
        "CREATE TRIGGER forget_vector AFTER UPDATE OF vector ON memories FOR EACH ROW "
        "WHEN (LENGTH(NEW.vector) = 0) EXECUTE FUNCTION forget_vector()"
    ),
    Statement(
        "CREATE TRIGGER forget_memory AFTER DELETE ON memories FOR EACH ROW "
        "EXECUTE FUNCTION forget_vector()"
    ),
)
_GRAPH = Statement(
    # Without a sort only the graph gives the order; before the first ANALYZE the planner thinks sorting costs nothing.
    "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), "
    "set_config('hnsw.ef_search', :ef, true), set_config('enable_seqscan', 'off', true), "
    "set_config('enable_sort', 'off', true)"
)
_COUNT = Statement(
    "SELECT COUNT(*) FROM (SELECT 1 FROM memories WHERE namespace = :namespace "
    "AND retired_at IS NULL LIMIT :most) AS few"
)
_POOL = Statement(
    "SELECT SUM(e.positive), SUM(e.negative) FROM memories m JOIN evidence e ON e.seq = m.seq "
    f"WHERE {_VALID} AND e.status <> 'deprecated' AND LENGTH(m.vector) > 0"
)
_VECTORS = Statement("SELECT seq, vector FROM memories WHERE seq = ANY(:seqs)")
