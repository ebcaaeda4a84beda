"""Every error this package raises on purpose, in one tree.

```text
MemoryWorthError
├── InvalidInputError (ValueError)         an argument that cannot be meant; the value and the remedy are named
│   ├── InvalidOutcomeError                not a bool, not a reward in [0, 1]
│   ├── InvalidCreditError                 a credit rule gave weights that are no weights
│   ├── InvalidVectorError                 NaN or infinite
│   ├── DimensionMismatchError             a vector of another dimension than those stored
│   ├── InvalidTransitionError             a change that a memory's status does not allow
│   ├── NotIdentifiableError               what was drawn is too little to say
│   ├── ImportFileError                    a file that is no export or log, or does not add up
│   └── NamespaceError                     a namespace that is malformed or cannot be resolved
├── MemoryNotFoundError (KeyError)         no memory by that id
├── UnknownRunError (KeyError)             no episode or alias by that id
│   └── RolledUpRunError                   there was one, too long ago
├── StateKeyError (KeyError)               a graph's state has no such key
├── EmbeddingMismatchError                 the store was filled by another embedding model
├── StorageError                           the database refused; what was stored before is intact
│   ├── StorageFullError
│   ├── StorageReadOnlyError
│   ├── StorageBusyError
│   ├── StorageUnavailableError            the database server cannot be reached
│   ├── MissingExtensionError              the database server lacks an extension
│   ├── CorruptStorageError
│   ├── ForeignStorageError                a database of something else
│   └── SchemaVersionError                 written by a newer release
├── RunFailedError                         the outputs of a run that ended with an error
├── StoreClosedError
├── ModelUnavailableError (OSError)        the embedding model is not here, and cannot be fetched
└── MissingExtraError (ImportError)        names the pip command
```

The values are attributes, so that a program need not read the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal


class MemoryWorthError(Exception):
    """Base of all errors of this package; each can travel between processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _revived, (type(self), self.args, self.__dict__)


def _revived(
    kind: type[MemoryWorthError], args: tuple[Any, ...], state: dict[str, Any]
) -> MemoryWorthError:
    # Not through __init__, whose arguments are the values and not the message.
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidInputError(MemoryWorthError, ValueError):
    """An argument that cannot be meant.

    Attributes:
        value: What was given.
    """

    def __init__(self, message: str, *, value: Any = None) -> None:
        super().__init__(message)
        self.value = value


class InvalidOutcomeError(InvalidInputError):
    """An outcome that is neither a bool nor a reward in [0, 1]."""


class NotIdentifiableError(InvalidInputError):
    """A number that the trials so far cannot give: too little was held out, or of too few memories."""


class InvalidCreditError(InvalidInputError):
    """A credit rule returned something that cannot be used as weights."""


class InvalidVectorError(InvalidInputError):
    """A vector that is not finite."""


class DimensionMismatchError(InvalidInputError):
    """A vector of another dimension than those in the store.

    Attributes:
        expected: Dimension of the vectors stored.
        got: Dimension of the vector offered.
    """

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(
            f"the store holds vectors of {expected} dimensions, this one has {got}; use the "
            "embedding model that filled the store",
            value=got,
        )
        self.expected = expected
        self.got = got


class NamespaceError(InvalidInputError):
    """A namespace that is malformed, or whose placeholders the run does not fill."""


class InvalidTransitionError(InvalidInputError):
    """A change that the table of statuses does not have.

    Attributes:
        kind: The change that was asked for.
        memory_id: Of which memory.
        status: What the memory is.
    """

    def __init__(self, kind: str, memory_id: str, status: str, remedy: str) -> None:
        super().__init__(
            f"cannot {kind} memory {memory_id!r}: it is {status}; {remedy}", value=memory_id
        )
        self.kind = kind
        self.memory_id = memory_id
        self.status = status


class ImportFileError(InvalidInputError):
    """A file to be imported that is damaged, hostile, or something else. Nothing of it was kept.

    Attributes:
        path: The file, if it is known.
        line: Number of the line, from 1; 0 if it is about the file.
        problem: What is wrong with it.
    """

    def __init__(self, path: str, line: int, problem: str) -> None:
        where = f"line {line}" if line else "the file"
        super().__init__(f"{path + ', ' if path else ''}{where}: {problem}", value=path)
        self.path = path
        self.line = line
        self.problem = problem


class _NotFoundError(MemoryWorthError, KeyError):
    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])


class MemoryNotFoundError(_NotFoundError):
    """No memory by that id in the namespace.

    Attributes:
        ids: The ids that were not found.
    """

    def __init__(self, message: str, *, ids: tuple[str, ...]) -> None:
        super().__init__(message)
        self.ids = ids

    @classmethod
    def of(cls, namespace: tuple[str, ...], ids: Sequence[str]) -> MemoryNotFoundError:
        """The error for ids that are not in a namespace."""
        names = ", ".join(map(repr, ids))
        return cls(f"no memory {names} in namespace {namespace!r}", ids=tuple(ids))


class UnknownRunError(_NotFoundError):
    """No episode and no alias by that run id.

    Attributes:
        run_id: The id that was asked for.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"no episode is known by the run id {run_id!r}: no memory of this store was retrieved in "
            "that run, or the run had no MemoryWorthCallbackHandler and no store.episode() around it"
        )
        self.run_id = run_id


class RolledUpRunError(UnknownRunError):
    """The run is older than the ledger keeps: its credit is in the opening balances, and can no longer be changed."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        message = (
            f"run {run_id!r} was rolled up by `compact`: what it gave stays counted, and cannot be "
            "corrected any more; keep runs for longer if outcomes come later than that"
        )
        self.args = (message,)


class StateKeyError(_NotFoundError):
    """The state of a graph has not the key that a node was told to use.

    Attributes:
        key: The key.
        keys: Those that the node was given.
    """

    def __init__(self, key: str, keys: Sequence[str], remedy: str) -> None:
        super().__init__(f"the state has no {key!r}, it has {sorted(keys)}; {remedy}")
        self.key = key
        self.keys = tuple(keys)


class EmbeddingMismatchError(MemoryWorthError):
    """The store holds vectors of another embedding model.

    Attributes:
        stored: Name and dimension that the store was filled with.
        offered: Name and dimension that were offered now.
    """

    def __init__(self, stored: str, offered: str) -> None:
        super().__init__(
            f"this store holds vectors of {stored}, but {offered} was offered; vectors of two models "
            "cannot be compared. Open it with the first model, or add the texts to a new store. If it "
            "is one model under two names, pass embedding_name= with the stored name"
        )
        self.stored = stored
        self.offered = offered


class StorageError(MemoryWorthError):
    """The database refused an operation; what was stored before is intact.

    Attributes:
        again: Whether the same may be tried again: `safe`, the transaction was undone; `uncertain`, the connection
            went while it was committed; `no`.
    """

    again: Literal["no", "safe", "uncertain"] = "no"


class StorageFullError(StorageError):
    """No space is left for the database."""


class StorageReadOnlyError(StorageError):
    """The database cannot be written."""


class StorageBusyError(StorageError):
    """Another process held the database for longer than the timeout."""


class StorageUnavailableError(StorageError):
    """The database server cannot be reached, or went away."""


class MissingExtensionError(StorageError):
    """The Postgres server has not the extension that is needed.

    Attributes:
        extension: Its name.
    """

    def __init__(self, extension: str) -> None:
        super().__init__(
            f"the database has no extension {extension!r} and this role cannot create it; install it "
            f"on the server and run CREATE EXTENSION {extension} as a superuser, or give another index"
        )
        self.extension = extension


class CorruptStorageError(StorageError):
    """The file is damaged, or no database at all."""


class ForeignStorageError(StorageError):
    """The database belongs to something else."""


class SchemaVersionError(StorageError):
    """The database was written by a newer release.

    Attributes:
        found: Schema version of the database.
        supported: Newest schema version that this release knows.
    """

    def __init__(self, found: int, supported: int) -> None:
        super().__init__(
            f"the database has schema version {found}, this release knows versions up to {supported}; "
            "upgrade langchain-memoryworth"
        )
        self.found = found
        self.supported = supported


class RunFailedError(MemoryWorthError):
    """The outputs of a run were asked for, but it ended with an error (see `Run.outputs`)."""


class StoreClosedError(MemoryWorthError):
    """The store was used after `close()`."""


class MissingExtraError(MemoryWorthError, ImportError):
    """An optional dependency is not installed.

    Attributes:
        extra: The extra that brings it.
    """

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(
            f"this needs {module!r}, which is not installed: pip install 'langchain-memoryworth[{extra}]'"
        )
        self.extra = extra


class ModelUnavailableError(MemoryWorthError, OSError):
    """The embedding model is not on this machine and cannot be fetched.

    Attributes:
        model: Its name.
    """

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(
            f"the model {model!r} is not on this machine and cannot be fetched ({reason}); connect to the network once, give the "
            "folder of a copy as SentenceTransformerEmbeddings(folder), or any other LangChain embedding="
        )
        self.model = model
