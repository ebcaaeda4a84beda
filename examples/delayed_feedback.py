"""Feedback that arrives later, in another process: only the run id has to be kept.

Run it: python examples/delayed_feedback.py
"""

import tempfile
from pathlib import Path
from uuid import uuid4

from langchain_memoryworth import MemoryWorthCallbackHandler, MemoryWorthStore

with tempfile.TemporaryDirectory() as folder:
    url = f"sqlite:///{Path(folder) / 'memories.db'}"

    # The web worker answers. It gives the run an id of its own, or reads handler.last_episode_id.
    with MemoryWorthStore(url) as store:
        store.add_texts(["Refunds take 30 days."], ids=["refunds"])
        chain = store.as_retriever() | (lambda documents: documents[0].page_content)
        run_id = uuid4()
        config = {"callbacks": [MemoryWorthCallbackHandler(store)], "run_id": run_id}
        print("answer:", chain.invoke("How long does a refund take?", config=config))

    # Days later, the feedback endpoint hears from the user. A click twice counts once.
    with MemoryWorthStore(url) as store:
        print("waiting:", [episode.id == str(run_id) for episode in store.pending()])
        for _ in range(2):
            store.record_outcome(run_id, False, source="user", source_id="customer-7")
        print(store.evidence("refunds"))
