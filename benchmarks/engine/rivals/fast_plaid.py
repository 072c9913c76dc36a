"""fast-plaid: PLAID on libtorch. Build options: nbits, and quick for an index that `fast_plaid_maker.py` writes.
Settings: n_ivf_probe, n_full_scores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fast_plaid import search
from numpy.typing import NDArray

from benchmarks.engine.corpus import Corpus
from benchmarks.engine.rivals import fast_plaid_maker
from benchmarks.engine.rivals.residual_maker import NOTE, clusters
from benchmarks.engine.rivals.serve import Options, serve


class FastPlaid:
    packages = ("fast-plaid", "torch", "numpy")

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        torch.set_num_threads(options["threads"])
        if options.get("quick"):
            whole = corpus.whole()
            made = clusters(corpus, whole, index.parent)
            fast_plaid_maker.make(whole, made, index, fast_plaid_maker.trained(whole, made, options["nbits"]))
            return {"note": NOTE}
        documents = [torch.from_numpy(np.array(rows)) for part in corpus.shards() for rows in part.passages()]
        search.FastPlaid(index=str(index), device="cpu").create(documents_embeddings=documents, nbits=options["nbits"])
        return {}

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        del corpus
        torch.set_num_threads(options["threads"])
        self._index = search.FastPlaid(index=str(index), device="cpu")
        return {"torch_threads": torch.get_num_threads(), "omp": os.environ.get("OMP_NUM_THREADS")}

    def prepare(self, query: NDArray[np.float32]) -> Any:
        return torch.from_numpy(query.copy())[None]

    def search(self, query: Any, k: int, settings: Options) -> Any:
        return self._index.search(query, top_k=k, show_progress=False, **settings)

    def numbers(self, answer: Any) -> list[int]:
        return [number for number, _ in answer[0]]


if __name__ == "__main__":
    serve(FastPlaid())
