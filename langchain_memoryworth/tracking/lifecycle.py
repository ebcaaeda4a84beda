"""How runs end in LangChain and LangGraph, where an end event alone does not say it.

The only module besides the handler that knows these inner ways; each has a test against the framework, so that a release
that changes one is noticed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import GeneratorType
from typing import Any

from langgraph.errors import GraphBubbleUp, GraphInterrupt, ParentCommand
from langgraph.types import Command

_READ = "__pregel_read"
"""Where LangGraph puts the function by which conditional edges read the state."""

_PREVIOUS = "__previous__"
"""What the functional API keeps in the place of a state with keys."""

_DEPTH = 12
"""Frames between an end event and the stream that it reports; 5 today, more under `astream_events`."""


def is_interrupt(error: BaseException) -> bool:
    """The run stopped to ask a person."""
    return isinstance(error, GraphInterrupt)


def is_control_flow(error: BaseException) -> bool:
    """The run was left by a jump, not by a failure: an interrupt, a command to a parent graph, a drain."""
    return isinstance(error, GraphBubbleUp)


def may_go_on(error: BaseException) -> bool:
    """A graph that ended like this can be started again from its checkpoint."""
    return not isinstance(error, ParentCommand)


def asks_to_resume(inputs: Any) -> bool:
    """The inputs of a graph that goes on: `Command(resume=...)`, or None after a breakpoint."""
    return inputs is None or (isinstance(inputs, Command) and inputs.resume is not None)


def kept(config: Mapping[str, Any] | None, key: str, given: Any) -> Any:
    """What the state of the graph around has under a key: a node that `Send` called is given something else.

    Args:
        config: The node's; None if it is called by other code than the graph's.
        key: The key.
        given: What the node was given under it, which is the answer where the graph cannot be asked.

    Raises:
        KeyError: If the state has no such key. What a node writes there LangGraph drops without a word.
    """
    read = ((config or {}).get("configurable") or {}).get(_READ)
    if read is None:
        return given
    try:
        return read(key)
    except KeyError:
        if _functional(read):
            return given
        raise
    except Exception:  # noqa: BLE001 - an inner way: another release may have another one
        return given


def _functional(read: Callable[[str], Any]) -> bool:
    with suppress(KeyError):
        read(_PREVIOUS)
        return True
    return False


def shows_interrupt(outputs: Any) -> bool:
    """The outputs are those of an interrupted graph, handed on by what is around it."""
    if isinstance(outputs, Mapping):
        return "__interrupt__" in outputs
    return bool(getattr(outputs, "interrupts", ()))


def stopped_early(outputs: Any) -> bool:
    """Called within the end event of a synchronous LCEL stream: its consumer went away before the end.

    LangChain reports a stream that was closed as one that succeeded, with the chunks so far but the last. The stream's
    own frame is above us; a stream that came to its end has exhausted the iterator in it.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the caller's frame
    for _ in range(_DEPTH):
        if frame.f_back is None:
            break
        frame = frame.f_back
        if frame.f_code.co_name == "_transform_stream_with_config":
            iterator = frame.f_locals.get("iterator")
            if isinstance(iterator, GeneratorType):
                return iterator.gi_frame is not None
            break
    return outputs is None  # a stream closed at its first chunk
