"""What a review proposes: the reasons, what approving does, and the numbers that a person needs to decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from langchain_memoryworth.estimators.evidence import Evidence
from langchain_memoryworth.terminal import clean

if TYPE_CHECKING:
    from langchain_memoryworth.estimators.credible import Belief


class Why(StrEnum):
    """What a proposal is about."""

    LOW = "low"
    STALE = "stale"
    MIXED = "mixed"
    INDISTINGUISHABLE = "indistinguishable"
    DUPLICATE = "duplicate"
    CONTRADICTED = "contradicted"
    OVER_SERVED = "over_served"
    CONTESTED = "contested"
    ONE_VOICE = "one_voice"


SUGGESTION = {
    Why.LOW: "deprecate",
    Why.STALE: "reverify",
    Why.MIXED: "reverify",
    Why.INDISTINGUISHABLE: "reverify",
    Why.DUPLICATE: "merge",
    Why.CONTRADICTED: "deprecate",
    Why.OVER_SERVED: "reverify",
    Why.CONTESTED: "restore",
    Why.ONE_VOICE: "restore",
}
"""What approving a proposal does."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One thing for a person to decide.

    Attributes:
        value: Expected gain times uncertainty, see the module; only the order means anything.
        other_id: The second memory, where it is about two.
        text: Of the memory.
        other_text: Of the second one.
        belief: Its success rate with 90 % bounds; of a near-duplicate pair, that of the summed evidence.
        trend: Worth in the later half of its runs minus that in the earlier half; None with fewer than 4 runs.
        contexts: Worth by context, where contexts were recorded.
        companions: Memories that were shown with it most often, and in how many runs.
        runs: Ids of runs to look at, the newest first.
        action: What approving it does.
        policy_action: What the policy would do by itself at the next outcomes.
        key: What a decision is remembered by, beside the memory; names the second one by its number.
    """

    why: Why
    memory_id: str
    value: float
    reason: str
    text: str
    evidence: Evidence
    belief: Belief
    action: str
    policy_action: str
    key: str
    other_id: str | None = None
    other_text: str | None = None
    trend: float | None = None
    contexts: Mapping[str, float] = field(default_factory=dict)
    companions: tuple[tuple[str, int], ...] = ()
    runs: tuple[str, ...] = ()

    def __str__(self) -> str:
        other = "" if self.other_id is None else f" and {self.other_id}"
        return clean(f"{self.why} {self.memory_id}{other}: {self.reason}; {self.action}?")
