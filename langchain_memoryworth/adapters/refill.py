"""Asking a source again until enough of what it finds may be served, or it has no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langchain_core.callbacks import Callbacks
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

from langchain_memoryworth.service.collection import content_id
from langchain_memoryworth.service.external import (
    Caller,
    Candidate,
    Choice,
    ExternalMemories,
    served,
)
from langchain_memoryworth.service.vector_sources import Cosine, reading_of


class Ask(NamedTuple):
    """What a source is asked for.

    Attributes:
        number: How many documents; None means as many as it gives by itself.
        had: How many it gave the last time.
        without: Its ids of documents that it gave before and is to leave out.
    """

    number: int | None
    had: int = 0
    without: frozenset[Any] = frozenset()


class Found(NamedTuple):
    """One document that a source found.

    Attributes:
        own_id: Its id as the source knows it, or None.
        similarity: Cosine in [-1, 1], or None where the source's score is none.
    """

    document: Document
    own_id: Any
    similarity: float | None


class Answer(NamedTuple):
    """What a source found, nearest first.

    Attributes:
        exhausted: It has no more.
        selective: It can be asked to leave documents out by their ids.
    """

    found: Sequence[Found]
    exhausted: bool
    selective: bool = False


class VectorSource:
    """A vector store.

    Args:
        store: The store.
        arguments: Of its search.
        cosine: What its scores mean, where that is not known of its kind.
    """

    def __init__(
        self, store: VectorStore, arguments: Mapping[str, Any], cosine: Cosine | None
    ) -> None:
        self._store = store
        self._arguments = {name: value for name, value in arguments.items() if name != "k"}
        self._reading = reading_of(store)
        self._cosine = cosine or self._reading.cosine(store)

    @property
    def has_cosines(self) -> bool:
        """Whether its scores can be read as cosines."""
        return self._cosine is not None

    def find(self, query: str, ask: Ask, callbacks: Callbacks) -> Answer:
        """Search once."""
        count, arguments = self._call(ask)
        if self._cosine is None:
            found = self._store.similarity_search(query, k=count, **arguments)
            return self._answer(ask, arguments, [(d, None) for d in found])
        scored = self._store.similarity_search_with_score(query, k=count, **arguments)
        return self._answer(ask, arguments, scored)

    async def afind(self, query: str, ask: Ask, callbacks: Callbacks) -> Answer:
        """Search once."""
        count, arguments = self._call(ask)
        if self._cosine is None:
            found = await self._store.asimilarity_search(query, k=count, **arguments)
            return self._answer(ask, arguments, [(d, None) for d in found])
        scored = await self._store.asimilarity_search_with_score(query, k=count, **arguments)
        return self._answer(ask, arguments, scored)

    def _call(self, ask: Ask) -> tuple[int, dict[str, Any]]:
        arguments, count = self._arguments, ask.number or 1
        if ask.without and self._reading.without is not None:
            arguments = self._reading.without(self._store, ask.without, arguments)
        if self._reading.looks_at is not None and arguments.get("filter") is not None:
            looked_at, _ = self._reading.looks_at(self._store, count, arguments)
            arguments = {**arguments, "fetch_k": looked_at}
        return count, dict(arguments)

    def _answer(
        self,
        ask: Ask,
        arguments: Mapping[str, Any],
        scored: Sequence[tuple[Document, float | None]],
    ) -> Answer:
        found = [
            Found(document, self._reading.id_of(document), self._similarity(score))
            for document, score in scored
        ]
        exhausted = len(found) < (ask.number or 1)
        if exhausted and self._reading.looks_at is not None and arguments.get("filter") is not None:
            looked_at, size = self._reading.looks_at(self._store, ask.number or 1, arguments)
            exhausted = looked_at >= size
        return Answer(found, exhausted, selective=self._reading.without is not None)

    def _similarity(self, score: float | None) -> float | None:
        if score is None or self._cosine is None:
            return None
        return min(max(float(self._cosine(float(score))), -1.0), 1.0)


class RetrieverSource:
    """A retriever: asked for more through `k`, or `k` in its `search_kwargs`, if it has one of them."""

    has_cosines = False

    def __init__(self, retriever: BaseRetriever) -> None:
        self._retriever = retriever

    def find(self, query: str, ask: Ask, callbacks: Callbacks) -> Answer:
        """Retrieve once."""
        retriever = self._for(ask)
        return self._answer(ask, retriever.invoke(query, {"callbacks": callbacks}))

    async def afind(self, query: str, ask: Ask, callbacks: Callbacks) -> Answer:
        """Retrieve once."""
        retriever = self._for(ask)
        return self._answer(ask, await retriever.ainvoke(query, {"callbacks": callbacks}))

    def _for(self, ask: Ask) -> BaseRetriever:
        retriever, count = self._retriever, ask.number
        fields = type(retriever).model_fields
        if count is None:
            return retriever
        if "k" in fields:
            return retriever.model_copy(update={"k": count})
        if "search_kwargs" in fields:
            arguments = {**getattr(retriever, "search_kwargs", {}), "k": count}
            if isinstance(retriever, VectorStoreRetriever) and retriever.search_type == "mmr":
                arguments["fetch_k"] = max(count, arguments.get("fetch_k", 20))
            return retriever.model_copy(update={"search_kwargs": arguments})
        return retriever

    def _answer(self, ask: Ask, documents: Sequence[Document]) -> Answer:
        grows = {"k", "search_kwargs"} & set(type(self._retriever).model_fields)
        # What k counts is the retriever's business (hits, and not their parents), so only no growth means the end.
        exhausted = not grows or (ask.had > 0 and len(documents) <= ask.had) or not documents
        return Answer([Found(d, d.id, None) for d in documents], exhausted)


@dataclass(slots=True)
class Refill:
    """One retrieval on its way: what has been found, what of it may be served, what to ask next.

    Attributes:
        k: How many memories are wanted; None until the source has said how many it gives.
        floor: Cosine below which nothing is served, where the source has cosines; None means no floor.
        id_key: Key in the metadata that has the id of a memory.
    """

    external: ExternalMemories
    caller: Caller
    k: int | None
    floor: float | None = None
    id_key: str | None = None
    _found: dict[str, Found] = field(default_factory=dict)
    _candidates: list[Candidate] = field(default_factory=list)
    _choices: list[Choice] = field(default_factory=list)

    def first(self) -> Ask:
        """What to ask first."""
        return Ask(self.k)

    def go_on(self, ask: Ask, answer: Answer) -> Ask | None:
        """Take an answer; returns what to ask next, None if that is all."""
        reached_floor = self._take(answer)
        if self.k is None:
            self.k = len(self._found)
        self._choices = self.external.choose(self._candidates, self.k, self.caller)
        missing = self.k - len(served(self._choices))
        if missing <= 0 or answer.exhausted or reached_floor:
            return None
        own_ids = frozenset(f.own_id for f in self._found.values())
        if answer.selective and None not in own_ids:
            return Ask(max(missing, self.k), without=own_ids)
        had = len(answer.found)
        return Ask(2 * max(ask.number or 0, had), had=had)

    def _take(self, answer: Answer) -> bool:
        """Add what is new; True if the floor was reached, below which everything else is too."""
        for found in answer.found:
            if self._too_far(found):
                return True
            memory_id = self._id_of(found)
            if memory_id not in self._found:
                self._found[memory_id] = found
                text = found.document.page_content
                self._candidates.append(Candidate(memory_id, text, found.similarity))
        return False

    def _too_far(self, found: Found) -> bool:
        if self.floor is None or found.similarity is None:
            return False
        return found.similarity < self.floor

    def _id_of(self, found: Found) -> str:
        """The id of the memory that a document is; without any id, equal texts are one memory."""
        given = None if self.id_key is None else found.document.metadata.get(self.id_key)
        if given is None:
            given = found.own_id
        if given is not None:
            return str(given)
        namespace = self.external.namespace
        if namespace is None:
            namespace = self.external.governor.namespace
        return content_id(namespace, found.document.page_content)

    def documents(self) -> list[Document]:
        """What is served, written down; each document carries the id of its memory."""
        self.external.shown(self._candidates, self._choices, self.caller)
        ids = [self._candidates[c.place].id for c in served(self._choices)]
        return [self._found[i].document.model_copy(update={"id": i}) for i in ids]
