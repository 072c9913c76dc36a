"""`plait tune --weights`: weights of strands for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from plait.cli.errors import say

if TYPE_CHECKING:
    from plait import Index
    from plait.storage.fusion_weights import SavedWeights
    from plait.tune.weight_search import Fitted


def fit(opened: Index, data: Path, split: str, fusion: str | None, *, as_json: bool) -> None:
    """Fits weights on a BEIR folder, saves them if they are better than the defaults, and tells what was found."""
    from plait.cli.progress import progress
    from plait.evaluate import load_beir

    beir = load_beir(data, split)
    with progress("scores", "queries", total=len(beir.queries)) as update:
        fitted, saved = opened.tune_fusion(
            beir.queries,
            beir.qrels,
            fusion=fusion,
            data=f"{data.name}, {split}",
            on_progress=lambda n_done: update(n_done, n_done),
        )
    if as_json:
        print(json.dumps({**asdict(fitted), "saved": saved is not None}))
        return
    _print(fitted)
    if saved is None:
        say("the default weights do as well on queries that took no part in choosing; nothing was saved")


def _print(fitted: Fitted) -> None:
    print(f"nDCG@10 while choosing, {fitted.fusion}:")
    for point in fitted.curve:
        print(f"  {point.ndcg:.4f}  {_told(point.weights)}")
    print(f"on the other half of {fitted.n_queries} queries:")
    for kind, ndcg in fitted.alone.items():
        print(f"  {ndcg:.4f}  {kind} alone")
    print(f"  {fitted.default_ndcg:.4f}  default weights")
    print(f"  {fitted.ndcg:.4f}  {_told(fitted.weights)}")


def weight_lines(read: SavedWeights) -> list[str]:
    """Nothing for an index whose weights were not fitted."""
    if read.damage:
        return [f"damaged ({read.damage}): defaults are used; run plait tune --weights anew, or plait tune --reset"]
    fitted = read.fitted
    if fitted is None:
        return []
    return [
        f"{_told(fitted.weights)} ({fitted.fusion})",
        f"nDCG@10 {fitted.ndcg:.4f}, with default weights {fitted.default_ndcg:.4f}, on {fitted.data}, {fitted.date}",
    ]


def _told(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {weight:g}" for kind, weight in weights.items())
