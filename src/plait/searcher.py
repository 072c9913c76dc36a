"""`Searcher`: queries to rankings on one snapshot. It knows an index's encoder, plans and cross-encoders."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plait.embeddings import Embeddings
from plait.encode.chunking import with_title
from plait.encode.load import EXTERNAL, LazyEncoder
from plait.encode.protocol import TokenReader
from plait.errors import ConfigError, QueryError
from plait.records import Hit
from plait.search.candidates import numbers_of
from plait.search.hits import load_hits
from plait.search.plan import CUR_MODES, Plan, plan_for
from plait.search.ranking import QueryBatch, Ranking
from plait.search.trace import Trace
from plait.storage.store import Snapshot, Store

if TYPE_CHECKING:
    from plait.rerank.reranker import Reranker

    Rerank = Reranker | str | Path | bool | None  # a folder names a cross-encoder, and True the bundled one


class Searcher:
    """What stays the same between the searches of an index, while its snapshots come and go."""

    def __init__(self, store: Store, source: LazyEncoder, *, n_threads: int) -> None:
        self._store, self._source, self._n_threads = store, source, n_threads
        self._cross: dict[str, object] = {}  # what modes that ask a cross-encoder keep between searches
        self._rerankers: dict[str | None, Reranker] = {}  # those that were loaded, by model

    def plan(
        self, snapshot: Snapshot, mode: str, *, exact: bool = False, options: Mapping[str, object] | None = None
    ) -> Plan:
        if mode in CUR_MODES:
            from plait.cur.modes import cur_plan  # most searches ask no cross-encoder

            return cur_plan(mode, self._store, options or {}, exact=exact, cache=self._cross, n_threads=self._n_threads)
        return plan_for(
            mode,
            self._store.spec,
            exact=exact,
            n_threads=self._n_threads,
            options=options,
            exclude_from_hybrid=self._store.exclude_from_hybrid,
            fitted=snapshot.weights.fitted if self._store.exclude_from_hybrid else None,
        )

    def encode(self, queries: Sequence[str], plan: Plan, trace: Trace) -> QueryBatch:
        for query in queries:
            check_query(query)
        if not plan.needs_encoder:
            return QueryBatch(queries, Embeddings())
        with trace.stage("load"):
            encoder = self._source.get()
        with trace.stage("encode"):
            return QueryBatch(queries, encoder.encode_queries(queries))

    def run(
        self,
        snapshot: Snapshot,
        plan: Plan,
        batch: QueryBatch,
        k: int,
        trace: Trace,
        *,
        filter: str | None = None,
        candidates: Sequence[str] | None = None,
        rerank: Rerank = None,
    ) -> list[Ranking]:
        """The k best of each query, among what the filter and the candidates leave."""
        if not isinstance(k, int) or k < 1:
            raise ConfigError(f"k is {k!r}; it must be a whole number of at least 1")
        allowed = None
        if filter is not None:
            with trace.stage("filter"):
                allowed = snapshot.filtered(filter)
                if len(allowed) == snapshot.n_documents:
                    allowed = None  # it keeps every document, and choosing among rows would only take time
        if candidates is not None:
            allowed = numbers_of(snapshot, candidates, among=allowed)
        reranker = self.reranker(rerank, trace)
        if reranker is None:
            return plan.run(snapshot, batch, k, allowed, trace)
        found = plan.run(snapshot, batch, max(k, reranker.depth), allowed, trace)
        passages = [
            [with_title(hit.title, hit.passage) for hit in load_hits(snapshot, text, ranking)]
            for text, ranking in zip(batch.texts, found, strict=True)
        ]
        return reranker.rerank(batch.texts, passages, found, k, trace)

    def reranker(self, given: Rerank, trace: Trace) -> Reranker | None:
        """What reranks, loaded if it is only named; None if nothing does."""
        if given is None or given is False:
            return None
        from plait.rerank.reranker import Reranker, load_reranker  # most searches are not reranked

        if isinstance(given, Reranker):
            return given
        model = None if given is True else str(given)
        if model not in self._rerankers:
            with trace.stage("load reranker"):
                self._rerankers[model] = load_reranker(model, n_threads=self._n_threads)
        return self._rerankers[model]

    def explained(
        self,
        snapshot: Snapshot,
        plan: Plan,
        batch: QueryBatch,
        rankings: Sequence[Ranking],
        hits: Sequence[Sequence[Hit]],
        trace: Trace,
    ) -> list[list[Hit]]:
        """The hits with why they are there."""
        from plait.search.explain import Explainer  # most searches are not explained

        with trace.stage("explain"):
            tokens = self.tokens(plan)
            return [
                Explainer(snapshot, batch, number, ranking, tokens).explained(own)
                for number, (ranking, own) in enumerate(zip(rankings, hits, strict=True))
            ]

    def tokens(self, plan: Plan) -> TokenReader | None:
        """What knows the tokens behind vectors, if the encoder does."""
        if not plan.needs_encoder or self._store.fingerprint == EXTERNAL:
            return None
        encoder = self._source.get()
        return encoder if isinstance(encoder, TokenReader) else None

    def state(self, snapshot: Snapshot, plan: Plan, rerank: Rerank) -> str:
        """Names all that rankings depend on: the index at this commit, its encoder, the plan, and what reranks."""
        files = [file.record for segment in snapshot.segments for file in segment.files.values()]
        reranker = self.reranker(rerank, Trace())
        seen = (
            self._store.created,
            snapshot.commit,
            self._store.fingerprint,
            files,
            plan,
            plan.fusion_on(snapshot),
            snapshot.tuned,
            *([] if reranker is None else [reranker.scorer.fingerprint, reranker.depth, reranker.blend]),
        )
        return hashlib.sha256(repr(seen).encode()).hexdigest()


def check_query(query: str) -> None:
    """Refuses a query that cannot mean anything."""
    if not isinstance(query, str):
        raise QueryError(f"a query must be text; got {type(query).__name__}: {query!r:.60}")
    if not query.strip():
        raise QueryError("the query is empty; say what to search for")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"the query has a lone surrogate at character {error.start}, which is not valid text; decode it anew"
        ) from None
