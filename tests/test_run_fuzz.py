"""Random trees of runnables against an oracle that says what each episode must hold.

A tree is made of steps that retrieve known ids and of what LangChain and LangGraph put around steps. The oracle walks the
same tree and knows only three things: what is retrieved when a step runs, whether it raises, and whether a stream is read
to its end. `MEMORYWORTH_TREES` says how many trees, `make soak` looks at 5,000 new ones.
"""

from __future__ import annotations

import asyncio
import operator
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.runnables import RunnableBranch, RunnableLambda, RunnableParallel
from langchain_core.tools import StructuredTool
from langgraph.graph import START, StateGraph

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore
from tests.fakes import HashedWords
from tests.runs_fixtures import WORDS, Foreign, filled, text

TREES = int(os.environ.get("MEMORYWORTH_TREES", "400"))

# -- trees ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """A retrieval: by the store's retriever, by somebody else's, or directly."""

    word: str
    how: str


@dataclass(frozen=True)
class Fail:
    """Raises, the first `times` times that it is called in a run."""

    name: int
    times: int


@dataclass(frozen=True)
class Node:
    kind: str
    parts: tuple[Any, ...]


looks = st.builds(Look, st.sampled_from(WORDS), st.sampled_from(["own", "foreign", "direct"]))
fails = st.builds(Fail, st.integers(0, 10**6), st.sampled_from([1, 1, 2, 99]))
KINDS = ["sequence", "parallel", "branch", "lambda", "tool", "graph", "subgraph"]


def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(inner, min_size=1, max_size=3).map(tuple)
    one = inner.map(lambda part: (part,))
    return st.one_of(
        st.builds(Node, st.sampled_from(KINDS), many),
        st.builds(Node, st.just("retry"), one),
        st.builds(Node, st.just("fallback"), st.lists(inner, min_size=2, max_size=3).map(tuple)),
    )


trees = st.recursive(st.one_of(looks, looks, fails), around, max_leaves=8)


# -- as runnables --------------------------------------------------------------------------------------------------


class State(TypedDict, total=False):
    done: Annotated[list[str], operator.add]


class Builder:
    """Turns a tree into a runnable; what a step gives is never looked at."""

    def __init__(self, store: MemoryWorthStore) -> None:
        self.store = store
        self.calls: dict[Fail, int] = {}

    def build(self, tree: Any) -> Any:
        if isinstance(tree, Look):
            return self.look(tree)
        if isinstance(tree, Fail):
            return RunnableLambda(self.failing(tree))
        parts = [self.build(p) for p in tree.parts]
        return getattr(self, tree.kind)(parts)

    def look(self, tree: Look) -> Any:
        word = RunnableLambda(lambda _: tree.word)
        if tree.how == "own":
            return word | self.store.as_retriever(k=1) | text
        if tree.how == "foreign":
            return word | Foreign(ids=(tree.word, "nobody")) | text
        return RunnableLambda(lambda _: text(self.store.similarity_search(tree.word, k=1)))

    def failing(self, tree: Fail) -> Any:
        def fail(value: Any) -> Any:
            self.calls[tree] = self.calls.get(tree, 0) + 1
            if self.calls[tree] <= tree.times:
                raise ConnectionError(tree.name)
            return "fine"

        return fail

    def sequence(self, parts: list[Any]) -> Any:
        whole = RunnableLambda(str)
        for part in parts:
            whole = whole | part
        return whole

    def parallel(self, parts: list[Any]) -> Any:
        return RunnableParallel({str(n): p for n, p in enumerate(parts)}) | str

    def branch(self, parts: list[Any]) -> Any:
        return RunnableBranch((lambda _: len(parts) > 1, parts[0]), parts[-1])

    def lambda_(self, parts: list[Any]) -> Any:
        return RunnableLambda(lambda value: [p.invoke(value) for p in parts][-1])

    def tool(self, parts: list[Any]) -> Any:
        def use(value: str) -> str:
            """Uses."""
            return str([p.invoke(value) for p in parts])

        tool = StructuredTool.from_function(use, name="use")
        return RunnableLambda(lambda value: {"value": str(value)}) | tool

    def graph(self, parts: list[Any]) -> Any:
        builder = StateGraph(State)
        names = [f"n{i}" for i in range(len(parts))]
        for name, part in zip(names, parts, strict=True):
            builder.add_node(name, (lambda state: "?") | part | (lambda out: {"done": ["x"]}))
        builder.add_edge(START, names[0])
        for a, b in pairwise(names):
            builder.add_edge(a, b)
        return RunnableLambda(lambda _: {"done": []}) | builder.compile() | str

    def subgraph(self, parts: list[Any]) -> Any:
        inner = self.graph(parts)
        return RunnableLambda(inner.invoke)

    def retry(self, parts: list[Any]) -> Any:
        return parts[0].with_retry(stop_after_attempt=3, wait_exponential_jitter=False)

    def fallback(self, parts: list[Any]) -> Any:
        return parts[0].with_fallbacks(parts[1:])


setattr(Builder, "lambda", Builder.lambda_)


# -- the oracle ----------------------------------------------------------------------------------------------------


class Oracle:
    """What a run of the tree retrieves, and whether it raises."""

    def __init__(self) -> None:
        self.calls: dict[Fail, int] = {}
        self.seen: set[str] = set()

    def succeeds(self, tree: Any, *, streaming: bool) -> bool:
        """Walk the tree as LangChain does; `with_retry` tries once only where it is streamed."""
        if isinstance(tree, Look):
            self.seen.add(tree.word)
            return True
        if isinstance(tree, Fail):
            self.calls[tree] = self.calls.get(tree, 0) + 1
            return self.calls[tree] > tree.times
        streaming = streaming and tree.kind not in {"lambda", "tool", "graph", "subgraph"}
        if tree.kind == "branch":
            return self.succeeds(tree.parts[0], streaming=streaming)
        if tree.kind == "retry":
            attempts = 1 if streaming else 3
            return any(self.succeeds(tree.parts[0], streaming=streaming) for _ in range(attempts))
        several = any if tree.kind == "fallback" else all
        return several(self.succeeds(p, streaming=streaming) for p in tree.parts)


def certain(tree: Any) -> bool:
    """False where a failure in one parallel branch leaves open how far the others came."""
    if not isinstance(tree, Node):
        return True
    if tree.kind == "parallel" and len(tree.parts) > 1 and any(has_fail(p) for p in tree.parts):
        return False
    return all(certain(p) for p in tree.parts)


def has_fail(tree: Any) -> bool:
    return isinstance(tree, Fail) or (isinstance(tree, Node) and any(map(has_fail, tree.parts)))


# -- agreement -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def words() -> Iterator[MemoryWorthStore]:
    with MemoryWorthStore("sqlite://", HashedWords()) as store:
        yield filled(store)


def run(runnable: Any, how: str, config: Any) -> bool:
    """Whether the run came to its end; a stream that is stopped early did not."""
    try:
        if how == "invoke":
            runnable.invoke("?", config)
        elif how == "ainvoke":
            asyncio.run(runnable.ainvoke("?", config))
        elif how == "stream":
            list(runnable.stream("?", config))
        elif how == "batch":
            runnable.batch(["?"], config)
        else:
            stream = runnable.stream("?", config)
            next(stream)
            stream.close()
            return False
    except ConnectionError:
        return False
    return True


@settings(
    max_examples=TREES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(
    tree=trees.filter(certain),
    how=st.sampled_from(["invoke", "ainvoke", "stream", "batch", "stopped"]),
)
def test_every_episode_holds_what_the_oracle_says(
    words: MemoryWorthStore, tree: Any, how: str
) -> None:
    builder, oracle = Builder(words), Oracle()
    asked: list[Any] = []
    handler = MemoryWorthCallbackHandler(
        words, lambda r: bool(asked.append(r)) or r.outputs is not r
    )
    run_id = uuid.uuid4()
    before = words.health()
    # The outermost is a sequence, so that the last step's retrieval is over before the first chunk comes.
    runnable = RunnableLambda(str) | builder.build(tree) | RunnableLambda(str)
    ended = run(runnable, how, {"callbacks": [handler], "run_id": run_id})
    after = words.health()
    succeeded = oracle.succeeds(tree, streaming=how in {"stream", "stopped"})
    assert ended == (succeeded and how != "stopped")
    assert after.failures == before.failures == {}
    assert after.unattributed == before.unattributed
    assert after.episodes == before.episodes + bool(oracle.seen)
    if not oracle.seen:
        assert asked == []
        return
    episode = words.run(run_id)
    assert {e.memory_id for e in episode.exposures if e.shown} == oracle.seen
    assert len(episode.exposures) == len(oracle.seen)
    assert episode.reward == (1.0 if ended else None)
    assert round(sum(e.weight for e in episode.exposures), 9) == (1.0 if ended else 0.0)
    assert len(asked) == (how != "stopped" or not succeeded)
