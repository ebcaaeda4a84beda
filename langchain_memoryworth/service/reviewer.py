"""Reviews: what wants a person, and carrying out what he decided about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.ledger import feed
from langchain_memoryworth.ledger.audit import Audit
from langchain_memoryworth.ledger.governance import Governance
from langchain_memoryworth.ledger.voices import Voices
from langchain_memoryworth.records import LOOK_BACK, Memory, Namespace
from langchain_memoryworth.service.open_store import OpenStore
from langchain_memoryworth.service.proposals import Proposal
from langchain_memoryworth.service.review import NEAR, Facts, review

Verify = Callable[[Memory], bool | None]
"""A user's own check of a memory: True, it still holds; False, it does not; None, it could not be found out."""


MOST_COSINES = 400_000_000
"""Near-duplicates are looked for in so many pairs, all of 20,000 memories: some seconds, where all pairs of a million take hours."""


class Reviewer:
    """Reviews of a governor's memories; ask for it with `governor.reviewer`, which brings it up to date."""

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._memories = store.memories
        self._governance = Governance(store.database)
        self._audit = Audit(store.database)
        self._voices = Voices(store.database)

    def review(self, namespace: Namespace, limit: int | None) -> list[Proposal]:
        """What wants a person, the most valuable first."""
        policy, now = self._store.policy_in(namespace), self._store.clock()
        memories = self._memories.of_note(namespace, policy, now)
        with self._store.database.read() as session:
            live = feed.count(session, namespace)
        near = self._near(namespace)
        others = sorted({s for a, b, _ in near for s in (a, b)} - memories.keys())
        memories |= self._memories.numbered(namespace, others, policy, now)
        numbers = list(memories)
        facts = Facts(
            live=live,
            memories=memories,
            recent={s: stands.recent for s, stands in self._audit.standings(numbers).items()},
            decided=frozenset(self._audit.decided(numbers)),
            settlements=self._audit.settlements(numbers, episodes=LOOK_BACK),
            together=self._audit.together(),
            near=near,
            rejections=self._audit.rejections(numbers),
            voices=self._voices.deciding(policy.sources, policy.metric, last=LOOK_BACK),
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

    def _near(self, namespace: Namespace) -> list[tuple[int, int, float]]:
        """Pairs of near-duplicates: of all with all, or of as many of the most retrieved with all as can be compared."""
        own = self._audit.with_vector(namespace)
        if len(own) < 2:
            return []
        chosen = own[: max(1, MOST_COSINES // len(own))]
        vectors = self._audit.vectors(chosen)
        numbers, among = np.array(chosen), set(chosen)
        found: dict[tuple[int, int], float] = {}
        with self._store.database.read() as session:
            for part in feed.whole(session, namespace, vectors.shape[1]):
                cosines = vectors @ part.vectors.T
                for i, j in np.argwhere(cosines >= NEAR).tolist():
                    one, other = int(numbers[i]), int(part.seqs[j])
                    # A pair of two that were chosen is met twice.
                    if one < other or (one > other and other not in among):
                        found[min(one, other), max(one, other)] = float(cosines[i, j])
        return [(a, b, similarity) for (a, b), similarity in sorted(found.items())]


_DECISIONS = ("approve", "reject", "pin", "restore", "deprecate", "reverify", "merge")
