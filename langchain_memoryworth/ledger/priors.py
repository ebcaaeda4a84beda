"""What each namespace says of a memory before its own outcomes do, fitted when somebody asks for it.

A prior is kept as it was fitted, so that every process and every correction judges by the same one, until it is fitted anew.
"""

from __future__ import annotations

import json

import numpy as np

from langchain_memoryworth.estimators.evidence import UNIT, effective_size, worth
from langchain_memoryworth.estimators.prior import FLAT, prior_of_pool
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import PoolPrior

_KEY = "prior:"


def learn(session: Session, space: str) -> PoolPrior:
    """Fit the prior of one namespace to its memories as they are, and keep it.

    Args:
        session: The transaction that judges by it.
        space: The key of the namespace.
    """
    rows = session.rows(_COUNTERS, namespace=space)
    counters = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    positive, negative, size, squared = counters
    volume = effective_size(size / UNIT, (positive + negative) / UNIT, squared / UNIT)
    a, b = prior_of_pool(worth(positive, negative), volume)
    session.run(_KEEP, {"key": _KEY + space, "value": json.dumps([a, b])})
    return PoolPrior(a, b, int((volume >= 1).sum()))


def learn_all(session: Session) -> None:
    """Fit the priors of all namespaces."""
    for (space,) in session.rows(_SPACES):
        learn(session, space)


def informed(session: Session, policy: Policy, space: str) -> Policy:
    """The policy as it judges in a namespace; the same one unless it asks the pool."""
    return policy if policy.prior != "pool" else _told(policy, session.row(_OF, key=_KEY + space))


def informed_of(session: Session, policy: Policy, seq: int) -> Policy:
    """`informed` for the namespace of a memory, by its number."""
    return policy if policy.prior != "pool" else _told(policy, session.row(_OF_MEMORY, seq=seq))


def forget_empty(session: Session) -> None:
    """Take out the priors of namespaces without a memory, so that not even their name is left."""
    session.run(_DROP_EMPTY)


def _told(policy: Policy, row: tuple[str, ...] | None) -> Policy:
    a, b = FLAT if row is None else json.loads(row[0])
    return policy.informed((a, b))


# In the order of the numbers: a sum of floats in another order may differ in its last bit.
_COUNTERS = Statement(
    "SELECT e.positive, e.negative, e.size, e.squared FROM evidence e "
    "JOIN memories m ON m.seq = e.seq "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL AND e.size > 0 ORDER BY e.seq"
)
_SPACES = Statement("SELECT DISTINCT namespace FROM memories WHERE namespace <> '' ORDER BY 1")
_KEEP = Statement(
    "INSERT INTO meta (key, value) VALUES (:key, :value) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
_OF = Statement("SELECT value FROM meta WHERE key = :key")
_OF_MEMORY = Statement(
    "SELECT p.value FROM memories m "
    f"JOIN meta p ON p.key = '{_KEY}' || m.namespace WHERE m.seq = :seq"
)
_DROP_EMPTY = Statement(
    f"DELETE FROM meta WHERE key LIKE '{_KEY}%' AND NOT EXISTS "
    f"(SELECT 1 FROM memories WHERE namespace = SUBSTR(meta.key, {len(_KEY) + 1}))"
)
