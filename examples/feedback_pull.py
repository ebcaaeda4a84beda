"""Outcomes that are already in a feedback service: pulled as often as one likes, corrections and deletions followed.

Run it: python examples/feedback_pull.py. With an account the source is `LangSmithFeedback()`.
"""

from datetime import UTC, datetime
from uuid import uuid4

from langchain_core.embeddings import DeterministicFakeEmbedding
from langsmith.schemas import Feedback
from langsmith.utils import LangSmithNotFoundError

from langchain_memoryworth import LangSmithFeedback, MemoryWorthStore, pull


class Client(list[Feedback]):  # noqa: D101 - stands in for langsmith.Client
    def list_feedback(self, **filters: object) -> list[Feedback]:  # noqa: D102
        return list(self)

    def read_feedback(self, feedback_id: str) -> Feedback:  # noqa: D102
        raise LangSmithNotFoundError(feedback_id)


store = MemoryWorthStore("sqlite://", DeterministicFakeEmbedding(size=32))
store.add_texts(["Refunds take 30 days."], ids=["refunds"])
run_id, now = uuid4(), datetime.now(UTC)
with store.episode(str(run_id)):
    store.similarity_search("How long does a refund take?", k=1)

thumb = {"id": uuid4(), "run_id": run_id, "trace_id": run_id, "key": "thumbs", "created_at": now}
client = Client([Feedback(**thumb, score=1, modified_at=now)])
print(pull(store, LangSmithFeedback(client)), store.evidence("refunds"))

client[0] = Feedback(**thumb, score=0, modified_at=datetime.now(UTC))
print(pull(store, LangSmithFeedback(client)), store.evidence("refunds"))

client.clear()
print(pull(store, LangSmithFeedback(client)), store.evidence("refunds"))
