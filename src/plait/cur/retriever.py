"""`CurGenerator`: a search that asks a cross-encoder a budget of times. A document is one item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from plait.cur.adacur import AdaptiveCur, RoundsConfig
from plait.cur.anncur import Anncur
from plait.cur.calls import Calls, Items, Scores
from plait.cur.index import inner_products, texts_of
from plait.errors import ConfigError
from plait.rerank.cross_encoder import PairScorer
from plait.search.ranking import UNKNOWN_ROW, QueryBatch, Ranking
from plait.search.retriever import Allowed, Generator
from plait.search.trace import Stage, Trace
from plait.storage.store import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Item embeddings as an index keeps them; what `Anncur` asks of its index."""

    anchors: Items  # items
    codes: NDArray[np.int8]  # (items, anchors)
    scales: NDArray[np.float32]

    def approximate(self, anchor_scores: Scores) -> Scores:
        return inner_products(anchor_scores, self.codes, self.scales)


@dataclass(frozen=True, slots=True, eq=False)
class ItemTable:
    """The items of a search: documents, and what is known of them."""

    docs: NDArray[np.int64]  # (items,) document numbers; anchors may be deleted ones
    live: NDArray[np.bool_]  # (items,)
    texts: dict[int, str]  # by item, of those whose text is kept aside: anchors
    coded: Coded | None = None  # for anncur
    vectors: NDArray[np.floating] | None = None  # (items, dim), for the others


@dataclass(frozen=True, slots=True, eq=False)
class CurGenerator:
    """Documents by their cross-encoder scores, found with at most `budget` calls for each query."""

    name: str
    scorer: PairScorer
    table: Callable[[Snapshot], ItemTable] = field(repr=False)
    budget: int
    rounds: RoundsConfig
    start: Generator | None = None  # who gives the first candidates; None is chance
    stamp: int = 0  # of the CUR index
    dense_query: bool = False  # whether scores are brought to the range of the query's dense vector

    @property
    def needs_encoder(self) -> bool:
        return self.dense_query or (self.start is not None and getattr(self.start, "needs_encoder", True))

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        table = self.table(snapshot)
        among = np.flatnonzero(table.live if allowed is None else table.live & np.isin(table.docs, allowed))
        first = self._first(snapshot, batch, allowed, trace, table, among)
        within = Trace()
        found = [
            self._one(snapshot, batch, number, k, table, among, first[number], within) for number in range(len(batch))
        ]
        trace.add(within, under=self.name)
        return found

    def _one(
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
        if not len(among):
            nothing = np.zeros(0, np.int64)
            return Ranking(nothing, np.zeros(0, np.float32), nothing)
        calls = Calls(self._scores_of(snapshot, batch.texts[number], table), self.budget)
        predicted: Scores | None = None
        if table.coded is not None:
            found = Anncur(table.coded).search(calls, k, among=among)
            predicted = table.coded.approximate(calls.score(table.coded.anchors))
        else:
            assert table.vectors is not None
            dense = batch.embeddings.dense[number] if self.dense_query and batch.embeddings.dense is not None else None
            method = AdaptiveCur(table.vectors, self.rounds, **({"scale": None} if dense is not None else {}))
            found = method.search(calls, k, first=first, among=among, query=dense)
        trace.stages += [Stage(own.name, own.seconds, {"calls": len(own.items)}) for own in calls.rounds]
        numbers, places = _in_rounds(calls, found.items)
        parts, ranks = {"round": numbers}, {"round": places}
        if predicted is not None:
            parts["predicted"] = predicted[found.items].astype(np.float32)
            ranks["predicted"] = np.array([1 + int((predicted[among] > own).sum()) for own in predicted[found.items]])
        rows = np.full(len(found), UNKNOWN_ROW, np.int64)
        # Neither adds to the score, which is the cross-encoder's alone.
        gains = {name: np.zeros(len(found)) for name in parts}
        return Ranking(table.docs[found.items], found.scores.astype(np.float32), rows, parts, ranks, gains)

    def _scores_of(self, snapshot: Snapshot, query: str, table: ItemTable) -> Callable[[Items], NDArray[np.float32]]:
        def scores(items: Items) -> NDArray[np.float32]:
            absent = [int(item) for item in items if int(item) not in table.texts]
            fetched = texts_of(snapshot.fetch(table.docs[absent].tolist())) if absent else []
            texts = table.texts | dict(zip(absent, fetched, strict=True))
            return self.scorer.score([(query, texts[int(item)]) for item in items])

        return scores

    def _first(
        self,
        snapshot: Snapshot,
        batch: QueryBatch,
        allowed: Allowed,
        trace: Trace,
        table: ItemTable,
        among: Items,
    ) -> list[Items]:
        """What each query begins with, filled up by chance where another search finds too few."""
        if table.coded is not None:
            return [np.zeros(0, np.int64)] * len(batch)
        chance = np.random.default_rng(self.rounds.seed).permutation(among)
        if self.start is None:
            return [chance] * len(batch)
        with trace.stage(f"start ({self.start.name})"):
            rankings = self.start.generate(snapshot, batch, self.budget, allowed, trace)
        return [np.concatenate((_places(table.docs, found.docs), chance)) for found in rankings]


def _places(docs: NDArray[np.int64], wanted: NDArray[np.int64]) -> Items:
    """The items of these documents, in their order; those that are no items are left out."""
    order = np.argsort(docs, kind="stable")
    place = np.minimum(np.searchsorted(docs, wanted, sorter=order), len(docs) - 1)
    items = order[place]
    return np.asarray(items[docs[items] == wanted], np.int64)


def _in_rounds(calls: Calls, items: Items) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Which round scored each item, from 1, and its rank among what that round scored."""
    of = {
        int(own.items[place]): (number, rank)
        for number, own in enumerate(calls.rounds, 1)
        for rank, place in enumerate(np.argsort(-own.scores, kind="stable"), 1)
    }
    found = np.array([of[int(item)] for item in items]).reshape(-1, 2)
    return found[:, 0].astype(np.float32), found[:, 1].astype(np.int64)


def check_budget(budget: int, n_anchors: int) -> None:
    if budget <= n_anchors:
        raise ConfigError(
            f"the budget is {budget} calls, and {n_anchors} anchors are scored before anything else; give a budget "
            f"above {n_anchors}, or build the CUR index with fewer anchors"
        )
