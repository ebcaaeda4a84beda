"""What the callback handler costs a chain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from benchmarks.data import filled, folder, unit_vectors
from benchmarks.rows import Row, excess_row
from benchmarks.timing import COPIES, Pairs, Side, all_in_turn
from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore

_TARGETS = {"sync": 100.0, "async": 300.0}
Chain = Runnable[str, str]


class _Idle(BaseCallbackHandler):
    """A handler that does nothing: what LangChain itself takes to call one."""

    run_inline = True
    ignore_llm = True
    ignore_chat_model = True
    ignore_retry = True

    def __init__(self) -> None:
        self.events = 0

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        self.events += 1

    def on_chain_end(self, *args: Any, **kwargs: Any) -> None:
        self.events += 1

    def on_retriever_start(self, *args: Any, **kwargs: Any) -> None:
        self.events += 1

    def on_retriever_end(self, *args: Any, **kwargs: Any) -> None:
        self.events += 1


def run(*, quick: bool) -> list[Row]:
    """Rows for both chains, sync and async."""
    rounds = 2 if quick else 300
    loop = asyncio.new_event_loop()
    with folder() as place, closing(loop):
        vectors = unit_vectors(50 if quick else 1_000)
        stores = [filled(place / f"{i}.db", vectors) for i in range(2 * COPIES)]
        rows = []
        for kind in ("sync", "async"):
            invoke = _sync if kind == "sync" else _async(loop)
            rows += _plain(kind, invoke, stores[:COPIES], rounds)
            rows += _retrieving(kind, invoke, stores, rounds)
        for store in stores:
            store.close()
    return rows


def _plain(kind: str, invoke: Any, stores: list[MemoryWorthStore], rounds: int) -> list[Row]:
    chain: Chain = RunnableLambda(_same) | RunnableLambda(_same)
    handlers = [MemoryWorthCallbackHandler(s, outcome=lambda _: True) for s in stores]
    idle = _Idle()
    ours = [Side(_call(invoke, chain, h)) for h in handlers]
    theirs = [Side(_call(invoke, chain, idle))] * len(ours)
    without = [Side(_call(invoke, chain, None))] * len(ours)
    taken = all_in_turn([ours, theirs, without], rounds=rounds)
    before = idle.events
    invoke(chain, "x", {"callbacks": [idle]})
    events = idle.events - before
    case = f"{kind} chain of two steps, no retrieval"
    share = Pairs(tuple(t / events for t in taken[0]), tuple(t / events for t in taken[1]))
    return [
        excess_row(case, "without it", Pairs(taken[0], taken[2]), unit="us", target=_TARGETS[kind]),
        excess_row(case, "with a handler that does nothing", Pairs(taken[0], taken[1]), unit="us"),
        excess_row(
            f"one of the {events} events of that chain",
            "one event of a handler that does nothing",
            share,
            unit="us",
        ),
    ]


def _retrieving(kind: str, invoke: Any, stores: list[MemoryWorthStore], rounds: int) -> list[Row]:
    ours = [Side(_by_handler(invoke, store)) for store in stores[:COPIES]]
    theirs = [Side(_by_episode(invoke, store)) for store in stores[COPIES:]]
    taken = all_in_turn([ours, theirs], rounds=rounds)
    return [
        excess_row(
            f"{kind} chain with a retrieval and an outcome",
            "the same with `store.episode()` and `record`",
            Pairs(*taken),
            unit="us",
            target=_TARGETS[kind],
            mode="NORMAL",
        )
    ]


def _chain(store: MemoryWorthStore) -> Chain:
    return store.as_retriever(k=8) | RunnableLambda(lambda docs: docs[0].page_content)


def _same(x: str) -> str:
    return x


def _call(
    invoke: Any, chain: Chain, handler: BaseCallbackHandler | None
) -> Callable[[int], object]:
    config: RunnableConfig = {} if handler is None else {"callbacks": [handler]}
    return lambda i: invoke(chain, str(i % 16), config)


def _by_handler(invoke: Any, store: MemoryWorthStore) -> Callable[[int], object]:
    handler = MemoryWorthCallbackHandler(store, outcome=lambda _: True)
    call = _call(invoke, _chain(store), handler)

    def work(i: int) -> None:
        call(i)
        store.governor.outbox.drain()

    return work


def _by_episode(invoke: Any, store: MemoryWorthStore) -> Callable[[int], object]:
    chain = _chain(store)

    def work(i: int) -> None:
        with store.episode() as episode:
            invoke(chain, str(i % 16), {})
        episode.record(outcome=True)

    return work


def _sync(chain: Chain, value: str, config: RunnableConfig) -> str:
    return chain.invoke(value, config)


def _async(loop: asyncio.AbstractEventLoop) -> Callable[[Chain, str, RunnableConfig], str]:
    def invoke(chain: Chain, value: str, config: RunnableConfig) -> str:
        return loop.run_until_complete(chain.ainvoke(value, config))

    return invoke
