"""From a query to memories in front of the model, and in the same transaction the record that they are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
from langchain_core.runnables import run_in_executor
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from langchain_memoryworth.errors import InvalidInputError
from langchain_memoryworth.ledger.database import retried
from langchain_memoryworth.ledger.learnt import Asked
from langchain_memoryworth.ledger.memories import Text
from langchain_memoryworth.ledger.recording import Exposure
from langchain_memoryworth.ledger.settings import check_dimension
from langchain_memoryworth.policy import Policy, Rank
from langchain_memoryworth.records import (
    Arm,
    EpisodeKey,
    HeldBack,
    Hit,
    Memory,
    Namespace,
    SearchExplanation,
    Status,
)
from langchain_memoryworth.service.journal import Journal
from langchain_memoryworth.service.open_store import OpenStore
from langchain_memoryworth.service.recall import OPTIONS, Query, Recall, Selected
from langchain_memoryworth.tracking.roots import Root
from langchain_memoryworth.tracking.runs import RunEntry
from langchain_memoryworth.vectors.unit import unit_row, unit_rows


class Retrieval:
    """Recalls for runs; ask for it with `governor.retrieval`.

    Args:
        store: Where the memories are.
        journal: What writes down what was shown.
    """

    def __init__(self, store: OpenStore, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self._database = store.database
        self._memories = store.memories
        self._recall = Recall(store.database, store.memories)

    def recall(self, query: str, k: int, **options: Any) -> list[Hit]:
        """`recall_by_vector` of a text."""
        vector = self._store.embedding.embed_query(_text_of(query))
        return self.recall_by_vector(vector, k, **options)

    async def arecall(self, query: str, k: int, **options: Any) -> list[Hit]:
        """`recall` that awaits the embedding and searches off the event loop."""
        vector = await self._store.embedding.aembed_query(_text_of(query))
        return await run_in_executor(None, self.recall_by_vector, vector, k, **options)

    def recall_by_vector(
        self,
        vector: ArrayLike,
        k: int,
        *,
        namespace: Namespace | None = None,
        run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: str | None = None,
        track: bool = True,
        **options: Any,
    ) -> list[Hit]:
        """The memories to put in front of a model, written down for the run that asks.

        Args:
            vector: Shape (d,).
            k: At least 1.
            namespace: None means the store's own.
            run_id: The run that asks, as its callbacks name it; None means the one this code is called in.
            metadata: Of that run; `episode_id` in it names the episode, `memory_context` the kind of task.
            context: The kind of task, if the metadata are not to say it.
            track: False for looking without showing: nothing is written down and nothing explored.
            **options: As in `recall.Query`: rank, filter, min_similarity, diversity, fetch_k.

        Returns:
            At most k hits, best first; k of them whenever k may be served.
        """
        self._store.refresh()
        entry = self._store.runs.asking(run_id) if track else None
        episode = self._store.runs.episode(run_id, metadata) if track else None
        if context is not None and not isinstance(context, str):
            raise InvalidInputError(f"context={context!r}; give a name as text", value=context)
        if episode is not None and context is not None:
            episode = replace(episode, context=context)
        query = self._query(vector, k, None if episode is None else episode.id, options)
        namespace = self._store.place(namespace)
        chosen = self._select(namespace, query)
        asked = Asked(query.vector, None if episode is None else episode.thread_id)
        texts = self._deliver(chosen, namespace, episode, entry, run_id, asked)
        chosen = [c for c in chosen if c.arm.reaches_model]
        if track and episode is None:
            self._store.losses.unknown_run()
        return _hits(chosen, texts)

    def query_vectors(self, queries: Sequence[str] | ArrayLike) -> NDArray[np.float32]:
        """Queries as unit vectors, shape (q, d): texts by the embedding model, vectors as they are.

        Raises:
            InvalidVectorError: If they are no matrix, or not finite.
            DimensionMismatchError: If they are of another dimension than the vectors stored.
        """
        self._store.refresh()
        texts = [q for q in queries if isinstance(q, str)] if isinstance(queries, Sequence) else []
        embed = self._store.embedding.embed_query
        rows = unit_rows([embed(q) for q in texts] if texts else queries)
        if self._store.dimension is not None:
            check_dimension(rows.shape[1], self._store.dimension)
        return rows

    def explain_search(
        self, query: str, k: int, *, namespace: Namespace | None = None, **options: Any
    ) -> SearchExplanation:
        """What a query would get now, and what is held back from it; nothing is written down."""
        vector = self._store.embedding.embed_query(_text_of(query))
        self._store.refresh()
        namespace = self._store.place(namespace)
        if self._store.dimension is None:
            return SearchExplanation((), ())
        asked = self._query(vector, k, None, options)
        space = self._store.replica.space(
            namespace, self._store.dimension, self._store.policy, self._store.clock()
        )
        chosen = self._recall.select(space, asked, self._store.policy, self._store.clock())
        held = self._recall.held_back(space, asked, self._store.policy, chosen, self._store.clock())
        with self._database.read() as session:
            texts = self._memories.texts(session, [s.seq for s in (*chosen, *held)])
        known = self._memories.get(
            namespace, [t.id for t in texts.values()], self._store.policy, self._store.clock()
        )
        return SearchExplanation(
            tuple(_hits(chosen, texts)),
            tuple(
                self._held_back(hit, known[hit.id])
                for hit in _hits(held, texts)
                if hit.id in known  # not if it was deleted meanwhile
            ),
        )

    def _held_back(self, hit: Hit, memory: Memory) -> HeldBack:
        e = memory.evidence
        numbers = f"worth {e.worth:.2f} over {e.effective_size:g} retrievals"
        if memory.status is Status.QUARANTINED:
            reason = f"quarantined: {e.retrievals} of the outcomes that release it"
        elif memory.status is Status.WITHHELD:
            reason = f"withheld by a person until it is restored; {numbers}"
        else:
            reason = f"suppressed: {self._store.policy.reason(e)}"
        return HeldBack(hit.id, hit.text, hit.similarity, hit.score, e, reason)

    def _query(
        self, vector: ArrayLike, k: int, episode_id: str | None, options: Mapping[str, Any]
    ) -> Query:
        if not isinstance(k, int) or k < 1:
            raise InvalidInputError(f"k={k!r}; give a whole number of at least 1", value=k)
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            known = sorted((*OPTIONS, "namespace", "context", "track"))
            raise InvalidInputError(f"a search has no {unknown}; there are {known}", value=unknown)
        unit = unit_row(vector)
        if self._store.dimension is not None:
            check_dimension(len(unit), self._store.dimension)
        rank = options.get("rank")
        if rank is not None:
            options = {**options, "rank": _rank(self._store.policy, rank)}
        return Query(unit, k, episode_id=episode_id, **options)

    def _select(self, namespace: Namespace, query: Query) -> list[Selected]:
        if self._store.dimension is None:
            return []
        now = self._store.clock()
        space = self._store.replica.space(namespace, self._store.dimension, self._store.policy, now)
        chosen = self._recall.select(space, query, self._store.policy, now)
        if query.episode_id is not None and self._store.policy.record_held_back:
            held = self._recall.held_back(space, query, self._store.policy, chosen, now)
            chosen = [*chosen, *(h._replace(arm=Arm.HELD_BACK) for h in held)]
        return chosen

    def _deliver(
        self,
        chosen: Sequence[Selected],
        namespace: Namespace,
        episode: EpisodeKey | None,
        entry: RunEntry | None,
        run_id: UUID | None,
        asked: Asked,
    ) -> dict[int, Text]:
        """The texts of what was chosen, and in the same transaction the record that they are shown."""
        seqs = [c.seq for c in chosen]
        if episode is not None and chosen:
            exposures = [
                Exposure(c.seq, rank, c.similarity, c.arm, c.propensity)
                for rank, c in enumerate(chosen)
            ]
            root = None if entry is None else entry.root
            with self._store.losses.guard("what a run retrieved"):
                texts = self._show(seqs, exposures, namespace, episode, root, asked)
                if entry is not None:
                    shown = [c.seq for c in chosen if c.arm.reaches_model]
                    self._store.runs.searched(
                        entry, run_id, [texts[s].id for s in shown if s in texts]
                    )
                return texts
        with self._database.read() as session:
            return self._memories.texts(session, seqs)

    @retried
    def _show(
        self,
        seqs: Sequence[int],
        exposures: Sequence[Exposure],
        namespace: Namespace,
        episode: EpisodeKey,
        root: Root | None,
        asked: Asked,
    ) -> dict[int, Text]:
        with self._database.write(alone=False) as session:
            texts = self._memories.texts(session, seqs)
            # What was erased since the search is neither shown nor written down.
            exposures = [e for e in exposures if e.seq in texts]
            self._journal.expose(session, namespace, episode, exposures, root, asked)
        return texts


def _text_of(query: Any) -> str:
    if not isinstance(query, str):
        raise InvalidInputError(
            f"the query is {query!r}; give a text, such as by itemgetter('question') | retriever",
            value=query,
        )
    return query


def _rank(policy: Policy, weights: Any) -> Rank:
    try:
        return policy.with_rank(weights).rank
    except (TypeError, ValidationError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise InvalidInputError(
            f"rank={weights!r} ({reason}); give weights of similarity, worth and recency",
            value=weights,
        ) from error


def _hits(chosen: Sequence[Selected], texts: Mapping[int, Text]) -> list[Hit]:
    return [
        Hit(
            id=texts[c.seq].id,
            seq=c.seq,
            text=texts[c.seq].text,
            metadata=texts[c.seq].metadata,
            similarity=c.similarity,
            score=c.score,
            arm=c.arm,
            propensity=c.propensity,
        )
        for c in chosen
        if c.seq in texts
    ]
