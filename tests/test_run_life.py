"""How runs end: streams, cancellation, timeouts, interrupts of the process, and what a root's end does not say."""

from __future__ import annotations

import asyncio
import gc
import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import repeat
from typing import Any, TypedDict

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import (
    Runnable,
    RunnableGenerator,
    RunnableLambda,
    RunnableParallel,
)
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    exceptions_as_failure,
)
from tests.runs_fixtures import Life, credits_of, text


@pytest.fixture
def life(store: MemoryWorthStore) -> Life:
    return Life(store)


def chunks(documents: Any) -> Iterator[str]:
    yield from text(documents)


async def async_chunks(documents: AsyncIterator[Any]) -> AsyncIterator[str]:
    async for found in documents:
        for letter in text(found):
            yield letter


def as_generator(documents: Iterator[Any]) -> Iterator[str]:
    for found in documents:
        yield from text(found)


def in_words() -> GenericFakeChatModel:
    """A model whose stream comes in words."""
    return GenericFakeChatModel(messages=repeat(AIMessage("one two three")))


def lcel(life: Life, kind: str) -> Runnable[str, Any]:
    """Streams of every make whose root is a chain of LCEL."""
    if kind == "generator last":
        return life.retriever | RunnableGenerator(as_generator, async_chunks)
    if kind == "model last":
        prompt = ChatPromptTemplate.from_messages([("user", "{words}")])
        return {"words": life.retriever | text} | prompt | in_words()
    if kind == "parser last":
        prompt = ChatPromptTemplate.from_messages([("user", "{words}")])
        return {"words": life.retriever | text} | prompt | in_words() | StrOutputParser()
    if kind == "one lambda":

        def sync_root(query: str) -> Iterator[str]:
            yield from chunks(life.retriever.invoke(query))

        async def async_root(query: str) -> AsyncIterator[str]:
            for letter in text(await life.retriever.ainvoke(query)):
                yield letter

        return RunnableLambda(sync_root, afunc=async_root)
    letters = life.retriever | RunnableGenerator(as_generator, async_chunks)
    return RunnableParallel(letters=letters, again=letters)


KINDS = ["generator last", "model last", "parser last", "one lambda", "parallel last"]


class State(TypedDict, total=False):
    query: str
    answer: str


def graph(life: Life) -> Any:
    def recall(state: State) -> State:
        return {"answer": text(life.retriever.invoke(state["query"]))}

    async def arecall(state: State) -> State:
        return {"answer": text(await life.retriever.ainvoke(state["query"]))}

    builder = StateGraph(State)
    builder.add_node("recall", RunnableLambda(recall, afunc=arecall))
    builder.add_node("answer", lambda state: {"answer": state["answer"].upper()})
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "answer")
    builder.add_edge("answer", END)
    return builder.compile()


# -- streams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_to_its_end(life: Life, kind: str) -> None:
    assert list(lcel(life, kind).stream("apple", life.config))
    life.is_success("apple")
    [run] = life.judge.runs
    assert run.inputs == "apple"
    assert run.outputs


@pytest.mark.parametrize("kind", KINDS)
async def test_an_async_stream_to_its_end(life: Life, kind: str) -> None:
    assert [c async for c in lcel(life, kind).astream("apple", life.config)]
    life.is_success("apple")
    assert life.judge.runs[0].inputs == "apple"


@pytest.mark.parametrize("taken", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_whose_consumer_stops_is_no_success(life: Life, kind: str, taken: int) -> None:
    stream = lcel(life, kind).stream("apple", life.config)
    assert [next(stream) for _ in range(taken)]
    stream.close()
    life.is_unknown("apple")


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_a_loop_breaks_out_of(life: Life, kind: str) -> None:
    for _ in lcel(life, kind).stream("apple", life.config):
        break
    gc.collect()
    life.is_unknown("apple")


@pytest.mark.parametrize("kind", KINDS)
async def test_an_async_stream_whose_consumer_stops(life: Life, kind: str) -> None:
    stream = lcel(life, kind).astream("apple", life.config)
    async for _ in stream:
        break
    await stream.aclose()
    life.is_unknown("apple")


def test_a_stream_kept_alive_is_pending_and_may_end_later(life: Life) -> None:
    stream = lcel(life, "generator last").stream("apple", life.config)
    first = next(stream)
    life.is_unknown("apple")
    assert first + "".join(stream) == "apple"
    life.is_success("apple")


async def test_an_async_stream_kept_alive_is_pending_and_may_end_later(life: Life) -> None:
    stream = lcel(life, "generator last").astream("apple", life.config)
    first = await anext(stream)
    life.is_unknown("apple")
    assert first + "".join([c async for c in stream]) == "apple"
    life.is_success("apple")


def test_a_stream_kept_alive_does_not_take_other_runs_in(life: Life) -> None:
    chain = lcel(life, "generator last")
    streams = [chain.stream(word, life.config) for word in ("apple", "bread")]
    letters = [next(s) for s in streams]  # both are open, in one context
    chain.invoke("cedar", life.config)
    rest = ["".join(s) for s in reversed(streams)]
    assert [letters[0] + rest[1], letters[1] + rest[0]] == ["apple", "bread"]
    assert life.rewards == [1.0, 1.0, 1.0]
    assert credits_of(life.store) == {"apple": 1, "bread": 1, "cedar": 1}


def test_a_stream_that_is_garbage_collected(life: Life) -> None:
    stream = lcel(life, "one lambda").stream("apple", life.config)
    next(stream)
    del stream
    gc.collect()
    life.is_unknown("apple")


async def test_an_async_stream_that_is_garbage_collected(life: Life) -> None:
    stream = lcel(life, "one lambda").astream("apple", life.config)
    await anext(stream)
    del stream
    gc.collect()
    for _ in range(20):  # the loop closes it in a task of its own
        await asyncio.sleep(0)
    life.is_unknown("apple")


async def test_events_of_a_stream(life: Life) -> None:
    events = [e async for e in lcel(life, "one lambda").astream_events("apple", life.config)]
    assert events[-1]["event"] == "on_chain_end"
    life.is_success("apple")


@pytest.mark.parametrize("mode", ["values", "updates"])
def test_a_graph_streams_to_its_end(life: Life, mode: str) -> None:
    assert list(graph(life).stream({"query": "apple"}, life.config, stream_mode=mode))
    life.is_success("apple")
    assert life.judge.runs[0].outputs == {"query": "apple", "answer": "APPLE"}


async def test_a_graph_streams_to_its_end_async(life: Life) -> None:
    assert [s async for s in graph(life).astream({"query": "apple"}, life.config)]
    life.is_success("apple")


def test_a_graph_whose_consumer_stops(life: Life) -> None:
    stream = graph(life).stream({"query": "apple"}, life.config, stream_mode="updates")
    assert "recall" in next(stream)
    stream.close()
    life.is_unknown("apple")


async def test_a_graph_whose_consumer_stops_async(life: Life) -> None:
    stream = graph(life).astream({"query": "apple"}, life.config, stream_mode="updates")
    assert "recall" in await anext(stream)
    await stream.aclose()
    life.is_unknown("apple")


def test_a_null_result_is_a_result(life: Life) -> None:
    chain = life.retriever | RunnableLambda(lambda _: None)
    assert chain.invoke("apple", life.config) is None
    life.is_success("apple")
    assert list(chain.stream("bread", life.config)) == [None]
    assert life.rewards == [1.0, 1.0]


def test_the_stream_of_a_model_with_chunks(life: Life) -> None:
    def model(found: Any) -> Iterator[AIMessageChunk]:
        for word in ("one", " two"):
            yield AIMessageChunk(content=word)

    chain = life.retriever | RunnableLambda(model)
    assert [c.content for c in chain.stream("apple", life.config)] == ["one", " two"]
    life.is_success("apple")
    assert life.judge.runs[0].outputs.content == "one two"


# -- cancellation, timeouts, interrupts of the process ----------------------------------------------------------------


def waiting(started: asyncio.Event) -> RunnableLambda[Any, Any]:
    async def wait(_: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    async def awaiting(value: Any) -> str:
        return await wait(value)

    return RunnableLambda(awaiting)


@pytest.mark.parametrize("kind", ["chain", "graph"])
async def test_a_cancelled_run(life: Life, kind: str) -> None:
    started = asyncio.Event()
    last = waiting(started)
    chain: Any = life.retriever | last
    question: Any = "apple"
    if kind == "graph":
        builder = StateGraph(State)

        async def recall(state: State) -> State:
            return {"answer": text(await life.retriever.ainvoke(state["query"]))}

        builder.add_node("recall", recall)
        builder.add_node("wait", last)
        builder.add_edge(START, "recall")
        builder.add_edge("recall", "wait")
        chain, question = builder.compile(), {"query": "apple"}
    task = asyncio.create_task(chain.ainvoke(question, life.config))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    life.is_unknown("apple")


async def test_a_run_that_times_out(life: Life) -> None:
    started = asyncio.Event()
    chain = life.retriever | waiting(started)
    task = asyncio.create_task(chain.ainvoke("apple", life.config))

    async def limited() -> None:
        async with asyncio.timeout(None) as limit:
            await started.wait()
            limit.reschedule(asyncio.get_running_loop().time())  # it is over now
            await task

    with pytest.raises(TimeoutError):
        await limited()
    assert task.cancelled()
    life.is_unknown("apple")


async def test_one_cancelled_of_many(life: Life) -> None:
    started = asyncio.Event()
    slow = life.retriever | waiting(started)
    quick = life.retriever | text
    task = asyncio.create_task(slow.ainvoke("apple", life.config))
    await started.wait()
    await asyncio.gather(*(quick.ainvoke("bread", life.config) for _ in range(5)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(life.rewards, key=str) == [1.0] * 5 + [None]
    assert credits_of(life.store) == {"bread": 5}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("place", ["chain", "graph"])
def test_an_interrupt_of_the_process(life: Life, error: type[BaseException], place: str) -> None:
    def stop(_: Any) -> Any:
        raise error

    chain: Any = life.retriever | stop
    question: Any = "apple"
    if place == "graph":
        builder = StateGraph(State)
        builder.add_node(
            "recall", lambda state: {"answer": text(life.retriever.invoke(state["query"]))}
        )
        builder.add_node("stop", stop)
        builder.add_edge(START, "recall")
        builder.add_edge("recall", "stop")
        chain, question = builder.compile(), {"query": "apple"}
    with pytest.raises(error):
        chain.invoke(question, life.config)
    life.is_unknown("apple")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_the_process_under_async(life: Life, error: type[BaseException]) -> None:
    async def stop(_: Any) -> Any:
        raise error

    with pytest.raises(error):
        asyncio.run((life.retriever | RunnableLambda(stop)).ainvoke("apple", life.config))
    life.is_unknown("apple")


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_recursion_limit_is_for_the_user_to_judge(life: Life, how: str) -> None:
    builder = StateGraph(State)
    builder.add_node(
        "recall", lambda state: {"answer": text(life.retriever.invoke(state["query"]))}
    )
    builder.add_edge(START, "recall")
    builder.add_conditional_edges("recall", lambda state: "recall")
    endless = builder.compile()
    for judge, expected in (
        (lambda run: run.outputs == "x", None),
        (exceptions_as_failure(GraphRecursionError), 0.0),
    ):
        handler = MemoryWorthCallbackHandler(life.store, judge)
        run_id = uuid.uuid4()
        config: Any = {"callbacks": [handler], "recursion_limit": 3, "run_id": run_id}
        ways: dict[str, Any] = {
            "sync": endless.invoke,
            "async": lambda *given: asyncio.run(endless.ainvoke(*given)),
        }
        with pytest.raises(GraphRecursionError):
            ways[how]({"query": "apple"}, config)
        assert life.store.run(run_id).reward == expected
    assert credits_of(life.store) == {"apple": 1}  # once, for all its rounds


def test_a_bare_retriever_has_no_outcome_of_its_own(life: Life) -> None:
    life.retriever.invoke("apple", life.config)
    life.is_unknown("apple")
    life.store.record_outcome(life.handler.last_episode_id, True)
    assert credits_of(life.store) == {"apple": 1}


async def test_a_bare_retriever_is_cancelled(life: Life) -> None:
    task = asyncio.create_task(life.retriever.ainvoke("apple", life.config))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    life.store.governor.outbox.drain()
    assert life.judge.runs == []
    assert credits_of(life.store) == {}
    await (life.retriever | text).ainvoke("bread", life.config)
    assert credits_of(life.store) == {"bread": 1}
