"""Memory Worth for LangChain and LangGraph: which memories to serve, learnt from how the runs went.

Names are imported at their first use: `import langchain_memoryworth` loads neither FAISS nor LangChain.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_memoryworth.attribution import by_citation, by_embedding, by_words
    from langchain_memoryworth.base_store import GovernedStore
    from langchain_memoryworth.callbacks import MemoryWorthCallbackHandler, memory_worth
    from langchain_memoryworth.credit import Shown, signed_outcome
    from langchain_memoryworth.errors import MemoryWorthError
    from langchain_memoryworth.evaluators import evaluator, scores_of
    from langchain_memoryworth.evidence import Evidence, worth
    from langchain_memoryworth.governed import GovernedRetriever, govern
    from langchain_memoryworth.judges import (
        Run,
        exact_match,
        exceptions_as_failure,
        first_known,
        keyword_match,
        output_key,
        rejections_as_failure,
        tool_errors_as_failure,
    )
    from langchain_memoryworth.langfuse_source import LangfuseScores
    from langchain_memoryworth.langsmith_source import LangSmithFeedback
    from langchain_memoryworth.middleware import MemoryWorthMiddleware
    from langchain_memoryworth.nodes import OutcomeNode, RecallNode
    from langchain_memoryworth.policy import Policy, Quarantine
    from langchain_memoryworth.recorder import SHOWN_EVENT, USED_EVENT
    from langchain_memoryworth.records import Health, Memory, Outcome, Status, Verdict
    from langchain_memoryworth.retriever import MemoryWorthRetriever
    from langchain_memoryworth.sources import Feedback, OutcomeSource, Pulled, apull, pull
    from langchain_memoryworth.suppression import SuppressionFilter
    from langchain_memoryworth.vectorstore import MemoryWorthStore

_HOME = {
    "SHOWN_EVENT": "recorder",
    "USED_EVENT": "recorder",
    "Evidence": "evidence",
    "Feedback": "sources",
    "GovernedRetriever": "governed",
    "GovernedStore": "base_store",
    "Health": "records",
    "LangSmithFeedback": "langsmith_source",
    "LangfuseScores": "langfuse_source",
    "Memory": "records",
    "MemoryWorthCallbackHandler": "callbacks",
    "MemoryWorthError": "errors",
    "MemoryWorthMiddleware": "middleware",
    "MemoryWorthRetriever": "retriever",
    "MemoryWorthStore": "vectorstore",
    "Outcome": "records",
    "OutcomeNode": "nodes",
    "OutcomeSource": "sources",
    "Policy": "policy",
    "Pulled": "sources",
    "Quarantine": "policy",
    "RecallNode": "nodes",
    "Run": "judges",
    "Shown": "credit",
    "Status": "records",
    "SuppressionFilter": "suppression",
    "Verdict": "records",
    "evaluator": "evaluators",
    "exact_match": "judges",
    "exceptions_as_failure": "judges",
    "first_known": "judges",
    "govern": "governed",
    "keyword_match": "judges",
    "memory_worth": "callbacks",
    "output_key": "judges",
    "apull": "sources",
    "by_citation": "attribution",
    "by_embedding": "attribution",
    "by_words": "attribution",
    "pull": "sources",
    "rejections_as_failure": "judges",
    "scores_of": "evaluators",
    "signed_outcome": "credit",
    "tool_errors_as_failure": "judges",
    "worth": "evidence",
}

__all__ = [
    "SHOWN_EVENT",
    "USED_EVENT",
    "Evidence",
    "Feedback",
    "GovernedRetriever",
    "GovernedStore",
    "Health",
    "LangSmithFeedback",
    "LangfuseScores",
    "Memory",
    "MemoryWorthCallbackHandler",
    "MemoryWorthError",
    "MemoryWorthMiddleware",
    "MemoryWorthRetriever",
    "MemoryWorthStore",
    "Outcome",
    "OutcomeNode",
    "OutcomeSource",
    "Policy",
    "Pulled",
    "Quarantine",
    "RecallNode",
    "Run",
    "Shown",
    "Status",
    "SuppressionFilter",
    "Verdict",
    "__version__",
    "apull",
    "by_citation",
    "by_embedding",
    "by_words",
    "evaluator",
    "exact_match",
    "exceptions_as_failure",
    "first_known",
    "govern",
    "keyword_match",
    "memory_worth",
    "output_key",
    "pull",
    "rejections_as_failure",
    "scores_of",
    "signed_outcome",
    "tool_errors_as_failure",
    "worth",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("langchain-memoryworth")
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
