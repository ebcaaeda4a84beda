"""Who decides each run, and whether one of them alone makes a memory look bad."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from langchain_memoryworth.estimators.credit import Credit
from langchain_memoryworth.estimators.drift import declined, fresh, update
from langchain_memoryworth.estimators.evidence import UNIT, Evidence
from langchain_memoryworth.ledger.schema import COUNTERS
from langchain_memoryworth.ledger.session import Session, Statement
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import Status

REPLAYED = 8
"""Voters without whom the change detector is asked again, those who speak worst of a memory first."""


class Voice(NamedTuple):
    """Who said an outcome.

    Attributes:
        source_id: The source's own id of it, such as a voter.
    """

    source: str
    source_id: str


Row = tuple[int, str, str, str, str, float | None]
"""Number and id of the run, source, source_id, metric, reward (None withdraws)."""


class _Heard(NamedTuple):
    """One settled run of a memory: when it began, who decides it, and what it gave."""

    at: float
    voice: Voice
    reward: float
    credit: Credit
    expected: float


def deciding(rows: Iterable[Row], sources: tuple[str, ...], metric: str) -> dict[str, Voice]:
    """Who decides each run: of the outcomes in force, by the order of the sources, then the newest.

    Args:
        rows: All outcomes, of each run together and in the order in which they came.
        sources: `Policy.sources`.
        metric: `Policy.metric`.

    Examples:
        >>> said = [(1, "r", "bot", "", "", 1.0), (1, "r", "user", "ada", "", 0.0)]
        >>> deciding(said, ("user",), "")
        {'r': Voice(source='user', source_id='ada')}
        >>> deciding([*said, (1, "r", "user", "ada", "", None)], ("user",), "")
        {'r': Voice(source='bot', source_id='')}
    """
    place = {source: i for i, source in enumerate(sources)}
    found: dict[str, Voice] = {}
    for _, some in groupby(rows, key=itemgetter(0)):
        current: dict[tuple[str, str, str], str] = {}
        for _, id_, source, source_id, of, reward in some:
            current.pop((source, source_id, of), None)
            if reward is not None and of in ("", metric):
                current[source, source_id, of] = id_
        if current:
            newest_first = reversed(current)
            best = min(newest_first, key=lambda key: place.get(key[0], len(place)))
            found[current[best]] = Voice(*best[:2])
    return found


def sunk_by_one(
    session: Session,
    seq: int,
    epoch: int,
    status: Status,
    recent: Evidence,
    policy: Policy,
    *,
    declined: bool,
) -> bool:
    """Whether a memory that the policy would hold back would be served without the word of one voter.

    It reads all runs of the memory since its last restore. Runs that were rolled up count as one voice of their source.

    Args:
        session: The transaction; its credits and counters are written down already.
        seq: Number of the memory.
        epoch: Its restore count.
        status: As it is now.
        recent: Its evidence since the last restore.
        policy: What it is judged by.
        declined: What the change detector says of all voices together.
    """
    runs = _heard(session, seq, epoch, policy)
    own: dict[Voice, Evidence] = defaultdict(Evidence)
    for source, *counters in session.rows(_ROLLED_UP, seq=seq, epoch=epoch):
        own[Voice(source, "")] += Evidence(*counters)
    for run in runs:
        own[run.voice] += run.credit.evidence
    for place, voice in enumerate(sorted(own, key=lambda v: (-own[v].negative, v))):
        still = declined and place < REPLAYED and _declines(runs, voice, policy)
        rest = recent - own[voice]
        if policy.next_status(status, rest, declined=still) is not Status.SUPPRESSED:
            return True
    return False


def _heard(session: Session, seq: int, epoch: int, policy: Policy) -> list[_Heard]:
    said = session.rows(_SAID, seq=seq, epoch=epoch)
    voices = deciding([(eid, str(eid), *row) for eid, *row in said], policy.sources, policy.metric)
    return [
        _Heard(at, voices[str(eid)], reward, Credit(*credit), expected)
        for eid, at, reward, expected, *credit in session.rows(_CREDITED, seq=seq, epoch=epoch)
        if str(eid) in voices
    ]


def _declines(runs: Sequence[_Heard], without: Voice, policy: Policy) -> bool:
    state = fresh(1)
    for run in runs:
        if run.voice != without:
            size = run.credit.size / UNIT
            state = update(state, run.reward, at=run.at, size=size, expected=run.expected)
    flags = declined(
        state,
        theta=policy.theta_low,
        margin=policy.margin_low,
        confidence=policy.decline or 1.0,
        flip=policy.flip_rate,
    )
    return bool(flags[0])


_ROLLED_UP = Statement(
    f"SELECT source, {', '.join(COUNTERS)} FROM openings WHERE seq = :seq AND epoch >= :epoch"
)
_OF_MEMORY = "WHERE x.seq = :seq AND x.size > 0 AND x.epoch >= :epoch"
_SAID = Statement(
    "SELECT o.eid, o.source, o.source_id, o.metric, o.reward FROM exposures x "
    f"JOIN outcomes o ON o.eid = x.eid {_OF_MEMORY} ORDER BY o.eid, o.number"
)
# In the order of the change detector: that of the first outcomes.
_CREDITED = Statement(
    "SELECT x.eid, p.started_at, p.reward, x.expected, x.weight, x.positive, x.size, x.surprise "
    f"FROM exposures x JOIN episodes p ON p.eid = x.eid {_OF_MEMORY} AND p.reward IS NOT NULL "
    "ORDER BY (SELECT MIN(o.number) FROM outcomes o WHERE o.eid = x.eid)"
)
