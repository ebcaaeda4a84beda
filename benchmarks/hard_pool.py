"""A pool of 307 memories and tasks that succeed 40% of the time: real stores under the paper's rule and under the default.

Every memory is as good as any other, so nothing ought to be hidden. 5 of them are retrieved for each of 9,000 tasks; one
that gets none succeeds in 1%. What is left of the pool under the paper's rule is a matter of luck, so it is played several times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.tables import arguments, show, table
from langchain_memoryworth import MemoryWorthStore, Policy

COMMAND = "benchmarks.hard_pool"
MEMORIES, K, EPISODES, DIMENSION = 307, 5, 9_000, 32
SUCCESS, WITHOUT = 0.40, 0.01
SEEDS = 10


class Drawn(Embeddings):
    """A random direction for every text, always the same one."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return np.random.default_rng([ord(c) for c in text]).standard_normal(DIMENSION).tolist()


def played(policy: Policy, episodes: int, seed: int) -> tuple[list[bool], int]:
    """The outcome of every task, and how many memories are suppressed at the end."""
    rng = np.random.default_rng(seed)
    outcomes = []
    with MemoryWorthStore("sqlite://", Drawn(), embedding_name="drawn", policy=policy) as store:
        store.add_texts([f"memory {i}" for i in range(MEMORIES)])
        for n in range(episodes):
            with store.episode(f"task {n}") as episode:
                found = store.similarity_search(f"task {n}", k=K)
            outcomes.append(bool(rng.random() < (SUCCESS if found else WITHOUT)))
            if found:
                episode.record(outcomes[-1])
        return outcomes, len(store.suppressed())


def line(name: str, policy: Policy, episodes: int, seeds: int) -> list[str]:
    """One row: success in each third of the episodes, and what is hidden in the end; the lowest and highest of the seeds."""
    runs = [played(policy, episodes, seed) for seed in range(seeds)]
    thirds = zip(*(np.array_split(outcomes, 3) for outcomes, _ in runs), strict=True)
    success = [between([f"{np.mean(part):.2f}" for part in third]) for third in thirds]
    hidden = [held for _, held in runs]
    gone = sum(held == MEMORIES for held in hidden)
    return [name, *success, between(hidden), f"{gone} of {seeds}"]


def between(figures: Sequence[int] | Sequence[str]) -> str:
    """The lowest and the highest, or the one that all are."""
    least, most = min(figures), max(figures)
    return f"{least}" if least == most else f"{least} to {most}"


def text(*, quick: bool) -> str:
    """The whole table."""
    episodes, seeds = (90, 2) if quick else (EPISODES, SEEDS)
    thirds = [f"success, {part} third" for part in ("first", "second", "last")]
    rows = [
        line("`Policy.paper()`", Policy.paper(), episodes, seeds),
        line("`Policy()`", Policy(), episodes, seeds),
    ]
    last = [f"suppressed of {MEMORIES} in the end", "runs in which nothing is left"]
    return table(["policy", *thirds, *last], rows)


if __name__ == "__main__":
    options = arguments(COMMAND, __doc__)
    show(COMMAND, text(quick=options.quick), options)
