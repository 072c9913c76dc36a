"""qdrant-edge: Qdrant's core in the process, with MaxSim between points. Build options: m (0 for no graph) and
ef_construct. Settings: exact, hnsw_ef."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as qdrant
from numpy.typing import NDArray

from benchmarks.engine.corpus import DIM, Corpus
from benchmarks.engine.rivals.serve import Options, serve

BATCH = 100  # points per update


class Qdrant:
    packages = ("qdrant-edge-py", "numpy")

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        config = self._config(options)
        made = qdrant.EdgeShard.create(str(index), config)
        number = 0
        for part in corpus.shards():
            points = []
            for rows in part.passages():
                points.append(qdrant.Point(number, rows.astype(np.float32).tolist()))
                number += 1
                if len(points) == BATCH:
                    made.update(qdrant.UpdateOperation.upsert_points(points))
                    points = []
            if points:
                made.update(qdrant.UpdateOperation.upsert_points(points))
        made.flush()
        made.optimize()
        made.close()
        return {}

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        del corpus
        self._shard = qdrant.EdgeShard.load(str(index), self._config(options))
        return {"info": str(self._shard.info())}

    def prepare(self, query: NDArray[np.float32]) -> Any:
        return qdrant.Query.Nearest(query.tolist())

    def search(self, query: Any, k: int, settings: Options) -> Any:
        params = qdrant.SearchParams(exact=settings["exact"], hnsw_ef=settings.get("hnsw_ef"))
        return self._shard.search(qdrant.SearchRequest(query=query, limit=k, params=params))

    def numbers(self, answer: Any) -> list[int]:
        return [int(point.id) for point in answer]

    def _config(self, options: Options) -> Any:
        graph = qdrant.HnswIndexConfig(
            m=options["m"],
            ef_construct=options["ef_construct"],
            full_scan_threshold=10,
            max_indexing_threads=options["threads"],
        )
        vectors = qdrant.EdgeVectorParams(
            size=DIM,
            distance=qdrant.Distance.Dot,
            multivector_config=qdrant.MultiVectorConfig(qdrant.MultiVectorComparator.MaxSim),
            hnsw_config=graph,
        )
        optimizers = qdrant.EdgeOptimizersConfig(
            default_segment_number=1, indexing_threshold=1000 if options["m"] else 100_000_000
        )
        return qdrant.EdgeConfig(
            vectors=vectors, hnsw_config=graph, optimizers=optimizers, max_search_threads=options["threads"]
        )


if __name__ == "__main__":
    serve(Qdrant())
