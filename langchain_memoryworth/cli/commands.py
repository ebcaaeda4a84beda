"""The commands of the command line, on typer. Each calls one function of the package."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langchain_memoryworth.cli import deciding, keeping, looking, moving
from langchain_memoryworth.cli.console import AsJson, bars, say, url_of
from langchain_memoryworth.errors import InvalidInputError

if TYPE_CHECKING:
    from langchain_memoryworth.adapters.vectorstore import MemoryWorthStore
    from langchain_memoryworth.demo.episodes import DemoResult
    from langchain_memoryworth.progress import Progress
    from langchain_memoryworth.records import Health

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
for _group in (looking, deciding, moving, keeping):
    _group.register(app)


@app.callback()
def about() -> None:
    """Memory Worth for LangChain and LangGraph: which memories to serve, learnt from outcomes."""


@app.command()
def demo(
    episodes: Annotated[int, typer.Option(min=1, help="Runs of each agent.")] = 1400,
    block: Annotated[int, typer.Option(min=1, help="Episodes per line of the report.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the order of the questions.")] = 0,
    plot: Annotated[Path, typer.Option(help="Where the plot goes (PNG).")] = Path(
        "memoryworth-demo.png"
    ),
    database: Annotated[
        str | None, typer.Option(help="Keep the store in this file or at this URL.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch an agent find out which of its recipes an upgrade has broken."""
    from langchain_memoryworth.demo.show import as_document, plot_result, print_result

    if plot.is_dir() or not plot.parent.is_dir():  # not after minutes
        raise InvalidInputError(f"{plot}: give a file in a folder that is there", value=plot)
    result, health = _demo(episodes, block, seed, database, as_json=as_json)
    if not as_json:
        print_result(result)
    plot_result(result, plot)
    human = f"Plot: {plot}. {health.episodes} runs on record, {len(health.failures)} steps failed"
    document = {**as_document(result), "plot": str(plot), "health": health}
    say(document, as_json=as_json, human=human)


@app.command()
def paper(
    experiments: Annotated[
        list[str] | None, typer.Argument(help="1 to 5, assumptions, or all.", show_default="all")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each experiment.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for figures, curves and the cache.",
            show_default="docs/paper if it is there, else paper",
        ),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Per seed.", show_default="the paper's")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the experiments of "When to Forget" and write every number beside the paper's."""
    if out is None:
        docs = Path("docs/paper")
        out = docs if docs.is_dir() else Path("paper")
    with bars(hidden=as_json) as progress:
        page = _paper(experiments or ["all"], seeds, out, episodes, progress)
    document = {"page": str(page), "folder": str(out)}
    say(document, as_json=as_json, human=f"Page: {page}. Figures and curves: {out}")


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    from langchain_memoryworth import __version__

    say({"version": __version__}, as_json=as_json, human=__version__)


def _demo(
    episodes: int, block: int, seed: int, database: str | None, *, as_json: bool
) -> tuple[DemoResult, Health]:
    from langchain_memoryworth.demo.offline_model import use_packaged_model

    with tempfile.TemporaryDirectory(prefix="memoryworth-") as folder:
        use_packaged_model(Path(folder) / "hub")
        from langchain_memoryworth.demo.episodes import run_demo

        url = url_of(database or f"{folder}/memories.db")
        with _demo_store(url) as store, bars(hidden=as_json) as progress:
            result = run_demo(store, episodes=episodes, block=block, seed=seed, progress=progress)
            return result, store.health()


def _paper(
    names: list[str], seeds: int, out: Path, episodes: int | None, progress: Progress
) -> Path:
    from langchain_memoryworth.demo.offline_model import use_packaged_model
    from langchain_memoryworth.errors import MissingExtraError
    from langchain_memoryworth.experiments import run

    with tempfile.TemporaryDirectory(prefix="memoryworth-") as folder:
        with suppress(MissingExtraError):  # not packaged on this machine: the hub's, then
            use_packaged_model(Path(folder) / "hub")
        return run(names, seeds, out, episodes, progress=progress)


def _demo_store(url: str) -> MemoryWorthStore:
    import torch

    from langchain_memoryworth.adapters.vectorstore import MemoryWorthStore
    from langchain_memoryworth.demo.episodes import RememberedEmbeddings
    from langchain_memoryworth.policy import Policy
    from langchain_memoryworth.vectors.embeddings import (
        DEFAULT_MODEL,
        SentenceTransformerEmbeddings,
    )

    torch.set_num_threads(1)  # for single queries a second thread only gets in the way
    return MemoryWorthStore(
        url,
        RememberedEmbeddings(SentenceTransformerEmbeddings()),
        embedding_name=DEFAULT_MODEL,
        # In so short a run few recipes are used more than a few times, and half of them are broken.
        policy=Policy(v_min=2, confidence=0.75, max_suppressed=0.5),
    )
