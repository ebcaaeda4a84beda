"""What the ledger tells of causes, companions, change and the paper's assumptions. Reads only; the formulas are elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from langchain_memoryworth.errors import MemoryNotFoundError, NotIdentifiableError
from langchain_memoryworth.estimators import assumptions as assume
from langchain_memoryworth.estimators.base_rates import MARGIN
from langchain_memoryworth.estimators.credible import belief_of
from langchain_memoryworth.estimators.drift import States, changed
from langchain_memoryworth.estimators.effects import chance_below, deviation, effect
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.estimators.hitchhikers import Companions
from langchain_memoryworth.estimators.lift import Lift, calibrated
from langchain_memoryworth.estimators.paths import typical
from langchain_memoryworth.estimators.ridge import LIMIT, Ridge
from langchain_memoryworth.estimators.staleness import Decline, stale
from langchain_memoryworth.estimators.strata import stratified_worth
from langchain_memoryworth.ledger import rates, regimes, standing
from langchain_memoryworth.ledger.episodes import path_of
from langchain_memoryworth.ledger.schema import COUNTERS
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.ledger.trials import Trials
from langchain_memoryworth.records import (
    LOOK_BACK,
    Advantage,
    CalibratedWorth,
    ContextWorth,
    MemoryEffect,
    MemoryLift,
    Namespace,
    ToolPath,
    TrialPlan,
    namespace_key,
)
from langchain_memoryworth.service.open_store import OpenStore
from langchain_memoryworth.service.plans import Aim, plan
from langchain_memoryworth.service.shown import (
    ENOUGH,
    by_episode,
    coupling,
    latest,
    regression,
    together,
)

PERIODS = 10
_TYPICAL = 3


class Analyst:
    """Reports on one database; ask for it with `governor.analyst`, which brings it up to date.

    Args:
        store: What is reported on.
    """

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._database = store.database
        self._trials = Trials(store.database)

    # -- association ------------------------------------------------------------------------------------------

    def by_context(self, namespace: Namespace, memory_id: str) -> tuple[ContextWorth, ...]:
        """The worth of a memory over all its episodes, and then in each context."""
        with self._database.read() as session:
            memory = self._memories(session, namespace).get(memory_id)
            if memory is None:
                raise MemoryNotFoundError.of(namespace, [memory_id])
            whole = {"": memory.evidence, **standing.by_context(session, memory.seq)}
            places = [rates.Place(namespace_key(namespace), context) for context in whole]
            base = rates.read(session, places)
        return tuple(ContextWorth(p.context, whole[p.context], base.base(p)) for p in places)

    def base_rate(self, namespace: Namespace, context: str) -> float:
        """Share of success of the episodes of a namespace, or of one context of it, see `Rates.base`."""
        place = rates.Place(namespace_key(namespace), context)
        with self._database.read() as session:
            return rates.read(session, [place]).base(place)

    def effects(
        self, namespace: Namespace, ids: Sequence[str] | None, *, exact: bool
    ) -> tuple[MemoryEffect, ...]:
        """What memories add to success beside their companions and in their contexts, the most harmful first."""
        with self._database.read() as session:
            everyone = self._memories(session, namespace)
            shown = latest(session, namespace) if exact else []
        asked = list(everyone if ids is None else dict.fromkeys(ids))
        if absent := [i for i in asked if i not in everyone]:
            raise MemoryNotFoundError.of(namespace, absent)
        known = {i: everyone[i] for i in asked}
        if not known:
            return ()
        if exact:
            fit = regression(
                shown, known if ids is None else _beside_the_most_shown(known, everyone)
            )
            mean, spread = fit.effect[: len(known)], fit.deviation[: len(known)]
        else:
            surprises = np.array([s.evidence.surprise for s in known.values()]) / UNIT
            sizes = np.array([s.evidence.size for s in known.values()]) / UNIT
            mean, spread = np.asarray(effect(surprises, sizes)), deviation(sizes)
        harm = chance_below(mean, spread)
        found = [
            MemoryEffect(i, float(m), float(d), float(h), s.evidence.retrievals)
            for (i, s), m, d, h in zip(known.items(), mean, spread, harm, strict=True)
        ]
        return tuple(sorted(found, key=lambda e: (e.effect, e.memory_id)))

    def advantages(self, namespace: Namespace) -> tuple[Advantage, ...]:
        """The worth of each memory above the base rates of its contexts, the highest first; see `stratified_worth`."""
        with self._database.read() as session:
            known = self._memories(session, namespace)
            above = self._above(session, namespace, known).tolist()
        found = [
            Advantage(i, value, s.evidence.retrievals)
            for (i, s), value in zip(known.items(), above, strict=True)
        ]
        return tuple(sorted(found, key=lambda a: (-a.value, a.memory_id)))

    def tool_paths(self, namespace: Namespace) -> tuple[ToolPath, ...]:
        """How the latest runs went by the tools that they called, the most frequent path first."""
        with self._database.read() as session:
            rows = session.rows(_CALLED, namespace=namespace_key(namespace), episodes=LOOK_BACK)
        runs: dict[tuple[str, ...], list[float | None]] = defaultdict(list)
        shown: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for (_, column, reward), some in groupby(rows, key=itemgetter(0, 1, 2)):
            path = path_of(column)
            runs[path].append(reward)
            shown[path].update({memory_id for *_, memory_id in some})
        everywhere: Counter[str] = Counter()
        for some_shown in shown.values():
            everywhere.update(some_shown)
        count = sum(map(len, runs.values()))
        found = []
        for path, rewards in runs.items():
            settled = [r for r in rewards if r is not None]
            more = typical(shown[path], len(rewards), everywhere, count)[:_TYPICAL]
            found.append(
                ToolPath(path, len(rewards), len(settled), belief_of(settled), tuple(more))
            )
        return tuple(sorted(found, key=lambda p: (-p.episodes, p.path)))

    def companions(self, namespace: Namespace, *, exact: bool) -> tuple[Companions, ...]:
        """Pairs of memories that are almost always shown together, so that outcomes cannot tell them apart."""
        with self._database.read() as session:
            everyone = self._memories(session, namespace)
            shown = latest(session, namespace)
        pairs = together(shown, {s.seq: i for i, s in everyone.items()}).report()
        if not exact or not pairs:
            return tuple(pairs)
        reported = list(dict.fromkeys(str(m) for p in pairs for m in p[:2]))[:LIMIT]
        number: dict[Hashable, int] = {i: n for n, i in enumerate(reported)}
        known = {i: everyone[i] for i in reported}
        fit = regression(shown, _beside_the_most_shown(known, everyone))
        return tuple(_told_apart(p, fit, number) for p in pairs)

    # -- cause ------------------------------------------------------------------------------------------------

    def lifts(
        self, namespace: Namespace, ids: Sequence[str] | None, level: float
    ) -> tuple[MemoryLift, ...]:
        """What the draws about memories have told; see `Trials.lifts`."""
        return tuple(self._trials.lifts(namespace, ids, level=level))

    def plans(
        self, namespace: Namespace, ids: Sequence[str] | None, aim: Aim
    ) -> tuple[TrialPlan, ...]:
        """How long trials of memories take; see `plans.plan`."""
        return plan(self._database, self._store.policy, namespace, ids, aim)

    def calibrated(self, namespace: Namespace) -> tuple[CalibratedWorth, ...]:
        """The lift that each memory's worth within contexts foretells, the most harmful first; see `lift.calibrated`."""
        trials = {m.memory_id: m for m in self._trials.lifts(namespace, None)}
        held_out = sum(m.held_out for m in trials.values())
        drawn = held_out + sum(m.shown for m in trials.values())
        if not drawn:
            raise NotIdentifiableError("nothing was ever held out here; see hold_out", value=0)
        with self._database.read() as session:
            known = self._memories(session, namespace)
            above = self._above(session, namespace, known)
        lifts = [trials.get(i) for i in known]
        retrievals = np.array([s.evidence.retrievals for s in known.values()])
        values = calibrated(_lifts(lifts), above, retrievals, share=held_out / drawn)
        found = map(CalibratedWorth, known, values.tolist(), above.tolist(), retrievals.tolist())
        return tuple(sorted(found, key=lambda c: (c.value, c.memory_id)))

    def _above(
        self, session: Session, namespace: Namespace, known: Mapping[str, standing.Standing]
    ) -> NDArray[np.float64]:
        """The worth of each memory above the base rates of its contexts, shape (m,)."""
        space = namespace_key(namespace)
        parts = {s.seq: {"": s.evidence} for s in known.values()}
        for seq, context, *counters in session.rows(_STRATA, namespace=space):
            if seq in parts:
                stratum = Evidence(*counters)
                parts[seq][context] = stratum
                parts[seq][""] -= stratum
        names = list(dict.fromkeys(context for own in parts.values() for context in own))
        base = rates.read(session, [rates.Place(space, context) for context in names])
        table = [[own.get(context, _NOTHING) for context in names] for own in parts.values()]
        return stratified_worth(
            [[e.worth for e in row] for row in table],
            [[max(0.0, e.effective_size) for e in row] for row in table],
            [base.base(rates.Place(space, context)) for context in names],
        )

    # -- change -----------------------------------------------------------------------------------------------

    def stale(self, namespace: Namespace) -> tuple[Decline, ...]:
        """Memories that were good and have declined, against what was to be expected, the surest first."""
        policy = self._store.policy
        margin = MARGIN if policy.margin_low is None else policy.margin_low
        with self._database.read() as session:
            ids, states = self._states(session, namespace)
        if not ids:
            return ()
        return tuple(stale(ids, states, margin=margin, flip=policy.flip_rate))

    def assumptions(self, namespace: Namespace) -> tuple[assume.Finding, ...]:
        """Which of the paper's assumptions A1 to A6 the latest episodes support."""
        with self._database.read() as session:
            known = self._memories(session, namespace)
            shown = latest(session, namespace)
            _, states = self._states(session, namespace)
        policy = self._store.policy
        episodes = [next(rows) for rows in by_episode(shown)]
        times = [len(chunk) for chunk in np.array_split(np.arange(len(episodes)), PERIODS)]
        rewards = np.array([e.reward for e in episodes])
        sums = [float(chunk.sum()) for chunk in np.array_split(rewards, PERIODS)]
        retrievals: dict[int, int] = defaultdict(int)
        for x in shown:
            retrievals[x.seq] += 1
        by_context: dict[str, list[float]] = defaultdict(list)
        for e in episodes:
            if e.context:
                by_context[e.context].append(e.reward)
        floor = round(policy.w_min * UNIT) + 1
        return (
            assume.stationarity(sums, times),
            assume.exploration([retrievals[s.seq] for s in known.values()], len(episodes)),
            assume.independence(
                coupling(shown, {s.seq: i for i, s in known.items()}),
                [sum(r) for r in by_context.values()],
                [len(r) for r in by_context.values()],
            ),
            assume.bounded_outcomes(),
            assume.minimum_weight(
                sum(x.weight <= floor for x in shown), len(shown), w_min=policy.w_min
            ),
            assume.constant_rates(changed(states)),
        )

    # -- inside -----------------------------------------------------------------------------------------------

    def _memories(self, session: Session, namespace: Namespace) -> dict[str, standing.Standing]:
        rows = session.rows(_LIVE, namespace=namespace_key(namespace))
        return {r[0]: standing.standing_of(r[1:]) for r in rows}

    def _states(self, session: Session, namespace: Namespace) -> tuple[list[str], States]:
        """The change detectors of the memories with enough retrievals."""
        known = self._memories(session, namespace)
        enough = {i: s for i, s in known.items() if s.evidence.retrievals >= ENOUGH}
        found = regimes.states(session, list(enough.values()))
        states = [found[s.seq] for s in enough.values()]
        return list(enough), np.concatenate(states) if states else regimes.no_states()


def _beside_the_most_shown(
    asked: Mapping[str, standing.Standing], everyone: Mapping[str, standing.Standing]
) -> dict[str, standing.Standing]:
    """Those asked about, and as many others as one regression takes: what they were shown with is not to be theirs."""
    others = sorted(
        (i for i in everyone if i not in asked), key=lambda i: -everyone[i].evidence.retrievals
    )
    return {**asked, **{i: everyone[i] for i in others[: max(0, LIMIT - len(asked))]}}


def _told_apart(pair: Companions, fit: Ridge, number: Mapping[Hashable, int]) -> Companions:
    """A pair with the difference of its effects, if the regression has both."""
    if pair.first not in number or pair.second not in number:
        return pair
    difference, deviation_ = fit.difference(number[pair.first], number[pair.second])
    return pair._replace(difference=difference, deviation=deviation_)


def _lifts(found: Sequence[MemoryLift | None]) -> Lift:
    """Lifts of memories as arrays; those that have none say nothing."""
    nan = float("nan")
    return Lift(
        value=np.array([nan if m is None or m.value is None else m.value for m in found]),
        low=np.array([-1.0 if m is None else m.low for m in found]),
        high=np.array([1.0 if m is None else m.high for m in found]),
        deviation=np.array([nan if m is None or m.value is None else m.deviation for m in found]),
        size=np.array([0.0 if m is None else m.effective_size for m in found]),
    )


_NOTHING = Evidence()
_CALLED = Statement(
    "SELECT x.eid, p.path, p.reward, m.id FROM exposures x JOIN memories m ON m.seq = x.seq "
    "JOIN episodes p ON p.eid = x.eid WHERE m.namespace = :namespace AND x.shown = 1 "
    f"AND x.{standing.LATEST} ORDER BY x.eid, x.seq"
)
_STRATA = Statement(
    f"SELECT s.seq, s.context, {', '.join(f's.{name}' for name in COUNTERS)} FROM strata s "
    "JOIN memories m ON m.seq = s.seq "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL AND s.size > 0 ORDER BY s.seq, s.context"
)
_LIVE = Statement(
    f"SELECT m.id, {standing.STANDING_COLUMNS} FROM memories m JOIN evidence e ON e.seq = m.seq "
    "WHERE m.namespace = :namespace AND m.retired_at IS NULL ORDER BY m.seq"
)
