"""Sparse search against other libraries: the same impacts and queries, one thread, exact top k.

    python -m benchmarks.engine.sparse --data wikipassages --cache cache --passages 50000
    python -m benchmarks.engine.sparse --data wikipassages --cache cache --rivals scipy bm25s seismic

Weights are BM25 over the word pieces of the bundled tokenizer, so no model is needed; a query weighs each piece by its
count. Times are thread CPU time. The rivals need scipy, bm25s (and numba) and pyseismic-lsr; they get the impacts that
plait stores, as float32.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import plait
from plait.codec.impacts import invert
from plait.embeddings import SparseVectors
from plait.scoring.sparse import Impacts, SparseQuery, best_rows

K1, B = 0.9, 0.4
Found = NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a BEIR folder")
    parser.add_argument("--cache", type=Path, required=True, help="where tokens are kept between runs")
    parser.add_argument("--passages", type=int, default=None)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("-k", type=int, default=100)
    parser.add_argument("--rivals", nargs="*", default=[], choices=list(RIVALS))
    options = parser.parse_args()
    pieces, questions = (tokens(options.data, options.cache, name) for name in ("corpus", "queries"))
    rows = bm25_weights(pieces, options.passages)
    start = time.perf_counter()
    index = invert(rows)
    report("passages", len(rows), "entries", len(index.rows), "terms", len(index.terms))
    report(
        "built in s",
        round(time.perf_counter() - start, 1),
        "bytes an entry",
        round(n_bytes(index) / len(index.rows), 2),
    )
    queries = [SparseQuery(terms, counts.astype(np.float32)) for terms, counts in each(questions, options.queries)]
    report("queries", len(queries), "terms each", round(float(np.mean([len(query.terms) for query in queries])), 1))
    exact = measured("plait, exact", queries, lambda query: best_rows(index, query, options.k).rows)
    for reach in (0.9, 0.8, 0.7, 0.5):
        search = partial(approximate, index, options.k, reach)
        answers = measured(f"plait, reach {reach}", queries, search)
        report("  recall", round(recall(answers, exact), 4))
    loss(rows, queries, exact, options.k)
    for rival in options.rivals:
        answers = measured(rival, queries, RIVALS[rival](index, options.k))
        report("  agrees with plait", round(recall(answers, exact), 4))


def approximate(index: Impacts, k: int, reach: float, query: SparseQuery) -> Found:
    return best_rows(index, query, k, reach=reach).rows


def tokens(data: Path, cache: Path, name: str) -> dict[str, NDArray[Any]]:
    """The word pieces of each text, and their counts."""
    file = cache / f"{data.name}-{name}.npz"
    if not file.exists():
        from tokenizers import Tokenizer

        folder = next((Path(plait.__file__).parent / "models").glob("*/tokenizer.json"))
        tokenizer = Tokenizer.from_file(str(folder))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        terms: list[NDArray[Any]] = []
        counts: list[NDArray[Any]] = []
        offsets = [0]
        for texts in batches(texts_of(data / f"{name}.jsonl.gz")):
            for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
                pieces, times = np.unique(np.asarray(encoding.ids, np.int32), return_counts=True)
                terms.append(pieces)
                counts.append(times)
                offsets.append(offsets[-1] + len(pieces))
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(file, terms=np.concatenate(terms), counts=np.concatenate(counts), offsets=np.asarray(offsets))
    with np.load(file) as stored:
        return {name: stored[name] for name in ("terms", "counts", "offsets")}


def texts_of(file: Path) -> Iterator[str]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            yield f"{fields.get('title', '')} {fields['text']}".strip()


def batches(texts: Iterator[str], size: int = 2000) -> Iterator[list[str]]:
    batch = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def each(stored: dict[str, NDArray[Any]], count: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    for number in range(min(count, len(stored["offsets"]) - 1)):
        rows = slice(stored["offsets"][number], stored["offsets"][number + 1])
        yield stored["terms"][rows], stored["counts"][rows]


def bm25_weights(stored: dict[str, NDArray[Any]], n_rows: int | None) -> SparseVectors:
    offsets = stored["offsets"][: None if n_rows is None else n_rows + 1]
    n_rows = len(offsets) - 1
    terms, counts = stored["terms"][: offsets[-1]], stored["counts"][: offsets[-1]].astype(np.float64)
    owners = np.repeat(np.arange(n_rows), np.diff(offsets))
    lengths = np.bincount(owners, weights=counts, minlength=n_rows)
    document_counts = np.bincount(terms)
    idf = np.log(1 + (n_rows - document_counts + 0.5) / (document_counts + 0.5))
    weights = idf[terms] * counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths[owners] / lengths.mean()))
    return SparseVectors(terms, weights.astype(np.float32), offsets)


def n_bytes(index: Impacts) -> int:
    names = ("terms", "offsets", "rows", "impacts", "scales", "peaks", "frequent", "maxima")
    return sum(getattr(index, name).nbytes for name in names)


def measured(name: str, queries: list[SparseQuery], search: Callable[[SparseQuery], Found]) -> list[Found]:
    answers, times = [], []
    for query in queries[:5]:
        search(query)
    for query in queries:
        start = time.thread_time()
        answers.append(search(query))
        times.append(1000 * (time.thread_time() - start))
    report(name, "ms, median", round(float(np.median(times)), 3), "mean", round(float(np.mean(times)), 3))
    return answers


def recall(results: list[Found], exact: list[Found]) -> float:
    shares = [
        len(np.intersect1d(found_row, true)) / max(len(true), 1) for found_row, true in zip(results, exact, strict=True)
    ]
    return float(np.mean(shares))


def loss(rows: SparseVectors, queries: list[SparseQuery], exact: list[Found], k: int) -> None:
    """Recall of the stored impacts: the share of the k best by unrounded weights that they keep."""
    by_weights = scipy_search(rows_by_term(rows), len(rows), k)
    true = [by_weights(query) for query in queries[:100]]
    for at in (10, k):
        report(
            f"kept by 8 bits, of the best {at}",
            round(recall([answer[:at] for answer in exact[:100]], [answer[:at] for answer in true]), 4),
        )


def rows_by_term(rows: SparseVectors) -> tuple[NDArray[Any], ...]:
    owners = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(rows.offsets))
    order = np.argsort(rows.terms, kind="stable")
    sizes = np.bincount(rows.terms)
    return rows.weights[order], owners[order], np.concatenate([[0], np.cumsum(sizes)])


def stored_by_term(index: Impacts) -> tuple[NDArray[Any], ...]:
    sizes = np.zeros(int(index.terms[-1]) + 1, np.int64)
    sizes[index.terms] = np.diff(index.offsets)
    weights = (index.impacts * index.scales[index.rows]).astype(np.float32)
    return weights, index.rows.astype(np.int32), np.concatenate([[0], np.cumsum(sizes)])


def scipy_search(arrays: tuple[NDArray[Any], ...], n_rows: int, k: int) -> Callable[[SparseQuery], Found]:
    from scipy.sparse import csr_matrix

    n_terms = len(arrays[2]) - 1
    by_term = csr_matrix(arrays, shape=(n_terms, n_rows))

    def search(query: SparseQuery) -> Found:
        known = query.terms < n_terms
        bounds = [0, int(known.sum())]
        scores = csr_matrix((query.weights[known], query.terms[known], bounds), shape=(1, n_terms)) @ by_term
        return best(scores.data, scores.indices, k)

    return search


def best(scores: NDArray[Any], rows: NDArray[Any], k: int) -> Found:
    top = np.argpartition(scores, max(len(scores) - k, 0))[-k:] if len(scores) > k else np.arange(len(scores))
    return np.asarray(rows[top[np.lexsort((rows[top], -scores[top]))]], np.int64)


def of_scipy(index: Impacts, k: int) -> Callable[[SparseQuery], Found]:
    return scipy_search(stored_by_term(index), len(index), k)


def of_bm25s(index: Impacts, k: int) -> Callable[[SparseQuery], Found]:
    import bm25s  # type: ignore[import-not-found]
    from bm25s.selection import topk  # type: ignore[import-not-found]

    weights, rows, offsets = stored_by_term(index)
    ranker = bm25s.BM25()
    ranker.nonoccurrence_array = None
    ranker.scores = {"data": weights, "indices": rows, "indptr": offsets.astype(np.int32), "num_docs": len(index)}

    def search(query: SparseQuery) -> Found:
        terms = np.repeat(query.terms, query.weights.astype(np.int64)).tolist()
        scores = ranker.get_scores_from_ids(terms)
        return np.asarray(topk(scores, k=k, backend="numpy", sorted=True)[1], np.int64)

    return search


def of_numba(index: Impacts, k: int) -> Callable[[SparseQuery], Found]:
    """bm25s with its compiled backend."""
    from bm25s.numba.retrieve_utils import _retrieve_numba_functional as retrieve  # type: ignore[import-not-found]

    weights, rows, offsets = stored_by_term(index)
    scores = {"data": weights, "indices": rows, "indptr": offsets.astype(np.int32), "num_docs": len(index)}

    def search(query: SparseQuery) -> Found:
        terms = np.repeat(query.terms, query.weights.astype(np.int64))
        return np.asarray(retrieve([terms], scores, k=k, show_progress=False)[0][0], np.int64)

    return search


def of_seismic(index: Impacts, k: int) -> Callable[[SparseQuery], Found]:
    from seismic import SeismicDataset, SeismicIndex, get_seismic_string

    name = get_seismic_string()
    weights, rows, offsets = stored_by_term(index)
    order = np.argsort(rows, kind="stable")
    terms = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[order].astype(str).astype(name)
    sorted_weights, ends = weights[order], np.cumsum(np.bincount(rows, minlength=len(index)))
    dataset = SeismicDataset()
    for row, end in enumerate(ends):
        begin = ends[row - 1] if row else 0
        dataset.add_document(str(row), terms[begin:end], sorted_weights[begin:end])
    built = SeismicIndex.build_from_dataset(dataset)

    def search(query: SparseQuery) -> Found:
        terms = query.terms.astype(str).astype(name)
        results = built.search(
            query_id="0",
            query_components=terms,
            query_values=query.weights,
            k=k,
            query_cut=len(terms),
            heap_factor=0.8,
        )
        return np.asarray([int(row) for _, _, row in results], np.int64)

    return search


RIVALS: dict[str, Callable[[Impacts, int], Callable[[SparseQuery], Found]]] = {
    "scipy": of_scipy,
    "bm25s": of_bm25s,
    "bm25s-numba": of_numba,
    "seismic": of_seismic,
}


def report(*values: object) -> None:
    print(*values, flush=True)


if __name__ == "__main__":
    main()
