"""The suppression filter: drops held-back memories from the documents of any retriever, before the prompt is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from langchain_core.callbacks import (
    BaseCallbackManager,
    CallbackManagerForChainRun,
    Callbacks,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import run_in_executor
from pydantic import BeforeValidator, ConfigDict

from langchain_memoryworth.records import Namespace
from langchain_memoryworth.service.governor import Governor, governor_of
from langchain_memoryworth.service.namespaces import checked, resolved
from langchain_memoryworth.statuses import SERVED


class SuppressionFilter(BaseDocumentCompressor, Runnable[Sequence[Document], list[Document]]):
    """Drops documents whose memories are suppressed; what it drops gets no credit.

    A document compressor (`ContextualCompressionRetriever(base_compressor=SuppressionFilter(store), ...)`) and a
    runnable (`retriever | SuppressionFilter(store) | prompt`). Documents that are no memories of the store pass.
    The store's own retriever needs none: it leaves suppressed memories out and still returns k.

    If the store cannot be asked, all documents pass, and the failure is counted in `store.health()`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    store: Annotated[Governor, BeforeValidator(governor_of)]
    """The store, or its governor."""
    namespace: Annotated[Namespace, BeforeValidator(checked)] | None = None
    """Where the memories are; `{name}` is filled in from the run. None means the store's own."""
    name: str | None = None
    """What runs of it are called; `Runnable` declares it without a default."""

    def __init__(self, store: Any, **fields: Any) -> None:
        super().__init__(**{"store": store, **fields})

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """The documents that may be served, in order."""
        parent = callbacks.parent_run_id if isinstance(callbacks, BaseCallbackManager) else None
        return self._keep(documents, parent)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """`compress_documents` off the event loop."""
        return await run_in_executor(None, self.compress_documents, documents, query, callbacks)

    def invoke(
        self, input: Sequence[Document], config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Document]:
        """The documents that may be served, in order."""
        return self._call_with_config(self._in_run, input, config)

    async def ainvoke(
        self, input: Sequence[Document], config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Document]:
        """`invoke` off the event loop."""
        return await run_in_executor(config, self.invoke, input, config)

    def _in_run(
        self, documents: Sequence[Document], run_manager: CallbackManagerForChainRun
    ) -> list[Document]:
        return self._keep(documents, run_manager.run_id)

    def _keep(self, documents: Sequence[Document], run_id: Any) -> list[Document]:
        documents = list(documents)
        losses = self.store.losses
        with losses.guard("the suppression filter"):
            namespace = None if self.namespace is None else resolved(self.namespace)
            known = self.store.collection.get(
                [d.id for d in documents if d.id is not None], namespace
            )
            held = {i for i, m in known.items() if m.status not in SERVED}
            if held:
                documents = [d for d in documents if d.id not in held]
                self._forget(held, run_id)
        return documents

    def _forget(self, held: set[str], run_id: Any) -> None:
        root = self.store.runs.root(run_id)
        episode = self.store.runs.episode(run_id)
        if root is not None:
            root.forget(held)
        if episode is not None:
            self.store.journal.hide(episode.id, held)
