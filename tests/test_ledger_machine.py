"""Anything that can happen, in any order, against a model of a few dicts: counters equal their fold to the last bit.

The model knows nothing of SQL and FAISS. It keeps the episodes in dicts, works credits out with the pure `settle`, and
adds everything up anew after every step. On a file, two stores are open and each step goes through either of them.
`HYPOTHESIS_PROFILE=soak` runs it for hours.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from langchain_core.documents import Document

from langchain_memoryworth import MemoryWorthStore, Policy, Shown
from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError, UnknownRunError
from langchain_memoryworth.estimators.credit import Credit, CreditName, settle
from langchain_memoryworth.records import EpisodeKey, namespace_key
from tests.fakes import (
    Clock,
    HashedWords,
    assert_is_top,
    brute,
    counters,
    dump,
    fold_of_credits,
    fold_of_populations,
    populations,
    query,
    unit,
)
from tests.ledger_server import Server, new_schema
from tests.policies import plain

UNIT = 2**32
WORDS = HashedWords(dimension=6)
NAMESPACES: list[tuple[str, ...]] = [(), ("acme",)]
IDS = ["a", "b", "c"]
TEXTS = ["red", "green"]
EPISODES = ["e0", "e1", "e2"]
SOURCES = ["user", "user", "handler", "stranger"]

policies = st.builds(
    plain,
    theta_low=st.sampled_from([0.2, 0.4, 0.5]),
    theta_high=st.sampled_from([0.5, 0.6, 0.9]),
    v_min=st.sampled_from([0, 0.5, 1, 1, 2]),
    hysteresis=st.sampled_from([0.0, 0.05, 0.3]),
    suppress=st.sampled_from([True, True, True, False]),
    exploration=st.sampled_from([0.0, 1.0]),
    credit=st.sampled_from(get_args(CreditName)),
    w_min=st.sampled_from([0.0, 0.01, 0.3]),
    rank=st.sampled_from([(1.0, 0.0, 0.0), (0.6, 0.4, 0.0), (0.3, 0.3, 0.4)]),
    uncertain=st.sampled_from(["worth", "prior", "pool"]),
    prior=st.sampled_from([0.5, 0.1]),
    recency_half_life=st.just(timedelta(days=2)),
    min_similarity=st.sampled_from([None, None, 0.0]),
    pending_age=st.sampled_from([timedelta(days=3), timedelta(days=30)]),
    sources=st.sampled_from([("user", "evaluator", "handler"), ("handler", "user"), ()]),
    votes=st.sampled_from(["newest", "newest", "median"]),
)
rewards = st.sampled_from([True, False, False, 0.25, 1 / 3])
namespaces = st.sampled_from(NAMESPACES)
subsets = st.lists(st.sampled_from(IDS), unique=True, max_size=4)
graded = st.dictionaries(st.sampled_from(IDS), st.sampled_from([0, 1, 2, 4]), max_size=4)
either = st.integers(0, 1)


def shares_in(used: Any) -> dict[str, float]:
    """Each memory used, and its share of the one used most."""
    weights = used if isinstance(used, dict) else dict.fromkeys(used, 1)
    return {i: w / max(weights.values()) for i, w in weights.items() if w}


@dataclass
class Version:
    """One text under one id."""

    seq: int
    namespace: tuple[str, ...]
    id: str
    text: str
    added_at: float
    live: bool = True
    status: str = "active"
    epoch: int = 0


@dataclass
class Exposure:
    rank: int
    similarity: float | None
    at: float
    shown: bool = True
    used: float | None = None
    credit: Credit = field(default_factory=Credit)
    epoch: int | None = None


@dataclass
class Episode:
    started_at: float = 0.0
    exposures: dict[int, Exposure] = field(default_factory=dict)
    outcomes: dict[tuple[str, str], tuple[float, Any]] = field(default_factory=dict)
    reward: float | None = None


class Model:
    """What the store should hold."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.versions: list[Version] = []
        self.episodes: dict[str, Episode] = {}

    # -- memories

    def live(self, namespace: tuple[str, ...], id_: str) -> Version | None:
        return next(
            (v for v in self.versions if v.live and (v.namespace, v.id) == (namespace, id_)), None
        )

    def add(self, namespace: tuple[str, ...], batch: dict[str, str], now: float) -> None:
        for id_, text in batch.items():
            current = self.live(namespace, id_)
            if current is not None:
                current.live = False
            known = [
                v for v in self.versions if (v.namespace, v.id, v.text) == (namespace, id_, text)
            ]
            if known:
                known[0].live = True
            else:
                seq = len(self.versions) + 1
                self.versions.append(Version(seq, namespace, id_, text, now))

    # -- settlement

    def settle(self, name: str) -> None:
        episode = self.episodes[name]
        place = {s: i for i, s in enumerate(self.policy.sources)}
        said = list(episode.outcomes.items())
        order = sorted(range(len(said)), key=lambda i: (place.get(said[i][0][0], len(place)), -i))
        ranked = [said[i][1] for i in order]
        episode.reward = ranked[0][0] if ranked else None
        if ranked and self.policy.votes == "median":
            first = said[order[0]][0][0]
            episode.reward = statistics.median(
                reward for (source, _), (reward, _) in said if source == first
            )
        used: Any = next((u for _, u in ranked if u is not None), None)
        rows = sorted(episode.exposures.items(), key=lambda item: (item[1].rank, item[0]))
        if used is None and any(x.used is not None for _, x in rows):
            used = {self.versions[s - 1].id: x.used for s, x in rows if x.used}
        shown = [(s, x) for s, x in rows if x.shown]
        shares = settle(
            [
                Shown(
                    self.versions[s - 1].id,
                    x.rank,
                    x.similarity,
                    timedelta(seconds=x.at - self.versions[s - 1].added_at),
                )
                for s, x in shown
            ],
            episode.reward,
            used,
            rule=self.policy.credit,
            w_min=self.policy.w_min,
            half_life=self.policy.recency_half_life,
        )
        given = {s: c for (s, _), c in zip(shown, shares, strict=True)}
        changed = []
        for seq, x in episode.exposures.items():
            new = given.get(seq, Credit())
            if new != x.credit:
                x.credit = new
                x.epoch = self.versions[seq - 1].epoch if x.epoch is None else x.epoch
                changed.append(seq)
        for seq in changed:
            self.judge(self.versions[seq - 1])

    def settle_if_settled(self, name: str) -> None:
        if self.episodes[name].reward is not None:
            self.settle(name)

    # -- the fold

    def total(self, version: Version, *, before_restore: bool = False) -> tuple[int, ...]:
        sums = [0] * 5
        for episode in self.episodes.values():
            x = episode.exposures.get(version.seq)
            if x is None or not x.credit.size:
                continue
            if before_restore and not (x.epoch is not None and x.epoch < version.epoch):
                continue
            w = x.credit.weight
            squared = (2 * w * w + UNIT) // (2 * UNIT)
            for i, value in enumerate(
                (x.credit.positive, w - x.credit.positive, x.credit.size, squared, 1)
            ):
                sums[i] += value
        return tuple(sums)

    def judge(self, version: Version) -> None:
        """Definition 3.2 with hysteresis, on what came after the last restore."""
        if version.status == "pinned":
            return
        p = self.policy
        old = self.total(version, before_restore=True)
        positive, negative, size, squared, _ = (
            a - b for a, b in zip(self.total(version), old, strict=True)
        )
        weight = positive + negative
        n = round(min(size / UNIT, weight**2 / squared / UNIT), 3) if squared else 0.0
        worth = positive / weight if weight else 0.5
        if not p.suppress or n < p.v_min:
            version.status = "active"
        elif worth < p.theta_low - 5e-7:
            version.status = "suppressed"
        elif worth > p.theta_high + 5e-7 or worth >= min(p.theta_low + p.hysteresis, 1) - 5e-7:
            version.status = "active"

    def judge_all(self) -> None:
        for version in self.versions:
            if version.status != "active" or self.total(version)[2]:
                self.judge(version)


class Machine(RuleBasedStateMachine):
    """Rules for all databases."""

    on_file = False
    place: Callable[[], str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.folder = tempfile.TemporaryDirectory() if self.on_file else None
        self.url = f"sqlite:///{Path(self.folder.name) / 'm.db'}" if self.folder else "sqlite://"
        if self.place is not None:
            self.url = self.place()
        self.stores: list[MemoryWorthStore] = []

    def open(self, policy: Policy | None = None) -> MemoryWorthStore:
        return MemoryWorthStore(self.url, WORDS, clock=self.clock, policy=policy)

    @initialize(policy=policies)
    def begin(self, policy: Policy) -> None:
        self.stores = [self.open(policy)]
        if self.url != "sqlite://":
            self.stores.append(self.open())
        self.model = Model(policy)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        if self.folder:
            self.folder.cleanup()

    def store(self, which: int) -> MemoryWorthStore:
        return self.stores[which % len(self.stores)]

    # -- memories

    @rule(
        which=either,
        namespace=namespaces,
        batch=st.lists(
            st.tuples(st.sampled_from(IDS), st.sampled_from(TEXTS)), min_size=1, max_size=5
        ),
    )
    def add(self, which: int, namespace: tuple[str, ...], batch: list[tuple[str, str]]) -> None:
        self.clock.forward(seconds=3_600)
        ids, texts = [i for i, _ in batch], [t for _, t in batch]
        self.store(which).add_texts(texts, ids=ids, namespace=namespace)
        self.model.add(namespace, dict(batch), self.clock.now)

    @rule(which=either, namespace=namespaces, ids=subsets | subsets | st.none())
    def delete(self, which: int, namespace: tuple[str, ...], ids: list[str] | None) -> None:
        self.store(which).delete(ids, namespace=namespace)
        for v in self.model.versions:
            if v.namespace == namespace and (ids is None or v.id in ids):
                v.live = False

    # -- retrieval

    @rule(
        which=either,
        namespace=namespaces,
        name=st.sampled_from(EPISODES),
        text=st.sampled_from([*TEXTS, "red green", "other"]),
        k=st.integers(1, 5),
    )
    def retrieve(
        self, which: int, namespace: tuple[str, ...], name: str, text: str, k: int
    ) -> None:
        store = self.store(which)
        # Before: in an episode that has its outcome, being retrieved may suppress a memory at once.
        expected = self.expected(namespace, text)
        with store.episode(name):
            hits = store.governor.retrieval.recall(text, k, namespace=namespace)
        self.check_hits(expected, k, hits, explored=self.model.policy.exploration == 1.0)
        if not hits:
            return
        episode = self.model.episodes.setdefault(name, Episode(self.clock.now))
        for rank, hit in enumerate(hits):
            version = self.model.live(namespace, hit.id)
            assert version is not None
            assert (version.seq, version.text) == (hit.seq, hit.text)
            self.expose(episode, version.seq, rank, hit.similarity)
        self.model.settle_if_settled(name)

    def expose(self, episode: Episode, seq: int, rank: int, similarity: float | None) -> None:
        x = episode.exposures.setdefault(seq, Exposure(rank, similarity, self.clock.now))
        x.shown = True
        if similarity is not None and (x.similarity is None or similarity > x.similarity):
            x.similarity = similarity

    def expected(self, namespace: tuple[str, ...], text: str) -> tuple[dict[str, float], ...]:
        """Scores and similarities of what may be served, and of what is held back."""
        policy = self.model.policy
        options: dict[str, Any] = {
            "now": self.clock.now,
            "floor": policy.min_similarity,
            "namespace": namespace_key(namespace),
            "policy": policy,
        }
        vector = unit(WORDS.embed_query(text))
        served = brute(self.stores[0], vector, policy.rank, **options)
        return *served, *brute(self.stores[0], vector, policy.rank, **options, held=True)

    def check_hits(
        self, expected: tuple[dict[str, float], ...], k: int, hits: list[Any], *, explored: bool
    ) -> None:
        scores, similarities, held, of_held = expected
        served = [h for h in hits if h.arm == "served"]
        probation = [h for h in hits if h.arm == "probation"]
        room = k - len(probation)
        assert_is_top([h.id for h in served], scores, room)
        everything = {**similarities, **of_held}
        for h in hits:
            assert abs(h.similarity - everything[h.id]) < 2e-6
        best_held = max(held.values(), default=-np.inf)
        last = sorted(scores.values(), reverse=True)[:k]
        line = last[-1] if len(last) == k else -np.inf
        if probation:
            assert explored
            assert hits[-1] is probation[0]
            assert held[probation[0].id] >= max(best_held, line) - 2e-6
        elif explored:
            assert best_held <= line + 2e-6

    @rule(
        which=either,
        name=st.sampled_from(EPISODES),
        ids=st.lists(st.sampled_from([*IDS, "ghost"]), max_size=4, unique=True),
    )
    def documents_of_another_retriever(self, which: int, name: str, ids: list[str]) -> None:
        key = EpisodeKey(name, aliases=(f"alias of {name}",))
        self.store(which).governor.journal.expose_documents(key, [Document("", id=i) for i in ids])
        # What the run retrieved itself says which version is meant; else the own namespace, or the only one.
        episode = self.model.episodes.get(name, Episode())
        rows = sorted(episode.exposures.items(), key=lambda item: (item[1].rank, item[0]))
        retrieved = {self.model.versions[seq - 1].id: seq for seq, _ in rows}
        found = {}
        for rank, id_ in enumerate(ids):
            places = [v for n in NAMESPACES if (v := self.model.live(n, id_)) is not None]
            own = [v for v in places if v.namespace == ()]
            if id_ in retrieved:
                found[retrieved[id_]] = rank
            elif own or len(places) == 1:
                found[(own or places)[0].seq] = rank
        if found:
            episode = self.model.episodes.setdefault(name, Episode(self.clock.now))
            for seq, rank in found.items():
                self.expose(episode, seq, rank, None)
            self.model.settle_if_settled(name)

    @rule(which=either, name=st.sampled_from(EPISODES), ids=subsets)
    def hide(self, which: int, name: str, ids: list[str]) -> None:
        count = self.store(which).governor.journal.hide(name, ids)
        episode = self.model.episodes.get(name, Episode())
        dropped = [
            x
            for s, x in episode.exposures.items()
            if x.shown and self.model.versions[s - 1].id in ids
        ]
        assert count == len(dropped)
        for x in dropped:
            x.shown = False
        if dropped:
            self.model.settle_if_settled(name)

    # -- outcomes

    @rule(which=either, name=st.sampled_from(EPISODES), ids=subsets | graded)
    def use(self, which: int, name: str, ids: Any) -> None:
        episode = self.model.episodes.get(name)
        shares = shares_in(ids)
        if episode is None or not set(shares) <= self.retrieved(episode):
            self.refused(which, lambda s: s.governor.journal.mark_used(name, ids), episode)
            return
        self.store(which).governor.journal.mark_used(name, ids)
        for seq, x in episode.exposures.items():
            x.used = max(x.used or 0.0, shares.get(self.model.versions[seq - 1].id, 0.0))
        self.model.settle_if_settled(name)

    @rule(
        which=either,
        name=st.sampled_from(EPISODES),
        source=st.sampled_from(SOURCES),
        source_id=st.sampled_from(["", "", "x", "y"]),
        reward=rewards,
        used=st.none() | st.none() | subsets | graded,
    )
    def record(
        self,
        which: int,
        name: str,
        source: str,
        source_id: str,
        reward: float,
        used: Any,
    ) -> None:
        episode = self.model.episodes.get(name)

        def call(store: MemoryWorthStore) -> bool:
            return store.record_outcome(name, reward, source=source, source_id=source_id, used=used)

        shares = shares_in(used or ())
        if episode is None or not set(shares) <= self.retrieved(episode):
            self.refused(which, call, episode)
            return
        said = (float(reward), None if used is None else shares)
        key = (source, source_id)
        new = episode.outcomes.get(key) != said
        assert call(self.store(which)) is new
        assert call(self.store(which + 1)) is False
        if new:
            episode.outcomes.pop(key, None)
            episode.outcomes[key] = said
            self.model.settle(name)

    def retrieved(self, episode: Episode) -> set[str]:
        return {self.model.versions[s - 1].id for s in episode.exposures}

    def refused(self, which: int, call: Any, episode: Episode | None) -> None:
        before = dump(self.stores[0])
        with pytest.raises(UnknownRunError if episode is None else InvalidInputError):
            call(self.store(which))
        assert dump(self.stores[0]) == before

    @rule(
        which=either,
        name=st.sampled_from(EPISODES),
        source=st.sampled_from(SOURCES),
        source_id=st.sampled_from(["", "", "x"]),
    )
    def withdraw(self, which: int, name: str, source: str, source_id: str) -> None:
        episode = self.model.episodes.get(name)

        def call(store: MemoryWorthStore) -> bool:
            return store.withdraw_outcome(name, source=source, source_id=source_id)

        if episode is None:
            self.refused(which, call, episode)
            return
        known = (source, source_id) in episode.outcomes
        assert call(self.store(which)) is known
        if known:
            del episode.outcomes[source, source_id]
            self.model.settle(name)

    # -- decisions

    @rule(
        which=either,
        namespace=namespaces,
        ids=st.lists(st.sampled_from(IDS), min_size=1, max_size=2, unique=True),
        how=st.sampled_from(["restore", "restore", "pin", "unpin"]),
    )
    def decide(self, which: int, namespace: tuple[str, ...], ids: list[str], how: str) -> None:
        versions = [self.model.live(namespace, i) for i in ids]
        decide = getattr(self.store(which), how)
        if None in versions:
            before = dump(self.stores[0])
            with pytest.raises(MemoryNotFoundError):
                decide(ids, namespace=namespace)
            assert dump(self.stores[0]) == before
            return
        decide(ids, namespace=namespace)
        for v in versions:
            assert v is not None
            if how == "pin":
                v.status = "pinned"
            elif how == "restore":
                v.epoch += 1
                v.status = "pinned" if v.status == "pinned" else "active"
            elif v.status == "pinned":
                v.status = "active"
                self.model.judge(v)

    # Hypothesis leaves rules out at random, so that few examples would have memories, retrievals and outcomes. These
    # rules bring along what they need.

    @rule(
        which=either,
        namespace=namespaces,
        name=st.sampled_from(EPISODES),
        text=st.sampled_from(TEXTS),
        k=st.integers(1, 3),
        reward=rewards,
        decision=st.sampled_from([None, None, "restore", "pin", "unpin"]),
    )
    def run(
        self,
        which: int,
        namespace: tuple[str, ...],
        name: str,
        text: str,
        k: int,
        reward: float,
        decision: str | None,
    ) -> None:
        if not any(v.live and v.namespace == namespace for v in self.model.versions):
            self.add(which=which, namespace=namespace, batch=[(IDS[0], text), (IDS[1], text)])
        self.retrieve(which=which, namespace=namespace, name=name, text=text, k=k)
        if name in self.model.episodes:
            self.record(
                which=which + 1, name=name, source="user", source_id="", reward=reward, used=None
            )
        judged = [v for v in self.judged() if v.namespace == namespace]
        if decision is not None and judged:
            self.decide(which=which, namespace=namespace, ids=[judged[-1].id], how=decision)

    def said(self) -> list[tuple[str, tuple[str, str]]]:
        return [(n, key) for n, e in self.model.episodes.items() for key in e.outcomes]

    @precondition(lambda self: self.said())
    @rule(which=either, pick=st.integers(0, 99), reward=rewards | st.none())
    def correct(self, which: int, pick: int, reward: float | None) -> None:
        said = self.said()
        name, (source, source_id) = said[pick % len(said)]
        if reward is None:
            self.withdraw(which=which, name=name, source=source, source_id=source_id)
        else:
            _, used = self.model.episodes[name].outcomes[source, source_id]
            listed = None if used is None else list(used)
            self.record(
                which=which,
                name=name,
                source=source,
                source_id=source_id,
                reward=reward,
                used=listed,
            )

    def judged(self) -> list[Version]:
        return [v for v in self.model.versions if v.live and self.model.total(v)[4]]

    @precondition(lambda self: self.judged())
    @rule(
        which=either,
        pick=st.integers(0, 99),
        how=st.sampled_from(["restore", "restore", "pin", "unpin"]),
    )
    def decide_on_evidence(self, which: int, pick: int, how: str) -> None:
        judged = self.judged()
        version = judged[pick % len(judged)]
        self.decide(which=which, namespace=version.namespace, ids=[version.id], how=how)

    @rule(policy=policies)
    def change_policy(self, policy: Policy) -> None:
        if self.url != "sqlite://":
            self.stores.append(self.open(policy))
            self.stores.pop(0).close()
        else:  # nobody else can open it
            self.stores[0].governor.settings.adopt(policy, self.clock.now)
        if policy != self.model.policy:
            self.model.policy = policy
            self.model.judge_all()

    @precondition(lambda self: self.on_file)
    @rule(which=either)
    def reopen(self, which: int) -> None:
        self.stores[which].close()
        self.stores[which] = self.open()

    @rule(hours=st.integers(1, 60))
    def time_passes(self, hours: int) -> None:
        self.clock.forward(seconds=3_600 * hours)

    # -- what always holds

    @invariant()
    def counters_equal_their_fold(self) -> None:
        if not self.stores:
            return
        model = self.model
        expected = {
            v.seq: (model.total(v), model.total(v, before_restore=True)) for v in model.versions
        }
        stored = counters(self.stores[0])
        assert stored == expected
        assert stored == fold_of_credits(self.stores[0])

    @invariant()
    def everything_is_there_once(self) -> None:
        if not self.stores:
            return
        store, model = self.stores[0], self.model
        versions = query(
            store,
            "SELECT m.seq, m.namespace, m.id, m.text, m.retired_at IS NULL, e.status, e.epoch "
            "FROM memories m JOIN evidence e ON e.seq = m.seq ORDER BY m.seq",
        )
        assert versions == [
            (v.seq, namespace_key(v.namespace), v.id, v.text, int(v.live), v.status, v.epoch)
            for v in model.versions
        ]
        assert populations(store) == fold_of_populations(store)
        exposures = query(
            store,
            "SELECT p.id, x.seq, x.rank, x.shown, x.used, x.weight, x.positive, x.size, x.epoch "
            "FROM exposures x JOIN episodes p ON p.eid = x.eid ORDER BY p.id, x.seq",
        )
        assert exposures == [
            (
                name,
                seq,
                x.rank,
                int(x.shown),
                None if x.used is None else int(10_000 * x.used),
                x.credit.weight,
                x.credit.positive,
                x.credit.size,
                x.epoch,
            )
            for name, episode in sorted(model.episodes.items())
            for seq, x in sorted(episode.exposures.items())
        ]
        rewards = dict(query(store, "SELECT id, reward FROM episodes"))
        assert rewards == {n: e.reward for n, e in model.episodes.items()}

    @invariant()
    def every_store_serves_what_the_database_says(self) -> None:
        for store in self.stores:
            for namespace in NAMESPACES:
                hits = store.governor.retrieval.recall(
                    "red green", 3, namespace=namespace, track=False
                )
                assert store.policy == self.model.policy
                self.check_hits(self.expected(namespace, "red green"), 3, hits, explored=False)
                held = {m.id for m in store.suppressed(namespace=namespace)}
                assert held == {
                    v.id
                    for v in self.model.versions
                    if v.live and v.namespace == namespace and v.status == "suppressed"
                }
            since = self.clock.now - self.model.policy.pending_age.total_seconds()
            assert {e.id for e in store.pending()} == {
                n
                for n, e in self.model.episodes.items()
                if e.reward is None and e.started_at >= since
            }


class OnFile(Machine):
    on_file = True


if os.environ.get("HYPOTHESIS_PROFILE", "default") == "default":
    budget = settings(max_examples=50, stateful_step_count=40)
else:
    budget = settings()

TestInMemory = Machine.TestCase
TestInMemory.settings = budget
TestOnFile = OnFile.TestCase
TestOnFile.settings = budget


def test_on_postgres(ledger: Server) -> None:
    class OnPostgres(Machine):
        place = staticmethod(lambda: new_schema(ledger))

    # Each step asks the database some forty things, which here are forty round trips.
    fewer = settings(budget, max_examples=max(10, budget.max_examples // 5))
    run_state_machine_as_test(OnPostgres, settings=fewer)
