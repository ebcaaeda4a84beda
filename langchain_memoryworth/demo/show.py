"""How the demo shows what came of it: tables for the terminal, a plot for the eye."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from langchain_memoryworth.demo.episodes import DemoResult
from langchain_memoryworth.errors import MissingExtraError


def print_result(result: DemoResult, most: int = 12) -> None:
    """Print success by block, the suppressed recipes, and how many of them deserved it.

    Args:
        result: Of `run_demo`.
        most: How many suppressed recipes are listed.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    rates = Table(title="Tasks done, by block of episodes")
    for column in ("episodes", "without", "with Memory Worth", "difference"):
        rates.add_column(column, justify="right")
    pairs = zip(result.blocks(result.without), result.blocks(result.with_worth), strict=True)
    for i, (without, with_worth) in enumerate(pairs):
        span = f"{i * result.block + 1}-{min((i + 1) * result.block, len(result.without))}"
        rates.add_row(span, f"{without:.1%}", f"{with_worth:.1%}", f"{with_worth - without:+.1%}")
    console.print(rates)

    held = Table(
        title=f"Suppressed recipes: {len(result.suppressed)}, the most used {most}",
        caption="hits are shares of runs: nearly all of one goes to the recipe that was run",
    )
    held.add_column("recipe")
    for column in ("hits+", "hits-", "worth", "truth"):
        held.add_column(
            column, justify="right", no_wrap=True
        )  # the text gives way, not the numbers
    for memory in result.suppressed[:most]:
        e = memory.evidence
        first_line = memory.text.splitlines()[0]
        truth = "broken" if _broken(result, memory.id) else "[red]works[/red]"
        counters = (f"{e.hits_positive:.2f}", f"{e.hits_negative:.2f}", f"{e.worth:.2f}")
        held.add_row(escape(first_line), *counters, truth)
    console.print(held)
    broken = sum(1 for r in result.recipes.values() if not r.works)
    console.print(
        f"{result.truly_broken} of {len(result.suppressed)} suppressed recipes are truly broken "
        f"(there are {broken}); good memories hurt: {result.good_hurt}.",
        soft_wrap=True,
    )


def as_document(result: DemoResult) -> dict[str, Any]:
    """The same for programs: success by block, and the ids of the suppressed recipes."""
    return {
        "block": result.block,
        "without": result.blocks(result.without),
        "with_worth": result.blocks(result.with_worth),
        "suppressed": [m.id for m in result.suppressed],
        "truly_broken": result.truly_broken,
        "good_hurt": result.good_hurt,
    }


def plot_result(result: DemoResult, path: Path) -> None:
    """Draw success and worth over time.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plot", "matplotlib") from error
    ends = [result.block * (i + 1) for i in range(len(result.worths))]
    figure = Figure(figsize=(10, 4), layout="constrained")
    success, worth = figure.subplots(1, 2)
    rates = (
        (result.with_worth, "with Memory Worth", "C0"),
        (result.without, "plain similarity", "C7"),
    )
    for outcomes, label, colour in rates:
        success.plot(ends, result.blocks(outcomes)[: len(ends)], "o-", label=label, color=colour)
    success.set(title="Tasks done, per block", xlabel="episodes", ylabel="share", ylim=(0, 1))
    for side, label, colour in ((0, "recipes that work", "C2"), (1, "broken recipes", "C3")):
        values = [w[side] or [np.nan] for w in result.worths]
        worth.plot(ends, [np.mean(v) for v in values], "o-", label=label, color=colour)
        low, high = ([np.quantile(v, q) for v in values] for q in (0.1, 0.9))
        worth.fill_between(ends, low, high, color=colour, alpha=0.15)
    worth.axhline(0.4, color="k", lw=0.8, ls="--", label="theta_low")
    worth.set(title="Worth of used recipes, mean and 10-90%", xlabel="episodes", ylim=(-0.03, 1.03))
    for axes in (success, worth):
        axes.legend(frameon=False)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def _broken(result: DemoResult, memory_id: str) -> bool:
    recipe = result.recipes.get(memory_id)
    return recipe is not None and not recipe.works
