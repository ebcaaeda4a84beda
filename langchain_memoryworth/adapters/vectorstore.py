"""The store that users hold: a LangChain `VectorStore` that knows what its memories are worth."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Self

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore
from numpy.typing import ArrayLike

from langchain_memoryworth.adapters.retriever import (
    MemoryWorthRetriever,
    cosine_of,
    documents,
    relevance_of,
)
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.ledger.engines import Durability
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Hit
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.service.namespaces import called, checked
from langchain_memoryworth.service.operations import GovernedMemories
from langchain_memoryworth.service.recall import check_number
from langchain_memoryworth.twins import awaitable
from langchain_memoryworth.vectors.embeddings import SentenceTransformerEmbeddings, name_of
from langchain_memoryworth.vectors.index import Kind


class MemoryWorthStore(GovernedMemories, VectorStore):
    """Memories with vectors, counters and verdicts, on SQLite and FAISS.

    Args:
        url: SQLAlchemy URL; `sqlite://` keeps everything in memory, `postgresql+psycopg://host/name` is shared by
            many workers, there in the Postgres schema `memoryworth` or the one of `?schema=name`.
        embedding: None means all-MiniLM-L6-v2 on this machine, from the `local` extra.
        policy: Thresholds; None means those stored in the database, or the default ones.
        namespace: Where memories go and are looked for unless a call says otherwise.
        embedding_name: What to call the model; by default its `model_name`.
        index: `flat` is exact, `hnsw` approximate and faster for many memories; `flat-fp16` and `hnsw-fp16` round vectors to
            half the memory; `pgvector` searches in the Postgres itself, for stores that do not fit into a worker.
        graph_folder: Where the graphs of `hnsw` are kept from one process to the next; None means beside an SQLite file,
            and nowhere with Postgres.
        durability: `normal` survives a crash of the process, `full` a power failure too.
        pool_size: Connections to a database server at most; None means 5.
        group_commit: If given, outcomes that several threads record at once share a transaction: each call returns when
            that is committed. Who writes waits so long for others to come, a day at most; `timedelta(0)` takes those who are there. An
            outcome that is refused is the affair of its caller alone.
        clock: Unix time in seconds; for tests and simulations.

    Raises:
        InvalidInputError: If an argument cannot be meant; then nothing was made.
        StorageError: If the database cannot be used, see its subclasses.
        EmbeddingMismatchError: If another model filled it.

    Examples:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> store = MemoryWorthStore("sqlite://", DeterministicFakeEmbedding(size=8))
        >>> ids = store.add_texts(["Prague is in Czechoslovakia"])
        >>> with store.episode() as episode:
        ...     answer = store.similarity_search("where is Prague?", k=1)
        >>> episode.record(False)
        True
        >>> store.worth(ids[0])
        0.0
    """

    def __init__(
        self,
        url: str = "sqlite:///memories.db",
        embedding: Embeddings | None = None,
        *,
        policy: Policy | None = None,
        namespace: Sequence[str] | str = (),
        embedding_name: str | None = None,
        index: Kind = "flat",
        graph_folder: os.PathLike[str] | str | None = None,
        durability: Durability = "normal",
        pool_size: int | None = None,
        group_commit: timedelta | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if embedding is None:
            embedding = SentenceTransformerEmbeddings()
        if not isinstance(embedding, Embeddings):
            raise InvalidInputError(
                f"embedding={embedding!r} is no langchain_core Embeddings", value=embedding
            )
        if policy is not None and not isinstance(policy, Policy):
            raise InvalidInputError(
                f"policy={policy!r}; give a Policy, such as Policy(theta_low=0.4)", value=policy
            )
        if embedding_name is not None and not isinstance(embedding_name, str):
            raise InvalidInputError(
                f"embedding_name={embedding_name!r}; give a text", value=embedding_name
            )
        self.governor = Governor(
            url,
            embedding,
            embedding_name=embedding_name or name_of(embedding),
            policy=policy,
            namespace=checked(namespace),
            index=index,
            graph_folder=graph_folder,
            durability=durability,
            pool_size=pool_size,
            group_commit=group_commit,
            clock=clock,
        )

    @property
    def embeddings(self) -> Embeddings:
        """The embedding model."""
        return self.governor.embedding

    def __repr__(self) -> str:
        return f"MemoryWorthStore({self.governor.url!r}, {self.governor.embedding_name!r})"

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        namespace: Sequence[str] | str | None = None,
        ttl: timedelta | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Store texts; a text that is there under its id keeps its evidence.

        Args:
            texts: What to store.
            metadatas: One mapping per text.
            ids: One id per text; missing ones are a hash of namespace and text.
            namespace: None means the store's own.
            ttl: How long they live from now; storing them again begins anew. None means as long as `Policy.ttl` says.
            **kwargs: Not used.

        Returns:
            The ids, in order.
        """
        texts = _strings(texts)
        if not texts:
            return []
        _same_length(texts, metadatas, ids)
        vectors = self.embeddings.embed_documents(texts)
        return self._add(texts, vectors, metadatas, ids, namespace, ttl)

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        namespace: Sequence[str] | str | None = None,
        ttl: timedelta | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """`add_texts` that awaits the embedding."""
        texts = _strings(texts)
        if not texts:
            return []
        _same_length(texts, metadatas, ids)
        vectors = await self.embeddings.aembed_documents(texts)
        add = partial(self._add, texts, vectors, metadatas, ids, namespace, ttl)
        return await run_in_executor(None, add)

    def add_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, ArrayLike]],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        namespace: Sequence[str] | str | None = None,
        ttl: timedelta | None = None,
    ) -> list[str]:
        """`add_texts` with vectors that are there already: pairs of text and vector."""
        pairs = _pairs(text_embeddings)
        texts = _strings(t for t, _ in pairs)
        _same_length(texts, metadatas, ids)
        return self._add(texts, [v for _, v in pairs], metadatas, ids, namespace, ttl)

    aadd_embeddings = awaitable(add_embeddings)

    def _add(
        self,
        texts: list[str],
        vectors: Any,
        metadatas: list[dict[str, Any]] | None,
        ids: Sequence[str | None] | None,
        namespace: Sequence[str] | str | None,
        ttl: timedelta | None,
    ) -> list[str]:
        return self.governor.collection.add(
            texts,
            vectors,
            metadatas or [{}] * len(texts),
            [None if i is None else str(i) for i in ids or [None] * len(texts)],
            called(namespace, None),
            ttl=ttl,
        )

    def delete(
        self,
        ids: list[str] | None = None,
        *,
        namespace: Sequence[str] | str | None = None,
        **kwargs: Any,
    ) -> bool:
        """Take memories out of service, None for all; added again, they find their evidence."""
        self.governor.collection.retire(ids, called(namespace, None))
        return True

    async def adelete(
        self,
        ids: list[str] | None = None,
        *,
        namespace: Sequence[str] | str | None = None,
        **kwargs: Any,
    ) -> bool:
        """`delete` off the event loop."""
        return await run_in_executor(None, self.delete, ids, namespace=namespace)

    def get_by_ids(
        self, ids: Sequence[str], /, *, namespace: Sequence[str] | str | None = None
    ) -> list[Document]:
        """Documents by id, in order; unknown ids are left out."""
        found = self.governor.collection.get(ids, called(namespace, None))
        return [
            Document(id=i, page_content=found[i].text, metadata=dict(found[i].metadata))
            for i in ids
            if i in found
        ]

    async def aget_by_ids(
        self, ids: Sequence[str], /, *, namespace: Sequence[str] | str | None = None
    ) -> list[Document]:
        """`get_by_ids` off the event loop."""
        return await run_in_executor(None, self.get_by_ids, ids, namespace=namespace)

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """The k best memories; `kwargs` as in `Governor.recall_by_vector`."""
        return documents(self._search(query, k, **kwargs))

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """`similarity_search` that awaits the embedding."""
        return documents(await self._asearch(query, k, **kwargs))

    def similarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Documents with their cosine in [-1, 1], higher is nearer."""
        return _scored(self._search(query, k, **kwargs))

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`similarity_search_with_score` that awaits the embedding."""
        return _scored(await self._asearch(query, k, **kwargs))

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """`similarity_search` for a vector."""
        return documents(
            self.governor.retrieval.recall_by_vector(embedding, k, **self._options(kwargs))
        )

    async def asimilarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """`similarity_search_by_vector` off the event loop."""
        return await run_in_executor(None, self.similarity_search_by_vector, embedding, k, **kwargs)

    def similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Documents with LangChain's relevance (1 + cosine)/2 in [0, 1]; `score_threshold` is on that."""
        return _relevant(self._search(query, k, **_with_threshold(kwargs)))

    async def asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`similarity_search_with_relevance_scores` that awaits the embedding."""
        return _relevant(await self._asearch(query, k, **_with_threshold(kwargs)))

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """The k memories of the best `fetch_k` that are relevant and unlike each other."""
        return documents(self._search(query, k, fetch_k=fetch_k, diversity=lambda_mult, **kwargs))

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """`max_marginal_relevance_search` that awaits the embedding."""
        return documents(
            await self._asearch(query, k, fetch_k=fetch_k, diversity=lambda_mult, **kwargs)
        )

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """`max_marginal_relevance_search` for a vector."""
        options = self._options({**kwargs, "fetch_k": fetch_k, "diversity": lambda_mult})
        return documents(self.governor.retrieval.recall_by_vector(embedding, k, **options))

    async def amax_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """`max_marginal_relevance_search_by_vector` off the event loop."""
        return await run_in_executor(
            None,
            self.max_marginal_relevance_search_by_vector,
            embedding,
            k,
            fetch_k,
            lambda_mult,
            **kwargs,
        )

    def as_retriever(self, **kwargs: Any) -> MemoryWorthRetriever:  # type: ignore[override]  # it records
        """A retriever on this store.

        Args:
            **kwargs: `search_type`, `search_kwargs` as in LangChain, or any field of `MemoryWorthRetriever`.
        """
        options = {**kwargs.pop("search_kwargs", {}), **kwargs}
        return MemoryWorthRetriever(store=self.governor, **options)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        url: str = "sqlite://",
        **kwargs: Any,
    ) -> Self:
        """A store filled with texts, in memory unless a `url` is given; `kwargs` as for the class."""
        store = cls(url, embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        url: str = "sqlite://",
        **kwargs: Any,
    ) -> Self:
        """`from_texts` that awaits the embedding."""
        store = await run_in_executor(None, cls, url, embedding, **kwargs)
        await store.aadd_texts(texts, metadatas, ids=ids)
        return store

    def _search(self, query: str, k: int, **kwargs: Any) -> list[Hit]:
        return self.governor.retrieval.recall(query, k, **self._options(kwargs))

    async def _asearch(self, query: str, k: int, **kwargs: Any) -> list[Hit]:
        return await self.governor.retrieval.arecall(query, k, **self._options(kwargs))


def _strings(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise InvalidInputError("texts is one string; give a list of texts", value=texts)
    if not isinstance(texts, Iterable):
        raise InvalidInputError(f"texts={texts!r}; give a list of texts", value=texts)
    listed = list(texts)
    for i, text in enumerate(listed):
        if not isinstance(text, str):
            raise InvalidInputError(f"text {i} is {text!r}; give strings", value=text)
    return listed


def _pairs(text_embeddings: Iterable[tuple[str, ArrayLike]]) -> list[tuple[str, ArrayLike]]:
    try:
        return [(text, vector) for text, vector in text_embeddings]
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"these are no embeddings ({error}); give pairs of a text and its vector",
            value=text_embeddings,
        ) from error


def _same_length(texts: Sequence[str], *others: Sequence[Any] | None) -> None:
    for name, other in zip(("metadatas", "ids"), others, strict=True):
        # A string would be taken letter by letter, a mapping key by key.
        if isinstance(other, (str, Mapping)):
            raise InvalidInputError(
                f"{name}={other!r}; give a list, one for each text", value=other
            )
        if other is not None and len(other) != len(texts):
            raise InvalidInputError(
                f"{len(other)} {name} for {len(texts)} texts; give one for each", value=other
            )


def _scored(hits: Sequence[Hit]) -> list[tuple[Document, float]]:
    return [(d, h.similarity) for d, h in zip(documents(list(hits)), hits, strict=True)]


def _relevant(hits: Sequence[Hit]) -> list[tuple[Document, float]]:
    return [(d, relevance_of(s)) for d, s in _scored(hits)]


def _with_threshold(kwargs: dict[str, Any]) -> dict[str, Any]:
    options = dict(kwargs)
    threshold = options.pop("score_threshold", None)
    if threshold is None:
        return options
    check_number("score_threshold", threshold, 0, 1)
    return {**options, "min_similarity": cosine_of(threshold)}
