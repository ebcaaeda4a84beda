"""Settlement: from what an episode showed and what is said of it to what each memory gets. No statement, no clock.

The credits of an episode are a pure function of its shown exposures, its outcomes, the credit rule, and what was to be
expected when they were first given. So the same outcome twice changes nothing, a corrected one takes the old credit back
exactly, and a late exposure is taken in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from operator import attrgetter
from statistics import median, pstdev
from typing import Any, Literal, NamedTuple

from langchain_memoryworth.estimators.credit import NO_CREDIT, Credit, Shown, equal_shares
from langchain_memoryworth.estimators.effects import effect_of, expected, surprise
from langchain_memoryworth.estimators.evidence import UNIT, Evidence, squared_weight
from langchain_memoryworth.estimators.use import Use
from langchain_memoryworth.ledger import standing
from langchain_memoryworth.ledger.rates import Place, Rates
from langchain_memoryworth.policy import Policy
from langchain_memoryworth.records import OutcomeRecord


class Account:
    """A memory, and what the settlements of one transaction add to its counters, one after the other.

    Attributes:
        standing: As it was before.
        home: Its namespace as a place; without a name if it was erased.
        positive: What is added, as the five after it; see `Evidence`.
        judged: Whether credit moved that was given since its last restore.
        older: What moved of credit given before it.
    """

    __slots__ = (
        "added_at",
        "home",
        "judged",
        "memory_id",
        "negative",
        "older",
        "positive",
        "retrievals",
        "size",
        "squared",
        "standing",
        "surprise",
    )

    def __init__(self, row: Sequence[Any]) -> None:
        """Of `ACCOUNT_COLUMNS`."""
        self.memory_id: str = row[0]
        self.added_at: float = row[1]
        self.home = Place(row[2], "")
        self.standing = standing.standing_of(row[3:])
        self.positive = self.negative = self.size = self.squared = 0
        self.retrievals = self.surprise = 0
        self.judged = False
        self.older: Evidence | None = None

    @property
    def effect(self) -> float:
        """What it adds to the success of an episode, by its counters as they are by now."""
        before = self.standing.evidence
        return effect_of(before.surprise + self.surprise, before.size + self.size)

    def add(self, given: Given) -> None:
        """Take over a first credit: what `Credit.evidence` says, without an object for each of the thousands of a batch."""
        weight, positive, size, surprised, _, epoch, _, _ = given
        self.positive += positive
        self.negative += weight - positive
        self.size += size
        self.squared += squared_weight(weight)
        self.retrievals += 1
        self.surprise += surprised
        if epoch < self.standing.epoch:
            self.older = (self.older or Evidence()) + given.credit.evidence
        else:
            self.judged = True

    def take_back(self, credit: Credit, epoch: int) -> None:
        """Undo `add` of a credit that was given under a restore count."""
        had = credit.evidence
        self.positive -= had.positive
        self.negative -= had.negative
        self.size -= had.size
        self.squared -= had.squared
        self.retrievals -= had.retrievals
        self.surprise -= had.surprise
        if epoch < self.standing.epoch:
            self.older = (self.older or Evidence()) - had
        else:
            self.judged = True

    def delta(self) -> standing.Delta:
        """All of it."""
        change = Evidence(
            self.positive, self.negative, self.size, self.squared, self.retrievals, self.surprise
        )
        return standing.Delta(self.standing, change, self.older, judged=self.judged)


ACCOUNT_COLUMNS = f"m.id, m.added_at, m.namespace, {standing.STANDING_COLUMNS}"
"""Of memories m and evidence e, what makes an `Account`."""


class Row(NamedTuple):
    """One exposure with what is known of its episode.

    Attributes:
        rank: First rank in the run.
        used: How much of it the run said to have used, in parts of `use.PARTS`; None if it said nothing.
        context: Kind of task; empty if none was known.
        weight: Of the credit that it has, with the three after it; all 0 if it has none.
        expected: The success that was to be expected without the memory when credit was first given.
        epoch: The restore count of the memory at that time.
        settled_as: The reward that was in force until now, None if none was.
        place: Whose base rate it is measured by.
    """

    eid: int
    seq: int
    rank: int
    similarity: float | None
    shown: int
    used: int | None
    at: float
    last_at: float
    context: str
    weight: int
    positive: int
    size: int
    surprise: int
    expected: float | None
    epoch: int | None
    settled_as: float | None
    account: Account
    place: Place

    @property
    def credit(self) -> Credit:
        """What it was given until now."""
        if not self.size:
            return NO_CREDIT
        return Credit(self.weight, self.positive, self.size, self.surprise)


COLUMNS = (
    "x.eid, x.seq, x.rank, x.similarity, x.shown, x.used, x.at, COALESCE(x.last_at, x.at), "
    "COALESCE(x.context, ''), x.weight, x.positive, x.size, x.surprise, x.expected, x.epoch, p.reward"
)
"""Of exposures x and episodes p, what a `Row` begins with."""
_RANK = attrgetter("rank", "seq")


def by_episode(
    eids: Iterable[int], exposures: Iterable[tuple[Any, ...]], accounts: Mapping[int, Account]
) -> dict[int, list[Row]]:
    """Rows of `COLUMNS` by episode, each episode's by rank and number of the memory."""
    found: dict[int, list[Row]] = {eid: [] for eid in eids}
    for exposure in exposures:
        account, context = accounts[exposure[1]], exposure[8]
        place = Place(account.home.namespace, context) if context else account.home
        found[exposure[0]].append(Row._make((*exposure, account, place)))
    for rows in found.values():
        rows.sort(key=_RANK)  # SQLite would copy all of their columns into a table for it
    return found


class Given(NamedTuple):
    """What one exposure gets, as it is written down.

    Attributes:
        expected: The success to be expected without the memory, None if it gets nothing.
        epoch: The restore count under which it was first given.
    """

    weight: int
    positive: int
    size: int
    surprise: int
    expected: float | None
    epoch: int
    eid: int
    seq: int

    @property
    def credit(self) -> Credit:
        """The first four."""
        return Credit(self.weight, self.positive, self.size, self.surprise)


class Settled(NamedTuple):
    """An episode that was settled.

    Attributes:
        reward: What is in force now, None if nothing is.
        given: The exposures whose credit is another than it was.
        first: The numbers of those that had none.
        strata: What moves in contexts: number, context and addend.
    """

    eid: int
    reward: float | None
    given: list[Given]
    first: set[int]
    strata: list[tuple[int, str, Evidence]]


def settle(
    eid: int,
    rows: Sequence[Row],
    outcomes: Iterable[OutcomeRecord],
    policy: Policy,
    rates: Rates,
) -> Settled:
    """Work out the credits of an episode, and how they differ from those that it gave until now.

    The accounts of the rows and the rates move with it: several episodes that are settled at once follow each other, and
    each is expected from what the ones before it taught.
    """
    ranked = in_force(list(outcomes), policy.sources, policy.metric)
    reward = reward_in_force(ranked, policy.votes, policy.max_deviation)
    used = next((o.used for o in ranked if o.used is not None), None)
    shares = _shares(rows, reward, used, policy)
    settled = Settled(eid, reward, [], set(), [])
    for row, share, e in zip(rows, shares, _expectations(rows, shares, rates), strict=True):
        weight, positive, size, _ = share
        if not size and not row.size:
            continue
        account, seq = row.account, row.seq
        epoch = account.standing.epoch if row.epoch is None else row.epoch
        if reward is not None and e is not None and size:
            new = Given(weight, positive, size, surprise(reward, e, size), e, epoch, eid, seq)
        else:
            new = Given(*NO_CREDIT, None, epoch, eid, seq)  # what is withdrawn leaves no trace
        if row.size:
            had = row.credit
            if new[:4] == had:
                continue
            account.take_back(had, epoch)
        else:
            settled.first.add(seq)
        if size:
            account.add(new)
        settled.given.append(new)
        if row.context:
            change = new.credit.evidence - row.credit.evidence
            settled.strata.append((seq, row.context, change))
    before = {r.place for r in rows if r.size}
    after = {r.place for r, share in zip(rows, shares, strict=True) if share.size}
    was = rows[0].settled_as if rows else None
    rates.move(eid, (before, was), (after, reward))
    return settled


def _expectations(
    rows: Sequence[Row], shares: Sequence[Credit], rates: Rates
) -> Sequence[float | None]:
    """The success expected without each memory that gets credit; kept where it was given before."""
    known = [r.expected for r in rows]
    sharing = [i for i, share in enumerate(shares) if share.size]
    if all(known[i] is not None for i in sharing):
        return known
    effects = [rows[i].account.effect for i in sharing]
    sizes = [shares[i].size / UNIT for i in sharing]
    places = [rows[i].place for i in sharing]
    for place in set(places):
        found = expected(rates.expected(place), effects, sizes)
        for i, here, e in zip(sharing, places, found, strict=True):
            if known[i] is None and here == place:
                known[i] = e
    return known


def in_force(
    outcomes: Sequence[OutcomeRecord], sources: Sequence[str], metric: str = ""
) -> list[OutcomeRecord]:
    """Order the outcomes of one episode by whose word counts; the first decides.

    Sources that are listed come in that order, others after them; of one source, and among the others, the newest
    comes first. So two sources never double the evidence of one episode. Outcomes of another metric have no say.

    Args:
        outcomes: Oldest first.
        sources: `Policy.sources`.
        metric: `Policy.metric`.
    """
    newest_first = [
        o for o in reversed(outcomes) if o.reward is not None and o.metric in ("", metric)
    ]
    if len(newest_first) < 2:
        return newest_first
    place = {s: i for i, s in enumerate(sources)}
    return sorted(newest_first, key=lambda o: place.get(o.source, len(place)))


def reward_in_force(
    ranked: Sequence[OutcomeRecord],
    votes: Literal["newest", "median"],
    most: float | None = None,
) -> float | None:
    """The reward of an episode, whatever the order in which its voters spoke if it is the median.

    Args:
        ranked: As `in_force` gives them.
        votes: `Policy.votes`.
        most: `Policy.max_deviation`; an episode whose rewards differ more has none.

    References:
        Of all ways to reduce numbers to one that move with them, the median bears most false ones, up to one half: Donoho
        and Huber (1983), The notion of breakdown point. High-variance episodes left out: When
        to Forget, section 7, "Outcome signal quality".

    Examples:
        >>> said = [OutcomeRecord("user", by, reward, None, None) for by, reward in (("eve", 0.0), ("ada", 1.0), ("bob", 1.0))]
        >>> reward_in_force(said, "newest"), reward_in_force(said, "median")
        (0.0, 1.0)
        >>> reward_in_force(said, "newest", 0.4) is None
        True
    """
    if (
        most is not None
        and ranked
        and pstdev([o.reward for o in ranked if o.reward is not None]) > most
    ):
        return None
    if not ranked or votes == "newest":
        return ranked[0].reward if ranked else None
    return median(o.reward for o in ranked if o.source == ranked[0].source and o.reward is not None)


def _shares(
    rows: Sequence[Row], reward: float | None, used: Use | None, policy: Policy
) -> Sequence[Credit]:
    """The credit of each row, still without surprise; those that were not shown get none."""
    shown = [r for r in rows if r.shown]
    if reward is None or not shown:
        return [NO_CREDIT] * len(rows)
    if used is None:
        used = _used_in_run(rows)
    shares: Sequence[Credit]
    if used is None and policy.shares_equally:
        shares = equal_shares(len(shown), reward, policy.w_min)
    else:
        newest = max(r.last_at for r in shown)
        shares = policy.settle([_shown(r, newest) for r in shown], reward, used)
    if len(shown) == len(rows):
        return shares
    in_turn = iter(shares)
    return [next(in_turn) if r.shown else NO_CREDIT for r in rows]


def _shown(row: Row, newest: float) -> Shown:
    age = timedelta(seconds=max(0.0, row.at - row.account.added_at))
    lag = timedelta(seconds=newest - row.last_at)
    return Shown(row.account.memory_id, row.rank, row.similarity, age, lag)


def _used_in_run(rows: Sequence[Row]) -> Use | None:
    if all(r.used is None for r in rows):
        return None
    return {r.account.memory_id: float(r.used) for r in rows if r.used}
