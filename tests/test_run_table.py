"""The table in docs/runs.md says what the tests of runs show, and nothing else."""

from __future__ import annotations

from tests.run_life import CASES, TABLE, rows, under

ONE_WAY = {
    "cancellation, a timeout": "async",  # sync code is cancelled by nothing but the process
    "async runs": "async",
    "roots that never end": "sync",  # the handler is called directly: it has no async of its own
}
"""What there is under sync or under async only."""


def test_the_table_is_current() -> None:
    assert TABLE.written() == list(rows()), "run python -m tests.tables"


def test_every_case_is_shown_under_sync_and_under_async() -> None:
    for case in CASES:
        shown = set().union(*map(under, case.tests))
        assert shown == {
            ONE_WAY.get(case.situation, "sync"),
            ONE_WAY.get(case.situation, "async"),
        }, case.situation


def test_no_test_is_named_twice_in_a_case() -> None:
    assert all(len(set(c.shown)) == len(c.shown) for c in CASES)
    assert len({c.situation for c in CASES}) == len(CASES)
