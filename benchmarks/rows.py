"""One line of the page: what was compared with what, what came out, and what was promised."""

from __future__ import annotations

from statistics import median
from typing import Any, Literal, NamedTuple

from benchmarks.timing import Pairs, Spread

Unit = Literal["x", "us", "ms", "s", "B", "%"]
_PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0}


class Row(NamedTuple):
    """One comparison.

    Attributes:
        case: What of ours, at which size, in which state.
        against: The reference.
        ratio: Ours over the reference; None if it could not be measured.
        mode: Durability of what is written, or "-" where nothing is.
        target: Largest figure that was promised (smallest if `at_least`); None where nothing was.
        figure: What the target is about, if it is not the ratio.
        unit: Of `figure` and `target`; with "%" both are shares of 1.
        about: What `figure` says.
        at_least: The figure is to be above the target, not below.
        note: Why something is missing, or what to know of it.
    """

    case: str
    against: str
    ratio: Spread | None
    mode: str = "-"
    target: float | None = None
    figure: Spread | None = None
    unit: Unit = "x"
    about: str = ""
    at_least: bool = False
    note: str = ""

    @property
    def judged(self) -> Spread | None:
        """What the target is about."""
        return self.ratio if self.figure is None else self.figure

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None where there is none, or no figure."""
        if self.target is None or self.judged is None:
            return None
        if self.at_least:
            return self.judged.median >= self.target
        return self.judged.median <= self.target

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        return self._asdict()

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Row:
        """The inverse of `to_json`."""
        spreads = {n: Spread(*value[n]) for n in ("ratio", "figure") if value[n] is not None}
        return cls(**{**value, **spreads})


def ratio_row(
    case: str, against: str, pairs: Pairs, *, target: float | None = None, **more: Any
) -> Row:
    """A row whose target is on the ratio."""
    return Row(case, against, pairs.ratio, target=target, **more)


def excess_row(
    case: str,
    against: str,
    pairs: Pairs,
    *,
    unit: Unit,
    factor: float = 1.0,
    target: float | None = None,
    **more: Any,
) -> Row:
    """A row whose target is on what ours takes beyond `factor` times the reference."""
    figure = Spread(*(x * _PER_SECOND[unit] for x in pairs.beyond(factor)))
    about = "beyond it" if factor == 1.0 else f"beyond {factor:.2f} of it"
    return Row(
        case, against, pairs.ratio, target=target, figure=figure, unit=unit, about=about, **more
    )


def outcomes_a_second(pairs: Pairs, count: int, other: str) -> str:
    """A note: how many outcomes ours writes a second, and how many the reference, if a call writes so many.

    Examples:
        >>> outcomes_a_second(Pairs((0.01,), (0.005,)), 100, "by hand")
        '10,000 outcomes a second, 20,000 by hand'
    """
    ours, reference = (count / median(side) for side in (pairs.ours, pairs.reference))
    return f"{ours:,.0f} outcomes a second, {reference:,.0f} {other}"
