"""Changes values in segment files, seals the files again so that no checksum tells, and searches: an answer or an error
of plait's, never a crash, never another error.

    python -m faults.fuzz --rounds 2000 --seed 7

`make sanitize` does the same under the sanitizers (faults/sanitized.py).
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import plait
from plait.codec.pooling import Pooling
from plait.search.bm25 import bm25_search, bm25_word_scores

if TYPE_CHECKING:
    from plait.storage.store import Snapshot

DIM, N_ITEMS = 16, 300
BITS = {"coded": 2, "bits1": 1, "bits4": 4, "bits8": 8, "fixed": 2, "newer": 2}  # of the compressed kinds
KINDS = ("float", *BITS, "sparse", "large")  # newer: with centroid_ids; large: with dense_ivf and text_index
MODES = ("dense", "sparse", "multi", "warp")
EXTREMES = (0, 1, -1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, -(1 << 62), 1 << 62)


class Fuzz:
    """One small index of each kind, and copies of them that are harmed."""

    def __init__(self, folder: Path, seed: int) -> None:
        from plait.embeddings import Embeddings, MultiVectors, SparseVectors
        from plait.encode.protocol import EmbeddingSpec
        from plait.filters import compile_filter  # noqa: F401 -- before a copy is harmed, all is imported

        self._folder, self._rng = folder, random.Random(seed)
        rng = np.random.default_rng(seed)
        items = [rng.standard_normal((4 + number % 3, DIM), dtype=np.float32) for number in range(N_ITEMS)]
        items = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in items]
        terms = [{number % 50: 1.0, 50 + number % 7: 0.5} for number in range(N_ITEMS)]
        documents = [{"id": f"d{number}", "text": f"text {number}", "n": number} for number in range(N_ITEMS)]
        dense = rng.standard_normal((N_ITEMS, 4), dtype=np.float32)
        self._query = Embeddings(
            dense=dense[:1], sparse=SparseVectors.from_items([terms[3]]), multi=MultiVectors.from_items([items[0]])
        )
        for kind in KINDS:
            has_terms, has_tokens = kind == "sparse", kind not in ("sparse", "large")
            spec = EmbeddingSpec(dense=4, sparse=60 if has_terms else None, multi=DIM if has_tokens else None)
            sparse = SparseVectors.from_items(terms) if has_terms else None
            multi = MultiVectors.from_items(items) if has_tokens else None
            fixed = 4 if kind == "fixed" else None
            with plait.open(
                folder / kind,
                create=True,
                spec=spec,
                pooling=None if fixed is None else Pooling(fixed=fixed),
                n_threads=1,
            ) as index:
                index.add_embeddings(documents, Embeddings(dense=dense, sparse=sparse, multi=multi))
                if kind in BITS:
                    index.compact(bits=BITS[kind], keep_8bit=kind in ("coded", "bits1"))
                if kind == "newer":
                    added = [{**document, "id": f"new {document['id']}"} for document in documents]
                    index.add_embeddings(added, Embeddings(dense=dense, multi=multi), merge=False)
                    assert list((folder / kind).glob("segments/*/centroid_ids.plait"))
                if kind == "large":
                    compact_as_large(index)
                index.delete(["d7"])

    def round(self) -> str:
        """Harms one file; what came of it."""
        from plait.errors import PlaitError
        from plait.storage import verification
        from storage.resealed import rewrite

        path = self._folder / "harmed"
        shutil.rmtree(path, ignore_errors=True)
        kind = self._rng.choice(KINDS)
        shutil.copytree(self._folder / kind, path)
        verification.forget()
        file = self._rng.choice(sorted(path.glob("segments/*/*.plait")))
        rewrite(file, self._harm)
        try:
            with plait.open(path, n_threads=1) as index:
                self._search(index, kind)
        except PlaitError:
            return "refused"
        return "answered"

    def _search(self, index: plait.Index, kind: str) -> None:
        if kind == "large":
            search_as_large(index.path, self._query)
            return
        for mode in MODES:
            if mode != "dense" and (mode == "sparse") != (kind == "sparse"):
                continue
            if mode == "warp" and kind == "float":
                continue
            for filter in (None, "n > 20"):
                index.search_embeddings(self._query, 5, mode=mode, filter=filter)
        if kind != "sparse":
            index.search_embeddings(self._query, 5, mode="multi", params=plait.ProbeParams(n_probe=4))
            index.search_embeddings(self._query, 5, mode="multi", exact=True)

    def _harm(self, arrays: dict[str, Any], attributes: dict[str, Any]) -> None:
        name = self._rng.choice(sorted(arrays))
        if self._rng.random() < 0.1:
            arrays[name] = arrays[name][: self._rng.randrange(len(arrays[name]) + 1)].copy()
            return
        if self._rng.random() < 0.05 and attributes:
            attributes[self._rng.choice(sorted(attributes))] = self._rng.choice(EXTREMES)
            return
        raw = arrays[name].reshape(-1).view(np.uint8)
        width = arrays[name].itemsize
        for _ in range(self._rng.randint(1, 4)):
            if not len(raw):
                return
            at = self._rng.randrange(len(raw) // width) * width
            if self._rng.random() < 0.5:
                raw[at + self._rng.randrange(width)] ^= 1 << self._rng.randrange(8)
            else:
                value = self._rng.choice(EXTREMES) & ((1 << 8 * width) - 1)
                raw[at : at + width] = list(value.to_bytes(width, "little"))


def compact_as_large(index: plait.Index) -> None:
    """With the files that only large indexes get."""
    from plait.storage.files import dense_ivf, text_index

    fewest = dense_ivf.MIN_ROWS, text_index.MIN_DOCUMENTS
    dense_ivf.MIN_ROWS = text_index.MIN_DOCUMENTS = 1
    try:
        index.compact()
    finally:
        dense_ivf.MIN_ROWS, text_index.MIN_DOCUMENTS = fewest


def search_as_large(path: Path, query: plait.Embeddings) -> None:
    """By those files, few as the documents are."""
    from plait.storage.store import Store

    with Store.open(path).snapshot() as snapshot:
        search_large_files(snapshot, query)


def search_large_files(snapshot: Snapshot, query: plait.Embeddings) -> None:
    from plait.search.dense import ProbedDense
    from plait.search.filtering import filter_documents
    from plait.search.query import QueryBatch
    from plait.search.trace import Trace

    for doc_filter in (None, filter_documents(snapshot, "n > 20")):
        asked = QueryBatch([""], query)
        ProbedDense(exhaustive_below=0).retrieve(snapshot, asked, 5, doc_filter, Trace())
        allowed = None if doc_filter is None else doc_filter.docs
        docs, _ = bm25_search(snapshot, "text 9 21", 5, doc_filter=allowed)
        for doc in docs:
            bm25_word_scores(snapshot, "text 9 21", int(doc))


def fuzz(n_rounds: int, seed: int, folder: Path) -> Counter[str]:
    """How often a harmed file was refused, and how often an answer came. Raises at the first other error."""
    work = Fuzz(folder, seed)
    return Counter(work.round() for _ in range(n_rounds))


def run(n_rounds: int, seed: int) -> None:
    """Fuzzes in a folder that goes away, and prints what came of it."""
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        counts = fuzz(n_rounds, seed, Path(folder))
    print(f"{counts.total()} harmed files: {counts['refused']} refused, {counts['answered']} answered, no crash")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=2000)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    run(given.rounds, given.seed)


if __name__ == "__main__":
    main()
