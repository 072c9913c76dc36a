"""`Reranker`: reorders the candidates of a search by cross-encoder scores, which may be blended with the scores of the
search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.rerank.cross_encoder import PairScorer, shared_cross
from plait.search.ranking import Ranking
from plait.search.trace import Trace

NAME = "rerank"  # of the stage, and of its scores in a ranking
DEFAULT_DEPTH = 50
DEFAULT_MODEL_BLEND = 0.5  # with the default model, which is small


@dataclass(frozen=True, slots=True)
class Reranker:
    """Reranks the best `depth` candidates of a search (or k, if that is more).

    `blend` is the share of the search's scores in the new scores; both are first scaled to 0 to 1 over the candidates
    of a query. With 0 the scores are those of the cross-encoder, unscaled.
    """

    scorer: PairScorer
    depth: int = DEFAULT_DEPTH
    blend: float = 0.0

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ConfigError(f"the rerank depth is {self.depth}; it must be at least 1")
        if not 0 <= self.blend < 1:
            raise ConfigError(f"blend is {self.blend}; it is a share, from 0 to below 1")

    def rerank(
        self,
        queries: Sequence[str],
        passages: Sequence[Sequence[str]],
        rankings: Sequence[Ranking],
        k: int,
        trace: Trace,
    ) -> list[Ranking]:
        """The k best of each query's ranking by new scores. `passages` has the text to score of each candidate, in the
        order of its ranking: the best passage of the document, after its title."""
        with trace.stage(NAME) as stage:
            pairs = [
                (query, passage) for query, candidates in zip(queries, passages, strict=True) for passage in candidates
            ]
            stage.counts["pairs"] = len(pairs)
            ends = np.cumsum([len(candidates) for candidates in passages])
            scores = np.split(self.scorer.score(pairs), ends[:-1])
            return [reorder(ranking, new, k, self.blend) for ranking, new in zip(rankings, scores, strict=True)]


def load_reranker(
    model: str | None = None, *, depth: int = DEFAULT_DEPTH, blend: float | None = None, n_threads: int | None = None
) -> Reranker:
    """The reranker of a model folder, or of plait-cross-small (None). By default only that model is blended."""
    if blend is None:
        blend = DEFAULT_MODEL_BLEND if model is None else 0.0
    return Reranker(shared_cross(model, n_threads=n_threads), depth, blend)


def reorder(ranking: Ranking, scores: NDArray[np.float32], k: int, blend: float = 0.0) -> Ranking:
    """The k best of the ranking by cross-encoder scores (candidates,), blended if `blend` is not 0.

    The parts and ranks of the search stay in the ranking. Gains are shares of the new score: all of it is the
    cross-encoder's, but for the blended share, which the retrievers divide as before.
    """
    new_scores = blend_scores(ranking.scores, scores, blend) if blend else scores
    order = np.lexsort((ranking.docs, -new_scores))[:k]
    ranks = ranking.ranks or {name: np.arange(1, len(ranking) + 1) for name in ranking.parts}
    search_gain = np.zeros(len(ranking)) if not blend else blend * unit_range(ranking.scores)
    gains = _divide_gain(ranking, list(ranks), search_gain)
    rerank_gain = (1 - blend) * unit_range(scores)[order] if blend else np.ones(len(order))
    return replace(
        ranking,
        docs=ranking.docs[order],
        scores=new_scores[order],
        rows=ranking.rows[order],
        parts={**{name: part[order] for name, part in ranking.parts.items()}, NAME: scores[order]},
        ranks={**{name: part[order] for name, part in ranks.items()}, NAME: np.arange(1, len(order) + 1)},
        gains={**{name: gain[order] for name, gain in gains.items()}, NAME: rerank_gain},
    )


def blend_scores(first: NDArray[np.float32], second: NDArray[np.float32], blend: float) -> NDArray[np.float32]:
    """blend * first + (1 - blend) * second, each scaled to 0 to 1; (candidates,)."""
    return (blend * unit_range(first) + (1 - blend) * unit_range(second)).astype(np.float32)


def unit_range(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Min-max scaling to 0 to 1; all 1 if the scores are equal."""
    if not len(scores):
        return np.zeros(0)
    low, spread = float(scores.min()), float(np.ptp(scores))
    return (scores.astype(np.float64) - low) / spread if spread else np.ones(len(scores))


def _divide_gain(ranking: Ranking, names: Sequence[str], gain: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Divides `gain` (candidates,) among the retrievers in proportion to their gains so far."""
    default = np.zeros(len(ranking)) if ranking.gains else np.ones(len(ranking))
    before = {name: np.asarray(ranking.gains.get(name, default)) for name in names}
    total = sum(before.values(), np.zeros(len(ranking)))
    return {
        name: gain * np.divide(part, total, out=np.zeros(len(ranking)), where=total > 0)
        for name, part in before.items()
    }
