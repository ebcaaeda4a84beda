"""The compatibility table of docs/adapters.md, from the cases that the tests run on; see `tests.tables`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import version

from tests.store_backends import FACED, STORES
from tests.tables import Row, Table
from tests.vector_backends import VECTOR_STORES

_PROMPT = "what reached the prompt"
_ASKED = "what was recalled into the prompt; the turn's outcome"
_SAID = "outcomes by the feedback's own id; corrections and deletions"
THROUGH = (
    (
        "`MemoryWorthMiddleware`",
        "`create_agent`",
        "langchain",
        _ASKED,
        "test_middleware_outcomes.test_the_outcome_function_sees_the_turn",
    ),
    (
        "`MemoryWorthMiddleware`",
        "`create_deep_agent`",
        "deepagents",
        _ASKED,
        "test_agents_elsewhere.test_it_works_in_deep_agents",
    ),
    (
        "`pull`, `apull`",
        "`LangSmithFeedback`",
        "langsmith",
        _SAID,
        "test_sources.test_feedback_is_pulled_off_the_event_loop",
    ),
    (
        "`pull`, `apull`",
        "`LangfuseScores`",
        "langfuse",
        _SAID,
        "test_sources.test_feedback_is_pulled_off_the_event_loop",
    ),
    (
        "langmem",
        "`create_search_memory_tool`",
        "langmem",
        "what the tool finds",
        "test_langmem.test_what_the_search_tool_finds_is_credited",
    ),
    (
        "langmem",
        "`create_memory_store_manager` on `.inner`",
        "langmem",
        "nothing, on purpose",
        "test_langmem.test_consolidation_through_inner_neither_counts_nor_is_blinded",
    ),
    (
        "`govern`",
        "`Milvus`, COSINE, L2, IP; in a loop if opened there",
        "langchain-milvus",
        "documents, ranks, cosines of COSINE; skips by id",
        "test_milvus.test_k_are_served_beside_what_is_held_back",
    ),
    (
        "`govern`",
        "through `MultiQueryRetriever`",
        "langchain-classic",
        _PROMPT,
        "test_governed.test_multi_query",
    ),
    (
        "`govern`",
        "through `EnsembleRetriever`",
        "langchain-classic",
        _PROMPT,
        "test_governed.test_ensemble",
    ),
    (
        "`govern`",
        "through `ContextualCompressionRetriever`",
        "langchain-classic",
        _PROMPT,
        "test_governed.test_compression",
    ),
    (
        "`govern`",
        "around `ParentDocumentRetriever`",
        "langchain-classic",
        _PROMPT,
        "test_governed.test_parent_documents",
    ),
    (
        "`govern`",
        "through `create_retriever_tool`",
        "langchain-core",
        _PROMPT,
        "test_governed.test_a_retriever_tool",
    ),
)
"""What other components are tested with, sync and async, and the test that says so."""

_HEAD = ("Adapter", "Around", "Package", "Version tested", "Sync", "Async", "What is recorded")
_VERSION = _HEAD.index("Version tested")


def rows() -> Iterator[Row]:
    """One row per case."""
    for backend in STORES:
        faces = {face for b, face in FACED if b is backend}
        sync = "yes" if "sync" in faces else "in another thread" if "thread" in faces else ""
        yield (
            "`GovernedStore`",
            f"`{backend.name}`",
            backend.distribution,
            version(backend.distribution),
            sync,
            "yes" if "async" in faces else "the store has none",
            "every search with a query: items, ranks, cosines",
        )
    for row in VECTOR_STORES:
        recorded = "documents, ranks, cosines" if row.cosines else "documents, ranks; no scores"
        skips = "; skips by id" if row.selective else ""
        yield (
            "`govern`",
            f"`{row.name}`, {row.metric}",
            row.distribution,
            version(row.distribution),
            "yes",
            "yes",
            recorded + skips,
        )
    for adapter, around, distribution, recorded, _ in THROUGH:
        yield (adapter, around, distribution, version(distribution), "yes", "yes", recorded)


def without_versions(lines: Iterable[Row]) -> list[Row]:
    """The rows as they are on every machine."""
    return [(*line[:_VERSION], *line[_VERSION + 1 :]) for line in lines]


TABLE = Table("adapters.md", "compatibility", _HEAD, rows)
