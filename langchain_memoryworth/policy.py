"""The policy: from evidence to a verdict, from a verdict to what is served. Thresholds, no state, no I/O."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from statistics import NormalDist
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_serializer,
    field_validator,
    model_validator,
)

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators import credible
from langchain_memoryworth.estimators.anytime import confidence_sequence
from langchain_memoryworth.estimators.base_rates import low_threshold
from langchain_memoryworth.estimators.bonus import effect_coordinates, effect_query
from langchain_memoryworth.estimators.credit import CreditFunction, CreditName, Shown, settle
from langchain_memoryworth.estimators.effects import NOISE, STRENGTH, effect_of
from langchain_memoryworth.estimators.evidence import UNIT, Evidence, Verdict, effective_size, worth
from langchain_memoryworth.estimators.noise import corrected
from langchain_memoryworth.estimators.use import Use
from langchain_memoryworth.records import Namespace, Status
from langchain_memoryworth.statuses import AUTOMATIC

Rank = tuple[float, float, float]
"""Weights of (similarity, worth, recency) in the ranking."""


class Quarantine(BaseModel):
    """Which new memories wait in quarantine, and what releases them.

    In quarantine a memory is shown at most at the exploration rate, whatever its rank. So without exploration only a person
    releases it.

    Examples:
        >>> rule = Quarantine(trusted=("crm",))
        >>> rule.trusts({"source": "crm"}), rule.trusts({"source": "web"}), rule.trusts({})
        (True, False, False)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    trusted: tuple[str, ...] = ()
    """Values of the metadata `key` that are served at once."""
    key: str = "source"
    """The metadata key that says where a memory comes from."""
    outcomes: int = Field(default=3, ge=1)
    """Settled episodes with the memory in front of the model that release it, at a worth that is not LOW."""
    sources: int = Field(default=1, ge=1)
    """Distinct sources of outcomes among those episodes: one voice, however loud, does not count as several."""

    def trusts(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a memory with this metadata is served at once."""
        return metadata.get(self.key) in self.trusted


TOLERANCE = 5e-7
"""How far a worth may be beyond a threshold and still count as on it: thirds in fixed point are off by 1e-10, and 4
successes of 10 are not below 0.4 because of that."""


class Policy(BaseModel):
    """Thresholds and rules, frozen and validated. Stored with the database, so that all processes agree.

    Examples:
        >>> policy = Policy(theta_low=0.3)
        >>> lost = Evidence(2 * UNIT, 18 * UNIT, 20 * UNIT, 20 * UNIT, 20, surprise=-9 * UNIT)
        >>> lost.worth, lost.expectation, policy.verdict(lost)
        (0.1, 0.55, <Verdict.LOW: 'low'>)
        >>> policy.verdict(Evidence())
        <Verdict.UNCERTAIN: 'uncertain'>
        >>> Policy.paper().v_min
        10.0
    """

    # JSON has no infinity: stored, it would come back as null and lock the next process out.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    theta_low: float = Field(default=0.4, ge=0, le=1)
    """A worth below this is LOW, in [0, 1] (Definition 3.2)."""
    theta_high: float = Field(default=0.6, ge=0, le=1)
    """A worth above this is HIGH, in [0, 1] (Definition 3.2)."""
    v_min: float = Field(default=10.0, ge=0)
    """Retrievals below which a memory is UNCERTAIN (Definition 3.2), measured by the effective size."""
    confidence: float | None = Field(default=0.95, ge=0.65, lt=1)
    """How sure a verdict must be: LOW only if P(success rate < theta_low) is at least this, HIGH likewise, see
    `credible.verdict`. None judges by the ratio alone, as the paper does, which hides good memories by chance."""
    flip_rate: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of outcomes that are known to say the opposite of what is true, as those of a judge that errs in one of ten cases:
    then thresholds and bounds are about the success rate without these errors. Worth stays what was counted, and outcomes must
    be success or failure."""
    margin_low: float | None = Field(default=0.2, ge=0, le=1)
    """If set, LOW is also only what lies this far below what was to be expected of its episodes: the base rate of those times,
    and of the context, with the companions. So where tasks are hard, or everything fails for a while, nothing is hidden."""
    harm: float | None = Field(default=0.95, gt=0.5, lt=1)
    """If set, a memory is also suppressed if P(effect < -harm_margin) is at least this: episodes with it succeed less than their
    context and its companions let expect, see `effects`."""
    harm_margin: float = Field(default=0.04, ge=0, le=1)
    """How much a memory must lower the success rate to do harm: effects are relative to what is shown otherwise, so a good one
    among better ones has one slightly below 0."""
    decline: float | None = Field(default=0.99, ge=0.9, lt=1)
    """If set, a memory is also suppressed if the change detector says with this probability that its success rate now, since
    the last change, is below the thresholds, however good it was before: see `drift`."""
    max_suppressed: float = Field(default=0.2, ge=0, le=1)
    """Share of a namespace that the policy may suppress at most, one memory at least; below 1 it suppresses none where there
    are fewer than 20."""
    hysteresis: float = Field(default=0.05, ge=0, le=1)
    """A suppressed memory comes back at a worth of `theta_low + hysteresis`, so that it does not flicker."""
    suppress: bool = True
    """Whether LOW memories are held back by themselves. If False, verdicts are reported and nothing is hidden."""
    exploration: float = Field(default=0.02, ge=0, le=1)
    """Probability per episode that the best suppressed memory takes the last place (assumption A2)."""
    hold_out: float = Field(default=0.0, ge=0, lt=1)
    """Probability per episode with which any memory retrieved is left out of the prompt, the next one in its place, to tell
    cause from association. A trial of the memories in question, `store.hold_out`, finds out more at less cost."""
    credit: CreditName | CreditFunction = "uniform"
    """How an outcome is shared among the memories shown, where nothing says which were used: a name, or a function."""
    credit_half_life: timedelta | None = None
    """Of an episode over several turns: time in which a memory's share falls to one half, counted back from the last
    one shown; None means that all turns count alike."""
    w_min: float = Field(default=0.01, ge=0, le=1)
    """Smallest weight of a memory that was shown (assumption A5)."""
    rank: Rank = (1.0, 0.0, 0.0)
    """Weights of similarity, worth and recency in the ranking; two numbers mean no recency (section 6)."""
    effect_weight: float = Field(default=8.0, ge=0, le=10)
    """Similarity that an effect of 1 would be worth in the ranking, on top of `rank`."""
    effect_reach: float = Field(default=0.3, gt=0, le=2)
    """The most similarity that an effect may cost a memory."""
    effect_lift: float = Field(default=0.1, ge=0, le=2)
    """The most similarity that an effect may buy. Less than it may cost: a memory that fails had better give its place to any
    other, but one that always helps is no answer to a question it is not about."""
    optimism: float = Field(default=0.0, ge=-10, le=10)
    """Standard deviations of its effect that a memory is credited with in the ranking. Above 0 new ones get their chance; below 0
    the lower bound ranks, so that what is known to help comes first."""
    uncertain: Literal["worth", "prior", "pool"] = "prior"
    """What ranks an UNCERTAIN memory: its own ratio, `prior`, or the average of its namespace (Definition 3.2)."""
    prior: Annotated[float, Field(ge=0, le=1)] | Literal["pool"] = 0.5
    """The worth assumed of a memory without evidence, in [0, 1]. With `pool` its namespace says it, and verdicts begin with what
    it says and not with a flat prior: see `store.learn_prior`."""
    recency_half_life: timedelta | None = None
    """Age at which recency has fallen to one half; needed where recency is used."""
    min_similarity: float | None = Field(default=None, ge=-1, le=1)
    """Cosine below which nothing is served, whatever its worth."""
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
    quarantine: Quarantine | None = None
    """Which new memories wait until outcomes speak for them; None means that none does."""
    ttl: tuple[tuple[Namespace, timedelta], ...] = ()
    """Time to live of a namespace and those below it, counted from when a memory was last stored; the longest name that
    fits counts. May be given as a mapping. Checked on every read."""
    pending_age: timedelta = timedelta(days=30)
    """Age at which a run without an outcome is no longer counted as pending; it never becomes a failure."""
    seed: int = 0
    """Of the draws for exploration; the same episode and seed always draw the same."""

    _pool: credible.Prior = PrivateAttr(default=credible.PRIOR)

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

    @field_validator("rank", mode="before")
    @classmethod
    def _three_weights(cls, value: Any) -> Any:
        return (*value, 0.0) if isinstance(value, (tuple, list)) and len(value) == 2 else value

    @field_validator("rank")
    @classmethod
    def _usable_weights(cls, value: Rank) -> Rank:
        if not all(np.isfinite(w) and w >= 0 for w in value) or not any(value):
            raise ValueError(
                f"rank weights must be finite, not negative and not all 0, got {value}"
            )
        return value

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

    def informed(self, pool: credible.Prior) -> Self:
        """The same policy, knowing the prior of a pool; it is no part of what is stored or compared as JSON.

        Examples:
            >>> good_pool = Policy(prior="pool").informed((8.0, 2.0))
            >>> round(good_pool.belief(Evidence()).mean, 2), good_pool.fallback_worth(0, 0)
            (0.8, 0.8)
        """
        known = self.model_copy()
        known._pool = pool  # noqa: SLF001
        return known

    # -- verdicts ---------------------------------------------------------------------------------------------

    def belief(self, evidence: Evidence, *, level: float = 0.9) -> credible.Belief:
        """The posterior of the success rate behind the evidence, see `credible.belief`."""
        return credible.belief(evidence, level=level, prior=self._pool, flip=self.flip_rate)

    def always(self, evidence: Evidence) -> tuple[float, float]:
        """Bounds of the success rate that are right at all times at once, however often one looks: with 95 %.

        Examples:
            >>> one_of_five = Evidence(10 * UNIT, 40 * UNIT, 50 * UNIT, 50 * UNIT, 50)
            >>> [round(bound, 2) for bound in Policy().always(one_of_five)]
            [0.07, 0.41]
        """
        low, high = confidence_sequence(evidence.worth, max(0.0, evidence.effective_size))
        return float(corrected(low, self.flip_rate)), float(corrected(high, self.flip_rate))

    def rate(self, evidence: Evidence) -> float:
        """Worth as it is held against thresholds: without flipped labels, where their share is known.

        Examples:
            >>> seen = Evidence(35 * UNIT, 65 * UNIT, 100 * UNIT, 100 * UNIT, 100)
            >>> Policy().rate(seen), round(Policy(flip_rate=0.3).rate(seen), 3)
            (0.35, 0.125)
        """
        return (
            float(corrected(evidence.worth, self.flip_rate)) if self.flip_rate else evidence.worth
        )

    def verdict(self, evidence: Evidence) -> Verdict:
        """The taxonomy for one memory (Definition 3.2), by `confidence` if that is set."""
        low = self._low(evidence)
        if self.confidence is not None:
            return self._by_bounds(evidence.worth, evidence.effective_size, low)
        if evidence.effective_size < self.v_min:
            return Verdict.UNCERTAIN
        ratio = self.rate(evidence)
        if ratio > self.theta_high + TOLERANCE:
            return Verdict.HIGH
        return Verdict.LOW if ratio < low - TOLERANCE else Verdict.MIXED

    def _by_bounds(self, ratio: float, size: float, low: float | None = None) -> Verdict:
        return credible.verdict(
            ratio,
            size,
            theta_low=self.theta_low if low is None else low,
            theta_high=self.theta_high,
            confidence=self.confidence or 0.0,
            v_min=self.v_min,
            prior=self._pool,
            flip=self.flip_rate,
        )

    def _low(self, evidence: Evidence) -> float:
        if self.margin_low is None:
            return self.theta_low
        expected = evidence.expectation
        if self.flip_rate:
            expected = float(corrected(expected, self.flip_rate))
        return float(low_threshold(self.theta_low, expected, margin_low=self.margin_low))

    def verdicts(
        self, ratio: NDArray[np.floating], volume: NDArray[np.floating]
    ) -> NDArray[np.str_]:
        """The taxonomy for arrays.

        Args:
            ratio: Worth in [0, 1], shape (n,).
            volume: Effective sizes in retrievals, shape (n,).

        Returns:
            Values of `Verdict`, shape (n,).

        Examples:
            >>> Policy().verdicts(np.array([0.2, 0.4, 0.9]), np.array([50.0, 50.0, 3.0])).tolist()
            ['low', 'uncertain', 'uncertain']
        """
        if self.confidence is not None and self.flip_rate:
            pairs = zip(ratio.tolist(), volume.tolist(), strict=True)
            return np.array([self._by_bounds(r, n).value for r, n in pairs], dtype=np.str_)
        if self.confidence is not None:
            return credible.verdicts(
                credible.Posterior(ratio, volume, self._pool),
                volume,
                theta_low=self.theta_low,
                theta_high=self.theta_high,
                confidence=self.confidence,
                v_min=self.v_min,
            )
        ratio = corrected(ratio, self.flip_rate)
        return np.select(
            [
                volume < self.v_min,
                ratio > self.theta_high + TOLERANCE,
                ratio < self.theta_low - TOLERANCE,
            ],
            [Verdict.UNCERTAIN.value, Verdict.HIGH.value, Verdict.LOW.value],
            default=Verdict.MIXED.value,
        )

    def life(self, namespace: Namespace) -> timedelta | None:
        """How long memories of a namespace live by its rule; None means for ever.

        Examples:
            >>> policy = Policy(ttl={("acme",): timedelta(days=30), ("acme", "chat"): timedelta(days=1)})
            >>> policy.life(("acme", "chat", "ada")).days, policy.life(("acme",)).days, policy.life(("acme-corp",))
            (1, 30, None)
        """
        fitting = [(n, life) for n, life in self.ttl if namespace[: len(n)] == n]
        return max(fitting, key=lambda pair: len(pair[0]))[1] if fitting else None

    def enough(self, evidence: Evidence) -> bool:
        """Whether evidence may release a memory from quarantine, if it comes from enough sources."""
        rule = self.quarantine
        back = min(self.theta_low + self.hysteresis, 1.0) - TOLERANCE
        if rule is None:
            return True
        return evidence.retrievals >= rule.outcomes and self.rate(evidence) >= back

    def next_status(
        self,
        status: Status,
        evidence: Evidence,
        *,
        sources: int = 0,
        declined: bool = False,
    ) -> Status:
        """The status that follows from the evidence since the last restore.

        A person's word stays. An UNCERTAIN memory is never suppressed for its worth. A suppressed one comes back above the
        hysteresis, one in quarantine with enough outcomes of enough sources.

        Args:
            status: The status now.
            evidence: The counters since the last restore.
            sources: How many spoke of it since, for quarantine.
            declined: What the change detector says, see `decline`.
        """
        if status not in AUTOMATIC:
            return status
        harmless = not declined and (self.harm is None or evidence.surprise >= 0)
        # Where it is above 1/2, the flat prior may be what keeps a posterior below it, see `credible.is_below`; that of a
        # pool may anywhere. With flipped labels the density that is cut still has more above the ratio than below it.
        flat = self.theta_low <= 0.5 and self._pool == credible.PRIOR
        by_ratio = self.confidence is None or flat
        if (
            status is Status.ACTIVE
            and harmless
            and by_ratio
            and self.rate(evidence) >= self.theta_low
        ):
            return status  # the usual case, and the cheapest to see
        if status is Status.QUARANTINED:
            released = self.quarantine is None or sources >= self.quarantine.sources
            return Status.ACTIVE if released and self.enough(evidence) else status
        if not self.suppress:
            return Status.ACTIVE
        if status is Status.ACTIVE:
            low = self._is_low(evidence)
            bad = low or declined or self._harms(evidence, 0.0)
            return Status.SUPPRESSED if bad else status
        stays = declined or self._stays_low(evidence) or self._harms(evidence, self.hysteresis)
        return status if stays else Status.ACTIVE

    def _is_low(self, evidence: Evidence) -> bool:
        """Whether `verdict` says LOW, without finding out what else it would say."""
        if self.confidence is None:
            return self.verdict(evidence) is Verdict.LOW
        return self._surely_low(evidence, self.confidence)

    def _surely_low(self, evidence: Evidence, confidence: float) -> bool:
        if evidence.effective_size < self.v_min:
            return False
        a, b = credible.parameters(evidence.worth, evidence.effective_size, self._pool)
        return credible.is_below(self._low(evidence), a, b, confidence, flip=self.flip_rate)

    def reason(self, evidence: Evidence) -> str:
        """The numbers that a status was judged by, in words."""
        words = f"worth {evidence.worth:.3f} over {evidence.effective_size:g} retrievals"
        rules = f"theta_low {self._low(evidence):g}, v_min {self.v_min:g}"
        if self.confidence is not None:
            rules += f", confidence {self.confidence:g}"
        if self.flip_rate:
            words += f" ({self.rate(evidence):.3f} without flipped outcomes)"
            rules += f", flip_rate {self.flip_rate:g}"
        if self.prior == "pool":
            rules += f", prior {self._pool[0]:.2f} to {self._pool[1]:.2f}"
        if self.harm is not None:
            shift = effect_of(evidence.surprise, evidence.size)
            words += f", effect {shift:+.3f}"
            rules += f", harm {self.harm:g}"
        return f"{words}, {rules}"

    def _stays_low(self, evidence: Evidence) -> bool:
        """Whether a memory that is suppressed is not far enough above the threshold to come back."""
        if self.confidence is not None:
            return self._surely_low(evidence, max(0.5, self.confidence - self.hysteresis))
        verdict = self.verdict(evidence)
        if verdict is Verdict.MIXED:
            return self.rate(evidence) < min(self._low(evidence) + self.hysteresis, 1.0) - TOLERANCE
        return verdict is Verdict.LOW

    def _harms(self, evidence: Evidence, hysteresis: float) -> bool:
        if self.harm is None or evidence.surprise >= 0:
            return False
        mean = effect_of(evidence.surprise, evidence.size)
        confidence = max(0.5, self.harm - hysteresis)
        spread = math.sqrt(NOISE / (evidence.size / UNIT + STRENGTH))
        margin = self.harm_margin * (
            1 - 2 * self.flip_rate
        )  # flipped labels shrink what is seen of an effect
        return mean <= -margin - NormalDist().inv_cdf(confidence) * spread

    def with_rank(self, rank: Sequence[float]) -> Self:
        """The same policy with other ranking weights, checked like the policy's own."""
        return self.model_validate({**self.__dict__, "rank": tuple(rank)})

    # -- ranking ----------------------------------------------------------------------------------------------

    def rank_terms(
        self,
        positive: NDArray[np.int64],
        negative: NDArray[np.int64],
        size: NDArray[np.int64],
        squared: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What the ranking needs of each memory, apart from the weights of a query.

        Splitting the worth in two lets the value of an UNCERTAIN memory move with the pool without touching its row.

        Args:
            positive: hits+ in units of 2**-32, int64, shape (n,).
            negative: hits-, likewise.
            size: n, likewise.
            squared: Sum of squared weights, likewise.

        Returns:
            (worth, or 0 where uncertain; 1 where the fallback of `fallback_worth` applies), float64 of shape (n,).
        """
        ratio = worth(positive, negative)
        if self.uncertain == "worth":
            return ratio, np.zeros_like(ratio)
        total = (positive + negative) / UNIT
        volume = effective_size(size / UNIT, total, squared / UNIT)
        uncertain = volume < self.v_min
        return np.where(uncertain, 0.0, ratio), uncertain.astype(np.float64)

    def bonus(self, surprise: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.float64]:
        """What `effect_weight` is put on: effect + optimism * its deviation, so an upper or a lower bound of the effect.

        Args:
            surprise: Sum of surprises in units of 2**-32, int64, shape (n,).
            size: n, likewise.

        References:
            Auer, Cesa-Bianchi, Fischer (2002), Machine Learning 47: optimism in the face of uncertainty.

        Examples:
            >>> policy = Policy(effect_weight=1.0, optimism=1.0)
            >>> unknown_and_harmful = np.array([0, -8 * UNIT]), np.array([0, 16 * UNIT])
            >>> policy.bonus(*unknown_and_harmful).round(3).tolist()
            [0.062, -0.044]
            >>> Policy(effect_weight=1.0, optimism=-1.0).bonus(*unknown_and_harmful).round(3).tolist()
            [-0.062, -0.156]
        """
        coordinates = effect_coordinates(
            surprise / UNIT,
            size / UNIT,
            least=-self._effect(self.effect_reach),
            most=self._effect(self.effect_lift),
        )
        weights = effect_query(1.0, optimism=self.optimism)
        return np.asarray(coordinates @ weights, dtype=np.float64)

    def _effect(self, similarity: float) -> float:
        """The effect that is worth so much similarity; what has no weight cannot be bought."""
        return similarity / self.effect_weight if self.effect_weight else 1.0

    def fallback_worth(self, positive: float, total: float) -> float:
        """The worth that stands in for UNCERTAIN memories.

        Args:
            positive: hits+ of the namespace, all memories.
            total: hits+ + hits- of the namespace, same unit.
        """
        if self.uncertain == "pool" and total > 0:
            return positive / total
        if self.prior == "pool":
            return self._pool[0] / sum(self._pool)
        return self.prior

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
