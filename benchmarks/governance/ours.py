"""Ours as the worlds play it: a `Policy` decides, the base rates and effects are those of the ledger, for all seeds at once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from benchmarks.governance.recent import Recent
from benchmarks.governance.rules import Rule
from benchmarks.governance.world import Counts, Flags, Floats, Step
from langchain_memoryworth.estimators import drift
from langchain_memoryworth.estimators.effects import effect
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Status


class Ours(Rule):
    """Similarity and effect rank, `Policy.next_status` hides, exploration shows again.

    Attributes:
        policy: What decides.
        by_context: Whether base rates are those of the contexts.
        half_life: Outcomes of a memory after which its effect's evidence counts half; None as in the ledger, which never forgets.
    """

    policy: ClassVar[Policy] = Policy()
    by_context: ClassVar[bool] = True
    half_life: ClassVar[float | None] = None

    def start(self) -> None:
        self.probation = self.policy.exploration
        seeds, contexts = self.shape[0], self.world.scenario.topics if self.by_context else 1
        self.surprise, self.weight = np.zeros(self.shape), np.zeros(self.shape)
        self.rates, self.all_rates = Recent(seeds, contexts), Recent(seeds, 1)
        self.detectors = drift.fresh(self.hidden.size).reshape(
            *self.shape, *drift.fresh(1).shape[1:]
        )

    def score(self, step: Step) -> Floats:
        surprise, size = (np.rint(UNIT * v) for v in (self.surprise, self.weight))
        bonus = self.policy.bonus(surprise.ravel(), size.ravel()).reshape(self.shape)
        return np.asarray(step.similarity + self.policy.effect_weight * bonus)

    def learn(self, step: Step, shown: Counts, size: Floats, reward: Floats) -> None:
        super().learn(step, shown, size, reward)
        rows = self.rows
        context = step.context if self.by_context else np.zeros_like(step.context)
        base = self.rates.of(context, parent=self.all_rates.of(np.zeros_like(context), parent=0.5))
        own = size * effect(self.surprise[rows, shown], self.weight[rows, shown])
        expected = (base[:, None] + own.sum(axis=1, keepdims=True) - own).clip(0, 1)
        fade = 1.0 if self.half_life is None else 0.5 ** (size / self.half_life)
        met = size * (reward[:, None] - expected)
        self.surprise[rows, shown] = fade * self.surprise[rows, shown] + met
        self.weight[rows, shown] = fade * self.weight[rows, shown] + size
        self.rates.learn(context, reward)
        self.all_rates.learn(np.zeros_like(context), reward)
        declined = self._declined(step.time, shown, size, reward, expected)
        self.hidden[rows, shown] = self._judged(shown, declined)

    def _declined(
        self, time: int, shown: Counts, size: Floats, reward: Floats, expected: Floats
    ) -> Flags:
        if self.policy.decline is None:
            return np.zeros(shown.shape, dtype=bool)
        states = drift.update(
            self.detectors[self.rows, shown].reshape(shown.size, *self.detectors.shape[2:]),
            np.repeat(reward, shown.shape[1]),
            at=time + 1,
            size=size.ravel(),
            expected=expected.ravel(),
        )
        self.detectors[self.rows, shown] = states.reshape(*shown.shape, *states.shape[1:])
        p, hidden = self.policy, self.hidden[self.rows, shown].ravel()
        flags = np.zeros(shown.size, dtype=bool)
        for held in (False, True):
            some = np.nonzero(hidden == held)[0]
            sure = p.decline - held * p.hysteresis
            flags[some] = drift.declined(
                states[some], theta=p.theta_low, margin=p.margin_low, confidence=sure
            )
        return flags.reshape(shown.shape)

    def _judged(self, shown: Counts, declined: Flags) -> Flags:
        columns = (self.hits, self.count, self.surprise, self.weight, self.hidden)
        found = zip(
            *(c[self.rows, shown].ravel().tolist() for c in columns),
            declined.ravel().tolist(),
            strict=True,
        )
        status = {False: Status.ACTIVE, True: Status.SUPPRESSED}
        judged = [
            self.policy.next_status(status[held], evidence(*counters), declined=bad)
            is Status.SUPPRESSED
            for *counters, held, bad in found
        ]
        return np.array(judged).reshape(shown.shape)


def evidence(hits: float, count: float, surprise: float, weight: float) -> Evidence:
    """The counters of a memory that was alone, which have the same ratio and size as those of one that shared."""
    good, all_, size = (round(UNIT * v) for v in (hits, count, weight))
    return Evidence(good, all_ - good, size, size, size // UNIT, round(UNIT * surprise))


def ours(policy: Policy, *, by_context: bool = True, half_life: float | None = None) -> type[Ours]:
    """Our rule under another policy."""
    return type(
        "Ours", (Ours,), {"policy": policy, "by_context": by_context, "half_life": half_life}
    )
