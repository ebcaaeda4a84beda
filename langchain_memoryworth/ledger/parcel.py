"""What an export holds: the records of its lines, version 1, and whether they add up. Pure.

Vectors are base64 of little-endian float32. Counters are whole numbers in units of 2**-32, as in the database.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from langchain_memoryworth.estimators.credit import Credit
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.estimators.use import PARTS
from langchain_memoryworth.records import Arm, Status

FORMAT: Final = "langchain-memoryworth"
VERSION: Final = 1
Int = Annotated[int, Field(ge=-(2**63), lt=2**63, strict=True)]
Number = Annotated[int, Field(ge=1, lt=2**63, strict=True)]
Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
Share = Annotated[int, Field(ge=0, le=UNIT, strict=True)]
Time = Annotated[float, Field(ge=-1e12, le=1e12)]
Reward = Annotated[float, Field(ge=0, le=1)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Header(_Record):
    """The first line.

    Attributes:
        embedding: Name of the model that made the vectors; None if there are none.
        dimension: Of the vectors.
    """

    kind: Literal["header"] = "header"
    format: Literal["langchain-memoryworth"] = FORMAT
    version: Literal[1] = VERSION
    embedding: str | None = None
    dimension: Annotated[int, Field(ge=1, le=2**20)] | None = None


class Counters(_Record):
    """The evidence of a memory; it must be what its exposures add up to."""

    positive: Int
    negative: Int
    size: Int
    squared: Int
    retrievals: Count
    surprise: Int

    def evidence(self) -> Evidence:
        """The same as a value."""
        return Evidence(**self.model_dump())


class MemoryLine(_Record):
    """One version of a text.

    Attributes:
        number: By which the rest of the file refers to it.
        namespace: None of an erased memory, of which only counts are left.
        vector: Empty for memories that live elsewhere, and erased ones.
        epoch: How often it was restored.
        hold_out: The rate of its trial, if there is one.
    """

    kind: Literal["memory"] = "memory"
    number: Number
    namespace: tuple[str, ...] | None
    id: str
    text: str
    metadata: dict[str, Any]
    vector: str
    added_at: Time
    written_at: Time
    expires_at: Time | None
    retired_at: Time | None
    status: Status
    epoch: Count
    hold_out: Annotated[float, Field(gt=0, lt=1)] | None
    evidence: Counters

    def floats(self) -> NDArray[np.float32]:
        """The vector, float32, shape (d,) or (0,)."""
        return np.frombuffer(base64.b64decode(self.vector, validate=True), "<f4")


class OpeningLine(_Record):
    """The credit of one memory in runs that were rolled up, by context, deciding source and restore count."""

    kind: Literal["opening"] = "opening"
    memory: Number
    context: str
    source: str
    epoch: Count
    evidence: Counters


class RateLine(_Record):
    """The runs of one namespace and context that were rolled up, and the sum of their rewards in units of 2**-32."""

    kind: Literal["rate"] = "rate"
    namespace: tuple[str, ...]
    context: str
    episodes: Count
    reward: Count


class ClosedLine(_Record):
    """The ids of some runs that were rolled up, as hashes."""

    kind: Literal["closed"] = "closed"
    keys: Annotated[tuple[Count, ...], Field(min_length=1, max_length=1_000_000)]


class ExposureLine(_Record):
    """One memory in one episode, with the credit that it got."""

    memory: Number
    rank: Count
    similarity: Annotated[float, Field(ge=-1.001, le=1.001)] | None
    context: str | None
    arm: Arm
    propensity: Annotated[float, Field(gt=0, le=1)]
    shown: bool
    used: Annotated[int, Field(ge=0, le=PARTS)] | None
    at: Time
    last_at: Time | None
    weight: Share
    positive: Share
    size: Share
    surprise: Int
    expected: Reward | None
    epoch: Count | None

    def credit(self) -> Credit:
        """The same as a value."""
        return Credit(self.weight, self.positive, self.size, self.surprise)


class OutcomeLine(_Record):
    """One outcome as it was written down, superseded and withdrawn ones too."""

    source: Annotated[str, Field(min_length=1)]
    source_id: str
    metric: str
    reward: Reward | None
    used: tuple[str, ...] | Mapping[str, Annotated[float, Field(gt=0, le=1)]] | None
    at: Time


class EpisodeLine(_Record):
    """One run with everything in it."""

    kind: Literal["episode"] = "episode"
    id: Annotated[str, Field(min_length=1)]
    aliases: tuple[str, ...]
    thread_id: str | None
    path: tuple[str, ...] = ()
    started_at: Time
    settled_at: Time | None
    reward: Reward | None
    exposures: tuple[ExposureLine, ...]
    outcomes: tuple[OutcomeLine, ...]


class ActionLine(_Record):
    """One decision about a memory."""

    kind: Literal["action"] = "action"
    number: Number
    memory: Number
    action: str
    actor: str
    reason: str
    at: Time
    evidence: Counters | None
    before: Status | None
    after: Status | None
    epoch: Count | None
    undoes: Number | None


Line = MemoryLine | OpeningLine | RateLine | ClosedLine | EpisodeLine | ActionLine


@dataclass(frozen=True, slots=True)
class Parcel:
    """A whole file, checked."""

    header: Header
    memories: Sequence[MemoryLine]
    episodes: Sequence[EpisodeLine]
    actions: Sequence[ActionLine]
    openings: Sequence[OpeningLine] = ()
    rates: Sequence[RateLine] = ()
    closed: Sequence[ClosedLine] = ()

    @property
    def rolled_up(self) -> list[int]:
        """The hashes of the runs behind the opening balances."""
        return [key for line in self.closed for key in line.keys]


def check(parcel: Parcel) -> tuple[Line, str] | None:
    """What is wrong with a parcel: the record, and the problem; None if it adds up."""
    problems = chain(
        _memories(parcel), _openings(parcel), _episodes(parcel), _actions(parcel), _totals(parcel)
    )
    return next(problems, None)


def _memories(parcel: Parcel) -> Iterator[tuple[Line, str]]:
    numbers: set[int] = set()
    live: set[tuple[Any, str]] = set()
    texts: set[tuple[Any, str, str]] = set()
    for memory in parcel.memories:
        place = memory.namespace, memory.id
        if problem := _wrong_with(memory, parcel.header):
            yield memory, problem
        if memory.number in numbers:
            yield memory, f"number {memory.number} is given twice"
        if memory.retired_at is None and place in live:
            yield memory, f"memory {memory.id!r} is live twice"
        if (*place, memory.text) in texts:
            yield memory, f"memory {memory.id!r} has the same text twice"
        numbers.add(memory.number)
        texts.add((*place, memory.text))
        if memory.retired_at is None:
            live.add(place)


def _episodes(parcel: Parcel) -> Iterator[tuple[Line, str]]:
    numbers = {m.number for m in parcel.memories}
    ids: set[str] = set()
    for episode in parcel.episodes:
        if problem := _wrong_in(episode, numbers):
            yield episode, problem
        if episode.id in ids:
            yield episode, f"episode {episode.id!r} is given twice"
        ids.add(episode.id)


def _openings(parcel: Parcel) -> Iterator[tuple[Line, str]]:
    numbers = {m.number for m in parcel.memories}
    seen: set[tuple[int, str, str, int]] = set()
    for opening in parcel.openings:
        place = opening.memory, opening.context, opening.source, opening.epoch
        if opening.memory not in numbers:
            yield opening, f"it is of memory number {opening.memory}, which is not in the file"
        if place in seen:
            yield opening, "its balance is given twice"
        if not parcel.closed:
            yield opening, "the file does not say which runs it is of"
        seen.add(place)
    places: set[tuple[tuple[str, ...], str]] = set()
    for rate in parcel.rates:
        if (rate.namespace, rate.context) in places:
            yield rate, "its base rate is given twice"
        if rate.reward > rate.episodes * UNIT:
            yield rate, "its runs have more success than one each"
        places.add((rate.namespace, rate.context))


def _actions(parcel: Parcel) -> Iterator[tuple[Line, str]]:
    numbers = {m.number for m in parcel.memories}
    for action in parcel.actions:
        if action.memory not in numbers:
            yield action, f"it is about memory number {action.memory}, which is not in the file"


def _totals(parcel: Parcel) -> Iterator[tuple[Line, str]]:
    totals = sums(parcel.episodes, parcel.openings)
    for memory in parcel.memories:
        if memory.evidence.evidence() != totals[memory.number]:
            yield memory, "its evidence is not what its episodes add up to"


def _wrong_with(memory: MemoryLine, header: Header) -> str:
    if (memory.namespace is None) != (memory.status is Status.ERASED):
        return "an erased memory has no namespace, and every other one has"
    if memory.namespace is None and (memory.text or memory.vector or memory.retired_at is None):
        return "an erased memory has no text and no vector, and is retired"
    if memory.namespace is not None and not memory.id:
        return "it has no id"
    try:
        vector = memory.floats()
    except ValueError:
        return "its vector is no base64 of float32"
    if len(vector) not in (0, header.dimension):
        return f"its vector has {len(vector)} dimensions, the header says {header.dimension}"
    return "" if np.isfinite(vector).all() else "its vector is not finite"


def _wrong_in(episode: EpisodeLine, numbers: set[int]) -> str:
    seen: set[int] = set()
    for x in episode.exposures:
        if x.memory not in numbers:
            return f"it shows memory number {x.memory}, which is not in the file"
        if x.memory in seen:
            return f"it shows memory number {x.memory} twice"
        if x.positive > x.weight or (x.size > 0 and x.epoch is None):
            return f"the credit of memory number {x.memory} is none"
        seen.add(x.memory)
    total = sum(x.weight for x in episode.exposures)
    if total not in (0, UNIT):
        return f"its weights add up to {total / UNIT:g}, not to 1"
    if total and episode.reward is None:
        return "it gives credit, but has no reward"
    return ""


def sums(episodes: Iterable[EpisodeLine], openings: Iterable[OpeningLine]) -> dict[int, Evidence]:
    """What the exposures of some episodes and some balances add up to, by number of the memory."""
    totals: dict[int, Evidence] = defaultdict(Evidence)
    for opening in openings:
        totals[opening.memory] += opening.evidence.evidence()
    for episode in episodes:
        for x in episode.exposures:
            if x.size:
                totals[x.memory] += x.credit().evidence
    return totals
