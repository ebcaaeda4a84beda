"""The handler: which run is whose, what it turns into outcomes, and that it never disturbs the run."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from langchain_memoryworth import (
    USED_EVENT,
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    Outcome,
    Run,
)
from langchain_memoryworth.errors import InvalidInputError, UnknownRunError
from tests.conftest import StoreMaker
from tests.runs_fixtures import (
    WORDS,
    Foreign,
    broken_ledger,
    credits_of,
    filled,
    rewards,
    shown,
    text,
    threads_of_database,
)

Call = Callable[..., Any]


@pytest.fixture
def memories(store: MemoryWorthStore) -> MemoryWorthStore:
    return filled(store)


@pytest.fixture(params=["invoke", "ainvoke", "batch", "abatch", "stream", "astream"])
def call(request: pytest.FixtureRequest) -> Call:
    """One run of a chain, in each of LangChain's ways."""

    async def drained(chain: Any, value: Any, config: Any) -> Any:
        whole = ""
        async for chunk in chain.astream(value, config):
            whole += chunk
        return whole

    return {
        "invoke": lambda chain, value, config: chain.invoke(value, config),
        "ainvoke": lambda chain, value, config: asyncio.run(chain.ainvoke(value, config)),
        "batch": lambda chain, value, config: chain.batch([value], config)[0],
        "abatch": lambda chain, value, config: asyncio.run(chain.abatch([value], config))[0],
        "stream": lambda chain, value, config: "".join(chain.stream(value, config)),
        "astream": lambda chain, value, config: asyncio.run(drained(chain, value, config)),
    }[request.param]


# -- outcomes of finished runs -------------------------------------------------------------------------------------


def test_a_run_becomes_an_outcome(memories: MemoryWorthStore, call: Call) -> None:
    seen: list[Run] = []

    def outcome(run: Run) -> bool:
        seen.append(run)
        return run.outputs == "apple"

    handler = MemoryWorthCallbackHandler(memories, outcome)
    chain = memories.as_retriever(k=1) | text
    run_id = uuid.uuid4()
    config = {
        "callbacks": [handler],
        "run_id": run_id,
        "tags": ["t"],
        "metadata": {"m": 1, "thread_id": 7},
        "run_name": "answer",
    }
    assert call(chain, "apple", config) == "apple"
    assert call(chain, "bread", {"callbacks": [handler]}) == "bread"
    assert memories.worth("apple") == 1.0
    assert memories.worth("bread") == 0.0
    run = seen[0]
    assert (run.run_id, run.episode_id) == (str(run_id), str(run_id))
    assert (run.inputs, run.outputs, run.error) == ("apple", "apple", None)
    assert [d.id for d in run.memories] == ["apple"]
    assert "t" in run.tags
    assert run.metadata["m"] == 1
    assert (run.thread_id, run.name) == ("7", "answer")
    assert memories.run(run_id).thread_id == "7"
    assert memories.health().ok


def test_every_item_of_a_batch_is_an_episode(memories: MemoryWorthStore) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: run.inputs in {"apple", "bread"})
    chain = memories.as_retriever(k=1) | text
    chain.batch(list(WORDS), {"callbacks": [handler]})
    asyncio.run(chain.abatch(list(WORDS), {"callbacks": [handler]}))
    assert memories.health().episodes == 2 * len(WORDS)
    for word in WORDS:
        assert memories.evidence(word).retrievals == 2
        assert memories.worth(word) == float(word in {"apple", "bread"})


def test_without_an_outcome_function_a_run_is_pending(
    memories: MemoryWorthStore, call: Call
) -> None:
    handler = MemoryWorthCallbackHandler(memories)
    call(memories.as_retriever(k=1) | text, "apple", {"callbacks": [handler]})
    [pending] = memories.pending()
    assert shown(memories, pending.id) == {"apple"}
    assert credits_of(memories) == {}


def test_none_means_not_known(memories: MemoryWorthStore, call: Call) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: None)
    call(memories.as_retriever(k=1) | text, "apple", {"callbacks": [handler]})
    assert len(memories.pending()) == 1
    assert memories.health().ok


def test_a_run_without_memories_is_not_judged(memories: MemoryWorthStore, call: Call) -> None:
    asked: list[Run] = []
    handler = MemoryWorthCallbackHandler(memories, lambda run: bool(asked.append(run)))
    call(RunnableLambda(str.upper), "apple", {"callbacks": [handler]})
    assert asked == []
    assert memories.health().episodes == 0


@pytest.mark.parametrize("judgement", [0.25, True, False, Outcome(0.5), 1])
def test_rewards_of_every_kind(memories: MemoryWorthStore, call: Call, judgement: Any) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: judgement)
    call(memories.as_retriever(k=1) | text, "apple", {"callbacks": [handler]})
    expected = judgement.reward if isinstance(judgement, Outcome) else float(judgement)
    assert memories.worth("apple") == expected


def test_the_source_is_the_handlers(memories: MemoryWorthStore) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: False, source="unit tests")
    (memories.as_retriever(k=1) | text).invoke("apple", {"callbacks": [handler]})
    [outcome] = memories.run(handler.last_episode_id).outcomes
    assert outcome.source == "unit tests"
    memories.record_outcome(handler.last_episode_id, True)
    assert memories.worth("apple") == 1.0
    assert memories.evidence("apple").retrievals == 1


# -- errors --------------------------------------------------------------------------------------------------------


def fails(error: BaseException) -> RunnableLambda[Any, Any]:
    def raise_it(_: Any) -> Any:
        raise error

    return RunnableLambda(raise_it)


def test_an_exception_is_not_a_failure(memories: MemoryWorthStore, call: Call) -> None:
    handler = MemoryWorthCallbackHandler(memories, outcome=lambda run: run.outputs == "apple")
    chain = memories.as_retriever(k=1) | fails(ConnectionError("rate limit"))
    with pytest.raises(ConnectionError):
        call(chain, "apple", {"callbacks": [handler]})
    assert list(rewards(memories).values()) == [None]
    assert memories.health().ok
    assert len(memories.pending()) == 1


def test_an_outcome_function_may_look_at_the_error(memories: MemoryWorthStore, call: Call) -> None:
    handler = MemoryWorthCallbackHandler(
        memories, outcome=lambda run: False if isinstance(run.error, KeyError) else None
    )
    retriever = memories.as_retriever(k=1)
    with pytest.raises(KeyError):
        call(retriever | fails(KeyError("x")), "apple", {"callbacks": [handler]})
    with pytest.raises(ConnectionError):
        call(retriever | fails(ConnectionError()), "bread", {"callbacks": [handler]})
    assert memories.worth("apple") == 0.0
    assert memories.evidence("bread").retrievals == 0


def test_exceptions_that_a_batch_returns(memories: MemoryWorthStore) -> None:
    def check(query: str) -> str:
        if query == "bread":
            raise ValueError(query)
        return query

    handler = MemoryWorthCallbackHandler(memories, lambda run: run.outputs == "apple")
    chain = memories.as_retriever(k=1) | text | check
    for answers in (
        chain.batch(["apple", "bread"], {"callbacks": [handler]}, return_exceptions=True),
        asyncio.run(
            chain.abatch(["apple", "bread"], {"callbacks": [handler]}, return_exceptions=True)
        ),
    ):
        assert answers[0] == "apple"
        assert isinstance(answers[1], ValueError)
    assert memories.evidence("apple").retrievals == 2
    assert memories.evidence("bread").retrievals == 0
    assert sorted(rewards(memories).values(), key=str) == [1.0, 1.0, None, None]


# -- outcomes that come later --------------------------------------------------------------------------------------


def test_an_outcome_comes_later(memories: MemoryWorthStore, call: Call) -> None:
    run_id = uuid.uuid4()
    handler = MemoryWorthCallbackHandler(memories)
    chain = memories.as_retriever(k=1) | text
    call(chain, "apple", {"callbacks": [handler], "run_id": run_id})
    for identity in (run_id, str(run_id)):
        memories.record_outcome(identity, False)
        assert memories.worth("apple") == 0.0
    assert memories.evidence("apple").retrievals == 1
    with pytest.raises(UnknownRunError):
        memories.record_outcome(uuid.uuid4(), False)


_FEEDBACK = """
import sys
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_memoryworth import MemoryWorthStore
with MemoryWorthStore(sys.argv[1], DeterministicFakeEmbedding(size=8)) as store:
    store.record_outcome(sys.argv[2], False, source="user")
    print(store.worth("apple"))
"""


def test_an_outcome_comes_from_another_process(make_store: StoreMaker, file_url: str) -> None:
    from langchain_core.embeddings import DeterministicFakeEmbedding

    store = make_store(file_url, embedding=DeterministicFakeEmbedding(size=8))
    store.add_texts(["apple"], ids=["apple"])
    handler = MemoryWorthCallbackHandler(store, outcome=lambda run: True)
    (store.as_retriever(k=1) | text).invoke("apple", {"callbacks": [handler]})
    assert store.worth("apple") == 1.0
    told = subprocess.run(
        [sys.executable, "-c", _FEEDBACK, file_url, str(handler.last_episode_id)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert told.stdout.strip() == "0.0"
    assert store.worth("apple") == 0.0
    assert store.evidence("apple").retrievals == 1


def test_outcomes_read_back_at_once_after_await(memories: MemoryWorthStore) -> None:
    handler = MemoryWorthCallbackHandler(memories, outcome=lambda run: True)
    chain = memories.as_retriever(k=1) | text

    async def session() -> None:
        for n in range(1, 20):
            await chain.ainvoke("apple", {"callbacks": [handler]})
            assert memories.evidence("apple").retrievals == n
            assert memories.run(handler.last_episode_id).reward == 1.0

    asyncio.run(session())


# -- many at once --------------------------------------------------------------------------------------------------


def test_64_concurrent_runs_do_not_mix(memories: MemoryWorthStore) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: run.inputs == run.outputs)
    retriever = memories.as_retriever(k=1)
    together = threading.Barrier(64, timeout=120)

    def answer(query: str) -> str:
        found = text(retriever.invoke(query))
        together.wait()  # all 64 are open at once
        return text(retriever.invoke(query)) if found == query else "mixed"

    chain = RunnableLambda(answer)
    asked = [WORDS[n % 8] for n in range(64)]
    ids = [uuid.uuid4() for _ in asked]

    def run(n: int) -> str | None:
        chain.invoke(asked[n], {"callbacks": [handler], "run_id": ids[n]})
        return handler.last_episode_id

    with ThreadPoolExecutor(64) as pool:
        last = list(pool.map(run, range(64)))
    assert last == [str(i) for i in ids]
    for n, run_id in enumerate(ids):
        assert shown(memories, run_id) == {asked[n]}
        assert memories.run(run_id).reward == 1.0
    assert credits_of(memories) == dict.fromkeys(WORDS, 8)
    assert memories.health().ok


def test_200_gathered_tasks_do_not_mix(memories: MemoryWorthStore) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: run.inputs == run.outputs)
    chain = memories.as_retriever(k=1) | text
    asked = [WORDS[n % 8] for n in range(200)]
    ids = [uuid.uuid4() for _ in asked]

    async def one(n: int) -> str | None:
        await chain.ainvoke(asked[n], {"callbacks": [handler], "run_id": ids[n]})
        return handler.last_episode_id

    async def everything() -> list[str | None]:
        return await asyncio.gather(*(one(n) for n in range(200)))

    assert asyncio.run(everything()) == [str(i) for i in ids]
    for n, run_id in enumerate(ids):
        assert shown(memories, run_id) == {asked[n]}
    assert credits_of(memories) == dict.fromkeys(WORDS, 25)
    assert memories.health().ok


# -- one handler or several ----------------------------------------------------------------------------------------


def test_a_handler_attached_twice_counts_once(memories: MemoryWorthStore, call: Call) -> None:
    asked: list[Run] = []
    handler = MemoryWorthCallbackHandler(memories, lambda run: bool(asked.append(run)))
    retriever = memories.as_retriever(k=1).with_config(callbacks=[handler])
    chain = (retriever | text).with_config(callbacks=[handler])
    call(chain, "apple", {"callbacks": [handler, handler]})
    assert len(asked) == 1
    assert memories.health().episodes == 1
    assert credits_of(memories) == {"apple": 1}


def test_two_handlers_of_one_store_settle_one_episode(
    memories: MemoryWorthStore, call: Call
) -> None:
    by_rule = MemoryWorthCallbackHandler(memories, lambda run: False)
    by_model = MemoryWorthCallbackHandler(memories, lambda run: True, source="evaluator")
    call(memories.as_retriever(k=1) | text, "apple", {"callbacks": [by_rule, by_model]})
    [episode] = rewards(memories)
    assert {o.source for o in memories.run(episode).outcomes} == {"handler", "evaluator"}
    assert memories.worth("apple") == 1.0
    assert credits_of(memories) == {"apple": 1}


def test_two_stores_each_with_a_handler(make_store: StoreMaker, call: Call) -> None:
    mine, yours = filled(make_store()), filled(make_store())
    chain = {"a": mine.as_retriever(k=1), "b": yours.as_retriever(k=1)} | RunnableLambda(
        lambda found: text(found["a"] + found["b"])
    )
    handlers = [
        MemoryWorthCallbackHandler(mine, lambda run: True),
        MemoryWorthCallbackHandler(yours, lambda run: False),
    ]
    call(chain, "apple", {"callbacks": handlers})
    assert (mine.worth("apple"), yours.worth("apple")) == (1.0, 0.0)
    assert credits_of(mine) == credits_of(yours) == {"apple": 1}


def test_last_episode_id_is_of_the_context(memories: MemoryWorthStore) -> None:
    handler, other = MemoryWorthCallbackHandler(memories), MemoryWorthCallbackHandler(memories)
    chain = memories.as_retriever(k=1) | text
    assert handler.last_episode_id is None
    chain.invoke("apple", {"callbacks": [handler]})
    mine = handler.last_episode_id
    assert mine is not None
    assert other.last_episode_id is None

    def elsewhere() -> tuple[str | None, str | None]:
        before = handler.last_episode_id
        chain.invoke("bread", {"callbacks": [handler]})
        return before, handler.last_episode_id

    with ThreadPoolExecutor(1) as pool:
        before, theirs = pool.submit(elsewhere).result()
    assert before is None
    assert theirs not in {None, mine}
    assert handler.last_episode_id == mine
    asyncio.run(chain.ainvoke("cedar", {"callbacks": [handler]}))
    assert handler.last_episode_id == mine


def test_a_new_handler_has_no_last_episode(memories: MemoryWorthStore) -> None:
    chain = memories.as_retriever(k=1) | text
    gc.freeze()  # what is there already need not be looked at fifty times
    try:
        # An address that is used again must not bring another handler's episode back.
        for _ in range(50):
            handler = MemoryWorthCallbackHandler(memories)
            assert handler.last_episode_id is None
            chain.invoke("apple", {"callbacks": [handler]})
            assert handler.last_episode_id is not None
            del handler
            gc.collect()
    finally:
        gc.unfreeze()


def test_a_handler_needs_a_store_and_a_function(memories: MemoryWorthStore) -> None:
    with pytest.raises(InvalidInputError, match="MemoryWorthStore"):
        MemoryWorthCallbackHandler("memories.db")
    with pytest.raises(InvalidInputError, match="function"):
        MemoryWorthCallbackHandler(memories, True)  # type: ignore[arg-type]

    async def outcome(run: Run) -> bool:
        return True

    with pytest.raises(InvalidInputError, match="coroutine"):
        MemoryWorthCallbackHandler(memories, outcome)  # type: ignore[arg-type]
    assert "source='user'" in repr(MemoryWorthCallbackHandler(memories, source="user"))


# -- what goes wrong stays here ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    ["INCORRECT", "True", float("nan"), float("inf"), -1, 2, 1.0001, [True], Ellipsis],
    ids=lambda w: type(w).__name__ + str(w)[:9],
)
def test_a_wrong_outcome_changes_nothing(
    memories: MemoryWorthStore, call: Call, caplog: pytest.LogCaptureFixture, wrong: Any
) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: wrong)
    chain = memories.as_retriever(k=1) | text
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert call(chain, "apple", {"callbacks": [handler]}) == "apple"
        health = memories.health()
    assert health.failures == {"an outcome": 3}
    assert credits_of(memories) == {}
    assert len(caplog.records) == 1
    assert "InvalidOutcomeError" in caplog.text


def test_an_outcome_function_that_raises(
    memories: MemoryWorthStore, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    def outcome(run: Run) -> bool:
        raise ZeroDivisionError("in the user's function")

    handler = MemoryWorthCallbackHandler(memories, outcome)
    chain = memories.as_retriever(k=1) | text
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert call(chain, "apple", {"callbacks": [handler]}) == "apple"
        health = memories.health()
    assert health.failures == {"an outcome": 2}
    assert "in the user's function" in (health.last_failure or "")
    assert len(caplog.records) == 1
    assert len(memories.pending()) == 2


def test_a_ledger_that_cannot_be_written(memories: MemoryWorthStore, call: Call) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: True)
    foreign = Foreign(ids=("apple",)) | text
    own = memories.as_retriever(k=1) | text
    with broken_ledger(memories):
        assert call(foreign, "apple", {"callbacks": [handler]}) == "apple"
        assert call(own, "apple", {"callbacks": [handler]}) == "apple"
        memories.governor.outbox.drain()
    assert memories.health().failures["what a run retrieved"] == 2 + 1  # once more at its end
    assert memories.health().episodes == 0


def test_a_closed_store_does_not_break_runs(make_store: StoreMaker, call: Call) -> None:
    store = filled(make_store())
    handler = MemoryWorthCallbackHandler(store, lambda run: True)
    store.close()
    assert call(Foreign(ids=("apple",)) | text, "apple", {"callbacks": [handler]}) == "apple"


# -- nothing blocks the loop ---------------------------------------------------------------------------------------


def test_no_database_work_on_the_event_loop(memories: MemoryWorthStore) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: Outcome(1.0, used=("apple",)))

    async def last(documents: Any) -> str:
        await adispatch_custom_event(USED_EVENT, {"ids": ["apple"]})
        return text(documents)

    own = memories.as_retriever(k=2) | last
    foreign = Foreign(ids=("bread", "apple")) | last

    async def session() -> int:
        await asyncio.gather(
            *(own.ainvoke("apple", {"callbacks": [handler]}) for _ in range(5)),
            *(foreign.ainvoke("apple", {"callbacks": [handler]}) for _ in range(5)),
        )
        async for _ in own.astream("apple", {"callbacks": [handler]}):
            pass
        return threading.get_ident()

    with threads_of_database(memories) as seen:
        loop = asyncio.run(session())
        memories.governor.outbox.drain()
    assert seen
    assert loop not in seen
    assert memories.evidence("apple").retrievals == 11
    assert memories.health().ok


def test_an_outcome_function_may_ask_a_chain_that_retrieves(memories: MemoryWorthStore) -> None:
    retriever = memories.as_retriever(k=1)

    def outcome(run: Run) -> bool:
        both = {"a": retriever, "b": retriever | text}  # in threads of their own
        answer = RunnableLambda(lambda q: q) | both
        return answer.invoke(run.inputs)["b"] == run.outputs

    handler = MemoryWorthCallbackHandler(memories, outcome)
    chain = retriever | text
    asyncio.run(chain.ainvoke("apple", {"callbacks": [handler]}))
    assert memories.worth("apple") == 1.0
    assert memories.health().episodes == 1


# -- used ----------------------------------------------------------------------------------------------------------


def weights(store: MemoryWorthStore, run_id: Any) -> dict[str, float]:
    return {e.memory_id: round(e.weight, 6) for e in store.run(run_id).exposures}


def test_a_run_says_what_it_used(memories: MemoryWorthStore, call: Call) -> None:
    def answer(documents: Any) -> str:
        dispatch_custom_event(USED_EVENT, {"ids": ["bread"]})
        dispatch_custom_event("somebody else's", {"ids": ["cedar"]})
        return text(documents)

    handler = MemoryWorthCallbackHandler(memories, lambda run: False)
    call(memories.as_retriever(k=4) | answer, "apple bread", {"callbacks": [handler]})
    [episode] = rewards(memories)
    by_weight = weights(memories, episode)
    assert by_weight["bread"] > 0.9
    assert by_weight["apple"] < 0.05
    assert memories.worth("bread") == 0.0
    assert memories.health().ok


def test_an_outcome_says_what_was_used(memories: MemoryWorthStore, call: Call) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: Outcome(1.0, used=("apple",)))
    call(memories.as_retriever(k=4) | text, "apple bread", {"callbacks": [handler]})
    [episode] = rewards(memories)
    assert weights(memories, episode)["apple"] > 0.9


@pytest.mark.parametrize("data", [{"ids": ["nobody"]}, {}, None, {"ids": 7}], ids=str)
def test_a_wrong_used_event_is_counted(memories: MemoryWorthStore, call: Call, data: Any) -> None:
    def answer(documents: Any) -> str:
        dispatch_custom_event(USED_EVENT, data)
        return text(documents)

    handler = MemoryWorthCallbackHandler(memories, lambda run: True)
    out = call(memories.as_retriever(k=1) | answer, "apple", {"callbacks": [handler]})
    assert out == "apple"
    assert sum(memories.health().failures.values()) == 1
    assert memories.worth("apple") == 1.0


def test_tool_errors_are_seen(memories: MemoryWorthStore) -> None:
    @tool
    def divide(n: int) -> float:
        """Divides."""
        return 1 / n

    def node(query: str) -> str:
        memories.as_retriever(k=1).invoke(query)
        try:
            divide.invoke({"n": 0})
        except ZeroDivisionError:
            return "handled"
        return "no error"

    seen: list[tuple[str, ...]] = []
    handler = MemoryWorthCallbackHandler(
        memories, lambda run: seen.append(run.tool_errors) or not run.tool_errors
    )
    assert RunnableLambda(node).invoke("apple", {"callbacks": [handler]}) == "handled"
    assert seen == [("ZeroDivisionError('division by zero')",)]
    assert memories.worth("apple") == 0.0
