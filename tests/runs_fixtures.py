"""What the tests of the adapters share: words as memories, retrievers with known ids, fake models, a broken ledger."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.retrievers import BaseRetriever

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore, Run
from langchain_memoryworth.errors import StorageReadOnlyError

WORDS = ("apple", "bread", "cedar", "delta", "ember", "flint", "grape", "hazel")
"""Each is a memory with itself as id; a query finds those whose words it has first."""


def filled(store: MemoryWorthStore) -> MemoryWorthStore:
    """The words as memories."""
    store.add_texts(list(WORDS), ids=list(WORDS))
    return store


def shown(store: MemoryWorthStore, run_id: Any) -> set[str]:
    """Ids of what an episode has in front of the model."""
    return {e.memory_id for e in store.run(run_id).exposures if e.shown}


def rewards(store: MemoryWorthStore) -> dict[str, float | None]:
    """The reward of every episode in the ledger, by its id."""
    store.governor.outbox.drain()
    with store.governor.database.read() as session:
        cursor = session._cursor
        cursor.execute("SELECT id, reward FROM episodes ORDER BY eid")
        return dict(cursor.fetchall())


def credits_of(store: MemoryWorthStore, *, words: Sequence[str] = WORDS) -> dict[str, int]:
    """How many retrievals each memory was credited with; those with none are left out."""
    counts = {w: store.evidence(w).retrievals for w in words}
    return {w: n for w, n in counts.items() if n}


def text(documents: Sequence[Document]) -> str:
    return " ".join(d.page_content for d in documents)


class Foreign(BaseRetriever):
    """A retriever of somebody else whose documents carry ids of the store."""

    ids: tuple[str, ...]

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [Document(id=i, page_content=i) for i in self.ids]


class Scripted(BaseChatModel):
    """A chat model that says what it is told to, one message after the other, over and over."""

    says: list[AIMessage]
    turn: int = 0

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = self.says[self.turn % len(self.says)]
        self.turn += 1
        return ChatResult(generations=[ChatGeneration(message=message)])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Scripted:
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"


def says(*turns: str | tuple[str, dict[str, Any]]) -> Scripted:
    """A model that answers with text, or calls a tool given as (name, arguments)."""
    messages = [
        AIMessage(t)
        if isinstance(t, str)
        else AIMessage("", tool_calls=[ToolCall(name=t[0], args=t[1], id=f"call-{n}")])
        for n, t in enumerate(turns)
    ]
    return Scripted(says=messages)


@contextmanager
def broken_ledger(store: MemoryWorthStore) -> Iterator[None]:
    """Every write to the database fails; reading works."""
    database = store.governor.database

    @contextmanager
    def refuse(**options: Any) -> Iterator[Any]:
        raise StorageReadOnlyError("the disk is read-only")
        yield

    with patch.object(database, "write", refuse):
        yield


@contextmanager
def threads_of_database(store: MemoryWorthStore) -> Iterator[set[int]]:
    """The identities of the threads that used the database."""
    database = store.governor.database
    seen: set[int] = set()

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def call(**options: Any) -> Iterator[Any]:
            seen.add(threading.get_ident())
            with original(**options) as session:
                yield session

        return call

    with (
        patch.object(database, "write", watched(database.write)),
        patch.object(database, "read", watched(database.read)),
    ):
        yield seen


class Judge:
    """Says success to whatever it is asked about, and remembers it."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def __call__(self, run: Run) -> bool:
        self.runs.append(run)
        return True


class Life:
    """A store of words, a handler that calls every run a success, and the runs that it was asked about."""

    def __init__(self, store: MemoryWorthStore) -> None:
        self.store = filled(store)
        self.judge = Judge()
        self.handler = MemoryWorthCallbackHandler(store, self.judge)
        self.retriever = store.as_retriever(k=1)
        self.config: Any = {"callbacks": [self.handler]}

    @property
    def rewards(self) -> list[float | None]:
        return list(rewards(self.store).values())

    def is_unknown(self, *words: str) -> None:
        """There is one episode, with these memories, of which nothing is known."""
        assert self.rewards == [None]
        assert self.judge.runs == []
        [episode] = self.store.pending()
        assert shown(self.store, episode.id) == set(words)
        assert credits_of(self.store) == {}
        assert self.store.health().ok

    def is_success(self, *words: str) -> None:
        """There is one episode, with these memories, that succeeded; each was credited once."""
        assert self.rewards == [1.0]
        assert len(self.judge.runs) == 1
        assert credits_of(self.store) == dict.fromkeys(words, 1)
        assert self.store.health().ok
        assert self.store.health().unattributed == 0


GraphCall = Callable[[Any, Any, Any], Any]
"""A graph, what it is asked, and its config."""


async def _drained(graph: Any, value: Any, config: Any) -> list[Any]:
    return [c async for c in graph.astream(value, config)]


GRAPH_CALLS: dict[str, GraphCall] = {
    "sync": lambda graph, value, config: graph.invoke(value, config),
    "async": lambda graph, value, config: asyncio.run(graph.ainvoke(value, config)),
    "stream": lambda graph, value, config: list(graph.stream(value, config)),
    "astream": lambda graph, value, config: asyncio.run(_drained(graph, value, config)),
}
"""All ways to run a graph to its end."""
