"""What is measured: name, title, and one sentence on how. Each is run by the module of its name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from benchmarks.rows import Row


class Subject(NamedTuple):
    """One group of comparisons.

    Attributes:
        name: Of the module, and on the command line.
        title: Its heading.
        what: How it is measured.
    """

    name: str
    title: str
    what: str

    def run(self, *, quick: bool) -> Sequence[Row]:
        """Measure; `quick` only tests that it works."""
        rows: Sequence[Row] = import_module(f"benchmarks.{self.name}").run(quick=quick)
        return rows


SUBJECTS = (
    Subject(
        "search",
        "Search",
        "`VectorIndex.search` by `similarity + 0.4 * worth`, k = 8, 384 dimensions, with a share of the rows "
        "suppressed, against `faiss.IndexFlatIP(384).search` of the same vectors. Each block has indexes of its own, and "
        "there the share changes in place, so all shares are measured on the same memory.",
    ),
    Subject(
        "retrieval",
        "A whole retrieval",
        "`Retrieval.recall_by_vector`, k = 8: search, documents from the database and, in an episode, the "
        "exposures committed, against `faiss.IndexFlatIP(384).search` alone. The embedding is apart.",
    ),
    Subject(
        "outcome",
        "An episode and its outcome",
        "8 exposures in one transaction and their outcome in another, against `sqlite3` code that writes the same rows "
        "in the same transactions to a file of the same schema (`benchmarks/by_hand.py`), and is told the credit. Our "
        "statements alone are those that ours sends, run again on a copy of its file. 1,000 memories, and one run in five is "
        "a failure: by hand, too, change detectors are written then.",
    ),
    Subject(
        "outcome_postgres",
        "An episode and its outcome on Postgres",
        "The same on one server, reached by a socket, against `psycopg` as it comes, which prepares its statements, in a schema of "
        "the same tables.",
    ),
    Subject(
        "threads",
        "Several threads",
        "8 threads of one process record outcomes of k = 8 one after the other, each waiting for its own to be committed: "
        "with a group commit, against the same without. A new SQLite file, and a Postgres on the same machine.",
    ),
    Subject(
        "stores",
        "Other stores of LangChain",
        "The same vectors, k = 8, by vector. Ours is on a file and records an episode where that is said.",
    ),
    Subject(
        "langgraph_stores",
        "Stores of LangGraph on one host",
        "The same vectors, handed over by text, so that no side pays for a model. An outcome of ours moves 8 counters, judges "
        "and commits; theirs reads 8 items with a counter in each and writes them back, by which their vectors are written "
        "anew unless it is told to leave them.",
    ),
    Subject(
        "postgres_store",
        "The store of LangGraph on Postgres",
        "Both on one server with pgvector, reached by a socket. Theirs searches in the server, with its own index and a filter; "
        "ours in the worker, and commits the exposures to the server. An outcome is one as above.",
    ),
    Subject(
        "pgvector",
        "Vectors in Postgres",
        '`index="pgvector"`, searched in the server, and `index="flat"`, searched in the worker: one server, reached by a socket, '
        "the same memories, k = 10, looked up only. The vectors are grown from sentences that all-MiniLM-L6-v2 has embedded. A topic is "
        "that share of all memories which is nearest to a query, and what is asked is about it. Recall is against `flat`, which is exact.",
    ),
    Subject(
        "chroma",
        "Chroma",
        "Both on files, k = 8, by vector. Chroma's search is approximate, ours exact; ours records an episode.",
    ),
    Subject(
        "minilm",
        "A retrieval with all-MiniLM-L6-v2",
        "`similarity_search` of a question, embedded by the real model on one thread, k = 8, in an episode. Within each call "
        "the time of the model is taken apart, and that of a bare search of as many vectors, which follows on the model too.",
    ),
    Subject(
        "memory",
        "Memory",
        "Anonymous memory (`RssAnon`) that a fresh process takes from before it opens the store to after the first "
        "answer, against one that reads the same vectors from the same file into `faiss.IndexFlatIP(384)`.",
    ),
    Subject(
        "opening",
        "Opening",
        "From the file to the first answer in a fresh process, imports apart, against one that reads the same vectors "
        "with `sqlite3` into `faiss.IndexFlatIP(384)` and searches. The file is in the page cache.",
    ),
    Subject(
        "startup",
        "Start of a program",
        "Fresh processes in turn.",
    ),
    Subject(
        "handler",
        "The callback handler",
        "The same chain with and without the handler, on the same event loop where it is asynchronous. The chain "
        "with a retrieval is compared with one that records the same by `store.episode()`; the time runs until the "
        "outcome is committed.",
    ),
    Subject(
        "estimators",
        "Estimators",
        "The pure functions alone, on states and counters of 400 memories with success rates from Beta(3, 2) above .4 "
        "(the others would be held back), 8 of them at random for each outcome. The states are read from their bytes and written back to them.",
    ),
)
