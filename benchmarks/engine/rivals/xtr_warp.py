"""xtr-warp-rs: WARP in Rust on libtorch. Build options: nbits, and quick for an index that `xtr_warp_maker.py` writes.
Settings: nprobe, t_prime, bound, max_candidates, centroid_score_threshold; the library chooses those that are not
given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from xtr_warp.search import XTRWarp

from benchmarks.engine.corpus import Corpus
from benchmarks.engine.rivals import xtr_warp_maker
from benchmarks.engine.rivals.residual_maker import NOTE, clusters
from benchmarks.engine.rivals.serve import Options, serve


class Warp:
    packages = ("xtr-warp-rs", "torch", "numpy")

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        torch.set_num_threads(options["threads"])
        if options.get("quick"):
            whole = corpus.whole()
            made = clusters(corpus, whole, index.parent)
            xtr_warp_maker.make(whole, made, index, xtr_warp_maker.trained(whole, made, options["nbits"]))
            return {"note": NOTE}
        documents = [
            torch.from_numpy(np.array(rows, np.float32)) for part in corpus.shards() for rows in part.passages()
        ]
        made = XTRWarp(index=str(index))
        made.create(embeddings_source=documents, device="cpu", nbits=options["nbits"], show_progress=False)
        return {}

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        del corpus
        torch.set_num_threads(options["threads"])
        self._n_threads = options["threads"]
        self._index = XTRWarp(index=str(index)).load("cpu")
        return {"torch_threads": torch.get_num_threads()}

    def prepare(self, query: NDArray[np.float32]) -> Any:
        return torch.from_numpy(query.copy())[None]

    def search(self, query: Any, k: int, settings: Options) -> Any:
        return self._index.search(query, top_k=k, num_threads=self._n_threads, show_progress=False, **settings)

    def numbers(self, answer: Any) -> list[int]:
        return [number for number, _ in answer[0]]


if __name__ == "__main__":
    serve(Warp())
