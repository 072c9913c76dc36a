"""What a filter does to a search, by how much it keeps: its time as a ratio to the same search without one, and its
recall against the exhaustive answer among what it keeps. Filters keep documents at random, or whole groups of a topic;
then queries are about what is kept (topic), or about something else (elsewhere).

    python benchmarks/filters.py --documents 100000 --out filters.json

Each query is searched without and with the filter in turn, so that a busy machine disturbs both alike; a ratio is one
of medians of processor time. A filter is resolved once before, as for any that is used again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import plait
from grouped import N_GROUPS, Corpus, add, seconds
from plait.strands import Strands

K = 10
SHARES = (0.001, 0.01, 0.1, 0.5, 1.0)
MODES = ("dense", "sparse", "multi", "bm25", "hybrid")
FIELDS = {"random": "place", "topic": "group", "elsewhere": "group"}  # each of them from 0 to 999
Query = tuple[str, Strands]


def search(index: plait.Index, query: Query, mode: str, filter: str | None, *, exact: bool = False) -> list[str]:
    text, strands = query
    found = index.search_arrays(strands, K, texts=[text], mode=mode, filter=filter, exact=exact)
    return [hit.id for hit in found[0]]


def recall(index: plait.Index, queries: Sequence[Query], mode: str, filter: str | None) -> float:
    """The share of the exhaustive answer under the same filter."""
    shares = []
    for one in queries:
        truth = search(index, one, mode, filter, exact=True)
        shares.append(len(set(truth) & set(search(index, one, mode, filter))) / max(len(truth), 1))
    return float(np.mean(shares))


def times(index: plait.Index, queries: Sequence[Query], mode: str, filter: str, n_rounds: int) -> tuple[float, float]:
    """The medians without and with the filter, in turn."""
    plain: list[float] = []
    kept: list[float] = []
    for turn in range(n_rounds):
        for number, one in enumerate(queries):
            pair = [(None, plain), (filter, kept)]
            for which, own in pair if (turn + number) % 2 else reversed(pair):
                own.append(seconds(partial(search, index, one, mode, which), time.process_time))
    return median(plain), median(kept)


def asked_of(corpus: Corpus, kind: str, n_groups: int, n_queries: int) -> list[Query]:
    """Queries about the documents that a filter keeps, about others, or about any."""
    if kind == "topic":
        return corpus.queries(n_queries, 0, n_groups)
    return corpus.queries(n_queries, n_groups) if kind == "elsewhere" else corpus.queries(n_queries)


def measure(index: plait.Index, modes: Sequence[str], n_queries: int, n_rounds: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    corpus = Corpus(0, sparse=True)
    for mode, (kind, field), share in product(modes, FIELDS.items(), SHARES):
        n_kept = round(N_GROUPS * share)
        if kind == "elsewhere" and n_kept == N_GROUPS:
            continue
        filter, queries = f"{field} < {n_kept}", asked_of(corpus, kind, n_kept, n_queries)
        search(index, queries[0], mode, filter)
        before, after = times(index, queries, mode, filter, n_rounds)
        told[f"{mode}, {kind}, {share:.1%}"] = own = {
            "time_ratio": round(after / before, 3),
            "ms": round(1000 * after, 3),
            "ms_without": round(1000 * before, 3),
            "recall": round(recall(index, queries, mode, filter), 4),
            "recall_without": round(recall(index, queries, mode, None), 4),
        }
        print(f"{mode:8} {kind:9} {share:6.1%} {own}", flush=True)
    return told


def build(path: Path, n_documents: int) -> None:
    corpus = Corpus(0, sparse=True)
    with plait.open(path, create=True, shape=corpus.shape, n_threads=1) as index:
        add(index, corpus, 0, n_documents)
        for field in sorted(set(FIELDS.values())):
            index.index_field(field)
        index.compact()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--documents", type=int, default=100_000)
    asked.add_argument("--queries", type=int, default=40)
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    asked.add_argument("--index", type=Path, help="where the index is made, or is already; else for this run alone")
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        path = given.index or Path(folder) / "index"
        if not path.exists():
            build(path, given.documents)
        with plait.open(path, n_threads=1) as index:
            told = measure(index, given.modes, given.queries, given.rounds)
    if given.out is not None:
        given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
