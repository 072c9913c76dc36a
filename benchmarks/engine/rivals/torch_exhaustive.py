"""torch, every passage in float32: passages of similar length share one tensor, padded with copies of their own rows,
which changes no maximum; then a matrix product and a maximum for each tensor. No settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.engine.corpus import Corpus
from benchmarks.engine.rivals.serve import Options, serve

TOGETHER = 32  # passages per tensor: its products stay in the cache


class Torch:
    packages = ("torch", "numpy")

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        """Builds nothing: the vectors are the index."""
        del index, options
        return {"disk_bytes": 512 * corpus.n_vectors()}

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        del index
        torch.set_num_threads(options["threads"])
        whole = corpus.whole()
        lengths = np.diff(whole.offsets)
        order = np.argsort(lengths, kind="stable")
        self._order, self._tensors = torch.from_numpy(order), []
        for start in range(0, len(order), TOGETHER):
            docs = order[start : start + TOGETHER]
            places = np.arange(lengths[docs].max())[None] % lengths[docs][:, None]
            rows = whole.values[whole.offsets[docs][:, None] + places].astype(np.float32)
            self._tensors.append((len(docs), torch.from_numpy(rows.reshape(-1, rows.shape[2]))))
        return {"torch_threads": torch.get_num_threads()}

    def prepare(self, query: NDArray[np.float32]) -> Any:
        return torch.from_numpy(query.copy())

    def search(self, query: Any, k: int, settings: Options) -> Any:
        del settings
        with torch.inference_mode():
            # Query rows first: the maximum over a passage's rows is then over adjacent values: fastest.
            scores = torch.cat(
                [(query @ rows.T).view(len(query), n, -1).amax(dim=2).sum(dim=0) for n, rows in self._tensors]
            )
            return self._order[scores.topk(k).indices]

    def numbers(self, answer: Any) -> list[int]:
        return [int(number) for number in answer]


if __name__ == "__main__":
    serve(Torch())
