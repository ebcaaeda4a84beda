"""Change detectors for the success rate of a memory, compared at equal rates of false flags.

Each detector turns outcomes into a score, the higher the surer that the rate is below .40 now. A memory counts as flagged
once its score reaches a limit. `fixed`: the limit that the detector comes with. `equal`: the lowest limit at which at most
3% of memories with rate .5 and .5% of those with rate .6 are ever flagged within 1,000 outcomes. The drop is from .85 to
.2. Two more worlds tell a detector of low rates from one of changes: a memory that was never good, and one that falls
from .95 to .65, which is no reason to hide it.

The rows of river need it installed: `pip install --group comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import arguments, show, table
from langchain_memoryworth.estimators import drift
from langchain_memoryworth.estimators.beta import Floats, cdfs
from langchain_memoryworth.estimators.discount import added, nothing

COMMAND = "benchmarks.drift_detectors"
THETA = 0.4
HISTORIES = (70, 300, 1_000)
HIGH, DROPPED = 0.85, 0.2
AFTER = 150
Flags = NDArray[np.bool_]
Detector = Callable[[Iterator[Flags], int], Iterator[Floats]]


class Kind(NamedTuple):
    """A detector, the limit it comes with, and what it keeps."""

    name: str
    scores: Detector
    limit: float | None
    state: str
    tunable: bool = True


def below(success: Floats, failure: Floats) -> Floats:
    """P(p < theta) under a flat prior; 0 where the mean alone says that it is not high."""
    result = np.zeros(len(success))
    doubtful = (1 + success) / (2 + success + failure) < THETA + 0.05
    result[doubtful] = cdfs(THETA, 1 + success[doubtful], 1 + failure[doubtful])
    return result


def ours(outcomes: Iterator[Flags], memories: int) -> Iterator[Floats]:
    """The package's detector."""
    states = drift.fresh(memories)
    for number, success in enumerate(outcomes, start=1):
        states = drift.update(states, success, at=number)
        score = np.zeros(memories)
        maybe = drift.current(states).mean < THETA + 0.05
        score[maybe] = drift.probability_below(states[maybe], theta=THETA)
        yield score


def whole_life(outcomes: Iterator[Flags], memories: int) -> Iterator[Floats]:
    """No detector: the posterior of the whole life."""
    success, failure = np.zeros((2, memories))
    for outcome in outcomes:
        success, failure = success + outcome, failure + ~outcome
        yield below(success, failure)


def forgetting(half_life: float) -> Detector:
    """The posterior of discounted counts."""

    def scores(outcomes: Iterator[Flags], memories: int) -> Iterator[Floats]:
        counts = nothing(memories)
        for number, success in enumerate(outcomes):
            counts = added(counts, success, at=number, half_life=half_life)
            yield below(counts.success, counts.failure)

    return scores


def adwin(delta: float) -> Detector:
    """ADWIN (Bifet and Gavalda 2007) and the posterior of its window.

    With the cut test of the original, at cuts in geometric steps from the newest outcome, as its buckets have them.
    """
    lengths = np.unique(np.geomspace(5, 1_200, 45).astype(int))

    def scores(outcomes: Iterator[Flags], memories: int) -> Iterator[Floats]:
        sums, start = np.zeros((1, memories)), np.zeros(memories, dtype=int)
        rows = np.arange(memories)
        for t, success in enumerate(outcomes, start=1):
            sums = np.concatenate([sums, sums[-1:] + success])
            cuts = t - lengths[lengths < t]
            for cut in cuts[::-1]:  # the oldest first: what is left is tested again
                before = np.maximum(cut - start, 1)
                new, all_ = sums[t] - sums[cut], sums[t] - sums[start, rows]
                n = t - start
                harmonic = 1 / (1 / before + 1 / (t - cut))
                mean = all_ / n
                log = np.log(2 * np.log(np.maximum(n, 3)) / delta)
                limit = np.sqrt(2 / harmonic * mean * (1 - mean) * log) + 2 / (3 * harmonic) * log
                gap = np.abs((all_ - new) / before - new / (t - cut))
                start = np.where((gap > limit) & (cut - start >= 5), cut, start)
            successes = sums[t] - sums[start, rows]
            yield below(successes, t - start - successes)

    return scores


def cusum(good: float, bad: float) -> Detector:
    """CUSUM (Page 1954): the log-likelihood ratio of two rates, never below 0."""
    gain, loss = np.log((1 - bad) / (1 - good)), np.log(bad / good)

    def scores(outcomes: Iterator[Flags], memories: int) -> Iterator[Floats]:
        score = np.zeros(memories)
        for success in outcomes:
            score = np.maximum(0.0, score + np.where(success, loss, gain))
            yield score

    return scores


def page_hinkley(tolerance: float) -> Detector:
    """Page-Hinkley: how far the failures have run above their own running mean."""

    def scores(outcomes: Iterator[Flags], memories: int) -> Iterator[Floats]:
        mean, total, least = np.zeros((3, memories))
        for n, success in enumerate(outcomes, start=1):
            failure = (~success).astype(float)
            mean += (failure - mean) / n
            total += failure - mean - tolerance
            least = np.minimum(least, total)
            yield total - least

    return scores


def rivers_adwin(outcomes: Iterator[Flags], memories: int) -> Iterator[Floats]:
    """ADWIN as river has it, which looks for a cut at every 32nd outcome, and the posterior of its window."""
    from river.drift import ADWIN

    windows = [ADWIN() for _ in range(memories)]
    for outcome in outcomes:
        for window, success in zip(windows, outcome.tolist(), strict=True):
            window.update(success)
        width = np.array([w.width for w in windows])
        rate = np.array([w.estimation for w in windows])
        yield below(width * rate, width * (1 - rate))


def rivers_page_hinkley(outcomes: Iterator[Flags], memories: int) -> Iterator[Floats]:
    """Page-Hinkley as river has it, for more failures; 1 where it has just found a change."""
    from river.drift import PageHinkley

    detectors = [PageHinkley(mode="up") for _ in range(memories)]
    for outcome in outcomes:
        for detector, success in zip(detectors, outcome.tolist(), strict=True):
            detector.update(not success)
        yield np.array([float(d.drift_detected) for d in detectors])


KINDS = (
    Kind("Bayesian change points (ours)", ours, drift.CONFIDENCE, "281 bytes"),
    Kind("ADWIN .002, posterior of its window", adwin(0.002), 0.99, "window, or buckets"),
    Kind("ADWIN .05, posterior of its window", adwin(0.05), 0.99, "window, or buckets"),
    Kind("CUSUM, .6 against .2", cusum(0.6, 0.2), None, "1 number"),
    Kind("CUSUM, .85 against .2", cusum(0.85, 0.2), None, "1 number"),
    Kind("Page-Hinkley, .005", page_hinkley(0.005), None, "4 numbers"),
    Kind("Page-Hinkley, .2", page_hinkley(0.2), None, "4 numbers"),
    Kind("discounted counts, half-life 10", forgetting(10), 0.99, "3 numbers"),
    Kind("discounted counts, half-life 30", forgetting(30), 0.99, "3 numbers"),
    Kind("whole life", whole_life, 0.99, "2 numbers"),
)
RIVER = (
    Kind("river's ADWIN, posterior of its window", rivers_adwin, 0.99, "buckets"),
    Kind("river's Page-Hinkley", rivers_page_hinkley, 1.0, "6 numbers", tunable=False),
)


def outcomes(seed: int, chances: list[float], memories: int) -> Iterator[Flags]:
    """Outcomes of memories with the same success rates; the same for every detector."""
    rng = np.random.default_rng(seed)
    for p in chances:
        yield rng.random(memories) < p


def peaks(kind: Kind, p: float, memories: int) -> Floats:
    """The highest score of each memory within 1,000 outcomes."""
    best = np.full(memories, -np.inf)
    for score in kind.scores(outcomes(int(100 * p), [p] * 1_000, memories), memories):
        best = np.maximum(best, score)
    return best


def after_change(kind: Kind, history: int, memories: int, high: float, then: float) -> Floats:
    """Scores after each of the outcomes that follow a change, shape (AFTER, memories)."""
    chances = [high] * history + [then] * AFTER
    scores = list(kind.scores(outcomes(history, chances, memories), memories))
    return np.array(scores[history:])


def delay(scores: Floats, limit: float) -> str:
    """Median retrievals from the drop to the first flag."""
    flagged = scores >= limit
    first = np.where(flagged.any(axis=0), flagged.argmax(axis=0) + 1, np.inf)
    median = float(np.median(first))
    return f"{median:.0f}" if np.isfinite(median) else f"over {AFTER}"


def measured(kind: Kind, memories: int) -> list[list[str]]:
    """The rows of one detector."""
    at_5, at_6 = peaks(kind, 0.5, 2 * memories), peaks(kind, 0.6, 4 * memories)
    drops = [after_change(kind, history, memories, HIGH, DROPPED) for history in HISTORIES]
    always = after_change(kind, 0, memories, HIGH, DROPPED)
    harmless = after_change(kind, 300, memories, 0.95, 0.65)
    # The next number above the quantile: a limit that is reached counts.
    equal = max(float(np.quantile(at_5, 0.97)), float(np.quantile(at_6, 0.995)))
    limits = [("equal", float(np.nextafter(equal, np.inf)))]
    if kind.limit is not None:
        limits = [("fixed", kind.limit), *limits[: kind.tunable]]
    return [
        [
            kind.name,
            f"{name}, {limit:.3g}",
            f"{(at_5 >= limit).mean():.2%}",
            f"{(at_6 >= limit).mean():.2%}",
            *(delay(scores, limit) for scores in drops),
            delay(always, limit),
            f"{(harmless >= limit).any(axis=0).mean():.1%}",
            kind.state,
        ]
        for name, limit in limits
    ]


def text(*, quick: bool) -> str:
    """The whole table."""
    kinds = KINDS if quick else (*KINDS, *RIVER)
    memories = 20 if quick else 500
    header = ["detector", "limit", "ever flagged at .5", "at .6"]
    header += [f"median delay after {history}" for history in HISTORIES]
    header += ["if always .2", "flagged at .95 to .65", "state per memory"]
    return table(header, [row for kind in kinds for row in measured(kind, memories)])


if __name__ == "__main__":
    options = arguments(COMMAND, __doc__)
    show(COMMAND, text(quick=options.quick), options)
