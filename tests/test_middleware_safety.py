"""Many runs on one middleware, whatever breaks in it, and the tools that it gives to the agent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langchain_memoryworth import (
    MemoryWorthMiddleware,
    MemoryWorthStore,
    Run,
)
from langchain_memoryworth.adapters.prompts import render
from langchain_memoryworth.errors import InvalidInputError
from tests.agents_fixtures import (
    THREAD,
    WAYS,
    Answering,
    Go,
    ask,
    calls,
    echo,
    first_then,
)
from tests.conftest import StoreMaker
from tests.fakes import assert_exact
from tests.policies import plain
from tests.runs_fixtures import Judge, broken_ledger, credits_of, filled, rewards


@pytest.fixture(params=WAYS)
def go(request: pytest.FixtureRequest) -> Go:
    """One run of an agent, in each of LangGraph's ways."""
    return WAYS[request.param]


@pytest.fixture
def memories(make_store: StoreMaker) -> MemoryWorthStore:
    return filled(make_store(policy=plain(exploration=0.0)))


# -- many at once ---------------------------------------------------------------------------------------------


def test_many_threads_share_one_instance(memories: MemoryWorthStore) -> None:
    words = ["apple", "bread", "cedar", "delta"] * 4
    together = threading.Barrier(4)

    def answer(messages: Any) -> str:
        together.wait(timeout=60)
        return f"about {messages[-1].text}"

    middleware = MemoryWorthMiddleware(memories, k=1, outcome=judged_by_word)
    agent = create_agent(Answering(answer=answer), middleware=[middleware])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda word: agent.invoke(ask(word)), words))

    assert_each_by_itself(memories, 16)


async def test_many_tasks_share_one_instance(memories: MemoryWorthStore) -> None:
    words = ["apple", "bread", "cedar", "delta"] * 4
    middleware = MemoryWorthMiddleware(memories, k=1, recall="model", outcome=judged_by_word)
    agent = create_agent(echo(), middleware=[middleware])

    await asyncio.gather(*(agent.ainvoke(ask(word)) for word in words))

    await asyncio.to_thread(assert_each_by_itself, memories, 16)


def judged_by_word(run: Run) -> bool:
    (memory,) = run.memories
    assert memory.page_content == run.inputs["messages"][-1].text
    return memory.page_content in ("apple", "cedar")


def assert_each_by_itself(memories: MemoryWorthStore, runs: int) -> None:
    assert len(rewards(memories)) == runs
    assert credits_of(memories) == dict.fromkeys(("apple", "bread", "cedar", "delta"), runs // 4)
    worth = {w: memories.worth(w) for w in ("apple", "bread", "cedar", "delta")}
    assert worth == {"apple": 1.0, "bread": 0.0, "cedar": 1.0, "delta": 0.0}
    assert memories.health().ok
    assert_exact(memories)


# -- nothing reaches the user's run ---------------------------------------------------------------------------


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken")


class Broken(BaseRetriever):
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        raise RuntimeError("broken")


@pytest.mark.parametrize("recall", ["agent", "model"])
@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({"retriever": Broken()}, "a recall"),
        ({"query": broken}, "the query of a recall"),
        ({"namespace": ("users", "{user_id}")}, "a recall"),
        ({"template": broken}, "the prompt of a recall"),
        ({"outcome": broken}, "an outcome"),
        ({"outcome": lambda run: "INCORRECT"}, "an outcome"),
    ],
)
def test_the_agent_goes_on_whatever_breaks(
    memories: MemoryWorthStore, go: Go, options: dict[str, Any], step: str, recall: Any
) -> None:
    middleware = MemoryWorthMiddleware(memories, recall=recall, **options)
    agent = create_agent(echo(), middleware=[middleware])

    result = go(agent, ask("apple"))

    assert result["messages"][-1].text == "about apple"
    assert memories.health().failures == {step: 1}
    assert credits_of(memories) == {}


def test_memories_that_did_not_reach_the_prompt_get_no_credit(memories: MemoryWorthStore) -> None:
    middleware = MemoryWorthMiddleware(memories, template=broken)
    agent = create_agent(echo(), middleware=[middleware])
    agent.invoke(ask("apple"), {"metadata": {"episode_id": "e"}})

    memories.record_outcome("e", True)

    assert credits_of(memories) == {}


def test_the_agent_goes_on_when_nothing_can_be_written(memories: MemoryWorthStore, go: Go) -> None:
    model = echo()
    agent = create_agent(model, middleware=[MemoryWorthMiddleware(memories, k=1, outcome=Judge())])

    with broken_ledger(memories):
        go(agent, ask("apple"))

    assert '"apple"' in model.systems[0]
    assert "what a run retrieved" in memories.health().failures


def test_a_turn_that_cannot_begin_has_no_memories(memories: MemoryWorthStore, go: Go) -> None:
    model = echo()
    middleware = MemoryWorthMiddleware(memories, k=1, episode="thread", outcome=lambda run: True)
    agent = create_agent(model, middleware=[middleware], checkpointer=InMemorySaver())
    go(agent, ask("apple"), THREAD)

    with patch.object(memories.governor.journal, "episode", broken):
        result = go(agent, ask("bread"), THREAD)

    assert result["messages"][-1].text == "about bread"
    assert model.systems[1] == ""
    assert memories.health().failures == {"the beginning of a turn": 1}
    assert credits_of(memories) == {"apple": 1}


def test_a_closed_store_does_not_stop_the_agent(make_store: StoreMaker, go: Go) -> None:
    store = filled(make_store())
    agent = create_agent(echo(), middleware=[MemoryWorthMiddleware(store, outcome=Judge())])
    store.close()

    assert go(agent, ask("apple"))["messages"][-1].text == "about apple"


def test_an_interrupt_inside_a_retriever_is_not_taken_for_a_failure(
    memories: MemoryWorthStore,
) -> None:
    class Asks(BaseRetriever):
        def _get_relevant_documents(
            self, query: str, *, run_manager: CallbackManagerForRetrieverRun
        ) -> list[Document]:
            return [Document(interrupt("which?"), id="bread")]

    middleware = MemoryWorthMiddleware(memories, retriever=Asks(), outcome=Judge())
    model = echo()
    agent = create_agent(model, middleware=[middleware], checkpointer=InMemorySaver())

    assert agent.invoke(ask("apple"), THREAD)["__interrupt__"][0].value == "which?"
    agent.invoke(Command(resume="bread"), THREAD)

    assert '"bread"' in model.systems[0]
    assert credits_of(memories) == {"bread": 1}
    assert memories.health().ok


@pytest.mark.parametrize(
    "options",
    [
        {"recall": "always"},
        {"place": "footer"},
        {"episode": "life"},
        {"tools": ["rewrite"]},
        {"outcome": True},
        {"namespace": ("",)},
    ],
)
def test_what_cannot_be_meant_is_refused(
    memories: MemoryWorthStore, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInputError):
        MemoryWorthMiddleware(memories, **options)


# -- tools ----------------------------------------------------------------------------------------------------


def test_the_agent_remembers_through_the_store(make_store: StoreMaker, go: Go) -> None:
    store = make_store()
    middleware = MemoryWorthMiddleware(
        store, namespace=("users", "{user_id}"), tools=["remember", "forget"]
    )
    agent = create_agent(first_then(calls("remember", text="likes tea")), middleware=[middleware])

    result = go(agent, ask("I like tea"), config={"configurable": {"user_id": "ann"}})

    (memory,) = store.memories(namespace=("users", "ann"))
    assert (memory.text, memory.evidence.retrievals) == ("likes tea", 0)
    assert memory.id in result["messages"][-2].text
    assert store.memories() == []


@pytest.mark.parametrize(
    ("memory_id", "left", "said"),
    [
        ("apple", {"bread"}, "Forgot apple"),
        ("bread", {"apple", "bread"}, "pinned"),
        ("nothing", {"apple", "bread"}, "no memory"),
    ],
)
def test_the_agent_forgets_what_is_not_pinned(
    make_store: StoreMaker, go: Go, memory_id: str, left: set[str], said: str
) -> None:
    store = make_store()
    store.add_texts(["apple", "bread"], ids=["apple", "bread"])
    store.pin("bread")
    agent = create_agent(
        first_then(calls("forget", memory_id=memory_id)),
        middleware=[MemoryWorthMiddleware(store, tools=["forget"])],
    )

    result = go(agent, ask("forget it"))

    assert {m.id for m in store.memories()} == left
    assert said in result["messages"][-2].text


@pytest.mark.parametrize(
    "wish", [calls("remember", text="tea"), calls("forget", memory_id="apple")]
)
def test_a_tool_that_cannot_write_says_so(memories: MemoryWorthStore, go: Go, wish: Any) -> None:
    agent = create_agent(
        first_then(wish),
        middleware=[MemoryWorthMiddleware(memories, tools=["remember", "forget"])],
    )

    with broken_ledger(memories):
        result = go(agent, ask("tea"))

    assert "could not" in result["messages"][-2].text
    assert result["messages"][-1].text == "done"


def test_an_empty_text_is_not_remembered(make_store: StoreMaker) -> None:
    store = make_store()
    (remember,) = MemoryWorthMiddleware(store, tools=["remember"]).tools

    assert "nothing" in remember.invoke({"text": "  "})
    assert store.memories() == []


# -- elsewhere ------------------------------------------------------------------------------------------------


def test_without_langchain_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['langchain.agents.middleware.types'] = None\n"
        "from langchain_memoryworth.errors import MissingExtraError\n"
        "try: from langchain_memoryworth import MemoryWorthMiddleware\n"
        "except MissingExtraError as error: print(error, error.extra)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "pip install 'langchain-memoryworth[agents]'" in done.stdout


def test_a_document_without_an_id_is_rendered() -> None:
    assert render([Document("x")], "{memories}") == '<memory id="">x</memory>'


def test_the_example_runs() -> None:
    example = Path(__file__).parents[1] / "examples" / "agent_middleware.py"
    done = subprocess.run(
        [sys.executable, "-W", "error", example], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "hits-=1.000" in done.stdout
