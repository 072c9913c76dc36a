"""`Reranker`: a refiner. What a plan found is scored anew by a cross-encoder, which reads query and passage at once;
its scores may be blended with those that the plan gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plait.encode.chunking import with_title
from plait.errors import ConfigError
from plait.rerank.cross_encoder import PairScorer, load_cross
from plait.search.hits import load_hits
from plait.search.ranking import Ranking
from plait.search.trace import Trace
from plait.storage.store import Snapshot

NAME = "rerank"
DEPTH = 50
# The share of the plan's own scores beside the bundled model, which is a small one.
BUNDLED_BLEND = 0.5


@dataclass(frozen=True, slots=True)
class Reranker:
    """The `depth` best of a plan, or k if that is more, in the order of a cross-encoder. A document is scored by the
    passage that won, with its title. `blend` is the share of the plan's scores in the new ones, both brought to 0 to 1
    among what is reranked; at 0 the cross-encoder decides alone, and its scores stand as they are."""

    scorer: PairScorer
    depth: int = DEPTH
    blend: float = 0.0

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ConfigError(f"the depth of reranking is {self.depth}; it must be at least 1")
        if not 0 <= self.blend < 1:
            raise ConfigError(f"blend is {self.blend}; it is a share, from 0 to below 1")

    def rerank(
        self, snapshot: Snapshot, texts: Sequence[str], rankings: Sequence[Ranking], k: int, trace: Trace
    ) -> list[Ranking]:
        """The k best of each ranking, which a plan was asked for `depth` documents or k."""
        with trace.stage(NAME) as stage:
            passages = [
                [with_title(hit.title, hit.passage) for hit in load_hits(snapshot, text, found)]
                for text, found in zip(texts, rankings, strict=True)
            ]
            pairs = [(text, passage) for text, own in zip(texts, passages, strict=True) for passage in own]
            stage.counts["pairs"] = len(pairs)
            scores = self.scorer.score(pairs)
            stops = np.cumsum([len(own) for own in passages])
            parts = np.split(scores, stops[:-1])
            return [reordered(found, own, k, self.blend) for found, own in zip(rankings, parts, strict=True)]


def load_reranker(
    model: str | None = None, *, depth: int = DEPTH, blend: float | None = None, n_threads: int | None = None
) -> Reranker:
    """The reranker of a model folder, or of the bundled model, which alone is blended where nothing is said."""
    if blend is None:
        blend = BUNDLED_BLEND if model is None else 0.0
    return Reranker(load_cross(model, n_threads=n_threads), depth, blend)


def reordered(found: Ranking, scores: NDArray[np.float32], k: int, blend: float = 0.0) -> Ranking:
    """The ranking by new scores. What it was made of stays to be seen, with the ranks it had; the gain is the
    cross-encoder's, but for the share of the first scores."""
    mixed = blended(found.scores, scores, blend) if blend else scores
    order = np.lexsort((found.docs, -mixed))[:k]
    ranks = found.ranks or {name: np.arange(1, len(found) + 1) for name in found.parts}
    before = np.zeros(len(found)) if not blend else blend * unit_range(found.scores)
    moved = replace(
        found,
        docs=found.docs[order],
        scores=mixed[order],
        rows=found.rows[order],
        parts={name: part[order] for name, part in found.parts.items()},
        ranks={name: own[order] for name, own in ranks.items()},
        gains={name: own[order] for name, own in _shared_out(found, ranks, before).items()},
    )
    own_gain = (1 - blend) * unit_range(scores)[order] if blend else np.ones(len(order))
    return replace(
        moved,
        parts={**moved.parts, NAME: scores[order]},
        ranks={**moved.ranks, NAME: np.arange(1, len(order) + 1)},
        gains={**moved.gains, NAME: own_gain},
    )


def blended(first: NDArray[np.float32], scores: NDArray[np.float32], blend: float) -> NDArray[np.float32]:
    """(found,) the weighted sum of both, each brought to 0 to 1."""
    return (blend * unit_range(first) + (1 - blend) * unit_range(scores)).astype(np.float32)


def unit_range(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """The scores moved and stretched to 0 to 1; all 1 where they are equal."""
    if not len(scores):
        return np.zeros(0)
    low, spread = float(scores.min()), float(np.ptp(scores))
    return (scores.astype(np.float64) - low) / spread if spread else np.ones(len(scores))


def _shared_out(
    found: Ranking, names: Mapping[str, NDArray[np.int64]], total: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """What each generator gave of the first score's part, as they had shared it before."""
    gains = {name: np.asarray(found.gains.get(name, np.zeros(len(found)) if found.gains else np.ones(len(found))))
             for name in names}  # fmt: skip
    whole = sum(gains.values(), np.zeros(len(found)))
    return {
        name: total * np.divide(own, whole, out=np.zeros(len(found)), where=whole > 0) for name, own in gains.items()
    }
