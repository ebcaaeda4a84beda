"""Which memory was an output made from? Measures of likeness, on plans that a language model wrote from known questions.

The case bank of Memento (`memory.jsonl`, see `memento`): a question and the plan that was written for it. For each question the
5 others that are nearest to it are the memories shown; one of them, drawn, is the one used, and its plan is the output.
So the truth is known, the memories are alike, and the output says it in other words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_memoryworth import Run, by_embedding, by_words
from langchain_memoryworth.estimators.overlap import containments, words

K = 5
FAR = 30
"""The plan of this neighbour stands for an output that was made from none of the memories shown."""

Texts = Sequence[str]
Measure = Callable[[str, Texts, str], Sequence[float]]
"""Output, memories shown, question: a weight for each memory, not negative."""


class Found(NamedTuple):
    """How well a measure finds the memory that was used.

    Attributes:
        name: Of the measure.
        share: Of the credit that goes to the one used, mean; 1/5 is equal credit. Where it says nothing credit is equal.
        silent: Share of the outputs of which it says nothing.
        silent_else: The same for outputs that were made from none of the memories shown.
    """

    name: str
    share: float
    silent: float
    silent_else: float


class Trial(NamedTuple):
    """One question: the memories shown, the place of the one used, its plan, and a plan made from none of them."""

    question: str
    shown: tuple[str, ...]
    used: int
    output: str
    other: str


def trials(folder: Path, embedding: Embeddings, seed: int = 0) -> list[Trial]:
    """One for each case that has a plan."""
    cases = _cases(folder)
    vectors = np.array(embedding.embed_documents([question for question, _ in cases]))
    near = vectors @ vectors.T
    np.fill_diagonal(near, -np.inf)
    rng = np.random.default_rng(seed)
    drawn = []
    for n, (question, _) in enumerate(cases):
        order = np.argsort(-near[n], kind="stable")[:-1]
        place = int(rng.integers(K))
        shown, other = order[:K], order[min(FAR, len(order) - 1)]
        questions = tuple(cases[i][0] for i in shown)
        drawn.append(Trial(question, questions, place, cases[shown[place]][1], cases[other][1]))
    return drawn


def measure(folder: Path) -> list[Found]:
    """All measures, ours last of their kind."""
    embedding = Known(model())
    drawn = trials(folder, embedding)
    embedding.learn([t for trial in drawn for t in (trial.question, trial.output, trial.other)])
    kinds: dict[str, Measure] = {
        "words in common, F1": _f1,
        "words in common, containment": _containment,
        "the same, rare words count more": lambda o, m, _: containments(o, m),
        "the same, none of the question": containments,
        "`by_words()`: the same, of at least .2": _rule(by_words()),
        "cosine": embedding.cosines,
        "cosine above that to the question": embedding.above_question,
        "`by_embedding(model)`: above the mean, of at least .4": _rule(by_embedding(embedding)),
    }
    return [_found(name, weigh, drawn) for name, weigh in kinds.items()]


def model() -> Embeddings:
    """all-MiniLM-L6-v2, from the package of the demonstration."""
    from langchain_memoryworth.demo.offline_model import use_packaged_model
    from langchain_memoryworth.vectors.embeddings import SentenceTransformerEmbeddings

    use_packaged_model(Path(mkdtemp()))
    return SentenceTransformerEmbeddings()


class Known(Embeddings):
    """A model, asked once for each text."""

    def __init__(self, inner: Embeddings) -> None:
        self._inner = inner
        self._known: dict[str, list[float]] = {}

    def learn(self, texts: Texts) -> None:
        """Embed what is not known yet, all at once."""
        new = [t for t in dict.fromkeys(texts) if t not in self._known]
        self._known |= zip(new, self._inner.embed_documents(new), strict=True)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.learn(texts)
        return [self._known[t] for t in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def cosines(self, output: str, memories: Texts, question: str) -> list[float]:
        """Of the output with each memory."""
        vectors = np.array(self.embed_documents([output, *memories]))
        return np.maximum(vectors[1:] @ vectors[0], 0.0).tolist()

    def above_question(self, output: str, memories: Texts, question: str) -> list[float]:
        """How much nearer each memory is to the output than to the question."""
        vectors = np.array(self.embed_documents([output, question, *memories]))
        return np.maximum(vectors[2:] @ (vectors[0] - vectors[1]), 0.0).tolist()


def _found(name: str, weigh: Measure, drawn: Sequence[Trial]) -> Found:
    shares, silent, silent_else = [], [], []
    for trial in drawn:
        weights = weigh(trial.output, trial.shown, trial.question)
        total = math.fsum(weights)
        shares.append(weights[trial.used] / total if total else 1 / len(trial.shown))
        silent.append(not total)
        silent_else.append(not any(weigh(trial.other, trial.shown, trial.question)))
    return Found(name, *(float(np.mean(values)) for values in (shares, silent, silent_else)))


def _rule(rule: Callable[[Run], object]) -> Measure:
    def weigh(output: str, memories: Texts, question: str) -> list[float]:
        shown = tuple(Document(text, id=str(n)) for n, text in enumerate(memories))
        said = rule(Run("", "", inputs=question, memories=shown, result=output))
        weights = said if isinstance(said, dict) else {}
        return [weights.get(str(n), 0.0) for n in range(len(memories))]

    return weigh


def _containment(output: str, memories: Texts, _: str) -> list[float]:
    found, own = set(words(output)), [set(words(m)) for m in memories]
    return [len(mine & found) / max(1, len(mine)) for mine in own]


def _f1(output: str, memories: Texts, _: str) -> list[float]:
    found, own = set(words(output)), [set(words(m)) for m in memories]
    return [2 * len(mine & found) / max(1, len(mine) + len(found)) for mine in own]


def _cases(folder: Path) -> list[tuple[str, str]]:
    """Questions, each once, and the descriptions of the steps of their plans; plans that are no JSON are left out."""
    found: dict[str, str] = {}
    with (folder / "memory.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            try:
                steps = json.loads(row["plan"])["plan"]
                found.setdefault(row["case"], " ".join(s["description"] for s in steps))
            except (ValueError, KeyError, TypeError):
                continue
    return list(found.items())
