"""Memories that live elsewhere, in a store or a vector database of the user's: judged and recorded, never copied.

The database holds the id and a digest of the content. A changed content is a new version under the same id, as a changed
text is for the store's own memories, so it starts fresh, and finds its old evidence when it changes back.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.estimators.draws import explores, holds_out
from langchain_memoryworth.ledger.memories import Version
from langchain_memoryworth.ledger.recording import Exposure
from langchain_memoryworth.records import Arm, EpisodeKey, Namespace
from langchain_memoryworth.service.governor import Governor
from langchain_memoryworth.tracking.runs import RunEntry

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
    """A candidate that is served, or would have been and is held out.

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

    def left_out(self, wanted: int, prefix: str = "") -> int:
        """How many may have to be left out of those found before `wanted` can be served.

        Args:
            wanted: How many are to be served.
            prefix: How the ids of the memories start that are asked about.
        """
        found = 0
        with self.governor.losses.guard("which memories are held back"):
            found = self.governor.collection.left_out(
                prefix, self.namespace
            )  # some maybe not there any more
        rate = self.governor.policy.hold_out
        if rate:  # six standard deviations of how many draws `wanted` failures take: one page in 1e8 is short
            found += math.ceil((wanted * rate + 6 * math.sqrt(wanted * rate)) / (1 - rate)) + 6
        return found

    def choose(
        self, candidates: Sequence[Candidate], k: int, caller: Caller, *, offset: int = 0
    ) -> list[Choice]:
        """The candidates to serve, in their own order: k of them after the first `offset`, if there are as many.

        In an episode that explores, the best of those held back takes the last place of the first page. What a trial holds
        out is among the choices too, on top of the k, and marked by its arm.

        Args:
            candidates: Nearest first, as the source ranks them.
            k: Size of a page.
            caller: Who asks.
            offset: How many to leave out, as previous pages had them.
        """
        known: list[Version | None] = [None] * len(candidates)
        episode = None
        with self.governor.losses.guard("which memories are held back"):
            known = self._known(candidates)
            episode = (
                caller.episode
            )  # if that failed, everything is served, and nothing drawn about
        policy = self.governor.policy
        served: list[Choice] = []
        out: list[Choice] = []
        for place, version in enumerate(known):
            if version is not None and version.held:
                continue
            choice = self._drawn(place, candidates[place].id, version, episode)
            (out if choice.arm is Arm.HELD_OUT else served).append(choice)
        if episode is not None and explores(policy.seed, episode.id, policy.exploration):
            worst = served[k - 1].place if len(served) >= k else len(candidates)
            explored = (p for p, v in enumerate(known) if v is not None and v.held and v.explored)
            best = next(explored, worst)
            if best < worst:
                served.insert(
                    min(k - 1, len(served)), Choice(best, 0, Arm.PROBATION, policy.exploration)
                )
        page = served[offset : offset + k]
        # Of what is held out, this page has what stands between the last of the page before and its own last.
        first = served[offset - 1].place if 0 < offset <= len(served) else -1
        last = page[-1].place if page and len(page) == k else len(candidates)
        ranked = [c._replace(rank=offset + i) for i, c in enumerate(page)]
        return ranked + [c for c in out if first < c.place < last]

    def _drawn(
        self, place: int, memory_id: str, version: Version | None, episode: EpisodeKey | None
    ) -> Choice:
        policy = self.governor.policy
        if version is None:
            rate = policy.hold_out
        else:
            rate = 0.0 if version.pinned else policy.held_out(version.hold_out, version.parting)
        if episode is None or not rate:
            return Choice(place, place)
        # A memory of this store may also be retrieved from it directly, and must have the same arm.
        name = memory_id if version is None or version.external else version.seq
        if holds_out(policy.seed, episode.id, name, rate):
            return Choice(place, place, Arm.HELD_OUT, rate)
        return Choice(place, place, Arm.SERVED, 1 - rate)

    def _known(self, candidates: Sequence[Candidate]) -> list[Version | None]:
        """What the ledger knows of each candidate, None of one that is new."""
        versions = self.governor.collection.versions([c.id for c in candidates], self.namespace)
        found: list[Version | None] = []
        for candidate in candidates:
            known = versions.get(candidate.id, ())
            digest = self._digest(candidate.content) if known else ""
            own = next((v for v in known if v.live and not v.external), None)
            found.append(own or next((v for v in known if v.external and v.text == digest), None))
        return found

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
            self.governor.journal.expose_external(
                caller.episode, digests, shown, root, self.namespace
            )
            if caller.entry is not None:
                ids = [i for i, e in shown.items() if e.arm is not Arm.HELD_OUT]
                self.governor.runs.searched(caller.entry, caller.run_id, ids)

    def _digest(self, content: Any) -> str:
        return _ANY_CONTENT if self.on_change == "keep" else digest_of(content)


def served(choices: Sequence[Choice]) -> list[Choice]:
    """Those of some choices that are given to whoever asks: all but what is held out."""
    return [c for c in choices if c.arm is not Arm.HELD_OUT]


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
