"""Every test that the threat model names is there, under that name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = re.findall(r"`(tests/\w+\.py)::(\w+)`", (ROOT / "docs/security.md").read_text())


def test_the_page_names_tests():
    assert len(NAMED) > 10


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_it_exists(file: str, name: str):
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
