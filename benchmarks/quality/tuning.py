"""Whether a tuned search reaches its recall on real queries: the recall that tuning predicts from synthetic queries,
against the recall of real ones, both relative to exhaustive search over the same codes and over the unquantised
vectors.

    python -m benchmarks.quality.tuning --cache cache --passages 10000 --work /tmp/tune --data wikipassages

`--cache` is a `benchmarks.embed` folder. Indexes are built once in `--work`, one with 2 bits per dimension and one with
8-bit codes beside them. With `--data`, the BEIR folder of the cache, synthetic queries of words are tried as well as
rows.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from benchmarks.embed import EmbeddingFiles, read_embeddings, read_lines
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.load import load_model
from plait.encode.protocol import EmbeddingSpec
from plait.scoring.maxsim import maxsim, top_k
from plait.tune.synthetic_queries import Queries, few_words


@dataclass(frozen=True, slots=True)
class Real:
    """Real queries and their exact answers."""

    queries: list[NDArray[np.float32]]
    by_vectors: list[set[str]]


def build(path: Path, corpus: EmbeddingFiles, *, keep_8bit: bool) -> None:
    if path.exists():
        return
    with plait.open(path, create=True, spec=EmbeddingSpec(multi=corpus.values.shape[1])) as index:
        documents = [{"id": str(number), "text": f"passage {number}"} for number in range(len(corpus))]
        index.add_embeddings(documents, Embeddings(multi=MultiVectors(corpus.values, corpus.offsets)))
        done = index.compact(bits=2, keep_8bit=keep_8bit)
    print(
        f"{path.name}: {done.n_vectors:,} vectors in {done.seconds:.0f} s, codes keep {done.codes_recall}", flush=True
    )


def real_queries(corpus: EmbeddingFiles, n_queries: int, k: int) -> Real:
    drawn = np.random.default_rng(1).permutation(corpus.n_queries)[:n_queries]
    queries = [corpus.query(int(number)) for number in drawn]
    vectors = MultiVectors(corpus.values, corpus.offsets)
    answers = [{str(item) for item in top_k(maxsim(query, vectors, n_threads=2), k)} for query in queries]
    return Real(queries, answers)


def made_of_words(data: Path, n_passages: int, n_queries: int) -> Queries:
    """Synthetic queries as an index with texts and an encoder makes them."""
    rng = np.random.default_rng(0)
    texts = [document["text"] for document in islice(read_lines(data / "corpus.jsonl"), n_passages)]
    drawn = rng.choice(len(texts), n_queries, replace=False)
    encoded = load_model(n_threads=2).encode_queries([few_words(texts[number], rng) for number in drawn])
    return Queries.of("words", encoded.multi, [int(number) + 1 for number in drawn])  # document numbers start at 1


def found(index: plait.Index, query: NDArray[np.float32], k: int, *, exact: bool) -> tuple[set[str], float]:
    embeddings = Embeddings(multi=MultiVectors(query, np.array([0, len(query)], np.int64)))
    start = time.perf_counter()
    hits = index.search_embeddings(embeddings, k, mode="multi", exact=exact)[0]
    return {hit.id for hit in hits}, time.perf_counter() - start


def compare(path: Path, real: Real, k: int, n_queries: int, trials: list[tuple[float, str, Queries | None]]) -> None:
    with plait.open(path) as index:
        by_codes = [found(index, query, k, exact=True)[0] for query in real.queries]
        for target, of, queries in trials:
            start = time.perf_counter()
            done = index.tune(target, k, queries=queries, n_queries=n_queries, of=of)
            took = time.perf_counter() - start
            kind = "rows" if queries is None else "words"
            if done.plan is None:
                print(f"| {path.name} | {target} of {of} | {kind} | out of reach: {done.codes_recall} |", flush=True)
                continue
            report(path.name, index, done, kind, real, by_codes, k, took)
        index.reset_tuning()
        defaults = [found(index, query, k, exact=False) for query in real.queries]
        recall_in_codes, of_vectors = overlap(defaults, by_codes, k), overlap(defaults, real.by_vectors, k)
        p50 = 1000 * np.median([seconds for _, seconds in defaults])
        print(
            f"| {path.name} | defaults | | | | {recall_in_codes:.3f} | {of_vectors:.3f} | {p50:.1f} | | |", flush=True
        )


def report(
    name: str, index: plait.Index, done: object, kind: str, real: Real, by_codes: list[set[str]], k: int, took: float
) -> None:
    from plait.tune.recall import Tuned

    assert isinstance(done, Tuned)
    plan = done.plan
    assert plan is not None
    answers = [found(index, query, k, exact=False) for query in real.queries]
    recall_in_codes, of_vectors = overlap(answers, by_codes, k), overlap(answers, real.by_vectors, k)
    p50 = 1000 * np.median([seconds for _, seconds in answers])
    settings = (
        "exhaustive"
        if plan.exhaustive
        else f"{plan.n_probe}/{plan.n_candidates}/{plan.n_code_scored}/{plan.n_rescored}"
    )
    print(
        f"| {name} | {plan.target_recall} of {plan.recall_of} | {kind} | {done.predicted:.3f} "
        f"| {plan.recall_in_codes:.3f} | {recall_in_codes:.3f} | {of_vectors:.3f} "
        f"| {p50:.1f} | {settings} | {took:.0f} |",
        flush=True,
    )


def overlap(answers: list[tuple[set[str], float]], truth: list[set[str]], k: int) -> float:
    return float(np.mean([len(ids & wanted) / k for (ids, _), wanted in zip(answers, truth, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--passages", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=150, help="real ones to judge with")
    parser.add_argument("--tune-queries", type=int, default=200, help="made-up ones to tune with")
    parser.add_argument("-k", type=int, default=10)
    options = parser.parse_args()
    corpus = read_embeddings(options.cache, options.passages)
    real = real_queries(corpus, options.queries, options.k)
    words = None if options.data is None else made_of_words(options.data, options.passages, options.tune_queries)
    print(
        "| index | asked | queries | predicted | held out | real, in codes | real, of vectors | p50 ms | settings | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, of in (("plain", "codes"), ("fine", "vectors")):
        path = options.work / f"{name}-{options.passages}"
        build(path, corpus, keep_8bit=name == "fine")
        trials: list[tuple[float, str, Queries | None]] = [(target, of, None) for target in (0.8, 0.9, 0.95)]
        trials += [] if words is None else [(0.9, of, words)]
        compare(path, real, options.k, options.tune_queries, trials)


if __name__ == "__main__":
    main()
