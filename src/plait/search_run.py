"""`SearchRun`: one search on one snapshot, from encoded queries to hits.

rank by levels -> rerank block by block -> group -> sort -> page -> fetch -> passages -> explain

Every step sees the same documents whatever page is asked for, so pages fit together.
"""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.encode.protocol import TermReader, TokenReader
from plait.records import Group, Hit
from plait.search.filtering import DocFilter
from plait.search.hits import FoundDocument, fetch_documents, make_hits
from plait.search.paging import concatenate, join, levels, take, without
from plait.search.plan import Plan
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking
from plait.search.scores import at_least, resolve_min_score, with_confidence
from plait.search.trace import Trace
from plait.storage.snapshot import Snapshot, StoredDocument

if TYPE_CHECKING:
    from plait.rerank.reranker import Reranker
    from plait.searcher import SearchRequest

MIN_QUERIES = 4  # for each thread: with fewer, a thread costs more than it saves

Documents = dict[int, FoundDocument]  # by number


class SearchRun:
    """One search; `make_plan(k, n_threads)` gives the plan for k documents."""

    def __init__(
        self,
        snapshot: Snapshot,
        request: SearchRequest,
        make_plan: Callable[[int | None, int], Plan],
        *,
        reranker: Reranker | None,
        doc_filter: Callable[[], DocFilter | None],
        exclude: int | None,
        n_threads: int,
        trace: Trace,
    ) -> None:
        self._snapshot, self._request, self._make_plan = snapshot, request, make_plan
        self._reranker, self._exclude, self._n_threads = reranker, exclude, n_threads
        self._filter = doc_filter
        self.trace = trace
        self.plan = make_plan(request.n_ranked, n_threads)
        self._n_ranked = request.n_ranked or self.plan.k

    def hits(self, batch: QueryBatch, reader: TokenReader | TermReader | None = None) -> list[list[Hit]]:
        """The hits of each query. Many queries are shared among threads; `reader` is for explanations."""
        doc_filter = self._filter()
        n_parts = 1 if self._reranker is not None else min(self._n_threads, len(batch) // MIN_QUERIES)
        if n_parts <= 1:
            return self._hits(batch, doc_filter, reader, self.trace, self._n_threads)
        from concurrent.futures import ThreadPoolExecutor  # most searches have one query

        bounds = [len(batch) * part // n_parts for part in range(n_parts + 1)]
        parts = [batch.part(start, stop) for start, stop in pairwise(bounds)]
        traces = [Trace() for _ in parts]
        with ThreadPoolExecutor(n_parts) as pool:
            # Each thread runs in a copy of this context: it has the deadline of the search.
            running = [
                pool.submit(contextvars.copy_context().run, self._hits, part, doc_filter, reader, trace, 1)
                for part, trace in zip(parts, traces, strict=True)
            ]
            answers = [future.result() for future in running]
        for trace in traces:
            self.trace.stages.extend(trace.stages)
        return [hits for part in answers for hits in part]

    def rankings(self, batch: QueryBatch) -> list[Ranking]:
        """The documents of each query, without reranking."""
        return self._rankings(batch, self._filter(), self.trace, self._n_threads, self._n_ranked)

    def _hits(
        self,
        batch: QueryBatch,
        doc_filter: DocFilter | None,
        reader: TokenReader | TermReader | None,
        trace: Trace,
        n_threads: int,
    ) -> list[list[Hit]]:
        request = self._request
        n_ranked = self._n_ranked
        if self._reranker is not None:  # whole blocks
            n_ranked = -(-n_ranked // self._reranker.depth) * self._reranker.depth
        rankings = self._rankings(batch, doc_filter, trace, n_threads, n_ranked)
        documents: list[Documents] | None = None
        if self._reranker is not None:
            documents = self._fetch(batch, rankings, trace)
            rankings = self._rerank(batch, rankings, documents, trace)
        elif request.sort is not None or request.group_by is not None:
            documents = self._fetch(batch, rankings, trace)
        return [
            self._page(batch, number, ranking, None if documents is None else documents[number], reader, trace)
            for number, ranking in enumerate(rankings)
        ]

    def _rankings(
        self, batch: QueryBatch, doc_filter: DocFilter | None, trace: Trace, n_threads: int, n_ranked: int
    ) -> list[Ranking]:
        """The best documents of each query, by as many searches as `plait.search.paging` needs."""
        n_wanted = n_ranked + (self._exclude is not None)
        ends = levels(self.plan, n_wanted, self._snapshot.n_rows)
        runs = [self._make_plan(end, n_threads).run(self._snapshot, batch, doc_filter, trace) for end in ends]
        joined = [join([run[number] for run in runs], ends, n_wanted) for number in range(len(batch))]
        if self._exclude is not None:
            joined = [without(ranking, self._exclude).top(n_ranked) for ranking in joined]
        min_score = resolve_min_score(self._request.min_score, self.plan, self._snapshot.calibration.usable)
        return [at_least(ranking, min_score) for ranking in joined]

    def _rerank(
        self, batch: QueryBatch, rankings: Sequence[Ranking], documents: Sequence[Documents], trace: Trace
    ) -> list[Ranking]:
        """The rankings with each block of `depth` documents reordered, so that a page is the same whatever k is."""
        assert self._reranker is not None
        depth, blocks = self._reranker.depth, list[list[Ranking]]()
        for start in range(0, max(map(len, rankings), default=0), depth):
            parts = [take(one, np.arange(min(start, len(one)), min(start + depth, len(one)))) for one in rankings]
            passages = [
                [by_number[doc].passage for doc in part.docs.tolist()]
                for part, by_number in zip(parts, documents, strict=True)
            ]
            blocks.append(self._reranker.rerank(batch.texts, passages, parts, depth, trace))
        if not blocks:
            return list(rankings)
        return [concatenate([block[number] for block in blocks]) for number in range(len(batch))]

    def _page(
        self,
        batch: QueryBatch,
        number: int,
        ranking: Ranking,
        documents: Documents | None,
        reader: TokenReader | TermReader | None,
        trace: Trace,
    ) -> list[Hit]:
        """The hits of one query on the page that the request names."""
        request, groups = self._request, dict[int, Group]()
        positions = list(range(len(ranking)))
        if documents is not None:
            stored = [documents[doc].stored for doc in ranking.docs.tolist()]
            if request.group_by is not None:
                positions, groups = best_of_groups(stored, request.group_by)
            if request.sort is not None:
                positions = sort_positions(positions, stored, request.sort)
        positions = positions[request.offset : None if request.k is None else request.offset + request.k]
        if documents is None:
            (documents,) = self._fetch(batch, [take(ranking, np.asarray(positions, np.int64))], trace, number)
        hits = make_hits(ranking, documents, positions)
        hits = [replace(hit, group=groups.get(position)) for hit, position in zip(hits, positions, strict=True)]
        if request.passages > 1:
            from plait.search.best_passages import best_passages

            with trace.stage("passages"):
                stored_hits = [documents[doc].stored for doc in ranking.docs[positions].tolist()]
                hits = best_passages(self._snapshot, batch, number, hits, stored_hits, request.passages)
        if self._reranker is None:
            hits = with_confidence(hits, self.plan, self._snapshot.calibration.usable)
        if request.highlight:
            from plait.search.snippets import with_highlights

            with trace.stage("highlight"):
                hits = with_highlights(self._snapshot, batch, number, ranking, reader, hits, documents, positions)
        if not request.explain:
            return hits
        from plait.search.explain import Explainer  # most searches are not explained

        with trace.stage("explain"):
            explainer = Explainer(self._snapshot, batch, number, ranking, reader)
            return explainer.explain_hits(hits, documents, positions)

    def _fetch(self, batch: QueryBatch, rankings: Sequence[Ranking], trace: Trace, first: int = 0) -> list[Documents]:
        """The documents of rankings; that of the first is of query `first`."""
        with trace.stage("fetch"):
            texts = batch.texts[first : first + len(rankings)]
            return [
                fetch_documents(self._snapshot, text, ranking) for text, ranking in zip(texts, rankings, strict=True)
            ]


def best_of_groups(stored: Sequence[StoredDocument | Hit], name: str) -> tuple[list[int], dict[int, Group]]:
    """The position of the first document of each value of a field, and its group by position."""
    first, sizes = dict[str, int](), dict[str, int]()
    values = _values(name, stored)
    keys = [_group_key(value) for value in values]
    for position, key in enumerate(keys):
        first.setdefault(key, position)
        sizes[key] = sizes.get(key, 0) + 1
    return list(first.values()), {position: Group(values[position], sizes[key]) for key, position in first.items()}


def _group_key(value: Any) -> str:
    """Equal for equal values. 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def sort_positions(positions: Sequence[int], stored: Sequence[StoredDocument | Hit], sort: str) -> list[int]:
    from plait.storage.fields import Sort

    parsed = Sort.parse(sort)
    order = parsed.order(parsed.values([stored[position] for position in positions]))
    return [positions[number] for number in order]


def _values(name: str, stored: Sequence[StoredDocument | Hit]) -> list[Any]:
    from plait.filters.parser import field_named
    from plait.storage.fields import field_value

    field = field_named(name)
    return [field_value(field, document) for document in stored]
