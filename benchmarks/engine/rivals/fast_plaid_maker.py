"""Writes fast-plaid's index files faster than its builder; `residual_maker.py` says what differs.

The builder also stores the vectors of an index of up to 1,000 passages, to rebuild it when passages are added. This
does not: searching does not read them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from fast_plaid.search.load import _load_index_tensors_cpu
from fast_plaid.search.storage import write_tch_npy
from numpy.typing import NDArray

from benchmarks.engine.corpus import Shard
from benchmarks.engine.rivals.residual_maker import SEED, Clusters, Codec, n_centroids, n_held_out, pack, rows_of, train

CHUNK = 25_000  # passages


def make(whole: Shard, made: Clusters, index: Path, codec: Codec) -> None:
    """All files; then, as the builder does, the chunks are joined into one file."""
    n_chunks = write_chunks(whole, made, index, codec)
    numbers = {
        "centroids": made.centroids.numpy(),
        "bucket_cutoffs": codec.cutoffs.numpy(),
        "bucket_weights": codec.weights.numpy(),
        "avg_residual": codec.average.numpy(),
        "cluster_threshold": codec.threshold.numpy().reshape(1),
    }
    numbers["ivf"], numbers["ivf_lengths"] = inverted(whole, made.codes)
    for name, values in numbers.items():
        write_tch_npy(str(index / f"{name}.npy"), values)
    about = {
        "avg_doclen": len(whole.values) / len(whole),
        "compress_only": False,
        "nbits": codec.nbits,
        "num_chunks": n_chunks,
        "num_documents": len(whole),
        "num_embeddings": len(whole.values),
        "num_partitions": n_centroids(len(whole.values)),
    }
    write_json(index / "plan.json", {"nbits": codec.nbits, "num_chunks": n_chunks}, end="\n")
    write_json(index / "metadata.json", about)
    _load_index_tensors_cpu(index_path=str(index))


def trained(whole: Shard, made: Clusters, nbits: int) -> Codec:
    """The codec, trained on the end of a sample of passages in random order."""
    n_sampled = int(min(1 + 16 * math.sqrt(120 * len(whole)), len(whole)))
    rows = rows_of(whole, np.random.default_rng(SEED).permutation(len(whole))[:n_sampled])
    rows = rows[-n_held_out(len(rows)) :]
    return train(whole.values[rows], made.codes[rows], made.centroids, nbits)


def write_chunks(whole: Shard, made: Clusters, index: Path, codec: Codec) -> int:
    n_chunks = -(-len(whole) // CHUNK)
    for number in range(n_chunks):
        chunk_offsets = whole.offsets[number * CHUNK : (number + 1) * CHUNK + 1]
        codes = made.codes[chunk_offsets[0] : chunk_offsets[-1]]
        packed = pack(whole.values[chunk_offsets[0] : chunk_offsets[-1]], codes, made.centroids, codec)
        write_tch_npy(str(index / f"{number}.codes.npy"), codes)
        write_tch_npy(str(index / f"{number}.residuals.npy"), packed)
        (index / f"doclens.{number}.json").write_text(
            json.dumps(np.diff(chunk_offsets).tolist(), separators=(",", ":"))
        )
        about = {
            "embedding_offset": int(chunk_offsets[0]),
            "num_documents": len(chunk_offsets) - 1,
            "num_embeddings": len(codes),
        }
        write_json(index / f"{number}.metadata.json", about)
    return n_chunks


def inverted(whole: Shard, codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The passages of each centroid, each once and in order, and the number of each."""
    passages = np.repeat(np.arange(len(whole)), np.diff(whole.offsets))
    pairs = np.unique(codes * len(whole) + passages)
    lengths = np.bincount(pairs // len(whole), minlength=n_centroids(len(codes)))
    return pairs % len(whole), lengths.astype(np.int32)


def write_json(file: Path, record: dict[str, Any], end: str = "") -> None:
    file.write_text(json.dumps(record, indent=2) + end)
