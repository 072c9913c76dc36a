"""A small BEIR folder from an entity-linking set, with queries that a tiny cross-encoder can read: the mention and the
name of its table.

    python -m benchmarks.cur.mentions path/to/wikitables-el --to wiki-train --split train --queries 2500
    python -m benchmarks.cur.mentions path/to/wikitables-el --to wiki-test --split test --queries 260 --documents 1000

The corpus is the judged documents of the queries and random others up to `--documents`. Queries without a marked
mention stay as they are.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MENTION = re.compile(r"\[START\]\s*(.*?)\s*\[END\]", re.DOTALL)


def shortened(text: str) -> str:
    """`List of towers ; Name: [START] Bell Tower [END] Height: 40` to `Bell Tower ; List of towers`."""
    mention = MENTION.search(text)
    return text if mention is None else f"{mention[1]} ; {text.split(' ; ')[0]}"


def cut(row: dict[str, Any], n_words: int) -> dict[str, Any]:
    """A document with the first `n_words` words of its text; 0 for all."""
    return row | {"text": " ".join(row["text"].split()[:n_words])} if n_words else row


def objects(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--queries", type=int, default=2500)
    parser.add_argument("--documents", type=int, default=0)
    parser.add_argument("--words", type=int, default=0, help="of a document that are kept; 0 is all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    with (options.data / "qrels" / f"{options.split}.tsv").open(encoding="utf-8") as file:
        judged = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    names = sorted({row[0] for row in judged})
    chosen_ids = {names[position] for position in rng.permutation(len(names))[: options.queries]}
    qrels = [row for row in judged if row[0] in chosen_ids]
    documents = list(objects(options.data / "corpus.jsonl.gz"))
    judged_ids = {row[1] for row in qrels}
    others = [row["_id"] for row in documents if row["_id"] not in judged_ids]
    judged_ids |= {
        others[position] for position in rng.permutation(len(others))[: max(0, options.documents - len(judged_ids))]
    }
    (options.to / "qrels").mkdir(parents=True)
    write(options.to / "corpus.jsonl", [cut(row, options.words) for row in documents if row["_id"] in judged_ids])
    queries = [row for row in objects(options.data / "queries.jsonl.gz") if row["_id"] in chosen_ids]
    write(options.to / "queries.jsonl", [{"_id": row["_id"], "text": shortened(row["text"])} for row in queries])
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(row) for row in qrels)]
    (options.to / "qrels" / f"{options.split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
