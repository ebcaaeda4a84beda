"""The report: one file that opens offline, shows what the store has, and lets no stored text act."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from langchain_memoryworth import MemoryWorthStore
from langchain_memoryworth.errors import MissingExtraError
from langchain_memoryworth.reports.plots import picture
from langchain_memoryworth.reports.report import gather, write_report
from langchain_memoryworth.reports.sections import (
    Facts,
    Section,
    alarms,
    before_and_after,
    by_context,
    by_metadata,
    by_namespace,
    drift,
)
from tests.conftest import StoreMaker
from tests.fakes import Clock
from tests.policies import plain

EVIL = (
    "red <script>alert(1)</script> <img src=http://evil.example/x onerror=go()> $\\frac{$ \x1b[2J"
)
PNG = b"\x89PNG\r\n\x1a\n"


class Tags(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def lived(make_store: StoreMaker, clock: Clock) -> MemoryWorthStore:
    store = make_store(policy=plain(v_min=2, exploration=0.0))
    metadata = [
        {"lang": EVIL, "topic": "colours"},
        {"lang": "en", "topic": "colours"},
        {"topic": "other", "id": 7, "list": [1]},
    ]
    store.add_texts([EVIL, "green", "white green"], metadata, ids=[EVIL, "b", "c"])
    store.add_texts(["blue"], ids=["d"], namespace="acme")
    for n in range(6):
        clock.forward(days=1)
        with store.episode(f"e{n}", context="hard" if n in (1, 3) else "easy $x$") as episode:
            store.similarity_search(EVIL if n < 2 else "green", k=1)
        episode.record(n >= 2)
    for n in range(2):
        clock.forward(days=1)
        with store.episode(f"f{n}") as episode:
            store.similarity_search("blue", k=1, namespace="acme")
        episode.record(True)
    return store


def test_it_shows_the_store_and_opens_offline(lived: MemoryWorthStore, tmp_path: Path):
    path = write_report(lived, tmp_path / "r.html", plots=tmp_path / "plots")
    page = Tags(path.read_text())
    images = [attrs["src"] or "" for tag, attrs in page.seen if tag == "img"]
    pictures = [base64.b64decode(i.removeprefix("data:image/png;base64,")) for i in images]
    assert all(p.startswith(PNG) for p in pictures)
    drawn = {p.stem: p.read_bytes() for p in (tmp_path / "plots").iterdir()}
    assert set(drawn) == {
        *("worth", "trajectories", "success", "before_after", "drift"),
        *("by_namespace", "by_metadata", "by_context", "worth_by_context"),
    }
    assert sorted(drawn.values()) == sorted(pictures)
    assert "suppressed1" in page.text  # the health table
    assert "theta_low 0.4" in page.text  # the queue
    assert all(f"A{n}" in page.text for n in range(1, 7))  # the assumptions
    links = [v for _, attrs in page.seen for k, v in attrs.items() if k in ("src", "href")]
    assert all((v or "").startswith("data:") for v in links)


def rates_of(store: MemoryWorthStore, section: Callable[[Facts], Section]) -> list[tuple[str, int]]:
    plot = section(gather(store)).plot
    assert isinstance(plot, partial)
    return [(r.name, r.runs) for r in plot.keywords["found"]]


def test_groups_count_each_run_once(lived: MemoryWorthStore):
    with lived.episode("both") as episode:
        lived.similarity_search("green", k=2)  # two memories of one topic are one run of it
    episode.record(True)
    assert rates_of(lived, by_namespace) == [("(no namespace)", 7), ("acme", 2)]
    assert rates_of(lived, by_metadata) == [
        *[("lang = en", 5), (f"lang = {EVIL}", 2)],
        *[("topic = colours", 7), ("topic = other", 1)],
    ]
    assert rates_of(lived, by_context) == [("easy $x$", 4), ("hard", 2)]


def test_drift_is_red_where_the_later_half_is_credibly_worse(make_store: StoreMaker):
    store = make_store(policy=plain(v_min=4, suppress=False))
    store.add_texts(["red", "green"], ids=["a", "b"])
    for n in range(40):
        with store.episode(f"e{n}") as episode:
            store.similarity_search("red" if n % 2 else "green", k=1)
        episode.record(n % 2 == 0 or n < 20)
    plot = drift(gather(store)).plot
    assert isinstance(plot, partial)
    assert [h[0] for h in plot.keywords["found"] if h.declined] == ["a"]
    assert picture(plot).startswith(PNG)


def test_no_stored_text_acts_in_it(lived: MemoryWorthStore, tmp_path: Path):
    page = write_report(lived, tmp_path / "r.html").read_text()
    seen = Tags(page)
    assert {tag for tag, _ in seen.seen} <= {
        "html",
        "meta",
        "title",
        "style",
        "h1",
        "h2",
        "p",
        "table",
        "tr",
        "th",
        "td",
        "img",
    }
    assert not [k for _, attrs in seen.seen for k in attrs if k.startswith("on")]
    assert "\x1b" not in page
    assert "<script>alert(1)</script>" in seen.text  # shown, as text
    assert re.search(r"default-src 'none'", page)


def test_an_alarm_says_since_when_a_memory_has_declined(make_store: StoreMaker, clock: Clock):
    store = make_store(policy=plain(suppress=False))
    store.add_texts(["red", "green"], ids=["a", "b"])
    for n in range(160):  # both go well; from the 40th run of each on, one fails
        clock.forward(days=1)
        with store.episode(f"e{n}") as episode:
            store.similarity_search("red" if n % 2 else "green", k=1)
        episode.record(n % 2 == 0 or n < 80)
    table = alarms(gather(store)).table
    assert table is not None
    [(memory, before, _, _, since)] = table[1]
    assert (memory, before) == ("a", "1.00 over 40 retrievals")
    last_good = store.worth_history("a")[39]
    assert (last_good.reward, store.worth_history("a")[40].reward) == (1, 0)
    assert since == f"{last_good.at:%Y-%m-%d %H:%M}"


def test_before_and_after_suppressions(lived: MemoryWorthStore, clock: Clock):
    facts = gather(lived)
    (_, before, low), (_, after, high) = before_and_after(facts.rewards, facts.held_back)
    assert (before, after) == (2, 6)
    assert low.mean == pytest.approx(1 / 4)
    assert high.mean == pytest.approx(7 / 8)
    assert low.low < low.mean < low.high
    lived.suppress("b")
    clock.forward(days=1)
    lived.record_outcome("e5", False)
    facts = gather(lived)
    assert [r.runs for r in before_and_after(facts.rewards, facts.held_back)] == [2, 5, 1]
    assert before_and_after([], [])[0].name == "no suppression yet"


def test_an_empty_store_has_a_report_too(make_store: StoreMaker, tmp_path: Path):
    assert "Nothing." in write_report(make_store(), tmp_path / "r.html").read_text()


def test_without_matplotlib_it_names_the_extra(
    lived: MemoryWorthStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="langchain-memoryworth\\[plot\\]"):
        write_report(lived, tmp_path / "r.html")
