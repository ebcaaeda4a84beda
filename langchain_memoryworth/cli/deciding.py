"""Commands that decide: review, suppress, restore, pin, unpin, deprecate, undo, erase, outcome, revoke."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from langchain_memoryworth.cli.console import (
    Actor,
    AsJson,
    Columns,
    Ids,
    Reason,
    Space,
    Store,
    Yes,
    bars,
    confirmed,
    opened,
    say,
    segments,
)
from langchain_memoryworth.errors import InvalidInputError, MemoryNotFoundError
from langchain_memoryworth.service.proposals import Proposal, Why

DEFAULT = "memories.db"


_DECISIONS = {
    "suppress": "Hold memories back, on probation at most, until they are restored.",
    "restore": "Serve memories again; only what happens from now on can suppress them.",
    "pin": "Never hold memories back, whatever the evidence says.",
    "unpin": "Leave memories to the policy again.",
    "deprecate": "Take memories out of service, and keep them for the record.",
}


class Decision(StrEnum):
    """What can be decided about proposals without code of one's own."""

    APPROVE = "approve"
    REJECT = "reject"
    PIN = "pin"
    RESTORE = "restore"
    DEPRECATE = "deprecate"
    MERGE = "merge"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(review)
    for name, help_ in _DECISIONS.items():
        app.command(name, help=help_)(_decision(name))
    for command in (undo, erase, outcome, revoke):
        app.command()(command)


def review(
    decide: Annotated[Decision | None, typer.Option(help="Decide about what is listed.")] = None,
    memory: Annotated[
        list[str] | None, typer.Option(help="Only proposals on this memory; may be repeated.")
    ] = None,
    why: Annotated[Why | None, typer.Option(help="Only proposals of this kind.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    database: Store = DEFAULT,
    namespace: Space = "",
    actor: Actor = "cli",
    reason: Reason = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the memories that want a person, the most valuable first, or decide about those listed."""
    with opened(database, namespace) as store:
        found = [
            p
            for p in store.review()
            if (not memory or p.memory_id in memory) and (why is None or p.why is why)
        ][:limit]
        absent = set(memory or ()) - {p.memory_id for p in found}
        if decide is not None and absent:
            raise MemoryNotFoundError.of(segments(namespace), sorted(absent))
        if decide is not None and found:
            confirmed(f"{decide} {len(found)} proposals?", yes=yes)
            store.decide(found, decide, actor=actor, reason=reason)
    human: list[str | Columns] = [_queue(found, decide)] if found else ["nothing wants a person"]
    if memory:
        human += [part for p in found for part in _whole(p)]
    say(found, as_json=as_json, human=human)


def _decision(name: str) -> Callable[..., None]:
    """The command that decides about memories by their ids with the method of this name."""

    def decide(
        ids: Ids,
        database: Store = DEFAULT,
        namespace: Space = "",
        actor: Actor = "cli",
        reason: Reason = "",
        as_json: AsJson = False,
    ) -> None:
        _decided(name, ids, database, namespace, actor, reason, as_json=as_json)

    return decide


def undo(
    number: Annotated[int, typer.Argument(help="Of the action, as `show` has it.")],
    database: Store = DEFAULT,
    actor: Actor = "cli",
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Take a change of status back; everything but erasure can be."""
    with opened(database) as store:
        action = store.undo(number, actor=actor, reason=reason)
    from langchain_memoryworth.service.explanations import line_of

    say(action, as_json=as_json, human=line_of(action))


def erase(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]")] = None,
    whole_namespace: Annotated[
        bool, typer.Option("--whole-namespace", help="Everything in --namespace.")
    ] = False,
    below: Annotated[bool, typer.Option("--below", help="And in the namespaces under it.")] = False,
    subject: Annotated[
        list[str] | None,
        typer.Option(help="Everything with this metadata, as key=value; may be repeated."),
    ] = None,
    database: Store = DEFAULT,
    namespace: Space = "",
    actor: Actor = "cli",
    reason: Reason = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove memories for good. This cannot be undone."""
    if [bool(ids), whole_namespace, bool(subject)].count(True) != 1:
        raise typer.BadParameter("give ids, or --whole-namespace, or --subject")
    pairs = dict(_pair(s) for s in subject or ())
    what = ", ".join(ids or ()) or str(pairs or f"everything in namespace {namespace!r}")
    with opened(database, namespace) as store:
        if ids:
            for memory_id in ids:
                store.history(memory_id)  # an id that is not there is said before anyone is asked
        confirmed(f"erase {what} for good?", yes=yes)
        if ids:
            done = store.erase(ids, actor=actor, reason=reason)
        elif subject:
            done = store.erase_subject(pairs, actor=actor, reason=reason)
        else:
            place = segments(namespace)
            done = store.erase_namespace(place, below=below, actor=actor, reason=reason)
        left = "" if done.scrubbed else f"; {_LEFT[store.governor.database.kind]}"
    say(done, as_json=as_json, human=f"{done.memories} texts erased{left}")


_LEFT = {
    "sqlite": "others keep the file busy, run `doctor --scrub` later",
    "postgresql": "nothing returns them, but the server's files hold them until the owner of its tables runs VACUUM FULL",
}


def outcome(
    run_id: Annotated[str, typer.Argument(help="Id of the run, or any alias of it.")],
    result: Annotated[
        str | None, typer.Argument(help="true, false, or a reward from 0 to 1.")
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take it back instead.")] = False,
    source: Annotated[str, typer.Option(help="Who says so.")] = "user",
    used: Annotated[
        list[str] | None, typer.Option(help="Id of a memory that was used; may be repeated.")
    ] = None,
    database: Store = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Say how a run went."""
    from langchain_memoryworth.service.logs import reward_in

    reward = reward_in(result)
    if (reward is None) != withdraw:
        raise typer.BadParameter("give a result, or --withdraw")
    with opened(database) as store:
        if reward is None:
            changed = store.withdraw_outcome(run_id, source=source)
        else:
            changed = store.record_outcome(run_id, reward, source=source, used=used)
    say(
        {"run_id": run_id, "changed": changed},
        as_json=as_json,
        human="recorded" if changed else "nothing new",
    )


def revoke(
    source: Annotated[str, typer.Argument(help="As the outcomes name it.")],
    voter: Annotated[str | None, typer.Option(help="Only this source_id of it.")] = None,
    database: Store = DEFAULT,
    actor: Actor = "cli",
    reason: Reason = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw everything that a source of outcomes has said. This cannot be undone."""
    with opened(database) as store:
        count = store.governor.steward.said_by(source, voter)
        if not count:
            who = f"{source!r}" if voter is None else f"{voter!r} of {source!r}"
            raise InvalidInputError(f"no outcome of {who} is in force", value=source)
        confirmed(f"withdraw {count} outcomes of {source} for good?", yes=yes)
        with bars(hidden=as_json) as progress:
            done = store.revoke_source(
                source, source_id=voter, actor=actor, reason=reason, progress=progress
            )
    say({"withdrawn": done}, as_json=as_json, human=f"{done} outcomes withdrawn")


def _decided(
    kind: str,
    ids: Sequence[str],
    database: str,
    namespace: str,
    actor: str,
    reason: str,
    *,
    as_json: bool,
) -> None:
    with opened(database, namespace) as store:
        getattr(store, kind)(list(ids), actor=actor, reason=reason)
        memories = [store.memory(i) for i in ids]
    stands = "\n".join(f"{m.id}: {m.status}" for m in memories)
    say({m.id: m.status for m in memories}, as_json=as_json, human=stands)


def _queue(found: Sequence[Proposal], decide: str | None) -> Columns:
    rows = [
        (
            p.memory_id if p.other_id is None else f"{p.memory_id} + {p.other_id}",
            p.why,
            decide or f"{p.action}?",
            p.belief,
            "" if p.trend is None else f"{p.trend:+.2f}",
            p.policy_action,
            p.reason,
        )
        for p in found
    ]
    heads = ("memory", "why", "decision", "success rate", "trend", "the policy", "reason")
    return Columns(heads, rows)


def _whole(p: Proposal) -> list[str]:
    """All that is known for a decision about one memory, or two."""
    other = [] if p.other_id is None else [f"  {p.other_id}: {p.other_text}"]
    contexts = ", ".join(f"{c} {w:.2f}" for c, w in p.contexts.items()) or "not recorded"
    companions = ", ".join(f"{i} ({n})" for i, n in p.companions) or "none"
    return [
        "",
        f"{p.why}: {p.reason}",
        f"  {p.memory_id}: {p.text}",
        *other,
        f"  {p.evidence}",
        f"  contexts: {contexts}; shown with: {companions}; runs: {', '.join(p.runs) or 'none'}",
    ]


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise typer.BadParameter(f"{text!r} is not key=value")
    return key, value
