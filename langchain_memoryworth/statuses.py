"""The life of a memory as one table: which change leads from which status to which, and who may make it.

Pure: the code refuses what is not in it, the tests walk it, and the table in docs/governance.md is generated from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from langchain_memoryworth.errors import InvalidTransitionError
from langchain_memoryworth.records import Status

By = Literal["policy", "person"]

SERVED: Final = frozenset({Status.ACTIVE, Status.PINNED})
"""What a search returns by rank."""
EXPLORED: Final = frozenset({Status.SUPPRESSED, Status.WITHHELD, Status.QUARANTINED})
"""What a search returns at most at the exploration rate, with the probability recorded."""
AUTOMATIC: Final = frozenset({Status.ACTIVE, Status.SUPPRESSED, Status.QUARANTINED})
"""What the policy may change; the rest is a person's word, which statistics do not overrule."""


class Transition(NamedTuple):
    """One row of the table.

    Attributes:
        kind: Name of the change, as the ledger's `actions` have it.
        before: Statuses that it may start from.
        after: Statuses that it may lead to.
        by: Who makes it.
        meaning: What it is for.
    """

    kind: str
    before: frozenset[Status]
    after: frozenset[Status]
    by: By
    meaning: str
    undo: bool = True


def _row(
    kind: str, before: str, after: str, by: By, meaning: str, *, undo: bool = True
) -> Transition:
    names = (
        frozenset(Status(s) for s in before.split()),
        frozenset(Status(s) for s in after.split()),
    )
    return Transition(kind, *names, by, meaning, undo)


TABLE: Final[tuple[Transition, ...]] = (
    _row("quarantine", "active", "quarantined", "policy", "a new text of an untrusted source"),
    _row("release", "quarantined", "active", "policy", "enough independent outcomes"),
    _row("suppress", "active", "suppressed", "policy", "LOW on evidence since the last restore"),
    _row("reinstate", "suppressed", "active", "policy", "no longer LOW, beyond the hysteresis"),
    _row(
        "restore",
        "active suppressed withheld quarantined deprecated",
        "active",
        "person",
        "serve it again; only later evidence can suppress it",
    ),
    _row("restore", "pinned", "pinned", "person", "a new baseline under the pin"),
    _row(
        "suppress",
        "active suppressed withheld quarantined",
        "withheld",
        "person",
        "hold it back until it is restored, and go on learning about it",
    ),
    _row(
        "pin",
        "active suppressed withheld quarantined pinned",
        "pinned",
        "person",
        "never hold it back, whatever the evidence says",
    ),
    _row("unpin", "pinned", "active suppressed", "person", "leave it to the policy again"),
    _row(
        "deprecate",
        "active suppressed withheld quarantined deprecated",
        "deprecated",
        "person",
        "out of service, kept for the record",
    ),
    _row(
        "erase",
        "active suppressed withheld quarantined pinned deprecated",
        "erased",
        "person",
        "gone: only counts are left",
        undo=False,
    ),
)

_REMEDIES: Final = {
    ("pin", Status.DEPRECATED): "restore it first",
    ("suppress", Status.DEPRECATED): "restore it first",
    ("suppress", Status.PINNED): "unpin it first",
    ("deprecate", Status.PINNED): "unpin it first",
}


def check(kind: str, before: Status, memory_id: str) -> None:
    """Refuse a change that the table does not have.

    Raises:
        InvalidTransitionError: Naming the status and what to do first.

    Examples:
        >>> check("pin", Status.ACTIVE, "m1")
        >>> check("deprecate", Status.PINNED, "m1")
        Traceback (most recent call last):
        langchain_memoryworth.errors.InvalidTransitionError: cannot deprecate memory 'm1': it is pinned; unpin it first
    """
    if any(t.kind == kind and before in t.before for t in TABLE):
        return
    remedy = _REMEDIES.get((kind, before), "see the table in docs/governance.md")
    raise InvalidTransitionError(kind, memory_id, before.value, remedy)


def automatic(before: Status, after: Status) -> str:
    """The name of a change that the policy makes.

    Examples:
        >>> automatic(Status.ACTIVE, Status.SUPPRESSED)
        'suppress'
    """
    [kind] = {t.kind for t in TABLE if t.by == "policy" and before in t.before and after in t.after}
    return kind


def undoable(kind: str) -> bool:
    """Whether a change can be taken back: all but erasure; an undo itself, too.

    Examples:
        >>> undoable("deprecate"), undoable("undo"), undoable("erase"), undoable("policy")
        (True, True, False, False)
    """
    return kind == "undo" or any(t.kind == kind and t.undo for t in TABLE)


def by_policy(kind: str, after: Status) -> bool:
    """Whether the policy makes this change by itself.

    Examples:
        >>> by_policy("suppress", Status.SUPPRESSED), by_policy("suppress", Status.WITHHELD)
        (True, False)
    """
    return any(t.kind == kind and after in t.after and t.by == "policy" for t in TABLE)


def as_markdown() -> str:
    """The table for people."""
    head = "| change | from | to | by | undo | what for |\n|---|---|---|---|---|---|\n"
    return head + "".join(
        f"| {t.kind} | {_names(t.before)} | {_names(t.after)} | {t.by} | "
        f"{'yes' if t.undo else 'no'} | {t.meaning} |\n"
        for t in TABLE
    )


def _names(statuses: Iterable[Status]) -> str:
    wanted = set(statuses)
    return ", ".join(s.value for s in Status if s in wanted)
