"""Writes xtr-warp-rs's chunks faster than its builder; the builder then makes the index of them.

Its builder can resume: it takes the codec and the chunks that it finds and makes the rest. Here it finds all of them.
`residual_maker.py` says what differs.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from xtr_warp.search import XTRWarp, xtr_warp_rs

from benchmarks.engine.corpus import Shard
from benchmarks.engine.rivals.residual_maker import SEED, Clusters, Codec, n_centroids, n_held_out, pack, rows_of, train

# The builder's constants; chunks made with others would not fit.
CHUNK = 256  # passages
BATCH = 32_768  # vectors
MAX_SAMPLED = 1_000_000  # vectors


def make(whole: Shard, made: Clusters, index: Path, codec: Codec) -> None:
    write_plan(whole, made, index, codec)
    write_chunks(whole, made, index, codec)
    build(whole, made, index, codec.nbits, resume=True)


def build(whole: Shard, made: Clusters, index: Path, nbits: int, *, resume: bool) -> None:
    """Runs the builder from these centroids. Without `resume` it does all of the work."""
    xtr_warp_rs.create(
        index=str(index),
        torch_path=XTRWarp(index=str(index))._ensure_torch_initialized("cpu"),
        device="cpu",
        nbits=nbits,
        centroids=made.centroids.float(),
        embeddings=[torch.from_numpy(rows) for rows in whole.passages()],
        embedding_dim=made.centroids.shape[1],
        seed=SEED,
        indexing_chunk_size=CHUNK,
        compression_batch_size=BATCH,
        codec_sample_max_tokens=MAX_SAMPLED,
        resume=resume,
        show_progress=False,
    )


def trained(whole: Shard, made: Clusters, nbits: int) -> Codec:
    """The codec, trained on the end of a sample of passages in corpus order."""
    rows = rows_of(whole, sampled(whole))
    rows = rows[-n_held_out(len(rows)) :]
    return train(whole.values[rows], made.codes[rows], made.centroids, nbits)


def sampled(whole: Shard) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Random passages with at most MAX_SAMPLED vectors, in corpus order."""
    order = np.random.default_rng(SEED).permutation(len(whole))
    return np.sort(order[np.cumsum(np.diff(whole.offsets)[order]) <= MAX_SAMPLED])


def write_plan(whole: Shard, made: Clusters, index: Path, codec: Codec) -> None:
    plan = {
        "avg_doc_len": len(whole.values) / len(whole),
        "codec_sample_max_tokens": MAX_SAMPLED,
        "compression_batch_size": BATCH,
        "embedding_dim": made.centroids.shape[1],
        "est_total_embs": n_centroids(len(whole.values)),
        "indexing_chunk_size": CHUNK,
        "n_docs": len(whole),
        "nbits": codec.nbits,
        "num_chunks": -(-len(whole) // CHUNK),
    }
    (index / "plan.json").write_text(json.dumps(plan, indent=2) + "\n")
    np.save(index / "pids.npy", sampled(whole))
    np.save(index / "centroids.npy", made.centroids.numpy())
    np.save(index / "bucket_cutoffs.npy", codec.cutoffs.numpy())
    np.save(index / "bucket_weights.npy", codec.weights.numpy())
    np.save(index / "avg_residual.npy", codec.average.numpy())
    np.save(index / "cluster_threshold.npy", codec.threshold.numpy())


def write_chunks(whole: Shard, made: Clusters, index: Path, codec: Codec) -> None:
    for number, first in enumerate(range(0, len(whole), CHUNK)):
        chunk_offsets = whole.offsets[first : first + CHUNK + 1]
        codes = made.codes[chunk_offsets[0] : chunk_offsets[-1]]
        np.save(index / f"{number}.codes.npy", codes)
        packed = pack(whole.values[chunk_offsets[0] : chunk_offsets[-1]], codes, made.centroids, codec)
        np.save(index / f"{number}.residuals.npy", packed)
        np.save(index / f"doclens.{number}.npy", np.diff(chunk_offsets))
        np.save(index / f"{number}.passage_ids.npy", np.arange(first, first + len(chunk_offsets) - 1))
        about = {
            "embedding_offset": int(chunk_offsets[0]),
            "num_embeddings": len(codes),
            "num_passages": len(chunk_offsets) - 1,
            "passage_offset": first,
        }
        (index / f"{number}.metadata.json").write_text(json.dumps(about, separators=(",", ":")))
