"""Makes fixtures/plaid and plaid.hits.json. Needs colbert-ai 0.2.22 with transformers 4, on the CPU.

The codec and the files are colbert-ai's; the vectors are those of `corpus`, so that no checkpoint is needed.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from colbert.indexing.codecs.residual import ResidualCodec
from colbert.indexing.index_saver import IndexSaver
from colbert.indexing.utils import optimize_ivf
from colbert.infra import ColBERTConfig

from transfer.make_fixtures.corpus import MODEL, QUERIES, documents, multi_vectors

N_CENTROIDS = 128
NBITS = 2


def build(folder: Path, *, nbits: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = ColBERTConfig(nbits=nbits, dim=32, checkpoint=MODEL, index_path=str(folder), root=str(folder.parent))
    config.gpus = 0
    items = [multi_vectors(str(one["text"])) for one in documents()]
    rows = torch.from_numpy(np.concatenate(items))
    rng = np.random.default_rng(3)
    centroids = rows[torch.from_numpy(rng.permutation(len(rows))[:N_CENTROIDS])].clone()
    for _ in range(4):  # plain k-means: faiss would do the same
        nearest = (rows @ centroids.T).argmax(dim=1)
        for cell in range(N_CENTROIDS):
            if (nearest == cell).any():
                centroids[cell] = torch.nn.functional.normalize(rows[nearest == cell].mean(dim=0), dim=0)
    residuals = rows - centroids[(rows @ centroids.T).argmax(dim=1)]
    options = torch.arange(0, 2**nbits) / 2**nbits
    cutoffs = residuals.float().quantile(options[1:])
    weights = residuals.float().quantile(options + 0.5 / 2**nbits)
    codec = ResidualCodec(config, centroids.half(), residuals.abs().mean(dim=0), cutoffs, weights)
    (folder / "plan.json").write_text(json.dumps({"config": config.export()}, default=str))
    saver = IndexSaver(config)
    saver.save_codec(codec)
    half = len(items) // 2
    lengths = [len(item) for item in items]
    with saver.thread():
        for chunk, part in enumerate((slice(0, half), slice(half, len(items)))):
            vectors = torch.from_numpy(np.concatenate(items[part])).half()
            saver.save_chunk(chunk, 0 if chunk == 0 else half, vectors, lengths[part])
    _write_rest(folder, config, lengths, half)


def _write_rest(folder: Path, config: ColBERTConfig, lengths: list[int], half: int) -> None:
    """metadata.json and the inverted file, as colbert's indexer writes them."""
    offset = 0
    cells = []
    for chunk, part in enumerate((lengths[:half], lengths[half:])):
        file = folder / f"{chunk}.metadata.json"
        saved = json.loads(file.read_text())
        saved["embedding_offset"] = offset
        file.write_text(json.dumps(saved, indent=4) + "\n")
        offset += sum(part)
        cells.append(torch.load(folder / f"{chunk}.codes.pt", weights_only=True))
    order = torch.cat(cells).sort()
    optimize_ivf(order.indices, torch.bincount(order.values, minlength=N_CENTROIDS), str(folder))
    exported = {**config.export(), "index_path": folder.name, "root": "."}  # no paths of the machine that made it
    saved = {"config": exported, "num_chunks": 2, "num_partitions": N_CENTROIDS}
    saved |= {"num_embeddings": sum(lengths), "avg_doclen": sum(lengths) / len(lengths)}
    for name in ("plan.json", "metadata.json"):
        (folder / name).write_text(json.dumps(saved, default=str))


def search(folder: Path) -> list[list[tuple[int, float]]]:
    from colbert.modeling.colbert import ColBERT
    from colbert.search.index_storage import IndexScorer

    ColBERT.try_load_torch_extensions(use_gpu=False)
    scorer = IndexScorer(str(folder), use_gpu=False)
    config = ColBERTConfig(ncells=32, centroid_score_threshold=0.0, ndocs=1024, dim=32)
    config.gpus = 0
    hits = []
    for query in QUERIES:
        pids, scores = scorer.rank(config, torch.from_numpy(multi_vectors(query))[None])
        hits.append(list(zip(pids, scores, strict=True))[:10])
    return hits


def main(fixtures: Path) -> None:
    build(fixtures / "plaid", nbits=NBITS)
    (fixtures / "plaid.hits.json").write_text(json.dumps(search(fixtures / "plaid")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
