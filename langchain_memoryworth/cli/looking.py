"""Commands that look: status, list, show, explain, effects, lift, plan, paths, doctor, migrate. They change nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

from langchain_memoryworth.cli.console import (
    AsJson,
    Columns,
    Space,
    Store,
    bars,
    on_a_file,
    opened,
    say,
)
from langchain_memoryworth.records import Action, Memory, SourceShare, Status, WorthPoint
from langchain_memoryworth.terminal import clean

DEFAULT = "memories.db"
PROBLEMS = 3
"""Exit code of `doctor` when it has found something."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (status, show, explain, effects, lift, plan, paths, doctor, migrate):
        app.command()(command)
    app.command("list")(list_)


def status(database: Store = DEFAULT, as_json: AsJson = False) -> None:
    """Say how many memories and runs there are, and how they stand."""
    with opened(database) as store:
        health, policy = store.health(), store.policy
        spaces = store.governor.steward.namespaces()
        voices = store.sources()
    counts = Columns(("what", "count"), [(name, getattr(health, name)) for name in _COUNTS])
    places = Columns(("namespace", "memories"), [("/".join(n) or "-", c) for n, c in spaces])
    heads = ("source", "runs it decides", "voters", "loudest", "share")
    spoken = Columns(heads, [_voice(s) for s in voices])
    document = {
        "health": health,
        "namespaces": [{"namespace": n, "memories": c} for n, c in spaces],
        "sources": voices,
        "policy": policy.model_dump(mode="json"),
    }
    human: list[str | Columns] = [counts, "", places, "", spoken, ""]
    human.append(f"policy: {policy.in_words()}")
    say(document, as_json=as_json, human=human)


def list_(
    database: Store = DEFAULT,
    namespace: Space = "",
    status: Annotated[Status | None, typer.Option(help="Only those of this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List memories, those with the lowest worth first."""
    with opened(database, namespace) as store:
        found = sorted(store.memories(status), key=lambda m: (m.evidence.worth, m.id))[:limit]
    heads = ("id", "status", "verdict", "worth", "n", "text")
    table = Columns(heads, [_row(m) for m in found]) if found else "no memories there"
    say(found, as_json=as_json, human=table)


def show(
    memory_id: str,
    runs: Annotated[int, typer.Option(min=0, help="How many of its newest runs.")] = 5,
    database: Store = DEFAULT,
    namespace: Space = "",
    as_json: AsJson = False,
) -> None:
    """Show one memory: text, metadata, counters, everything decided about it, its worth run by run."""
    with opened(database, namespace) as store:
        memory, history = store.memory(memory_id), store.history(memory_id)
        points = store.worth_history(memory_id)[-runs:] if runs else ()
    document = {"memory": memory, "history": history, "runs": points}
    human: list[str | Columns] = [*_whole(memory), "", _decisions(history), "", _points(points)]
    say(document, as_json=as_json, human=human)


def explain(
    memory_id: Annotated[str | None, typer.Argument(help="Id of a memory.")] = None,
    run: Annotated[str | None, typer.Option(help="Id of a run instead.")] = None,
    database: Store = DEFAULT,
    namespace: Space = "",
    as_json: AsJson = False,
) -> None:
    """Say why a memory is served or not, or what a run retrieved and changed."""
    if (memory_id is None) == (run is None):
        raise typer.BadParameter("give the id of a memory, or --run")
    with opened(database, namespace) as store:
        if memory_id is not None:
            answer: object = store.explain(memory_id)
        else:
            answer = store.explain_run(run)
    say(answer, as_json=as_json)


def effects(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="All memories without one.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="By the regression on all runs at once: the audit.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    database: Store = DEFAULT,
    namespace: Space = "",
    as_json: AsJson = False,
) -> None:
    """List what memories add to success beside their companions and in their contexts, the most harmful first."""
    with opened(database, namespace) as store:
        found = store.effects(ids or None, exact=exact)[:limit]
    rows = [
        (e.memory_id, f"{e.effect:+.3f}", f"{e.deviation:.3f}", f"{e.harm:.2f}", e.retrievals)
        for e in found
    ]
    heads = ("memory", "effect", "deviation", "P(harm)", "settled runs")
    say(found, as_json=as_json, human=Columns(heads, rows))


def lift(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="All ever held out without one.")
    ] = None,
    database: Store = DEFAULT,
    namespace: Space = "",
    as_json: AsJson = False,
) -> None:
    """Say what showing memories does to success, as far as draws have held them out; beside what worth foretells of it."""
    from langchain_memoryworth.reports.report import calibration

    with opened(database, namespace) as store:
        found = store.lift(ids or None)
        foretold, why_not = calibration(store, store.governor.namespace)
    rows = [
        (
            m.memory_id,
            f"{m.worth:.2f}",
            m.shown,
            m.held_out,
            "not identifiable" if m.value is None else f"{m.value:+.3f}",
            "" if m.value is None else f"{m.low:+.3f} to {m.high:+.3f}",
            f"{foretold[m.memory_id]:+.3f}" if m.memory_id in foretold else "-",
        )
        for m in found
    ]
    heads = ("memory", "worth", "shown", "held out", "lift", "90 % interval", "calibrated worth")
    human: list[str | Columns] = [Columns(heads, rows)] if rows else []
    human += [f"no calibrated worth: {why_not}"] if why_not else []
    document = {"lifts": found, "calibrated_worth": foretold or None, "why_not": why_not or None}
    say(document, as_json=as_json, human=human)


def plan(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="All held out now without one.")
    ] = None,
    lift: Annotated[float, typer.Option(help="The difference that should not be missed.")] = 0.1,
    rate: Annotated[
        float | None,
        typer.Option(help="Share that does without.", show_default="that of now, or 0.5"),
    ] = None,
    power: Annotated[float, typer.Option(help="Probability of seeing such a lift.")] = 0.8,
    level: Annotated[float, typer.Option(help="Of the interval that excludes 0.")] = 0.95,
    database: Store = DEFAULT,
    namespace: Space = "",
    as_json: AsJson = False,
) -> None:
    """Say how many retrievals, episodes and days a trial takes until such a lift shows."""
    with opened(database, namespace) as store:
        found = store.plan_trial(ids or None, lift=lift, rate=rate, power=power, level=level)
    rows = [
        (
            p.memory_id,
            f"{p.rate:.3g}",
            p.needed,
            p.drawn,
            p.remaining,
            f"{p.share:.1%}",
            "-" if p.episodes is None else p.episodes,
            "-" if p.time is None else f"{p.time / timedelta(days=1):.1f}",
        )
        for p in found
    ]
    heads = ("memory", "held out", "needed", "drawn", "to come", "retrieved", "episodes", "days")
    human = Columns(heads, rows) if rows else "nothing is held out; give ids of memories"
    say(found, as_json=as_json, human=human)


def paths(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    database: Store = DEFAULT,
    namespace: Space = "",
    as_json: AsJson = False,
) -> None:
    """List which tools runs called, how these runs went, and which memories are typical of them; the most frequent first."""
    with opened(database, namespace) as store:
        found = store.tool_paths()[:limit]
    rows = [(p.name, p.episodes, p.settled, p.success, ", ".join(p.memories)) for p in found]
    heads = ("tools", "runs", "settled", "success rate", "typical memories")
    say(found, as_json=as_json, human=Columns(heads, rows) if rows else "no runs there")


def doctor(
    database: Store = DEFAULT,
    scrub: Annotated[
        bool, typer.Option(help="Also rewrite a SQLite file without what was erased.")
    ] = (False),
    as_json: AsJson = False,
) -> None:
    """Check that every counter is the sum of its ledger; exit code 3 if one is not."""
    with opened(database) as store:
        if scrub:
            on_a_file(store)
        with bars(hidden=as_json) as progress:
            problems = store.governor.steward.check(progress)
        warnings = [
            f"{voice} decides {share:.0%} of the newest runs, and others speak too"
            for voice, share in store.health().loud.items()
        ]
        scrubbed = store.scrub() if scrub else None
        if scrubbed is False:
            problems = [*problems, "the file could not be rewritten: others keep it busy"]
    document = {"problems": problems, "warnings": warnings, "scrubbed": scrubbed}
    human = [*(problems or ["all counters are the sums of their ledger"])]
    say(document, as_json=as_json, human=[*human, *(f"warning: {w}" for w in warnings)])
    if problems:
        raise typer.Exit(PROBLEMS)


def migrate(database: Store = DEFAULT, as_json: AsJson = False) -> None:
    """Bring the database to this release's schema; opening a store does so as well."""
    with bars(hidden=as_json) as progress:
        progress("migrating", 0, 1)
        with opened(database) as store:
            version = store.governor.steward.schema_version()
    say({"schema_version": version}, as_json=as_json, human=f"schema version {version}")


def _voice(s: SourceShare) -> tuple[object, ...]:
    alarm = " (!)" if s.is_loud else ""
    return (
        s.source,
        f"{s.runs} ({s.share:.0%})",
        s.voters,
        s.loudest,
        f"{s.loudest_share:.0%}{alarm}",
    )


def _row(memory: Memory) -> tuple[object, ...]:
    e = memory.evidence
    return (
        memory.id,
        memory.status,
        memory.verdict,
        f"{e.worth:.2f}",
        f"{e.effective_size:g}",
        memory.text,
    )


def _whole(memory: Memory) -> list[str]:
    e = memory.evidence
    return [
        f"{clean(memory.id)}  {memory.status}  {memory.verdict}",
        f"text      {clean(memory.text)}",
        f"metadata  {clean(json.dumps(dict(memory.metadata), ensure_ascii=False))}",
        f"added     {memory.added_at:%Y-%m-%d %H:%M}",
        (
            f"evidence  worth {e.worth:.3f} from {e.hits_positive:.3f} successes and "
            f"{e.hits_negative:.3f} failures by weight, {e.retrievals} settled runs, counting as "
            f"{e.effective_size:g} retrievals"
        ),
    ]


def _points(points: Sequence[WorthPoint]) -> Columns:
    rows = [
        (
            p.episode_id,
            f"{p.at:%Y-%m-%d %H:%M}",
            f"{p.reward:g}",
            f"{p.weight:.2f}",
            f"{p.worth:.3f}",
        )
        for p in points
    ]
    return Columns(("run", "settled", "reward", "share", "worth then"), rows)


def _decisions(history: Sequence[Action]) -> Columns:
    rows = [
        (
            a.number,
            f"{a.at:%Y-%m-%d %H:%M}",
            a.kind,
            "" if a.after is None else f"{a.before} to {a.after}",
            a.actor,
            a.reason,
        )
        for a in history
    ]
    return Columns(("action", "when", "what", "change", "by", "why"), rows)


_COUNTS = (
    "memories",
    "suppressed",
    "withheld",
    "quarantined",
    "pinned",
    "deprecated",
    "episodes",
    "pending",
    "expired",
)
