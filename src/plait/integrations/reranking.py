"""The cross-encoder of a reranker inside a framework: loaded when it is first used, and shared within the process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.checks import check_count, shown
from plait.errors import ConfigError, QueryError
from plait.rerank.cross_encoder import PairScorer, shared_cross


def check_scorer(model: Any) -> None:
    """`model` is None for plait-cross-small, a name, a folder, or an object that scores pairs."""
    if model is not None and not isinstance(model, str | Path) and not callable(getattr(model, "score", None)):
        raise ConfigError(
            f"model is {shown(model)}; it must be the name or folder of a cross-encoder, or an object with a method "
            f"score(pairs), such as plait.adapters.CrossEncoderScorer"
        )


def check_top_n(top_n: int | None) -> None:
    if top_n is not None:
        check_count("top_n", top_n)


def best_texts(model: Any, query: str, texts: Sequence[str], top_n: int | None) -> list[tuple[int, float]]:
    """Positions and scores of the texts that the cross-encoder scores highest, best first; all of them if `top_n` is
    None. Equal scores keep their order."""
    if not isinstance(query, str) or not query.strip():
        raise QueryError(f"the query is {shown(query)}; a reranker needs its text")
    if not texts:
        return []
    scorer: PairScorer = shared_cross(model) if model is None or isinstance(model, str | Path) else model
    scores = scorer.score([(query, text) for text in texts]).tolist()
    order = sorted(range(len(texts)), key=lambda position: -scores[position])
    return [(position, float(scores[position])) for position in order[:top_n]]
