"""Vectors in Milvus, governed: a file here, a cluster with another `uri`; only the ledger is ours.

Run it: python examples/govern_milvus.py
"""

from tempfile import TemporaryDirectory

from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_milvus import Milvus

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore, Policy, govern

with TemporaryDirectory() as folder:
    embedding = DeterministicFakeEmbedding(size=64)
    notes = Milvus(
        embedding,
        connection_args={"uri": f"{folder}/milvus.db"},  # or http://milvus.example:19530
        index_params={"index_type": "FLAT", "metric_type": "COSINE"},
    )
    notes.add_texts(
        ["Deploy with tools/deploy.sh.", "Deploy through the CI pipeline.", "Lunch is at noon."],
        ids=["script", "pipeline", "lunch"],
    )
    # postgresql+psycopg://... when there are many workers
    # The paper's rule acts on few outcomes, and in a store of so few memories; the default is more careful.
    store = MemoryWorthStore("sqlite://", embedding, policy=Policy.paper(v_min=3))
    retriever = govern(notes, store, k=1)
    handler = MemoryWorthCallbackHandler(store, outcome=lambda run: "pipeline" in run.outputs)
    chain = retriever | (lambda documents: documents[0].page_content)
    for _ in range(4):
        print(chain.invoke("Deploy with tools/deploy.sh.", {"callbacks": [handler]}))
    for memory in store.memories():
        print(f"{memory.id:10} {memory.status:12} {memory.evidence}")
    notes.client.close()
