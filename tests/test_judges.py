"""The ready-made outcome functions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthMiddleware,
    MemoryWorthStore,
    Outcome,
    Run,
    evaluator,
    exact_match,
    exceptions_as_failure,
    first_known,
    keyword_match,
    output_key,
    tool_errors_as_failure,
)
from langchain_memoryworth.errors import InvalidInputError, RunFailedError
from tests.runs_fixtures import filled, text


def run(result: Any = None, **fields: Any) -> Run:
    return Run("r", "e", result=result, **fields)


def test_the_outputs_of_a_failed_run_cannot_be_read() -> None:
    failed = run(error=TimeoutError("late"))
    with pytest.raises(RunFailedError, match="late"):
        _ = failed.outputs
    assert run(5).outputs == 5


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ({"ok": True}, True),
        ({"ok": False, "x": 1}, False),
        ({"ok": 0.5}, 0.5),
        ({}, None),
        ("ok", None),
        (None, None),
    ],
    ids=str,
)
def test_output_key(outputs: Any, expected: Any) -> None:
    assert output_key("ok")(run(outputs)) is expected


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ("Prague", True),
        ("  pRAGUE\n", True),
        ("Prague.", False),
        ("", False),
        (AIMessage("prague"), True),
        ({"messages": [HumanMessage("where?"), AIMessage("Prague")]}, True),
        (AIMessage([{"type": "text", "text": "Prague"}]), True),
    ],
    ids=str,
)
def test_exact_match(outputs: Any, expected: bool) -> None:
    assert exact_match("Prague ")(run(outputs)) is expected


def test_a_reference_may_depend_on_the_run() -> None:
    answers = {"capital?": "Prague"}
    judge = exact_match(lambda r: answers[r.inputs])
    assert judge(run("prague", inputs="capital?"))
    words = keyword_match(lambda r: [answers[r.inputs], "city"])
    assert words(run("Prague is a city", inputs="capital?"))
    assert not words(run("Prague", inputs="capital?"))


@pytest.mark.parametrize(
    ("keywords", "every", "output", "expected"),
    [
        (["correct"], True, "INCORRECT", False),
        (["correct"], True, "Correct!", True),
        (["a.b"], True, "axb", False),
        (["C++"], True, "it is C++, of course", True),
        (["no"], True, "nobody knows", False),
        (["über"], True, "ÜBER alles", True),
        (["one", "two"], True, "one", False),
        (["one", "two"], False, "one", True),
        (["one", "two"], False, "three", False),
    ],
    ids=str,
)
def test_keywords_match_whole_words(
    keywords: list[str], every: bool, output: str, expected: bool
) -> None:
    assert keyword_match(keywords, every=every)(run(output)) is expected


def test_exceptions_as_failure() -> None:
    judge = exceptions_as_failure(ValueError, TimeoutError)
    assert judge(run(error=UnicodeError("a ValueError"))) is False
    assert judge(run(error=TimeoutError())) is False
    assert judge(run(error=KeyError())) is None
    assert judge(run("fine")) is None


def test_tool_errors_as_failure() -> None:
    assert tool_errors_as_failure()(run("fine")) is None
    assert tool_errors_as_failure()(run("fine", tool_errors=("KeyError()",))) is False


def test_first_known() -> None:
    judge = first_known(exceptions_as_failure(ValueError), lambda r: None, exact_match("4"))
    assert judge(run("4")) is True
    assert judge(run("5")) is False
    assert judge(run(error=ValueError())) is False
    with pytest.raises(RunFailedError):
        judge(run(error=KeyError()))
    assert first_known()(run("4")) is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (True, True),
        (0.75, 0.75),
        ({"score": False}, False),
        ({"other": 1}, {"other": 1}),
        (None, None),
    ],
    ids=str,
)
def test_an_evaluator(answer: Any, expected: Any) -> None:
    asked: list[Any] = []

    def evaluate(question: Any) -> Any:
        asked.append(question)
        return answer

    judge = evaluator(RunnableLambda(evaluate))
    memory = Document(id="m", page_content="told")
    assert judge(run("out", inputs="in", memories=(memory,))) == expected
    assert asked == [{"inputs": "in", "outputs": "out", "memories": ["told"]}]


def test_an_evaluator_with_a_reader() -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("GOOD"), AIMessage("BAD")]))
    judge = evaluator(RunnableLambda(str) | model, read=lambda message: message.content == "GOOD")
    assert judge(run("a")) is True
    assert judge(run("b")) is False

    class Scored:
        score = Outcome(0.5, used=("m",))

    assert evaluator(RunnableLambda(lambda _: Scored()))(run("c")) == Outcome(0.5, used=("m",))


def test_an_evaluator_is_no_part_of_the_run(store: MemoryWorthStore) -> None:
    filled(store)
    retriever = store.as_retriever(k=1)
    judge = evaluator(RunnableLambda(lambda asked: text(retriever.invoke("bread")) == "bread"))
    handler = MemoryWorthCallbackHandler(store, judge)
    chain = retriever | text
    chain.invoke("apple", {"callbacks": [handler]})
    asyncio.run(chain.ainvoke("apple", {"callbacks": [handler]}))
    assert store.evidence("apple").retrievals == 2
    assert store.evidence("bread").retrievals == 0
    assert store.health().unattributed == 2


def test_what_is_no_exception_counts_only_by_name(store: MemoryWorthStore) -> None:
    filled(store)

    def stop(_: Any) -> str:
        raise KeyboardInterrupt

    chain = store.as_retriever(k=1) | stop
    for judge, word in (
        (lambda r: r.error is None, "apple"),
        (exceptions_as_failure(Exception), "bread"),
        (exceptions_as_failure(KeyboardInterrupt), "cedar"),
        (first_known(lambda r: None, exceptions_as_failure(BaseException)), "delta"),
    ):
        handler = MemoryWorthCallbackHandler(store, judge)
        with pytest.raises(KeyboardInterrupt):
            chain.invoke(word, {"callbacks": [handler]})
    assert [store.evidence(w).retrievals for w in ("apple", "bread", "cedar", "delta")] == [
        0,
        0,
        1,
        1,
    ]
    assert store.worth("cedar") == store.worth("delta") == 0.0


@pytest.mark.parametrize(
    ("keywords", "output", "expected"),
    [
        ("Prague", "It is Prague.", True),
        ("Prague", "P r a g u e", False),
        (lambda r: "Prague", "It is Prague.", True),
        ([], "It is Prague.", None),
        (lambda r: [], "It is Prague.", None),
        ([" "], "It is Prague.", None),
        (["", "Prague"], "It is Brno.", False),
    ],
)
@pytest.mark.parametrize("every", [True, False])
def test_one_keyword_is_no_list_of_letters_and_none_says_nothing(
    keywords: Any, every: bool, output: str, expected: bool | None
) -> None:
    assert keyword_match(keywords, every=every)(run(output)) is expected


async def later(run: Run) -> bool:
    return True


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda s: output_key(None), "key=None"),
        (lambda s: output_key(""), "key=''"),
        (lambda s: exact_match(5), "reference=5"),
        (lambda s: keyword_match(5), "keywords=5"),
        (lambda s: keyword_match(["a", 5]), r"keywords=\['a', 5\]"),
        (lambda s: exceptions_as_failure("ValueError"), "types='ValueError'"),
        (lambda s: exceptions_as_failure(ValueError()), r"types=ValueError\(\)"),
        (lambda s: first_known(exact_match("4"), None), "judges=None"),
        (lambda s: first_known(later), "judges is a coroutine function"),
        (lambda s: evaluator("qa"), "'qa' is no evaluator"),
        (lambda s: MemoryWorthCallbackHandler(s, source=5), "source=5"),
        (lambda s: MemoryWorthCallbackHandler(s, source=""), "source=''"),
        (lambda s: MemoryWorthCallbackHandler(s, True), "outcome=True"),
        (lambda s: MemoryWorthCallbackHandler(s, later), "outcome is a coroutine"),
        (lambda s: MemoryWorthMiddleware(s, outcome=later), "outcome is a coroutine"),
        (lambda s: MemoryWorthMiddleware(s, used=["a"]), r"used=\['a'\]"),
        (lambda s: MemoryWorthMiddleware(s, source=None), "source=None"),
    ],
)
def test_what_could_only_fail_inside_a_run_is_refused_before(
    store: MemoryWorthStore, make: Any, named: str
) -> None:
    """There it must not raise, so each outcome would be lost, however well it shows in `health()`."""
    with pytest.raises(InvalidInputError, match=named):
        make(store)
