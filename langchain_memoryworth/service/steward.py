"""The use cases of the people who look after a store: explain, review, decide, erase. No SQL and no formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError
from langchain_memoryworth.estimators.discount import added, discounted, nothing
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.estimators.hitchhikers import Companions
from langchain_memoryworth.ledger import pairs, priors, standing
from langchain_memoryworth.ledger.audit import Audit, Settlement, worth_points
from langchain_memoryworth.ledger.episodes import Said
from langchain_memoryworth.ledger.erasure import Erasure
from langchain_memoryworth.ledger.governance import Governance
from langchain_memoryworth.ledger.learnt import Learnt
from langchain_memoryworth.ledger.retention import Retention, cutoff
from langchain_memoryworth.ledger.settlement import in_force
from langchain_memoryworth.ledger.trials import Trials
from langchain_memoryworth.ledger.voices import Voices, shares
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.progress import Progress, unwatched, watched
from langchain_memoryworth.records import (
    Action,
    Compacted,
    Erased,
    LearntContext,
    Memory,
    Namespace,
    PoolPrior,
    RecentWorth,
    SourceShare,
    WorthPoint,
    namespace_key,
)
from langchain_memoryworth.service.explanations import (
    Explanation,
    RunExplanation,
    explain,
    explain_part,
)
from langchain_memoryworth.service.open_store import OpenStore
from langchain_memoryworth.service.proposals import Proposal
from langchain_memoryworth.service.review import NEAR, Facts, review

NEWEST = 1_000
"""Runs that `loud` looks at: health is asked often."""

Verify = Callable[[Memory], bool | None]
"""A user's own check of a memory: True, it still holds; False, it does not; None, it could not be found out."""


class Steward:
    """What a governor offers beyond serving; ask for it with `governor.steward`, which brings it up to date.

    Args:
        store: What is looked after.
        learnt: The contexts that the governor tells.
    """

    def __init__(self, store: OpenStore, learnt: Learnt) -> None:
        self._store = store
        self._database = store.database
        self._settings = store.settings
        self._memories = store.memories
        self._ledger = store.ledger
        self._governance = Governance(store.database)
        self._trials = Trials(store.database)
        self._erasure = Erasure(store.database)
        self._audit = Audit(store.database)
        self._retention = Retention(store.database)
        self._voices = Voices(store.database)
        self._learnt = learnt

    # -- contexts ---------------------------------------------------------------------------------------------

    def learn_contexts(self, namespace: Namespace, episodes: int) -> tuple[LearntContext, ...]:
        """Learn from the latest episodes which kinds of tasks there are; see `Learnt.learn`."""
        return self._learnt.learn(namespace, episodes)

    def learn_topics(
        self, namespace: Namespace, queries: NDArray[np.float32], count: int, *, sessions: bool
    ) -> tuple[LearntContext, ...]:
        """Learn from queries which kinds of tasks there are; see `Learnt.learn_topics`."""
        return self._learnt.learn_topics(namespace, queries, count, sessions=sessions)

    def drop_contexts(self, namespace: Namespace) -> None:
        """Tell no learnt context any more."""
        self._learnt.drop(namespace)

    def learn_prior(self, namespace: Namespace) -> PoolPrior:
        """Fit what a namespace says of new memories; see `Settings.learn_prior`."""
        return self._store.settings.learn_prior(namespace, self._store.clock())

    def _judge(self, namespace: Namespace) -> Policy:
        """The policy in force, as it judges in a namespace."""
        with self._database.read() as session:
            return priors.informed(session, self._store.policy, namespace_key(namespace))

    # -- decisions --------------------------------------------------------------------------------------------

    def deprecate(
        self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str
    ) -> None:
        """Take memories out of service, and keep them for the record."""
        self._governance.deprecate(namespace, ids, actor, reason, self._store.clock())

    def suppress(
        self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str
    ) -> None:
        """Hold memories back until a person restores them."""
        self._governance.suppress(namespace, ids, actor, reason, self._store.clock())

    def restore(self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str) -> None:
        """Serve memories again; only what happens from now on can suppress them again."""
        self._governance.restore(namespace, ids, actor, reason, self._store.clock())

    def pin(self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str) -> None:
        """Never hold memories back, whatever the evidence says."""
        self._governance.pin(namespace, ids, actor, reason, self._store.clock())

    def unpin(self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str) -> None:
        """Leave memories to the policy again."""
        self._governance.unpin(
            namespace, ids, actor, reason, self._settings.policy, self._store.clock()
        )

    def hold_out(
        self, namespace: Namespace, ids: Sequence[str], rate: float, *, actor: str, reason: str
    ) -> None:
        """Begin a trial of memories; see `Trials.begin`."""
        self._trials.begin(namespace, ids, rate, actor, reason, self._store.clock())

    def end_hold_out(
        self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str
    ) -> None:
        """End a trial of memories; see `Trials.end`."""
        self._trials.end(namespace, ids, actor, reason, self._store.clock())

    def trials(self, namespace: Namespace) -> dict[str, float]:
        """The memories in a trial, and their rates."""
        return self._trials.running(namespace)

    def learn_pairs(self, namespace: Namespace) -> tuple[Companions, ...]:
        """Find the habitual pairs that the policy's diversity floor is to break; see `pairs.learn`."""
        return pairs.learn(self._database, namespace, self._store.policy, self._store.clock())

    def undo(self, number: int, *, actor: str, reason: str) -> Action:
        """Take a change of status back; see `Governance.undo`."""
        return self._governance.undo(number, actor, reason, self._store.clock())

    def history(self, namespace: Namespace, memory_id: str) -> tuple[Action, ...]:
        """Everything decided about a memory, oldest first."""
        return tuple(self._governance.history(namespace, memory_id))

    def actions(self, limit: int) -> tuple[Action, ...]:
        """The newest actions on all memories, newest first."""
        return tuple(self._governance.actions(limit))

    # -- erasure ----------------------------------------------------------------------------------------------

    def erase(self, namespace: Namespace, ids: Sequence[str], *, actor: str, reason: str) -> Erased:
        """Erase memories by id."""
        return self._erased(self._erasure.ids(namespace, ids, actor, reason, self._store.clock()))

    def erase_namespace(
        self, namespace: Namespace, *, below: bool, actor: str, reason: str
    ) -> Erased:
        """Erase a namespace, and with `below` those under it."""
        count = self._erasure.namespace(namespace, below, actor, reason, self._store.clock())
        return self._erased(count)

    def erase_subject(self, subject: Mapping[str, Any], *, actor: str, reason: str) -> Erased:
        """Erase what has this metadata, in every namespace."""
        return self._erased(self._erasure.subject(subject, actor, reason, self._store.clock()))

    def scrub(self) -> bool:
        """Write the database file anew without what was erased; False if others keep it busy."""
        return self._database.scrub()

    def _erased(self, count: int) -> Erased:
        return Erased(count, self.scrub() if count else True)

    # -- sources ----------------------------------------------------------------------------------------------

    def sources(self) -> list[SourceShare]:
        """How much each source of outcomes decides, the one that decides most first."""
        policy = self._store.policy
        return shares(self._voices.deciding(policy.sources, policy.metric))

    def loud(self) -> dict[str, float]:
        """Voters who decided most of the newest settled runs, while others spoke too: their share."""
        policy = self._store.policy
        found = shares(self._voices.deciding(policy.sources, policy.metric, last=NEWEST))
        return {f"{s.source}/{s.loudest}": s.loudest_share for s in found if s.is_loud}

    def said_by(self, source: str, source_id: str | None) -> int:
        """How many outcomes of a source, or of one of its voters, are in force."""
        return len(self._voices.said_by(source, source_id))

    def revoke(
        self,
        source: str,
        source_id: str | None,
        *,
        actor: str,
        reason: str,
        progress: Progress = unwatched,
    ) -> int:
        """Withdraw everything that a source has said, some runs at a time; after a crash the same call goes on."""
        said, now = self._voices.said_by(source, source_id), self._store.clock()
        if not said:
            return 0
        who = source if source_id is None else f"{source}, {source_id}"
        with self._database.write() as session:
            words = f"{who}: {len(said)} outcomes" + (f"; {reason}" if reason else "")
            standing.note(session, "revoke", actor, words, now)
        for some in watched(list(standing.in_chunks(said)), "withdrawing", progress):
            withdrawn = [Said(eid, key, None) for eid, key in some]
            self._ledger.record_many(withdrawn, policy=self._settings.policy, now=now)
        return len(said)

    def compact(self, before: datetime | timedelta, progress: Progress) -> Compacted:
        """Roll up what is older; see `Retention.roll_up`."""
        now, policy = self._store.clock(), self._store.policy
        return self._retention.roll_up(cutoff(before, now), policy, now, progress)

    def check(self, progress: Progress = unwatched) -> list[str]:
        """What does not add up in the ledger, one line each."""
        return self._audit.check(progress)

    def namespaces(self) -> list[tuple[Namespace, int]]:
        """Every namespace with live memories, and how many it has."""
        return self._audit.namespaces()

    def rewards(self) -> list[tuple[float, float]]:
        """When each settled run was settled, as Unix time, and its reward; oldest first."""
        return self._audit.rewards()

    def suppressions(self) -> list[float]:
        """Unix times at which memories were suppressed, by the policy or a person, oldest first."""
        return self._audit.suppressions()

    def settlements(self, namespace: Namespace) -> dict[str, list[Settlement]]:
        """The settled runs of each live memory of a namespace, by its id, in the order of settlement."""
        names = self._audit.live(namespace)
        return {names[s]: found for s, found in self._audit.settlements(list(names)).items()}

    def schema_version(self) -> int:
        """The schema version of the database; opening it has brought it to the newest."""
        return self._audit.schema_version()

    # -- explanation ------------------------------------------------------------------------------------------

    def explain(self, namespace: Namespace, memory_id: str) -> Explanation:
        """Why a memory is served or not.

        Raises:
            MemoryNotFoundError: If there is none by that id, or it is past its time.
        """
        now, policy = self._store.clock(), self._judge(namespace)
        memory = self._memories.one(namespace, memory_id, policy, now)
        seq = self._seq(namespace, memory_id)
        stands = self._audit.standings([seq])[seq]
        return explain(
            memory,
            stands.recent,
            policy,
            sources=self._audit.sources(seq, stands.epoch),
            expires_at=self._end(namespace, seq, policy),
            companions=self._audit.companions(seq),
            history=self._governance.history(namespace, memory_id),
        )

    def explain_run(self, run_id: str) -> RunExplanation:
        """What a run retrieved, and what its outcome changed.

        Raises:
            UnknownRunError: If no episode has that id.
        """
        policy = self._store.policy
        episode = self._ledger.episode(run_id)
        then = self._audit.policy_at(episode.started_at.timestamp())
        ranked = in_force(episode.outcomes, policy.sources, policy.metric)
        return RunExplanation(
            id=episode.id,
            started_at=episode.started_at,
            reward=episode.reward,
            said_by=ranked[0].source if ranked else None,
            parts=tuple(explain_part(p, policy) for p in self._audit.parts(run_id)),
            held_back_known=bool(then.get("record_held_back")),
            path=episode.path,
        )

    def worth_history(self, namespace: Namespace, memory_id: str) -> tuple[WorthPoint, ...]:
        """The worth of a memory after each of its settled runs."""
        self._memories.one(namespace, memory_id, self._store.policy, self._store.clock())
        seq = self._seq(namespace, memory_id)
        return worth_points(self._audit.settlements([seq])[seq], self._audit.opening(seq))

    def recent_worth(
        self, namespace: Namespace, memory_id: str, half_life: float | timedelta
    ) -> RecentWorth:
        """The worth of a memory by counts that halve with every half-life, see `discount`; what was rolled up is past."""
        self._memories.one(namespace, memory_id, self._store.policy, self._store.clock())
        in_time = isinstance(half_life, timedelta)
        unit = half_life.total_seconds() if isinstance(half_life, timedelta) else float(half_life)
        counts = discounted(nothing(1), 0.0, half_life=unit)
        seq = self._seq(namespace, memory_id)
        for number, s in enumerate(self._audit.settlements([seq])[seq]):
            at, size = (s.settled_at if in_time else number), s.evidence.size / UNIT
            counts = added(counts, s.reward, at=at, half_life=unit, size=size)
        if in_time:
            counts = discounted(counts, self._store.clock(), half_life=unit)
        size = float(counts.size[0])
        return RecentWorth(float(counts.success[0]) / size if size > 0 else 0.5, size)

    def _seq(self, namespace: Namespace, memory_id: str) -> int:
        seq = self._audit.seq(namespace, memory_id)
        if seq is None:  # deleted since it was read
            raise MemoryNotFoundError.of(namespace, [memory_id])
        return seq

    def _end(self, namespace: Namespace, seq: int, policy: Policy) -> datetime | None:
        written, own = self._audit.ends(seq)
        life = policy.life(namespace)
        ends = [] if own is None else [own]
        ends += [] if life is None else [written + life.total_seconds()]
        return datetime.fromtimestamp(min(ends), UTC) if ends else None

    # -- review -----------------------------------------------------------------------------------------------

    def review(self, namespace: Namespace, limit: int | None) -> list[Proposal]:
        """What wants a person, the most valuable first."""
        policy = self._judge(namespace)
        alive = {m.id: m for m in self._memories.all(namespace, None, policy, self._store.clock())}
        seqs = {s: alive[i] for s, i in self._audit.live(namespace).items() if i in alive}
        numbers = list(seqs)
        facts = Facts(
            memories=seqs,
            recent={s: stands.recent for s, stands in self._audit.standings(numbers).items()},
            decided=frozenset(self._audit.decided(numbers)),
            settlements=self._audit.settlements(numbers),
            together=self._audit.together(),
            near=self._near(numbers),
            rejections=self._audit.rejections(numbers),
            voices=self._voices.deciding(policy.sources, policy.metric),
        )
        return review(facts, policy)[:limit]

    def decide(
        self,
        namespace: Namespace,
        proposals: Sequence[Proposal],
        decision: str,
        *,
        actor: str,
        reason: str,
        verify: Verify | None,
    ) -> None:
        """Do what a person decided about proposals.

        Raises:
            InvalidInputError: If the decision is not known, or does not fit one of the proposals; nothing is done then.
        """
        for proposal in proposals:
            self._check(proposal, decision, verify)
        for proposal in proposals:
            what = proposal.action if decision == "approve" else decision
            self._carry_out(namespace, proposal, what, actor, reason, verify)

    def _check(self, proposal: Proposal, decision: str, verify: Verify | None) -> None:
        if decision not in _DECISIONS:
            raise InvalidInputError(
                f"decision={decision!r}; give one of {', '.join(_DECISIONS)}", value=decision
            )
        what = proposal.action if decision == "approve" else decision
        if what == "merge" and proposal.other_id is None:
            raise InvalidInputError(
                f"{proposal.why} of {proposal.memory_id!r} is about one memory; merging needs two",
                value=proposal,
            )
        if what == "reverify" and verify is None:
            raise InvalidInputError(
                "re-verifying needs verify=, your own check of a memory; or reject, pin, deprecate",
                value=proposal,
            )

    def _carry_out(
        self,
        namespace: Namespace,
        proposal: Proposal,
        what: str,
        actor: str,
        reason: str,
        verify: Verify | None,
    ) -> None:
        now, one = self._store.clock(), [proposal.memory_id]
        note = f"{proposal.key}: {reason or proposal.reason}"
        if what == "deprecate":
            self._governance.deprecate(namespace, one, actor, note, now)
        elif what == "pin":
            self._governance.pin(namespace, one, actor, note, now)
        elif what == "restore":
            self._governance.restore(namespace, one, actor, note, now)
        elif what == "merge" and proposal.other_id is not None:
            self._merge(namespace, proposal, proposal.other_id, actor, note)
        elif what == "reverify" and verify is not None:
            self._reverify(namespace, proposal, actor, note, verify)
        self._remark(namespace, proposal, what, actor, note)

    def _remark(
        self, namespace: Namespace, proposal: Proposal, what: str, actor: str, note: str
    ) -> None:
        kind = what if what in ("reject", "reverify") else "approve"
        self._governance.remark(
            namespace, [proposal.memory_id], kind, actor, note, self._store.clock()
        )

    def _merge(
        self, namespace: Namespace, proposal: Proposal, other: str, actor: str, note: str
    ) -> None:
        """Keep the newer text. Evidence belongs to a text, so each keeps its own; one of them is served."""
        self._governance.deprecate(
            namespace, [proposal.memory_id], actor, note, self._store.clock()
        )

    def _reverify(
        self, namespace: Namespace, proposal: Proposal, actor: str, note: str, verify: Verify
    ) -> None:
        ids = [proposal.memory_id, *([] if proposal.other_id is None else [proposal.other_id])]
        for memory_id in ids:
            now = self._store.clock()
            memory = self._memories.one(namespace, memory_id, self._store.policy, now)
            answer = verify(memory)
            if answer is True:
                self._governance.restore(namespace, [memory_id], actor, note, now)
            elif answer is False:
                self._governance.deprecate(namespace, [memory_id], actor, note, now)

    def _near(self, seqs: Sequence[int]) -> list[tuple[int, int, float]]:
        own = self._audit.with_vector(seqs)
        if len(own) < 2:
            return []
        vectors = self._audit.vectors(own)
        pairs: list[tuple[int, int, float]] = []
        for start in range(
            0, len(own), 512
        ):  # some rows at a time: all pairs of many would not fit
            cosines = vectors[start : start + 512] @ vectors.T
            for i, j in np.argwhere(cosines >= NEAR).tolist():
                if start + i < j:
                    pairs.append((own[start + i], own[j], float(cosines[i, j])))
        return pairs


_DECISIONS = ("approve", "reject", "pin", "restore", "deprecate", "reverify", "merge")
