"""Stanford's PLAID (colbert-ai): its codec, files and C++ search on the CPU. Its indexer needs a checkpoint and a GPU,
so centroids and buckets are computed here. Build option: nbits. Settings: ncells, centroid_score_threshold, ndocs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from colbert.indexing.codecs.residual import ResidualCodec
from colbert.indexing.index_saver import IndexSaver
from colbert.indexing.utils import optimize_ivf
from colbert.infra import ColBERTConfig
from colbert.modeling.colbert import ColBERT
from colbert.search.index_storage import IndexScorer
from numpy.typing import NDArray

from benchmarks.engine.corpus import Corpus
from benchmarks.engine.rivals.residual_maker import NOTE, SEED, Clusters, clusters, train
from benchmarks.engine.rivals.serve import Options, serve

CHUNK = 5000  # passages of a file
MAX_TRAINED = 50_000  # vectors that the buckets are made of


class ColbertPlaid:
    packages = ("colbert-ai", "torch", "numpy")

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        torch.set_num_threads(options["threads"])
        whole = corpus.whole()
        made = clusters(corpus, whole, index.parent)
        rows = np.random.default_rng(SEED).permutation(len(whole.values))[:MAX_TRAINED]
        trained = train(whole.values[rows], made.codes[rows], made.centroids, options["nbits"])
        index.mkdir(parents=True, exist_ok=True)
        config = _config(nbits=options["nbits"], dim=whole.values.shape[1], index_path=str(index))
        (index / "plan.json").write_text(json.dumps({"config": config.export()}, default=str))
        saver = IndexSaver(config)
        saver.save_codec(
            ResidualCodec(config, made.centroids, trained.average.float(), trained.cutoffs, trained.weights)
        )
        lengths = np.diff(whole.offsets).tolist()
        with saver.thread():
            for chunk, first in enumerate(range(0, len(whole), CHUNK)):
                stop = min(first + CHUNK, len(whole))
                values = whole.values[whole.offsets[first] : whole.offsets[stop]]
                saver.save_chunk(chunk, first, torch.from_numpy(np.array(values)).half(), lengths[first:stop])
        _write_rest(index, config, lengths, made)
        return {"note": NOTE}

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        del corpus
        torch.set_num_threads(options["threads"])
        ColBERT.try_load_torch_extensions(use_gpu=False)
        self._scorer = IndexScorer(str(index), use_gpu=False)
        return {"torch_threads": torch.get_num_threads()}

    def prepare(self, query: NDArray[np.float32]) -> Any:
        return torch.from_numpy(query.copy())[None]

    def search(self, query: Any, k: int, settings: Options) -> Any:
        return self._scorer.rank(_config(dim=query.shape[2], **settings), query)[0][:k]

    def numbers(self, answer: Any) -> list[int]:
        return [int(number) for number in answer]


def _config(**options: Any) -> Any:
    config = ColBERTConfig(**options)
    config.gpus = 0
    return config


def _write_rest(index: Path, config: Any, lengths: list[int], made: Clusters) -> None:
    """The offsets of the chunks, metadata.json and the inverted file, as colbert's indexer writes them."""
    offset, cells = 0, []
    files = sorted(index.glob("*.metadata.json"), key=lambda file: int(file.name.split(".")[0]))
    for chunk, file in enumerate(files):
        saved = {**json.loads(file.read_text()), "embedding_offset": offset}
        file.write_text(json.dumps(saved) + "\n")
        offset += saved["num_embeddings"]
        cells.append(torch.load(index / f"{chunk}.codes.pt", weights_only=True))
    order = torch.cat(cells).sort()
    optimize_ivf(order.indices, torch.bincount(order.values, minlength=len(made.centroids)), str(index))
    saved = {"config": config.export(), "num_chunks": len(files), "num_partitions": len(made.centroids)}
    saved |= {"num_embeddings": sum(lengths), "avg_doclen": sum(lengths) / len(lengths)}
    for name in ("plan.json", "metadata.json"):
        (index / name).write_text(json.dumps(saved, default=str))


if __name__ == "__main__":
    serve(ColbertPlaid())
