"""`CurRetriever`: ranks documents by a cross-encoder, with a budget of calls for each query. An item is a document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from plait.cur.adacur import IDENTITY, AdaptiveCur, AdaptiveCurConfig
from plait.cur.anncur import Anncur
from plait.cur.calls import Calls, Items, Scores
from plait.cur.index import inner_products, scored_texts
from plait.rerank.cross_encoder import PairScorer
from plait.search.filtering import DocFilter
from plait.search.query import QueryBatch
from plait.search.ranking import UNKNOWN_ROW, Ranking
from plait.search.retriever import Retriever
from plait.search.trace import Stage, Trace
from plait.storage.store import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedCurIndex:
    """Anchors and quantized item embeddings, as a CUR index stores them; an `ApproximateIndex`."""

    anchors: Items  # (anchors,)
    codes: NDArray[np.int8]  # (items, anchors)
    scales: NDArray[np.float32]  # (items,)

    def approximate(self, anchor_scores: Scores) -> Scores:
        return inner_products(anchor_scores, self.codes, self.scales)


@dataclass(frozen=True, slots=True, eq=False)
class ItemTable:
    """The documents as items, and the arrays of the method: `index` for anncur, `vectors` for adacur and axn."""

    docs: NDArray[np.int64]  # (items,) document numbers; anchors may be deleted documents
    is_live: NDArray[np.bool_]  # (items,)
    anchor_texts: dict[int, str]  # by item; an anchor's text is still needed after its deletion
    index: QuantizedCurIndex | None = None
    vectors: NDArray[np.floating] | None = None  # (items, dim)


@dataclass(frozen=True, slots=True, eq=False)
class CurRetriever:
    """Retrieves documents by their cross-encoder scores with at most `budget` calls for each query."""

    name: str  # of the mode
    scorer: PairScorer
    item_table: Callable[[Snapshot], ItemTable] = field(repr=False)
    budget: int
    config: AdaptiveCurConfig
    start: Retriever | None = None  # retrieves the candidates of the first round; None: random ones
    version: int = 0  # of the CUR index
    uses_dense_query: bool = False  # whether scores are scaled to the inner products of the query's dense vector

    reads_text: ClassVar[bool] = True

    @property
    def needs_encoder(self) -> bool:
        return self.uses_dense_query or (self.start is not None and self.start.needs_encoder)

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        table = self.item_table(snapshot)
        docs = None if doc_filter is None else doc_filter.docs
        among = np.flatnonzero(table.is_live if docs is None else table.is_live & np.isin(table.docs, docs))
        first = self._first_candidates(snapshot, batch, doc_filter, trace, table, among)
        inner = Trace()
        rankings = [
            self._search(snapshot, batch, number, k, table, among, first[number], inner) for number in range(len(batch))
        ]
        trace.add(inner, under=self.name)
        return rankings

    def _search(
        self,
        snapshot: Snapshot,
        batch: QueryBatch,
        number: int,
        k: int,
        table: ItemTable,
        among: Items,
        first: Items,
        trace: Trace,
    ) -> Ranking:
        """The ranking of query `number` of the batch."""
        if not len(among):
            nothing = np.zeros(0, np.int64)
            return Ranking(nothing, np.zeros(0, np.float32), nothing)
        calls = Calls(self._item_scorer(snapshot, batch.texts[number], table), self.budget)
        predicted: Scores | None = None
        if table.index is not None:
            top = Anncur(table.index).search(calls, k, among=among)
            predicted = table.index.approximate(calls.score(table.index.anchors))
        else:
            assert table.vectors is not None
            dense = batch.embeddings.dense
            query = dense[number] if self.uses_dense_query and dense is not None else None
            method = AdaptiveCur(table.vectors, self.config, scale=IDENTITY if query is None else None)
            top = method.search(calls, k, first=first, among=among, query=query)
        trace.stages += [Stage(each.name, each.seconds, {"calls": len(each.items)}) for each in calls.rounds]
        rounds, round_ranks = _round_of_items(calls, top.items)
        parts, ranks = {"round": rounds}, {"round": round_ranks}
        if predicted is not None:
            top_predicted = predicted[top.items]
            parts["predicted"] = top_predicted.astype(np.float32)
            ranks["predicted"] = np.array([1 + int((predicted[among] > score).sum()) for score in top_predicted])
        rows = np.full(len(top), UNKNOWN_ROW, np.int64)
        # Neither part adds to the score, which is the cross-encoder's alone.
        gains = {name: np.zeros(len(top)) for name in parts}
        return Ranking(table.docs[top.items], top.scores.astype(np.float32), rows, parts, ranks, gains)

    def _item_scorer(self, snapshot: Snapshot, query: str, table: ItemTable) -> Callable[[Items], NDArray[np.float32]]:
        def score(items: Items) -> NDArray[np.float32]:
            to_fetch = [int(item) for item in items if int(item) not in table.anchor_texts]
            fetched = scored_texts(snapshot.fetch(table.docs[to_fetch].tolist())) if to_fetch else []
            texts = table.anchor_texts | dict(zip(to_fetch, fetched, strict=True))
            return self.scorer.score([(query, texts[int(item)]) for item in items])

        return score

    def _first_candidates(
        self,
        snapshot: Snapshot,
        batch: QueryBatch,
        doc_filter: DocFilter | None,
        trace: Trace,
        table: ItemTable,
        among: Items,
    ) -> list[Items]:
        """The candidates of each query's first round: those of `start`, then random ones in case they are too few."""
        if table.index is not None:
            return [np.zeros(0, np.int64)] * len(batch)
        random_items = np.random.default_rng(self.config.seed).permutation(among)
        if self.start is None:
            return [random_items] * len(batch)
        with trace.stage(f"start ({self.start.name})"):
            rankings = self.start.retrieve(snapshot, batch, self.budget, doc_filter, trace)
        return [np.concatenate((_items_of(table.docs, ranking.docs), random_items)) for ranking in rankings]


def _items_of(item_docs: NDArray[np.int64], docs: NDArray[np.int64]) -> Items:
    """The items of these documents, in their order; documents that are no items are left out."""
    order = np.argsort(item_docs, kind="stable")
    positions = np.minimum(np.searchsorted(item_docs, docs, sorter=order), len(item_docs) - 1)
    items = order[positions]
    return np.asarray(items[item_docs[items] == docs], np.int64)


def _round_of_items(calls: Calls, items: Items) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The round that scored each item, from 1, and the item's rank among the scores of that round."""
    round_and_rank = {
        int(each.items[position]): (number, rank)
        for number, each in enumerate(calls.rounds, 1)
        for rank, position in enumerate(np.argsort(-each.scores, kind="stable"), 1)
    }
    pairs = np.array([round_and_rank[int(item)] for item in items]).reshape(-1, 2)
    return pairs[:, 0].astype(np.float32), pairs[:, 1].astype(np.int64)
