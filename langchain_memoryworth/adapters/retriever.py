"""The retriever: memories for a query, written down for the run that asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Annotated, Any, Literal

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.records import Hit, Namespace
from langchain_memoryworth.service.governor import Governor, governor_of
from langchain_memoryworth.service.namespaces import checked, resolved
from langchain_memoryworth.vectors.filters import predicate

SearchType = Literal["similarity", "mmr", "similarity_score_threshold"]

_OF_A_CALL = (
    "k",
    "search_type",
    "namespace",
    "filter",
    "rank",
    "score_threshold",
    "lambda_mult",
    "fetch_k",
    "context",
)

# Retrievers are never given `configurable`, but a namespace may be filled in from it.
_configurable: ContextVar[Mapping[str, Any]] = ContextVar("memory_worth_configurable")


def _checked_filter(given: Any) -> Any:
    if given is not None:
        predicate(given)
    return given


class MemoryWorthRetriever(BaseRetriever):
    """Retrieves memories by similarity and worth, without those held back, and records them for the run.

    The run is found by the `MemoryWorthCallbackHandler` attached to it, by `store.episode()` around the call, or by
    `episode_id` in the run's metadata. Otherwise the retrieval is counted as unattributed in `store.health()`.

    Every field may also be given to `invoke`: `retriever.invoke(question, k=2)`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    store: Annotated[Governor, BeforeValidator(governor_of)]
    """The store, or its governor."""
    k: int = Field(default=4, ge=1)
    """How many memories are returned."""
    search_type: SearchType = "similarity"
    """`mmr` adds diversity, `similarity_score_threshold` leaves out what is too far away."""
    namespace: Annotated[Namespace, BeforeValidator(checked)] | None = None
    """Where to look; `{name}` is filled in from the run's metadata or configurable. None means the store's own."""
    filter: Annotated[Any, AfterValidator(_checked_filter)] = None
    """On metadata and text, see `Filter`."""
    rank: tuple[float, ...] | None = None
    """Weights of similarity, worth and recency; None means the policy's."""
    score_threshold: float | None = Field(default=None, ge=0, le=1)
    """Smallest relevance (1 + cosine)/2 in [0, 1], for `similarity_score_threshold`."""
    lambda_mult: float = Field(default=0.5, ge=0, le=1)
    """For `mmr`: 1 is pure relevance, 0 pure diversity."""
    fetch_k: int = Field(default=20, ge=1)
    """For `mmr`: how many candidates to choose from."""

    context: str | Callable[[str], str | None] | None = None
    """The kind of task, or a function that tells it from the query; None means what `memory_context` in the run's metadata
    says. Worth is also kept by context, see `by_context`, so it must be known before the outcome."""

    @model_validator(mode="after")
    def _threshold_given(self) -> MemoryWorthRetriever:
        if self.search_type == "similarity_score_threshold" and self.score_threshold is None:
            raise ValueError("search_type='similarity_score_threshold' needs score_threshold")
        return self

    def invoke(
        self, input: str, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Document]:
        """Retrieve, see the class."""
        token = _configurable.set(ensure_config(config).get("configurable") or {})
        try:
            return super().invoke(input, config, **kwargs)
        finally:
            _configurable.reset(token)

    async def ainvoke(
        self, input: str, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Document]:
        """Retrieve, see the class."""
        token = _configurable.set(ensure_config(config).get("configurable") or {})
        try:
            return await super().ainvoke(input, config, **kwargs)
        finally:
            _configurable.reset(token)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return documents(
            self.store.retrieval.recall(query, **self._options(query, run_manager, kwargs))
        )

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return documents(
            await self.store.retrieval.arecall(query, **self._options(query, run_manager, kwargs))
        )

    def _options(
        self,
        query: str,
        run_manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
        kwargs: Mapping[str, Any],
    ) -> dict[str, Any]:
        asked = self._asked(kwargs) if kwargs else self
        metadata = {**_configurable.get({}), **(run_manager.metadata or {})}
        options: dict[str, Any] = {
            "k": asked.k,
            "filter": asked.filter,
            "rank": asked.rank,
            "run_id": run_manager.run_id,
            "metadata": metadata,
        }
        if callable(asked.context):
            with self.store.losses.guard("the context of a query"):
                options["context"] = asked.context(query)
        else:
            options["context"] = asked.context
        if asked.namespace is not None:
            options["namespace"] = resolved(checked(asked.namespace), metadata)
        if asked.search_type == "mmr":
            options |= {"diversity": asked.lambda_mult, "fetch_k": asked.fetch_k}
        elif asked.search_type == "similarity_score_threshold":
            options["min_similarity"] = cosine_of(asked.score_threshold or 0.0)
        return options

    def _asked(self, kwargs: Mapping[str, Any]) -> MemoryWorthRetriever:
        """The retriever with some fields as a call has them, checked as its constructor would."""
        fields = {name: getattr(self, name) for name in _OF_A_CALL}
        wrong = set(kwargs) - set(fields) - {"verbose"}  # LangChain's own, and not for us
        if wrong:
            raise InvalidInputError(
                f"{sorted(wrong)} can not be given to a call; {sorted(fields)} can", value=wrong
            )
        try:
            return MemoryWorthRetriever(
                store=self.store, **{n: kwargs.get(n, value) for n, value in fields.items()}
            )
        except ValidationError as error:
            first = error.errors()[0]
            where = [f"{name}={first['input']!r}: " for name in first["loc"][:1]]
            raise InvalidInputError("".join([*where, first["msg"]]), value=dict(kwargs)) from error

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        params = super()._get_ls_params(**kwargs)
        params["ls_vector_store_provider"] = "MemoryWorthStore"
        return params


def documents(hits: list[Hit]) -> list[Document]:
    """Hits as documents. No score goes into the metadata: it would break de-duplication and leak into prompts."""
    return [Document(id=h.id, page_content=h.text, metadata=dict(h.metadata)) for h in hits]


def relevance_of(cosine: float) -> float:
    """LangChain's relevance in [0, 1] of a cosine.

    Examples:
        >>> relevance_of(1.0), relevance_of(0.0)
        (1.0, 0.5)
    """
    return (1.0 + cosine) / 2.0


def cosine_of(relevance: float) -> float:
    """The inverse of `relevance_of`."""
    return 2.0 * relevance - 1.0
