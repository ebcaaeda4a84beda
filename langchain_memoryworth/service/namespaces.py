"""Namespaces as users write them: checked, and filled in from the run, so that one retriever serves all users."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.runnables.config import var_child_runnable_config

from langchain_memoryworth.errors import NamespaceError
from langchain_memoryworth.records import Namespace

Otherwise = TypeVar("Otherwise", Namespace, None)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def checked(namespace: Sequence[str] | str) -> Namespace:
    """A namespace as a tuple of segments; a single string is one segment.

    Raises:
        NamespaceError: If it is no sequence, or a segment is empty or no string.

    Examples:
        >>> checked("acme"), checked(["users", "7"])
        (('acme',), ('users', '7'))
    """
    listed = (namespace,) if isinstance(namespace, str) else namespace
    # A set has no order: the same one would be another namespace in the next process.
    if not isinstance(listed, Sequence) or not all(isinstance(s, str) and s for s in listed):
        raise NamespaceError(
            f"{namespace!r} is no namespace; give a tuple of strings that are not empty",
            value=namespace,
        )
    return tuple(listed)


def resolved(namespace: Namespace, metadata: Mapping[str, Any] | None = None) -> Namespace:
    """Fill `{name}` from the run's metadata, or from `configurable` in its config.

    A value is taken as one segment, whatever characters it has.

    Raises:
        NamespaceError: If the run does not have the value. Falling back to another namespace would show one user the
            memories of another.

    Examples:
        >>> resolved(("users", "{user_id}"), {"user_id": "7"})
        ('users', '7')
    """
    if not any(_PLACEHOLDER.search(s) for s in namespace):
        return namespace
    config: Mapping[str, Any] = var_child_runnable_config.get() or {}
    places = (metadata or {}, config.get("metadata") or {}, config.get("configurable") or {})

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        found = next((p[name] for p in places if p.get(name) not in (None, "")), None)
        if found is None:
            raise NamespaceError(
                f"the namespace {namespace!r} needs {name!r}, which the run does not have; pass "
                f'config={{"metadata": {{"{name}": ...}}}}',
                value=namespace,
            )
        return str(found)

    return tuple(_PLACEHOLDER.sub(value, s) for s in namespace)


def called(namespace: Sequence[str] | str | None, otherwise: Otherwise) -> Namespace | Otherwise:
    """The namespace that a call names, filled in from the run; if it names none, the other one.

    Raises:
        NamespaceError: As `checked` and `resolved`.

    Examples:
        >>> called("acme", ("own",)), called(None, ("own",))
        (('acme',), ('own',))
    """
    return otherwise if namespace is None else resolved(checked(namespace))
