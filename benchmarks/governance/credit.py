"""Credit by use in the stream of facts: the reader uses the first of three memories, and the rules know more or less of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from benchmarks.governance.facts import Facts, build_facts
from benchmarks.governance.ours import ours
from benchmarks.governance.play import SCENARIOS, play
from benchmarks.governance.rules import Blend, Oracle, Paper, Rule, Truth
from benchmarks.governance.world import Counts, Floats, Step
from langchain_memoryworth.estimators import credit
from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.policy import Policy

RULES: dict[str, type[Rule]] = {
    "plain similarity": Rule,
    "paper: suppression": Paper,
    "paper: blend": Blend,
    "**ours**": ours(Policy()),
    "oracle": Oracle,
}


class Way(NamedTuple):
    """A way to share an outcome.

    Attributes:
        rule: Key of `credit.CreditName`, for episodes in which it is not known what was used.
        known: Share of the episodes in which it is known.
        wrong: Share of these in which another memory is named.
    """

    rule: credit.CreditName = "uniform"
    known: float = 0.0
    wrong: float = 0.0


WAYS = {
    "equal": Way(),
    "1/(1 + place)": Way("reciprocal_rank"),
    "named in half of the answers, else equal": Way(known=0.5),
    "named in all, wrongly in 2 of 10": Way(known=1.0, wrong=0.2),
    "the one used": Way("first"),
}


@dataclass(frozen=True, slots=True)
class Shared(Facts):
    """The stream of facts with another credit; what is shown and what comes of it is the same."""

    way: Way = WAYS["equal"]

    def chance_of(self, step: Step, shown: Counts) -> tuple[Floats, Floats]:
        """Success probability, and the part that each memory shown has in the evidence."""
        chance, used = Facts.chance_of(self, step, shown)
        k = shown.shape[1]
        sizes = np.tile(_sizes(self.way.rule, k), (len(shown), 1))
        rng = np.random.default_rng(step.time)
        known, wrong = rng.random((2, len(shown)))
        named = np.where((wrong < self.way.wrong)[:, None], np.roll(used, 1, axis=1), used)
        return chance, np.where((known < self.way.known)[:, None], named, sizes)


def _sizes(rule: credit.CreditName, k: int) -> Floats:
    shown = [credit.Shown(str(rank), rank, None, None) for rank in range(k)]  # type: ignore[arg-type]
    shares = credit.settle(shown, 1.0, rule=rule, w_min=0.0)
    return np.array([c.size / UNIT for c in shares])


def successes(
    seeds: int, episodes: int, rules: Mapping[str, type[Rule]] = RULES
) -> list[tuple[str, str, float, float]]:
    """Rule, way, mean success probability and its standard error over the seeds."""
    scenario = replace(next(s for s in SCENARIOS if s.name == "facts"), episodes=episodes)
    facts = build_facts(scenario, seeds)
    drawn = {f.name: getattr(facts, f.name) for f in fields(Facts)}
    found = []
    for rule, make in rules.items():
        for name, way in WAYS.items():
            success = _success(Shared(**drawn, way=way), make)
            found.append((rule, name, float(success.mean()), _error(success)))
            if make in (Rule, Oracle):  # they learn nothing
                break
    return found


def _success(world: Truth, make: Callable[[Truth], Rule]) -> Floats:
    return np.asarray(play(world, make).success.mean(axis=0))


def _error(values: Floats) -> float:
    return float(values.std() / len(values) ** 0.5)
