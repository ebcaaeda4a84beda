"""Retrieval and model call in separate steps: `store.episode()` holds them together.

Run it: python examples/episode_outside_one_run.py
"""

from langchain_core.language_models import FakeListChatModel

from langchain_memoryworth import MemoryWorthStore

store = MemoryWorthStore("sqlite://")
store.add_texts(
    ["The deploy script is tools/deploy.sh.", "Deploys happen through the CI pipeline."],
    ids=["script", "pipeline"],
)
model = FakeListChatModel(responses=["Push to main, the pipeline deploys it."])

with store.episode() as episode:
    documents = store.similarity_search("How do I deploy?", k=2)
    answer = model.invoke(f"{[d.page_content for d in documents]} How do I deploy?").content
    succeeded = "pipeline" in answer
    # It is known which memory the answer came from, so that one gets the credit.
    episode.record(succeeded, used=["pipeline"])

for memory in store.memories():
    print(memory.id, memory.evidence)
