"""Long documents ranked by their best passage and by their best three: MRR@10 and success at 1.

    python -m benchmarks.quality.long_documents --data qmsum-long --documents 30 --index made
    python -m benchmarks.quality.long_documents --data qmsum-long --mode bm25

Encoding takes the time: a meeting of `qmsum-long` has some 30 passages. --documents limits the index to that many
documents with a query, and the queries to theirs. Ranks among fewer documents are better, so compare lines of one run
only. BM25 needs no model and takes the whole set.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import plait
from plait.encode.protocol import EmbeddingSpec
from plait.search.modes import find_mode
from plait.search.params import Params
from plait.storage.store import Store

PASSAGES = ("max", "top3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a BEIR folder")
    parser.add_argument("--documents", type=int, help="as many as have queries; by default all there are")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--split", default="test")
    parser.add_argument("--index", type=Path, help="where the index is made, and used again")
    parser.add_argument("--mode", nargs="*", default=["dense", "multi", "hybrid"])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    answers = {query: document for query, document, grade in judgements(options.data, options.split) if grade > 0}
    with tempfile.TemporaryDirectory(prefix="plait-") as made:
        index = indexed(options, set(answers.values()), options.index or Path(made) / "index")
        texts = {line["_id"]: line["text"] for line in lines(options.data / "queries.jsonl.gz")}
        with Store.open(index.path).snapshot() as snapshot:
            document_numbers = snapshot.lookup(sorted(set(answers.values())))
        chosen = [query for query, document in answers.items() if document in document_numbers][: options.queries]
        print(f"{options.data.name}: {len(index)} documents, {len(chosen)} queries", flush=True)
        for mode in options.mode:
            for passages in PASSAGES if mode != "bm25" else PASSAGES[:1]:
                params = None if mode == "bm25" else find_mode(mode).params(passages=passages)
                ranks = [rank(index, texts[query], answers[query], mode, params) for query in chosen]
                reciprocal_ranks = np.asarray([1 / rank if rank else 0.0 for rank in ranks])
                report_line = (
                    f"MRR@10 {reciprocal_ranks.mean():.4f}, first {np.mean([rank == 1 for rank in ranks]):.4f}"
                )
                print(f"{mode:8} {passages:6} {report_line}", flush=True)
        index.close()


def indexed(options: argparse.Namespace, answers: set[str], path: Path) -> plait.Index:
    """The index at the path; built if there is none."""
    only_words = options.mode == ["bm25"]
    if (path / "catalogue.sqlite").exists():
        return plait.open(path, n_threads=options.threads)
    spec = EmbeddingSpec(dense=1) if only_words else None
    index = plait.open(path, create=True, spec=spec, n_threads=options.threads)
    documents = lines(options.data / "corpus.jsonl.gz")
    if options.documents is not None:
        documents = islice((line for line in documents if line["_id"] in answers), options.documents)
    fields = [{"id": line["_id"], "text": line["text"], "title": line.get("title") or ""} for line in documents]
    if only_words:
        index.add_embeddings(fields, plait.Embeddings(dense=np.ones((len(fields), 1), np.float32)))
    else:
        index.add(fields, commit_every=4)
    return index


def rank(index: plait.Index, text: str, answer: str, mode: str, params: Params | None) -> int:
    """The rank of the answer among ten; 0 if it is not there."""
    ids = [hit.id for hit in index.search(text, 10, mode=mode, params=params)]
    return ids.index(answer) + 1 if answer in ids else 0


def judgements(data: Path, split: str) -> Iterator[tuple[str, str, int]]:
    for line in (data / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        yield query, document, int(grade)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


if __name__ == "__main__":
    main()
