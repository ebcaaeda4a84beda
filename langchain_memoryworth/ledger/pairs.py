"""Habitual pairs: which memories a diversity floor draws about, found out when somebody asks for it.

What is kept is one small number for each memory in a pair, so every process, retry and resume draws alike until pairs are
learnt anew, and a search reads no more than it does for trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.hitchhikers import Companions, CoRetrievals, partings
from langchain_memoryworth.ledger import standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Statement
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import LOOK_BACK, Arm, Namespace, Status, namespace_key


def learn(
    database: Database, namespace: Namespace, policy: Policy, now: float
) -> tuple[Companions, ...]:
    """Find the habitual pairs of a namespace, and keep which memories to draw about in the place of those before.

    Counted are episodes in which nothing was held out: what takes an empty place is always beside the same memories, and
    would be taken for their companion.

    Raises:
        InvalidInputError: If the policy has no diversity floor.
    """
    if not policy.diversity_floor:
        raise InvalidInputError(
            "the policy in force breaks no pairs; open the store with Policy(diversity_floor=0.1), "
            "or another share, first",
            value=policy.diversity_floor,
        )
    space = namespace_key(namespace)
    with (
        database.read() as session
    ):  # counting takes some seconds, in which nobody has to wait to write
        rows = session.rows(_RETRIEVED, namespace=space, episodes=LOOK_BACK)
    seen, names = CoRetrievals(), dict[Any, str]()
    for shown in _undisturbed(rows):
        names |= shown
        seen.update(shown)
    pairs = seen.report()
    with database.write() as session:
        marked = session.rows(_MARKED, namespace=space)
        before = {seq: parting for seq, parting, _ in marked if parting is not None}
        pinned = [seq for seq, _, status in marked if status == Status.PINNED.value]
        after = partings(pairs, pinned)
        met = sorted(names.keys() | before.keys())
        moved = [seq for seq in met if before.get(seq) != after.get(seq)]
        for seq in moved:
            session.run(_SET, {"seq": seq, "parting": after.get(seq)})
        said = f"{len(pairs)} habitual pairs, drawn about are {len(after)} memories"
        standing.note(session, "pairs", "user", said, now)
        standing.changed_many(session, moved, "trial")
    return tuple(p._replace(first=names[p.first], second=names[p.second]) for p in pairs)


def _undisturbed(rows: Iterable[tuple[int, int, str, str]]) -> Iterator[dict[int, str]]:
    """The ids by number of what each episode was shown, of those without a hold-out."""
    for _, group in groupby(rows, key=itemgetter(0)):
        shown = list(group)
        if all(arm != Arm.HELD_OUT.value for *_, arm in shown):
            yield {seq: id_ for _, seq, id_, _ in shown}


_RETRIEVED = Statement(
    "SELECT x.eid, x.seq, m.id, x.arm FROM exposures x JOIN memories m ON m.seq = x.seq "
    "WHERE ((x.arm = 'served' AND x.shown = 1 AND m.namespace = :namespace AND m.retired_at IS NULL) "
    # Whatever has become of it since: of what was erased nobody knows where it was.
    "OR (x.arm = 'held_out' AND m.namespace IN (:namespace, ''))) "
    f"AND x.{standing.LATEST} ORDER BY x.eid, x.seq"
)
# Retired versions, too: one that comes back may have other companions by then.
_MARKED = Statement(
    "SELECT e.seq, e.parting, e.status FROM evidence e CROSS JOIN memories m "
    "WHERE (e.hold_out IS NOT NULL OR e.parting IS NOT NULL OR e.status = 'pinned') "
    "AND m.seq = e.seq AND m.namespace = :namespace"
)
_SET = Statement("UPDATE evidence SET parting = :parting WHERE seq = :seq")
