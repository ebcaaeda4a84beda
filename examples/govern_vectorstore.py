"""A vector store that is there already, governed: its documents stay where they are.

Run it: python examples/govern_vectorstore.py
"""

from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore, Policy, govern

embedding = DeterministicFakeEmbedding(size=64)
notes = InMemoryVectorStore(embedding)  # or Chroma, Qdrant, FAISS, PGVectorStore, any retriever
notes.add_texts(
    ["Deploy with tools/deploy.sh.", "Deploy through the CI pipeline.", "Lunch is at noon."],
    ids=["script", "pipeline", "lunch"],
)

# The paper's rule acts on few outcomes, and in a store of so few memories; the default is more careful.
store = MemoryWorthStore("sqlite://", embedding, policy=Policy.paper(v_min=3))
retriever = govern(notes, store, k=1)
handler = MemoryWorthCallbackHandler(store, outcome=lambda run: "pipeline" in run.outputs)
chain = retriever | (lambda documents: documents[0].page_content)

for _ in range(4):
    print(chain.invoke("Deploy with tools/deploy.sh.", {"callbacks": [handler]}))
for memory in store.memories():
    print(f"{memory.id:10} {memory.status:12} {memory.evidence}")
