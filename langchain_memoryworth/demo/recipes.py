"""The demo's memories: API recipes that work, recipes that an upgrade broke, and neutral notes.

The recipes are package data, `recipes.toml`. Every task comes with two of them whose wordings are
alike, so that similarity to a query cannot tell which one runs, and with a check on the result.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

_DATA = "recipes.toml"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to do a task: a wording and a snippet that assigns `result`.

    Attributes:
        task_id: The task that it claims to do.
        library: The distribution it uses; `python` for the standard library.
        text: The wording.
        code: The snippet.
        works: Whether it does the task with the library's present version. The ground truth: a
            memory system under test must not look at it.
    """

    task_id: str
    library: str
    text: str
    code: str
    works: bool

    @property
    def memory(self) -> str:
        """The text of the memory: the wording and the snippet as a code block."""
        return f"{self.text}\n```python\n{self.code.strip()}\n```"


@dataclass(frozen=True, slots=True)
class Task:
    """An everyday task with a recipe that works and one that an upgrade broke.

    Attributes:
        id: Slug, unique among the tasks.
        library: The distribution whose upgrade broke a recipe; `python` for the standard library.
        broken_from: The release of the library from which `broken` fails, at the latest.
        task: What there is to do, in one sentence.
        queries: How users ask for it.
        setup: Code that defines the inputs of the recipes.
        check: What must hold for `result`; see `Sandbox.run`.
        works: The recipe that runs and passes the check.
        broken: The recipe that raises, or gets a wrong result.
    """

    id: str
    library: str
    broken_from: str
    task: str
    queries: tuple[str, ...]
    setup: str
    check: str
    works: Recipe
    broken: Recipe


@cache
def load_tasks() -> tuple[Task, ...]:
    """Load all tasks, in the order of the file.

    Example:
        >>> task = load_tasks()[0]
        >>> task.id, task.works.works, task.broken.works
        ('numpy-cast-to-float', True, False)
    """
    return tuple(_task(entry) for entry in _load()["task"])


@cache
def load_neutral() -> tuple[str, ...]:
    """Load the texts of memories that neither help nor harm with any of the tasks."""
    return tuple(_load()["neutral"])


@cache
def _load() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(_DATA).read_text(encoding="utf-8"))


def _task(entry: Mapping[str, Any]) -> Task:
    return Task(
        id=entry["id"],
        library=entry["library"],
        broken_from=entry["broken_from"],
        task=entry["task"],
        queries=tuple(entry["queries"]),
        setup=entry.get("setup", ""),
        check=entry["check"],
        works=_recipe(entry, works=True),
        broken=_recipe(entry, works=False),
    )


def _recipe(entry: Mapping[str, Any], *, works: bool) -> Recipe:
    side = entry["works" if works else "broken"]
    return Recipe(entry["id"], entry["library"], side["text"], side["code"], works)
