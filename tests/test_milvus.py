"""`govern` over LangChain's client of Milvus, on milvus-lite; the same client reaches a cluster."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from langchain_milvus import Milvus

from langchain_memoryworth import MemoryWorthStore, govern
from tests.fakes import HashedWords, assert_exact
from tests.ledger_server import Server, new_schema
from tests.policies import plain

StoreMaker = Callable[..., MemoryWorthStore]
TEXTS = tuple(f"alpha {word}" for word in ("beta", "gamma", "delta", "epsilon", "zeta", "eta"))
STRICT = plain(v_min=1, exploration=0.0)
EVEN = {"expr": "even == true"}


@contextmanager
def milvus(folder: Path, metric: str = "COSINE") -> Iterator[Milvus]:
    store = Milvus(
        HashedWords(),
        connection_args={"uri": str(folder / "milvus.db")},
        index_params={"index_type": "FLAT", "metric_type": metric},
        consistency_level="Strong",
    )
    store.add_texts(list(TEXTS), [{"even": n % 2 == 0} for n in range(len(TEXTS))], ids=list(TEXTS))
    yield store
    store.client.close()


def hide(memories: MemoryWorthStore, retriever: object, text: str) -> None:
    with memories.episode() as episode:
        retriever.invoke(text)  # type: ignore[attr-defined]
    episode.record(False, used=[text])
    for memory in memories.suppressed():
        if memory.id != text:
            memories.restore(memory.id)
    assert [m.id for m in memories.suppressed()] == [text]


@pytest.fixture
def ledgers(request: pytest.FixtureRequest, make_store: StoreMaker) -> MemoryWorthStore:
    """On SQLite, or on Postgres, as for a cluster of Milvus."""
    if request.param == "sqlite":
        return make_store(policy=STRICT)
    server: Server = request.getfixturevalue("ledger")
    return make_store(new_schema(server), policy=STRICT)


@pytest.mark.parametrize(
    ("metric", "ledgers"),
    [("COSINE", "sqlite"), ("COSINE", "postgres"), ("L2", "sqlite"), ("IP", "sqlite")],
    indirect=["ledgers"],
)
@pytest.mark.parametrize("arguments", [{}, EVEN])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_k_are_served_beside_what_is_held_back(
    ledgers: MemoryWorthStore, tmp_path: Path, metric: str, arguments: dict[str, str], way: str
) -> None:
    """Milvus makes its async client in the loop that it is first opened in, so it is opened there."""
    memories = ledgers

    async def session() -> tuple[list[str], list[str], list[str]]:
        with milvus(tmp_path, metric) as store:
            hide(memories, govern(store, memories, k=1), TEXTS[0])
            retriever = govern(store, memories, k=3, search_kwargs=dict(arguments))
            with memories.episode() as episode:
                asked = retriever.invoke(TEXTS[0]) if way == "sync" else None
                documents = asked or await retriever.ainvoke(TEXTS[0])
            everything = store.similarity_search(TEXTS[0], k=9, **arguments)
            await store.aclient.close()
        shown = [e.memory_id for e in memories.run(episode.id).exposures]
        return [d.page_content for d in documents], [d.page_content for d in everything], shown

    found, everything, shown = asyncio.run(session())
    wanted = [text for text in everything if text != TEXTS[0]]
    assert found == wanted[:3] == shown
    assert len(found) == (2 if arguments else 3)  # of the even ones there are no more
    assert memories.health().ok
    assert_exact(memories)


def test_scores_of_the_cosine_metric_are_cosines(make_store: StoreMaker, tmp_path: Path) -> None:
    memories = make_store(policy=STRICT)
    for metric, known in (("COSINE", True), ("L2", False)):
        folder = tmp_path / metric
        folder.mkdir()
        with milvus(folder, metric) as store, memories.episode() as episode:
            govern(store, memories, k=2).invoke(TEXTS[0])
        first = memories.run(episode.id).exposures[0].similarity
        assert (first == pytest.approx(1.0, abs=1e-5)) if known else first is None


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[1] / "examples" / "govern_milvus.py"
    assert len(example.read_text(encoding="utf-8").splitlines()) < 40
    runpy.run_path(str(example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Deploy with tools/deploy.sh."
    assert lines[3] != lines[0]  # held back after three failures
