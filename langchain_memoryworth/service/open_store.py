"""What is open while a store is: the database, the index that follows it, queues, and the policy in force. No use case."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from langchain_core.embeddings import Embeddings

from langchain_memoryworth.errors import InvalidInputError, StoreClosedError
from langchain_memoryworth.ledger import priors
from langchain_memoryworth.ledger.database import Database
from langchain_memoryworth.ledger.engines import Durability
from langchain_memoryworth.ledger.group_commit import GroupCommit
from langchain_memoryworth.ledger.memories import Memories
from langchain_memoryworth.ledger.recording import Ledger, Said
from langchain_memoryworth.ledger.settings import Settings
from langchain_memoryworth.losses import Losses
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Namespace, namespace_key
from langchain_memoryworth.service.outbox import Outbox
from langchain_memoryworth.tracking.runs import Runs
from langchain_memoryworth.vectors.graphs import Graphs
from langchain_memoryworth.vectors.index import KINDS, Kind
from langchain_memoryworth.vectors.pgvector_index import Mirror
from langchain_memoryworth.vectors.replica import Replica

_Ids = TypeVar("_Ids", bound=Iterable[str])


class OpenStore:
    """One database that is open in this process: connections, queues, the index, and the policy and model it goes by.

    Thread-safe. What is done with it is in `Collection`, `Retrieval`, `Journal`, and the others that a `Governor` has.

    Args:
        url: SQLAlchemy URL of the database.
        embedding: Turns texts and queries into vectors.
        embedding_name: What to call the model when checking that a store is not mixed from two; None means that there is no
            model at hand, only the vectors that are stored.
        policy: Thresholds; None means those stored in the database, or the default ones.
        namespace: Where memories go and are looked for unless a call says otherwise.
        index: `flat` is exact, `hnsw` approximate, either with `-fp16` takes half the memory, `pgvector` searches in the
            Postgres itself.
        graph_folder: Where the graphs of `hnsw` are kept from one process to the next; None means beside the database, if
            that is a file.
        durability: See `Durability`.
        pool_size: Connections to a database server at most; None means 5.
        group_commit: If given, outcomes of several threads share a transaction, see `GroupCommit`.
        clock: Unix time in seconds.
        make: Whether to make a store where none is.
    """

    def __init__(
        self,
        url: str,
        embedding: Embeddings,
        *,
        embedding_name: str | None,
        policy: Policy | None = None,
        namespace: Namespace = (),
        index: Kind = "flat",
        graph_folder: os.PathLike[str] | str | None = None,
        durability: Durability = "normal",
        pool_size: int | None = None,
        group_commit: timedelta | None = None,
        clock: Callable[[], float] = time.time,
        make: bool = True,
    ) -> None:
        if index not in KINDS:
            raise InvalidInputError(
                f"index={index!r}; give {', '.join(map(repr, KINDS[:-1]))} or {KINDS[-1]!r}",
                value=index,
            )
        self.embedding = embedding
        self.namespace = namespace
        self.clock = clock
        self.runs = Runs()
        self.losses = Losses()
        self.outbox = Outbox()
        self.group = None if group_commit is None else GroupCommit(self.settle, group_commit)
        self.database = Database(url, durability=durability, pool_size=pool_size)
        self.settings = Settings(self.database)
        self.mirror = Mirror(self.database)
        self.memories = Memories(self.database, self.mirror.write)
        self.ledger = Ledger(self.database)
        self._closed = False
        try:
            graphs = Graphs(index, self.database.name, self.database.file, graph_folder)
            engine = self.mirror.checked() if index == "pgvector" else None
            now = _now_of(clock)
            self.database.prepare(make=make)  # all that can be wrong without it was looked at
            self.replica = Replica(self.database, index, graphs, engine)
            self._take_up(embedding_name, policy, now)
            if index == "pgvector":
                self.mirror.prepare(self.dimension)
        except BaseException:
            self.database.close()
            raise

    def _take_up(self, embedding_name: str | None, policy: Policy | None, now: float) -> None:
        """Compare what the database knows of the model and the policy with what was given."""
        if embedding_name is not None:
            self.settings.check_name(embedding_name)
        self.embedding_name = embedding_name or self.settings.embedding_name() or ""
        self.policy = self.settings.adopt(policy, now)
        self.dimension = self.settings.dimension()

    @property
    def url(self) -> str:
        """Where the database is, without a password."""
        return self.database.name

    def close(self) -> None:
        """Finish what is queued and close the database; a second call does nothing."""
        if not self._closed:
            self.outbox.close()
            self.replica.keep()
            self._closed = True
            if self.group is not None:
                self.group.close()
            self.database.close()

    def ready(self) -> None:
        """Before any use: everything put in earlier is done."""
        if self._closed:
            raise StoreClosedError(f"the store on {self.url} is closed; open it again")
        if self.database.forked:
            self._after_fork()
        self.outbox.drain()

    def _after_fork(self) -> None:
        """Take nothing from the parent that cannot be shared: connections, threads, and the locks of threads."""
        self.database.after_fork()
        self.outbox = Outbox()
        if self.group is not None:
            self.group = GroupCommit(self.settle, self.group.window)
        self.replica = self.replica.anew()
        self.runs.after_fork()
        self.losses.after_fork()

    def refresh(self) -> None:
        """Before a use that must not miss what other processes did: their changes are taken in."""
        self.ready()
        if self.replica.refresh():
            with self.losses.guard("a policy that another process set"):
                self.policy = self.settings.in_force()
            self.replica.forget()
        if self.dimension is None:
            self.dimension = self.settings.dimension()

    def place(self, namespace: Namespace | None) -> Namespace:
        """The namespace that a call means, this store's own if it names none."""
        return self.namespace if namespace is None else namespace

    def policy_in(self, namespace: Namespace) -> Policy:
        """The policy in force, as it judges in a namespace."""
        with self.database.read() as session:
            return priors.informed(session, self.policy, namespace_key(namespace))

    def now(self) -> datetime:
        """The time of this store's clock."""
        return datetime.fromtimestamp(self.clock(), UTC)

    def pending_since(self) -> float:
        """Runs that began before this time wait for no outcome any more."""
        return self.clock() - self.policy.pending_age.total_seconds()

    def settle(self, said: Sequence[Said]) -> list[bool]:
        """Write down what is said of runs in one transaction; False for what was known already."""
        return self.ledger.record_many(said, policy=self.settings.policy, now=self.clock())


def _now_of(clock: Callable[[], float]) -> float:
    try:
        now = clock()
        datetime.fromtimestamp(now, UTC)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(
            f"clock={clock!r} tells no time ({error}); give a function that returns Unix time in seconds, such as time.time",
            value=clock,
        ) from error
    return now


def listed(ids: _Ids) -> _Ids:
    """Ids as they are, but no single string: it would be taken letter by letter."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidInputError(f"{ids!r} is no list; give a list of memory ids", value=ids)
    return ids


def as_ids(memory_id: str | Sequence[str]) -> list[str]:
    """One id or several as a list."""
    return [memory_id] if isinstance(memory_id, str) else list(listed(memory_id))
