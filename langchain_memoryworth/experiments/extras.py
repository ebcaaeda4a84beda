"""Optional dependencies, imported where they are used, with an error that says how to get them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from langchain_memoryworth.errors import MissingExtraError


def optional(module: str) -> ModuleType:
    """Import a module of the `paper` extra.

    Args:
        module: Dotted name, such as `scipy.stats`.

    Raises:
        MissingExtraError: If it is not installed; names the pip command.
    """
    try:
        return import_module(module)
    except ImportError as missing:
        raise MissingExtraError("paper", module.partition(".")[0]) from missing
