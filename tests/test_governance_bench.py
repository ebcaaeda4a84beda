"""The governance benchmark runs, goes on where it stopped, and its rules do what they say."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.governance import attribution, credit, memento
from benchmarks.governance.__main__ import main
from benchmarks.governance.jobs import RULES, Job, complete, planned
from benchmarks.governance.losses import lost_on_the_log, lost_to_equal_credit
from benchmarks.governance.ours import ours
from benchmarks.governance.play import SCENARIOS, closed, play, world_of
from benchmarks.governance.rules import Oracle, Paper, Rule
from langchain_memoryworth import Policy
from tests.fakes import HashedWords


@pytest.fixture
def log(tmp_path):
    """A log in the form of Memento's: a case that helps, one that does not, and a query that retrieves itself."""
    rng = np.random.default_rng(0)
    rows = []
    for t in range(80):
        case = "how long" if rng.random() < 0.5 else "who was"
        success = bool(rng.random() < (0.9 if case == "how long" else 0.1))
        rows += [
            {"query": f"question {t} of rivers", "case": c, "truth_label": success}
            for c in (case, case, "filler")
        ]
    rows.append({"query": "self", "case": "self", "truth_label": True})
    (tmp_path / "training_data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    bank = [
        {"case": f"where is {n}", "plan": json.dumps({"plan": [{"description": f"find the {n}"}]})}
        for n in ("river", "road", "bridge", "tower", "gate", "wall", "well")
    ]
    bank.append({"case": "no plan", "plan": "none"})
    (tmp_path / "memory.jsonl").write_text("\n".join(map(json.dumps, bank)))
    return tmp_path


def test_a_small_run_writes_the_page_and_a_second_one_computes_nothing(
    tmp_path, log, capsys, monkeypatch
):
    monkeypatch.setattr(attribution, "model", HashedWords)
    command = ["--seeds", "2", "--episodes", "60", "--workers", "1", "--memento", str(log)]
    command += ["--out", str(tmp_path / "page.md"), "--cache", str(tmp_path / "cache")]
    assert main(command) == 0
    page = (tmp_path / "page.md").read_text()
    assert all(f"| {rule} |" in page for rule in RULES)
    assert all(scenario.name in page for scenario in SCENARIOS)
    assert (tmp_path / "governance-worlds.png").exists()
    assert "AUC within query clusters" in page
    assert "credit to the one used" in page
    assert "- a real log, effect" in page

    seen = []
    jobs = planned(2, 60, log)
    complete(jobs, tmp_path / "cache", workers=1, progress=lambda *counts: seen.append(counts))
    assert seen == [(len(jobs), len(jobs))]

    without_the_log = command[:6] + command[8:]
    with pytest.raises(SystemExit):
        main(without_the_log)
    assert "--memento FOLDER" in capsys.readouterr().err
    assert (tmp_path / "page.md").read_text() == page


def test_the_replay_tells_the_case_that_helps(log):
    episodes = memento.load(log)
    assert len(episodes) == 80
    assert all(len(e.cases) == 2 for e in episodes)
    found = dict(memento.scores(log))
    assert found["paper: worth"].auc > 0.65
    assert found["all effects, query clusters"].auc > 0.65
    assert found["posterior at the base rate"].brier < found["base rate"].brier


@pytest.fixture(scope="module")
def drifting():
    return world_of(replace(SCENARIOS[0], episodes=1_500), 3)


def test_every_rule_meets_the_same_world_and_a_run_repeats_itself(drifting):
    first, second = (play(drifting, ours(Policy())) for _ in range(2))
    assert (first.success == second.success).all()


def test_ours_closes_more_than_the_papers_rule_and_hides_fewer_good_memories(drifting):
    plain, oracle, paper, own = (
        play(drifting, rule) for rule in (Rule, Oracle, Paper, ours(Policy()))
    )
    assert closed(own, plain, oracle).mean() > closed(paper, plain, oracle).mean() + 0.1
    assert own.good_hidden.mean() <= 0.01 < paper.good_hidden.mean()


def test_without_ranking_and_suppression_ours_is_plain_similarity(drifting):
    still = play(drifting, ours(Policy(effect_weight=0.0, suppress=False)))
    assert (still.success == play(drifting, Rule).success).all()


def test_what_is_known_of_use_decides_how_much_is_learnt():
    ours_only = {"ours": credit.RULES["**ours**"]}
    found = [mean for _, _, mean, _ in credit.successes(2, 1_500, ours_only)]
    assert len(found) == len(credit.WAYS)
    assert found[-1] > found[0] + 0.2
    assert found[0] < min(found[1:])


def test_the_memory_that_an_output_was_made_from_is_found_by_its_words(log, monkeypatch):
    monkeypatch.setattr(attribution, "model", HashedWords)
    found = {f.name: f for f in attribution.measure(log)}
    [ours_] = [f for name, f in found.items() if "by_words" in name]
    assert ours_.share > 0.9
    assert ours_.silent_else == 1.0


def test_the_page_says_where_equal_credit_and_the_log_go_against_ours():
    both = {"auc": 0.55, "within": 0.5, "brier": 0.2, "log_loss": 0.5}
    log = {"paper: worth": both, "effect": {**both, "auc": 0.51}, "all effects": both}
    ways = [("plain similarity", "equal", 0.34), ("**ours**", "equal", 0.29)]
    ways += [("**ours**", "1/(1 + place)", 0.41), ("**ours**", "the one used", 0.83)]
    shares = [(*way, 0.01) for way in ways]
    [facts] = lost_to_equal_credit({Job("credit"): shares})
    assert "plain similarity 0.340 ± 0.010 against 0.290 ± 0.010" in facts
    assert 'Policy(credit="first")` has 0.830, `"reciprocal_rank"` 0.410' in facts
    assert lost_to_equal_credit({Job("credit"): shares[1:]}) == []
    assert lost_on_the_log({Job("memento"): log}) == [
        "- a real log, effect, and the best of the others: AUC 0.510 (0.550)"
    ]
