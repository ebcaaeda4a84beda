"""Experiment 3: retrieval follows the worth that it produces (section 5.3.2, Figure 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.estimators.evidence import worth
from langchain_memoryworth.experiments import published
from langchain_memoryworth.experiments.experiment import (
    Comparison,
    Curve,
    Experiment,
    Figure,
    Floats,
    Mark,
    Panel,
    Results,
    Section,
    Table,
    mean_std,
)
from langchain_memoryworth.experiments.simulator import (
    NOISE,
    POOL,
    Counts,
    Flags,
    K,
    accumulate,
    checkpoints,
    spearman,
    uniform_credits,
)

UNIFORM = (0.0, 0.0)
"""The reference: exp(0 * MW) is uniform."""

LOOPS = {"exp(MW/3)": 1 / 3, "exp(3 MW)": 3.0, "exp(10 MW)": 10.0, "exp(30 MW)": 30.0}
"""Both readings of "temperature 3.0", and two loops that collapse: the factor on MW."""

FLOORS = (0.0, 0.05, 0.10)
"""Exploration floors of the paper."""

CELLS = (UNIFORM, *((beta, floor) for beta in LOOPS.values() for floor in FLOORS))
"""(factor, floor) of every policy, all run in one world."""

BLOCK = 500
"""Episodes whose random numbers are drawn at once, to bound the memory."""


@dataclass(frozen=True, slots=True)
class Played:
    """What happened under every policy.

    Attributes:
        shown: Ids, ascending in each set, int64 of shape (C, T, k).
        success: Outcomes, shape (C, T).
        positive: hits+ that the loop itself kept, in units of 2**-32, shape (C, N).
    """

    shown: Counts
    success: Flags
    positive: Counts


def choose(
    ratio: Floats, keys: Floats, factors: Floats, floors: Floats, k: int = K
) -> NDArray[np.intp]:
    """Draw `k` memories one after the other from (1 - eps) softmax(factor * MW) + eps / N.

    Ordering by `Exp(1) / probability` is drawing without replacement in proportion to the
    probabilities.

    Args:
        ratio: Worth of every memory under every policy, shape (C, N).
        keys: Draws from Exp(1), the same for all policies, shape (N,).
        factors: Factor on MW, shape (C, 1).
        floors: eps in [0, 1], shape (C, 1).
        k: Memories to draw.

    Returns:
        Ids, ascending in each row, shape (C, k).

    References:
        Efraimidis and Spirakis (2006), Weighted random sampling with a reservoir.
    """
    weights = np.exp(factors * (ratio - 1.0))  # at most 1, whatever the factor
    weights /= weights.sum(axis=1, keepdims=True)
    chance = (1.0 - floors) * weights + floors / ratio.shape[1]
    return np.sort(np.argpartition(keys / chance, k - 1, axis=1)[:, :k], axis=1)


def play(
    rng: np.random.Generator,
    utility: Floats,
    cells: tuple[tuple[float, float], ...],
    episodes: int,
) -> Played:
    """Run the loop: retrieve by worth, draw the outcome, settle, again.

    Args:
        rng: Source of all draws.
        utility: True utilities, shape (N,).
        cells: (factor, floor) of each policy, C of them.
        episodes: T.
    """
    factors, floors = np.array(cells).T[..., None]
    unit = uniform_credits(K).weight[0]
    row = np.arange(len(cells))[:, None]
    hits = np.zeros((2, len(cells), len(utility)), dtype=np.int64)  # failures, successes
    shown = np.empty((len(cells), episodes, K), dtype=np.int64)
    success = np.empty((len(cells), episodes), dtype=np.bool_)
    for start in range(0, episodes, BLOCK):
        size = min(BLOCK, episodes - start)
        keys = rng.exponential(size=(size, len(utility)))
        noise, luck = NOISE * rng.standard_normal(size), rng.random(size)
        for t in range(size):
            ids = choose(worth(hits[1], hits[0]), keys[t], factors, floors)
            won = luck[t] < utility[ids].mean(axis=1) + noise[t]
            hits[won.astype(np.intp)[:, None], row, ids] += unit
            shown[:, start + t], success[:, start + t] = ids, won
    return Played(shown, success, hits[1])


def simulate(seed: int, episodes: int) -> dict[str, ArrayLike]:
    """One seed: correlation over the episodes and the retrievals of the least shown, per policy."""
    rng = np.random.default_rng(seed)
    utility = rng.random(POOL)
    played = play(rng, utility, CELLS, episodes)
    ends = checkpoints(episodes)
    credit = uniform_credits(K)
    counters = [
        accumulate(shown, success, credit, ends)
        for shown, success in zip(played.shown, played.success, strict=True)
    ]
    return {
        "rho": [spearman(c.worth, utility) for c in counters],
        "least": [c.retrievals[-1].min() for c in counters],
        "never": [(c.retrievals[-1] == 0).sum() for c in counters],
        "success": played.success.mean(axis=1),
    }


def describe(results: Results, episodes: int) -> Section:
    """Figure 3, and where the loop does collapse."""
    return Section(
        setup=_SETUP,
        comparisons=_comparisons(results, episodes),
        figures=(_figure(results, episodes),),
        tables=(_table(results, episodes),),
        notes=_notes(results),
    )


def _index(loop: str, floor: float) -> int:
    return CELLS.index((LOOPS[loop], floor))


def _comparisons(results: Results, episodes: int) -> tuple[Comparison, ...]:
    last = results["rho"][:, :, -1]
    lowest, highest = published.FEEDBACK["softmax"]
    rows = [
        Comparison(
            f"ρ uniform reference @{episodes:,}",
            published.FEEDBACK_UNIFORM,
            last[:, CELLS.index(UNIFORM)],
        )
    ]
    for loop in ("exp(MW/3)", "exp(3 MW)"):
        ours = last[:, [_index(loop, floor) for floor in FLOORS]]
        ours = ours[:, np.argsort(ours.mean(axis=0))]  # by the mean: the paper's range is of means
        rows.append(Comparison(f"ρ {loop}, lowest of the floors", lowest, ours[:, 0]))
        rows.append(Comparison(f"ρ {loop}, highest of the floors", highest, ours[:, -1]))
    return tuple(rows)


def _figure(results: Results, episodes: int) -> Figure:
    x = checkpoints(episodes)
    uniform = Curve("uniform", x, results["rho"][:, CELLS.index(UNIFORM)])

    def panel(title: str, loops: tuple[str, ...], marks: tuple[Mark, ...]) -> Panel:
        curves = [
            Curve(f"{loop}, ε={floor:.2f}", x, results["rho"][:, _index(loop, floor)])
            for loop in loops
            for floor in FLOORS
        ]
        return Panel(title, "Spearman ρ(MW, U*)", (uniform, *curves), marks)

    values = (published.FEEDBACK_UNIFORM, *published.FEEDBACK["softmax"])
    marks = tuple(Mark(10_000, value.value) for value in values)
    return Figure(
        "figure3",
        "Retrieval that follows worth. Left: the published regime, in both readings of the "
        "temperature. Right: steeper policies, where the loop starves memories and the floor "
        "repairs part of it.",
        (
            panel("As published", ("exp(MW/3)", "exp(3 MW)"), marks),
            panel("Where the loop collapses", ("exp(10 MW)", "exp(30 MW)"), ()),
        ),
    )


def _table(results: Results, episodes: int) -> Table:
    rows = []
    for index, (beta, floor) in enumerate(CELLS):
        name = next((loop for loop, factor in LOOPS.items() if factor == beta), "uniform")
        rho, least, never, success = (
            results["rho"][:, index, -1],
            results["least"][:, index],
            results["never"][:, index],
            results["success"][:, index],
        )
        rows.append(
            (
                name,
                f"{floor:.2f}",
                mean_std(rho),
                f"{least.mean():.1f}",
                f"{never.mean():.1f}",
                f"{success.mean():.3f}",
            )
        )
    header = ("retrieval", "ε", f"ρ @{episodes:,}", "retrievals of the least shown")
    return Table(
        "Every policy: correlation, starvation, and what the steering earns",
        (*header, "memories never shown", "success rate"),
        tuple(rows),
    )


def _notes(results: Results) -> tuple[str, ...]:
    last = results["rho"][:, :, -1].mean(axis=0)
    cell = {
        f"{name}_{int(100 * floor)}": last[_index(loop, floor)]
        for name, loop in {"ten": "exp(10 MW)", "thirty": "exp(30 MW)"}.items()
        for floor in FLOORS
    }
    least = results["least"][:, _index("exp(30 MW)", 0.0)].mean()
    return (_COLLAPSE.format(cell=cell, least=least), _CONTRADICTION)


_SETUP = """\
The world of Experiment 1; the k = 8 memories are drawn one after the other without replacement from
(1 - ε) softmax(b·MW) + ε/N. A softmax of temperature 3.0 is exp(MW/3); exp(3 MW) is shown as the
other reading. MW lies between .4 and .6 for most memories, so exp(MW/3) is within a few percent of
uniform: the published regime hardly has a feedback loop."""

_COLLAPSE = """\
**The loop does collapse, where it is steep.** The paper calls this untested. exp(10 MW) without a
floor ends at {cell[ten_0]:.2f}, exp(30 MW) at {cell[thirty_0]:.2f}, with {least:.1f} retrievals of
the least shown memory: one early failure and it is never drawn again. The floor repairs part of it:
exp(10 MW) {cell[ten_5]:.2f} at ε = .05 and {cell[ten_10]:.2f} at .10; exp(30 MW)
{cell[thirty_5]:.2f} and {cell[thirty_10]:.2f}. (A2) is therefore a requirement, not a formality,
and "self-correcting" is true of memories that are still being retrieved: a high MW comes down with
failures, a low one cannot come up without a retrieval."""

_CONTRADICTION = """\
The text of section 5.3.2 and the introduction give the range as .895-.899, the caption of Figure 3
as .896-.899."""

EXPERIMENT = Experiment(
    name="3",
    title="Experiment 3: retrieval feedback loop",
    simulate=simulate,
    describe=describe,
    parameters={"cells": CELLS, "k": K, "noise": NOISE},
)
