"""From evidence to a verdict, and from a verdict to a status. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import NormalDist
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

from langchain_memoryworth.estimators import credible
from langchain_memoryworth.estimators.anytime import confidence_sequence
from langchain_memoryworth.estimators.base_rates import LEAST, low_threshold
from langchain_memoryworth.estimators.effects import NOISE, STRENGTH, effect_of
from langchain_memoryworth.estimators.evidence import UNIT, Evidence, Verdict
from langchain_memoryworth.estimators.noise import binary, corrected
from langchain_memoryworth.records import Status
from langchain_memoryworth.statuses import AUTOMATIC


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


Beta = tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]
"""Successes and failures, each above 0."""

TOLERANCE = 5e-7
"""How far a worth may be beyond a threshold and still count as on it: thirds in fixed point are off by 1e-10, and 4
successes of 10 are not below 0.4 because of that."""


class Thresholds(BaseModel):
    """What is LOW, and what that leads to."""

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
    prior: Annotated[float, Field(ge=0, le=1)] | Beta | Literal["pool"] = 0.5
    """The worth assumed of a memory without evidence, in [0, 1]. Verdicts begin with a flat prior then; with two numbers they begin
    with so many successes and failures, and with `pool` its namespace says how many: see `store.learn_prior`."""
    quarantine: Quarantine | None = None
    """Which new memories wait until outcomes speak for them; None means that none does."""

    def informed(self, pool: credible.Prior) -> Self:
        """The same policy, knowing the prior of a pool.

        Examples:
            >>> good_pool = Thresholds(prior="pool").informed((8.0, 2.0))
            >>> round(good_pool.belief(Evidence()).mean, 2)
            0.8
        """
        return self.model_copy(update={"prior": pool})

    @property
    def beta(self) -> credible.Prior:
        """The successes and failures that verdicts begin with."""
        return self.prior if isinstance(self.prior, tuple) else credible.PRIOR

    def belief(self, evidence: Evidence, *, level: float = 0.9) -> credible.Belief:
        """The posterior of the success rate behind the evidence, see `credible.belief`."""
        return credible.belief(evidence, level=level, prior=self.beta, flip=self.flip_rate)

    def check_labels(self, rewards: Iterable[float | None]) -> None:
        """Refuse graded rewards where a share of outcomes is known to be the wrong way round: a grade has no other way round.

        Raises:
            InvalidOutcomeError: If `flip_rate` is set and one of them is neither 0 nor 1.
        """
        if self.flip_rate:
            binary([reward for reward in rewards if reward is not None])

    def always(self, evidence: Evidence) -> tuple[float, float]:
        """Bounds of the success rate that are right at all times at once, however often one looks: with 95 %.

        Examples:
            >>> one_of_five = Evidence(10 * UNIT, 40 * UNIT, 50 * UNIT, 50 * UNIT, 50)
            >>> [round(bound, 2) for bound in Thresholds().always(one_of_five)]
            [0.07, 0.41]
        """
        low, high = confidence_sequence(evidence.worth, max(0.0, evidence.effective_size))
        return float(corrected(low, self.flip_rate)), float(corrected(high, self.flip_rate))

    def rate(self, evidence: Evidence) -> float:
        """Worth as it is held against thresholds: without flipped labels, where their share is known.

        Examples:
            >>> seen = Evidence(35 * UNIT, 65 * UNIT, 100 * UNIT, 100 * UNIT, 100)
            >>> Thresholds().rate(seen), round(Thresholds(flip_rate=0.3).rate(seen), 3)
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
            prior=self.beta,
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
            >>> Thresholds().verdicts(np.array([0.2, 0.4, 0.9]), np.array([50.0, 50.0, 3.0])).tolist()
            ['low', 'uncertain', 'uncertain']
        """
        if self.confidence is not None and self.flip_rate:
            pairs = zip(ratio.tolist(), volume.tolist(), strict=True)
            return np.array([self._by_bounds(r, n).value for r, n in pairs], dtype=np.str_)
        if self.confidence is not None:
            return credible.verdicts(
                credible.Posterior(ratio, volume, self.beta),
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
        flat = self.theta_low <= 0.5 and not isinstance(self.prior, tuple)
        by_ratio = self.confidence is None or flat
        seen = self.rate(evidence) if self.flip_rate else evidence.worth
        above = by_ratio and seen >= self.theta_low
        if status is Status.ACTIVE and harmless and above:
            return status  # the usual case, and the cheapest to see
        if status is Status.QUARANTINED:
            released = self.quarantine is None or sources >= self.quarantine.sources
            return Status.ACTIVE if released and self.enough(evidence) else status
        if not self.suppress:
            return Status.ACTIVE
        if status is Status.ACTIVE:
            low = not above and self._is_low(evidence)
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
        a, b = credible.parameters(evidence.worth, evidence.effective_size, self.beta)
        return credible.is_below(self._low(evidence), a, b, confidence, flip=self.flip_rate)

    def in_words(self) -> str:
        """What the policy holds back, for people.

        Examples:
            >>> print(Thresholds(confidence=None, margin_low=None, harm=None, decline=None, max_suppressed=1).in_words())
            suppressed is what is below 0.4 from 10 retrievals on
            >>> print(Thresholds(harm=None, decline=None).in_words())
            suppressed is what is 95% surely below 0.4 from 10 retrievals on, and 0.2 below what was to be expected; at most 20% of a namespace, and nothing where there are fewer than 20 memories
        """
        if not self.suppress:
            return "nothing is suppressed by the numbers"
        sure = "" if self.confidence is None else f"{self.confidence:.0%} surely "
        words = f"suppressed is what is {sure}below {self.theta_low:g} from {self.v_min:g} retrievals on"
        if self.margin_low is not None:
            words += f", and {self.margin_low:g} below what was to be expected"
        if self.harm is not None:
            words += f"; or {self.harm:.0%} surely lowers success by {self.harm_margin:g} or more"
        if self.decline is not None:
            words += f"; or is {self.decline:.0%} surely below since a change"
        if self.max_suppressed < 1:
            words += f"; at most {self.max_suppressed:.0%} of a namespace, and nothing where there are fewer than {LEAST} memories"
        return words

    def reason(self, evidence: Evidence) -> str:
        """The numbers that a status was judged by, in words."""
        words = f"worth {evidence.worth:.3f} over {evidence.effective_size:g} retrievals"
        rules = f"theta_low {self._low(evidence):g}, v_min {self.v_min:g}"
        if self.confidence is not None:
            rules += f", confidence {self.confidence:g}"
        if self.flip_rate:
            words += f" ({self.rate(evidence):.3f} without flipped outcomes)"
            rules += f", flip_rate {self.flip_rate:g}"
        if isinstance(self.prior, tuple):
            rules += f", prior {self.prior[0]:.2f} to {self.prior[1]:.2f}"
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
        # Flipped labels shrink what is seen of an effect.
        margin = self.harm_margin * (1 - 2 * self.flip_rate)
        if mean > -margin:
            return False  # as nearly always, and before a quantile is asked for
        confidence = max(0.5, self.harm - hysteresis)
        spread = math.sqrt(NOISE / (evidence.size / UNIT + STRENGTH))
        return mean <= -margin - NormalDist().inv_cdf(confidence) * spread
