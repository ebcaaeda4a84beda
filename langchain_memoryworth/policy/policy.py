"""Everything that a user may choose of the rules: thresholds, ranking, credit, whose word counts, chance and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Self

from pydantic import (
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.credit import CreditFunction, CreditName, Shown, settle
from langchain_memoryworth.estimators.use import Use
from langchain_memoryworth.policy.ranking import Ranking
from langchain_memoryworth.records import Namespace


class Policy(Ranking):
    """Thresholds and rules, frozen and validated. Stored with the database, so that all processes agree.

    Examples:
        >>> from langchain_memoryworth.estimators.evidence import UNIT, Evidence
        >>> policy = Policy(theta_low=0.3)
        >>> lost = Evidence(2 * UNIT, 18 * UNIT, 20 * UNIT, 20 * UNIT, 20, surprise=-9 * UNIT)
        >>> lost.worth, lost.expectation, policy.verdict(lost)
        (0.1, 0.55, <Verdict.LOW: 'low'>)
        >>> policy.verdict(Evidence())
        <Verdict.UNCERTAIN: 'uncertain'>
        >>> Policy.paper().v_min
        10.0
    """

    exploration: float = Field(default=0.02, ge=0, le=1)
    """Probability per episode that the best suppressed memory takes the last place (assumption A2)."""
    hold_out: float = Field(default=0.0, ge=0, lt=1)
    """Probability per episode with which any memory retrieved is left out of the prompt, the next one in its place, to tell
    cause from association. A trial of the memories in question, `store.hold_out`, finds out more at less cost."""
    diversity_floor: float = Field(default=0.0, ge=0, lt=1)
    """Share of the episodes with a habitual pair in which one of the two is left out, the next memory in its place, so that
    outcomes can tell them apart. Which memories are in such a pair, `store.learn_pairs` finds out."""
    credit: CreditName | CreditFunction = "uniform"
    """How an outcome is shared among the memories shown, where nothing says which were used: a name, or a function."""
    credit_half_life: timedelta | None = None
    """Of an episode over several turns: time in which a memory's share falls to one half, counted back from the last
    one shown; None means that all turns count alike."""
    w_min: float = Field(default=0.01, ge=0, le=1)
    """Smallest weight of a memory that was shown (assumption A5)."""
    sources: tuple[str, ...] = ("user", "evaluator", "handler")
    """Whose outcome is in force when several speak of one episode, first wins; others come after, newest first."""
    votes: Literal["newest", "median"] = "newest"
    """What counts of several voters of the source in force, by their `source_id`: the newest, or the median of all, which one
    of three or more cannot turn round."""
    corroborated: bool = False
    """Whether a memory is suppressed only if it would be without the word of any one voter, too: then nobody alone, and no broken
    evaluator, can sink one. Whoever decides alone suppresses nothing, so it is for stores with several voices."""
    max_deviation: float | None = Field(default=None, ge=0, lt=0.5)
    """If set, a run counts for nothing while the rewards that were said of it have a standard deviation above this: a noisy episode
    says little of its memories. Two voters who contradict each other have .5."""
    metric: str = ""
    """The metric that drives worth, where outcomes have one; those without a name always do. Others are only kept."""
    record_held_back: bool = False
    """Whether each search also writes down what it would have served but for its status, for `explain_run`. It costs a second
    search, among what is held back, and a row for each."""
    ttl: tuple[tuple[Namespace, timedelta], ...] = ()
    """Time to live of a namespace and those below it, counted from when a memory was last stored; the longest name that
    fits counts. May be given as a mapping. Checked on every read."""
    pending_age: timedelta = timedelta(days=30)
    """Age at which a run without an outcome is no longer counted as pending; it never becomes a failure."""
    seed: int = 0
    """Of the draws for exploration; the same episode and seed always draw the same."""

    @classmethod
    def paper(cls, **fields: Any) -> Self:
        """Exactly the paper's rule: .60/.40/10 by the ratio alone, and nothing else.

        Args:
            **fields: Where it should differ: `rank=(.6, .4)` is Experiment 5, `v_min=3` acts on three retrievals.
        """
        return cls.model_validate(
            {
                "theta_high": 0.60,
                "theta_low": 0.40,
                "v_min": 10,
                "confidence": None,
                "margin_low": None,
                "harm": None,
                "decline": None,
                "max_suppressed": 1.0,
                "effect_weight": 0.0,
                "hysteresis": 0.0,
                "exploration": 0.0,
                "uncertain": "worth",
                **fields,
            }
        )

    @field_validator("ttl", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        return tuple(value.items()) if isinstance(value, Mapping) else value

    @field_validator("ttl")
    @classmethod
    def _positive_lives(
        cls, value: tuple[tuple[Namespace, timedelta], ...]
    ) -> tuple[tuple[Namespace, timedelta], ...]:
        for namespace, life in value:
            if life <= timedelta(0):
                raise ValueError(f"ttl of {namespace} must be longer than 0, got {life}")
        return tuple(sorted(dict(value).items()))

    @field_validator("recency_half_life", "credit_half_life", "pending_age")
    @classmethod
    def _positive_time(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and value <= timedelta(0):
            raise ValueError(f"must be longer than 0, got {value}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.theta_low > self.theta_high:
            raise ValueError(
                f"theta_low {self.theta_low} is above theta_high {self.theta_high}; swap them"
            )
        recency = self.rank[2] > 0 or self.credit == "similarity_recency"
        if recency and self.recency_half_life is None:
            raise ValueError("recency is used but has no half-life; set recency_half_life")
        return self

    @field_serializer("credit", when_used="json")
    def _name_of_rule(self, credit: CreditName | CreditFunction) -> str:
        if isinstance(credit, str):
            return credit
        return f"{credit.__module__}:{getattr(credit, '__qualname__', type(credit).__qualname__)}"

    @classmethod
    def from_stored(cls, document: str) -> Self:
        """Read a policy that was stored as JSON.

        Raises:
            InvalidInputError: If it names a credit function: code is never loaded because a database says so.
        """
        import json

        stored = json.loads(document)
        if ":" in stored.get("credit", ""):
            raise InvalidInputError(
                f"this store settles with the credit function {stored['credit']}; open it with "
                "policy=Policy(credit=<that function>, ...)",
                value=stored["credit"],
            )
        return cls.model_validate(stored)

    def life(self, namespace: Namespace) -> timedelta | None:
        """How long memories of a namespace live by its rule; None means for ever.

        Examples:
            >>> policy = Policy(ttl={("acme",): timedelta(days=30), ("acme", "chat"): timedelta(days=1)})
            >>> policy.life(("acme", "chat", "ada")).days, policy.life(("acme",)).days, policy.life(("acme-corp",))
            (1, 30, None)
        """
        fitting = [(n, life) for n, life in self.ttl if namespace[: len(n)] == n]
        return max(fitting, key=lambda pair: len(pair[0]))[1] if fitting else None

    def held_out(self, trial: float | None, parting: int | None) -> float:
        """The probability with which a retrieved memory that is not pinned is left out of the prompt.

        Args:
            trial: The rate of a trial of its own, which goes before all else.
            parting: How many draws part it from its habitual companions, None if it has none. So many independent ones, at
                `1 - (1 - diversity_floor)^(1/parting)` each, leave one or more out in just that share.

        Examples:
            >>> policy = Policy(diversity_floor=0.19, hold_out=0.02)
            >>> [round(policy.held_out(*x), 2) for x in ((None, 2), (None, 1), (None, None), (0.5, 2))]
            [0.1, 0.19, 0.02, 0.5]
        """
        if trial is not None:
            return trial
        floor = 1 - (1 - self.diversity_floor) ** (1 / parting) if parting else 0.0
        return max(self.hold_out, floor)

    @property
    def shares_equally(self) -> bool:
        """Whether `settle` looks at nothing but how many memories were shown, while it is not told which were used."""
        return self.credit == "uniform" and self.credit_half_life is None

    def settle(self, shown: Sequence[Shown], reward: float | None, used: Use | None) -> list[Any]:
        """`credit.settle` under this policy's rule."""
        return settle(
            shown,
            reward,
            used,
            rule=self.credit,
            w_min=self.w_min,
            half_life=self.recency_half_life,
            discount=self.credit_half_life,
        )
