"""What every governed store tells of its memories beside their worth: effects, causes, companions, change, assumptions."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_memoryworth.estimators.assumptions import Finding
from langchain_memoryworth.estimators.hitchhikers import Companions
from langchain_memoryworth.estimators.staleness import Decline
from langchain_memoryworth.records import (
    Advantage,
    CalibratedWorth,
    ContextWorth,
    MemoryEffect,
    MemoryLift,
    Namespace,
    ToolPath,
    TrialPlan,
)
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.service.namespaces import called
from langchain_memoryworth.service.open_store import as_ids
from langchain_memoryworth.service.plans import Aim
from langchain_memoryworth.twins import awaitable


class Insights:
    """The part of a governed store that answers questions.

    Attributes:
        governor: The use cases behind it.
    """

    governor: Governor

    def effects(
        self,
        memory_id: str | Sequence[str] | None = None,
        *,
        exact: bool = False,
        namespace: Sequence[str] | str | None = None,
    ) -> tuple[MemoryEffect, ...]:
        """What each memory adds to success beside its companions and in its contexts, the most harmful first.

        Worth is the success of the episodes that a memory was in, so it has its companions' share in it. An effect has that
        taken out, as far as the ledger can tell.

        Args:
            memory_id: One id or several; None means all.
            exact: The batch regression on the latest 50,000 episodes, instead of the sums that the ledger keeps. It takes 4,000
                memories: those asked about, and beside them the ones that were shown most.
            namespace: None means the store's own.

        Raises:
            InvalidInputError: If more memories than that are asked about for `exact`.
            MemoryNotFoundError: If there is none by one of the ids.
        """
        ids = None if memory_id is None else as_ids(memory_id)
        return self.governor.analyst.effects(self._within(namespace), ids, exact=exact)

    aeffects = awaitable(effects)

    def lift(
        self,
        memory_id: str | Sequence[str] | None = None,
        *,
        level: float = 0.9,
        namespace: Sequence[str] | str | None = None,
    ) -> tuple[MemoryLift, ...]:
        """What showing memories does to success, from the draws of `hold_out` and `Policy.hold_out`, within contexts.

        Cause and association are two numbers: a stale memory can have a low worth and no lift, because nothing better is
        stored; a hitchhiker a high worth and no lift.

        Args:
            memory_id: One id or several; None means all that were ever drawn about.
            level: Probability within the bounds, in (0, 1).
            namespace: None means the store's own.

        Returns:
            One for each memory, in order; without draws both ways its value is None.

        Raises:
            MemoryNotFoundError: If there is none by one of the ids.
        """
        ids = None if memory_id is None else as_ids(memory_id)
        return self.governor.analyst.lifts(self._within(namespace), ids, level)

    alift = awaitable(lift)

    def plan_trial(
        self,
        memory_id: str | Sequence[str] | None = None,
        *,
        lift: float = 0.1,
        rate: float | None = None,
        power: float = 0.8,
        level: float = 0.95,
        namespace: Sequence[str] | str | None = None,
    ) -> tuple[TrialPlan, ...]:
        """How many retrievals, episodes and days it takes until a trial of memories shows a lift of some size.

        `n = (z + z')^2 p (1 - p) / (rate (1 - rate) lift^2)` retrievals (7.85 for z at 80% power and 95%), with the success rate p
        of the namespace's latest 50,000 episodes; less what was drawn about already, over the share of the episodes that
        retrieve the memory.

        Args:
            memory_id: One id or several; None means all that are held out now.
            lift: Smallest difference in success that should not be missed, in [-1, 1] and not 0.
            rate: Share of the retrievals that do without the memory, in (0, 1); None means that at which it is held out now,
                or one half, which takes the fewest.
            power: Probability of seeing such a lift, in (0, 1).
            level: Of the two-sided interval that must exclude 0, in (0, 1).
            namespace: None means the store's own.

        Returns:
            One for each memory, in order.

        Raises:
            InvalidInputError: If a number is out of its range.
            MemoryNotFoundError: If there is none by one of the ids.
        """
        ids = None if memory_id is None else as_ids(memory_id)
        aim = Aim(lift, rate, power, level)
        return self.governor.analyst.plans(self._within(namespace), ids, aim)

    aplan_trial = awaitable(plan_trial)

    def calibrated_worth(
        self, *, namespace: Sequence[str] | str | None = None
    ) -> tuple[CalibratedWorth, ...]:
        """What worth says of cause: the lifts of all memories drawn about, foretold from worth and exposure.

        One memory's lift is noisy, and its worth is mixed up with its tasks and companions. The trials of a whole namespace say
        how worth has to be read there; so a memory that was never held out gets a number, too.

        Args:
            namespace: None means the store's own.

        Returns:
            One for each memory, the most harmful first.

        Raises:
            NotIdentifiableError: If 2% or less of the retrievals drawn about were held out, where the regression is erratic,
                or fewer than ten memories were both shown and held out.
        """
        return self.governor.analyst.calibrated(self._within(namespace))

    acalibrated_worth = awaitable(calibrated_worth)

    def companions(
        self, *, exact: bool = False, namespace: Sequence[str] | str | None = None
    ) -> tuple[Companions, ...]:
        """Pairs of memories that are almost always shown together, so that outcomes cannot tell them apart.

        Each says what would separate them: a trial of so many retrievals, merging, or diversity.

        Args:
            exact: Say of each pair what the episodes that did show them apart tell, by the regression of `effects`: the effect
                of the first minus that of the second, with its deviation. It takes the 4,000 memories of the pairs shown most, and has
                no difference for pairs beyond these.
            namespace: None means the store's own.
        """
        return self.governor.analyst.companions(self._within(namespace), exact=exact)

    acompanions = awaitable(companions)

    def stale(self, *, namespace: Sequence[str] | str | None = None) -> tuple[Decline, ...]:
        """Memories that were good and have declined against what was to be expected: when, and on what evidence.

        To be checked again, not to be deleted. `since` is the time at which the last good episode began, Unix seconds.
        """
        return self.governor.analyst.stale(self._within(namespace))

    astale = awaitable(stale)

    def by_context(
        self, memory_id: str, *, namespace: Sequence[str] | str | None = None
    ) -> tuple[ContextWorth, ...]:
        """The worth of a memory over all its episodes, and then in each context, with the base rate of each.

        A context is what `memory_context` in the run's metadata says, the retriever's `context`, or `episode(context=...)`.

        Raises:
            MemoryNotFoundError: If there is none by that id.
        """
        return self.governor.analyst.by_context(self._within(namespace), memory_id)

    aby_context = awaitable(by_context)

    def advantages(self, *, namespace: Sequence[str] | str | None = None) -> tuple[Advantage, ...]:
        """The worth of each memory above the base rates of its contexts, pooled by evidence, the highest first.

        So a specialist of hard tasks is compared with what succeeds in hard tasks; averaging the worths of the contexts
        themselves would give the plain worth back. Episodes without a context are one of their own.
        """
        return self.governor.analyst.advantages(self._within(namespace))

    aadvantages = awaitable(advantages)

    def base_rate(
        self, context: str = "", *, namespace: Sequence[str] | str | None = None
    ) -> float:
        """Share of success of the episodes of a namespace, or of one context of it; 0.5 while there are none."""
        return self.governor.analyst.base_rate(self._within(namespace), context)

    abase_rate = awaitable(base_rate)

    def tool_paths(self, *, namespace: Sequence[str] | str | None = None) -> tuple[ToolPath, ...]:
        """How the latest 50,000 runs went by the tools that they called, the most frequent path first.

        The callback handler sees the tools below a run; the middleware and the outcome node read them from the messages of
        the turn. What an agent does is a consequence of the memories that it was shown: good for finding where runs go wrong,
        and not for `context`, by which worth is compared. Runs that were rolled up are not in it.

        Args:
            namespace: Of the memories that the runs showed; None means the store's own.
        """
        return self.governor.analyst.tool_paths(self._within(namespace))

    atool_paths = awaitable(tool_paths)

    def assumptions(self, *, namespace: Sequence[str] | str | None = None) -> tuple[Finding, ...]:
        """Which of the paper's assumptions A1 to A6 the latest episodes support, and what to do where they do not."""
        return self.governor.analyst.assumptions(self._within(namespace))

    aassumptions = awaitable(assumptions)

    def _within(self, namespace: Sequence[str] | str | None) -> Namespace:
        return called(namespace, self.governor.namespace)
