"""Theorem 4.1 and its assumptions A2, A5 and A6, each by a small experiment (section 4).

Many independent memories per seed, each retrieved alone or with one companion, so that the error
has a formula.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.estimators.evidence import UNIT
from langchain_memoryworth.experiments.experiment import (
    Curve,
    Experiment,
    Figure,
    Floats,
    Level,
    Panel,
    Results,
    Section,
    Table,
    mean_std,
)
from langchain_memoryworth.experiments.simulator import (
    POOL,
    Counters,
    Counts,
    Credits,
    Flags,
    K,
    accumulate,
    draw_outcomes,
    draw_sets,
    proportional_credits,
    target_worth,
    uniform_credits,
)

MEMORIES = 200
"""Independent memories of one seed."""

CHANCE = 0.7
"""p+ of the memories in the experiments on A2 and A5."""

RATE = K / POOL
"""delta, the retrieval probability of section 5.1."""

EXPLORATION = ("δ = .08", "δ = 1/t", "δ = 1/t²")
FLOORS = {"no floor": 0.0, "w_min = .01": 0.01}
EASY, HARD = 0.78, 0.28
ALTERNATING = ("alternating, retrieval blind", "alternating, retrieval follows", "doubling blocks")
BLIND = (EASY + HARD) / 2
FOLLOWS = (0.12 * EASY + 0.04 * HARD) / 0.16
"""Limits of the alternating regimes: the base rates, weighted by the retrieval probability."""
BLOCKS = (HARD + (EASY - HARD) / 3, HARD + (EASY - HARD) * 2 / 3)
"""Bounds of the worth under doubling blocks: one third or two thirds of the past are easy."""


def standard_error(chance: ArrayLike, total: ArrayLike, squared: ArrayLike) -> Floats:
    """Standard error of a ratio of weighted sums: `sqrt(p (1-p) sum w**2) / sum w`.

    With y_t independent Bernoulli(p) given the weights, hits+ = sum w_t y_t has variance p (1-p)
    sum w_t**2, and the denominator sum w_t is known.

    Args:
        chance: p+ in [0, 1].
        total: Sum of the weights, above 0, same shape.
        squared: Sum of the squared weights, same shape.

    References:
        When to Forget, Remark 4.2, which leaves the rate open.

    Examples:
        >>> round(float(standard_error(0.5, 100 / 8, 100 / 64)), 3)
        0.05
    """
    p = np.asarray(chance, dtype=np.float64)
    return np.asarray(np.sqrt(p * (1 - p) * np.asarray(squared)) / np.asarray(total))


def checkpoints(episodes: int) -> Counts:
    """Forty episode numbers in geometric steps, the last is T; int64 of shape (P,)."""
    return np.unique(np.geomspace(min(20, episodes), episodes, 40).astype(np.int64))


def convergence(rng: np.random.Generator, episodes: int, ends: Counts) -> tuple[Floats, Floats]:
    """Error of every memory and its standard error, under the theorem's assumptions.

    The world of Experiment 1 with similarities drawn anew in each episode, independent of the
    outcome.

    Returns:
        MW - p+, and its standard error (nan before the first retrieval), shape (P, N).
    """
    utility = rng.random(POOL)
    shown = draw_sets(rng, episodes, POOL, K)
    success = draw_outcomes(rng, utility[shown].mean(axis=1))
    credit = proportional_credits(rng.uniform(0.1, 1.0, shown.shape), w_min=0.01)
    counters = accumulate(shown, success, credit, ends)
    chance = target_worth(utility)
    return counters.worth - chance, expected_error(counters, chance)


def expected_error(counters: Counters, chance: ArrayLike) -> Floats:
    """Standard error of the worth of every memory, shape (P, N), nan before its first retrieval.

    Args:
        counters: What the memories have collected.
        chance: p+ in [0, 1], of a shape that broadcasts to (P, N).
    """
    total = np.where(counters.retrievals > 0, counters.volume, np.nan)
    return standard_error(chance, total, counters.squared / UNIT)


def retrieved(
    rng: np.random.Generator, rate: Floats, chance: Floats, ends: Counts, credit: Credits
) -> Counters:
    """Counters of independent memories that are retrieved at a rate and succeed at a chance.

    Args:
        rng: Source of all draws.
        rate: Retrieval probability in each episode, shape (T,).
        chance: Success probability in each episode, shape (T,).
        ends: Checkpoints, shape (P,).
        credit: Credits of the memory in each episode, shape (T, 1) or (1, 1).
    """
    which = np.nonzero(rng.random((len(rate), MEMORIES)) < rate[:, None])
    episode, memory = which
    success: Flags = rng.random(len(episode)) < chance[episode]
    weights = (credit.weight, credit.size, credit.squared)
    settled = [np.broadcast_to(w, (len(rate), 1))[episode] for w in weights]
    return accumulate(
        memory[:, None], success, Credits(*settled), ends, pool=MEMORIES, when=episode + 1
    )


def exploration(rng: np.random.Generator, episodes: int, ends: Counts) -> list[Counters]:
    """A2: retrieval at a constant rate, at 1/t and at 1/t**2."""
    t = np.arange(1, episodes + 1)
    rates: tuple[Floats, ...] = (np.full(episodes, RATE), 1 / t, 1 / t**2)
    chance = np.full(episodes, CHANCE)
    return [retrieved(rng, rate, chance, ends, uniform_credits(1)) for rate in rates]


def fading(episodes: int, w_min: float) -> Credits:
    """A5: credits of a memory whose similarity fades as 1/t**2, beside a companion of similarity 1.

    Args:
        episodes: T.
        w_min: Floor of the weights.

    Returns:
        Credits of the fading memory, shape (T, 1).
    """
    t = np.arange(1, episodes + 1)
    credit = proportional_credits(np.column_stack([1 / t**2, np.ones(episodes)]), w_min=w_min)
    return Credits(credit.weight[:, :1], credit.size[:, :1], credit.squared[:, :1])


def regimes(episodes: int) -> list[tuple[Floats, Floats]]:
    """A6: (retrieval probability, base rate) of every episode in the regimes, shape (T,) each."""
    t = np.arange(1, episodes + 1)
    easy = t % 2 == 1
    block = np.floor(np.log2(t)).astype(np.int64) % 2 == 0
    constant = np.full(episodes, RATE)
    return [
        (constant, np.where(easy, EASY, HARD)),
        (np.where(easy, 0.12, 0.04), np.where(easy, EASY, HARD)),
        (constant, np.where(block, EASY, HARD)),
    ]


def simulate(seed: int, episodes: int) -> dict[str, ArrayLike]:
    """One seed of all four."""
    rng = np.random.default_rng(seed)
    ends = checkpoints(episodes)
    error, expected = convergence(rng, episodes, ends)
    z = error[-1] / expected[-1]
    explored = exploration(rng, episodes, ends)
    always, chance = np.ones(episodes), np.full(episodes, CHANCE)
    floored = [
        retrieved(rng, always, chance, ends, fading(episodes, w_min)) for w_min in FLOORS.values()
    ]
    swung = [retrieved(rng, *regime, ends, uniform_credits(1)) for regime in regimes(episodes)]
    return {
        "theorem": _rms(error),
        "expected": _rms(expected),
        "z_rms": _rms(z),
        "z_beyond": np.nanmean(np.abs(z) > 1.96),
        "a2": [_rms(c.worth - CHANCE) for c in explored],
        "a2_retrievals": [c.retrievals[-1].mean() for c in explored],
        "a5": [_rms(c.worth - CHANCE) for c in floored],
        "a5_expected": [expected_error(c, CHANCE)[-1].mean() for c in floored],
        "a5_size": [c.effective_size[-1].mean() for c in floored],
        "a6": [c.worth.mean(axis=1) for c in swung],
    }


def _rms(values: NDArray[np.float64]) -> Floats:
    return np.asarray(np.sqrt(np.nanmean(values**2, axis=-1)))


def describe(results: Results, episodes: int) -> Section:
    """One panel and one row for each assumption."""
    x = checkpoints(episodes)
    caption = (
        "Theorem 4.1 and three of its assumptions. Root mean square error of MW over the memories "
        "(first three) and MW itself (last), mean and ±1 standard deviation over the seeds."
    )
    theorem = (
        Curve("measured", x, results["theorem"]),
        Curve("derived", x, results["expected"].mean(axis=0, keepdims=True), theory=True),
    )
    panels = (
        _errors("Theorem 4.1", theorem),
        _errors("A2: exploration", _curves(results["a2"], EXPLORATION, x)),
        _errors("A5: minimum weight", _curves(results["a5"], tuple(FLOORS), x)),
        _swings(_curves(results["a6"], ALTERNATING, x)),
    )
    return Section(
        setup=_SETUP,
        figures=(Figure("assumptions", caption, panels),),
        tables=(_table(results, episodes),),
        notes=(_TEXT,),
    )


def _curves(values: Floats, labels: tuple[str, ...], x: Counts) -> tuple[Curve, ...]:
    return tuple(Curve(label, x, values[:, i]) for i, label in enumerate(labels))


def _errors(title: str, curves: tuple[Curve, ...]) -> Panel:
    return Panel(title, "RMS error of MW", curves, scale="log-log")


def _swings(curves: tuple[Curve, ...]) -> Panel:
    levels = (
        Level(BLIND, "limit, blind"),
        Level(FOLLOWS, "limit, follows"),
        Level(BLOCKS[0], "blocks, low"),
        Level(BLOCKS[1], "blocks, high"),
    )
    title = "A6: alternating base rates"
    return Panel(title, "Memory Worth", curves, levels=levels, scale="log-x")


def _table(results: Results, episodes: int) -> Table:
    error, size = np.sqrt(CHANCE * (1 - CHANCE)), results["a5_size"].mean(axis=0)
    count = results["a2_retrievals"].mean(axis=0)
    rows = [
        ("Theorem 4.1", "RMS of (MW - p+)/standard error", "1", mean_std(results["z_rms"])),
        ("Theorem 4.1", "share beyond 1.96 errors", ".050", mean_std(results["z_beyond"])),
    ]
    for i, label in enumerate(EXPLORATION):
        theory = f"{error / count[i] ** 0.5:.3f}" if i == 0 else "does not apply"
        what = f"RMS error, {label}, {count[i]:.1f} retrievals"
        rows.append(("A2", what, theory, mean_std(results["a2"][:, i, -1])))
    for i, label in enumerate(FLOORS):
        what = f"RMS error, {label}, effective size {size[i]:,.1f}"
        theory = f"{results['a5_expected'][:, i].mean():.4f}"
        rows.append(("A5", what, theory, mean_std(results["a5"][:, i, -1], 4)))
    limits = (f"{BLIND:.3f}", f"{FOLLOWS:.3f}", f"between {BLOCKS[0]:.3f} and {BLOCKS[1]:.3f}")
    for i, label in enumerate(ALTERNATING):
        rows.append(("A6", f"MW, {label}", limits[i], mean_std(results["a6"][:, i, -1])))
    header = ("assumption", f"quantity at episode {episodes:,}", "theory", "ours")
    return Table("Derived and measured", header, tuple(rows))


_SETUP = """\
Theorem 4.1: the world of Experiment 1 with weights from similarities that are drawn anew in every
episode and know nothing of the outcome; 100 memories per seed. A2, A5, A6: 200 independent memories
per seed with p+ = .7, or with base rates .78 and .28. All credits by `credit.settle`."""

_TEXT = """\
- **Theorem 4.1** holds with the error that the ratio of weighted sums has: sqrt(p(1-p) Σw²)/Σw,
  that is sqrt(p(1-p)/n) with n = (Σw)²/Σw². Remark 4.2 leaves this rate open. The product's
  effective size is at most this n.
- **A2** is needed: at δ = 1/t² a memory is retrieved π²/6 = 1.6 times in its whole life and keeps
  its first outcomes. At δ = 1/t it does converge, with log T retrievals: a positive δ is
  sufficient, a divergent sum is what is necessary.
- **A5** is needed: a memory whose similarity fades as 1/t² collects a finite total weight, the
  first few outcomes decide for ever. A floor of .01 keeps the evidence growing. The effective size
  stays far below the number of episodes: it counts a memory with a hundredth of the weight as a
  bystander, which is right for a verdict and careful for an error.
- **A6**: base rates that merely alternate do no harm, MW converges to their mean. If retrieval
  follows the difficulty, MW converges to the mean weighted by retrieval, which is Experiment 2 for
  one memory. If easy and hard times last ever longer, MW converges to nothing at all."""

EXPERIMENT = Experiment(
    name="assumptions",
    title="Theorem 4.1 and its assumptions",
    simulate=simulate,
    describe=describe,
    parameters={"memories": MEMORIES, "chance": CHANCE, "rate": RATE},
)
