"""Has a memory gone stale? One change detector, with a bounded state for each memory.

An average over a whole life cannot see a good memory go bad: after 300 good retrievals it takes hundreds of failures to
bring it below a threshold. Bayesian online change-point detection keeps several answers to "since when has it been
like this?", each with its own counts, weighs them by how well they predict, and judges by the weighted posterior.

An ordered filter: its state follows the order in which outcomes were settled. After a correction it is replayed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators import noise
from langchain_memoryworth.estimators.beta import Floats, cdf, cdfs, log_gamma

Rows = NDArray[np.intp]
States = Floats
"""What the detector keeps of m memories: float64 of shape (m, 5, HYPOTHESES + 1).

The rows are each hypothesis' weight (its probability, but for a factor); successes, failures and expected successes since its regime began, in
retrievals; and the mark of the outcome after which it began, 0 if that is the whole life. The first column is the newest
hypothesis, a weight of 0 marks a free one. The last column is no hypothesis but the sums of the whole life.
"""


class Heard(NamedTuple):
    """One outcome of one memory, as the detector takes it.

    Attributes:
        at: The outcome's mark: its time in seconds, its number, or whatever grows.
        reward: In [0, 1].
        size: Retrievals that it counts for, in [0, 1] (see `credit`).
        expected: Base rate that it is to be compared with, in [0, 1].
    """

    at: float
    reward: float
    size: float
    expected: float


HAZARD = 1 / 1000
"""Probability beforehand that a regime ends with a retrieval."""
HYPOTHESES = 6
"""Answers to "since when" that are kept. With 4 the detector is as fast, with 3 it misses changes, 200 change nothing."""
CONFIDENCE = 0.99
"""P(current success rate < threshold) from which a memory counts as declined."""
VERSION = 1

_SHAPE = (5, HYPOTHESES + 1)
_WEIGHT, _SUCCESS, _FAILURE, _EXPECTED, _SINCE = range(5)
_LIFE = HYPOTHESES
_BYTES = 1 + 8 * _SHAPE[0] * _SHAPE[1]
_WHOLE = 1 - 1e-6
_NO_ROWS = np.empty(0, np.intp)
_LOG_CONCAVE = 1 - 1 / math.e
_NEW = np.array([HAZARD / (1 - HAZARD), 0.0, 0.0, 0.0, 0.0])
"""A hypothesis that begins. Only ratios of weights count: instead of shrinking all others, this one is larger."""


def fresh(count: int) -> States:
    """States of memories without outcomes, shape (count, 5, HYPOTHESES + 1)."""
    states = np.zeros((count, *_SHAPE))
    states[:, _WEIGHT, 0] = 1
    return states


def pack(states: States) -> list[bytes]:
    """Each state as 281 bytes, the version first; `unpack` gives back the same to the last bit."""
    head, body, size = bytes([VERSION]), states.astype("<f8", copy=False).tobytes(), _BYTES - 1
    return [head + body[at : at + size] for at in range(0, len(body), size)]


def readable(blob: bytes) -> bool:
    """Whether `unpack` takes it: another release may have written another state."""
    return len(blob) == _BYTES and blob[0] == VERSION


def unpack(blobs: Sequence[bytes]) -> States:
    """States from bytes.

    Raises:
        InvalidInputError: If one of them has another length or version: it was written by another release, and the
            filter must be replayed from the ledger.

    Examples:
        >>> bool((unpack(pack(fresh(2))) == fresh(2)).all())
        True
    """
    for blob in blobs:
        if not readable(blob):
            raise InvalidInputError(
                f"a detector's state of {len(blob)} bytes and version {blob[:1].hex() or 'none'} is not of this "
                f"release ({_BYTES} bytes, version {VERSION:02x}); replay it from the ledger",
                value=blob,
            )
    body = np.frombuffer(b"".join(blob[1:] for blob in blobs), "<f8")
    return body.astype(np.float64).reshape(-1, *_SHAPE)


def update(
    states: States,
    reward: ArrayLike,
    *,
    at: ArrayLike,
    size: ArrayLike = 1.0,
    expected: ArrayLike = 0.5,
) -> States:
    """One outcome for each of m memories.

    With Beta(1 + s_i, 1 + f_i) the posterior of hypothesis i, its weight becomes
    (1 - h) w_i P(outcome | s_i, f_i) / sum_j w_j P(outcome | s_j, f_j), and a new hypothesis without outcomes begins with
    weight h in the place of the least probable one. It does so only after a whole retrieval: a memory that merely stands
    by (size .02) gets evidence, and does not lose its hypotheses over it.

    A graded reward r of size n counts as p**(n r) (1 - p)**(n (1 - r)). That is conservative: it is the likelihood of
    an outcome that varies as much as success and failure do, and a graded reward with the same mean varies less.

    Args:
        states: Of m memories; they stay as they are.
        reward: In [0, 1], a number or shape (m,).
        at: Its mark, as in `Heard`, a number or shape (m,).
        size: Retrievals that the outcome counts for, in [0, 1] (see `credit`), a number or shape (m,).
        expected: Base rate that the outcome is to be compared with, in [0, 1], a number or shape (m,).

    Returns:
        The new states.

    Raises:
        InvalidInputError: If a reward, a size or an expectation is not in [0, 1].

    References:
        Adams and MacKay (2007), Bayesian online changepoint detection, algorithm 1, with run lengths pruned.

    Examples:
        >>> state = fresh(1)
        >>> for number, success in enumerate([1] * 70 + [0] * 12, start=1):
        ...     state = update(state, success, at=number)
        >>> now = current(state)
        >>> now.mean.round(2).tolist(), now.since.tolist(), now.size.tolist(), now.before.tolist()
        ([0.08], [70.0], [12.0], [1.0])
    """
    given = np.empty((1, len(states), 3))
    given[0, :, 0], given[0, :, 1], given[0, :, 2] = reward, size, expected
    new = states.copy()
    _move(new, given, np.broadcast_to(at, given.shape[:2]))
    return new


def updates(states: States, outcomes: Sequence[Sequence[Heard]]) -> States:
    """`update` by several outcomes of each memory, one after the other, to the last bit.

    Args:
        states: Of m memories; they stay as they are.
        outcomes: Of each memory, in their order; maybe none.

    Returns:
        The new states.

    Raises:
        InvalidInputError: As `update`.

    Examples:
        >>> once, twice = Heard(at=1.0, reward=1.0, size=1.0, expected=0.5), Heard(2.0, 0.0, 1.0, 0.5)
        >>> later = updates(fresh(3), [[once], [once, twice], []])
        >>> bool((later[1:2] == update(later[:1], 0.0, at=2.0)).all()), bool((later[2:] == fresh(1)).all())
        (True, True)
    """
    # Those with the most of them first: what still has one at some step is then a slice.
    order = sorted(range(len(outcomes)), key=lambda i: -len(outcomes[i]))
    # What fills it up is never looked at; as whole outcomes it does not make a step look graded.
    table = np.ones((len(outcomes[order[0]]) if order else 0, len(order), 4))
    for place, i in enumerate(order):
        if outcomes[i]:
            table[: len(outcomes[i]), place] = outcomes[i]
    moved = states[order]
    _move(moved, table[..., 1:], table[..., 0], [len(outcomes[i]) for i in order])
    new = np.empty_like(states)
    new[order] = moved
    return new


def _move(states: States, given: Floats, at: Floats, lengths: Sequence[int] | None = None) -> None:
    """Take outcomes into states, step by step and in place.

    Args:
        states: Of m memories.
        given: Reward, size and expectation, shape (steps, m, 3).
        at: Marks, shape (steps, m).
        lengths: How many of the steps each memory has, falling; None if all have all.
    """
    # `not (... and ...)`, because nan compares false. Reductions of the ufuncs: the methods cost twice as much here.
    if given.size and not (
        np.minimum.reduce(given, axis=None) >= 0 and np.maximum.reduce(given, axis=None) <= 1
    ):
        raise InvalidInputError("rewards, sizes and expected rates must be in [0, 1]", value=given)
    sizes = given[..., 1:2]
    gains = given * sizes
    gains[..., 1:2] = sizes - gains[..., 0:1]
    graded = np.abs(gains[..., 0] - gains[..., 1]) != 1.0
    plain, count = not graded.any(), len(states)
    for step, gain in enumerate(gains[..., None]):
        if lengths is not None:
            while lengths[count - 1] <= step:
                count -= 1
        rows = _NO_ROWS if plain else np.nonzero(graded[step, :count])[0]
        _step(states[:count], gain[:count], at[step, :count], rows)


def _step(states: States, gains: Floats, at: Floats, graded: Rows) -> None:
    """One outcome for each memory, in place: gains of shape (m, 3, 1), and the rows of those that are graded."""
    weight = states[:, _WEIGHT]
    weight *= _likelihood(states, gains, graded)
    weight /= np.add.reduce(weight, axis=1, keepdims=True)
    states[:, _SUCCESS:_SINCE] += gains
    if not len(graded):  # each was a whole retrieval
        _begin(states, at)
        return
    newest = states[:, :, 0]
    rows = np.nonzero(newest[:, _SUCCESS] + newest[:, _FAILURE] >= _WHOLE)[0]
    some = states[rows]
    _begin(some, at[rows])
    states[rows] = some


def _likelihood(states: States, gains: Floats, graded: Rows) -> Floats:
    """B(a + gain, b + loss) / B(a, b) with a = 1 + successes, b = 1 + failures; shape (m, HYPOTHESES + 1)."""
    ab, gained = states[:, _SUCCESS:_EXPECTED] + 1.0, gains[:, :2]
    total, parts = ab[:, 0] + ab[:, 1], ab * gained
    result: Floats = (parts[:, 0] + parts[:, 1]) / total  # a whole success or failure
    if len(graded):
        many = np.stack([ab[graded, 0], ab[graded, 1], total[graded]])
        gain, loss = gained[graded, 0], gained[graded, 1]
        more = many + np.stack([gain, loss, gain + loss])
        before, after = log_gamma(np.stack([many, more]))
        one, two, both = after - before
        result[graded] = np.exp(one + two - both)
    return result


def _begin(states: States, at: Floats) -> None:
    """Start a hypothesis for each memory, in the place of the least probable one, in place."""
    newest, older = states[:, :, 0], states[:, :, 1:_LIFE]
    older[np.arange(len(states)), :, older[:, _WEIGHT].argmin(axis=1)] = newest
    newest[:] = _NEW
    newest[:, _SINCE] = at


class Current(NamedTuple):
    """What is believed of m memories now, each field float64 of shape (m,).

    Attributes:
        mean: Mean of the current success rate over all hypotheses, in [0, 1].
        sd: Its standard deviation.
        size: Retrievals in the most probable current regime.
        since: Mark of the outcome after which that regime began, 0 if it is the whole life.
        expected: Base rate of the outcomes in it, nan without one.
        probability: Of that regime, in [0, 1].
        before: Success rate before it, nan if there was no before.
        before_size: Retrievals before it.
    """

    mean: Floats
    sd: Floats
    size: Floats
    since: Floats
    expected: Floats
    probability: Floats
    before: Floats
    before_size: Floats


def current(states: States) -> Current:
    """The posterior of the current regime, and what was before it."""
    weight, a, b = _mixture(states)
    mean = (weight * a / (a + b)).sum(axis=1)
    square = (weight * a * (a + 1) / ((a + b) * (a + b + 1))).sum(axis=1)
    rows, best = np.arange(len(states)), weight.argmax(axis=1)
    now = states[rows, :, best]
    past = states[:, :, _LIFE] - now
    size, before_size = (v[:, _SUCCESS] + v[:, _FAILURE] for v in (now, past))
    return Current(
        mean=mean,
        sd=np.sqrt(np.maximum(square - mean**2, 0.0)),
        size=size,
        since=now[:, _SINCE],
        expected=_share(now[:, _EXPECTED], size),
        probability=weight[rows, best],
        before=_share(past[:, _SUCCESS], before_size),
        before_size=before_size,
    )


def changed(states: States, *, confidence: float = 0.95) -> NDArray[np.bool_]:
    """Whether the present regime is not the whole life, for better or worse, shape (m,).

    Of memories that do not change, less than 1% ever look so within 5,000 outcomes; of those that fall from .8 to .6 for
    200 retrievals after 300, about 60% do.

    Examples:
        >>> state = fresh(1)
        >>> for number, success in enumerate([0] * 40 + [1] * 40, start=1):
        ...     state = update(state, success, at=number)
        >>> changed(state).tolist(), changed(fresh(1)).tolist()
        ([True], [False])
    """
    weight, a, b = _mixture(states)
    whole_life = np.isclose(a + b - 2, _size(states)[:, None], rtol=1e-9, atol=1e-6)
    result: NDArray[np.bool_] = (weight * whole_life).sum(axis=1) < 1 - confidence
    return result


def _size(states: States) -> Floats:
    return np.asarray(states[:, _SUCCESS, _LIFE] + states[:, _FAILURE, _LIFE])


def _mixture(states: States) -> tuple[Floats, Floats, Floats]:
    """Weights and Beta parameters of the hypotheses, shape (m, HYPOTHESES) each."""
    weight = states[:, _WEIGHT, :_LIFE]
    a, b = (states[:, row, :_LIFE] + 1.0 for row in (_SUCCESS, _FAILURE))
    return weight / weight.sum(axis=1, keepdims=True), a, b


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 1e-9)


def thresholds(
    states: States,
    *,
    theta: float | None = None,
    margin: float | None = None,
    flip: float = 0.0,
) -> Floats:
    """The success rate that each hypothesis is held against, shape (m, HYPOTHESES), or () if it is the same for all.

    Args:
        states: Of m memories.
        theta: An absolute threshold, in [0, 1]: for suppression.
        margin: How far below the base rate of the same outcomes, in [0, 1]: a change of what is asked moves the base rate
            with the outcomes, so it is no decline of the memory. The lower one counts if both are given.
        flip: Share of labels that are wrong, in [0, .5), see `noise`: both are about the rates without them.

    Raises:
        InvalidInputError: If neither is given.
    """
    if theta is None and margin is None:
        raise InvalidInputError("give theta, margin, or both")
    absolute = np.asarray(np.inf if theta is None else theta)
    if margin is None:
        return absolute
    base = _share(states[:, _EXPECTED], states[:, _SUCCESS] + states[:, _FAILURE])
    base = np.where(
        np.isnan(base), base[:, _LIFE:], base
    )  # one without outcomes: as in the whole life
    base = noise.corrected(np.nan_to_num(base[:, :_LIFE]), flip)
    return np.asarray(np.minimum(absolute, base - margin))


def probability_below(
    states: States,
    *,
    theta: float | None = None,
    margin: float | None = None,
    flip: float = 0.0,
) -> Floats:
    """P(current success rate < threshold) of each memory, shape (m,); see `thresholds`.

    With flipped labels each hypothesis says it of the rate without them; its weight stays what the labels make it.
    """
    weight, a, b = _mixture(states)
    limits = thresholds(states, theta=theta, margin=margin, flip=flip)
    below = noise.belows(limits, a, b, flip) if flip else cdfs(limits, a, b)
    return np.asarray((weight * below).sum(axis=1))


def declined(
    states: States,
    *,
    theta: float | None = None,
    margin: float | None = None,
    confidence: float = CONFIDENCE,
    flip: float = 0.0,
) -> NDArray[np.bool_]:
    """Whether `probability_below` is at least `confidence`, computing it only where that may be.

    What lies in [0, 1] and is below x_i with probability c_i has a mean of at most c_i x_i + (1 - c_i). So if the weighted
    mean is at least sum w_i x_i + (1 - confidence), the answer is no.

    Args:
        states: Of m memories.
        theta: See `thresholds`.
        margin: See `thresholds`.
        confidence: In (0, 1).
        flip: See `thresholds`; it is computed for all then.

    Returns:
        Shape (m,).

    Examples:
        >>> state = fresh(1)
        >>> for t, success in enumerate([1] * 300 + [0] * 12, start=1):
        ...     state = update(state, success, at=t, expected=0.7)
        >>> declined(state, theta=0.4).tolist(), declined(state, margin=0.2).tolist()
        ([True], [True])
    """
    if flip:
        sure = probability_below(states, theta=theta, margin=margin, flip=flip)
        return np.asarray(sure >= confidence)
    weight, ab = states[:, _WEIGHT, :_LIFE], states[:, _SUCCESS:_EXPECTED, :_LIFE] + 1.0
    a, b = ab[:, 0], ab[:, 1]
    mean, room = a / (a + b), (1 - confidence) * np.add.reduce(weight, axis=1)
    result: NDArray[np.bool_] = (
        np.add.reduce(weight * (mean - (1.0 if theta is None else theta)), axis=1) < room
    )
    rows = np.nonzero(result)[0]
    if not len(rows):
        return result  # the usual case, before what lies below the base rate is looked at
    limits = np.maximum(thresholds(states[rows], theta=theta, margin=margin), 0.0)
    limits = np.broadcast_to(limits, (len(rows), HYPOTHESES))
    result[rows] = np.add.reduce(weight[rows] * (mean[rows] - limits), axis=1) < room[rows]
    for row, limit in zip(rows.tolist(), limits, strict=True):
        if result[row]:
            columns = (v.tolist() for v in (weight[row], a[row], b[row], limit))
            result[row] = _reaches(confidence, list(zip(*columns, strict=True)))
    return result


def _reaches(confidence: float, mixture: Sequence[tuple[float, float, float, float]]) -> bool:
    """Whether sum w F(x; a, b) >= confidence * sum w: by the bounds of `credible.is_below`, else heaviest first."""
    total = sum(weight for weight, *_ in mixture)
    least = most = 0.0
    for weight, a, b, x in mixture:
        gap = x - a / (a + b)
        if gap > 0:
            least += weight * (1 - math.exp(-2 * (a + b + 1) * gap * gap))
        most += weight * (1.0 if gap > 0 else _LOG_CONCAVE)
    if least >= confidence * total or most < confidence * total:
        return least >= confidence * total
    below, left = 0.0, total
    for weight, a, b, x in sorted(mixture, reverse=True):
        if below >= confidence * total or below + left < confidence * total:
            break
        below += weight * cdf(x, a, b)
        left -= weight
    return below >= confidence * total
