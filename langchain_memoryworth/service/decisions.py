"""What every governed store offers to decide about memories: hold back, serve, pin, take out of service, try, undo."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_memoryworth.records import (
    Action,
    Namespace,
)
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.service.namespaces import called
from langchain_memoryworth.service.open_store import as_ids
from langchain_memoryworth.twins import awaitable


class Decisions:
    """The part of a governed store by which people overrule the numbers.

    Attributes:
        governor: The use cases behind it.
    """

    governor: Governor

    def restore(
        self,
        memory_id: str | Sequence[str],
        *,
        reason: str = "",
        actor: str = "user",
        namespace: Sequence[str] | str | None = None,
    ) -> None:
        """Serve memories again; only what happens from now on can suppress them again."""
        self.governor.steward.restore(
            self._place(namespace), as_ids(memory_id), actor=actor, reason=reason
        )

    arestore = awaitable(restore)

    def pin(
        self,
        memory_id: str | Sequence[str],
        *,
        reason: str = "",
        actor: str = "user",
        namespace: Sequence[str] | str | None = None,
    ) -> None:
        """Never hold memories back, whatever the evidence says."""
        self.governor.steward.pin(
            self._place(namespace), as_ids(memory_id), actor=actor, reason=reason
        )

    apin = awaitable(pin)

    def unpin(
        self,
        memory_id: str | Sequence[str],
        *,
        reason: str = "",
        actor: str = "user",
        namespace: Sequence[str] | str | None = None,
    ) -> None:
        """Leave memories to the policy again."""
        self.governor.steward.unpin(
            self._place(namespace), as_ids(memory_id), actor=actor, reason=reason
        )

    aunpin = awaitable(unpin)

    def deprecate(
        self,
        memory_id: str | Sequence[str],
        *,
        reason: str = "",
        actor: str = "user",
        namespace: Sequence[str] | str | None = None,
    ) -> None:
        """Take memories out of service for good; they are kept for the record, and `restore` brings them back.

        Raises:
            InvalidTransitionError: If one of them is pinned.
        """
        self.governor.steward.deprecate(
            self._place(namespace), as_ids(memory_id), actor=actor, reason=reason
        )

    adeprecate = awaitable(deprecate)

    def suppress(
        self,
        memory_id: str | Sequence[str],
        *,
        reason: str = "",
        actor: str = "user",
        namespace: Sequence[str] | str | None = None,
    ) -> None:
        """Hold memories back, on probation at most, until `restore`; the evidence goes on, and does not lift it.

        The policy's own suppression is lifted by evidence; a memory that should not even be tried is for `deprecate`.

        Raises:
            InvalidTransitionError: If one of them is pinned or deprecated; then nothing is changed.
        """
        self.governor.steward.suppress(
            self._place(namespace), as_ids(memory_id), actor=actor, reason=reason
        )

    asuppress = awaitable(suppress)

    def undo(self, action: int | Action, *, reason: str = "", actor: str = "user") -> Action:
        """Take a change of status back: the newest of its memory; everything but erasure can be.

        Args:
            action: Its number, or the action as `history` gives it.
            reason: Why.
            actor: Who.

        Returns:
            The action that took it back, which can be taken back likewise.

        Raises:
            InvalidInputError: If it cannot be taken back, or a later change of the memory stands before it.
        """
        number = action.number if isinstance(action, Action) else action
        return self.governor.steward.undo(number, actor=actor, reason=reason)

    aundo = awaitable(undo)

    def history(
        self, memory_id: str, *, namespace: Sequence[str] | str | None = None
    ) -> tuple[Action, ...]:
        """Everything decided about a memory, oldest first: who, when, why, on what evidence.

        Raises:
            MemoryNotFoundError: If there never was one by that id, or it was erased.
        """
        return self.governor.steward.history(self._place(namespace), memory_id)

    ahistory = awaitable(history)

    def actions(self, limit: int = 100) -> tuple[Action, ...]:
        """The newest decisions about all memories, newest first; those about erased ones name no memory."""
        return self.governor.steward.actions(limit)

    aactions = awaitable(actions)

    # -- trials -----------------------------------------------------------------------------------------------

    def hold_out(
        self,
        memory_id: str | Sequence[str],
        *,
        rate: float = 0.5,
        reason: str = "",
        actor: str = "user",
        namespace: Sequence[str] | str | None = None,
    ) -> None:
        """Begin a randomised trial: leave memories out of the prompts of some episodes that retrieve them, by a draw.

        The next one takes the place, so that k stays k. Worth says what goes with a memory; only a trial says what it
        causes, see `lift`. It goes on until `end_hold_out`, also in other processes.

        Args:
            memory_id: One id or several, drawn about one by one.
            rate: Share of the episodes that do without, in (0, 1); at 0.5 the answer takes the fewest episodes.
            reason: Why.
            actor: Who.
            namespace: None means the store's own.

        Raises:
            InvalidInputError: If the rate is not in (0, 1).
            InvalidTransitionError: If a memory is pinned or deprecated.
        """
        self.governor.steward.hold_out(
            self._place(namespace), as_ids(memory_id), rate, actor=actor, reason=reason
        )

    ahold_out = awaitable(hold_out)

    def end_hold_out(
        self,
        memory_id: str | Sequence[str],
        *,
        reason: str = "",
        actor: str = "user",
        namespace: Sequence[str] | str | None = None,
    ) -> None:
        """End the trial of memories; what it found out stays."""
        self.governor.steward.end_hold_out(
            self._place(namespace), as_ids(memory_id), actor=actor, reason=reason
        )

    aend_hold_out = awaitable(end_hold_out)

    def trials(self, *, namespace: Sequence[str] | str | None = None) -> dict[str, float]:
        """The memories in a trial of their own, and the share of episodes that do without each."""
        return self.governor.steward.trials(self._place(namespace))

    atrials = awaitable(trials)

    def _place(self, namespace: Sequence[str] | str | None) -> Namespace:
        return called(namespace, self.governor.namespace)
