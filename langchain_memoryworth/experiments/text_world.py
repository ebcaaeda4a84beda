"""Experiment 5 as it is run: an agent with 20 memories, through store, retriever, chain and handler.

What an agent answers is what it retrieved; no model is asked. The heavy imports are inside the
functions, since a worker that runs another experiment does without LangChain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from langchain_memoryworth.errors import MemoryWorthError
from langchain_memoryworth.estimators.evidence import Evidence, worth
from langchain_memoryworth.experiments.experiment import Floats
from langchain_memoryworth.experiments.simulator import Counts, Flags
from langchain_memoryworth.experiments.texts import SECOND, Task, Texts, draw_tasks, load_texts
from langchain_memoryworth.policy import Policy

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

K = 4
"""k, the memories of one retrieval (section 5.4)."""

EVERY = 10
"""Episodes between two readings of the counters."""

PRIOR_EPISODES = 1000
"""Length of the run that ranks uncertain memories by the prior: what it shows is decided early."""

PAPER = Policy.paper(rank=(0.6, 0.4)).model_copy(update={"suppress": False})
"""Section 5.4 ranks by worth from the first episode on, and holds nothing back."""

PRIOR = PAPER.model_copy(update={"uncertain": "prior"})
"""The same with the fallback that the package ships: below V_min retrievals a memory ranks as .5."""

ARMS = {
    "minilm": ("minilm", PAPER),
    "words": ("words", PAPER),
    "prior": ("minilm", PRIOR),
}
"""What is run in each seed, on the same tasks: (embedding, policy)."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What happened to one agent.

    Attributes:
        ends: Episode numbers of the readings, shape (P,).
        evidence: The ledger's counters of every memory at every reading, P lists of N.
        shown: Numbers of the memories retrieved, best first, shape (T, k).
        success: Outcome of each episode, shape (T,).
    """

    ends: Counts
    evidence: list[list[Evidence]]
    shown: Counts
    success: Flags

    @property
    def worth(self) -> Floats:
        """Memory Worth in [0, 1], shape (P, N)."""
        return np.array([[e.worth for e in row] for row in self.evidence])


def readings(episodes: int) -> Counts:
    """Episode numbers at which the counters are read: every 10, and the last one; shape (P,)."""
    return np.unique(np.append(np.arange(EVERY, episodes + 1, EVERY), episodes)).astype(np.int64)


def play(
    texts: Texts, tasks: Sequence[Task], embedding: Embeddings, name: str, policy: Policy
) -> Trace:
    """Let an agent with an empty record do some tasks.

    Args:
        texts: Its memories.
        tasks: What it is asked, one task per episode.
        embedding: Of the memories and queries.
        name: What the store calls the embedding.
        policy: Of the store.

    Raises:
        MemoryWorthError: If an episode was not recorded: the counters would be of another run.
    """
    from langchain_core.runnables import RunnableLambda

    from langchain_memoryworth.adapters.callbacks import MemoryWorthCallbackHandler
    from langchain_memoryworth.adapters.vectorstore import MemoryWorthStore
    from langchain_memoryworth.outcomes.judges import Run, keyword_match

    keywords = {task.query: task.keywords for task in tasks}
    number = {text: i for i, text in enumerate(texts.memories.values())}
    judge = keyword_match(lambda run: keywords[run.inputs], every=False)
    success: list[bool] = []

    def outcome(run: Run) -> bool:
        success.append(bool(judge(run)))
        return success[-1]

    ends = readings(len(tasks))
    shown, evidence, due = [], [], set(ends.tolist())
    with MemoryWorthStore("sqlite://", embedding, embedding_name=name, policy=policy) as store:
        ids = store.add_texts(list(number))
        chain = store.as_retriever(search_kwargs={"k": K}) | RunnableLambda(_answer)
        handler = MemoryWorthCallbackHandler(store, outcome=outcome)
        for episode, task in enumerate(tasks, start=1):
            answer = chain.invoke(task.query, {"callbacks": [handler]})
            shown.append([number[line] for line in answer.split("\n")])
            if episode in due:
                memories = {m.id: m.evidence for m in store.memories()}
                evidence.append([memories[i] for i in ids])
        health = store.health()
    if health.failures or health.pending or health.episodes != len(tasks):
        raise MemoryWorthError(f"not every episode was recorded: {health}")
    return Trace(ends, evidence, np.array(shown), np.array(success))


def _answer(documents: list[Document]) -> str:
    return "\n".join(d.page_content for d in documents)


def answers(texts: Texts, task: Task) -> set[int]:
    """Numbers of the memories that answer a task, as the outcome of a run has it."""
    from langchain_memoryworth.outcomes.judges import Run, keyword_match

    judge = keyword_match(task.keywords, every=False)
    return {i for i, text in enumerate(texts.memories.values()) if judge(Run("", "", result=text))}


def simulate(seed: int, episodes: int) -> dict[str, ArrayLike]:
    """One seed of all arms, on the same tasks."""
    from langchain_memoryworth.experiments.text_embeddings import embedding

    texts = load_texts()
    tasks = draw_tasks(np.random.default_rng(seed), texts.tasks, episodes)
    out: dict[str, ArrayLike] = {}
    for arm, (name, policy) in ARMS.items():
        given = tasks[:PRIOR_EPISODES] if arm == "prior" else tasks
        trace = play(texts, given, embedding(name), name, policy)
        last = trace.evidence[-1]
        out |= {
            f"worth_{arm}": trace.worth[:, texts.designated].T,
            f"last_{arm}": trace.worth[-1],
            f"size_{arm}": [e.effective_size for e in last],
            f"success_{arm}": trace.success.mean(),
            f"pair_{arm}": pair(texts, given, trace),
        }
    for name in ("minilm", "words"):
        out[f"similarity_{name}"] = by_similarity(texts, embedding(name), name)
    return out


def by_similarity(texts: Texts, embedding: Embeddings, name: str) -> list[float]:
    """What would come of the pair after the shift if worth had no part in the ranking; exact.

    Without it a question always gets the same memories, so that the shares of the questions are
    those of the sets. The sets are the store's own.

    Args:
        texts: Memories and tasks.
        embedding: Of both.
        name: What the store calls it.

    Returns:
        Share of the tasks that only the specialist answers in which both are retrieved, share of
        the specialist's retrievals with the hitchhiker, worth of both, success of all tasks.
    """
    from langchain_memoryworth.adapters.vectorstore import MemoryWorthStore

    tasks = [task for task in texts.tasks if task.kind in SECOND]
    number = {text: i for i, text in enumerate(texts.memories.values())}
    with MemoryWorthStore(
        "sqlite://", embedding, embedding_name=name, policy=Policy.paper()
    ) as store:
        store.add_texts(list(number))
        found = [store.similarity_search(task.query, k=K) for task in tasks]
    shown = [{number[d.page_content] for d in documents} for documents in found]
    right = [answers(texts, task) for task in tasks]
    kinds = [task.kind for task in tasks]
    share = np.array([SECOND[kind] / kinds.count(kind) for kind in kinds])
    _, specialist, hitchhiker, _ = texts.designated
    success = np.array([bool(s & r) for s, r in zip(shown, right, strict=True)])
    only = np.array([r == {specialist} for r in right])
    has = [np.array([m in s for s in shown]) for m in (specialist, hitchhiker)]
    both = has[0] & has[1]
    worths = [worth(share @ (h & success), share @ (h & ~success)) for h in has]
    together = [(share @ (w & both)) / max(share @ w, 1e-9) for w in (only, has[0])]
    return [*together, *worths, float(share @ success)]


def pair(texts: Texts, tasks: Sequence[Task], trace: Trace) -> list[int]:
    """How specialist and hitchhiker go together.

    Returns:
        Tasks that only the specialist answers; those in which both were retrieved; episodes with
        the specialist, with the hitchhiker, with both; successes among the episodes with both, and
        among those with the hitchhiker alone.
    """
    _, specialist, hitchhiker, _ = texts.designated
    only = {task.query for task in texts.tasks if answers(texts, task) == {specialist}}
    has = [(trace.shown == memory).any(axis=1) for memory in (specialist, hitchhiker)]
    both, alone = has[0] & has[1], has[1] & ~has[0]
    asked = np.array([task.query in only for task in tasks])
    flags = (asked, asked & both, *has, both, both & trace.success, alone & trace.success)
    return [int(flag.sum()) for flag in flags]
