"""Measures plait-gte-small and writes the numbers of its README.

    python models/scripts/measure_gte_small.py --data DIR --sets scifact cranfield

Each set is a BEIR folder of DIR with a test split. All scores are exact: each kind of embedding scores every text. The
hybrid is the reciprocal rank fusion of dense, multi and BM25. Documents are read whole, up to the model's length.
`build_gte_small.py` puts the numbers into the README.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ir_measures import nDCG
from numpy.typing import NDArray

from build_gte_small import NUMBERS
from plait.embeddings import MultiVectors
from plait.encode.load import load_model

Scores = NDArray[np.float32]
DEPTH = 100
RRF_K = 60
KINDS = ("bm25", "dense", "multi", "hybrid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--model", default=None)
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--to", type=Path, default=NUMBERS)
    arguments = parser.parse_args()
    rows = []
    for name in arguments.sets:
        scores = measure(arguments.data / name, arguments.model, arguments.precision)
        rows.append([name, *(f"{scores[kind]:.3f}" for kind in KINDS)])
        print(*rows[-1], flush=True)
    table = {"title": "nDCG@10 on test sets, all passages scored:", "columns": ["set", *KINDS], "rows": rows}
    numbers: dict[str, Any] = (
        json.loads(arguments.to.read_text()) if arguments.to.exists() else {"tables": [], "notes": []}
    )
    numbers["tables"] = [table, *(other for other in numbers["tables"] if other["title"] != table["title"])]
    arguments.to.write_text(json.dumps(numbers, indent=2) + "\n")


def measure(folder: Path, model: str | None, precision: str) -> dict[str, float]:
    """nDCG@10 of each kind and of their fusion."""
    corpus = {
        row["_id"]: f"{row.get('title') or ''} {row['text']}".strip() for row in _rows(folder / "corpus.jsonl.gz")
    }
    qrels = _qrels(folder / "qrels" / "test.tsv")
    queries = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl.gz") if row["_id"] in qrels}
    encoder = load_model(model, precision=precision)
    query_embeddings = encoder.encode_queries(list(queries.values()))
    document_embeddings = encoder.encode_documents(
        list(corpus.values()),
        on_batch=lambda done, total: print(f"\r{folder.name}: {done} of {total}", end="", file=sys.stderr),
    )
    assert query_embeddings.dense is not None
    assert document_embeddings.dense is not None
    assert query_embeddings.multi is not None
    assert document_embeddings.multi is not None
    ranked = {
        "bm25": bm25(list(corpus.values()), list(queries.values())),
        "dense": top(query_embeddings.dense @ document_embeddings.dense.T),
        "multi": top(maxsim(query_embeddings.multi, document_embeddings.multi)),
    }
    ranked["hybrid"] = fuse([ranked[name] for name in ("bm25", "dense", "multi")])
    ids = list(corpus)
    scores = {}
    for name, lists in ranked.items():
        run = {
            query: {ids[item]: float(DEPTH - rank) for rank, item in enumerate(items[:DEPTH])}
            for query, items in zip(queries, lists, strict=True)
        }
        scores[name] = nDCG(cutoff=10).calc_aggregate(qrels, run)
    return scores


def top(scores: Scores) -> list[list[int]]:
    return [np.argsort(-row, kind="stable")[:DEPTH].tolist() for row in scores]


def maxsim(queries: MultiVectors, documents: MultiVectors) -> Scores:
    """(queries, documents) scores, a few thousand rows at a time."""
    scores = np.zeros((len(queries), len(documents)), np.float32)
    offsets = documents.offsets
    start = 0
    while start < len(documents):
        end = max(start + 1, int(np.searchsorted(offsets, offsets[start] + 8192, "right")) - 1)
        similar = queries.values @ documents.values[offsets[start] : offsets[end]].T
        best = np.maximum.reduceat(similar, offsets[start:end] - offsets[start], axis=1)
        scores[:, start:end] = np.add.reduceat(best, queries.offsets[:-1], axis=0)
        start = end
    return scores


def bm25(texts: list[str], queries: list[str]) -> list[list[int]]:
    """SQLite's full-text index with English stemming."""
    database = sqlite3.connect(":memory:")
    database.execute("create virtual table texts using fts5(body, tokenize = 'porter unicode61')")
    database.executemany("insert into texts (rowid, body) values (?, ?)", enumerate(texts))
    ranked = []
    for query in queries:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        rows = database.execute("select rowid from texts where texts match ? order by rank limit ?", (words, DEPTH))
        ranked.append([item for (item,) in rows])
    return ranked


def fuse(lists: list[list[list[int]]]) -> list[list[int]]:
    """Reciprocal rank fusion, query by query."""
    fused = []
    for rankings in zip(*lists, strict=True):
        scores: dict[int, float] = {}
        for ranking in rankings:
            for rank, item in enumerate(ranking, 1):
                scores[item] = scores.get(item, 0.0) + 1 / (RRF_K + rank)
        fused.append(sorted(scores, key=lambda item: (-scores[item], item))[:DEPTH])
    return fused


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _qrels(path: Path) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    with path.open(encoding="utf-8") as lines:
        for query, document, score in list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]:
            qrels.setdefault(query, {})[document] = int(score)
    return qrels


if __name__ == "__main__":
    main()
