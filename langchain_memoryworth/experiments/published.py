"""The numbers that the paper prints, and where it prints them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """One printed number.

    Attributes:
        value: The number.
        where: Place in the paper.
        digits: Decimals printed, so that a difference below half of the last one is none.
        spread: Printed standard deviation over the seeds, or None.
    """

    value: float
    where: str
    digits: int = 2
    spread: float | None = None

    @property
    def resolution(self) -> float:
        """Half a unit of the last printed decimal."""
        return 0.5 * 10.0**-self.digits

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ± {self.spread:.2f}"
        return f"{self.value:.{self.digits}f}{spread}"


CALIBRATION: dict[str, dict[int, Published]] = {
    "none": {t: Published(0.00, "Table 1", spread=0.00) for t in (2000, 5000, 10_000)},
    "uniform": {
        2000: Published(0.66, "Table 1", spread=0.06),
        5000: Published(0.81, "Table 1", spread=0.03),
        10_000: Published(0.89, "Table 1", spread=0.02),
    },
    "similarity": {
        2000: Published(0.66, "Table 1", spread=0.06),
        5000: Published(0.81, "Table 1", spread=0.04),
        10_000: Published(0.89, "Table 1", spread=0.02),
    },
    "oracle": {
        2000: Published(0.67, "Table 1", spread=0.06),
        5000: Published(0.82, "Table 1", spread=0.04),
        10_000: Published(0.90, "Table 1", spread=0.02),
    },
    "beta": {10_000: Published(0.89, "section 5.2", spread=0.02)},
}
"""Spearman correlation of Experiment 1 by method and episode."""

LOW_VALUE: dict[str, Published] = {
    "uniform": Published(2.1, "section 5.2", digits=1),
    "similarity": Published(5.2, "section 5.2", digits=1),
}
"""Memories classified as low-value per seed in Experiment 1."""

LOW_VALUE_RANGE = (1.0, 6.2)
"""Range over the updating strategies, section 5.2."""

DIFFICULTY: dict[str, Published] = {
    "global": Published(-0.33, "Figure 2, section 5.3.1"),
    "average": Published(-0.33, "section 5.3.1"),
    "hard": Published(0.14, "Figure 2, section 5.3.1", spread=0.07),
}
"""Spearman correlation of Experiment 2 at episode 10,000."""

FEEDBACK: dict[str, tuple[Published, Published]] = {
    "softmax": (
        Published(0.895, "section 5.3.2", digits=3),
        Published(0.899, "section 5.3.2", digits=3),
    ),
    "caption": (Published(0.896, "Figure 3", digits=3), Published(0.899, "Figure 3", digits=3)),
}
"""Lowest and highest correlation over the exploration floors in Experiment 3."""

FEEDBACK_UNIFORM = Published(0.890, "Figure 3, section 5.3.2", digits=3)
"""The uniform reference of Experiment 3."""

COMPANIONS: dict[tuple[str, float], Published] = {
    ("anchor", 0.0): Published(0.49, "Figure 4, section 5.3.3"),
    ("hitchhiker", 0.0): Published(0.49, "Figure 4, section 5.3.3"),
    ("anchor", 0.1): Published(0.496, "section 5.3.3", digits=3),
    ("hitchhiker", 0.1): Published(0.490, "section 5.3.3", digits=3),
    ("anchor", 1.0): Published(0.546, "section 5.3.3", digits=3),
    ("hitchhiker", 1.0): Published(0.000, "section 5.3.3", digits=3),
}
"""Memory Worth of Experiment 4 at episode 10,000 by memory and independence fraction."""

TEXT_AGENT: dict[str, dict[int, Published]] = {
    name: {t: Published(value, "Table 2") for t, value in zip((100, 500, 3000), row, strict=True)}
    for name, row in {
        "stale": (0.97, 0.40, 0.17),
        "specialist": (0.93, 0.81, 0.77),
        "hitchhiker": (0.91, 0.79, 0.77),
        "control": (0.78, 0.77, 0.73),
    }.items()
}
"""Memory Worth of Experiment 5 by memory and episode."""

CROSSING = (
    Published(300, "section 5.4, Figure 5", digits=0),
    Published(500, "Table 2, .40 @500", digits=0),
)
"""Where the stale memory of Experiment 5 crosses .40, by the text and by the table."""

GAP = Published(0.56, "section 5.4")
"""Least distance of the stale memory to the other three at the end."""
