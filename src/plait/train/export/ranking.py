"""What rounding costs in ranks: every text of a collection scored by each strand of each precision. No index is built;
a text is read whole, up to the model's length, a few hundred at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, SparseVectors
from plait.encode.protocol import Encoder
from plait.errors import InputError
from plait.evaluate import JudgedSet, load_beir, measure
from plait.scoring.maxsim import maxsim

MEASURE, K = "nDCG@10", 10
TEXTS_AT_ONCE = 256

Ranked = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """nDCG@10 of each strand, by precision."""

    data: str
    split: str
    n_queries: int
    values: Mapping[str, Mapping[str, float]]  # precision -> strand -> measure


def read_collection(data: Path, split: str) -> JudgedSet:
    """A BEIR folder with a corpus; told before anything is exported if it is none."""
    beir = load_beir(data, split)
    if beir.corpus is None:
        raise InputError(f"there is no corpus in {data}; ranks are measured by searching one")
    return beir


def measure_ranks(
    encoders: Mapping[str, Encoder], beir: JudgedSet, on_stage: Callable[[str], None] = lambda _: None
) -> Ranking:
    """Scores every text for every judged query."""
    values: dict[str, dict[str, float]] = {}
    for precision, encoder in encoders.items():
        on_stage(f"searching {beir.name} with {precision}")
        values[precision] = {
            kind: measure(run, beir.qrels, [MEASURE])[MEASURE] for kind, run in _runs(encoder, beir).items()
        }
    return Ranking(beir.name, beir.split, len(beir.queries), values)


def _runs(encoder: Encoder, beir: JudgedSet) -> dict[str, dict[str, Ranked]]:
    """The best texts of each query, by strand."""
    queries = encoder.encode_queries(list(beir.queries.values()))
    runs: dict[str, dict[str, Ranked]] = {kind: {id: [] for id in beir.queries} for kind in queries.present()}
    documents = beir.documents()
    while some := list(itertools.islice(documents, TEXTS_AT_ONCE)):
        given = encoder.encode_documents([f"{document.title} {document.text}".strip() for document in some])
        for kind, run in runs.items():
            for id, scores in zip(run, scores_of(queries, given, kind), strict=True):
                found = [(document.id, float(score)) for document, score in zip(some, scores, strict=True)]
                run[id] = sorted([*run[id], *found], key=lambda hit: (-hit[1], hit[0]))[:K]
    return runs


def scores_of(queries: Embeddings, documents: Embeddings, kind: str) -> NDArray[np.float32]:
    """(queries, documents), exactly, by one strand of both."""
    if kind == "dense" and queries.dense is not None and documents.dense is not None:
        return queries.dense @ documents.dense.T
    if kind == "sparse" and queries.sparse is not None and documents.sparse is not None:
        # A column for each term of the queries: all others score nothing.
        terms = np.unique(queries.sparse.terms)
        return _spread(queries.sparse, terms) @ _spread(documents.sparse, terms).T
    if kind == "multi" and queries.multi is not None and documents.multi is not None:
        rows = [queries.multi[item].astype(np.float32) for item in range(len(queries.multi))]
        return np.stack([maxsim(own, documents.multi) for own in rows])
    raise InputError(f"queries and documents do not both have a {kind} strand")


def _spread(rows: SparseVectors, terms: NDArray[np.int32]) -> NDArray[np.float32]:
    """(items, terms): the weights of the named terms."""
    spread = np.zeros((len(rows), len(terms)), np.float32)
    items = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    known = np.isin(rows.terms, terms)
    spread[items[known], np.searchsorted(terms, rows.terms[known])] = rows.weights[known]
    return spread
