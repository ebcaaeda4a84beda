"""The async twin of a synchronous method, which runs it off the event loop. No second copy of any logic."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from langchain_core.runnables import run_in_executor

_S = TypeVar("_S")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def awaitable(
    method: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _R]]:
    """The async twin of a method, with the same arguments: it runs in a thread, off the event loop."""

    @wraps(method)
    async def twin(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        # By name, so that a subclass overrides both with one.
        call: Callable[..., _R] = getattr(self, method.__name__)
        return await run_in_executor(None, call, *args, **kwargs)

    return twin
