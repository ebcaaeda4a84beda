"""Vectors as a real store has them: sentences embedded by all-MiniLM-L6-v2, and as many more as wanted between them.

Random vectors, also around random centres, are all nearly equally near to each other, which no text is and no graph can use.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Floats, bare_index
from langchain_memoryworth.demo.offline_model import use_packaged_model
from langchain_memoryworth.vectors.embeddings import SentenceTransformerEmbeddings

_WORDS = range(6, 31)
_NEAR = 8
_PART = 20_000


def embedded(count: int, place: Path) -> Floats:
    """Distinct sentences of the docstrings of Python and of what is installed, kept in a folder for another time.

    Returns:
        Rows of unit length in random order, float32, shape (count, 384).
    """
    file = place / f"sentences-{count}.npy"
    if not file.exists():
        paths = sysconfig.get_paths()
        texts = sorted(set(sentences([Path(paths["purelib"]), Path(paths["stdlib"])])))
        random.Random(0).shuffle(texts)
        use_packaged_model(place)
        vectors = SentenceTransformerEmbeddings().embed_documents(texts[:count])
        np.save(file, np.array(vectors, np.float32))
    kept: Floats = np.load(file)
    return kept


def sentences(folders: Iterable[Path]) -> Iterator[str]:
    """Plain sentences of some length in the docstrings below folders."""
    for folder in folders:
        for path in folder.rglob("*.py"):
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError, RecursionError):
                continue  # tests of parsers, templates
            for node in ast.walk(tree):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield from _of(ast.get_docstring(node) or "")


def _of(docstring: str) -> Iterator[str]:
    for paragraph in docstring.split("\n\n"):
        for sentence in re.split(r"(?<=[.!?]) ", " ".join(paragraph.split())):
            plain = sum(c.isalpha() or c == " " for c in sentence) > 0.9 * len(sentence)
            fits = len(sentence.split()) in _WORDS and sentence.isascii()
            if plain and fits and sentence[0].isupper():
                yield sentence


def grown(vectors: Floats, count: int, seed: int = 0) -> Floats:
    """More vectors of the same kind: what the nearest of one of them have in common, with what another is beyond its own nearest.

    Both parts are those of real sentences, and hardly any two of a million have both. `python -m benchmarks.million` shows that
    a graph finds no more among them than among as many real ones.

    Args:
        vectors: float32, shape (n, 384), of unit length, n at least 8.
        count: How many.
        seed: Of the draws.

    Returns:
        Rows of unit length, float32, shape (count, 384).
    """
    rng = np.random.default_rng(seed)
    index: Any = bare_index(vectors)
    _, near = index.search(vectors, _NEAR)
    shared = np.stack([vectors[others[1:]].mean(axis=0) for others in near])
    own = vectors - shared
    first, second = rng.integers(len(vectors), size=(2, count))
    found = np.empty((count, vectors.shape[1]), np.float32)
    for start in range(0, count, _PART):  # all at once would take the memory three times
        part = slice(start, start + _PART)
        found[part] = shared[first[part]] + own[second[part]]
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found
