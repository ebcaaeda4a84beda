"""Why a memory is served or not, and what a run did, in words and numbers. Pure: it is told everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from langchain_memoryworth.estimators.credible import Belief
from langchain_memoryworth.estimators.evidence import UNIT, Evidence, Verdict
from langchain_memoryworth.ledger.audit import Part
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Action, Arm, Memory, Status
from langchain_memoryworth.statuses import SERVED
from langchain_memoryworth.terminal import clean


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a memory is served or not.

    Attributes:
        served: Whether a search returns it by rank.
        why: The reason, a sentence or two.
        recent: The evidence since the last restore, which is what the policy judges.
        belief: Posterior of its success rate from all its evidence, with 90 % bounds.
        always: Bounds that hold at all times at once with 95 %, however often somebody has looked, see `confidence_sequence`.
        expires_at: When it stops being returned; None means never.
        companions: The memories most often shown in the same runs, and in how many.
        history: Everything that was decided about it, oldest first.
    """

    memory: Memory
    served: bool
    why: str
    recent: Evidence
    belief: Belief
    always: tuple[float, float]
    expires_at: datetime | None
    companions: tuple[tuple[str, int], ...]
    history: tuple[Action, ...]

    def __str__(self) -> str:
        e = self.memory.evidence
        lines = [
            f"{self.memory.id}: {'served' if self.served else 'not served'}. {self.why}",
            (
                f"  status {self.memory.status}, verdict {self.memory.verdict}, worth {e.worth:.3f}, "
                f"success rate {self.belief}, {self.always[0]:.2f} to {self.always[1]:.2f} however often looked at"
            ),
            (
                f"  {e.hits_positive:.3f} successes and {e.hits_negative:.3f} failures by weight, "
                f"{e.retrievals} settled runs, counting as {e.effective_size:g} retrievals"
            ),
        ]
        if self.expires_at is not None:
            lines.append(f"  expires {self.expires_at:%Y-%m-%d %H:%M}")
        if self.companions:
            lines.append("  shown with " + ", ".join(f"{i} ({n})" for i, n in self.companions))
        lines += [f"  {line_of(a)}" for a in self.history]
        return "\n".join(map(clean, lines))


@dataclass(frozen=True, slots=True)
class RunPart:
    """One memory in one run.

    Attributes:
        arm: Served by rank, on probation by exploration, held out by a draw, or held back by its status.
        shown: False if the model did not see it, also where a filter took it out.
        weight: Its share of the outcome, in [0, 1].
        worth: Its worth now.
        worth_without: What its worth would be without this run.
        why: What it is now, and what this run's outcome changed.
    """

    memory_id: str
    text: str
    rank: int
    similarity: float | None
    arm: Arm
    propensity: float
    shown: bool
    weight: float
    worth: float
    worth_without: float
    status: Status
    why: str


@dataclass(frozen=True, slots=True)
class RunExplanation:
    """What a run retrieved, what of it the model saw, and what its outcome changed.

    Attributes:
        reward: The reward in force; None while unknown.
        said_by: Whose word that is.
        held_back_known: Whether what its searches held back was written down (`Policy.record_held_back`).
        path: The tools that it called, as far as they were seen.
    """

    id: str
    started_at: datetime
    reward: float | None
    said_by: str | None
    parts: tuple[RunPart, ...]
    held_back_known: bool = False
    path: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[RunPart, ...]:
        """What the model saw."""
        return tuple(p for p in self.parts if p.shown)

    def __str__(self) -> str:
        outcome = "no outcome yet"
        if self.reward is not None:
            outcome = f"reward {self.reward:g} by {self.said_by}"
        elif self.said_by is not None:
            outcome = "outcomes that differ too much to count, see Policy.max_deviation"
        lines = [f"run {self.id} of {self.started_at:%Y-%m-%d %H:%M}: {outcome}"]
        for p in self.parts:
            near = "" if p.similarity is None else f" at similarity {p.similarity:.3f}"
            place = "-" if p.arm is Arm.HELD_BACK and not p.shown else f"{p.rank + 1}."
            lines.append(f"  {place} {p.memory_id}{near}: {p.why}")
        if self.path:
            lines.append(f"  it called {' > '.join(self.path)}")
        if not self.held_back_known:
            lines.append("  what was held back is not on record; see Policy.record_held_back")
        return "\n".join(map(clean, lines))


def explain(
    memory: Memory,
    recent: Evidence,
    policy: Policy,
    *,
    sources: int,
    expires_at: datetime | None,
    companions: Sequence[tuple[str, int]],
    history: Sequence[Action],
) -> Explanation:
    """Put together why a memory is served or not."""
    return Explanation(
        memory=memory,
        served=memory.status in SERVED,
        why=_why(memory, recent, policy, sources, history),
        recent=recent,
        belief=policy.belief(memory.evidence),
        always=policy.always(memory.evidence),
        expires_at=expires_at,
        companions=tuple(companions),
        history=tuple(history),
    )


def explain_part(part: Part, policy: Policy) -> RunPart:
    """Put together what a run did to one memory."""
    now = part.standing.evidence
    without = (now - part.credit.evidence).worth
    return RunPart(
        memory_id=part.memory_id,
        text=part.text,
        rank=part.rank,
        similarity=part.similarity,
        arm=part.arm,
        propensity=part.propensity,
        shown=part.shown,
        weight=part.credit.weight / UNIT,
        worth=now.worth,
        worth_without=without,
        status=part.standing.status,
        why=_why_in_run(part, policy, without),
    )


def line_of(action: Action) -> str:
    """One action as one line."""
    reason = f": {action.reason}" if action.reason else ""
    change = "" if action.after is None else f" ({action.before} to {action.after})"
    when = f"{action.at:%Y-%m-%d %H:%M}"
    return clean(f"#{action.number} {when} {action.kind}{change} by {action.actor}{reason}")


def _why(
    memory: Memory, recent: Evidence, policy: Policy, sources: int, history: Sequence[Action]
) -> str:
    word = next((a for a in reversed(history) if a.after is memory.status), None)
    said = ""
    if word is not None:
        said = f" by {word.actor} on {word.at:%Y-%m-%d}" + (
            f" ({word.reason})" if word.reason else ""
        )
    decision = "that" if memory.status is Status.WITHHELD else "the last restore"
    since = "" if recent == memory.evidence else f" since {decision}"
    true = f" ({policy.rate(recent):.2f} without flipped outcomes)" if policy.flip_rate else ""
    numbers = f"worth {recent.worth:.2f}{true} over {recent.effective_size:g} retrievals{since}"
    match memory.status:
        case Status.PINNED:
            return f"It is pinned{said}: served whatever the evidence says; {numbers}."
        case Status.DEPRECATED:
            return f"It is deprecated{said}: kept for the record, until it is restored."
        case Status.WITHHELD:
            return (
                f"It is withheld{said}: shown in at most {policy.exploration:.0%} of the runs it would "
                f"lead, until it is restored; {numbers}."
            )
        case Status.QUARANTINED:
            return f"It is in quarantine{said}: {_release(recent, policy, sources)}."
        case Status.SUPPRESSED:
            back = min(policy.theta_low + policy.hysteresis, 1.0)
            return (
                f"It is suppressed{said}; {numbers}. It is still shown in {policy.exploration:.0%} of "
                f"the runs it would lead, and comes back at a worth of {back:g}, or by restore."
            )
        case _:
            return f"It is active: {_verdict(recent, policy)}; {numbers}."


def _release(recent: Evidence, policy: Policy, sources: int) -> str:
    rule = policy.quarantine
    if rule is None:
        return "the next outcome releases it, as the policy has no quarantine any more"
    return (
        f"{recent.retrievals} of {rule.outcomes} outcomes, from {sources} of {rule.sources} sources, "
        f"at a worth of {recent.worth:.2f}; shown in at most {policy.exploration:.0%} of the runs"
    )


def _verdict(recent: Evidence, policy: Policy) -> str:
    verdict = policy.verdict(recent)
    if verdict is Verdict.UNCERTAIN:
        return f"a verdict needs {policy.v_min:g} retrievals, so it is uncertain"
    if verdict is Verdict.LOW and policy.corroborated:
        return (
            "it is low, but not without the word of one voter, or there is no room to suppress it"
        )
    if verdict is Verdict.LOW:
        return "it is low, but this policy suppresses nothing"
    return f"it is {verdict}, and only below {policy.theta_low:g} it would be suppressed"


def _why_in_run(part: Part, policy: Policy, without: float) -> str:
    words = []
    if part.arm is Arm.PROBATION:
        words.append(f"held back, shown on probation with probability {part.propensity:g}")
    if part.shown:
        words.append("shown")
    elif part.arm is Arm.HELD_BACK:
        words.append("held back by its status then")
    elif part.arm is Arm.HELD_OUT:
        words.append(f"held out by a draw with probability {part.propensity:g}, so it has no share")
    else:
        words.append("dropped by a filter, so it has no share")
    if part.credit.size:
        words.append(
            f"got {part.credit.weight / UNIT:.2f} of the outcome, worth {without:.3f} to "
            f"{part.standing.evidence.worth:.3f}"
        )
    if part.change is not None:
        words.append(part.change)
    if part.standing.status not in SERVED:
        recent = part.standing.recent
        words.append(
            f"{part.standing.status} now (worth {recent.worth:.2f} over "
            f"{recent.effective_size:g} retrievals, theta_low {policy.theta_low:g})"
        )
    return ", ".join(words)
