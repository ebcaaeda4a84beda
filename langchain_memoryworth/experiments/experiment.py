"""What an experiment is: a simulation of one seed, and a section of the report on all of them.

Values only. How they are computed in parallel is `runner`, how they are drawn and written is
`figures` and `report`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from langchain_memoryworth.experiments.published import Published

Floats = NDArray[np.float64]

Results = Mapping[str, Floats]
"""What all seeds measured: each array has the seeds as its first axis, shape (S, ...)."""


def spread(values: Floats) -> Floats:
    """Standard deviation over the seeds, shape (S, ...) to (...); 0 for a single seed."""
    if len(values) > 1:
        return np.asarray(values.std(axis=0, ddof=1))
    return np.zeros(values.shape[1:])


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a figure.

    Attributes:
        label: Name in the legend and in the CSV.
        x: Abscissa, shape (P,).
        values: One row per seed, shape (S, P).
        theory: Whether it was derived and not measured: drawn dashed, without a band.
    """

    label: str
    x: NDArray[np.number]
    values: Floats
    theory: bool = False

    @property
    def mean(self) -> Floats:
        """Mean over the seeds, shape (P,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def std(self) -> Floats:
        """Standard deviation over the seeds, shape (P,)."""
        return spread(self.values)


@dataclass(frozen=True, slots=True)
class Mark:
    """A published value, drawn as a point at (`x`, `y`)."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line: a threshold or a limit, with its name."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes."""

    title: str
    ylabel: str
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    levels: tuple[Level, ...] = ()
    xlabel: str = "episode"
    scale: Literal["linear", "log-x", "log-log"] = "linear"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure; `name` is the stem of its files, `caption` stands below it on the page."""

    name: str
    caption: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published number beside ours.

    Attributes:
        quantity: What is compared.
        published: The number in the paper.
        ours: The same quantity in each seed, shape (S,).
    """

    quantity: str
    published: Published
    ours: Floats

    @property
    def mean(self) -> float:
        """Our mean over the seeds."""
        return float(self.ours.mean())

    @property
    def std(self) -> float:
        """Our standard deviation over the seeds."""
        return float(spread(self.ours))

    @property
    def difference(self) -> float:
        """Ours minus published."""
        return self.mean - self.published.value

    @property
    def within(self) -> bool:
        """Whether the difference is within the seeds' spread, or lost in the printed rounding."""
        return abs(self.difference) <= max(self.std, self.published.resolution)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page, beside the comparison with the paper."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """What the report says of one experiment.

    Attributes:
        setup: The world as it was run, with every choice that the paper leaves open; Markdown.
        comparisons: Published numbers beside ours.
        figures: Figures, drawn and written as CSV.
        tables: Further tables.
        notes: Paragraphs below the tables; Markdown.
    """

    setup: str
    comparisons: tuple[Comparison, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


def _always() -> None:
    """Nothing is needed but the `paper` extra."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One entry of the registry.

    Attributes:
        name: What the command line calls it.
        title: Heading of its section.
        simulate: (seed, episodes) to named numbers or arrays; a module-level function, so that a
            worker can import it.
        describe: (results of all seeds, episodes) to the section.
        episodes: T of the paper.
        parameters: Everything else that the result depends on; part of the cache key.
        ready: Raises what would stop the experiment, before anything has run.
    """

    name: str
    title: str
    simulate: Callable[[int, int], dict[str, ArrayLike]]
    describe: Callable[[Results, int], Section]
    episodes: int = 10_000
    parameters: Mapping[str, object] = field(default_factory=dict)
    ready: Callable[[], None] = _always


def mean_std(values: Floats, digits: int = 3) -> str:
    """`mean ± std` over the seeds, shape (S,), for a table."""
    return f"{values.mean():.{digits}f} ± {float(spread(values)):.{digits}f}"
