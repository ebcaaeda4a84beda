"""A store opened to be looked after, without the embedding model that filled it: nothing can be searched or added by text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from langchain_core.embeddings import Embeddings

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.service.namespaces import checked
from langchain_memoryworth.service.operations import GovernedMemories


class NoModel(Embeddings):
    """Stands where a model would be, and says so when one is needed."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Refuse.

        Raises:
            InvalidInputError: Always.
        """
        raise InvalidInputError(
            "this store was opened without its embedding model; open it as MemoryWorthStore to search "
            "or to add texts"
        )

    def embed_query(self, text: str) -> list[float]:
        """Refuse, as `embed_documents`."""
        self.embed_documents([text])
        raise AssertionError


class UnembeddedStore(GovernedMemories):
    """Everything that needs no vector of a text: worth, outcomes, review, decisions, erasure, export and import.

    The store must be there: a wrong name is an error, not an empty store.

    Args:
        url: As for `MemoryWorthStore`.
        namespace: Where memories are looked for unless a call says otherwise.
        clock: Unix time in seconds.

    Raises:
        InvalidInputError: If no store is there.

    Examples:
        >>> from langchain_memoryworth.errors import InvalidInputError
        >>> try:
        ...     UnembeddedStore("sqlite:///nowhere.db")
        ... except InvalidInputError as error:
        ...     print(str(error).partition(";")[0])
        there is no store at sqlite:///nowhere.db
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: Sequence[str] | str = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.governor = Governor(
            url,
            NoModel(),
            embedding_name=None,
            namespace=checked(namespace),
            clock=clock,
            make=False,
        )

    def __repr__(self) -> str:
        return f"UnembeddedStore({self.governor.url!r})"
