"""A retriever around any other retriever or vector store: without what is held back, refilled, and recorded."""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from langchain_memoryworth.adapters.refill import Ask, Refill, RetrieverSource, VectorSource
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.records import Namespace
from langchain_memoryworth.service.external import ExternalMemories, OnChange
from langchain_memoryworth.service.governor import Governor, governor_of
from langchain_memoryworth.service.namespaces import checked, resolved
from langchain_memoryworth.service.vector_sources import Cosine

_DEFAULT_K = 4


def govern(source: VectorStore | BaseRetriever, store: Any, **options: Any) -> GovernedRetriever:
    """A governed retriever on a vector store or a retriever of any kind.

    Args:
        source: Where the memories are.
        store: The `MemoryWorthStore`, or its governor, that keeps the evidence.
        **options: The other fields of `GovernedRetriever`: k, search_kwargs, min_similarity, cosine, on_change, id_key,
            namespace.

    Raises:
        InvalidInputError: If one of them cannot be meant.

    Examples:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_memoryworth import MemoryWorthStore
        >>> embedding = DeterministicFakeEmbedding(size=8)
        >>> notes = InMemoryVectorStore.from_texts(["tea", "coffee"], embedding)
        >>> store = MemoryWorthStore("sqlite://", embedding)
        >>> retriever = govern(notes, store, k=1)
        >>> with store.episode() as episode:
        ...     found = retriever.invoke("tea")
        >>> episode.record(True)
        True
        >>> store.worth(found[0].id)
        1.0
    """
    if isinstance(source, VectorStoreRetriever) and source.search_type == "similarity":
        # Its vector store says more than it does: scores, and what else there is.
        arguments = {**source.search_kwargs, **options.pop("search_kwargs", {})}
        source, options = source.vectorstore, {**options, "search_kwargs": arguments}
    try:
        return GovernedRetriever(source=source, store=store, **options)
    except ValidationError as error:
        raise _invalid(error) from error


def _invalid(error: ValidationError) -> InvalidInputError:
    first = error.errors()[0]
    ours = first.get("ctx", {}).get("error")
    if isinstance(ours, InvalidInputError):
        return ours
    reasons = [f"{e['loc'][0]}={e['input']!r}: {e['msg']}" for e in error.errors()]
    return InvalidInputError("; ".join(reasons), value=first["input"])


class GovernedRetriever(BaseRetriever):
    """What a vector store or retriever finds, without what is held back, and recorded for the run.

    It asks for more until k memories are found that may be served, or the source has no more. The order is the source's.
    The run is found as for `MemoryWorthRetriever`. Make one with `govern(source, store)`.

    A memory is known by the id that the source gives, and without one by a hash of namespace and text: two documents of
    equal text are then one memory, served once, with one evidence. Every document returned has that id.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    source: VectorStore | BaseRetriever
    """Where the memories are."""
    store: Annotated[Governor, BeforeValidator(governor_of)]
    """The store that keeps the evidence, or its governor."""
    k: int | None = Field(default=None, ge=1)
    """How many memories are returned; None means 4 of a vector store, and as many as a retriever gives by itself."""
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Given to the vector store's search, such as a filter."""
    min_similarity: float | None = Field(default=None, ge=-1, le=1)
    """Cosine below which nothing is served; None means the policy's. Only where scores can be read as cosines."""
    cosine: Cosine | None = None
    """From a score of the source to a cosine, where it is not known; for unit vectors in Chroma's `l2`, `1 - d / 2`."""
    on_change: OnChange = "fresh"
    """Whether a changed text under the same id starts fresh evidence, or keeps it."""
    id_key: str | None = None
    """Key in the metadata that has the id."""
    namespace: Annotated[Namespace, BeforeValidator(checked)] | None = None
    """Of the evidence; `{name}` is filled in from the run. None means the store's own."""

    @model_validator(mode="after")
    def _consistent(self) -> GovernedRetriever:
        if getattr(self.source, "governor", None) is not None or isinstance(
            getattr(self.source, "store", None), Governor
        ):
            raise InvalidInputError(
                f"{type(self.source).__name__} is governed already; use it as it is",
                value=self.source,
            )
        if self.min_similarity is not None and not self._source().has_cosines:
            raise InvalidInputError(
                f"the scores of this {type(self.source).__name__} are no cosines, so min_similarity "
                "means nothing to them; give cosine=, a function from its scores to cosines",
                value=self.min_similarity,
            )
        return self

    def _source(self) -> VectorSource | RetrieverSource:
        if isinstance(self.source, VectorStore):
            return VectorSource(self.source, self.search_kwargs, self.cosine)
        return RetrieverSource(self.source)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        source, refill = self._source(), self._refill(run_manager, k)
        ask: Ask | None = refill.first()
        while ask is not None:
            ask = refill.go_on(ask, source.find(query, ask, run_manager.get_child()))
        return refill.documents()

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        source, refill = self._source(), self._refill(run_manager, k)
        ask: Ask | None = refill.first()
        while ask is not None:
            answer = await source.afind(query, ask, run_manager.get_child())
            ask = await run_in_executor(None, refill.go_on, ask, answer)
        return await run_in_executor(None, refill.documents)

    def _refill(
        self,
        run_manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
        k: int | None,
    ) -> Refill:
        metadata = run_manager.metadata or {}
        namespace = None if self.namespace is None else resolved(self.namespace, metadata)
        external = ExternalMemories(self.store, namespace=namespace, on_change=self.on_change)
        wanted = k or self.k or self.search_kwargs.get("k")
        if wanted is None and isinstance(self.source, VectorStore):
            wanted = _DEFAULT_K
        floor = self.min_similarity
        return Refill(
            external=external,
            caller=external.caller(run_manager.run_id, metadata),
            k=wanted,
            floor=self.store.policy.min_similarity if floor is None else floor,
            id_key=self.id_key,
        )
