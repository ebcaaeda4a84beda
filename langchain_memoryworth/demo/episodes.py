"""The demo's main job: the same questions for two agents, one with Memory Worth and one without."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_memoryworth.adapters.callbacks import MemoryWorthCallbackHandler
from langchain_memoryworth.adapters.vectorstore import MemoryWorthStore
from langchain_memoryworth.demo.agent import build_agent, python_tool
from langchain_memoryworth.demo.recipes import Recipe, Task, load_neutral, load_tasks
from langchain_memoryworth.demo.sandbox import Sandbox
from langchain_memoryworth.outcomes.judges import output_key
from langchain_memoryworth.progress import Progress, unwatched
from langchain_memoryworth.records import Memory

K = 4


@dataclass(slots=True)
class DemoResult:
    """What came of the demo.

    Attributes:
        with_worth: Success of each episode with the package.
        without: Success of each episode with plain similarity, same questions in the same order.
        recipes: All recipes by their memory id.
        memories: The memories with their final counters.
        worths: After each block, the worths of the recipes that were used: those that work, and the broken.
        block: Episodes per block.
    """

    block: int
    with_worth: list[bool] = field(default_factory=list)
    without: list[bool] = field(default_factory=list)
    recipes: dict[str, Recipe] = field(default_factory=dict)
    memories: list[Memory] = field(default_factory=list)
    worths: list[tuple[list[float], list[float]]] = field(default_factory=list)

    @property
    def suppressed(self) -> list[Memory]:
        """The memories held back at the end, the most used first."""
        held = [m for m in self.memories if m.status == "suppressed"]
        return sorted(held, key=lambda m: -m.evidence.volume)

    @property
    def truly_broken(self) -> int:
        """How many of the suppressed recipes do not work."""
        return sum(1 for m in self.suppressed if m.id in self.recipes and not self._works(m))

    @property
    def good_hurt(self) -> int:
        """How many of the suppressed memories are recipes that work, or neutral."""
        return len(self.suppressed) - self.truly_broken

    def _works(self, memory: Memory) -> bool:
        return self.recipes[memory.id].works

    def watch(self, memories: Sequence[Memory]) -> None:
        """Keep the worths of this moment."""
        used = [m for m in memories if m.id in self.recipes and m.evidence.effective_size >= 1]
        working = [m.evidence.worth for m in used if self._works(m)]
        broken = [m.evidence.worth for m in used if not self._works(m)]
        self.worths.append((working, broken))

    def blocks(self, successes: Sequence[bool]) -> list[float]:
        """Success rate of each block."""
        starts = range(0, len(successes), self.block)
        return [_mean(successes[s : s + self.block]) for s in starts]


class RememberedEmbeddings(Embeddings):
    """Embeds each text once: both agents get the same questions, and the same ones come again."""

    def __init__(self, inner: Embeddings) -> None:
        self._inner = inner
        self._queries: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of texts."""
        return self._inner.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        if text not in self._queries:
            self._queries[text] = self._inner.embed_query(text)
        return self._queries[text]


def questions(tasks: Sequence[Task], episodes: int, seed: int) -> Iterator[tuple[Task, str]]:
    """Tasks in random order, each as often as any other, in the words of some user."""
    rng = random.Random(seed)  # noqa: S311  # nosec B311  # a simulation, no secret
    while True:
        for task in rng.sample(tasks, len(tasks)):
            if episodes <= 0:
                return
            episodes -= 1
            yield task, rng.choice(task.queries)


def run_demo(
    store: MemoryWorthStore,
    *,
    episodes: int = 1400,
    block: int = 200,
    seed: int = 0,
    tasks: Sequence[Task] | None = None,
    progress: Progress = unwatched,
) -> DemoResult:
    """Run the main job.

    Args:
        store: An empty store.
        episodes: Runs of each agent.
        block: Episodes per block of the report.
        seed: Of the order of the questions.
        tasks: Which tasks; None means all.
        progress: Told how many runs are done, of both agents.
    """
    tasks = load_tasks() if tasks is None else tasks
    result = DemoResult(block)
    recipes = [r for t in tasks for r in (t.works, t.broken)]
    texts = [r.memory for r in recipes] + list(load_neutral())
    ids = store.add_texts(texts)
    result.recipes = dict(zip(ids, recipes, strict=False))
    plain = InMemoryVectorStore(store.embeddings)
    plain.add_texts(texts, ids=ids)
    handler = MemoryWorthCallbackHandler(store, outcome=output_key("ok"))
    with Sandbox() as sandbox:
        tool = python_tool(sandbox, {t.id: t for t in tasks})
        governed = build_agent(store.as_retriever(search_kwargs={"k": K}), tool)
        ungoverned = build_agent(plain.as_retriever(search_kwargs={"k": K}), tool)
        for n, (task, question) in enumerate(questions(tasks, episodes, seed), 1):
            asked = {"question": question, "task_id": task.id}
            result.without.append(_success(ungoverned, asked, []))
            result.with_worth.append(_success(governed, asked, [handler]))
            progress("runs", 2 * n, 2 * episodes)
            if n % block == 0:
                result.watch(store.memories())
    result.memories = store.memories()
    return result


def _success(agent: Any, asked: dict[str, str], handlers: list[Any]) -> bool:
    return bool(agent.invoke(asked, {"callbacks": handlers})["ok"])


def _mean(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
