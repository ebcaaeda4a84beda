"""The page: tables and figures from the results, and where ours loses, found by the script and not by us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.governance.credit import WAYS
from benchmarks.governance.jobs import RULES, Results, only, share_closed
from benchmarks.governance.losses import OURS, SCORES, losses
from benchmarks.governance.play import BLOCK, SCENARIOS
from langchain_memoryworth.estimators.effects import STRENGTH
from langchain_memoryworth.experiments.experiment import Curve, Figure, Panel
from langchain_memoryworth.experiments.figures import draw
from langchain_memoryworth.policy import Policy

SHOWN = ("plain similarity", "paper: suppression", "paper: blend", "Cognee EWMA", OURS, "oracle")
FIGURE = "governance-worlds"


def write(results: Results, page: Path, *, command: str) -> None:
    """Write the page and, beside it, the figure as PNG and SVG."""
    page.parent.mkdir(parents=True, exist_ok=True)
    draw(_figure(results), page.parent)
    page.write_text(render(results, command=command), encoding="utf-8")


def render(results: Results, *, command: str) -> str:
    """The page as Markdown."""
    one = next(job for job in results if job.kind == "world")
    parts = [
        _INTRO.format(command=command, seeds=one.seeds, episodes=one.episodes, n=len(SCENARIOS)),
        _settings(),
        f"## Regret closed\n\n{_regret(results)}\n\n{_worlds(results, _closed)}",
        f"![Success over time in every world]({FIGURE}.png)",
        f"## Success\n\nMean success probability of what was shown.\n\n{_worlds(results, _success)}",
        f"## What is hidden\n\n{_HIDDEN}\n\n{_worlds(results, _hidden)}",
        f"## Where ours loses\n\n{losses(results)}",
        _bars(results),
        _calibration(results),
        _diversity(results),
        _credit(results),
        _memento(results),
        _cost(results),
        _WORLDS,
    ]
    return "\n\n".join(parts) + "\n"


# -- worlds ----------------------------------------------------------------------------------------------------------------


def _world_results(results: Results, name: str) -> dict[str, Any]:
    return {job.rule: result for job, result in results.items() if job.name == name}


def _closed(results: Results, name: str, rule: str) -> str:
    values = share_closed(results, name, rule)
    return f"{values.mean():.2f} ± {values.std() / len(values) ** 0.5:.2f}"


def _success(results: Results, name: str, rule: str) -> str:
    return f"{np.mean(_world_results(results, name)[rule]['success']):.3f}"


def _hidden(results: Results, name: str, rule: str) -> str:
    found = _world_results(results, name)[rule]
    return f"{np.mean(found['good_hidden']):.1%} / {np.mean(found['bad_hidden']):.0%}"


def _worlds(results: Results, cell: Any) -> str:
    names = [s.name for s in SCENARIOS]
    rows = [(rule, *(cell(results, name, rule) for name in names)) for rule in RULES]
    return _table(("rule", *names), rows)


def _regret(results: Results) -> str:
    name = SCENARIOS[0].name
    learnt, without = (
        (
            f"{share_closed(results, name, rule).mean():.2f}",
            f"{np.mean(_world_results(results, name)[rule]['good_hidden']):.1%}",
        )
        for rule in ("ours, contexts learnt", "ours, without contexts")
    )
    return _REGRET.format(world=name, learnt=learnt, without=without)


def _figure(results: Results) -> Figure:
    panels = []
    for scenario in SCENARIOS:
        found = _world_results(results, scenario.name)
        curves = []
        for rule in SHOWN:
            values = np.array(found[rule]["success"]).T
            x = (np.arange(values.shape[1]) + 0.5) * BLOCK
            curves.append(Curve(rule.strip("*"), x, _smooth(values), theory=rule == "oracle"))
        panels.append(Panel(f"{scenario.name}: {scenario.title}", "success", tuple(curves)))
    return Figure(FIGURE, "Success over time in every world", tuple(panels))


def _smooth(values: Any, width: int = 5) -> Any:
    if values.shape[1] < width:
        return values
    kernel = np.ones(width) / width
    padded = np.pad(values, ((0, 0), (width // 2, width // 2)), mode="edge")
    return np.array([np.convolve(row, kernel, "valid") for row in padded])


def _settings() -> str:
    p = Policy()
    values: dict[str, tuple[object, str]] = {
        "`effect_weight`": (p.effect_weight, "similarity per unit of effect"),
        "`effect_reach`": (p.effect_reach, "the most similarity that an effect may cost"),
        "`effect_lift`": (p.effect_lift, "the most that it may buy"),
        "`optimism`": (p.optimism, "deviations in favour of the unknown"),
        "`effects.STRENGTH`": (STRENGTH, "retrievals that the prior of an effect is worth"),
        "`harm`, `harm_margin`": (
            f"{p.harm}, {p.harm_margin}",
            "hidden if P(effect < -margin) reaches it",
        ),
        "`theta_low`, `margin_low`": (
            f"{p.theta_low}, {p.margin_low}",
            "low is below both: the threshold, and what was to be expected less the margin",
        ),
        "`confidence`": (p.confidence, "hidden if P(success rate is low) reaches it"),
        "`decline`": (p.decline, "likewise, of the success rate since the last change"),
        "`exploration`": (p.exploration, "share of episodes that show a hidden memory"),
    }
    rows = [(name, str(value), words) for name, (value, words) in values.items()]
    return _table(("constant", "value", "what it does"), rows)


# -- the other results -------------------------------------------------------------------------------------------------------


def _seeds(results: Results) -> int:
    return next(job.seeds for job in results if job.kind == "bars")


def _bars(results: Results) -> str:
    found = only(results, "bars")
    ranks = [(w, e, f"{m:.3f} ± {s:.3f}") for w, e, m, s in found["ranks"]]
    lifts = [
        (f"{n:,}", f"{share:.0%}", _pair(value, error, 0), _pair(value, error, 1), f"{right:.1%}")
        for n, share, value, error, right in found["lifts"]
    ]
    return (
        f"## Estimators in worlds with known utilities\n\n{_BARS.format(seeds=_seeds(results))}\n\n"
        + _table(("world", "estimator", "rank correlation"), ranks)
        + f"\n\n{_LIFTS}\n\n"
        + _table(
            ("episodes", "held out", "lift of the anchor", "of the hitchhiker", "order right"),
            lifts,
        )
    )


def _calibration(results: Results) -> str:
    found = only(results, "calibration")
    rows = [
        (f"{c['share']:.0%}", f"{c['purity']:.0%}", *(f"{c[n]:.2f}" for n in list(c)[2:]))
        for c in found
    ]
    header = ("held out", "labels right", *list(found[0])[2:])
    return f"## Calibrated worth\n\n{_CALIBRATION}\n\n" + _table(header, rows)


def _pair(value: list[float], error: list[float], which: int) -> str:
    return f"{value[which]:+.4f} ± {error[which]:.4f}"


def _diversity(results: Results) -> str:
    found = only(results, "diversity")
    shares = list(dict.fromkeys(c["share"] for c in found))
    rows: dict[tuple[Any, ...], list[str]] = {}
    for c in found:
        key = (
            f"{c['gap']:g}",
            f"{c['episodes']:,}",
            c["estimator"],
            f"{c['needed']:.0%}" if c["needed"] < 1 else "-",
        )
        rows.setdefault(key, []).append(f"{c['ordered']:.0%}")
    header = (
        "gap",
        "episodes",
        "estimator",
        "2 SE of worth at",
        *(f"{s:.0%} apart" for s in shares),
    )
    return (
        f"## How much diversity a pair needs\n\n{_DIVERSITY.format(seeds=_seeds(results))}\n\n"
        + _table(header, [(*key, *cells) for key, cells in rows.items()])
    )


def _credit(results: Results) -> str:
    found: dict[str, dict[str, str]] = {}
    for rule, way, mean, error in only(results, "credit"):
        found.setdefault(rule, {})[way] = f"{mean:.3f} ± {error:.3f}"
    # Plain similarity and the oracle learn nothing: the credit is the same to them.
    rows = [
        (rule, *(by_way.get(way, next(iter(by_way.values()))) for way in WAYS))
        for rule, by_way in found.items()
    ]
    return f"## Credit by use\n\n{_CREDIT}\n\n{_table(('rule', *WAYS), rows)}\n\n" + _attribution(
        results
    )


def _attribution(results: Results) -> str:
    found = only(results, "attribution")
    if found is None:
        return (
            "How well use is found in an output is not part of this run: give `--memento FOLDER`."
        )
    rows = [
        (f["name"], f"{f['share']:.2f}", f"{f['silent']:.1%}", f"{f['silent_else']:.0%}")
        for f in found
    ]
    header = (
        "measure",
        "credit to the one used",
        "says nothing",
        "says nothing where none was used",
    )
    return f"{_ATTRIBUTION}\n\n{_table(header, rows)}"


def _memento(results: Results) -> str:
    found = only(results, "memento")
    if found is None:
        return f"## A real log\n\nNot part of this run: give `--memento FOLDER`. {_MEMENTO}"
    rows = [
        (n, *(f"{score[column]:.{digits}f}" for column, _, _, digits in SCORES))
        for n, score in found.items()
    ]
    words = _SINGLE.format(
        effect=found["effect"]["auc"],
        worth=found["paper: worth"]["auc"],
        within=found["effect, query clusters"]["within"],
    )
    return f"## A real log\n\n{_MEMENTO}\n\n{words}\n\n" + _table(
        ("estimator", *(head for _, head, _, _ in SCORES)), rows
    )


def _cost(results: Results) -> str:
    found = only(results, "cost")
    rows = [(name, f"{value:.1f}") for name, value in found.items()]
    return "## Cost\n\nMicroseconds for one outcome, on the machine of this run.\n\n" + _table(
        ("estimator", "microseconds"), rows
    )


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


_INTRO = """\
# Which rule decides best?

Generated by `{command}` ({seeds} seeds of {episodes:,} episodes in each of {n} worlds). Every rule meets the same queries,
noise and luck. Ours is the default `Policy()`, its constants chosen over all worlds and the log together (`max_suppressed` is
left out: what is hidden stays far below it):"""

_REGRET = """\
Share of the regret of plain similarity that a rule closes: 0 is plain similarity, 1 an oracle that knows what every memory
would add; mean and standard error over the seeds. Below 0 a rule does harm. Ours is told the topic of each query as its
context, and no other rule uses one. Without contexts it closes {without[0]} in `{world}` and hides {without[1]} of the good
memories; with contexts that it has learnt {learnt[0]} and {learnt[1]}."""

_HIDDEN = """\
Share of the good memories (those that would add something) / of the harmful ones that a rule keeps from being served, over
the whole run. Where the ranking already keeps a harmful memory out of the top k, nothing more is learnt about it, and it
is not hidden. Where topics differ in difficulty and ours is given no contexts, it hides good memories of the hard ones: give
contexts, or let them be learnt."""

_SINGLE = """\
What is tried here is not a ranking: an effect is what a case adds to its companions, and not how likely success is with them. So by AUC
a single effect ({effect:.3f}) is behind the paper's worth ({worth:.3f}), and with query clusters, within them, below chance
({within:.3f}); all effects of the cases shown together have the best AUC, Brier and log-loss, and no more than chance within the clusters."""

_BARS = """\
Rank correlation with the true utilities after 10,000 episodes, mean and standard deviation over {seeds} seeds. `topics`: each
episode shows 8 of the 20 memories of one topic. In Experiment 1 worth is at the information limit, which ridge shows: the
best linear reading of the whole log is no better. In Experiment 2 at the paper's own slope (.15) even ridge stays near the
limit of about .2. Learnt contexts fail where nothing known at retrieval tells hard tasks from easy ones though they retrieve
other memories (overlapping topics); where both retrieve the same, one context is found and none is needed."""

_LIFTS = """\
Hold-outs with replacement in the world of Experiment 4, where the pair is never apart otherwise; the limits of the lifts are
+.0500 and -.0563. 400 seeds; mean and standard error."""

_CALIBRATION = """\
Experiment 2 at slope 1 once more, with hold-outs of every retrieved memory and contexts whose labels err: rank correlation with
the true utilities. Labels that are wrong in one of seven episodes undo worth within contexts and ridge; regressing the lifts on
worth and exposure gets it back. At 2% or less it is refused."""

_DIVERSITY = """\
Experiment 4: share of {seeds} seeds in which an estimator puts the anchor above its companion, which is `gap` below the mean of
the pool, by the share of the episodes that show them apart; and the share at which the worths differ by two standard errors,
`f (1 - f) = (k / gap)^2 / T`. The paper's 30% belongs to its own gap, episodes and eye."""

_CREDIT = """\
Mean success in `facts`, where the reader uses the first of three memories: the same rules, told more or less of it. With equal credit
each memory learns mostly of the other two. `named` is what `by_citation` and its like find out, here in a share of the answers or with
errors; `the one used` is `Policy(credit="first")`, or a reader that cites in every answer. The first and the last row learn nothing."""

_ATTRIBUTION = """\
Which memory was an output made from, if it says so in other words? The case bank of Memento again: a question and the plan that a
language model wrote for it. Shown are the 5 questions nearest to another one (all-MiniLM-L6-v2); the output is the plan of one of them,
drawn at random. Equal credit gives it .20. Last column: the plan of the 31st nearest, which comes from none of those shown."""

_MEMENTO = """\
The log of the Memento agent (repository Agent-on-the-Fly/Memento, folder `memory/`, MIT licence): 717 queries that do not
retrieve themselves, 5,727 retrieved cases, 24% answered correctly, replayed in order. Each estimator says before each outcome
how probable success is. An AUC of .5 is chance; its standard error is about .025, since the cases of a query share the outcome.
Within query clusters (k-means on the words of the queries) the difficulty of a kind of question is taken out."""

_WORLDS = """\
## The worlds

`drifting` to `hard pool` come from one generator, `benchmarks/governance/world.py`: topics with directions in 16 dimensions,
memories and queries around them; a memory of utility u adds u where it is relevant, the base success is that of the topic.
100 memories, 5 topics, k = 5, noise .10, 3% of the outcomes recorded the wrong way round; half of the memories help, 15% do
harm. In `drifting` 40% of the helpful ones turn harmful at a time of their own and a quarter of all arrive on the way.
`facts` is `benchmarks/governance/facts.py`: facts that are replaced, old versions as similar as the new one, and a reader that
uses the first of three memories, which takes the credit under every rule. What other rules take from a language model at write
time is here a rating that correlates with the utility of that time at about .65; an episode counts as an hour. A-MAC's score
has two of its five dimensions, that rating and novelty: the other three, confidence, recency and type, are the same for all memories
here when they are written."""
