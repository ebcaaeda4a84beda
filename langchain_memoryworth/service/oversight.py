"""What every governed store offers to the people who look after it: explain, review, erase, learn, move; and to decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from langchain_memoryworth.progress import Progress, unwatched
from langchain_memoryworth.records import (
    Compacted,
    Erased,
    Imported,
    LearntContext,
    PoolPrior,
    RecentWorth,
    SourceShare,
    WorthPoint,
)
from langchain_memoryworth.service.decisions import Decisions
from langchain_memoryworth.service.open_store import as_ids
from langchain_memoryworth.service.proposals import Proposal
from langchain_memoryworth.twins import awaitable

if TYPE_CHECKING:
    from langchain_memoryworth.estimators.hitchhikers import Companions
    from langchain_memoryworth.service.explanations import Explanation, RunExplanation
    from langchain_memoryworth.service.logs import LogEntry
    from langchain_memoryworth.service.reviewer import Verify


class Oversight(Decisions):
    """The part of a governed store that is for people."""

    # -- erasure ----------------------------------------------------------------------------------------------

    def erase(
        self,
        memory_id: str | Sequence[str],
        *,
        reason: str = "",
        actor: str = "user",
        namespace: Sequence[str] | str | None = None,
    ) -> Erased:
        """Remove memories for good: text, vector, metadata, all versions, and every mention of the id.

        Only numbers are left, so that the worth of other memories does not change. This cannot be taken back.
        In a vector store that is governed the document has to be deleted as well, and first: what it still returns
        is a new memory, because nothing is kept by which it could be known.

        Args:
            memory_id: One id or several.
            reason: Why; kept with the record of the erasure, so it should name nobody.
            actor: Who; kept likewise.
            namespace: None means the store's own.

        Raises:
            MemoryNotFoundError: If one of them is not there; then nothing is erased.
        """
        return self.governor.steward.erase(
            self._place(namespace), as_ids(memory_id), actor=actor, reason=reason
        )

    aerase = awaitable(erase)

    def erase_namespace(
        self,
        namespace: Sequence[str] | str,
        *,
        below: bool = False,
        reason: str = "",
        actor: str = "user",
    ) -> Erased:
        """`erase` for everything in a namespace, and with `below` in those under it."""
        return self.governor.steward.erase_namespace(
            self._place(namespace), below=below, actor=actor, reason=reason
        )

    aerase_namespace = awaitable(erase_namespace)

    def erase_subject(
        self, subject: Mapping[str, Any], *, reason: str = "", actor: str = "user"
    ) -> Erased:
        """`erase` for everything that has this metadata, in every namespace.

        Args:
            subject: Such as `{"user": "ada"}`: each key has the value, or a list that holds it.
            reason: Why; see `erase`.
            actor: Who.
        """
        return self.governor.steward.erase_subject(subject, actor=actor, reason=reason)

    aerase_subject = awaitable(erase_subject)

    def scrub(self) -> bool:
        """Write the database file anew without what was erased, if `erase` said that others kept it busy.

        Returns:
            False if they still do; on Postgres always, where only `VACUUM FULL`, by the owner of the tables, does it.
        """
        return self.governor.steward.scrub()

    ascrub = awaitable(scrub)

    # -- retention --------------------------------------------------------------------------------------------

    def compact(self, before: datetime | timedelta, *, progress: Progress = unwatched) -> Compacted:
        """Roll runs up that are older, into opening balances by memory, context and source; no counter changes.

        Of these runs nothing is left but their sums, and a hash of each id: an outcome that comes for one of them is
        refused. So `before` is how long outcomes may be late, or be corrected. Runs in which a trial drew are kept, as
        the analysis of the trial needs each of them.

        It works in small transactions, so others go on meanwhile, and one that is cut off is simply called again. SQLite gives
        space back to the disk only with `scrub()`.

        Args:
            before: An age, or an aware time.
            progress: Is told how far it is.

        Raises:
            InvalidInputError: If it is no age and no time in the past.
        """
        return self.governor.steward.compact(before, progress)

    acompact = awaitable(compact)

    # -- contexts ---------------------------------------------------------------------------------------------

    def learn_contexts(
        self, *, episodes: int = 5_000, namespace: Sequence[str] | str | None = None
    ) -> tuple[LearntContext, ...]:
        """Learn from what is retrieved together which kinds of tasks there are, without labels or embeddings.

        From then on whatever is retrieved without a context that somebody named gets one of these, in every process, and
        counters and base rates are kept by it, see `by_context`. Call it again now and then, as from a scheduled job: the
        names stay.

        Args:
            episodes: How many of the latest to learn from; some thousands are enough.
            namespace: None means the store's own.

        Returns:
            The contexts, the most frequent first; a single one if retrievals do not fall apart into kinds.

        Raises:
            InvalidInputError: If nothing was retrieved in these episodes.
        """
        return self.governor.steward.learn_contexts(self._place(namespace), episodes)

    alearn_contexts = awaitable(learn_contexts)

    def learn_topics(
        self,
        queries: Sequence[str] | ArrayLike,
        *,
        count: int = 20,
        sessions: bool = False,
        namespace: Sequence[str] | str | None = None,
    ) -> tuple[LearntContext, ...]:
        """Learn from queries which kinds of tasks there are: clusters of their vectors, in the place of `learn_contexts`.

        From then on whatever is searched for here without a context that somebody named gets that of the nearest cluster, in
        every process. Kept are the centres, and no query: give a sample of what was asked lately, from your traces. Called
        again, the names stay with the clusters. It tells nothing where no query is known: of documents that another
        retriever found.

        Args:
            queries: Texts, which the store's model embeds, or vectors of shape (q, d).
            count: Clusters, at most as many as there are distinct queries. Too few mix hard and easy tasks.
            sessions: Whether all that a conversation has asked so far tells its context, and not the last query alone. Each
                process adds up what it was asked itself, of the latest 1,024 threads, in memory.
            namespace: None means the store's own.

        Returns:
            The contexts, the most frequent first.

        Raises:
            InvalidInputError: If there is no query, one has no direction, or the count is below 1.
            DimensionMismatchError: If vectors are of another dimension than those stored.
        """
        vectors = self.governor.retrieval.query_vectors(queries)
        place = self._place(namespace)
        return self.governor.steward.learn_topics(place, vectors, count, sessions=sessions)

    alearn_topics = awaitable(learn_topics)

    def drop_contexts(self, *, namespace: Sequence[str] | str | None = None) -> None:
        """Stop telling learnt contexts; what was counted by them stays, and their names are not used again."""
        self.governor.steward.drop_contexts(self._place(namespace))

    adrop_contexts = awaitable(drop_contexts)

    def learn_prior(self, *, namespace: Sequence[str] | str | None = None) -> PoolPrior:
        """Learn from the memories of a namespace what to assume of one without outcomes, for `Policy(prior="pool")`.

        Verdicts, and the ranking of UNCERTAIN memories, begin with it until it is learnt again: here, or when another policy
        is put in force. All statuses are worked out anew. Call it now and then, as from a scheduled job.

        Args:
            namespace: None means the store's own.

        Returns:
            The prior; a flat one with fewer than 20 memories that have a retrieval, or where all outcomes are alike.

        Raises:
            InvalidInputError: If the policy in force has another prior.
        """
        return self.governor.steward.learn_prior(self._place(namespace))

    alearn_prior = awaitable(learn_prior)

    def learn_pairs(
        self, *, namespace: Sequence[str] | str | None = None
    ) -> tuple[Companions, ...]:
        """Find the pairs of memories that are almost always retrieved together, for `Policy(diversity_floor=...)`.

        Until it is called again, in that share of the episodes with such a pair one of the two is left out by a draw, as in a
        trial: with its probability on record, so that `lift` tells them apart. An anchor that is often without its companion
        is not drawn about, a pinned memory never, and one in a trial of its own as the trial says. Call it now and then, as
        from a scheduled job.

        Args:
            namespace: None means the store's own.

        Returns:
            The pairs, most often together first.

        Raises:
            InvalidInputError: If the policy in force has no diversity floor.
        """
        return self.governor.steward.learn_pairs(self._place(namespace))

    alearn_pairs = awaitable(learn_pairs)

    # -- explanation ------------------------------------------------------------------------------------------

    def explain(
        self, memory_id: str, *, namespace: Sequence[str] | str | None = None
    ) -> Explanation:
        """Why a memory is served or not, in words and numbers; print it, or read its fields.

        Raises:
            MemoryNotFoundError: If there is none by that id, or it is past its time to live.
        """
        return self.governor.explainer.explain(self._place(namespace), memory_id)

    aexplain = awaitable(explain)

    def explain_run(self, run_id: Any) -> RunExplanation:
        """What a run retrieved, what of it was shown or held out, and what its outcome changed.

        Raises:
            UnknownRunError: If no episode has that id.
        """
        return self.governor.explainer.explain_run(str(run_id))

    aexplain_run = awaitable(explain_run)

    def worth_history(
        self, memory_id: str, *, namespace: Sequence[str] | str | None = None
    ) -> tuple[WorthPoint, ...]:
        """The worth of a memory after each settled run that showed it, in order of settlement."""
        return self.governor.explainer.worth_history(self._place(namespace), memory_id)

    aworth_history = awaitable(worth_history)

    def recent_worth(
        self,
        memory_id: str,
        half_life: float | timedelta,
        *,
        namespace: Sequence[str] | str | None = None,
    ) -> RecentWorth:
        """The worth of a memory over the recent past: a run counts half after each half-life.

        It is what one wants to see of a memory whose whole life says little of today; the policy goes by the change detector
        instead, which knows when to forget.

        Args:
            memory_id: Which.
            half_life: In runs of this memory, or in time.
            namespace: None means the store's own.

        Raises:
            InvalidInputError: If the half-life is not above 0.
            MemoryNotFoundError: If there is none by that id.
        """
        return self.governor.explainer.recent_worth(self._place(namespace), memory_id, half_life)

    arecent_worth = awaitable(recent_worth)

    # -- review -----------------------------------------------------------------------------------------------

    def review(
        self, limit: int | None = None, *, namespace: Sequence[str] | str | None = None
    ) -> list[Proposal]:
        """The memories that want a person, the most valuable first; see `review.Proposal`.

        What runs say is read from the latest 50,000. Near-duplicates are looked for among all memories of a namespace of up to
        20,000; in a larger one the most retrieved are compared with all, as many as take about as long.
        """
        return self.governor.reviewer.review(self._place(namespace), limit)

    areview = awaitable(review)

    def decide(
        self,
        proposals: Proposal | Sequence[Proposal],
        decision: str,
        *,
        reason: str = "",
        actor: str = "user",
        verify: Verify | None = None,
        namespace: Sequence[str] | str | None = None,
    ) -> None:
        """Do what a person decided about proposals of `review`, one or many.

        A rejected one comes back when half of `Policy.v_min` retrievals have come since, at least one.

        Args:
            proposals: One, or a list.
            decision: approve (what it proposes), reject, pin, restore, deprecate, reverify or merge.
            reason: Why.
            actor: Who.
            verify: For reverify, your own check: True restores the memory, False deprecates it, None leaves it.
            namespace: Of the proposals; None means the store's own.

        Raises:
            InvalidInputError: If the decision does not fit one of them; then nothing is done.
        """
        listed = [proposals] if isinstance(proposals, Proposal) else list(proposals)
        self.governor.reviewer.decide(
            self._place(namespace), listed, decision, actor=actor, reason=reason, verify=verify
        )

    adecide = awaitable(decide)

    # -- sources ----------------------------------------------------------------------------------------------

    def sources(self) -> list[SourceShare]:
        """How many settled runs each source of outcomes decides, the one that decides most first."""
        return self.governor.steward.sources()

    asources = awaitable(sources)

    def revoke_source(
        self,
        source: str,
        *,
        source_id: str | None = None,
        reason: str = "",
        actor: str = "user",
        progress: Progress = unwatched,
    ) -> int:
        """Withdraw all that a source has said, as if it had never spoken; of other sources nothing is lost.

        Runs are settled anew some at a time, each exactly; after a crash, the same call goes on. What the source says from
        now on counts again: keep it out where you take outcomes in. It cannot be taken back, as what was said once more
        would be newer than what others have said since.

        Args:
            source: As in `record_outcome`.
            source_id: Only what this voter of it said; None means all.
            reason: Why; kept on record, in `actions`.
            actor: Who; kept likewise.
            progress: Told how far it is: name of the step, done, total.

        Returns:
            How many outcomes were withdrawn.
        """
        return self.governor.steward.revoke(
            source, source_id, actor=actor, reason=reason, progress=progress
        )

    arevoke_source = awaitable(revoke_source)

    # -- moving -----------------------------------------------------------------------------------------------

    def export_file(self, path: str | Path, *, progress: Progress = unwatched) -> int:
        """Write everything into a JSON Lines file: memories, evidence, episodes, outcomes, decisions.

        The policy and the pauses of interrupted runs are not part of it.

        Args:
            path: Where it goes; a file that is there is replaced.
            progress: Told how far it is: name of the step, done, total.

        Returns:
            The number of lines.
        """
        return self.governor.carrier.export(Path(path), progress)

    aexport_file = awaitable(export_file)

    def import_file(
        self, path: str | Path, *, dry_run: bool = False, progress: Progress = unwatched
    ) -> Imported:
        """Take over a file of `export_file`; what is there already is recognised and not counted twice.

        Args:
            path: The file. It is checked as a whole before anything is written.
            dry_run: Only say what would be new.
            progress: Told how far it is: name of the step, done, total.

        Raises:
            ImportFileError: If it is damaged, hostile, or does not add up; nothing is written then.
            EmbeddingMismatchError: If its vectors are of another model than those here.
        """
        return self.governor.carrier.take(Path(path), dry_run=dry_run, progress=progress)

    aimport_file = awaitable(import_file)

    def import_log(
        self,
        entries: Iterable[LogEntry],
        *,
        dry_run: bool = False,
        namespace: Sequence[str] | str | None = None,
        progress: Progress = unwatched,
    ) -> Imported:
        """Turn runs of a log into evidence: these memories were retrieved, this happened.

        Args:
            entries: As `logs.from_csv`, `logs.from_langsmith` and `logs.from_langfuse` give them.
            dry_run: Only say what would be new.
            namespace: Where the memories are; None means the store's own.
            progress: Told how far it is: name of the step, done, total.
        """
        place = self._place(namespace)
        return self.governor.carrier.take_log(
            place, list(entries), dry_run=dry_run, progress=progress
        )

    aimport_log = awaitable(import_log)
