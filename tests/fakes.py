"""What the tests share: an embedding without a model, a clock, and independent readings of a database.

Nothing here calls the code that it is used to check: counters are folded from the rows of the ledger, and searches are
brute force over the vectors that the database holds.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np
from langchain_core.embeddings import Embeddings

from langchain_memoryworth import MemoryWorthStore, Policy
from langchain_memoryworth.estimators.credit import Shown, settle
from langchain_memoryworth.ledger.schema import metadata
from langchain_memoryworth.ledger.session import Statement

DIMENSION = 32
COUNTERS = ("positive", "negative", "size", "squared", "retrievals")
TABLES = tuple(sorted(metadata.tables))


class HashedWords(Embeddings):
    """A bag of hashed words: each word is a fixed vector, a text the sum of its words."""

    def __init__(self, dimension: int = DIMENSION, model_name: str = "hashed-words") -> None:
        self.dimension = dimension
        self.model_name = model_name
        self._words: dict[str, np.ndarray] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(t) for t in texts]

    def embed_query(self, text: str) -> list[float]:
        total = np.zeros(self.dimension)
        for word in text.lower().split():
            total += self._word(word)
        return total.tolist()

    def _word(self, word: str) -> np.ndarray:
        if word not in self._words:
            digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            rng = np.random.default_rng(int.from_bytes(digest, "big"))
            self._words[word] = rng.standard_normal(self.dimension)
        return self._words[word]


class Clock:
    """Time that moves only when told to."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def forward(self, *, days: float = 0, seconds: float = 0) -> None:
        self.now += days * 86_400 + seconds


class Row(NamedTuple):
    """One live memory as the database has it."""

    seq: int
    id: str
    vector: np.ndarray
    added_at: float
    status: str
    counters: tuple[int, ...]
    surprise: int


def query(store: MemoryWorthStore, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """Rows of a raw query."""
    with store.governor.database.read() as session:
        return [tuple(r) for r in session.rows(Statement(sql), **parameters)]


def execute(store: MemoryWorthStore, sql: str, **parameters: Any) -> None:
    """A raw write."""
    with store.governor.database.write() as session:
        session.run(Statement(sql), parameters)


def dump(store: MemoryWorthStore) -> dict[str, list[tuple[Any, ...]]]:
    """The whole database."""
    return {t: sorted(query(store, f"SELECT * FROM {t}"), key=repr) for t in TABLES}


def counters(store: MemoryWorthStore) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """The stored counters and baselines by number."""
    names = ", ".join([*COUNTERS, *(f"base_{c}" for c in COUNTERS)])
    return {
        r[0]: (tuple(r[1:6]), tuple(r[6:11]))
        for r in query(store, f"SELECT seq, {names} FROM evidence")
    }


def fold_of_credits(store: MemoryWorthStore) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Counters and baselines summed up from the credits of the exposures."""
    totals = {r[0]: [0] * 10 for r in query(store, "SELECT seq FROM evidence")}
    rows = query(
        store,
        "SELECT x.seq, x.weight, x.positive, x.size, x.epoch, e.epoch FROM exposures x "
        "JOIN evidence e ON e.seq = x.seq",
    )
    for seq, _, given, now, counted in openings(store):
        for i, value in enumerate(counted[:5]):
            totals[seq][i] += value
            if given < now:
                totals[seq][5 + i] += value
    for seq, weight, positive, size, given, epoch in rows:
        if not size:
            continue
        addend = _addend(weight, positive, size)
        for i, value in enumerate(addend):
            totals[seq][i] += value
            if given < epoch:
                totals[seq][5 + i] += value
    return {s: (tuple(t[:5]), tuple(t[5:])) for s, t in totals.items()}


def openings(store: MemoryWorthStore) -> list[tuple[int, str, int, int, tuple[int, ...]]]:
    """What was rolled up: number, context, restore count then and now, counters."""
    names = ", ".join(f"o.{c}" for c in (*COUNTERS, "surprise"))
    rows = query(
        store,
        f"SELECT o.seq, o.context, o.epoch, e.epoch, {names} FROM openings o "
        "JOIN evidence e ON e.seq = o.seq",
    )
    return [(seq, context, then, now, tuple(rest)) for seq, context, then, now, *rest in rows]


def fold_of_ledger(store: MemoryWorthStore) -> dict[int, tuple[int, ...]]:
    """Counters worked out anew from exposures and outcomes under the policy in force."""
    policy = store.policy
    sources = policy.sources
    totals: dict[int, list[int]] = defaultdict(lambda: [0] * 5)
    for (seq,) in query(store, "SELECT seq FROM evidence"):
        totals[seq] = [0] * 5
    for seq, _, _, _, counted in openings(store):
        for i, value in enumerate(counted[:5]):
            totals[seq][i] += value
    outcomes = defaultdict(list)
    for eid, *row in query(
        store,
        "SELECT eid, source, source_id, reward, used FROM outcomes "
        "WHERE metric IN ('', :metric) ORDER BY number",
        metric=policy.metric,
    ):
        outcomes[eid].append(row)
    exposures = defaultdict(list)
    for eid, *row in query(
        store,
        "SELECT x.eid, x.seq, m.id, x.rank, x.similarity, x.used, x.shown FROM exposures x "
        "JOIN memories m ON m.seq = x.seq ORDER BY x.eid, x.rank, x.seq",
    ):
        exposures[eid].append(row)
    for eid, said in outcomes.items():
        standing = _in_force(said, sources)
        if not standing:
            continue
        source, reward, _ = standing[0]
        if policy.votes == "median":
            reward = statistics.median(r for s, r, _ in standing if s == source)
        named = next((json.loads(u) for _, _, u in standing if u is not None), None)
        rows = exposures[eid]
        if named is None and any(r[4] is not None for r in rows):
            named = {r[1]: r[4] for r in rows if r[4]}
        shown = [r for r in rows if r[5]]
        credits_ = settle(
            [Shown(r[1], r[2], r[3], policy.pending_age * 0) for r in shown],
            reward,
            named,
            rule=policy.credit,
            w_min=policy.w_min,
        )
        for row, credit in zip(shown, credits_, strict=True):
            if credit.size:
                for i, value in enumerate(_addend(credit.weight, credit.positive, credit.size)):
                    totals[row[0]][i] += value
    return {s: tuple(t) for s, t in totals.items()}


def _in_force(said: list[Any], sources: tuple[str, ...]) -> list[tuple[str, float, str | None]]:
    """Source, reward and use of the newest outcome of each key, the one that decides first."""
    newest = {(source, source_id): n for n, (source, source_id, _, _) in enumerate(said)}
    keys = sorted(
        newest,
        key=lambda key: (
            sources.index(key[0]) if key[0] in sources else len(sources),
            -newest[key],
        ),
    )
    return [
        (k[0], said[newest[k]][2], said[newest[k]][3])
        for k in keys
        if said[newest[k]][2] is not None
    ]


def _addend(weight: int, positive: int, size: int) -> tuple[int, ...]:
    squared = (2 * weight * weight + 2**32) // 2**33  # the nearest whole number, halves upwards
    return positive, weight - positive, size, squared, 1


def assert_exact(store: MemoryWorthStore) -> None:
    """Every counter and every baseline is the sum of the credits, to the last bit."""
    assert counters(store) == fold_of_credits(store)
    assert_surprises(store)
    assert rates(store) == fold_of_rates(store)
    assert strata(store) == fold_of_strata(store)
    assert populations(store) == fold_of_populations(store)
    per_episode = query(store, "SELECT eid, SUM(weight) FROM exposures WHERE size > 0 GROUP BY eid")
    assert all(total == 2**32 for _, total in per_episode)


def populations(store: MemoryWorthStore) -> dict[str, tuple[int, int]]:
    """How many memories are live, and suppressed, by namespace, as it is kept; those without any are left out."""
    rows = query(store, "SELECT namespace, live, suppressed FROM populations")
    return {namespace: (live, held) for namespace, live, held in rows if (live, held) != (0, 0)}


def fold_of_populations(store: MemoryWorthStore) -> dict[str, tuple[int, int]]:
    """The same, counted."""
    found: dict[str, tuple[int, int]] = {}
    for namespace, status in query(
        store,
        "SELECT m.namespace, e.status FROM memories m JOIN evidence e ON e.seq = m.seq "
        "WHERE m.retired_at IS NULL",
    ):
        live, held = found.get(namespace, (0, 0))
        found[namespace] = live + 1, held + (status == "suppressed")
    return found


def assert_surprises(store: MemoryWorthStore) -> None:
    """Every surprise is what the reward was above the expectation that was written down, and they add up."""
    totals = {seq: [0, 0] for (seq,) in query(store, "SELECT seq FROM evidence")}
    for seq, _, given, now, counted in openings(store):
        totals[seq][0] += counted[5]
        totals[seq][1] += counted[5] if given < now else 0
    for seq, size, surprise, expected, reward, given, epoch in query(
        store,
        "SELECT x.seq, x.size, x.surprise, x.expected, p.reward, x.epoch, e.epoch "
        "FROM exposures x JOIN episodes p ON p.eid = x.eid JOIN evidence e ON e.seq = x.seq",
    ):
        if not size:
            assert (surprise, expected) == (0, None)
            continue
        assert 0 <= expected <= 1
        assert surprise == round(size * (reward - expected))
        totals[seq][0] += surprise
        totals[seq][1] += surprise if given < epoch else 0
    stored = query(store, "SELECT seq, surprise, base_surprise FROM evidence")
    assert {seq: [s, base] for seq, s, base in stored} == totals


def rates(store: MemoryWorthStore) -> dict[tuple[str, str], tuple[int, int]]:
    """Settled episodes and sums of rewards by namespace and context, as stored."""
    rows = query(
        store,
        "SELECT namespace, context, SUM(episodes), SUM(reward) FROM rates GROUP BY namespace, context",
    )
    return {(ns, c): (int(n), int(r)) for ns, c, n, r in rows if n or r}


def fold_of_rates(store: MemoryWorthStore) -> dict[tuple[str, str], tuple[int, int]]:
    """The same from the episodes."""
    places = defaultdict(dict)
    for eid, namespace, context, reward in query(
        store,
        "SELECT x.eid, m.namespace, COALESCE(x.context, ''), p.reward FROM exposures x "
        "JOIN memories m ON m.seq = x.seq JOIN episodes p ON p.eid = x.eid "
        "WHERE x.size > 0 AND m.namespace <> ''",
    ):
        places[namespace, context][eid] = reward
        places[namespace, ""][eid] = reward
    found = {p: (len(e), sum(round(r * 2**32) for r in e.values())) for p, e in places.items()}
    rolled_up = "SELECT namespace, context, episodes, reward FROM rates WHERE shard = -1"
    for namespace, context, episodes, reward in query(store, rolled_up):
        n, r = found.get((namespace, context), (0, 0))
        found[namespace, context] = (n + episodes, r + reward)
    return found


def strata(store: MemoryWorthStore) -> dict[tuple[int, str], tuple[int, ...]]:
    """The counters of memories in their contexts, as stored."""
    names = ", ".join([*COUNTERS, "surprise"])
    rows = query(store, f"SELECT seq, context, {names} FROM strata")
    return {(seq, context): tuple(r) for seq, context, *r in rows if any(r)}


def fold_of_strata(store: MemoryWorthStore) -> dict[tuple[int, str], tuple[int, ...]]:
    """The same from the exposures."""
    totals: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * 6)
    for seq, context, _, _, counted in openings(store):
        if context and any(counted):
            totals[seq, context] = [
                t + c for t, c in zip(totals[seq, context], counted, strict=True)
            ]
    for seq, context, weight, positive, size, surprise in query(
        store,
        "SELECT seq, context, weight, positive, size, surprise FROM exposures "
        "WHERE size > 0 AND context <> ''",
    ):
        for i, value in enumerate((*_addend(weight, positive, size), surprise)):
            totals[seq, context][i] += value
    return {place: tuple(t) for place, t in totals.items()}


def live(store: MemoryWorthStore, namespace: str = "[]") -> list[Row]:
    """The live memories of a namespace."""
    names = ", ".join(f"e.{c}" for c in (*COUNTERS, "surprise"))
    rows = query(
        store,
        f"SELECT m.seq, m.id, m.vector, m.added_at, e.status, {names} FROM memories m "
        "JOIN evidence e ON e.seq = m.seq "
        "WHERE m.retired_at IS NULL AND m.namespace = :namespace ORDER BY m.seq",
        namespace=namespace,
    )
    return [
        Row(
            r[0],
            r[1],
            np.frombuffer(r[2], np.float32).astype(np.float64),
            r[3],
            r[4],
            tuple(r[5:-1]),
            r[-1],
        )
        for r in rows
    ]


def worth_of(row: Row) -> float:
    """Eq. (1) on the integers of the database."""
    total = row.counters[0] + row.counters[1]
    return row.counters[0] / total if total else 0.5


def size_of(row: Row) -> float:
    """min(n, (sum w)^2 / sum w^2) in retrievals."""
    positive, negative, size, squared, _ = row.counters
    if not squared:
        return 0.0
    return round(min(size / 2**32, (positive + negative) ** 2 / squared / 2**32), 3)


def estimate(row: Row, policy: Policy, pool: float) -> float:
    if policy.uncertain == "worth" or size_of(row) >= policy.v_min:
        return worth_of(row)
    return pool if policy.uncertain == "pool" else policy.prior


def bonus(row: Row, policy: Policy) -> float:
    """What the effect, shrunk to 0 by 64 retrievals, buys or costs."""
    if not policy.effect_weight:
        return 0.0
    assert not policy.optimism
    effect = row.surprise / (row.counters[2] + 64 * 2**32)
    return max(-policy.effect_reach, min(policy.effect_lift, policy.effect_weight * effect))


def brute(
    store: MemoryWorthStore,
    vector: np.ndarray,
    rank: tuple[float, float, float],
    *,
    now: float = 0.0,
    floor: float | None = None,
    namespace: str = "[]",
    held: bool = False,
    policy: Policy | None = None,
) -> tuple[dict[str, float], dict[str, float]]:
    """Scores and similarities of everything that may be served (or is held back), from the database alone."""
    policy = store.policy if policy is None else policy
    rows = live(store, namespace)
    hits = sum(r.counters[0] for r in rows)
    total = sum(r.counters[0] + r.counters[1] for r in rows)
    pool = hits / total if total else policy.prior
    a, b, c = rank
    scores, similarities = {}, {}
    for row in rows:
        similarity = float(row.vector @ vector)
        if (row.status == "suppressed") is not held or (floor is not None and similarity < floor):
            continue
        score = a * similarity + b * estimate(row, policy, pool) + bonus(row, policy)
        if c:
            assert policy.recency_half_life is not None
            age = now - row.added_at
            score += c * 0.5 ** (age / policy.recency_half_life.total_seconds())
        scores[row.id], similarities[row.id] = score, similarity
    return scores, similarities


def unit(vector: Iterable[float]) -> np.ndarray:
    """The vector at length 1."""
    array = np.asarray(list(vector), np.float64)
    return array / np.linalg.norm(array)


def assert_is_top(
    found: Iterable[str], scores: dict[str, float], k: int, *, among: Collection[str] | None = None
) -> None:
    """The ids found are the k best by score, in order; where scores tie within float32, either order will do."""
    found = list(found)
    allowed = set(scores if among is None else among)
    expected = sorted((scores[i] for i in allowed), reverse=True)[:k]
    assert len(set(found)) == len(found)
    assert set(found) <= allowed
    assert len(found) == len(expected)
    np.testing.assert_allclose([scores[i] for i in found], expected, atol=2e-6)
