"""A chain with a retriever and the callback handler: outcomes come from the runs themselves.

Run it: python examples/chain_with_handler.py
"""

from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from langchain_memoryworth import (
    MemoryWorthCallbackHandler,
    MemoryWorthStore,
    Policy,
    keyword_match,
)

# The paper's rule acts on few outcomes, and in a store of so few memories; the default is more careful.
store = MemoryWorthStore("sqlite://", policy=Policy.paper(v_min=3))
store.add_texts(
    [
        "Prague is a city in Czechoslovakia.",
        "The Czech Republic has Prague as its capital.",
        "Brno is a large city in Moravia.",
    ],
    ids=["stale", "fresh", "other"],
)
expected = {"Which country is the city of Prague in?": ["Czech Republic"]}
handler = MemoryWorthCallbackHandler(store, outcome=keyword_match(lambda run: expected[run.inputs]))

prompt = ChatPromptTemplate.from_template("Answer from these notes: {notes}\n\n{question}")


def model(prompt_value: PromptValue) -> str:
    """Stands in for a chat model that believes its notes."""
    return prompt_value.to_string().split("page_content='")[1].split("'")[0]


retriever = store.as_retriever(search_kwargs={"k": 1})
chain = {"notes": retriever, "question": RunnablePassthrough()} | prompt | model

for question in [*expected] * 5:
    answer = chain.invoke(question, config={"callbacks": [handler]})
    print(f"{answer:46} stale: {store.evidence('stale')}")

print(store.explain_search(question, k=1))
