"""Which experiments there are. One more is one more import and one more entry."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.experiments import (
    assumptions,
    calibration,
    companions,
    difficulty,
    feedback,
    text_agent,
)
from langchain_memoryworth.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        calibration.EXPERIMENT,
        difficulty.EXPERIMENT,
        feedback.EXPERIMENT,
        companions.EXPERIMENT,
        text_agent.EXPERIMENT,
        assumptions.EXPERIMENT,
    )
}
"""By name, in the order of the page."""


def named(names: Sequence[str]) -> tuple[Experiment, ...]:
    """The experiments of some names, in the order of the page; `all` is all of them.

    Raises:
        InvalidInputError: If there is no such experiment.
    """
    unknown = sorted(set(names) - set(EXPERIMENTS) - {"all"})
    if unknown or not names:
        known = ", ".join((*EXPERIMENTS, "all"))
        raise InvalidInputError(
            f"no experiment is called {', '.join(unknown) or 'nothing'}; there are {known}",
            value=tuple(names),
        )
    return tuple(e for name, e in EXPERIMENTS.items() if name in names or "all" in names)
