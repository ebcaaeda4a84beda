"""Whatever does I/O can be awaited, with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from langchain_memoryworth import (
    MemoryWorthRetriever,
    MemoryWorthStore,
    SuppressionFilter,
)

NO_IO = {
    MemoryWorthStore: {
        "as_retriever": "makes an object",
        "close": "ends everything, also what the loop waits for",
        "episode": "a context manager that only sets a variable",
    },
    MemoryWorthRetriever: {},
    SuppressionFilter: {},
}
"""Public methods of our own that need no twin, and why."""


def own(cls: type) -> dict[str, Any]:
    """Public callables that this package defines on a class."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("langchain_memoryworth"):
            found |= {
                n: getattr(cls, n)
                for n, v in vars(base).items()
                if not n.startswith(("_", "model_")) and (callable(v) or isinstance(v, classmethod))
            }
    return {n: f for n, f in found.items() if not inspect.isclass(f)}


def pairs() -> list[Any]:
    return [
        pytest.param(cls, name, id=f"{cls.__name__}.{name}")
        for cls in NO_IO
        for name in own(cls)
        if not (name.startswith("a") and hasattr(cls, name[1:])) and name not in NO_IO[cls]
    ]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in found]


@pytest.mark.parametrize(("cls", "name"), pairs())
def test_a_sync_method_has_its_async_twin(cls: type, name: str) -> None:
    twin = getattr(cls, f"a{name}", None)
    assert twin is not None, f"{cls.__name__} has no a{name}"
    assert inspect.iscoroutinefunction(twin)
    assert parameters(twin) == parameters(getattr(cls, name))


@pytest.mark.parametrize("cls", NO_IO)
def test_the_exceptions_exist(cls: type) -> None:
    assert set(NO_IO[cls]) <= set(own(cls))


def test_the_methods_are_found() -> None:
    names = {p.id for p in pairs()}
    assert {
        "MemoryWorthStore.record_outcome",
        "MemoryWorthStore.add_texts",
        "MemoryWorthStore.similarity_search",
        "MemoryWorthRetriever.invoke",
        "SuppressionFilter.compress_documents",
    } <= names
