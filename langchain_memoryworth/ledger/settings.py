"""What the database remembers of the store itself: the policy in force, and the embedding model that filled it."""

from __future__ import annotations

from langchain_memoryworth.errors import (
    DimensionMismatchError,
    EmbeddingMismatchError,
    InvalidInputError,
)
from langchain_memoryworth.ledger import priors, standing
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Namespace, PoolPrior, namespace_key


class Settings:
    """The settings that all processes on one database share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: tuple[int, Policy] | None = None

    # -- policy -----------------------------------------------------------------------------------------------

    def adopt(self, policy: Policy | None, now: float) -> Policy:
        """Put a policy in force, or with None take the one that is.

        A policy that differs is stored as a new version, and every status is worked out again, so that two processes
        never judge by two rules.

        Raises:
            InvalidOutcomeError: If it has a `flip_rate`, and an outcome in force is graded.
        """
        with self._database.read() as session:
            version, stored = self._stored(session)
        if policy is None:
            policy = Policy() if stored is None else Policy.from_stored(stored)
        elif policy.model_dump_json() != (stored or Policy().model_dump_json()):
            with self._database.write() as session:
                if policy.flip_rate:
                    policy.check_labels(reward for (reward,) in session.rows(_GRADED))
                session.run(_SET_POLICY, {"document": policy.model_dump_json(), "now": now})
                version = session.number(_POLICY_VERSION)
                standing.note(session, "policy", "user", f"version {version}", now)
                standing.changed(session, "policy", version)
                if policy.prior == "pool":
                    priors.learn_all(session)
                self._judge_again(session, policy, now)
        self._known = version, policy
        return policy

    def learn_prior(self, namespace: Namespace, now: float) -> PoolPrior:
        """Fit what a namespace says of new memories anew, and work every status out again.

        Raises:
            InvalidInputError: If the policy in force does not ask the pool.
        """
        with self._database.write() as session:
            policy = self.policy(session)
            if policy.prior != "pool":
                raise InvalidInputError(
                    f"prior is {policy.prior}; open the store with Policy(prior='pool') first",
                    value=policy.prior,
                )
            found = priors.learn(session, namespace_key(namespace))
            said = f"{found.alpha:.2f} to {found.beta:.2f}, from {found.memories} memories"
            standing.note(session, "prior", "user", said, now)
            standing.changed(session, "policy", session.number(_POLICY_VERSION))
            self._judge_again(session, policy, now)
        return found

    def policy(self, session: Session) -> Policy:
        """The policy in force as this transaction sees it.

        Asked inside the transaction that judges by it: another process may have set another one a moment ago.

        Raises:
            InvalidInputError: If it settles with a function that only the process that set it has.
        """
        version = session.number(_POLICY_VERSION)
        known = self._known
        if known is None or known[0] != version:
            version, stored = self._stored(session)
            policy = Policy() if stored is None else Policy.from_stored(stored)
            self._known = known = version, policy
        return known[1]

    def in_force(self) -> Policy:
        """`policy` in a transaction of its own."""
        with self._database.read() as session:
            return self.policy(session)

    def _stored(self, session: Session) -> tuple[int, str | None]:
        row = session.row(_POLICY)
        return (0, None) if row is None else (int(row[0]), str(row[1]))

    def _judge_again(self, session: Session, policy: Policy, now: float) -> None:
        for row in session.rows(_STANDINGS):
            s = standing.standing_of(row)
            standing.follow(session, s, s.recent, s.evidence, policy, now)

    # -- embedding --------------------------------------------------------------------------------------------

    def dimension(self) -> int | None:
        """Dimension of the vectors stored, None while there are none."""
        with self._database.read() as session:
            return session.number(_GET, key="dimension") or None

    def check_embedding(
        self, session: Session, name: str, dimension: int, *, keep: bool = True
    ) -> None:
        """Compare an embedding with the one that filled the store; the first one to come is kept.

        Part of the transaction that stores its vectors: if that fails, nothing is kept of either.

        Args:
            session: The transaction.
            name: Of the model.
            dimension: Of its vectors.
            keep: False only compares.

        Raises:
            EmbeddingMismatchError: If the model has another name or dimension.
        """
        stored = self._embedding(session)
        if stored is None and not keep:
            return
        if stored is None:
            session.run(_SET, {"key": "embedding", "value": name})
            session.run(_SET, {"key": "dimension", "value": str(dimension)})
        elif stored != (name, dimension):
            raise EmbeddingMismatchError(
                f"{stored[0]!r} with {stored[1]} dimensions",
                f"{name!r} with {dimension} dimensions",
            )

    def embedding_name(self) -> str | None:
        """Name of the model that filled the store, None while it is empty."""
        with self._database.read() as session:
            stored = self._embedding(session)
        return None if stored is None else stored[0]

    def check_name(self, name: str) -> None:
        """`check_embedding` before any vector is there to be measured."""
        with self._database.read() as session:
            stored = self._embedding(session)
        if stored is not None and stored[0] != name:
            raise EmbeddingMismatchError(f"{stored[0]!r} with {stored[1]} dimensions", f"{name!r}")

    def _embedding(self, session: Session) -> tuple[str, int] | None:
        name = session.row(_GET, key="embedding")
        return None if name is None else (str(name[0]), session.number(_GET, key="dimension"))


def check_dimension(got: int, expected: int) -> None:
    """Raise if a vector cannot be compared with those stored."""
    if got != expected:
        raise DimensionMismatchError(expected, got)


_POLICY = Statement("SELECT version, document FROM policies ORDER BY version DESC LIMIT 1")
_POLICY_VERSION = Statement("SELECT MAX(version) FROM policies")
_SET_POLICY = Statement("INSERT INTO policies (document, at) VALUES (:document, :now)")
_GRADED = Statement("SELECT reward FROM episodes WHERE reward > 0 AND reward < 1 LIMIT 1")
_STANDINGS = Statement(
    f"SELECT {standing.STANDING_COLUMNS} FROM evidence e "
    "WHERE e.status <> 'active' OR e.size > 0 ORDER BY e.seq"
)
_GET = Statement("SELECT value FROM meta WHERE key = :key")
_SET = Statement("INSERT INTO meta (key, value) VALUES (:key, :value)")
