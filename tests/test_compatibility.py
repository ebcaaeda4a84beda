"""The table in docs/adapters.md says what the tests run on, and nothing else."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

from tests.compatibility import (
    PAGE,
    THROUGH,
    rewritten,
    rows,
    table,
    without_versions,
    written,
)


def test_the_table_is_current() -> None:
    """Versions are those of the machine that wrote it, so they only have to be versions."""
    page = PAGE.read_text(encoding="utf-8")
    assert without_versions(written(page)) == without_versions(rows()), (
        "run python -m tests.compatibility"
    )
    assert all(re.fullmatch(r"\d+(\.\w+)+", row[3]) for row in written(page))


def test_rewriting_keeps_the_rest_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    again = rewritten(page)
    assert rewritten(again) == again
    assert again.replace(table(rows()), "") == page.replace(table(written(page)), "")


def test_what_is_said_of_other_components_is_tested_in_sync_and_async() -> None:
    both_ways = {"ask", "go", "way"}  # fixtures and parameters that run a test in each way
    for *_, test in THROUGH:
        module, name = test.split(".")
        function = getattr(import_module(f"tests.{module}"), name)
        assert (
            both_ways & set(inspect.signature(function).parameters)
            or "is_async" in inspect.getsource(function)
            or inspect.iscoroutinefunction(function)
        ), test
