"""NumPy, every passage in float32: a matrix product for each block of passages, and a maximum over the rows of each
passage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.corpus import Corpus, Shard
from benchmarks.engine.rivals.serve import Options, serve

TOGETHER = 256  # passages per block: its products stay in the cache


class NumPy:
    packages = ("numpy",)

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        """Builds nothing: the vectors are the index."""
        del index, options
        return {"disk_bytes": 512 * corpus.n_vectors()}

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        del index, options  # NumPy read the number of threads when it was loaded
        self._shards = [Shard(part.values.astype(np.float32), part.offsets) for part in corpus.shards()]
        return {}

    def prepare(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ascontiguousarray(query.T)

    def search(self, query: NDArray[np.float32], k: int, settings: Options) -> NDArray[np.int64]:
        del settings
        scores = np.concatenate([self._block(query, part, at) for part in self._shards for at in self._starts(part)])
        best = np.argpartition(-scores, k)[:k]
        return best[np.argsort(-scores[best], kind="stable")]

    def numbers(self, answers: NDArray[np.int64]) -> list[int]:
        return [int(number) for number in answers]

    @staticmethod
    def _starts(part: Shard) -> range:
        return range(0, len(part), TOGETHER)

    @staticmethod
    def _block(query: NDArray[np.float32], part: Shard, at: int) -> NDArray[np.float32]:
        offsets = part.offsets[at : at + TOGETHER + 1]
        products = part.values[offsets[0] : offsets[-1]] @ query
        best = np.maximum.reduceat(products, offsets[:-1] - offsets[0], axis=0)
        return np.asarray(best.sum(axis=1))


if __name__ == "__main__":
    serve(NumPy())
