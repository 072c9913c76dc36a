"""`Reranker`: a refiner. What a plan found is scored anew by a cross-encoder, which reads query and passage at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plait.cross.encoder import PairScorer
from plait.encode.passages import with_title
from plait.errors import ConfigError
from plait.index.store import Snapshot
from plait.search.hits import hits_of
from plait.search.ranking import Ranking
from plait.search.trace import Trace

NAME = "rerank"
DEPTH = 50


@dataclass(frozen=True, slots=True)
class Reranker:
    """The `depth` best of a plan, or k if that is more, in the order of a cross-encoder. A document is scored by the
    passage that won, with its title."""

    scorer: PairScorer
    depth: int = DEPTH

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ConfigError(f"the depth of reranking is {self.depth}; it must be at least 1")

    def rerank(
        self, snapshot: Snapshot, texts: Sequence[str], rankings: Sequence[Ranking], k: int, trace: Trace
    ) -> list[Ranking]:
        """The k best of each ranking, which a plan was asked for `depth` documents or k."""
        with trace.stage(NAME) as stage:
            passages = [
                [with_title(hit.title, hit.passage) for hit in hits_of(snapshot, text, found)]
                for text, found in zip(texts, rankings, strict=True)
            ]
            pairs = [(text, passage) for text, own in zip(texts, passages, strict=True) for passage in own]
            stage.counts["pairs"] = len(pairs)
            scores = self.scorer.score(pairs)
            stops = np.cumsum([len(own) for own in passages])
            return [reordered(found, own, k) for found, own in zip(rankings, np.split(scores, stops[:-1]), strict=True)]


def reordered(found: Ranking, scores: NDArray[np.float32], k: int) -> Ranking:
    """The ranking by new scores. What it was made of stays to be seen, with the ranks it had; the score is the
    cross-encoder's alone, and so is all of the gain."""
    order = np.lexsort((found.docs, -scores))[:k]
    ranks = found.ranks or {name: np.arange(1, len(found) + 1) for name in found.parts}
    moved = replace(
        found,
        docs=found.docs[order],
        scores=scores[order],
        rows=found.rows[order],
        parts={name: part[order] for name, part in found.parts.items()},
        ranks={name: own[order] for name, own in ranks.items()},
        gains={name: np.zeros(len(order)) for name in ranks},
    )
    return replace(
        moved,
        parts={**moved.parts, NAME: moved.scores},
        ranks={**moved.ranks, NAME: np.arange(1, len(order) + 1)},
        gains={**moved.gains, NAME: np.ones(len(order))},
    )
