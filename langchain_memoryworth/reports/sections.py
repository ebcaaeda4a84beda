"""The sections of the report: each one function, from the facts to a title, a sentence, a plot, a table. Pure but for the plots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from langchain_memoryworth.estimators.assumptions import Finding
from langchain_memoryworth.estimators.credible import belief_of
from langchain_memoryworth.estimators.evidence import Evidence
from langchain_memoryworth.estimators.staleness import Decline
from langchain_memoryworth.ledger.audit import Settlement, worth_points
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import (
    Action,
    Health,
    Memory,
    MemoryLift,
    Namespace,
    SourceShare,
    Status,
    ToolPath,
)
from langchain_memoryworth.reports import plots as draw
from langchain_memoryworth.reports.plots import Rate
from langchain_memoryworth.service.proposals import Proposal

TRAJECTORIES = 8
"""Memories whose worth is drawn over time: those held back, then those with the most evidence."""
PERIODS = 12
"""Into how many parts of equal numbers of runs the history is cut."""
MOST_VALUES = 10
"""A metadata key with more values than this names single memories, and is no group."""
MOST_ROWS = 24
QUEUE = 25


class Section(NamedTuple):
    """One part of the report.

    Attributes:
        name: Of the PNG, without its ending.
        note: What it shows, a sentence or two.
        plot: Draws it; None where there is nothing to draw.
        rows: How many names the plot lists; 0 means none.
        table: Heads and rows.
    """

    name: str
    title: str
    note: str
    plot: draw.Draw | None = None
    rows: int = 0
    table: tuple[Sequence[str], Sequence[Sequence[object]]] | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What the report is made from.

    Attributes:
        settlements: The settled runs of each memory, by its id.
        spaces: The settled runs of every namespace: id and reward.
        history: What was decided about each memory, by its id.
        rewards: When each run of the store was settled, and its reward, oldest first.
        held_back: When a memory was suppressed, by the policy or a person, oldest first.
        lifts: Of the memories that were ever drawn about.
        paths: Which tools the runs called, the most frequent first.
        calibrated: What the lifts of all say of each, by id; empty if they cannot.
        uncalibrated: Why they cannot, empty if they do.
    """

    where: str
    now: datetime
    policy: Policy
    health: Health
    memories: Sequence[Memory]
    settlements: Mapping[str, Sequence[Settlement]]
    spaces: Mapping[Namespace, Mapping[str, float]]
    history: Mapping[str, Sequence[Action]]
    rewards: Sequence[tuple[float, float]]
    held_back: Sequence[float]
    declines: Sequence[Decline]
    findings: Sequence[Finding]
    lifts: Sequence[MemoryLift]
    paths: Sequence[ToolPath]
    calibrated: Mapping[str, float]
    uncalibrated: str
    sources: Sequence[SourceShare]
    queue: Sequence[Proposal]


def health(facts: Facts) -> Section:
    """Counts, and what was lost."""
    rows = [(f.name, _counted(getattr(facts.health, f.name))) for f in fields(facts.health)]
    return Section("health", "Health", "", table=(("", "count"), rows))


def _counted(value: Any) -> Any:
    if isinstance(value, Mapping):
        value = ", ".join(f"{name}: {count:g}" for name, count in value.items())
    return "none" if value in ("", None, ()) else value


def worths(facts: Facts) -> Section:
    """The distribution of worth against evidence."""
    note = (
        "Each point is a memory. In the grey the policy has no verdict, red is LOW, green is HIGH; with evidence since a "
        "restore, or below the hysteresis, a status may differ from the colour beneath it."
    )
    plot = partial(draw.worths, memories=facts.memories, policy=facts.policy)
    return Section("worth", "Worth against evidence", note, plot)


def trajectories(facts: Facts) -> Section:
    """Worth over time of some memories."""
    found = []
    for m in drawn(facts.memories):
        runs = facts.settlements.get(m.id, ())
        # What of the evidence is not of these runs was rolled up.
        points = worth_points(runs, m.evidence - sum((r.evidence for r in runs), start=Evidence()))
        if points:
            at, worths_ = [p.at for p in points], [p.worth for p in points]
            marks = [
                (a.at, a.evidence.worth)
                for a in facts.history[m.id]
                if a.kind == "suppress" and a.evidence is not None
            ]
            found.append(draw.Path(draw.plain(m.id), at, worths_, marks))
    note = (
        "Those held back, then those with the most evidence. A cross marks where one was held back."
    )
    return Section("trajectories", "Worth over time", note, partial(draw.paths, found=found))


def success(facts: Facts) -> Section:
    """Success of the whole store over time."""
    size = max(1, -(-len(facts.rewards) // PERIODS))
    parts = [facts.rewards[i : i + size] for i in range(0, len(facts.rewards), size)]
    found = [
        (_moment(part[len(part) // 2][0]), rate("", [reward for _, reward in part]))
        for part in parts
    ]
    moments = [_moment(at) for at in facts.held_back]
    note = "All settled runs of the store, all namespaces. What happened, not why: the tasks may have changed too."
    plot = partial(draw.periods, found=found, held_back=moments)
    return Section("success", "Success over time", note, plot)


def before_after(facts: Facts) -> Section:
    """Success before and after suppressions."""
    found = before_and_after(facts.rewards, facts.held_back)
    note = "All settled runs of the store. What happened, not why: the tasks may have changed too."
    title = "Success before and after suppressions"
    return Section("before_after", title, note, partial(draw.rates, found=found), len(found))


def by_namespace(facts: Facts) -> Section:
    """Success by namespace."""
    found = [
        rate("/".join(n) or "(no namespace)", runs.values())
        for n, runs in facts.spaces.items()
        if runs
    ]
    return _by(
        "namespace", "Success by namespace", "Settled runs that showed a memory of it.", found
    )


def by_metadata(facts: Facts) -> Section:
    """Success by the values of metadata keys."""
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for m in facts.memories:
        for key, value in m.metadata.items():
            if isinstance(value, (str, bool, int)):
                values[key][str(value)].append(m.id)
    found = [
        rate(f"{key} = {value}", runs.values())
        for key, groups in sorted(values.items())
        if 2 <= len(groups) <= MOST_VALUES
        for value, ids in sorted(groups.items())
        if (runs := distinct_runs(facts.settlements.get(i, ()) for i in ids))
    ]
    note = f"Settled runs that showed a memory with it; a run may count for several. Keys with 2 to {MOST_VALUES} values."
    return _by("metadata", "Success by metadata", note, found)


def by_context(facts: Facts) -> Section:
    """Success by context, where contexts are recorded."""
    runs: dict[str, dict[str, float]] = defaultdict(dict)
    for settled in facts.settlements.values():
        for s in settled:
            if s.context:
                runs[s.context][s.episode_id] = s.reward
    found = [rate(name, some.values()) for name, some in sorted(runs.items())]
    return _by(
        "context", "Success by context", "Settled runs by the context recorded with them.", found
    )


def in_contexts(facts: Facts) -> Section:
    """The worth of single memories by context."""
    cells: dict[str, dict[str, Evidence]] = {}
    for m in sorted(facts.memories, key=lambda m: -m.evidence.effective_size):
        parts: dict[str, Evidence] = defaultdict(Evidence)
        for s in facts.settlements.get(m.id, ()):
            if s.context:
                parts[s.context] += s.evidence
        if len(parts) > 1 and len(cells) < MOST_ROWS // 2:
            cells[m.id] = parts
    names, contexts = list(cells), sorted({c for parts in cells.values() for c in parts})[:12]
    found = {
        (i, j): (cells[name][context].worth, cells[name][context].retrievals)
        for i, name in enumerate(names)
        for j, context in enumerate(contexts)
        if context in cells[name]
    }
    note = "Worth (and runs) of memories in more than one context, those with the most evidence."
    plot = partial(draw.grid, names=names, contexts=contexts, cells=found) if found else None
    return Section("worth_by_context", "Worth by context", note, plot, len(names) + 1)


def by_tool_path(facts: Facts) -> Section:
    """Success by the tools that the runs called."""
    found = [Rate(p.name, p.settled, p.success) for p in facts.paths if p.settled]
    note = (
        "Settled runs by the tools that they called, in order. What an agent does follows from the memories that it was "
        "shown, too: so it is no kind of task, and no worth is compared within it."
    )
    return _by("tool_path", "Success by tool path", note, found)


def alarms(facts: Facts) -> Section:
    """Which memories were high and have declined, and since when."""
    rows = [
        (
            d.memory_id,
            f"{d.before:.2f} over {d.before_size:.0f} retrievals",
            f"{d.now:.2f} over {d.size:.0f}",
            f"{d.expected:.2f}",
            f"{_moment(d.since):%Y-%m-%d %H:%M}",
        )
        for d in facts.declines
    ]
    note = (
        "Memories that were high, and since then do worse than was to be expected in the same runs: to be checked again. By "
        "Bayesian online change points."
    )
    heads = ("memory", "before", "now", "to be expected", "last good run")
    return Section("alarms", "Drift alarms", note, table=(heads, rows))


def causes(facts: Facts) -> Section:
    """What showing memories does, where draws have held them out: cause beside association."""
    rows = [
        (
            m.memory_id,
            f"{m.worth:.2f}",
            m.shown,
            m.held_out,
            "not identifiable"
            if m.value is None
            else f"{m.value:+.3f} ({m.low:+.3f} to {m.high:+.3f})",
            f"{facts.calibrated[m.memory_id]:+.3f}" if m.memory_id in facts.calibrated else "-",
        )
        for m in facts.lifts
    ]
    note = (
        "Worth is association, the lift is cause: the success rate in runs that showed a memory minus that in runs that did "
        "without by a draw. A stale memory can have a low worth and no lift, because nothing better is stored. "
    )
    if facts.uncalibrated:
        note += f"No calibrated worth: {facts.uncalibrated}."
    else:
        note += "Calibrated: the lift that worth and exposure foretell, learnt from all of them."
    heads = ("memory", "worth", "shown", "held out", "lift", "calibrated")
    return Section("causes", "Causes", note, table=(heads, rows))


def assumptions(facts: Facts) -> Section:
    """What the data say of what worth rests on."""
    rows = [(f.assumption, f.state, f.why, f.remedy or "-") for f in facts.findings]
    note = "What the paper assumes, and whether the latest runs support it."
    heads = ("", "", "why", "what to do")
    return Section("assumptions", "Assumptions", note, table=(heads, rows))


def sources(facts: Facts) -> Section:
    """Whose outcomes decide."""
    heads = ("source", "runs that it decides", "share", "voters", "loudest voter", "its share")
    rows = [
        (s.source, s.runs, f"{s.share:.0%}", s.voters, s.loudest or "-", f"{s.loudest_share:.0%}")
        for s in facts.sources
    ]
    loud = ", ".join(f"{s.loudest} of {s.source}" for s in facts.sources if s.is_loud)
    note = "Of several outcomes of one run one decides." + (
        f" Alarm: {loud} decides more than half, and others speak too." if loud else ""
    )
    return Section("sources", "Sources of outcomes", note, table=(heads, rows))


def drift(facts: Facts) -> Section:
    """Which memories have become worse."""
    found = []
    for m in facts.memories:
        settled = facts.settlements.get(m.id, ())
        if len(settled) >= max(4, facts.policy.v_min):
            middle = len(settled) // 2
            earlier, later = _sum(settled[:middle]), _sum(settled[middle:])
            belief_ = facts.policy.belief
            declined = belief_(later).high < belief_(earlier).low
            worth_ = (earlier.worth, later.worth)
            found.append(draw.Halves(m.id, *worth_, len(settled), declined))
    note = (
        "The later half of each memory's runs against the earlier; below the line it does worse than it did. Red where "
        "the 90 % intervals do not overlap."
    )
    plot = partial(draw.halves, found=found) if found else None
    return Section("drift", "Drift", note, plot)


def queue(facts: Facts) -> Section:
    """What wants a person."""
    heads = (
        "memory",
        "text",
        "why",
        "reason",
        "approving it",
        "success rate",
        "the policy by itself",
    )
    rows = [
        (
            p.memory_id if p.other_id is None else f"{p.memory_id} + {p.other_id}",
            p.text if p.other_text is None else f"{p.text} + {p.other_text}",
            p.why,
            p.reason,
            f"{p.action}s" if not p.action.endswith("y") else "re-verifies",
            p.belief,
            p.policy_action,
        )
        for p in facts.queue
    ]
    note = f"What wants a person, the most valuable first, {QUEUE} at most."
    return Section("review", "Review", note, table=(heads, rows))


SECTIONS = (
    health,
    worths,
    trajectories,
    success,
    before_after,
    by_namespace,
    by_metadata,
    by_context,
    in_contexts,
    by_tool_path,
    drift,
    alarms,
    causes,
    assumptions,
    sources,
    queue,
)


def before_and_after(
    rewards: Sequence[tuple[float, float]], held_back: Sequence[float]
) -> list[Rate]:
    """Success before the first suppression, between the first and the last, and after the last.

    Args:
        rewards: When each run was settled, Unix time, and its reward in [0, 1].
        held_back: When memories were suppressed, Unix time, oldest first.

    Examples:
        >>> runs = [(1.0, 0.0), (2.0, 0.0), (3.0, 1.0), (4.0, 1.0)]
        >>> [(name, count) for name, count, _ in before_and_after(runs, [2.0])]
        [('before', 2), ('after', 2)]
    """
    if not held_back:
        return [rate("no suppression yet", [r for _, r in rewards])]
    first, last = held_back[0], held_back[-1]
    parts: dict[str, list[float]] = {"before": [], "between first and last": [], "after": []}
    if first == last:
        del parts["between first and last"]
    for at, reward in rewards:
        name = "before" if at <= first else "after" if at > last else "between first and last"
        parts[name].append(reward)
    return [rate(name, some) for name, some in parts.items()]


def rate(name: str, rewards: Iterable[float]) -> Rate:
    """The success rate of some runs, each reward in [0, 1]."""
    listed = list(rewards)
    return Rate(name, len(listed), belief_of(listed))


# -- inside -----------------------------------------------------------------------------------------------------------


def _by(name: str, title: str, note: str, found: Sequence[Rate]) -> Section:
    """A section of rates; with one group only it would say nothing that the others do not."""
    if len(found) < 2:
        return Section(f"by_{name}", title, note)
    shown = list(found[:MOST_ROWS])
    more = f" The first {MOST_ROWS} of {len(found)}." if len(found) > MOST_ROWS else ""
    plot = partial(draw.rates, found=shown)
    return Section(f"by_{name}", title, note + more, plot, len(shown))


def drawn(memories: Sequence[Memory]) -> list[Memory]:
    """The memories whose worth is drawn over time."""
    held = (Status.SUPPRESSED, Status.WITHHELD)
    ordered = sorted(memories, key=lambda m: (m.status not in held, -m.evidence.effective_size))
    few = [m for m in ordered if m.status in held][: TRAJECTORIES // 2]
    return [*few, *(m for m in ordered if m.status not in held)][:TRAJECTORIES]


def distinct_runs(settled: Iterable[Sequence[Settlement]]) -> dict[str, float]:
    """The distinct runs among the settlements of several memories: id and reward."""
    return {s.episode_id: s.reward for some in settled for s in some}


def _sum(settled: Sequence[Settlement]) -> Evidence:
    return sum((s.evidence for s in settled), Evidence())


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
