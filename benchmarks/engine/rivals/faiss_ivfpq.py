"""faiss: product-quantised token vectors in inverted lists, and XTR's scoring in NumPy: the sum over query rows of the
best token found of each passage; a row that found none counts as the worst it found. Settings:

    nprobe    lists read for each query row
    n_tokens  tokens retrieved for each query row
    n_rerank  passages scored again with their float16 vectors, which are stored beside the index; 0 for none
"""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.corpus import Corpus
from benchmarks.engine.rivals.serve import Options, serve

TRAINED_ON = 64  # training vectors for each list
CODE_BYTES = 32


class Faiss:
    packages = ("faiss-cpu", "numpy")

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        faiss.omp_set_num_threads(options["threads"])
        whole = corpus.whole()
        n_lists = 1 << round(np.log2(4 * np.sqrt(len(whole.values))))
        # Not with the factory, which also trains codes for Hamming distances: that takes minutes and is not used here.
        dim = whole.values.shape[1]
        lists = faiss.IndexFlatIP(dim)
        made = faiss.IndexIVFPQ(lists, dim, n_lists, CODE_BYTES, 8, faiss.METRIC_INNER_PRODUCT)
        drawn = np.random.default_rng(0).permutation(len(whole.values))[: TRAINED_ON * n_lists]
        made.train(whole.values[np.sort(drawn)].astype(np.float32))
        for part in corpus.shards():
            made.add(np.asarray(part.values, np.float32))
        faiss.write_index(made, str(index / "tokens.faiss"))
        np.save(index / "offsets.npy", whole.offsets)
        return {"n_lists": n_lists}

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        faiss.omp_set_num_threads(options["threads"])
        self._index = faiss.read_index(str(index / "tokens.faiss"))
        whole = corpus.whole()
        self._offsets, self._values = whole.offsets, whole.values
        self._owner = np.repeat(np.arange(len(whole)), np.diff(whole.offsets))
        return {}

    def prepare(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.ascontiguousarray(query)

    def search(self, query: NDArray[np.float32], k: int, settings: Options) -> NDArray[np.int64]:
        self._index.nprobe = settings["nprobe"]
        scores, tokens = self._index.search(query, settings["n_tokens"])
        docs, sums = merged(scores, tokens, self._owner)
        n_keep = max(k, settings["n_rerank"])
        if len(docs) > n_keep:
            top = np.argpartition(-sums, n_keep)[:n_keep]
            docs, sums = docs[top], sums[top]
        if settings["n_rerank"]:
            sums = self._exact(query, docs)
        return docs[np.argsort(-sums, kind="stable")[:k]]

    def numbers(self, answers: NDArray[np.int64]) -> list[int]:
        return [int(number) for number in answers]

    def _exact(self, query: NDArray[np.float32], docs: NDArray[np.int64]) -> NDArray[np.float32]:
        lengths = self._offsets[docs + 1] - self._offsets[docs]
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        rows = np.arange(lengths.sum()) + np.repeat(self._offsets[docs] - starts, lengths)
        products = self._values[rows].astype(np.float32) @ query.T
        return np.asarray(np.maximum.reduceat(products, starts, axis=0).sum(axis=1))


def merged(
    scores: NDArray[np.float32], tokens: NDArray[np.int64], owner: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The retrieved passages and their sums. A row's tokens come best first, so a passage's first token is its best."""
    n_rows, n_tokens = tokens.shape
    valid = tokens >= 0
    missing = np.where(valid, scores, np.inf).min(axis=1)
    missing[~valid.any(axis=1)] = 0
    row = np.repeat(np.arange(n_rows), n_tokens).reshape(tokens.shape)[valid]
    gain = (scores - missing[:, None])[valid]
    docs, position = np.unique(owner[tokens[valid]], return_inverse=True)
    _, first = np.unique(row * len(docs) + position, return_index=True)
    sums = np.bincount(position[first], gain[first], minlength=len(docs)) + missing.sum()
    return docs, sums.astype(np.float32)


if __name__ == "__main__":
    serve(Faiss())
