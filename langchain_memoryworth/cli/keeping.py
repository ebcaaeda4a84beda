"""Commands for scheduled jobs: learn-pairs, and what keeps the database small, compact and vacuum."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from langchain_memoryworth.cli.console import (
    AsJson,
    Columns,
    Space,
    Store,
    Yes,
    bars,
    confirmed,
    on_a_file,
    opened,
    say,
)

DEFAULT = "memories.db"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("learn-pairs")(learn_pairs)
    app.command()(compact)
    app.command()(vacuum)


def learn_pairs(database: Store = DEFAULT, namespace: Space = "", as_json: AsJson = False) -> None:
    """Find the habitual pairs that the policy's diversity floor breaks from now on."""
    with opened(database, namespace) as store:
        found = store.learn_pairs()
    heads = ("memory", "companion", "together", "memory alone", "companion alone")
    rows = [(p.first, p.second, p.together, p.first_alone, p.second_alone) for p in found]
    human = Columns(heads, rows) if rows else "no pair is habitual"
    say(found, as_json=as_json, human=human)


def compact(
    days: Annotated[
        float, typer.Option("--older-than", min=0, help="Age in days; younger runs are kept.")
    ],
    database: Store = DEFAULT,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Roll old runs up: all counters stay, but outcomes of those runs can no longer be corrected."""
    try:
        age = timedelta(days=days)
    except (OverflowError, ValueError) as error:  # inf, NaN, or beyond all calendars
        raise typer.BadParameter(f"{days} days are no age ({error})") from error
    with opened(database) as store:
        runs = store.health().episodes
        confirmed(
            f"Roll up what of {runs} runs is older than {days:g} days? It cannot be taken back.",
            yes=yes,
        )
        with bars(hidden=as_json) as progress:
            done = store.compact(age, progress=progress)
    human = f"{done.episodes} runs rolled up, {done.changes} changes forgotten"
    say(done, as_json=as_json, human=human)


def vacuum(database: Store = DEFAULT, yes: Yes = False, as_json: AsJson = False) -> None:
    """Write a SQLite file anew, without the space that is free in it; on a server its owner does that, by VACUUM FULL."""
    with opened(database) as store:
        on_a_file(store)
        confirmed("Write the file anew? It needs as much space again meanwhile.", yes=yes)
        done = store.scrub()
    human = "done" if done else "not done: others keep the file busy"
    say({"done": done}, as_json=as_json, human=human)
    if not done:
        raise typer.Exit(1)
