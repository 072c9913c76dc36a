"""Full text: BM25 as the catalogue computes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plait.search.ranking import UNKNOWN_ROW, QueryBatch, Ranking
from plait.search.retriever import Allowed
from plait.search.trace import Trace
from plait.storage.store import Snapshot


@dataclass(frozen=True, slots=True)
class Bm25:
    """Full text, scored by BM25 over whole documents. Needs no model."""

    name: str = "bm25"
    needs_encoder: bool = False

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        del trace
        found = []
        for text in batch.texts:
            docs, scores = snapshot.bm25(text, k, allowed=allowed)
            found.append(Ranking(docs, scores, np.full(len(docs), UNKNOWN_ROW, np.int64)))
        return found
