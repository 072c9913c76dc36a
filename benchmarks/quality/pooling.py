"""Cost and saving of pooling: recall of the top ten against MaxSim over all vectors, and bytes per passage.

    python -m benchmarks.quality.pooling --cache cache --passages 5000 --queries 300

`--cache` is a `benchmarks.embed` folder. Both sides are exact MaxSim in floats, so only pooling loses recall. Bytes
count 2-bit codes with their cells and factors, and offsets where there are any; the codebook and the postings come on
top.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.embed import EmbeddingFiles, read_embeddings
from plait.codec.packing import row_bytes
from plait.codec.pooling import METHODS, Pooling, pool
from plait.embeddings import MultiVectors
from plait.scoring.maxsim import maxsim, top_k

K, BITS = 10, 2
CELL_LENGTH_AND_FACTOR = 4  # bytes per vector besides its codes
OFFSET = 8  # bytes per passage, where passages differ in length


def best_of(data: EmbeddingFiles, items: MultiVectors, n_queries: int, n_threads: int) -> NDArray[np.int64]:
    """(queries, K) passages."""
    return np.stack([top_k(maxsim(data.query(query), items, n_threads=n_threads), K) for query in range(n_queries)])


def bytes_a_passage(items: MultiVectors, *, fixed: bool) -> float:
    each = row_bytes(items.dim, BITS) + CELL_LENGTH_AND_FACTOR
    return len(items.values) / len(items) * each + (0 if fixed else OFFSET)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--passages", type=int, default=5000)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    data = read_embeddings(options.cache, options.passages)
    n_queries = min(options.queries, data.n_queries)
    whole = MultiVectors(data.values, data.offsets)
    truth = best_of(data, whole, n_queries, options.threads)
    print(f"{len(whole):,} passages, {n_queries} queries")
    print("| vectors kept | pooling | vectors a passage | bytes a passage | recall@10 | ms to pool a passage |")
    print("|---|---|---:|---:|---:|---:|")
    size = bytes_a_passage(whole, fixed=False)
    print(f"| all | | {len(whole.values) / len(whole):.1f} | {size:,.0f} | 1 | |")
    choices = [("one in 2", None, 2), ("one in 3", None, 3), ("32", 32, None), ("16", 16, None)]
    for name, fixed, factor in choices:
        for method in METHODS:
            start = time.process_time()
            pooled = pool(whole, Pooling(fixed=fixed, factor=factor, method=method))
            took = (time.process_time() - start) / len(whole) * 1e3
            top = best_of(data, pooled, n_queries, options.threads)
            recall = np.mean([len(set(a) & set(b)) / K for a, b in zip(top.tolist(), truth.tolist(), strict=True)])
            size = bytes_a_passage(pooled, fixed=fixed is not None)
            n_vectors = len(pooled.values) / len(pooled)
            print(f"| {name} | {method} | {n_vectors:.1f} | {size:,.0f} | {recall:.3f} | {took:.2f} |", flush=True)


if __name__ == "__main__":
    main()
