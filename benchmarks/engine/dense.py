"""Dense IVF search against exact search: milliseconds, rows read and recall, with and without a filter.

    python -m benchmarks.engine.dense --segment made/segments/000028 --vectors vectors

`--segment` is a segment of a compacted index with an IVF file, such as one that `benchmarks.quality.hybrid` built.
`--vectors` is the `benchmarks.embed` folder with its vectors and the queries. Milliseconds are thread CPU time.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from plait.scoring.dense import dot_rows
from plait.scoring.maxsim import top_k
from plait.storage.files.dense_ivf import DenseIvfFile
from plait.storage.segment_file import SegmentFile

DIM = 384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segment", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--shares", type=float, nargs="*", default=[1.0, 0.1])
    options = parser.parse_args()
    floats = SegmentFile.open(options.segment / "dense.plait").array("values", "<f4", (None, DIM))
    n_rows = len(floats)
    cells = DenseIvfFile(SegmentFile.open(options.segment / "dense_ivf.plait"), n_rows, DIM).read()
    print(f"{n_rows:,} rows, {len(cells.centroids):,} cells, read for each k: {dict(cells.probes)}", flush=True)
    queries = np.load(options.vectors / "query-dense.npy")[: options.queries]
    for share in options.shares:
        keep = np.random.default_rng(0).random(n_rows) < share
        bits = None if share == 1 else np.packbits(keep, bitorder="little")
        exact, probed, n_read = [], [], []
        recalls: dict[int, list[float]] = {10: [], 100: []}
        for query in queries:
            start = time.thread_time()
            scores = dot_rows(query, floats)
            exact.append(time.thread_time() - start)
            truth = top_k(np.where(keep, scores, np.float32(-9)), 100)
            for k, values in recalls.items():
                start = time.thread_time()
                rows, found_scores, n_met = cells.search(query, floats, k, cells.n_probe(k, share=share), bits)
                took = time.thread_time() - start
                values.append(len(np.intersect1d(rows[np.argsort(-found_scores)][:k], truth[:k])) / k)
            probed.append(took)
            n_read.append(n_met / n_rows)
        line = ", ".join(f"recall@{k} {np.mean(values):.4f}" for k, values in recalls.items())
        print(
            f"{share:.0%} allowed: all rows {1000 * np.median(exact):.2f} ms, cells for 100 "
            f"{1000 * np.median(probed):.2f} ms over {np.mean(n_read):.1%} of places, {line}",
            flush=True,
        )


if __name__ == "__main__":
    main()
