"""Memory Worth for LangChain and LangGraph: which memories to serve, learnt from how the runs went.

Names are imported at their first use: `import langchain_memoryworth` loads neither FAISS nor LangChain.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_memoryworth.adapters.base_store import GovernedStore
    from langchain_memoryworth.adapters.callbacks import MemoryWorthCallbackHandler, memory_worth
    from langchain_memoryworth.adapters.governed import GovernedRetriever, govern
    from langchain_memoryworth.adapters.middleware import MemoryWorthMiddleware
    from langchain_memoryworth.adapters.nodes import OutcomeNode, RecallNode
    from langchain_memoryworth.adapters.recorder import SHOWN_EVENT, USED_EVENT
    from langchain_memoryworth.adapters.retriever import MemoryWorthRetriever
    from langchain_memoryworth.adapters.suppression import SuppressionFilter
    from langchain_memoryworth.adapters.vectorstore import MemoryWorthStore
    from langchain_memoryworth.errors import MemoryWorthError
    from langchain_memoryworth.estimators.credit import Shown, signed_outcome
    from langchain_memoryworth.estimators.evidence import Evidence, Verdict, worth
    from langchain_memoryworth.outcomes.attribution import by_citation, by_embedding, by_words
    from langchain_memoryworth.outcomes.evaluators import evaluator, scores_of
    from langchain_memoryworth.outcomes.judges import (
        Run,
        exact_match,
        exceptions_as_failure,
        first_known,
        keyword_match,
        output_key,
        rejections_as_failure,
        tool_errors_as_failure,
    )
    from langchain_memoryworth.outcomes.langfuse_source import LangfuseScores
    from langchain_memoryworth.outcomes.langsmith_source import LangSmithFeedback
    from langchain_memoryworth.outcomes.sources import Feedback, OutcomeSource, Pulled, apull, pull
    from langchain_memoryworth.policy import Policy, Quarantine
    from langchain_memoryworth.records import Health, Memory, Outcome, Status

_HOME = {
    "SHOWN_EVENT": "adapters.recorder",
    "USED_EVENT": "adapters.recorder",
    "Evidence": "estimators.evidence",
    "Feedback": "outcomes.sources",
    "GovernedRetriever": "adapters.governed",
    "GovernedStore": "adapters.base_store",
    "Health": "records",
    "LangSmithFeedback": "outcomes.langsmith_source",
    "LangfuseScores": "outcomes.langfuse_source",
    "Memory": "records",
    "MemoryWorthCallbackHandler": "adapters.callbacks",
    "MemoryWorthError": "errors",
    "MemoryWorthMiddleware": "adapters.middleware",
    "MemoryWorthRetriever": "adapters.retriever",
    "MemoryWorthStore": "adapters.vectorstore",
    "Outcome": "records",
    "OutcomeNode": "adapters.nodes",
    "OutcomeSource": "outcomes.sources",
    "Policy": "policy",
    "Pulled": "outcomes.sources",
    "Quarantine": "policy",
    "RecallNode": "adapters.nodes",
    "Run": "outcomes.judges",
    "Shown": "estimators.credit",
    "Status": "records",
    "SuppressionFilter": "adapters.suppression",
    "Verdict": "estimators.evidence",
    "evaluator": "outcomes.evaluators",
    "exact_match": "outcomes.judges",
    "exceptions_as_failure": "outcomes.judges",
    "first_known": "outcomes.judges",
    "govern": "adapters.governed",
    "keyword_match": "outcomes.judges",
    "memory_worth": "adapters.callbacks",
    "output_key": "outcomes.judges",
    "apull": "outcomes.sources",
    "by_citation": "outcomes.attribution",
    "by_embedding": "outcomes.attribution",
    "by_words": "outcomes.attribution",
    "pull": "outcomes.sources",
    "rejections_as_failure": "outcomes.judges",
    "scores_of": "outcomes.evaluators",
    "signed_outcome": "estimators.credit",
    "tool_errors_as_failure": "outcomes.judges",
    "worth": "estimators.evidence",
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
