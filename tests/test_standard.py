"""The standard suites of LangChain, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import (
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)

from langchain_memoryworth import MemoryWorthRetriever, MemoryWorthStore
from tests.fakes import HashedWords
from tests.ledger_server import Server, new_schema
from tests.runs_fixtures import filled


class TestFlatStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        with MemoryWorthStore("sqlite://", self.get_embeddings()) as store:
            yield store


class TestHnswStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        with MemoryWorthStore("sqlite://", self.get_embeddings(), index="hnsw") as store:
            yield store


class TestStoreOnFile(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, file_url: str) -> Iterator[VectorStore]:
        with MemoryWorthStore(file_url, self.get_embeddings()) as store:
            yield store


class TestStoreOnPostgres(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, ledger: Server) -> Iterator[VectorStore]:
        with MemoryWorthStore(new_schema(ledger), self.get_embeddings()) as store:
            yield store


class TestStoreOnPgvector(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, postgres: str) -> Iterator[VectorStore]:
        with MemoryWorthStore(postgres, self.get_embeddings(), index="pgvector") as store:
            yield store


class _Retrievers(RetrieversIntegrationTests):
    index: Any = "flat"

    @pytest.fixture(autouse=True)
    def _filled_store(self) -> Iterator[None]:
        with MemoryWorthStore("sqlite://", HashedWords(), index=self.index) as store:
            self.store = filled(store)
            yield

    @property
    def retriever_constructor(self) -> type[MemoryWorthRetriever]:
        return MemoryWorthRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"store": self.store}

    @property
    def retriever_query_example(self) -> str:
        return "apple bread"


class TestFlatRetriever(_Retrievers):
    pass


class TestHnswRetriever(_Retrievers):
    index = "hnsw"
