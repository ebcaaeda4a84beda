"""A policy for tests about one rule at a time: the ratio against a threshold, and nothing beside it."""

from __future__ import annotations

from typing import Any

from langchain_memoryworth import Policy

PLAIN: dict[str, Any] = {
    "confidence": None,
    "margin_low": None,
    "harm": None,
    "decline": None,
    "max_suppressed": 1.0,
    "effect_weight": 0.0,
}


def plain(**fields: Any) -> Policy:
    """Every rule off that the ratio does not need; a few outcomes suffice, also in a store of two memories.

    Args:
        **fields: Fields of `Policy` that the test is about.
    """
    return Policy(**{**PLAIN, **fields})
