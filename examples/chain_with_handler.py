"""A chain with a retriever and the callback handler: outcomes come from the runs themselves.

Run it: python examples/chain_with_handler.py
"""

from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore, Policy, exact_match

store = MemoryWorthStore("sqlite://", policy=Policy(theta_low=0.4, v_min=3))
store.add_texts(
    [
        "Prague is the capital of Czechoslovakia.",
        "Prague is the capital of the Czech Republic.",
        "Brno is a large city in Moravia.",
    ],
    ids=["stale", "fresh", "other"],
)
answers = {"What is Prague the capital of?": "the Czech Republic"}
handler = MemoryWorthCallbackHandler(store, outcome=exact_match(lambda run: answers[run.inputs]))

prompt = ChatPromptTemplate.from_template("Answer from these notes: {notes}\n\n{question}")
# Stands in for a chat model that was misled three times.
model = FakeListChatModel(responses=["Czechoslovakia"] * 3 + ["the Czech Republic"])
retriever = store.as_retriever(search_kwargs={"k": 1})
chain = {"notes": retriever, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()

for _ in range(4):
    answer = chain.invoke("What is Prague the capital of?", config={"callbacks": [handler]})
    print(f"{answer:20} {store.evidence('stale')}")

print(store.explain_search("What is Prague the capital of?", k=1))
