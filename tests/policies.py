"""A policy for tests about one rule at a time: the ratio against a threshold, and nothing beside it."""

from __future__ import annotations

from typing import Any

from langchain_memoryworth import Policy


def plain(**fields: Any) -> Policy:
    """The paper's rule, with what brings a memory back; a few outcomes suffice, also in a store of two memories.

    Args:
        **fields: Fields of `Policy` that the test is about.
    """
    back: dict[str, Any] = {"hysteresis": 0.05, "exploration": 0.02, "uncertain": "prior"}
    return Policy.paper(**{**back, **fields})
