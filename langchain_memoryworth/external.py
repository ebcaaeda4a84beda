"""Memories that live elsewhere, in a store or a vector database of the user's: judged and recorded, never copied.

The database holds the id and a digest of the content. A changed content is a new version under the same id, as a changed
text is for the store's own memories, so it starts fresh, and finds its old evidence when it changes back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.governor import Governor
from langchain_memoryworth.ledger import Exposure
from langchain_memoryworth.recall import draw
from langchain_memoryworth.records import Arm, EpisodeKey, Namespace
from langchain_memoryworth.runs import RunEntry

OnChange = Literal["fresh", "keep"]
"""What a changed content does to the evidence: `fresh` starts anew, `keep` goes on under the same id."""

_ANY_CONTENT = "sha256:any"


class Candidate(NamedTuple):
    """One thing that a source found for a query.

    Attributes:
        id: Of the memory.
        content: What its evidence belongs to; anything that JSON can hold, or text.
        similarity: Cosine in [-1, 1], higher is nearer; None if the source has no such score.
    """

    id: str
    content: Any
    similarity: float | None = None


class Choice(NamedTuple):
    """A candidate that is served.

    Attributes:
        place: Its position among the candidates.
        rank: Its position in the answer, counted from the first page.
    """

    place: int
    rank: int
    arm: Arm = Arm.SERVED
    propensity: float = 1.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. Found out where the call is made: a store may go on in another task, which knows nothing of it.

    Attributes:
        episode: None if the call belongs to no known run.
    """

    run_id: UUID | None
    entry: RunEntry | None
    episode: EpisodeKey | None


class ExternalMemories:
    """What is known of memories elsewhere: which of them to serve, and that they were served.

    Nothing here raises into the user's run: what cannot be asked or written down is counted in `health()`, and everything
    is served meanwhile.

    Args:
        governor: Whose policy and ledger.
        namespace: Of the ledger; None means the governor's own.
        on_change: See `OnChange`.
    """

    def __init__(
        self,
        governor: Governor,
        *,
        namespace: Namespace | None = None,
        on_change: OnChange = "fresh",
    ) -> None:
        if on_change not in ("fresh", "keep"):
            raise InvalidInputError(
                f"on_change={on_change!r}; give 'fresh' or 'keep'", value=on_change
            )
        self.governor = governor
        self.namespace = namespace
        self.on_change = on_change

    def caller(
        self, run_id: UUID | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Caller:
        """The run that asks, or without an id the one that this code is called in; call it before anything is awaited."""
        runs = self.governor.runs
        if metadata is None:
            metadata = (var_child_runnable_config.get() or {}).get("metadata")
        return Caller(run_id, runs.asking(run_id), runs.episode(run_id, metadata))

    def held_back(self, prefix: str = "") -> int:
        """How many memories are held back at most whose ids start with a text, some maybe not there any more."""
        with self.governor.losses.guard("which memories are held back"):
            return self.governor.held_back(prefix, self.namespace)
        return 0

    def choose(
        self, candidates: Sequence[Candidate], k: int, caller: Caller, *, offset: int = 0
    ) -> list[Choice]:
        """The candidates to serve, in their own order: k of them after the first `offset`, if there are as many.

        In an episode that explores, the best of those held back takes the last place of the first page.

        Args:
            candidates: Nearest first, as the source ranks them.
            k: Size of a page.
            caller: Who asks.
            offset: How many to leave out, as previous pages had them.
        """
        held: dict[int, bool] = {}
        with self.governor.losses.guard("which memories are held back"):
            held = self._held(candidates)
        order = [Choice(i, 0) for i in range(len(candidates)) if i not in held]
        if held and caller.episode is not None and draw(self.governor.policy, caller.episode.id):
            worst = order[k - 1].place if len(order) >= k else len(candidates)
            best = min((p for p, explored in held.items() if explored), default=worst)
            if best < worst:
                probation = Choice(best, 0, Arm.PROBATION, self.governor.policy.exploration)
                order.insert(min(k - 1, len(order)), probation)
        page = order[offset : offset + k]
        return [c._replace(rank=offset + i) for i, c in enumerate(page)]

    def _held(self, candidates: Sequence[Candidate]) -> dict[int, bool]:
        """Places of what is held back, and whether it may be shown on probation."""
        versions = self.governor.versions([c.id for c in candidates], self.namespace)
        held: dict[int, bool] = {}
        for place, candidate in enumerate(candidates):
            known = versions.get(candidate.id, ())
            digest = self._digest(candidate.content) if known else ""
            own = next((v for v in known if v.live and not v.external), None)
            version = own or next((v for v in known if v.external and v.text == digest), None)
            if version is not None and version.held:
                held[place] = version.explored
        return held

    def shown(
        self, candidates: Sequence[Candidate], choices: Sequence[Choice], caller: Caller
    ) -> None:
        """Write down what is served to the run that asks; without one it is counted as unattributed."""
        losses = self.governor.losses
        if caller.episode is None:
            losses.unknown_run()
            return
        if not choices:
            return
        with losses.guard("what a run retrieved"):
            shown: dict[str, Exposure] = {}
            digests: dict[str, str] = {}
            for choice in choices:
                candidate = candidates[choice.place]
                exposure = Exposure(
                    0, choice.rank, candidate.similarity, choice.arm, choice.propensity
                )
                shown.setdefault(candidate.id, exposure)
                digests.setdefault(candidate.id, self._digest(candidate.content))
            root = None if caller.entry is None else caller.entry.root
            self.governor.expose_external(caller.episode, digests, shown, root, self.namespace)
            if caller.entry is not None:
                self.governor.runs.searched(caller.entry, caller.run_id, list(shown))

    def _digest(self, content: Any) -> str:
        return _ANY_CONTENT if self.on_change == "keep" else digest_of(content)


def digest_of(content: Any) -> str:
    """A digest that is equal for equal contents, whatever the order of their keys.

    Examples:
        >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
        True
        >>> digest_of("tea")[:15]
        'sha256:3bc0d31a'
    """
    document = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    return "sha256:" + hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()
