"""plait, through an index on disk. Settings:

level     "engine" ranks passages, as the other engines do; "call" also loads documents from the catalogue, as
          `Index.search_embeddings` does; "exact" scores every passage by its codes; "plaid" and "warp" are modes
n_probe, n_candidates, n_code_scored, n_rescored   those of `ProbeParams`; for a mode, those of its parameters
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from benchmarks.embed import SHARD
from benchmarks.engine.corpus import Corpus
from benchmarks.engine.rivals.serve import Options, serve
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.scoring.cpu import available_targets, current_target, force_target
from plait.search.hits import load_hits
from plait.search.multivector.method import Method, MethodRetriever
from plait.search.multivector.passages import ExactMulti
from plait.search.multivector.plaid import Plaid, PlaidParams
from plait.search.multivector.plait import ProbedMulti
from plait.search.multivector.probe import ProbeParams, resolve_probe
from plait.search.multivector.warp import Warp, WarpParams
from plait.search.plan import Plan
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking
from plait.search.retriever import Retriever
from plait.storage.snapshot import Snapshot
from plait.storage.store import Store

METHODS: dict[str, Callable[[Options], Method]] = {
    "plaid": lambda given: Plaid(PlaidParams(**given)),
    "warp": lambda given: Warp(WarpParams(**given)),
}


class Plait:
    packages = ("numpy",)

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        texts = read_texts(options.get("texts"))
        with plait.open(
            index / "plait", create=True, spec=EmbeddingSpec(multi=128), n_threads=options["threads"]
        ) as made:
            for number, part in enumerate(corpus.shards()):
                documents = [
                    {"id": str(number * SHARD + position), "text": next(texts), "title": ""}
                    for position in range(len(part))
                ]
                made.add_embeddings(documents, Embeddings(multi=MultiVectors(np.asarray(part.values), part.offsets)))
            done = made.compact(bits=options["bits"], keep_8bit=options["keep_8bit"])
        return {"n_cells": done.n_centroids, "bytes_per_vector": done.bytes_per_vector, "compact_seconds": done.seconds}

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        del corpus
        self._store = Store.open(index / "plait", read_only=True)
        self._snapshot: Snapshot = self._store.snapshot()
        self._n_threads = options["threads"]
        self._target = options.get("target") or available_targets()[-1]
        self._forced = force_target(self._target)  # held: releasing it would undo it
        self._forced.__enter__()
        return {"target": current_target(), "targets": available_targets(), "plait": plait.__version__}

    def prepare(self, query: NDArray[np.float32]) -> QueryBatch:
        return QueryBatch([""], Embeddings(multi=MultiVectors(query, np.array([0, len(query)]))))

    def search(self, query: QueryBatch, k: int, settings: Options) -> Ranking:
        hits = self._plan(settings, k).run(self._snapshot, query)[0]
        if settings["level"] == "call":
            load_hits(self._snapshot, "", hits)
        return hits

    def numbers(self, ranking: Ranking) -> list[int]:
        return [int(id) for id in self._snapshot.fetch_ids([int(doc) for doc in ranking.docs])]

    def _plan(self, settings: Options, k: int) -> Plan:
        retriever: Retriever
        level, given = settings["level"], {name: value for name, value in settings.items() if name != "level"}
        if level == "exact":
            retriever = ExactMulti(n_threads=self._n_threads)
        elif level in METHODS:
            retriever = MethodRetriever(METHODS[level](given), level, n_threads=self._n_threads)
        else:
            probe = resolve_probe(ProbeParams(**given), n_passages=self._snapshot.n_rows, k=k)
            retriever = ProbedMulti(probe, exhaustive_below=0, n_threads=self._n_threads)
        return Plan((retriever,), k)


def read_texts(data: str | None) -> Iterator[str]:
    """The texts of a corpus in order, then placeholder texts; placeholders only without a corpus."""
    if data is not None:
        path = Path(data) / "corpus.jsonl"
        with path.open() if path.exists() else gzip.open(f"{path}.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"] or "."
    while True:
        yield "a passage of which only the vectors are known"


if __name__ == "__main__":
    serve(Plait())
