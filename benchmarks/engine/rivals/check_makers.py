"""Compares the index files that this benchmark writes with those of an engine's own builder, from the same centroids.

    PYTHONPATH=. plaid/bin/python -m benchmarks.engine.rivals.check_makers fast-plaid --vectors vectors --cache scratch
    PYTHONPATH=. plaid/bin/python -m benchmarks.engine.rivals.check_makers xtr-warp-rs --vectors vectors --cache scratch

Run it by hand in the engine's interpreter; the builder takes a minute or two for these few passages. It fails if a code
differs although its two centroids are not equally near in half precision, if the bytes of a vector with the same code
differ, if the passage lists do not follow from the codes, or if more than one answer in a hundred differs. fast-plaid
trains its codec on a sample that cannot be drawn again, so both indexes use the builder's codec.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.engine.corpus import DIM, Corpus, Queries, Shard, read_queries
from benchmarks.engine.rivals.residual_maker import SEED, Clusters, Codec, clusters

K = 10
HALF = 2.0**-11  # spacing of half-precision numbers from 1/2 to 1
TABLES = ("bucket_cutoffs", "bucket_weights", "avg_residual", "cluster_threshold")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["fast-plaid", "xtr-warp-rs"])
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True, help="both indexes are left there")
    parser.add_argument("--passages", type=int, default=1100)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--nbits", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    corpus = Corpus(arguments.vectors, arguments.passages)
    theirs, ours = (arguments.cache / f"{arguments.engine}-{who}" for who in ("theirs", "ours"))
    for folder in (theirs, ours):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    whole = corpus.whole()
    made = clusters(corpus, whole, arguments.cache)
    check = check_fast_plaid if arguments.engine == "fast-plaid" else check_xtr_warp
    ask = check(whole, made, theirs, ours, arguments.nbits)
    same = agreement(ask, read_queries(corpus.folder), arguments.queries, theirs, ours)
    expect(same >= 0.99, f"of the {K} passages found for a query {same:.2%} are the same")


def check_fast_plaid(whole: Shard, made: Clusters, theirs: Path, ours: Path, nbits: int) -> Callable[..., list[int]]:
    os.environ["FAST_PLAID_KEEP_SHARDS"] = "1"  # read when an index is opened
    from fast_plaid import fast_plaid_rust, search

    from benchmarks.engine.rivals.fast_plaid_maker import CHUNK, inverted, make, trained

    builder = search.FastPlaid(index=str(theirs), device="cpu")
    fast_plaid_rust.create(
        index=builder.index, torch_path=builder.torch_path, device="cpu", embedding_dim=DIM, nbits=nbits,
        embeddings=[torch.from_numpy(rows) for rows in whole.passages()], centroids=made.centroids,
        batch_size=CHUNK, seed=SEED, compress_only=False,
    )  # fmt: skip
    about = json.loads((theirs / "metadata.json").read_text())  # opening an index changes it
    compare_codecs(read_codec(theirs, nbits), trained(whole, made, nbits))
    make(whole, made, ours, read_codec(theirs, nbits))
    compare_chunks(whole, made, theirs, ours, about["num_chunks"])
    compare_files(theirs, ours, skip=("codes.npy", "residuals.npy", "ivf.npy", "ivf_lengths.npy"))
    written = json.loads((ours / "metadata.json").read_text())
    expect(about.items() <= written.items(), "metadata.json says the same")
    codes = np.concatenate([np.load(theirs / f"{n}.codes.npy") for n in range(about["num_chunks"])])
    lists, lengths = inverted(whole, codes)
    followed = np.array_equal(lists, np.load(theirs / "ivf.npy"))
    followed = followed and np.array_equal(lengths, np.load(theirs / "ivf_lengths.npy"))
    expect(followed, "from the builder's codes, the lists of passages are the builder's")

    def ask(index: Path, query: NDArray[np.float32], open_indexes: dict[Path, Any]) -> list[int]:
        if index not in open_indexes:
            open_indexes[index] = search.FastPlaid(index=str(index), device="cpu")
        results = open_indexes[index].search(torch.from_numpy(query.copy())[None], top_k=K, show_progress=False)
        return [number for number, _ in results[0]]

    return ask


def check_xtr_warp(whole: Shard, made: Clusters, theirs: Path, ours: Path, nbits: int) -> Callable[..., list[int]]:
    from xtr_warp.search import XTRWarp

    from benchmarks.engine.rivals.xtr_warp_maker import build, make, trained

    build(whole, made, theirs, nbits, resume=False)
    compare_codecs(read_codec(theirs, nbits), trained(whole, made, nbits))
    make(whole, made, ours, read_codec(theirs, nbits))
    about, written = (json.loads((index / "metadata.json").read_text()) for index in (theirs, ours))
    compare_chunks(whole, made, theirs, ours, about["num_chunks"])
    compare_files(theirs, ours, skip=(".codes.npy", ".residuals.npy", ".compacted.npy"))
    expect(about | {"created_at": ""} == written | {"created_at": ""}, "metadata.json says the same")

    def ask(index: Path, query: NDArray[np.float32], open_indexes: dict[Path, Any]) -> list[int]:
        if index not in open_indexes:
            open_indexes[index] = XTRWarp(index=str(index)).load("cpu")
        results = open_indexes[index].search(
            torch.from_numpy(query.copy())[None], top_k=K, num_threads=1, show_progress=False
        )
        return [number for number, _ in results[0]]

    return ask


def read_codec(index: Path, nbits: int) -> Codec:
    return Codec(nbits, *(torch.from_numpy(np.load(index / f"{name}.npy")) for name in TABLES))


def compare_codecs(theirs: Codec, ours: Codec) -> None:
    """Samples may differ: quantiles are close, not equal."""
    width = float(theirs.weights.max() - theirs.weights.min())
    gap = max(float((a - b).abs().max()) for a, b in ((theirs.cutoffs, ours.cutoffs), (theirs.weights, ours.weights)))
    expect(gap < 0.02 * width, f"cutoffs and weights are {gap / width:.3%} of their range apart at most")


def compare_chunks(whole: Shard, made: Clusters, theirs: Path, ours: Path, n_chunks: int) -> None:
    codes, residuals = (
        [np.concatenate([np.load(index / f"{n}.{name}.npy") for n in range(n_chunks)]) for index in (theirs, ours)]
        for name in ("codes", "residuals")
    )
    same = codes[0] == codes[1]
    rows = torch.from_numpy(whole.values).float()
    products = [(rows * made.centroids.float()[torch.from_numpy(part)]).sum(dim=1) for part in codes]
    lost = float((products[1] - products[0]).abs().max())
    expect(lost <= HALF, f"{(~same).mean():.3%} of codes differ, all by less than half can tell ({lost:.5f})")
    expect(bool((residuals[0][same] == residuals[1][same]).all()), "packed bytes are equal wherever codes are")


def compare_files(theirs: Path, ours: Path, skip: tuple[str, ...]) -> None:
    """The same names, and the same numbers in the files that follow from centroids and codec alone."""
    names = [
        sorted(file.name for file in index.iterdir() if file.suffix in (".npy", ".json")) for index in (theirs, ours)
    ]
    merged = [[name for name in file_names if "merged" not in name] for file_names in names]
    expect(merged[0] == merged[1], f"both have the same {len(merged[0])} files")
    for name in merged[0]:
        if name != "metadata.json" and not name.endswith(skip):
            equal = (np.array_equal(np.load(theirs / name), np.load(ours / name)) if name.endswith("npy")
                     else (theirs / name).read_bytes() == (ours / name).read_bytes())  # fmt: skip
            expect(equal, f"{name} is the same")


def agreement(ask: Callable[..., list[int]], queries: Queries, n: int, theirs: Path, ours: Path) -> float:
    """The share of the passages found in one index that are found in the other."""
    open_indexes: dict[Path, Any] = {}
    shared = [
        len(set(ask(theirs, queries[int(q)], open_indexes)) & set(ask(ours, queries[int(q)], open_indexes)))
        for q in queries.order()[:n]
    ]
    return sum(shared) / (K * len(shared))


def expect(holds: bool, what: str) -> None:
    print(("yes: " if holds else "NO:  ") + what, flush=True)
    if not holds:
        sys.exit(1)


if __name__ == "__main__":
    main()
