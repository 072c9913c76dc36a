"""What hybrid scores mean on a collection, measured over all shards; see `plait.search.calibration`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plait.cluster.fan_out import LocalFanOut
from plait.cluster.manifest import Manifest
from plait.cluster.searcher import ShardedSearcher
from plait.cluster.sharded_index import open_shards
from plait.encode.load import LazyEncoder
from plait.encode.protocol import Encoder
from plait.search.calibration import unrelated_queries
from plait.search.fusion import BoundedSum, bounds_of
from plait.search.modes import PlanContext, resolve
from plait.searcher import SearchRequest
from plait.storage.store import Store


def calibrated(folder: Path, manifest: Manifest, encoder: Encoder) -> Manifest:
    """The manifest with the scores of unrelated queries, whose words come from the documents of the largest shard."""
    known = manifest.calibration
    largest = max(range(len(manifest.shards)), key=lambda number: manifest.shards[number].n_documents)
    with Store.open(manifest.shard_path(folder, largest), read_only=True) as store, store.snapshot() as snapshot:
        texts = unrelated_queries(snapshot)
    context = PlanContext(
        spec=manifest.spec, k=1, bounds=bounds_of(known), exclude_from_hybrid=tuple(manifest.exclude_from_hybrid)
    )
    fusion = resolve("hybrid", None, context).fusion
    if known is None or not texts or not isinstance(fusion, BoundedSum):
        return manifest
    fan_out = LocalFanOut(open_shards(folder, manifest))
    try:
        searcher = ShardedSearcher(manifest, fan_out, LazyEncoder(None, encoder, precision=None, n_threads=1))
        answer = searcher.search_embeddings(encoder.encode_queries(texts), texts, SearchRequest(k=1, syntax=False))
    finally:
        fan_out.close()
    scores = [hits[0].score if hits else 0.0 for hits in answer.hits]
    mean = sum(scores) / len(scores)
    deviation = (sum((score - mean) ** 2 for score in scores) / len(scores)) ** 0.5
    return replace(
        manifest,
        calibration=replace(
            known,
            weights={name: float(weight) for name, weight in fusion.weights.items()},
            unrelated_mean=round(mean, 4),
            unrelated_deviation=round(deviation, 4),
            n_queries=len(texts),
            n_documents=manifest.n_documents,
        ),
    )
