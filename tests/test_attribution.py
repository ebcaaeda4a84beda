"""Credit by use: rules that read what a run wrote, at every door, and what happens when it tells nothing or a rule breaks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

from langchain_memoryworth import (
    USED_EVENT,
    MemoryWorthCallbackHandler,
    MemoryWorthMiddleware,
    MemoryWorthStore,
    Outcome,
    OutcomeNode,
    RecallNode,
    Run,
    by_citation,
    by_embedding,
    by_words,
    first_known,
    memory_worth,
)
from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.overlap import cited_ids, cited_numbers, containments, words
from langchain_memoryworth.outcomes.attribution import written
from tests.agents_fixtures import WAYS, Answering, Go, ask, calls, first_then, look
from tests.fakes import HashedWords, assert_exact
from tests.runs_fixtures import filled, rewards, text

FACTS = (
    Document("Ada moved to Brno in May, for a job at the brewery.", id="brno"),
    Document("Ada lived in Oslo until May.", id="oslo"),
    Document("Ada drinks her tea without sugar.", id="tea"),
)


def run(result: Any, inputs: Any = "Where does Ada live?", **options: Any) -> Run:
    return Run("r", "r", inputs=inputs, memories=FACTS, result=result, **options)


# -- words -------------------------------------------------------------------------------------------------------------


def test_words_have_no_case_and_no_punctuation_in_any_script() -> None:
    assert words("Straße, STRASSE; naïve_x") == ["strasse", "strasse", "naïve", "x"]
    assert words("東京は晴れ 12") == ["東", "京", "は", "晴", "れ", "12"]


texts = st.lists(st.text(alphabet="ab c", max_size=8), min_size=1, max_size=5)


@given(texts, st.text(alphabet="ab cd", max_size=8), st.text(alphabet="abc ", max_size=4))
def test_containment_is_a_share_and_does_not_know_the_order(
    shown: list[str], said: str, question: str
) -> None:
    got = containments(said, shown, question)
    assert all(0 <= c <= 1 for c in got)
    assert containments(said, shown[::-1], question) == got[::-1]
    assert containments(" ".join(shown), shown, question) == [
        1.0 if c else 0.0 for c in containments(" ".join(shown), shown, question)
    ]


def test_a_word_of_all_texts_or_of_the_question_tells_nothing() -> None:
    shown = ["Ada lives in Brno", "Ada lives in Oslo"]
    assert containments("Ada lives in", shown) == [0.0, 0.0]
    assert containments("Brno", shown, "Is it Brno?") == [0.0, 0.0]
    assert containments("Brno", shown) == [1.0, 0.0]
    assert containments("Brno", shown[:1]) == [0.0]  # with one there is nothing to tell apart


def test_a_rarer_word_tells_more() -> None:
    first, second, third = containments("x y", ["x z", "y z q", "z q"])
    assert first > second > third == 0


@pytest.mark.parametrize(
    ("said", "ids"),
    [
        ("see [m-1].", ["m-1"]),
        ("m-1", ["m-1"]),
        ("m-10 and xm-1 and m-1-2", []),
        ('{"sources": ["m.2", "m-1"]}', ["m-1", "m.2"]),
        ("mx2", []),
        ("", []),
    ],
)
def test_ids_are_cited_whole(said: str, ids: list[str]) -> None:
    assert cited_ids(said, ["m-1", "m.2", ""]) == ids


@pytest.mark.parametrize(
    ("said", "numbers"),
    [("[1]", {1}), ("[ 2 ; 3,4 ]", {2, 3, 4}), ("[1a] (2) [] [12345]", set()), ("x[1][2]", {1, 2})],
)
def test_numbers_are_cited_in_brackets(said: str, numbers: set[int]) -> None:
    assert cited_numbers(said) == numbers


# -- what was written ----------------------------------------------------------------------------------------------------


class Structured(BaseModel):
    answer: str
    sources: list[str]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("Brno", "Brno"),
        (None, ""),
        (AIMessage("Brno"), "Brno"),
        (AIMessage([{"type": "text", "text": "Brno"}]), "Brno"),
        (calls("book", to="Brno – Žabovřesky"), '{"to": "Brno – Žabovřesky"}'),
        ({"answer": "Brno", "context": list(FACTS)}, "Brno"),
        ({"question": "Where does Ada live?", "answer": "Brno"}, "Brno"),
        ({"answer": {"city": "Brno", "sure": 0.9}}, "Brno 0.9"),
        (list(FACTS), ""),
        (Structured(answer="Brno", sources=["brno"]), "answer='Brno' sources=['brno']"),
    ],
    ids=str,
)
def test_what_a_run_wrote(result: Any, said: str) -> None:
    asked = {"question": "Where does Ada live?"}
    assert written(run(result, asked)).strip() == said


def test_of_an_agent_only_what_the_model_wrote_in_the_last_turn() -> None:
    messages = [
        HumanMessage("And before?"),
        AIMessage("Oslo"),
        HumanMessage("Where does Ada live?"),
        calls("look", where="Brno"),
        ToolMessage("tea", tool_call_id="call-look"),
        AIMessage("There."),
    ]
    assert written(run({"messages": messages})).split() == ['{"where":', '"Brno"}', "There."]


# -- rules -------------------------------------------------------------------------------------------------------------


def test_citations_by_id_and_by_number() -> None:
    assert by_citation()(run("In Brno [brno], before in Oslo [oslo].")) == ["brno", "oslo"]
    assert by_citation("number")(run("In Brno [1], and tea [3], [9], [0].")) == ["brno", "tea"]
    assert by_citation()(run(calls("cite", ids=["tea"]))) == ["tea"]
    assert by_citation()(run("In Prague.")) is None
    assert by_citation("number")(run("In Brno, brno.")) is None


def test_words_go_to_the_memory_they_come_from() -> None:
    used = by_words()(run("She works at the brewery in Brno."))
    assert used is not None
    assert max(used, key=used.get) == "brno"  # type: ignore[attr-defined]
    assert used["tea"] == 0.0  # type: ignore[call-overload]
    assert by_words()(run("I do not know.")) is None
    assert by_words(least=0.99)(run("She works at the brewery in Brno.")) is None
    assert by_words()(Run("r", "r", result="anything")) is None


def test_embeddings_go_to_the_memory_that_is_nearer_than_the_others() -> None:
    rule = by_embedding(HashedWords())
    assert rule(run("Ada drinks her tea without sugar."))["tea"] > 0.3  # type: ignore[index,call-overload]
    assert by_embedding(HashedWords(), least=0.9)(run("sugar")) is None
    assert rule(run("")) is None
    assert rule(Run("r", "r", result="anything")) is None
    alone = Run("r", "r", memories=FACTS[:1], result=FACTS[0].page_content)
    assert rule(alone) is None


@pytest.mark.parametrize(
    "rule", [by_citation, by_words, lambda **o: by_embedding(HashedWords(), **o)]
)
def test_the_output_may_be_a_key_or_a_function(rule: Callable[..., Any]) -> None:
    result = {
        "prompt": " ".join(d.page_content + d.id for d in FACTS),
        "reply": FACTS[2].page_content + "tea",
    }
    for output in ("reply", lambda r: r.outputs["reply"]):
        said = rule(output=output)(run(result))
        used = dict.fromkeys(said, 1.0) if isinstance(said, list) else said
        assert max(used, key=used.get) == "tea"


def test_the_first_rule_that_knows_decides() -> None:
    rule = first_known(by_citation(), by_words())
    assert rule(run("Tea without sugar [oslo].")) == ["oslo"]
    assert rule(run("Tea without sugar."))["tea"] > 0.4  # type: ignore[index,call-overload]
    assert rule(run("No idea.")) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: by_citation("page"),  # type: ignore[arg-type]
        lambda: by_words(least=1.5),
        lambda: by_embedding(HashedWords(), least=-0.1),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInputError):
        make()


# -- at the doors ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def memories(store: MemoryWorthStore) -> MemoryWorthStore:
    return filled(store)


def weights(store: MemoryWorthStore, run_id: Any) -> dict[str, float]:
    return {e.memory_id: round(e.weight, 6) for e in store.run(run_id).exposures}


def only(store: MemoryWorthStore) -> str:
    [episode] = rewards(store)
    return episode


CALLS = {
    "invoke": lambda chain, value, config: chain.invoke(value, config),
    "ainvoke": lambda chain, value, config: asyncio.run(chain.ainvoke(value, config)),
    "stream": lambda chain, value, config: "".join(chain.stream(value, config)),
}


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return CALLS[request.param]


def test_what_is_cited_gets_the_credit(memories: MemoryWorthStore, call: Any) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: False, used=by_citation())
    chain = memories.as_retriever(k=4) | (lambda found: "It is [bread].")
    call(chain, "apple bread", {"callbacks": [handler]})
    w = weights(memories, only(memories))
    assert w.pop("bread") == 0.97
    assert set(w.values()) == {0.01}
    assert memories.worth("bread") == 0.0
    assert memories.health().ok
    assert_exact(memories)


def test_it_holds_for_an_outcome_that_comes_later(memories: MemoryWorthStore, call: Any) -> None:
    handler = MemoryWorthCallbackHandler(memories, used=lambda run: {"apple": 4, "bread": 1})
    run_id = uuid.uuid4()
    call(
        memories.as_retriever(k=2) | text, "apple bread", {"callbacks": [handler], "run_id": run_id}
    )
    assert rewards(memories) == {str(run_id): None}
    memories.record_outcome(run_id, True)
    assert weights(memories, run_id) == {"apple": 0.794, "bread": 0.206}
    memories.record_outcome(run_id, True, used=["bread"])
    assert weights(memories, run_id)["bread"] == 0.99
    assert_exact(memories)


def test_an_output_that_tells_nothing_leaves_it_to_the_policy(
    memories: MemoryWorthStore, call: Any
) -> None:
    rule = first_known(by_citation(), by_words(), by_embedding(HashedWords()))
    handler = MemoryWorthCallbackHandler(memories, lambda run: True, used=rule)
    call(memories.as_retriever(k=2) | (lambda _: "Done."), "apple bread", {"callbacks": [handler]})
    assert weights(memories, only(memories)) == {"apple": 0.5, "bread": 0.5}
    assert memories.health().ok


def test_an_empty_answer_of_a_rule_credits_nobody(memories: MemoryWorthStore, call: Any) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: True, used=lambda run: ())
    call(memories.as_retriever(k=2) | text, "apple bread", {"callbacks": [handler]})
    assert weights(memories, only(memories)) == {"apple": 0.0, "bread": 0.0}
    assert memories.worth("apple") == 0.5


def raises(run: Run) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    "rule",
    [raises, lambda run: ["nobody"], lambda run: "apple", lambda run: 7, lambda run: {"apple": -1}],
)
def test_a_rule_that_breaks_is_counted_and_costs_nothing_else(
    memories: MemoryWorthStore, call: Any, rule: Any
) -> None:
    handler = MemoryWorthCallbackHandler(memories, lambda run: True, used=rule)
    out = call(memories.as_retriever(k=2) | text, "apple bread", {"callbacks": [handler]})
    assert sorted(out.split()) == ["apple", "bread"]
    assert weights(memories, only(memories)) == {"apple": 0.5, "bread": 0.5}
    assert memories.health().failures == {"what a run used": 1}


def test_a_run_that_failed_has_no_output_to_read(memories: MemoryWorthStore) -> None:
    def fail(found: Any) -> str:
        raise LookupError

    handler = MemoryWorthCallbackHandler(memories, lambda run: False, used=by_words())
    with pytest.raises(LookupError):
        (memories.as_retriever(k=2) | fail).invoke("apple bread", {"callbacks": [handler]})
    assert weights(memories, only(memories)) == {"apple": 0.5, "bread": 0.5}
    assert memories.health().ok


def test_what_an_event_said_is_not_taken_back(memories: MemoryWorthStore, call: Any) -> None:
    from langchain_core.callbacks import dispatch_custom_event

    def answer(found: Any) -> str:
        dispatch_custom_event(USED_EVENT, {"ids": {"apple": 1.0, "bread": 0.5}})
        return "[bread]"

    handler = MemoryWorthCallbackHandler(memories, lambda run: True, used=by_citation())
    call(memories.as_retriever(k=4) | answer, "apple bread", {"callbacks": [handler]})
    w = weights(memories, only(memories))
    assert w["apple"] == w["bread"] == 0.49
    assert memories.health().ok


def test_around_code_that_takes_no_callbacks(memories: MemoryWorthStore) -> None:
    with memory_worth(memories, lambda run: True, used=by_citation()):
        (memories.as_retriever(k=2) | (lambda _: "[apple]")).invoke("apple bread")
    assert weights(memories, only(memories))["apple"] == 0.99


@pytest.mark.parametrize("wrong", ["cited", 7])
def test_what_is_no_rule_is_refused(memories: MemoryWorthStore, wrong: Any) -> None:
    for make in (MemoryWorthCallbackHandler, MemoryWorthMiddleware):
        with pytest.raises(InvalidInputError, match="used="):
            make(memories, used=wrong)


def test_a_coroutine_function_is_refused(memories: MemoryWorthStore) -> None:
    async def rule(run: Run) -> None: ...

    with pytest.raises(InvalidInputError, match="used is a coroutine"):
        MemoryWorthCallbackHandler(memories, used=rule)  # type: ignore[arg-type]


# -- agents ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=WAYS)
def go(request: pytest.FixtureRequest) -> Go:
    return WAYS[request.param]


def test_an_agent_that_cites_in_a_tool_call(memories: MemoryWorthStore, go: Go) -> None:
    middleware = MemoryWorthMiddleware(memories, k=4, outcome=lambda run: True, used=by_citation())
    model = first_then(calls("look", where="bread"))
    agent = create_agent(model, [look], middleware=[middleware])
    go(agent, ask("apple bread"))
    w = weights(memories, only(memories))
    assert w.pop("bread") == 0.97
    assert memories.health().ok
    assert_exact(memories)


def test_an_agent_whose_outcome_comes_later(memories: MemoryWorthStore, go: Go) -> None:
    middleware = MemoryWorthMiddleware(memories, k=2, used=by_words())
    model = Answering(answer=lambda messages: "take an apple")
    go(create_agent(model, middleware=[middleware]), ask("which fruit? apple"))
    # The word is in the question, so the answer tells nothing.
    memories.record_outcome(only(memories), True)
    assert len(set(weights(memories, only(memories)).values())) == 1


def test_a_rule_that_breaks_costs_an_agent_nothing(memories: MemoryWorthStore, go: Go) -> None:
    middleware = MemoryWorthMiddleware(memories, k=2, outcome=lambda run: True, used=raises)
    go(
        create_agent(first_then(calls("look", where="x")), [look], middleware=[middleware]),
        ask("apple"),
    )
    assert memories.health().failures == {"what a run used": 1}
    assert memories.worth("apple") == 1.0


# -- without a handler ---------------------------------------------------------------------------------------------------


def by_state(state: Any) -> Any:
    memories, answer = tuple(state["documents"]), state["answer"]
    return by_words()(Run("", "", state["query"], memories=memories, result=answer))


@pytest.mark.parametrize("used", [by_state, raises])
@pytest.mark.parametrize("call", ["invoke", "ainvoke"])
def test_a_node_asks_a_rule_about_the_state(
    memories: MemoryWorthStore, call: str, used: Callable[[Any], Any]
) -> None:
    found = RecallNode(memories, "query", k=2).invoke({"query": "apple bread"}, {})
    state = {"query": "what is there?", "answer": "bread", **found}
    node = OutcomeNode(memories, lambda s: True, used=used)
    if call == "invoke":
        node.invoke(state)
    else:
        asyncio.run(node.ainvoke(state))
    w = weights(memories, only(memories))
    failed = used is raises
    assert w["bread"] == (0.5 if failed else 0.99)
    assert memories.health().failures == ({"what a run used": 1} if failed else {})


def test_a_program_asks_a_rule_itself(memories: MemoryWorthStore) -> None:
    with memories.episode() as episode:
        found = memories.similarity_search("apple bread", k=2)
        answer = "bread, of course"
    used = by_words()(Run(episode.id, episode.id, memories=tuple(found), result=answer))
    episode.record(Outcome(1.0, used))  # type: ignore[arg-type]
    assert weights(memories, episode.id) == {"apple": 0.01, "bread": 0.99}
