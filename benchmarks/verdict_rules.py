"""How often a rule hides a good memory by chance, and how soon a bad one: exactly, by the chain of all outcomes.

A rule looks after every outcome. `ever LOW` is within 1,000 outcomes of a memory with that true success rate. The pools:
good ones have true rates uniform on (.6, 1), bad ones on (0, .3), and 400 outcomes; `flipped`: three of ten labels are
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.absorbing_chain import boundary, ever, median
from benchmarks.tables import arguments, show, table
from langchain_memoryworth import Policy, Status
from langchain_memoryworth.estimators.anytime import log_evidence, v_min_for
from langchain_memoryworth.estimators.credible import PRIOR, Prior
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.estimators.noise import observed_rate
from langchain_memoryworth.estimators.prior import prior_of_pool

COMMAND = "benchmarks.verdict_rules"
THETA = 0.4
FLIP = 0.3
_SHORT = 400
Rule = Callable[[int, int], bool]


class Named(NamedTuple):
    """A rule and what it is called."""

    name: str
    low: Rule


def ratio(v_min: int, theta: float = THETA) -> Rule:
    """The paper's Definition 3.2."""
    return lambda s, n: n >= v_min and s < theta * n - 1e-9


def bounds(v_min: int, prior: Prior = PRIOR, flip: float = 0.0) -> Rule:
    """P(p < theta) >= .95, by a policy that decides by nothing else."""
    judge = Policy.paper(theta_low=THETA, v_min=v_min, confidence=0.95, prior=prior, flip_rate=flip)

    def low(s: int, n: int) -> bool:
        counted = Evidence(s * UNIT, (n - s) * UNIT, n * UNIT, n * UNIT, n)
        return n > 0 and judge.next_status(Status.ACTIVE, counted) is Status.SUPPRESSED

    return low


def sequence(s: int, n: int) -> bool:
    """The confidence sequence at .05 lies below the threshold."""
    below = n > 0 and s < THETA * n
    return below and float(log_evidence(THETA, s / n, n)) >= -np.log(0.05)


def pool_prior(a: float, b: float) -> Prior:
    """The prior that a pool of 300 memories with rates from Beta(a, b) leads to."""
    rng = np.random.default_rng(1)
    n = rng.integers(1, 60, 300)
    return prior_of_pool(rng.binomial(n, rng.beta(a, b, 300)) / n, n)


def rules() -> list[Named]:
    """All rules of the table."""
    named = [
        Named("ratio < .35, V_min 5", ratio(5, 0.35)),
        Named("the paper: ratio < .40, V_min 10", ratio(10)),
        Named(
            f"ratio, V_min {v_min_for(THETA, 0.6)} from Ville's bound", ratio(v_min_for(THETA, 0.6))
        ),
        Named("bounds, flat prior", bounds(0)),
        Named("bounds, flat prior, V_min 10", bounds(10)),
    ]
    for a, b in ((1, 1), (3, 2), (8, 2)):
        prior = pool_prior(a, b)
        name = f"bounds, prior ({prior[0]:.1f}, {prior[1]:.1f}) of a pool from Beta({a}, {b}), V_min 10"
        named.append(Named(name, bounds(10, prior)))
    return [
        *named,
        Named("confidence sequence, .05", sequence),
        Named("bounds, flip rate .3 known, V_min 10", bounds(10, flip=FLIP)),
    ]


def share(most: list[int], low: float, high: float, flip: float) -> float:
    """Share ever hidden of memories whose true rate is uniform on (low, high)."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    p = (low + high) / 2 + (high - low) / 2 * nodes
    return float(weights @ [ever(most, float(observed_rate(x, flip)))[-1] for x in p]) / 2


def row(rule: Named, outcomes: int) -> list[str]:
    """One line of the table."""
    most = boundary(rule.low, outcomes)
    short = most[: _SHORT + 1]
    at_2 = ever(most, 0.2)
    return [
        rule.name,
        *(f"{ever(most, p)[-1]:.2%}" for p in (0.5, 0.6, 0.7)),
        str(median(at_2)) if at_2[-1] >= 0.5 else "never",
        f"{share(short, 0.6, 1.0, 0.0):.2%}",
        f"{share(short, 0.6, 1.0, FLIP):.2%}",
        f"{share(short, 0.0, 0.3, 0.0):.2%}",
        f"{share(short, 0.0, 0.3, FLIP):.2%}",
    ]


def text(*, quick: bool) -> str:
    """The whole table."""
    header = ["rule", "ever LOW at .5", "at .6", "at .7", "median at .2"]
    header += ["good pool hidden", "flipped", "bad pool caught", "flipped"]
    return table(header, [row(rule, 50 if quick else 1_000) for rule in rules()])


if __name__ == "__main__":
    options = arguments(COMMAND, __doc__)
    show(COMMAND, text(quick=options.quick), options)
