"""Why a target is missed where it is: words for the page, without figures, which are measured anew each time."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[tuple[str, str], str] = {
    ("search", ""): (
        "around FAISS's own scan, which is the same, stand a lock, the query with its weights, and the true "
        "similarity of each hit, read from the stored rows: a fixed time for each search, which counts the "
        "more the fewer memories there are"
    ),
    ("retrieval", "after an outcome"): (
        "before it searches it reads what the outcome moved, and shows or hides what changed its status, so that no "
        "answer is older than the last outcome"
    ),
    ("retrieval", "in an episode"): (
        "the exposures are committed before the documents are returned: an episode, its id in an index that "
        "is kept unique, and eight rows go through SQLite's log"
    ),
    ("retrieval", "looked up only"): (
        "one transaction sees what others have committed and a second one reads the documents, in Python "
        "around SQLite"
    ),
    ("outcome", "search, documents"): (
        "as for the outcome alone; and the search begins by taking the outcome before it into the index, "
        "which is not done by hand"
    ),
    ("outcome", "8 documents shown"): (
        "hardly for SQLite's sake, as the row of our statements alone shows. The rest is Python that the code "
        "by hand, which is told the credit, has no need of: the standing of each memory, its share, what was "
        "to be expected without it, base rates, and whether its status follows. It is a fixed time, so with "
        "FULL the disk hides it"
    ),
    ("outcome", "outcomes by"): (
        "what SQLite writes is less than by hand, as each memory's counters are written once. But the exposures and the "
        "memories have to be read, and for each exposure Python works out a share, what was to be expected, and what "
        "that adds, where hardly any of the disk's time is left to hide it"
    ),
    ("outcome_postgres", ""): (
        "as on SQLite, what ours reads and works out between the statements; the server's wait for its log hides a part of it"
    ),
    ("stores", ""): ("the smaller the store, the more a committed episode weighs against a scan"),
    ("langgraph_stores", "memory of"): (
        "a tenth of theirs is hardly more than the vector itself, and ours has the coordinates of the ranking besides"
    ),
    ("langgraph_stores", "search among"): (
        "the scan, which reads every vector once, is nearly all of ours, and takes longer the more the neighbours use the "
        "memory; theirs is bound by the processor"
    ),
    ("langgraph_stores", ""): (
        "what an outcome of ours does besides eight counters, theirs has none of: who said it, the share of each memory, what was "
        "to be expected without it, base rates and verdicts. It is a fixed time in Python, which only a wait for the disk hides"
    ),
    ("postgres_store", ""): (
        "most of ours is the commit of the exposures to the server, three round trips and a write to its log, which is the same "
        "however many memories there are; theirs only reads"
    ),
    ("minilm", ""): (
        "a committed episode takes some hundred microseconds, and after the model neither the vectors nor Python's own objects "
        "are in the processor's caches"
    ),
    ("opening", ""): (
        "besides the vectors it reads the counters, times and statuses of each memory, which SQLite hands "
        "over one by one as objects of Python, and keeps a dictionary of their numbers"
    ),
    ("startup", "--help"): ("nearly all of it is the interpreter, Typer and rich"),
    ("startup", ""): (
        "the names stand on pydantic models and LangChain's callbacks, which the reference leaves out"
    ),
    ("estimators", "all of them"): (
        "at a failure the change detector of each memory is read from its bytes, takes in what came since, outcome by outcome, "
        "is judged and written again; and the verdict by bounds needs an integral where no bound decides"
    ),
    ("handler", "with a retrieval"): (
        "the events of each step of the chain pass through the handler, whether it retrieves or not, and the "
        "outcome function is called with the run's inputs, output and documents"
    ),
    ("handler", ""): (
        "each event of each step is noted with its run and parent under a lock, as only the start of a run "
        "says whose child it is"
    ),
}
"""By subject and a part of the case; the first that fits is taken."""


def reason(subject: str, case: str) -> str:
    """Why a row of a subject misses its target, in words that follow a colon."""
    fitting = (text for (name, part), text in REASONS.items() if name == subject and part in case)
    return next(fitting, "")
