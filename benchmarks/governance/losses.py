"""Where ours loses: in the worlds, with equal credit and on the real log, found by the script and not by us."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.governance.jobs import RULES, Results, only, share_closed
from benchmarks.governance.play import SCENARIOS

OURS = "**ours**"
WITH_LOG = "AUC within query clusters"
"""What only a page with the results of a log has."""
SCORES: tuple[tuple[str, str, Callable[..., float], int], ...] = (
    ("auc", "AUC", max, 3),
    ("within", WITH_LOG, max, 3),
    ("brier", "Brier", min, 4),
    ("log_loss", "log-loss", min, 4),
)
"""Field of a score, its heading, which of two is the better one, and digits."""


def losses(results: Results) -> str:
    lines = []
    for scenario in SCENARIOS:
        ours = share_closed(results, scenario.name, OURS)
        others = {
            r: share_closed(results, scenario.name, r) for r in RULES if r not in {OURS, "oracle"}
        }
        better = {r: v - ours for r, v in others.items() if v.mean() > ours.mean()}
        words = [
            f"{rule} by {d.mean():.2f} ± {d.std() / len(d) ** 0.5:.2f}"
            for rule, d in better.items()
        ]
        lines.append(f"- {scenario.name}: " + ("; ".join(words) if words else "nobody was better"))
    lines += [*lost_to_equal_credit(results), *lost_on_the_log(results)]
    return f"{_LOSSES}\n\n" + "\n".join(lines)


def lost_to_equal_credit(results: Results) -> list[str]:
    """The stream of facts, if nobody says what was used."""
    found = {(rule, way): (mean, error) for rule, way, mean, error in only(results, "credit")}
    ours = found[OURS, "equal"]
    better = {
        rule: value
        for (rule, way), value in found.items()
        if way == "equal" and rule != "oracle" and value[0] > ours[0]
    }
    if not better:
        return []
    words = ", ".join(f"{rule} {mean:.3f} ± {error:.3f}" for rule, (mean, error) in better.items())
    return [
        f"- facts, with equal credit (the default): {words} against {ours[0]:.3f} ± {ours[1]:.3f}.\n  "
        + _EQUAL.format(*(found[OURS, way][0] for way in ("the one used", "1/(1 + place)")))
    ]


def lost_on_the_log(results: Results) -> list[str]:
    """Each estimator of ours that another one foretells outcomes better than, by what."""
    found = only(results, "memento") or {}
    others = [score for name, score in found.items() if "effect" not in name]
    lines = []
    for name in (n for n in found if "effect" in n):
        lost = []
        for column, head, best, digits in SCORES:
            other = best(score[column] for score in others)
            if best(found[name][column], other) != found[name][column]:
                lost.append(f"{head} {found[name][column]:.{digits}f} ({other:.{digits}f})")
        if lost:
            lines.append(f"- a real log, {name}, and the best of the others: {', '.join(lost)}")
    return lines


_LOSSES = """\
Every rule that closed more of the regret in the same seeds, with the standard error of the difference; variants of ours
with one part changed are in the list too: one default cannot be the best everywhere. The last lines are about [credit by
use](#credit-by-use) and [a real log](#a-real-log)."""

_EQUAL = """\
Each memory learns mostly of the other two. Where one of k memories is used, say which (`used=`, or
  [a rule for every run](outcomes.md#credit-by-use)), or that it is the first: `Policy(credit="first")` has {:.3f}, `"reciprocal_rank"` {:.3f}."""
