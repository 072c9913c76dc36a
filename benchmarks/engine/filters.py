"""Cost and recall of a filter, by the share of documents that it keeps: search time as a ratio to the same search
without a filter, and recall against the exhaustive answer among the kept documents.

    python -m benchmarks.engine.filters --data wikipassages --vectors cache --model light --passages 25000
    python -m benchmarks.engine.filters --documents 100000 --out filters.json

A filter keeps random documents, or one topic. With a topic, queries are about it (topic) or about something else
(elsewhere). The first command uses real passages and questions (`topical_corpus.py`): a topic is a cluster of dense
vectors; a question is about it if at least five of its ten best passages are in it, and elsewhere if none is. The
second command generates documents (`grouped_corpus.py`) and needs no data.

Every query is searched without and with the filter in turn, so other load affects both. A ratio is one of median CPU
times. Each filter is resolved once before the timing, as a repeated filter would be.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import plait
from benchmarks.engine.grouped_corpus import N_GROUPS, Corpus, add, seconds
from benchmarks.engine.topical_corpus import Passages
from plait.embeddings import Embeddings

K = 10
SHARES = (0.001, 0.01, 0.1, 0.5, 1.0)
MODES = ("dense", "sparse", "multi", "bm25", "hybrid")
REAL_MODES = ("multi", "dense", "bm25", "hybrid")
FIELDS = {"random": "place", "topic": "group", "elsewhere": "group"}  # all have values from 0 to 999
N_TOPICS = 3  # per share, because clusters differ
MANY, NONE = 5, 0  # of the ten best passages in the topic: the question is about it, or elsewhere
Query = tuple[str, Embeddings]


@dataclass(frozen=True, slots=True)
class Case:
    """Filters of one kind that keep about the same share, each with its queries."""

    kind: str
    share: float
    asked: Sequence[tuple[str, Sequence[Query]]]

    def __len__(self) -> int:
        return sum(len(queries) for _, queries in self.asked)


def search(index: plait.Index, query: Query, mode: str, filter: str | None, *, exact: bool = False) -> list[str]:
    text, embeddings = query
    hits = index.search_embeddings(embeddings, K, texts=[text], mode=mode, filter=filter, exact=exact)
    return [hit.id for hit in hits[0]]


class Recall:
    """Recall against the exhaustive answer, with a filter or without; each exhaustive answer is computed once."""

    def __init__(self, index: plait.Index) -> None:
        self._index = index
        self._known: dict[tuple[str, str, str | None], float] = {}

    def of(self, case: Case, mode: str, *, filtered: bool) -> float:
        requests = [(one, filter if filtered else None) for filter, queries in case.asked for one in queries]
        return float(np.mean([self._one(query, mode, filter) for query, filter in requests]))

    def _one(self, query: Query, mode: str, filter: str | None) -> float:
        key = query[0], mode, filter
        if key not in self._known:
            truth = search(self._index, query, mode, filter, exact=True)
            hits = search(self._index, query, mode, filter)
            self._known[key] = len(set(truth) & set(hits)) / len(truth) if truth else float(not hits)
        return self._known[key]


def times(index: plait.Index, case: Case, mode: str, n_rounds: int) -> tuple[float, float]:
    """Median times without and with the filter, measured in turn."""
    plain: list[float] = []
    heights: list[float] = []
    for filter, queries in case.asked:
        search(index, queries[0], mode, filter)
        for turn in range(n_rounds):
            for number, one in enumerate(queries):
                pair = [(None, plain), (filter, heights)]
                for which, task in pair if (turn + number) % 2 else reversed(pair):
                    task.append(seconds(partial(search, index, one, mode, which), time.process_time))
    return median(plain), median(heights)


def made_cases(n_queries: int) -> Iterator[Case]:
    corpus = Corpus(0, sparse=True)
    for kind, field in FIELDS.items():
        for share in SHARES:
            n_kept = round(N_GROUPS * share)
            if kind == "elsewhere" and n_kept == N_GROUPS:
                continue
            groups = {"topic": (0, n_kept), "elsewhere": (n_kept, N_GROUPS), "random": (0, N_GROUPS)}[kind]
            yield Case(kind, share, [(f"{field} < {n_kept}", corpus.queries(n_queries, *groups))])


def real_cases(index: plait.Index, passages: Passages, questions: Sequence[Query], n_queries: int) -> Iterator[Case]:
    for share in SHARES:
        yield Case("random", share, [(f"place < {round(1000 * share)}", questions[:n_queries])])
    best = [frozenset(search(index, question, "multi", None, exact=True)) for question in questions]
    for share in SHARES[:-1]:
        topics = passages.topics(share, N_TOPICS)
        inside = {topic.filter: [len(topic.ids & ten) for ten in best] for topic in topics}
        for kind in ("topic", "elsewhere"):
            requests = []
            for filter, counts in inside.items():
                fits = [count >= MANY if kind == "topic" else count == NONE for count in counts]
                topic_questions = [question for question, fit in zip(questions, fits, strict=True) if fit]
                if topic_questions:
                    requests.append((filter, topic_questions[:n_queries]))
            if requests:
                yield Case(kind, share, requests)


def measure(index: plait.Index, cases: Sequence[Case], modes: Sequence[str], n_rounds: int) -> dict[str, Any]:
    report: dict[str, Any] = {}
    recall = Recall(index)
    for mode in modes:
        for case in cases:
            before, after = times(index, case, mode, n_rounds)
            report[f"{mode}, {case.kind}, {case.share:.1%}"] = record = {
                "queries": len(case),
                "time_ratio": round(after / before, 3),
                "ms": round(1000 * after, 3),
                "ms_without": round(1000 * before, 3),
                "recall": round(recall.of(case, mode, filtered=True), 4),
                "recall_without": round(recall.of(case, mode, filtered=False), 4),
            }
            print(f"{mode:8} {case.kind:9} {case.share:6.1%} {record}", flush=True)
    return report


def build_made(path: Path, n_documents: int) -> None:
    corpus = Corpus(0, sparse=True)
    with plait.open(path, create=True, spec=corpus.spec, n_threads=1) as index:
        add(index, corpus, 0, n_documents)
        for field in sorted(set(FIELDS.values())):
            index.create_field_index(field)
        index.compact()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000, help="that are made up")
    parser.add_argument("--data", type=Path, help="a BEIR folder, whose passages and questions are used instead")
    parser.add_argument("--vectors", type=Path, help="the cache that embeddings.py made of it")
    parser.add_argument("--model", type=Path, help="the model folder that it was made with")
    parser.add_argument("--passages", type=int, default=25_000)
    parser.add_argument("--questions", type=int, default=200, help="of which those are taken that suit a filter")
    parser.add_argument("--queries", type=int, default=40, help="at most so many a filter")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", nargs="+", choices=MODES)
    parser.add_argument("--index", type=Path, help="where the index is made, or is already; else for this run alone")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.data is not None and (options.vectors is None or options.model is None):
        parser.error("--data needs --vectors and --model beside it")
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        path = options.index or Path(folder) / "index"
        passages = None if options.data is None else Passages(options.data, options.vectors, options.passages)
        if not path.exists():
            build_made(path, options.documents) if passages is None else passages.build(path)
        with plait.open(path, n_threads=1) as index:
            if passages is None:
                cases = list(made_cases(options.queries))
            else:
                questions = passages.queries(options.model, options.questions)
                cases = list(real_cases(index, passages, questions, options.queries))
            modes = options.modes or (MODES if passages is None else REAL_MODES)
            report = measure(index, cases, modes, options.rounds)
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
