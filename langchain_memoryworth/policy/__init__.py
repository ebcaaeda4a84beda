"""The policy: from evidence to a verdict, from a verdict to what is served. No state, no I/O."""

from langchain_memoryworth.policy.policy import Policy
from langchain_memoryworth.policy.ranking import Rank
from langchain_memoryworth.policy.thresholds import Quarantine

__all__ = ["Policy", "Quarantine", "Rank"]
