"""The memories and tasks of Experiment 5, read from `texts.toml`, and the order in which an agent gets the tasks."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

SHIFT = 100
"""The last episode of the first phase (section 5.4)."""

FIRST: Mapping[str, float] = {"united": 0.6, "python": 0.2, "general": 0.2}
"""Shares of the kinds of tasks until `SHIFT`; the paper says 60% geography and leaves the rest open."""

SECOND: Mapping[str, float] = {"dissolved": 0.3, "python": 0.35, "general": 0.35}
"""The same after `SHIFT`, as the paper has it."""

DESIGNATED = ("stale", "specialist", "hitchhiker", "control")
"""The four memories of Table 2."""


@dataclass(frozen=True, slots=True)
class Task:
    """One question.

    Attributes:
        kind: A key of `FIRST` or `SECOND`.
        query: How it is asked, unique.
        keywords: Any of them, as whole words in what was retrieved, is a success.
    """

    kind: str
    query: str
    keywords: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """All that the agent knows and is asked.

    Attributes:
        memories: Text of each memory by its name, in the order of the file.
        tasks: All tasks.
    """

    memories: Mapping[str, str]
    tasks: tuple[Task, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the memories; the position of a name is the memory's number."""
        return tuple(self.memories)

    @property
    def designated(self) -> list[int]:
        """Numbers of the four memories of Table 2, in its order."""
        return [self.names.index(name) for name in DESIGNATED]


@cache
def load_texts() -> Texts:
    """Read the file.

    Example:
        >>> texts = load_texts()
        >>> len(texts.memories), sorted({task.kind for task in texts.tasks})
        (20, ['dissolved', 'general', 'python', 'united'])
    """
    document = tomllib.loads(_file("experiments/texts.toml").decode())
    tasks = [
        Task(kind, entry["query"], tuple(entry["keywords"]))
        for kind, entries in document["tasks"].items()
        for entry in entries
    ]
    return Texts(document["memories"], tuple(tasks))


def draw_tasks(rng: np.random.Generator, tasks: tuple[Task, ...], episodes: int) -> list[Task]:
    """The task of every episode: its kind by the shares of the phase, then any of that kind.

    Args:
        rng: Source of the draws.
        tasks: All tasks.
        episodes: T.
    """
    by_kind = {kind: [t for t in tasks if t.kind == kind] for kind in {**FIRST, **SECOND}}
    drawn = []
    for episode in range(1, episodes + 1):
        shares = FIRST if episode <= SHIFT else SECOND
        kind = list(shares)[rng.choice(len(shares), p=list(shares.values()))]
        drawn.append(by_kind[kind][rng.integers(len(by_kind[kind]))])
    return drawn


def fingerprint() -> str:
    """Digest of the texts and of the whole package below the experiments, which Experiment 5 runs through."""
    package = files("langchain_memoryworth")
    names = sorted(entry.name for entry in package.iterdir() if entry.name.endswith(".py"))
    own = ("texts.toml", "texts.py", "text_embeddings.py", "text_world.py")
    digest = hashlib.sha256()
    for name in (*names, *(f"experiments/{name}" for name in own)):
        digest.update(_file(name))
    return digest.hexdigest()[:16]


def _file(name: str) -> bytes:
    return files("langchain_memoryworth").joinpath(name).read_bytes()
