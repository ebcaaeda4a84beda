"""A LangGraph store whose searches are governed; everything else is the inner store's.

Only `batch` and `abatch` govern, as `BaseStore` builds all other methods on them in the caller's own thread or
task. Stores that queue operations for a background task (`AsyncSqliteStore`, `AsyncPostgresStore`) would know nothing of
the run that asks, if they were subclassed; they are wrapped, and the run is found before they are called.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from langchain_core.runnables import run_in_executor
from langgraph.store.base import (
    NOT_PROVIDED,
    BaseStore,
    GetOp,
    NotProvided,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.records import SearchExplanation
from langchain_memoryworth.service.external import (
    Caller,
    Candidate,
    Choice,
    ExternalMemories,
    OnChange,
    served,
)
from langchain_memoryworth.service.governor import governor_of
from langchain_memoryworth.service.operations import GovernedMemories

_MARGIN = 8
"""How many more items than wanted the first look asks for at least, where some may be held back."""


class GovernedStore(GovernedMemories, BaseStore):
    """A LangGraph store that records which items a search gave to which run, and leaves out those held back.

    Give it to `compile(store=...)` or `create_agent(store=...)` in the place of the inner store. A search with a `query` is
    governed; `get`, `put`, `delete`, `list_namespaces` and a search without a query are the inner store's. A page is full
    as long as the inner store has items that may be served, and `offset` counts these.

    The memory id of an item is `memory_id(namespace, key)`; what is known of it is asked with `evidence`, `memory`,
    `suppressed` and so on, and its text is a digest of the value. The value itself is never changed.

    Args:
        inner: Any LangGraph store.
        store: The `MemoryWorthStore`, or its governor, that keeps the evidence.
        on_change: Whether a changed value starts fresh evidence, or keeps it.

    Attributes:
        inner: The inner store, for what must neither count nor be blinded: consolidation, import, export.

    Examples:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph.store.memory import InMemoryStore
        >>> from langchain_memoryworth import MemoryWorthStore
        >>> embedding = DeterministicFakeEmbedding(size=8)
        >>> store = GovernedStore(
        ...     InMemoryStore(index={"dims": 8, "embed": embedding}),
        ...     MemoryWorthStore("sqlite://", embedding),
        ... )
        >>> store.put(("notes",), "a", {"text": "Prague is in Czechoslovakia"})
        >>> with store.episode() as episode:
        ...     items = store.search(("notes",), query="where is Prague?")
        >>> episode.record(False)
        True
        >>> store.worth(store.memory_id(("notes",), "a"))
        0.0
    """

    def __init__(self, inner: BaseStore, store: Any, *, on_change: OnChange = "fresh") -> None:
        if not isinstance(inner, BaseStore):
            raise InvalidInputError(f"{inner!r} is no LangGraph store", value=inner)
        if isinstance(inner, GovernedStore):
            raise InvalidInputError(f"{inner!r} is governed already; give its inner", value=inner)
        self.inner = inner
        self.governor = governor_of(store)
        self._external = ExternalMemories(self.governor, on_change=on_change)

    # -- what the inner store is asked for -----------------------------------------------------------------------

    @property
    def supports_ttl(self) -> bool:  # type: ignore[override]  # the inner store's, not a constant
        """Whether the inner store lets items expire."""
        return self.inner.supports_ttl

    @property
    def ttl_config(self) -> TTLConfig | None:  # type: ignore[override]
        """How the inner store lets items expire."""
        return self.inner.ttl_config

    def __getattr__(self, name: str) -> Any:
        # `setup`, `start_ttl_sweeper`, `embeddings`, ...; not asked for what this class or BaseStore has.
        if name == "inner":  # not set yet, as when this object is copied
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()  # type: ignore[attr-defined]  # the async stores have it
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.inner.__aexit__(*exception)  # type: ignore[attr-defined]

    def explain_search(self, query: str, k: int = 4, **kwargs: Any) -> SearchExplanation:
        """Not here: the vectors are the inner store's. `explain` says of one memory why it is served or not.

        Raises:
            InvalidInputError: Always.
        """
        raise InvalidInputError(
            "a GovernedStore has no vectors to explain a search by; compare store.inner.search(...) "
            "with store.search(...), and ask store.explain(store.memory_id(namespace, key))",
            value=query,
        )

    # -- operations ----------------------------------------------------------------------------------------------

    @staticmethod
    def memory_id(namespace: Sequence[str], key: str) -> str:
        """The id under which the evidence of an item is kept."""
        return memory_id(namespace, key)

    def put(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """The inner store's: stores differ in where they check whether an item may expire."""
        self.inner.put(namespace, key, value, index, ttl=ttl)

    async def aput(
        self,
        namespace: tuple[str, ...],
        key: str,
        value: Mapping[str, Any],
        index: Literal[False] | list[str] | None = None,
        *,
        ttl: float | NotProvided | None = NOT_PROVIDED,
    ) -> None:
        """The inner store's, see `put`."""
        await self.inner.aput(namespace, key, value, index, ttl=ttl)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in the inner store, searches with a query governed."""
        ops = list(ops)
        if not any(map(_is_governed, ops)):
            return self.inner.batch(ops)
        work = _Batch(self.inner, self._external, ops, self._external.caller())
        asked = work.begin()
        while asked:
            asked = work.go_on(self.inner.batch(asked))
        return work.results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch` that awaits the inner store, and does the rest off the event loop."""
        ops = list(ops)
        if not any(map(_is_governed, ops)):
            return await self.inner.abatch(ops)
        work = _Batch(self.inner, self._external, ops, self._external.caller())
        asked = await run_in_executor(None, work.begin)
        while asked:
            results = await self.inner.abatch(asked)
            asked = await run_in_executor(None, work.go_on, results)
        return work.results


@dataclass(slots=True)
class _Search:
    """One search of a batch.

    Attributes:
        place: In the batch.
        held: How many items may be left out of it.
        asked: How many items the inner store was asked for, 0 if the search went to it as it was.
    """

    place: int
    op: SearchOp
    held: int = 0
    asked: int = 0

    @property
    def wanted(self) -> int:
        """How many items may have to be served, with those of the pages before."""
        return self.op.offset + self.op.limit


@dataclass(slots=True)
class _Batch:
    """A batch on its way: what the inner store is to be asked next, until all is answered.

    The store that waits for the answers and the one that awaits them drive it alike.
    """

    inner: BaseStore
    external: ExternalMemories
    ops: list[Op]
    caller: Caller
    results: list[Result] = field(default_factory=list)
    _open: list[_Search] = field(default_factory=list)

    def begin(self) -> list[Op]:
        """The batch as the inner store is asked first."""
        asked = list(self.ops)
        # A second look would see what the batch itself writes, which a search in it must not.
        only_once = any(isinstance(op, PutOp) for op in self.ops)
        for place, op in enumerate(self.ops):
            if isinstance(op, SearchOp) and op.query:
                search = _Search(place, op)
                search.held = self.external.left_out(search.wanted, _prefix(op.namespace_prefix))
                if search.held and op.limit > 0 and op.offset >= 0:
                    asked[place] = _asking(search, all_at_once=only_once)
                self._open.append(search)
        return asked

    def go_on(self, results: Sequence[Result]) -> list[Op]:
        """Take the inner store's answers; returns what else it is to be asked."""
        answers: list[Any] = list(results)
        if not self.results:
            self.results = list(results)
            answers = [results[s.place] for s in self._open]
        searches, self._open = self._open, []
        more: list[Op] = []
        refreshing: list[Op] = []
        # Behind the searches stand the answers to `refreshing` of the last time, which nobody needs.
        for search, items in zip(searches, answers, strict=False):
            given = self._serve(search, items)
            if given is None:
                self._open.append(search)
                more.append(_asking(search))
                continue
            self.results[search.place] = given
            expires = self.inner.supports_ttl or self.inner.ttl_config
            if search.asked and search.op.refresh_ttl and expires:
                refreshing += [GetOp(i.namespace, i.key, refresh_ttl=True) for i in given]
        return more + refreshing

    def _serve(self, search: _Search, items: list[SearchItem]) -> list[SearchItem] | None:
        """The items to serve, or None if more are needed and there may be more."""
        candidates = [
            Candidate(memory_id(i.namespace, i.key), i.value, self._similarity(i.score))
            for i in items
        ]
        limit, offset = search.op.limit, search.op.offset
        if search.asked:
            choices = self.external.choose(candidates, limit, self.caller, offset=offset)
            exhausted = len(items) < search.asked or search.asked >= search.wanted + search.held
            if len(served(choices)) < limit and not exhausted:
                return None
        elif search.held:  # a limit or an offset that is none: the inner store's own business
            choices = self.external.choose(candidates, max(len(items), 1), self.caller)
        else:
            choices = [Choice(i, max(offset, 0) + i) for i in range(len(items))]
        self.external.shown(candidates, choices, self.caller)
        return [items[c.place] for c in served(choices)]

    def _similarity(self, score: float | None) -> float | None:
        """A score of the inner store, if it is a cosine."""
        config = getattr(self.inner, "index_config", None)
        if score is None or not config or config.get("distance_type", "cosine") != "cosine":
            return None
        return min(max(float(score), -1.0), 1.0)


def _asking(search: _Search, *, all_at_once: bool = False) -> SearchOp:
    """The search with room for what is held back: some at first, and twice as much each time."""
    most = search.wanted + search.held
    some = max(2 * search.asked, search.wanted + max(search.op.limit, _MARGIN))
    search.asked = most if all_at_once else min(some, most)
    # What is looked at and not served must not live longer for it.
    return search.op._replace(offset=0, limit=search.asked, refresh_ttl=False)


def _is_governed(op: Op) -> bool:
    return isinstance(op, SearchOp) and bool(op.query)


def memory_id(namespace: Sequence[str], key: str) -> str:
    """The id under which the evidence of an item is kept. Joined by any character, two items could have the same.

    Examples:
        >>> memory_id(("users", "7"), "likes")
        '["users", "7", "likes"]'
    """
    return json.dumps([*namespace, key], ensure_ascii=False)


def _prefix(namespace: Sequence[str]) -> str:
    """How the memory ids of a namespace and of those below it start."""
    segments = json.dumps(list(namespace), ensure_ascii=False)[:-1]
    return f"{segments}, " if namespace else segments
