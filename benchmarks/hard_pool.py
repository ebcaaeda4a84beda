"""A pool of 307 memories and tasks that succeed 40% of the time: real stores under the paper's rule and under the default.

Every memory is as good as any other, so nothing ought to be hidden. 5 of them are retrieved for each of 9,000 tasks; one
that gets none succeeds in 1%.
"""

from __future__ import annotations

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.tables import arguments, show, table
from langchain_memoryworth import MemoryWorthStore, Policy

COMMAND = "benchmarks.hard_pool"
MEMORIES, K, EPISODES, DIMENSION = 307, 5, 9_000, 32
SUCCESS, WITHOUT = 0.40, 0.01


class Drawn(Embeddings):
    """A random direction for every text, always the same one."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return np.random.default_rng([ord(c) for c in text]).standard_normal(DIMENSION).tolist()


def played(policy: Policy, episodes: int) -> tuple[list[bool], int]:
    """The outcome of every task, and how many memories are suppressed at the end."""
    rng = np.random.default_rng(0)
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


def line(name: str, policy: Policy, episodes: int) -> list[str]:
    """One row: success in each third of the episodes, and what is hidden in the end."""
    outcomes, hidden = played(policy, episodes)
    thirds = (f"{np.mean(part):.2f}" for part in np.array_split(outcomes, 3))
    return [name, *thirds, f"{hidden} of {MEMORIES}"]


def text(*, quick: bool) -> str:
    """The whole table."""
    episodes = 90 if quick else EPISODES
    thirds = [f"success, {part} third" for part in ("first", "second", "last")]
    rows = [
        line("`Policy.paper()`", Policy.paper(), episodes),
        line("`Policy()`", Policy(), episodes),
    ]
    return table(["policy", *thirds, "suppressed in the end"], rows)


if __name__ == "__main__":
    options = arguments(COMMAND, __doc__)
    show(COMMAND, text(quick=options.quick), options)
