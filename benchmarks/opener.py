"""What runs in the fresh processes of `fresh`: open a file or a URL, answer, print what it took."""

from __future__ import annotations

import gc
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.data import DIMENSION, K, bare_index, opened, queries
from langchain_memoryworth.vectors.index import Kind


def measure(work: Callable[[str, Any], object], where: str) -> None:
    """Print what one call took as JSON, see `fresh.Opened`."""
    # One query on a small index first: FAISS sets itself up at its first search.
    query = queries(1)[0]
    bare_index(queries()).search(query[None], K)
    gc.collect()
    before = _anonymous()
    start, busy = perf_counter(), process_time()
    kept = work(where, query)
    seconds, busy = perf_counter() - start, process_time() - busy
    gc.collect()
    print(json.dumps({"seconds": seconds, "busy": busy, "bytes": _anonymous() - before}))
    del kept


def ours(where: str, query: Any, index: Kind = "flat", graph_folder: str | None = None) -> object:
    """The store on a file or at a URL, after its first answer."""
    store = opened(where, index=index, graph_folder=graph_folder)
    found = store.governor.retrieval.recall_by_vector(query, K, track=False)
    return store, found


def by_hand(path: str, query: Any) -> object:
    """An index with the same vectors, after its first answer, with the texts of it."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT seq, vector FROM memories ORDER BY seq").fetchall()
    vectors = np.frombuffer(b"".join(v for _, v in rows), np.float32).reshape(-1, DIMENSION)
    index: Any = bare_index(vectors)
    _, found = index.search(query[None], K)
    seqs = [rows[i][0] for i in found[0]]
    marks = ", ".join("?" * len(seqs))
    texts = connection.execute(f"SELECT text FROM memories WHERE seq IN ({marks})", seqs).fetchall()
    return connection, index, texts


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
