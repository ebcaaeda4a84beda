"""The use cases of one open store, each at its place: whichever door a call comes in by, a rule holds.

No SQL and no formula.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.ledger.governance import Governance
from langchain_memoryworth.ledger.learnt import Learnt
from langchain_memoryworth.records import (
    Health,
    Status,
)
from langchain_memoryworth.service.collection import Collection
from langchain_memoryworth.service.journal import Journal
from langchain_memoryworth.service.open_store import OpenStore
from langchain_memoryworth.service.retrieval import Retrieval

if (
    TYPE_CHECKING
):  # loaded when they are asked for: most programs serve and record, and never look after anything
    from langchain_memoryworth.service.analyst import Analyst
    from langchain_memoryworth.service.carrier import Carrier
    from langchain_memoryworth.service.explainer import Explainer
    from langchain_memoryworth.service.reviewer import Reviewer
    from langchain_memoryworth.service.steward import Steward


class Governor(OpenStore):
    """One open store, without an interface of LangChain around it; what can be done with it is in its parts.

    Several governors, in this process or others, may work on one database. Arguments are those of `OpenStore`.
    """

    @cached_property
    def collection(self) -> Collection:
        """The memories."""
        return Collection(self)

    @cached_property
    def journal(self) -> Journal:
        """What happened in runs."""
        return Journal(self, self._learnt)

    @cached_property
    def retrieval(self) -> Retrieval:
        """Recalls for runs."""
        return Retrieval(self, self.journal)

    @cached_property
    def _learnt(self) -> Learnt:
        return Learnt(self.database)

    @cached_property
    def _governance(self) -> Governance:
        return Governance(self.database)

    @cached_property
    def _steward(self) -> Steward:
        from langchain_memoryworth.service.steward import Steward

        return Steward(self, self._learnt)

    @cached_property
    def _explainer(self) -> Explainer:
        from langchain_memoryworth.service.explainer import Explainer

        return Explainer(self)

    @cached_property
    def _reviewer(self) -> Reviewer:
        from langchain_memoryworth.service.reviewer import Reviewer

        return Reviewer(self)

    @cached_property
    def _analyst(self) -> Analyst:
        from langchain_memoryworth.service.analyst import Analyst

        return Analyst(self)

    @cached_property
    def _carrier(self) -> Carrier:
        from langchain_memoryworth.service.carrier import Carrier

        return Carrier(self)

    @property
    def steward(self) -> Steward:
        """What people do who look after the store, on the present state of the database."""
        self.refresh()
        return self._steward

    @property
    def explainer(self) -> Explainer:
        """Why things are as they are, on the present state of the database."""
        self.refresh()
        return self._explainer

    @property
    def reviewer(self) -> Reviewer:
        """What wants a person, on the present state of the database."""
        self.refresh()
        return self._reviewer

    @property
    def analyst(self) -> Analyst:
        """Reports, on the present state of the database."""
        self.refresh()
        return self._analyst

    @property
    def carrier(self) -> Carrier:
        """Export and import, on the present state of the database."""
        self.refresh()
        return self._carrier

    def health(self) -> Health:
        """Counts of the database, and what could not be recorded since this governor was opened."""
        self.refresh()
        by_status = self._governance.counts()
        episodes, pending, expired = self.ledger.counts(self.pending_since())
        return Health(
            memories=sum(by_status.values()),
            suppressed=by_status.get(Status.SUPPRESSED, 0),
            withheld=by_status.get(Status.WITHHELD, 0),
            pinned=by_status.get(Status.PINNED, 0),
            quarantined=by_status.get(Status.QUARANTINED, 0),
            deprecated=by_status.get(Status.DEPRECATED, 0),
            episodes=episodes,
            pending=pending,
            expired=expired,
            unattributed=self.losses.unattributed,
            reused=self.runs.reused,
            abandoned=self.runs.abandoned,
            loud=self._steward.loud(),
            waited=self.outbox.waited,
            exact_searches=self.replica.exact,
            failures=self.losses.failures,
            last_failure=self.losses.last,
        )


def governor_of(store: Any) -> Governor:
    """The governor behind whatever a user calls the store.

    Raises:
        InvalidInputError: If there is none.
    """
    governor = store if isinstance(store, Governor) else getattr(store, "governor", None)
    if not isinstance(governor, Governor):
        raise InvalidInputError(f"{store!r} is no store; give a MemoryWorthStore", value=store)
    return governor
