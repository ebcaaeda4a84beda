"""The table in docs/adapters.md says what the tests run on, and nothing else."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

from tests.compatibility import TABLE, THROUGH, rows, without_versions


def test_the_table_is_current() -> None:
    """Versions are those of the machine that wrote it, so they only have to be versions."""
    assert without_versions(TABLE.written()) == without_versions(rows()), (
        "run python -m tests.tables"
    )
    assert all(re.fullmatch(r"\d+(\.\w+)+", row[3]) for row in TABLE.written())


def test_rewriting_keeps_the_rest_of_the_page() -> None:
    page = TABLE.path.read_text(encoding="utf-8")
    again = TABLE.rewritten(page)
    assert TABLE.rewritten(again) == again
    assert again.replace(TABLE.text(rows()), "") == page.replace(TABLE.text(TABLE.written()), "")


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
