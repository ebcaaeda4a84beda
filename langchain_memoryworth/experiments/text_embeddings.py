"""The two embeddings of Experiment 5: the real all-MiniLM-L6-v2, and words alone as the control."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

from langchain_core.embeddings import Embeddings

from langchain_memoryworth.experiments.texts import load_texts
from langchain_memoryworth.vectors.embeddings import SentenceTransformerEmbeddings


class EmbeddedOnce(Embeddings):
    """Vectors of a known set of texts, all computed at once: 3,000 episodes ask 45 questions.

    Args:
        inner: The model.
        texts: All that will ever be asked for.
    """

    def __init__(self, inner: Embeddings, texts: Sequence[str]) -> None:
        self._vectors = dict(zip(texts, inner.embed_documents(list(texts)), strict=True))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of texts."""
        return [self._vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        return self._vectors[text]


class WordEmbeddings(Embeddings):
    """TF-IDF over the words of some texts: one dimension per word, rare words weigh more.

    A word that is in none of them has no dimension; a text of such words alone is the zero vector.

    Args:
        texts: Whose words count.

    Examples:
        >>> words = WordEmbeddings(["the Nile", "the Moon"])
        >>> [round(x, 2) for x in words.embed_query("Where is the Nile?")]
        [0.0, 1.41, 1.0]
    """

    def __init__(self, texts: Sequence[str]) -> None:
        found = Counter(word for text in texts for word in set(_words(text)))
        self._weights = {w: math.log((1 + len(texts)) / (1 + found[w])) + 1 for w in sorted(found)}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of texts."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query, of any length: the store normalises it."""
        counts = Counter(_words(text))
        return [counts[word] * weight for word, weight in self._weights.items()]


@cache
def embedding(name: str) -> Embeddings:
    """One of the two, `minilm` or `words`, with the texts of the experiment embedded.

    Raises:
        MissingExtraError: If sentence-transformers is not installed.
    """
    texts = load_texts()
    memories = list(texts.memories.values())
    inner = SentenceTransformerEmbeddings() if name == "minilm" else WordEmbeddings(memories)
    return EmbeddedOnce(inner, [*memories, *(task.query for task in texts.tasks)])


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
