"""Which memories want a person, the most valuable first. Pure: from counters and counts to proposals.

The value of looking at a memory is `gain * deviation`: what could be won per run if it is as it seems, times how unsure
that is. A memory that is surely bad needs no person, the policy holds it back; one that hardly matters does not either.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from langchain_memoryworth.estimators.evidence import Evidence, Verdict
from langchain_memoryworth.ledger.audit import Settlement, Together
from langchain_memoryworth.ledger.deciders import Voice
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Memory, Status
from langchain_memoryworth.service.proposals import SUGGESTION, Proposal, Why
from langchain_memoryworth.statuses import AUTOMATIC

SAME_RUNS = 0.9
"""Share of the runs of both in which two memories are shown together, above which nothing tells them apart."""
OVER_SERVED = 0.5
"""Share of all runs in which a memory is shown, above which it is looked at."""
NEAR = 0.95
"""Cosine above which two texts are near-duplicates."""
LEAST_GAIN = 0.02
"""Gain assumed where the counters cannot say which way it goes, in successes per run with the memory."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a review looks at, of one namespace.

    Attributes:
        live: How many live memories there are.
        memories: Those of them by number that have evidence, are not simply active, or are in `near`.
        recent: Their evidence since the last restore.
        decided: Those whose last change of status was a person's.
        settlements: Their settled runs among the latest `LOOK_BACK`, oldest first.
        near: Pairs of numbers with a cosine above `NEAR`, the older first.
        voices: Who decides each settled run, by its id.
        rejections: Evidence at the moment a proposal was rejected, by memory and key.
    """

    live: int
    memories: Mapping[int, Memory]
    recent: Mapping[int, Evidence]
    decided: frozenset[int]
    settlements: Mapping[int, Sequence[Settlement]]
    together: Together
    near: Sequence[tuple[int, int, float]]
    rejections: Mapping[tuple[int, str], Evidence]
    voices: Mapping[str, Voice]


def review(facts: Facts, policy: Policy) -> list[Proposal]:
    """All proposals, the most valuable first; equal ones in the order of their ids."""
    desk = _Desk(facts, policy)
    found = [p for p in desk.proposals() if desk.is_news(p)]
    return sorted((p for _, p in found), key=lambda p: (-p.value, p.memory_id, p.why))


class _Desk:
    def __init__(self, facts: Facts, policy: Policy) -> None:
        self.facts = facts
        self.policy = policy
        self.beliefs = {s: self.policy.belief(m.evidence) for s, m in facts.memories.items()}
        total = sum((m.evidence for m in facts.memories.values()), Evidence())
        self.pool = total.worth
        self.beside: dict[int, dict[int, int]] = defaultdict(dict)
        for (a, b), count in facts.together.pairs.items():
            self.beside[a][b] = self.beside[b][a] = count

    def proposals(self) -> Iterator[tuple[int, Proposal]]:
        open_ = {s: m for s, m in self.facts.memories.items() if m.status is not Status.DEPRECATED}
        for seq, memory in open_.items():
            for make in (
                *(self.low, self.one_voice, self.stale),
                *(self.mixed, self.over_served, self.contested),
            ):
                made = make(seq, memory)
                if made is not None:
                    yield seq, made
        yield from self.pairs(open_)
        yield from self.near(open_)

    def is_news(self, found: tuple[int, Proposal]) -> bool:
        """A decided proposal comes back when half a verdict's worth of evidence has come since, and at least one run."""
        seq, proposal = found
        before = self.facts.rejections.get((seq, proposal.key))
        if before is None:
            return True
        new = self.facts.memories[seq].evidence.retrievals - before.retrievals
        return new >= max(1, math.ceil(self.policy.v_min / 2))

    # -- one memory -------------------------------------------------------------------------------------------

    def low(self, seq: int, memory: Memory) -> Proposal | None:
        """Suppressed, or about to be, and no person has decided about it."""
        recent = self.facts.recent[seq]
        half = recent.effective_size >= self.policy.v_min / 2 and recent.retrievals > 0
        held = memory.status is Status.SUPPRESSED
        by_person = memory.status in (Status.PINNED, Status.WITHHELD)
        decided = by_person or (held and seq in self.facts.decided)
        if decided or self.one_voice(seq, memory) is not None:
            return None
        if not held and not (half and self.policy.rate(recent) < self.policy.theta_low):
            return None
        # What holds it back may also be harm, or a decline: only the policy knows what it was judged by.
        reason = f"{'suppressed' if held else 'low'}: {self.policy.reason(recent)}"
        return self._make(Why.LOW, seq, self.pool - self.beliefs[seq].mean, reason)

    def one_voice(self, seq: int, memory: Memory) -> Proposal | None:
        """LOW by the word of one source, or one voter of it, and not by the word of the others."""
        low = self.policy.verdict(self.facts.recent[seq]) is Verdict.LOW
        if memory.status not in AUTOMATIC or not (low or memory.status is Status.SUPPRESSED):
            return None
        ways = ((spoken, own, memory.evidence - own) for spoken, own in self._spoken(seq).items())
        fair = [
            (rest.worth, spoken, rest)
            for spoken, own, rest in ways
            if rest.effective_size >= max(1.0, self.policy.v_min / 2)
            and self.policy.rate(rest) >= self.policy.theta_low + self.policy.hysteresis
            and self.policy.belief(own).high < self.policy.belief(rest).low
        ]
        if not fair:
            return None
        worth, spoken, rest = max(fair, key=lambda way: way[:2])
        reason = (
            f"worth {memory.evidence.worth:.2f}, and {worth:.2f} over {rest.effective_size:g} retrievals "
            f"without the word of {spoken}"
        )
        return self._make(Why.ONE_VOICE, seq, worth - memory.evidence.worth, reason)

    def _spoken(self, seq: int) -> dict[str, Evidence]:
        """The evidence of a memory by who decided its runs: each source, and each voter."""
        found: dict[str, Evidence] = defaultdict(Evidence)
        for s in self.facts.settlements.get(seq, ()):
            voice = self.facts.voices.get(s.episode_id)
            if voice is not None:
                names = {voice.source, f"{voice.source}/{voice.source_id}".rstrip("/")}
                for name in names:
                    found[name] += s.evidence
        return found

    def stale(self, seq: int, memory: Memory) -> Proposal | None:
        """High in the earlier half of its runs, and credibly less in the later half."""
        halves = self._halves(seq)
        if halves is None or memory.status in (Status.SUPPRESSED, Status.WITHHELD):
            return None
        earlier, later = halves
        if (
            self.policy.rate(earlier) <= self.policy.theta_high
            or self.policy.belief(later).high >= self.policy.belief(earlier).low
        ):
            return None
        reason = (
            f"worth {earlier.worth:.2f} in its earlier runs, {later.worth:.2f} in its later ones"
        )
        return self._make(Why.STALE, seq, earlier.worth - later.worth, reason)

    def mixed(self, seq: int, _: Memory) -> Proposal | None:
        """Credibly good in one context and bad in another."""
        contexts = self._contexts(seq)
        if len(contexts) < 2:
            return None
        best = max(contexts, key=lambda c: self.policy.belief(contexts[c]).low)
        worst = min(contexts, key=lambda c: self.policy.belief(contexts[c]).high)
        gap = self.policy.belief(contexts[best]).low - self.policy.belief(contexts[worst]).high
        if gap <= 0:
            return None
        reason = (
            f"worth {contexts[best].worth:.2f} in context {best!r}, {contexts[worst].worth:.2f} in "
            f"{worst!r}"
        )
        return self._make(Why.MIXED, seq, gap, reason)

    def over_served(self, seq: int, _: Memory) -> Proposal | None:
        """In front of the model in most runs, whatever they are about."""
        together = self.facts.together
        share = together.shown[seq] / together.episodes if together.episodes else 0.0
        enough = together.episodes >= 2 * self.policy.v_min and self.facts.live > 2
        if not enough or share <= OVER_SERVED:
            return None
        gain = max(self.pool - self.beliefs[seq].mean, LEAST_GAIN)
        return self._make(Why.OVER_SERVED, seq, gain, f"shown in {share:.0%} of all runs")

    def contested(self, seq: int, memory: Memory) -> Proposal | None:
        """Held back by a person, and HIGH on what it has done on probation since."""
        recent = self.facts.recent[seq]
        if memory.status is not Status.WITHHELD or self.policy.verdict(recent) is not Verdict.HIGH:
            return None
        reason = (
            f"worth {recent.worth:.2f} over {recent.effective_size:g} retrievals since a person "
            f"suppressed it, above theta_high {self.policy.theta_high:g}"
        )
        return self._make(Why.CONTESTED, seq, recent.worth - self.pool, reason)

    # -- two memories -----------------------------------------------------------------------------------------

    def pairs(self, open_: Mapping[int, Memory]) -> Iterator[tuple[int, Proposal]]:
        """Almost always shown together: their counters cannot tell which of them it is."""
        shown = self.facts.together.shown
        for (a, b), count in self.facts.together.pairs.items():
            most = max(shown[a], shown[b])
            if a in open_ and b in open_ and count >= max(self.policy.v_min, SAME_RUNS * most, 2):
                reason = f"shown together in {count} of {most} runs, nothing tells them apart"
                gain = max(self.pool - self.beliefs[a].mean, LEAST_GAIN)
                yield a, self._make(Why.INDISTINGUISHABLE, a, gain, reason, other=b)

    def near(self, open_: Mapping[int, Memory]) -> Iterator[tuple[int, Proposal]]:
        """Texts that say nearly the same; or said it, if the newer one does credibly better."""
        for older, newer, similarity in self.facts.near:
            if older not in open_ or newer not in open_:
                continue
            old, new = self.beliefs[older], self.beliefs[newer]
            if old.high < new.low:
                reason = (
                    f"a newer text at similarity {similarity:.3f} does better: {new}, not {old}"
                )
                gap = new.mean - old.mean
                yield older, self._make(Why.CONTRADICTED, older, gap, reason, other=newer)
                continue
            both = open_[older].evidence + open_[newer].evidence
            reason = (
                f"similarity {similarity:.3f}; together worth {both.worth:.2f} over "
                f"{both.effective_size:g} retrievals"
            )
            gain = max(abs(new.mean - old.mean), LEAST_GAIN)
            yield older, self._make(Why.DUPLICATE, older, gain, reason, other=newer, both=both)

    # -- inside -----------------------------------------------------------------------------------------------

    def _make(
        self,
        why: Why,
        seq: int,
        gain: float,
        reason: str,
        *,
        other: int | None = None,
        both: Evidence | None = None,
    ) -> Proposal:
        memory = self.facts.memories[seq]
        second = None if other is None else self.facts.memories[other]
        known = self.beliefs[seq] if both is None else self.policy.belief(both)
        together = self.facts.together
        share = together.shown[seq] / together.episodes if together.episodes else 0.0
        halves = self._halves(seq)
        settled = self.facts.settlements.get(seq, ())
        return Proposal(
            why=why,
            memory_id=memory.id,
            value=max(gain, 0.0) * max(share, 1e-3) * known.deviation,
            reason=reason,
            text=memory.text,
            evidence=memory.evidence if both is None else both,
            belief=known,
            action=SUGGESTION[why],
            policy_action=self._policy_action(seq, memory),
            key=why.value if other is None else f"{why.value} #{other}",
            other_id=None if second is None else second.id,
            other_text=None if second is None else second.text,
            trend=None if halves is None else halves[1].worth - halves[0].worth,
            contexts={c: e.worth for c, e in self._contexts(seq).items()},
            companions=self._companions(seq),
            runs=tuple(s.episode_id for s in reversed(settled[-3:])),
        )

    def _policy_action(self, seq: int, memory: Memory) -> str:
        recent = self.facts.recent[seq]
        after = self.policy.next_status(memory.status, recent)
        if after is not memory.status:
            return f"{after}"
        missing = self.policy.v_min - recent.effective_size
        active = memory.status is Status.ACTIVE
        if (
            active
            and missing > 0
            and self.policy.rate(recent) < self.policy.theta_low
            and self.policy.suppress
        ):
            return f"suppressed after {missing:g} more retrievals like these"
        return f"stays {memory.status}"

    def _companions(self, seq: int) -> tuple[tuple[str, int], ...]:
        known = self.facts.memories
        ordered = sorted(self.beside[seq].items(), key=lambda item: (-item[1], item[0]))
        return tuple((known[s].id, n) for s, n in ordered if s in known)[:5]

    def _halves(self, seq: int) -> tuple[Evidence, Evidence] | None:
        settled = self.facts.settlements.get(seq, ())
        if len(settled) < 4:
            return None
        middle = len(settled) // 2
        return _sum(settled[:middle]), _sum(settled[middle:])

    def _contexts(self, seq: int) -> dict[str, Evidence]:
        parts: dict[str, list[Settlement]] = defaultdict(list)
        for s in self.facts.settlements.get(seq, ()):
            if s.context is not None:
                parts[s.context].append(s)
        return {c: _sum(some) for c, some in parts.items()}


def _sum(settled: Iterable[Settlement]) -> Evidence:
    return sum((s.evidence for s in settled), Evidence())
