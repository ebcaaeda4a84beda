"""The values that travel between the layers, and the words of the package. No behaviour of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_memoryworth.estimators.evidence import Evidence, Verdict
from langchain_memoryworth.estimators.use import Use

if TYPE_CHECKING:  # numpy is heavy for the help of the command line
    from langchain_memoryworth.estimators.credible import Belief

Namespace = tuple[str, ...]
"""Segments, compared whole; `()` is the default one."""


LOOK_BACK = 50_000
"""The latest episodes that reports, reviews and pairs are counted over: it is to take seconds, not minutes."""


@lru_cache(maxsize=1024)
def namespace_key(namespace: Namespace) -> str:
    """A namespace as the database compares it: by whole segments, `%` and `_` being plain characters."""
    return json.dumps(list(namespace), ensure_ascii=False)


class Status(StrEnum):
    """What governance does with a memory."""

    ACTIVE = "active"
    SUPPRESSED = "suppressed"
    WITHHELD = "withheld"
    PINNED = "pinned"
    QUARANTINED = "quarantined"
    DEPRECATED = "deprecated"
    ERASED = "erased"


class Arm(StrEnum):
    """Why a memory was in front of the model, or was left out of the prompt: by a draw, or by its status."""

    SERVED = "served"
    PROBATION = "probation"
    HELD_OUT = "held_out"
    HELD_BACK = "held_back"

    @property
    def reaches_model(self) -> bool:
        """Whether a memory of this arm is in the prompt."""
        return self in (Arm.SERVED, Arm.PROBATION)


@dataclass(frozen=True, slots=True)
class EpisodeKey:
    """What names an episode.

    Attributes:
        id: Its id; the root run's unless the user gave one.
        aliases: Other ids by which `record_outcome` finds it.
        thread_id: The conversation that it belongs to.
        context: What kind of task asks now, such as a topic; empty if that is not known. Kept with what is retrieved.
    """

    id: str
    aliases: tuple[str, ...] = ()
    thread_id: str | None = None
    context: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """One stored memory with its evidence and standing."""

    id: str
    text: str
    metadata: Mapping[str, Any]
    namespace: Namespace
    added_at: datetime
    evidence: Evidence
    verdict: Verdict
    status: Status


class Hit(NamedTuple):
    """One memory found by a search.

    Attributes:
        id: Id of the memory, unique in its namespace.
        seq: Number of this version of the text in the database.
        similarity: Cosine in [-1, 1], higher is nearer, whatever the ranking was.
        score: What the ranking sorted by, higher first.
        arm: Served by rank, or on probation by exploration.
        propensity: Probability of having been chosen this way, in (0, 1].
    """

    id: str
    seq: int
    text: str
    metadata: Mapping[str, Any]
    similarity: float
    score: float
    arm: Arm = Arm.SERVED
    propensity: float = 1.0


class HeldBack(NamedTuple):
    """A suppressed memory that a query would otherwise have got."""

    id: str
    text: str
    similarity: float
    score: float
    evidence: Evidence
    reason: str


@dataclass(frozen=True, slots=True)
class SearchExplanation:
    """What a query gets, and what was held back from it.

    Attributes:
        served: The hits, best first.
        held_back: Suppressed memories that rank among the first k, best first.
    """

    served: tuple[Hit, ...]
    held_back: tuple[HeldBack, ...]

    def __str__(self) -> str:
        lines = [f"{len(self.served)} served, {len(self.held_back)} held back"]
        lines += [f"  {h.score:+.3f}  {h.text[:70]}" for h in self.served]
        lines += [f"  {h.score:+.3f}  {h.text[:70]}  ({h.reason})" for h in self.held_back]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened in an episode.

    Attributes:
        reward: In [0, 1]; 1 is success, 0 is failure, between is partial success.
        used: Ids of the memories that the answer was made from, if known, or how much of it each one made, on any scale;
            `()` means that none was.
    """

    reward: float
    used: Use | None = None


class OutcomeKey(NamedTuple):
    """Who says what of an episode: one outcome of a key is in force, the newest."""

    source: str
    source_id: str
    metric: str


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """One outcome as the ledger keeps it; the newest of a (source, source_id, metric) is in force.

    Attributes:
        metric: What was measured; empty means the outcome as such.
    """

    source: str
    source_id: str
    reward: float | None
    used: Use | None
    at: datetime
    metric: str = ""

    @property
    def key(self) -> OutcomeKey:
        """What a later outcome replaces it by."""
        return OutcomeKey(self.source, self.source_id, self.metric)


@dataclass(frozen=True, slots=True)
class ExposureRecord:
    """One memory in one episode, with the credit that it got.

    Attributes:
        weight: Share of the episode's outcome in [0, 1]; 0 while there is none.
        positive: The part of the weight that counted as success.
        used: How much of it the run itself said to have used, as a share of the memory used most; None if it did not say.
    """

    memory_id: str
    seq: int
    rank: int
    similarity: float | None
    arm: Arm
    propensity: float
    shown: bool
    weight: float
    positive: float
    used: float | None = None


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One run as the ledger keeps it.

    Attributes:
        reward: The reward in force, in [0, 1]; None while unknown.
        path: Names of the tools that it called, in order, see `tool_paths`; empty if none is known of.
    """

    id: str
    started_at: datetime
    thread_id: str | None
    reward: float | None
    exposures: tuple[ExposureRecord, ...] = ()
    outcomes: tuple[OutcomeRecord, ...] = ()
    path: tuple[str, ...] = ()


class Imported(NamedTuple):
    """What an import wrote, or with `dry_run` would write.

    Attributes:
        memories: New texts.
        known_memories: Texts that were there already.
        episodes: New runs.
        known_episodes: Runs that were there already; nothing of them is counted twice.
        outcomes: Outcomes of the new runs.
        skipped: What could not be used, and why: one line each.
    """

    memories: int
    known_memories: int
    episodes: int
    known_episodes: int
    outcomes: int
    dry_run: bool
    skipped: tuple[str, ...] = ()


class Compacted(NamedTuple):
    """What `compact` did.

    Attributes:
        episodes: Runs whose credit is in the opening balances now.
        changes: Changes that no process has to follow any more.
    """

    episodes: int
    changes: int


class Erased(NamedTuple):
    """What an erasure did.

    Attributes:
        memories: Texts that were erased, old versions too.
        scrubbed: Whether the database file was written anew, so that no page or WAL of it holds them any more. If False,
            nothing returns them, but the bytes are there: others kept the file busy, and `scrub()` later removes them; or it is
            on Postgres, where the owner of the tables removes them by `VACUUM FULL`.
    """

    memories: int
    scrubbed: bool


LOUD = 0.5
"""Share of the settled runs above which one voter decides too much."""


class SourceShare(NamedTuple):
    """How much one source of outcomes decides.

    Attributes:
        runs: Settled runs that go by its word.
        share: Of all that have an outcome, in [0, 1].
        voters: How many distinct source_ids speak in them.
        loudest: The source_id that decides most of them.
        loudest_share: Share of that one in all settled runs, in [0, 1].
    """

    source: str
    runs: int
    share: float
    voters: int
    loudest: str
    loudest_share: float

    @property
    def is_loud(self) -> bool:
        """Whether one voter, and no system without voters, decides most runs, and others speak too."""
        alone = self.voters == 1 and self.share == 1
        return bool(self.loudest) and self.loudest_share > LOUD and not alone


class WorthPoint(NamedTuple):
    """The worth of a memory after one more settled run.

    Attributes:
        at: When the run was settled; a corrected outcome counts from its correction.
        weight: The memory's share of the outcome, in [0, 1].
        evidence: Its counters with this run in them.
    """

    at: datetime
    episode_id: str
    reward: float
    weight: float
    evidence: Evidence

    @property
    def worth(self) -> float:
        """Memory Worth after this run, in [0, 1]."""
        return self.evidence.worth


def evidence_of(document: str | None) -> Evidence:
    """Counters as the record of actions has them; none if there are none."""
    return Evidence() if document is None else Evidence(**json.loads(document))


class MemoryEffect(NamedTuple):
    """What a memory adds to success beside its companions and in its contexts.

    Attributes:
        effect: By how much showing it moves the success rate, in [-1, 1].
        deviation: Posterior standard deviation.
        harm: P(effect < 0), in [0, 1].
        retrievals: Settled episodes that showed it.
    """

    memory_id: str
    effect: float
    deviation: float
    harm: float
    retrievals: int

    def __str__(self) -> str:
        return (
            f"{self.memory_id}: effect {self.effect:+.3f} (+-{self.deviation:.3f}) over "
            f"{self.retrievals} retrievals, harmful with probability {self.harm:.2f}"
        )


class ToolPath(NamedTuple):
    """How the runs went that called the same tools in the same order. Why they did is another question.

    Attributes:
        path: Names in order, each once where it was called several times in a row; empty for the runs that called none, or
            of which nobody saw it.
        episodes: Runs that showed a memory and took it.
        settled: Those with an outcome.
        success: What they let one believe of its success rate, from a flat prior, with 90 % bounds.
        memories: Ids of up to three memories that are shown there more often than chance puts them there (by three
            standard deviations), the most surprising first.
    """

    path: tuple[str, ...]
    episodes: int
    settled: int
    success: Belief
    memories: tuple[str, ...]

    @property
    def name(self) -> str:
        """The path in one line."""
        return " > ".join(self.path) or "(no tool)"

    def __str__(self) -> str:
        typical = f", typically with {', '.join(self.memories)}" if self.memories else ""
        return f"{self.name}: {self.success} in {self.settled} of {self.episodes} runs{typical}"


class LearntContext(NamedTuple):
    """A kind of task that was learnt from what is retrieved together.

    Attributes:
        context: Its name, the same over later fits.
        share: Of the episodes that it was learnt from, in [0, 1].
    """

    context: str
    share: float


class RecentWorth(NamedTuple):
    """Worth of the recent past: of counts that forget.

    Attributes:
        worth: Success rate in [0, 1], 0.5 with nothing left.
        size: Retrievals that are left of all.
    """

    worth: float
    size: float


class PoolPrior(NamedTuple):
    """What a namespace says of a memory before its own outcomes do: a Beta distribution of success rates.

    Attributes:
        alpha: Successes that a memory begins with, above 0.
        beta: Failures likewise; both 1 where the pool says nothing.
        memories: How many with at least one retrieval it was learnt from.
    """

    alpha: float
    beta: float
    memories: int

    @property
    def mean(self) -> float:
        """The success rate that is assumed of a new memory, in (0, 1)."""
        return self.alpha / (self.alpha + self.beta)


class ContextWorth(NamedTuple):
    """The worth of a memory in one context, MW(m|c) (the paper's section 6).

    Attributes:
        context: The kind of task; empty for all of them together.
        evidence: The counters of the episodes in it.
        base_rate: Share of success of the context's episodes, whatever they showed, shrunk to that of the namespace.
    """

    context: str
    evidence: Evidence
    base_rate: float

    @property
    def worth(self) -> float:
        """Memory Worth in the context, in [0, 1]."""
        return self.evidence.worth

    @property
    def advantage(self) -> float:
        """Worth above the base rate, in [-1, 1]: what hard and easy contexts have in common is taken out."""
        return self.evidence.worth - self.base_rate

    @property
    def log_odds(self) -> float:
        """The same in log-odds, which stay as they are where failures are reported more often than successes."""
        from langchain_memoryworth.estimators.noise import log_odds_above

        e = self.evidence
        return float(log_odds_above(e.worth, max(0.0, e.effective_size), self.base_rate))

    def __str__(self) -> str:
        return (
            f"{self.context or 'all'}: worth {self.worth:.2f}, base rate {self.base_rate:.2f}, "
            f"{self.evidence.effective_size:g} retrievals"
        )


@dataclass(frozen=True, slots=True)
class MemoryLift:
    """What showing a memory does to success, as far as draws have told: cause, where worth is association.

    Attributes:
        value: Success rate where it was shown minus where it was held out, in [-1, 1]; None if not identifiable.
        low: Lower bound of the interval, -1 if not identifiable.
        high: Upper bound, 1 if not identifiable.
        deviation: Standard error; None if not identifiable.
        effective_size: Episodes of a trial half and half that would say as much.
        shown: Settled episodes of the trial that showed it.
        held_out: Settled episodes that did without.
        worth: Memory Worth, for the comparison.
    """

    memory_id: str
    value: float | None
    low: float
    high: float
    deviation: float | None
    effective_size: float
    shown: int
    held_out: int
    worth: float

    def __str__(self) -> str:
        arms = f"shown in {self.shown} episodes, held out in {self.held_out}"
        if self.value is None:
            return f"{self.memory_id}: worth {self.worth:.2f}, lift not identifiable ({arms})"
        bounds = f"{self.low:+.3f} to {self.high:+.3f}"
        return (
            f"{self.memory_id}: worth {self.worth:.2f}, lift {self.value:+.3f} ({bounds}; {arms})"
        )


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """How long a trial of one memory takes, until a lift of the size in question shows.

    Attributes:
        rate: Share of its retrievals that do without it.
        base_rate: Success rate of the episodes of its namespace, as the plan takes it.
        needed: Retrievals that a trial at this rate takes from its beginning.
        drawn: Settled episodes that drew about the memory until now, at whatever rate.
        remaining: Retrievals that are still to come, at this rate; 0 if those drawn about are enough.
        share: Of the latest settled episodes, how many retrieved it, in [0, 1].
        episodes: Settled episodes in which as many retrievals may be expected; None if it was never retrieved.
        time: How long these take, at the pace of the latest ones; None if that is not known.

    Examples:
        >>> print(TrialPlan("key", 0.5, 0.5, 785, 85, 700, 0.2, 3_500, timedelta(days=14)))
        key: held out at 0.5, 785 retrievals needed, 85 drawn about, 700 to come: 3500 episodes, 14.0 days
    """

    memory_id: str
    rate: float
    base_rate: float
    needed: int
    drawn: int
    remaining: int
    share: float
    episodes: int | None
    time: timedelta | None

    def __str__(self) -> str:
        words = (
            f"{self.memory_id}: held out at {self.rate:g}, {self.needed} retrievals needed, "
            f"{self.drawn} drawn about, {self.remaining} to come"
        )
        if self.episodes is None:
            return f"{words}; it was never retrieved in a settled episode"
        days = "" if self.time is None else f", {self.time / timedelta(days=1):.1f} days"
        return f"{words}: {self.episodes} episodes{days}"


class Advantage(NamedTuple):
    """The worth of a memory above the base rates of its contexts, pooled by evidence.

    Attributes:
        value: In [-1, 1]; 0 for a memory like its contexts, or without evidence.
        retrievals: Settled episodes that showed it.
    """

    memory_id: str
    value: float
    retrievals: int


class CalibratedWorth(NamedTuple):
    """What a memory's worth says of what it does, as the trials of all memories have told worth to be read.

    Attributes:
        value: The lift that worth and exposure foretell, in [-1, 1] but for a line that goes beyond.
        above: Its worth above the base rates of its contexts, pooled by evidence, in [-1, 1].
        retrievals: Settled episodes that showed it.
    """

    memory_id: str
    value: float
    above: float
    retrievals: int


@dataclass(frozen=True, slots=True)
class Action:
    """One decision about a memory, or a change of the policy: who, when, why, and the evidence at that moment.

    Attributes:
        number: By which it can be taken back.
        memory_id: None where it is about no memory.
        before: The status before; None if the action changed none.
        after: The status that it led to.
        undoes: Number of the action that this one takes back.
    """

    number: int
    kind: str
    actor: str
    reason: str
    at: datetime
    memory_id: str | None = None
    evidence: Evidence | None = None
    before: Status | None = None
    after: Status | None = None
    undoes: int | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Whether recording works, and what was lost.

    Attributes:
        memories: Live memories in the store, all namespaces.
        suppressed: Those that the policy holds back at present.
        withheld: Those that a person holds back.
        pinned: Those that can never be held back.
        quarantined: Those of untrusted sources that wait for outcomes.
        deprecated: Those that a person took out of service.
        episodes: Runs in the ledger.
        pending: Runs without an outcome, younger than the policy's `pending_age`.
        expired: Runs without an outcome that are older.
        unattributed: Retrievals since this store was opened that belonged to no known run.
        reused: Runs since then whose id an earlier run had; their feedback goes to the newest.
        abandoned: Runs since then that never ended and were given up to bound the memory taken.
        loud: Voters who decided more than half of the newest 1,000 runs while others spoke too: share by
            `source/source_id`.
        waited: Events of runs since then that waited, without blocking their event loop, until the database had caught up.
        exact_searches: Searches of `index="hnsw"` since it was loaded that looked at every memory, as too many around the
            query are held back.
        failures: What could not be recorded since this store was opened, by the name of the step.
        last_failure: The newest of them, as text.
        assumptions: What the data say of the paper's A1 to A6, if that was asked for; see `assumptions.Finding`.
    """

    memories: int
    suppressed: int
    pinned: int
    episodes: int
    pending: int
    expired: int
    withheld: int = 0
    quarantined: int = 0
    deprecated: int = 0
    unattributed: int = 0
    reused: int = 0
    abandoned: int = 0
    loud: Mapping[str, float] = field(default_factory=dict)
    waited: int = 0
    exact_searches: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    last_failure: str | None = None
    assumptions: tuple[Any, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing failed to be recorded."""
        return not self.failures
