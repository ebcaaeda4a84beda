"""What a node reads of a graph's state, whether that is a TypedDict, a dataclass, or a model of pydantic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig

from langchain_memoryworth.errors import StateKeyError
from langchain_memoryworth.estimators.paths import Path
from langchain_memoryworth.outcomes.judges import last_turn, tools_of
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.tracking.lifecycle import kept

From = str | Callable[[Any], Any]
"""Where a value is in the state: its key, or a function of the state."""

_ABSENT = object()


def value_of(state: Any, source: From, config: RunnableConfig | None = None) -> Any:
    """What a function says of the state, or what the state has under a key.

    With a node's config, a key that only the graph has counts too; its value is None while nothing was written to it.

    Raises:
        StateKeyError: If there is no such key.

    Examples:
        >>> value_of({"question": "why?"}, "question"), value_of({"n": 1}, lambda state: state["n"] + 1)
        ('why?', 2)
    """
    if callable(source):
        return source(state)
    given = _fields(state)
    if source in given:
        return given[source]
    with suppress(KeyError):
        known = kept(config, source, _ABSENT)
        if known is not _ABSENT:
            return known
    remedy = "name the key that holds it, or give a function of the state"
    raise StateKeyError(source, list(given), remedy)


def declared(state: Any, config: RunnableConfig | None, key: str) -> Any:
    """What the graph has under a key that a node writes to.

    Raises:
        StateKeyError: If its schema has no such key.
    """
    given = _fields(state)
    try:
        return kept(config, key, given.get(key))
    except KeyError:
        remedy = "add it to the state's schema, or LangGraph drops what the node writes there"
        raise StateKeyError(key, list(given), remedy) from None


def carried_episode(state: Any, config: RunnableConfig | None, key: str) -> str | None:
    """The episode that a state carries, or else the graph that called the node with `Send`.

    Raises:
        StateKeyError: If the graph's schema has no such key.
    """
    there = declared(state, config, key)
    carried = _fields(state).get(key) or there
    return str(carried) if carried else None


@contextmanager
def tools_called(governor: Governor, state: Any) -> Iterator[Path]:
    """To be written down inside: the tools that were called in the turn that a state is in, by what a handler has seen or else by the messages.

    A handler writes down at the end of the run what is not asked for here: so each episode of a run gets its own, and once.
    """
    with governor.runs.path_taken() as seen:
        yield tools_of(last_turn(_fields(state))[1]) if seen is None else seen


def _fields(state: Any) -> Mapping[str, Any]:
    if isinstance(state, Mapping):
        return state
    if is_dataclass(state):
        return {f.name: getattr(state, f.name) for f in fields(state)}
    found: Mapping[str, Any] = getattr(state, "__dict__", {})
    return found
