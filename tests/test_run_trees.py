"""What runs are made of: whichever way a memory came to the prompt, it is credited once in its episode."""

from __future__ import annotations

import asyncio
import itertools
import operator
import threading
import uuid
import warnings
from collections.abc import Callable
from typing import Annotated, Any, TypedDict
from unittest.mock import patch

import pytest
from langchain.agents import create_agent
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MergerRetriever,
    MultiQueryRetriever,
    ParentDocumentRetriever,
)
from langchain_core.callbacks import (
    CallbackManagerForRetrieverRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import (
    RunnableBranch,
    RunnableConfig,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
)
from langchain_core.stores import InMemoryStore
from langchain_core.tools import create_retriever_tool, tool
from langchain_core.vectorstores import VectorStoreRetriever
from langchain_text_splitters import CharacterTextSplitter
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send

from langchain_memoryworth import (
    SHOWN_EVENT,
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
)
from tests.conftest import StoreMaker
from tests.policies import plain
from tests.runs_fixtures import WORDS, Foreign, Life, credits_of, filled, rewards, says, shown, text

Call = Callable[[Any, Any, Any], Any]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    if request.param == "sync":
        return lambda runnable, value, config: runnable.invoke(value, config)
    return lambda runnable, value, config: asyncio.run(runnable.ainvoke(value, config))


@pytest.fixture
def life(store: MemoryWorthStore) -> Life:
    return Life(store)


class State(TypedDict, total=False):
    query: str
    found: Annotated[list[str], operator.add]


def recall(life: Life, word: str | None = None) -> Any:
    """A node that looks up a word, or the query."""
    return lambda state: {"found": [text(life.retriever.invoke(word or state["query"]))]}


def chained(*nodes: tuple[str, Any], **options: Any) -> Any:
    builder = StateGraph(State)
    for name, node in nodes:
        builder.add_node(name, node, **options)
    builder.add_edge(START, nodes[0][0])
    for (a, _), (b, _) in itertools.pairwise(nodes):
        builder.add_edge(a, b)
    return builder


class Flaky:
    """Fails the first times it is called."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def __call__(self, value: Any) -> Any:
        if self.left:
            self.left -= 1
            raise ConnectionError("once more")
        return value


# -- retries and fallbacks -----------------------------------------------------------------------------------------


def test_with_retry(life: Life, call: Call) -> None:
    chain = (life.retriever | Flaky(2) | text).with_retry(wait_exponential_jitter=False)
    assert call(chain, "apple", life.config) == "apple"
    life.is_success("apple")


def test_with_retry_inside(life: Life, call: Call) -> None:
    inner = (life.retriever | Flaky(1)).with_retry(wait_exponential_jitter=False)
    assert call(RunnableLambda(str) | inner | text, "apple", life.config) == "apple"
    life.is_success("apple")


def test_a_retry_policy_of_a_node(life: Life, call: Call) -> None:
    flaky = Flaky(2)
    node = RunnableLambda(lambda state: flaky(recall(life)(state)))
    policy = RetryPolicy(max_attempts=3, initial_interval=0.0, jitter=False)
    graph = chained(("recall", node), retry_policy=policy).compile()
    assert call(graph, {"query": "apple"}, life.config)["found"] == ["apple"]
    life.is_success("apple")


def failing(life: Life, word: str) -> Any:
    def fail(_: Any) -> str:
        raise ConnectionError(word)

    return RunnableLambda(lambda _: word) | life.retriever | fail


@pytest.mark.parametrize("how", ["invoke", "batch", "stream"])
def test_fallbacks_at_the_top_are_one_episode(life: Life, how: str) -> None:
    good = life.retriever | text
    chain = failing(life, "bread").with_fallbacks([failing(life, "cedar"), good])
    run_id = uuid.uuid4()
    config = {**life.config, "run_id": run_id}
    if how == "invoke":
        assert chain.invoke("apple", config) == "apple"
    elif how == "batch":
        assert chain.batch(["apple"], config) == ["apple"]
    else:
        assert "".join(chain.stream("apple", config)) == "apple"
    life.is_success("apple", "bread", "cedar")
    assert shown(life.store, run_id) == {"apple", "bread", "cedar"}


@pytest.mark.parametrize("how", ["ainvoke", "abatch", "astream"])
async def test_fallbacks_at_the_top_are_one_episode_async(life: Life, how: str) -> None:
    good = life.retriever | text
    chain = failing(life, "bread").with_fallbacks([failing(life, "cedar"), good])
    if how == "ainvoke":
        assert await chain.ainvoke("apple", life.config) == "apple"
    elif how == "abatch":
        assert await chain.abatch(["apple"], life.config) == ["apple"]
    else:
        assert "".join([c async for c in chain.astream("apple", life.config)]) == "apple"
    life.is_success("apple", "bread", "cedar")


def test_two_fallbacks_beside_each_other_do_not_mix(life: Life) -> None:
    chain = failing(life, "bread").with_fallbacks([life.retriever | text])

    async def both() -> None:
        await asyncio.gather(
            chain.ainvoke("apple", life.config), chain.ainvoke("cedar", life.config)
        )

    asyncio.run(both())
    assert life.rewards == [1.0, 1.0]
    assert credits_of(life.store) == {"apple": 1, "bread": 2, "cedar": 1}


def test_fallbacks_that_all_fail(life: Life, call: Call) -> None:
    chain = failing(life, "bread").with_fallbacks([failing(life, "cedar")])
    life.handler = MemoryWorthCallbackHandler(life.store, lambda run: run.outputs == "x")
    with pytest.raises(ConnectionError):
        call(chain, "apple", {"callbacks": [life.handler]})
    assert life.rewards == [None]


def test_a_retriever_with_a_fallback(life: Life, call: Call) -> None:
    class Broken(BaseRetriever):
        def _get_relevant_documents(
            self, query: str, *, run_manager: CallbackManagerForRetrieverRun
        ) -> list[Document]:
            raise ConnectionError(query)

    chain = Broken().with_fallbacks([life.retriever]) | text
    assert call(chain, "apple", life.config) == "apple"
    life.is_success("apple")


# -- parallel, branches, nesting ---------------------------------------------------------------------------------------


def test_a_parallel_and_a_branch(life: Life, call: Call) -> None:
    both = RunnableParallel(
        a=life.retriever, b=RunnableLambda(lambda _: "bread") | life.retriever, c=life.retriever
    )
    branch = RunnableBranch(
        (lambda found: len(found["a"]) > 5, RunnableLambda(lambda _: "cedar") | life.retriever),
        RunnableLambda(lambda _: "delta") | life.retriever,
    )
    assert call(both | branch | text, "apple", life.config) == "delta"
    life.is_success("apple", "bread", "delta")


def test_assign_and_nested_sequences(life: Life, call: Call) -> None:
    inner = RunnableLambda(lambda q: q["query"]) | (life.retriever | text)
    chain = RunnablePassthrough.assign(context=inner) | (lambda both: both["context"])
    assert call(chain, {"query": "apple"}, life.config) == "apple"
    life.is_success("apple")


@pytest.mark.parametrize("config", [None, {}, {"tags": ["x"]}], ids=str)
def test_a_lambda_that_does_not_pass_its_config(life: Life, call: Call, config: Any) -> None:
    chain = RunnableLambda(lambda q: text(life.retriever.invoke(q, config)))
    assert call(chain, "apple", life.config) == "apple"
    life.is_success("apple")


def test_a_call_that_is_given_the_handler_again(life: Life, call: Call) -> None:
    chain = RunnableLambda(lambda q: (life.retriever | text).invoke(q, life.config))
    assert call(chain, "apple", life.config) == "apple"
    life.is_success("apple")


def test_a_handler_bound_inside_takes_what_it_sees(life: Life, call: Call) -> None:
    bound = (life.retriever | text).with_config(callbacks=[life.handler])
    run_id = uuid.uuid4()
    chain = RunnableLambda(lambda q: "bread") | life.retriever | (lambda _: "apple") | bound
    assert call(chain, "?", {"run_id": run_id}) == "apple"
    assert credits_of(life.store) == {"apple": 1}
    assert life.store.health().unattributed == 1
    # Feedback on the outer run, of which nothing was seen but the id, finds it.
    assert life.store.record_outcome(run_id, False)
    assert shown(life.store, run_id) == {"apple"}


def test_a_handler_bound_inside_one_that_sees_all(life: Life, call: Call) -> None:
    asked: list[str] = []
    inner = MemoryWorthCallbackHandler(life.store, lambda run: bool(asked.append("inner")))
    bound = (life.retriever | text).with_config(callbacks=[inner])
    assert call(RunnableLambda(str) | bound, "apple", life.config) == "apple"
    life.is_success("apple")
    assert asked == []  # its root is not its own


# -- graphs --------------------------------------------------------------------------------------------------------


def test_nodes_of_a_graph(life: Life, call: Call) -> None:
    graph = chained(
        ("a", recall(life)), ("b", recall(life, "bread")), ("c", recall(life))
    ).compile()
    assert call(graph, {"query": "apple"}, life.config)["found"] == ["apple", "bread", "apple"]
    life.is_success("apple", "bread")


def test_a_map_reduce(life: Life, call: Call) -> None:
    builder = StateGraph(State)
    builder.add_node("worker", recall(life))
    builder.add_node("join", lambda state: {})
    words = ("apple", "bread", "cedar", "apple")
    builder.add_conditional_edges(
        START, lambda state: [Send("worker", {"query": w}) for w in words], ["worker"]
    )
    builder.add_edge("worker", "join")
    graph = builder.compile()
    assert sorted(call(graph, {"query": ""}, life.config)["found"]) == sorted(words)
    life.is_success("apple", "bread", "cedar")


@pytest.mark.parametrize("how", ["as node", "invoked", "invoked with config"])
def test_subgraphs(life: Life, call: Call, how: str) -> None:
    sub = chained(("inner", recall(life))).compile()
    nodes: dict[str, Any] = {
        "as node": sub,
        "invoked": lambda state: {"found": sub.invoke({"query": state["query"]})["found"]},
        "invoked with config": lambda state, config: {
            "found": sub.invoke({"query": state["query"]}, config)["found"]
        },
    }
    graph = chained(("a", recall(life, "bread")), ("sub", nodes[how])).compile()
    assert "apple" in call(graph, {"query": "apple"}, life.config)["found"]
    life.is_success("apple", "bread")


def test_a_command_to_the_parent(life: Life, call: Call) -> None:
    def leave(state: State) -> Command[Any]:
        found = text(life.retriever.invoke(state["query"]))
        return Command(graph=Command.PARENT, goto="end", update={"found": [found]})

    sub = chained(("leave", leave)).compile()
    builder = StateGraph(State)
    builder.add_node("sub", sub, destinations=("end",))
    builder.add_node("end", recall(life, "bread"))
    builder.add_edge(START, "sub")
    graph = builder.compile()
    assert call(graph, {"query": "apple"}, life.config)["found"] == ["apple", "bread"]
    life.is_success("apple", "bread")


def test_a_handler_that_sees_only_a_graph_that_is_left(life: Life, call: Call) -> None:
    def leave(state: State) -> Command[Any]:
        found = text(life.retriever.invoke(state["query"]))
        return Command(graph=Command.PARENT, goto="end", update={"found": [found]})

    sub = chained(("leave", leave)).compile()

    def around(state: State) -> Any:
        return sub.invoke(state, {"callbacks": [life.handler]})

    builder = StateGraph(State)
    builder.add_node("sub", around, destinations=("end",))
    builder.add_node("end", lambda state: {})
    builder.add_edge(START, "sub")
    assert call(builder.compile(), {"query": "apple"}, {})["found"] == ["apple"]
    life.is_unknown("apple")  # a jump is neither success nor failure


def test_the_functional_api(life: Life, call: Call) -> None:
    @task
    def look(word: str) -> str:
        return text(life.retriever.invoke(word))

    @entrypoint()
    def flow(words: list[str]) -> list[str]:
        return [f.result() for f in [look(w) for w in words]]

    @task
    async def alook(word: str) -> str:
        return text(await life.retriever.ainvoke(word))

    @entrypoint()
    async def aflow(words: list[str]) -> list[str]:
        return list(await asyncio.gather(*(alook(w) for w in words)))

    words = ["apple", "bread", "apple"]
    assert call(flow, words, life.config) == words
    life.is_success("apple", "bread")
    assert asyncio.run(aflow.ainvoke(["cedar"], life.config)) == ["cedar"]
    assert life.rewards == [1.0, 1.0]
    assert life.store.evidence("cedar").retrievals == 1


# -- tools and agents ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("response_format", ["content", "content_and_artifact"])
def test_an_agent_with_a_retriever_tool(life: Life, call: Call, response_format: Any) -> None:
    look_up = create_retriever_tool(
        life.retriever, "look_up", "Looks things up.", response_format=response_format
    )
    model = says(("look_up", {"query": "apple"}), ("look_up", {"query": "bread"}), "done")
    agent = create_agent(model, [look_up])
    out = call(agent, {"messages": [HumanMessage("?")]}, life.config)
    assert [m.content for m in out["messages"]][-1] == "done"
    life.is_success("apple", "bread")


def test_a_tool_node(life: Life, call: Call) -> None:
    look_up = create_retriever_tool(life.retriever, "look_up", "Looks things up.")
    model = says(("look_up", {"query": "apple"}))

    class Chat(TypedDict):
        messages: Annotated[list[Any], operator.add]

    builder = StateGraph(Chat)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([look_up]))
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    out = call(builder.compile(), {"messages": [HumanMessage("?")]}, life.config)
    assert isinstance(out["messages"][-1], ToolMessage)
    life.is_success("apple")


def test_a_subagent_in_a_tool(life: Life, call: Call) -> None:
    look_up = create_retriever_tool(life.retriever, "look_up", "Looks things up.")
    inner = create_agent(says(("look_up", {"query": "apple"}), "found"), [look_up])

    @tool
    def ask_expert(question: str) -> str:
        """Asks another agent."""
        return str(inner.invoke({"messages": [HumanMessage(question)]})["messages"][-1].content)

    outer_turns = (("ask_expert", {"question": "?"}), ("look_up", {"query": "bread"}), "done")
    outer = create_agent(says(*outer_turns), [ask_expert, look_up])
    call(outer, {"messages": [HumanMessage("?")]}, life.config)
    life.is_success("apple", "bread")


def test_an_agent_whose_tool_fails_is_told(life: Life, call: Call) -> None:
    @tool
    def divide(n: int) -> str:
        """Divides."""
        return str(1 // n)

    look_up = create_retriever_tool(life.retriever, "look_up", "Looks things up.")
    model = says(("look_up", {"query": "apple"}), ("divide", {"n": 0}), "done")
    agent = create_agent(model, [look_up, divide])
    handler = MemoryWorthCallbackHandler(life.store, lambda run: not run.tool_errors)
    with pytest.raises(ZeroDivisionError):
        call(agent, {"messages": [HumanMessage("?")]}, {"callbacks": [handler]})
    [episode] = rewards(life.store)
    assert life.store.run(episode).reward == 0.0


# -- retrievers around retrievers --------------------------------------------------------------------------------------


class Keep(BaseDocumentCompressor):
    """Keeps what it is told to, in reverse."""

    ids: tuple[str, ...]

    def compress_documents(self, documents: Any, query: str, callbacks: Any = None) -> Any:
        return [d for d in reversed(documents) if d.id in self.ids]


def test_contextual_compression(life: Life, call: Call) -> None:
    base = life.store.as_retriever(k=8)
    retriever = ContextualCompressionRetriever(
        base_compressor=Keep(ids=("apple", "cedar")), base_retriever=base
    )
    call(retriever | text, "apple", life.config)
    life.is_success("apple", "cedar")
    [run] = life.judge.runs
    assert {d.id for d in run.memories} == {"apple", "cedar"}
    call(
        ContextualCompressionRetriever(base_compressor=Keep(ids=()), base_retriever=base) | text,
        "apple",
        life.config,
    )
    assert life.rewards == [1.0, None]  # nothing was left, so there is nothing to judge


def test_what_one_retriever_drops_another_may_give(life: Life, call: Call) -> None:
    base = life.store.as_retriever(k=8)
    dropping = ContextualCompressionRetriever(
        base_compressor=Keep(ids=("cedar",)), base_retriever=base
    )
    plain = life.retriever
    call(RunnableParallel(a=dropping, b=plain), "apple", life.config)
    life.is_success("apple", "cedar")


def test_what_is_given_while_another_drops_it(life: Life) -> None:
    """The other retrieval comes between the decision to hide and the hiding; ids are those of one user of several."""
    for user in ("ann", "bob"):
        life.store.add_texts(list(WORDS), ids=list(WORDS), namespace=user)
    base = life.store.as_retriever(k=8, namespace="ann")
    plain = life.store.as_retriever(k=1, namespace="ann")
    dropping = ContextualCompressionRetriever(
        base_compressor=Keep(ids=("cedar",)), base_retriever=base
    )
    governor = life.store.governor
    hide = governor.journal.hide
    manager: list[Any] = []

    def interrupted_hide(episode_id: str, ids: Any) -> int:
        plain.invoke("apple", {"callbacks": manager[0]})
        return hide(episode_id, ids)

    def node(query: str, config: RunnableConfig) -> str:
        manager.append(config["callbacks"])
        with patch.object(governor.journal, "hide", interrupted_hide):
            return text(dropping.invoke(query, config))

    RunnableLambda(node).invoke("apple", life.config)
    assert life.rewards == [1.0]
    credited = {w: life.store.evidence(w, namespace="ann").retrievals for w in WORDS}
    assert {w for w, n in credited.items() if n} == {"apple", "cedar"}
    assert credits_of(life.store) == {}
    assert {d.id for d in life.judge.runs[0].memories} == {"apple", "cedar"}


def test_an_ensemble_with_two_ids_of_one_text(make_store: StoreMaker, call: Call) -> None:
    store = make_store(policy=plain(w_min=0.0))
    store.add_texts(["apple", "apple", "bread"], ids=["a1", "a2", "b"])
    ensemble = EnsembleRetriever(
        retrievers=[Foreign(ids=("a1",)) | _as("apple"), store.as_retriever(k=3)],
        weights=[0.9, 0.1],
    )
    handler = MemoryWorthCallbackHandler(store, lambda run: True)
    given: list[str] = []
    call(
        ensemble | (lambda found: given.extend(d.id for d in found)),
        "apple",
        {"callbacks": [handler]},
    )
    assert len(given) == 2
    assert set(credits_of(store, words=("a1", "a2", "b"))) == set(given)
    assert store.health().ok


def _as(words: str) -> RunnableLambda[Any, Any]:
    return RunnableLambda(lambda found: [Document(id=d.id, page_content=words) for d in found])


def test_an_ensemble(life: Life, call: Call) -> None:
    ensemble = EnsembleRetriever(
        retrievers=[life.retriever, Foreign(ids=("bread", "apple"))], weights=[0.5, 0.5]
    )
    call(ensemble | text, "apple", life.config)
    life.is_success("apple", "bread")


def test_a_merger(life: Life, call: Call) -> None:
    merger = MergerRetriever(retrievers=[life.retriever, Foreign(ids=("cedar",))])
    call(merger | text, "apple", life.config)
    life.is_success("apple", "cedar")


class Lines(BaseOutputParser[list[str]]):
    def parse(self, text: str) -> list[str]:
        return text.splitlines()


def test_multi_query(life: Life, call: Call) -> None:
    chain = PromptTemplate.from_template("{question}") | says("apple\nbread\napple") | Lines()
    retriever = MultiQueryRetriever(retriever=life.retriever, llm_chain=chain)
    assert call(retriever | (lambda found: sorted(d.id for d in found)), "?", life.config) == [
        "apple",
        "bread",
    ]
    life.is_success("apple", "bread")


@pytest.mark.parametrize("place", ["alone", "in a chain"])
def test_parent_documents(make_store: StoreMaker, call: Call, place: str) -> None:
    store = make_store()
    retriever = ParentDocumentRetriever(
        vectorstore=store,
        docstore=InMemoryStore(),
        child_splitter=CharacterTextSplitter(separator=" ", chunk_size=6, chunk_overlap=0),
        search_kwargs={"k": 2},
    )
    retriever.add_documents([Document("apple bread cedar"), Document("delta ember flint")])
    handler = MemoryWorthCallbackHandler(store)
    chain = retriever if place == "alone" else retriever | text
    found = call(chain, "apple", {"callbacks": [handler]})
    assert "apple bread cedar" in (found if place == "in a chain" else text(found))
    [episode] = store.pending()
    shown_texts = {store.memory(i).text for i in shown(store, episode.id)}
    assert "apple" in shown_texts  # the piece that was found, in whose place its parent was shown
    assert len(shown_texts) == 2
    assert store.health().unattributed == 0


def test_after_a_retriever_a_search_is_nobodys_again(make_store: StoreMaker, call: Call) -> None:
    store = filled(make_store())
    handler = MemoryWorthCallbackHandler(store)
    wrapped = VectorStoreRetriever(vectorstore=store, search_kwargs={"k": 1})

    async def both() -> None:
        await wrapped.ainvoke("apple", {"callbacks": [handler]})
        await store.asimilarity_search("bread", k=1)

    if call(RunnableLambda(lambda _: True), None, None):
        asyncio.run(both())
        wrapped.invoke("apple", {"callbacks": [handler]})
        store.similarity_search("bread", k=1)
    assert store.health().unattributed == 2
    assert [shown(store, e) for e in rewards(store)] == [{"apple"}, {"apple"}]


def test_a_retriever_that_searches_itself_and_gives_less(
    make_store: StoreMaker, call: Call
) -> None:
    class Choosy(BaseRetriever):
        store: Any

        def _get_relevant_documents(
            self, query: str, *, run_manager: CallbackManagerForRetrieverRun
        ) -> list[Document]:
            return [d for d in self.store.similarity_search(query, k=8) if d.id < "c"]

    store = filled(make_store())
    handler = MemoryWorthCallbackHandler(store, lambda run: True)
    for chain in (Choosy(store=store) | text, Choosy(store=store)):
        call(chain, "apple", {"callbacks": [handler]})
    assert [shown(store, e) for e in rewards(store)] == [{"apple", "bread"}] * 2


def test_reordering_changes_nothing(life: Life, call: Call) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the package says that it is being sunset
        from langchain_community.document_transformers import LongContextReorder

    reorder = LongContextReorder().transform_documents
    call(life.store.as_retriever(k=3) | reorder | text, "apple bread cedar", life.config)
    life.is_success("apple", "bread", "cedar")


def test_an_episode_around_one_step_of_a_run(life: Life, call: Call) -> None:
    """Whichever retriever it is: what is retrieved inside is of that episode."""

    def node(query: str) -> str:
        with life.store.episode("step"):
            found = [*life.retriever.invoke(query), *Foreign(ids=("bread",)).invoke(query)]
        return text(found)

    call(RunnableLambda(node), "apple", life.config)
    assert rewards(life.store) == {"step": 1.0}
    assert credits_of(life.store) == {"apple": 1, "bread": 1}


# -- what reached the prompt ---------------------------------------------------------------------------------------


def first(n: int, *, tell: bool = True) -> RunnableLambda[Any, Any]:
    """A prompt with room for n documents, that says which."""

    def cut(documents: list[Document]) -> list[Document]:
        kept = documents[:n]
        if tell:
            dispatch_custom_event(SHOWN_EVENT, {"ids": [d.id for d in kept]})
        return kept

    return RunnableLambda(cut)


def test_a_prompt_that_truncates_says_what_is_left(life: Life, call: Call) -> None:
    call(life.store.as_retriever(k=4) | first(2) | text, "apple apple bread", life.config)
    life.is_success("apple", "bread")
    assert [d.id for d in life.judge.runs[0].memories] == ["apple", "bread"]


def test_a_prompt_that_leaves_nothing(life: Life, call: Call) -> None:
    call(life.store.as_retriever(k=4) | first(0) | text, "apple", life.config)
    assert life.rewards == [None]
    assert life.judge.runs == []


def test_a_branch_does_not_speak_for_another(life: Life, call: Call) -> None:
    there = threading.Event()

    def wait(documents: list[Document]) -> list[Document]:
        assert there.wait(60)  # the other branch has its documents when this one speaks
        return documents

    def arrive(documents: list[Document]) -> list[Document]:
        there.set()
        return documents

    cutting = life.store.as_retriever(k=2) | wait | first(1)
    whole = RunnableLambda(lambda _: "cedar cedar delta") | life.store.as_retriever(k=2) | arrive
    call(RunnableParallel(a=cutting, b=whole), "apple apple bread", life.config)
    life.is_success("apple", "cedar", "delta")


def test_a_later_prompt_does_not_speak_for_an_earlier_one(life: Life, call: Call) -> None:
    def loop(_: str) -> str:
        for query in ("apple apple bread", "cedar cedar delta"):
            found = life.store.as_retriever(k=2).invoke(query)
            dispatch_custom_event(SHOWN_EVENT, {"ids": [found[0].id]})
        return "done"

    call(RunnableLambda(loop), "?", life.config)
    life.is_success("apple", "cedar")


async def test_a_direct_search_after_a_retriever_is_not_part_of_it(life: Life) -> None:
    async def node(query: str) -> str:
        await life.retriever.ainvoke(query)
        found = await life.store.asimilarity_search("cedar cedar delta", k=2)
        await adispatch_custom_event(SHOWN_EVENT, {"ids": ["apple", found[0].id]})
        return "done"

    await RunnableLambda(node).ainvoke("apple", life.config)
    life.is_success("apple", "cedar")


def test_a_direct_search_that_is_truncated(life: Life, call: Call) -> None:
    def node(query: str) -> str:
        found = life.store.similarity_search(query, k=3)
        dispatch_custom_event(SHOWN_EVENT, {"ids": [found[0].id, "nobody"]})
        return found[0].page_content

    assert call(RunnableLambda(node), "apple", life.config) == "apple"
    life.is_success("apple")
