"""Checks of an exported graph: its embeddings are compared with those of torch, and int8 with fp32; and what int8 costs
in nDCG@10 on a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import Encoder
from plait.errors import InputError, ModelError
from plait.evaluate import Dataset, load_beir, measure
from plait.scoring.maxsim import maxsim

MAX_DIFFERENCE = 1e-4  # of unit vectors; different orders of addition make about 1e-6 in twelve layers
# Of int8 and fp32 vectors. Rounding costs about 0.01; below this something else is wrong.
MIN_COSINE = 0.9


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two encoders in one kind of embedding."""

    largest: float  # the largest absolute difference; for sparse vectors relative to the largest weight above 1
    cosine: float  # the mean over vectors


@dataclass(frozen=True, slots=True)
class Parity:
    """The differences of all kinds of embeddings, over queries and documents."""

    embeddings: dict[str, Difference]
    n_texts: int


def compare(one: Encoder, other: Encoder, queries: Sequence[str], documents: Sequence[str]) -> Parity:
    """Compares the embeddings of two encoders; ModelError if they differ in kinds or in numbers of rows."""
    pairs = [
        (one.encode_queries(queries), other.encode_queries(queries)),
        (one.encode_documents(documents), other.encode_documents(documents)),
    ]
    differences: dict[str, Difference] = {}
    for name in pairs[0][0].present():
        parts = [_pairs(first, second, name) for first, second in pairs]
        gaps = [np.abs(left - right).max(initial=0) for part in parts for left, right in part]
        cosines = np.concatenate([_cosines(left, right) for part in parts for left, right in part] or [np.ones(1)])
        scale = max([1.0, *(np.abs(left).max(initial=0) for part in parts for left, _ in part)])
        differences[name] = Difference(float(max(gaps, default=0)) / float(scale), float(cosines.mean()))
    return Parity(differences, len(queries) + len(documents))


def check_fp32(parity: Parity) -> None:
    """ModelError if the graph differs from torch."""
    for name, seen in parity.embeddings.items():
        if not seen.largest <= MAX_DIFFERENCE:
            raise ModelError(
                f"the {name} vectors of the graph differ from torch's by {seen.largest:.2g}, and {MAX_DIFFERENCE:.0e} "
                f"is allowed; the model was not written. Please report the backbone"
            )


def check_int8(parity: Parity) -> None:
    """ModelError if the int8 graph differs too much from fp32."""
    for name, seen in parity.embeddings.items():
        if not seen.cosine >= MIN_COSINE:
            raise ModelError(
                f"the int8 {name} vectors have a mean cosine of {seen.cosine:.3f} with the fp32 vectors, and at least "
                f"{MIN_COSINE} is required; the model was not written. Export it with --precision fp32"
            )


def cosines_of(one: Embeddings, other: Embeddings, kind: str) -> NDArray[np.float64]:
    """The cosine of each vector of one kind with the same vector of another encoder."""
    return np.concatenate([_cosines(left, right) for left, right in _pairs(one, other, kind)] or [np.ones(0)])


Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


def _pairs(one: Embeddings, other: Embeddings, name: str) -> list[Pair]:
    first, second = one.present()[name], other.present().get(name)
    if isinstance(first, SparseVectors) and isinstance(second, SparseVectors):
        return [_dense_rows(first, second, item) for item in range(len(first))]
    if isinstance(first, MultiVectors) and isinstance(second, MultiVectors):
        if not np.array_equal(first.offsets, second.offsets):
            raise ModelError(
                f"the two encoders give different numbers of {name} rows: {first.offsets}, {second.offsets}"
            )
        return [(first.values.astype(np.float32), second.values.astype(np.float32))]
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return [(first, second)]
    raise ModelError(f"only one of the two encoders gives {name} vectors")


def _dense_rows(one: SparseVectors, other: SparseVectors, item: int) -> Pair:
    """The sparse vectors of one text from both encoders as dense rows over the terms of both."""
    dense = []
    terms = np.union1d(*(rows.terms[rows.offsets[item] : rows.offsets[item + 1]] for rows in (one, other)))
    for rows in (one, other):
        span = slice(rows.offsets[item], rows.offsets[item + 1])
        row = np.zeros((1, len(terms)), np.float32)
        row[0, np.searchsorted(terms, rows.terms[span])] = rows.weights[span]
        dense.append(row)
    return dense[0], dense[1]


def _cosines(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """The cosine of each pair of rows; 1 for two rows of zeros."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    same = (np.abs(one).max(axis=1, initial=0) == 0) & (np.abs(other).max(axis=1, initial=0) == 0)
    products = (one * other).sum(axis=1) / np.maximum(lengths, 1e-12)
    return np.where(same, 1.0, products).astype(np.float64)


MEASURE, K = "nDCG@10", 10
BATCH_TEXTS = 256

Ranked = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Ranking:
    """nDCG@10 of each kind of embedding, by precision."""

    data: str
    split: str
    n_queries: int
    values: Mapping[str, Mapping[str, float]]  # precision -> kind -> nDCG@10


def read_dataset(data: Path, split: str) -> Dataset:
    """A BEIR folder with a corpus; InputError if it has none."""
    dataset = load_beir(data, split)
    if dataset.corpus is None:
        raise InputError(f"{data} has no corpus; nDCG@10 is measured by searching one")
    return dataset


def measure_ranks(
    encoders: Mapping[str, Encoder], dataset: Dataset, on_stage: Callable[[str], None] = lambda _: None
) -> Ranking:
    """Scores every text for every judged query, by each kind of embedding of each precision. No index is built; a text
    is truncated to the model's length."""
    values: dict[str, dict[str, float]] = {}
    for precision, encoder in encoders.items():
        on_stage(f"searching {dataset.name} with {precision}")
        values[precision] = {
            kind: measure(run, dataset.qrels, [MEASURE])[MEASURE] for kind, run in _runs(encoder, dataset).items()
        }
    return Ranking(dataset.name, dataset.split, len(dataset.queries), values)


def _runs(encoder: Encoder, dataset: Dataset) -> dict[str, dict[str, Ranked]]:
    """The best texts of each query, by kind of embedding."""
    queries = encoder.encode_queries(list(dataset.queries.values()))
    runs: dict[str, dict[str, Ranked]] = {kind: {id: [] for id in dataset.queries} for kind in queries.present()}
    documents = dataset.documents()
    while batch := list(itertools.islice(documents, BATCH_TEXTS)):
        vectors = encoder.encode_documents([f"{document.title} {document.text}".strip() for document in batch])
        for kind, run in runs.items():
            for id, scores in zip(run, exact_scores(queries, vectors, kind), strict=True):
                scored = [(document.id, float(score)) for document, score in zip(batch, scores, strict=True)]
                run[id] = sorted([*run[id], *scored], key=lambda hit: (-hit[1], hit[0]))[:K]
    return runs


def exact_scores(queries: Embeddings, documents: Embeddings, kind: str) -> NDArray[np.float32]:
    """(queries, documents) scores by one kind of embedding."""
    if kind == "dense" and queries.dense is not None and documents.dense is not None:
        return queries.dense @ documents.dense.T
    if kind == "sparse" and queries.sparse is not None and documents.sparse is not None:
        # One column for each term of the queries: other terms cannot score.
        terms = np.unique(queries.sparse.terms)
        return _term_columns(queries.sparse, terms) @ _term_columns(documents.sparse, terms).T
    if kind == "multi" and queries.multi is not None and documents.multi is not None:
        rows = [queries.multi[item].astype(np.float32) for item in range(len(queries.multi))]
        return np.stack([maxsim(query_rows, documents.multi) for query_rows in rows])
    raise InputError(f"queries and documents do not both have {kind} vectors")


def _term_columns(rows: SparseVectors, terms: NDArray[np.int32]) -> NDArray[np.float32]:
    """(items, terms): the weights of these terms."""
    columns = np.zeros((len(rows), len(terms)), np.float32)
    items = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    known = np.isin(rows.terms, terms)
    columns[items[known], np.searchsorted(terms, rows.terms[known])] = rows.weights[known]
    return columns


QUERIES = (
    "why do leaves turn red in autumn",
    "tides",
    "What is the boiling point of water at 3,000 metres?",
    "who wrote the first dictionary of the English language",
    "¿Cuándo florecen los almendros?",
    "",
)
DOCUMENTS = (
    "Leaves turn red when a tree stops making chlorophyll; the sugar that is left in them is turned into anthocyanin.",
    "The moon pulls the water of the sea towards it, and the earth turns below: most coasts have two tides a day.",
    "Water boils at 100 °C by the sea. With each 300 metres of height it boils at 1 °C less, and eggs take longer.",
    "def median(values):\n    ordered = sorted(values)\n    return ordered[len(ordered) // 2]",
    "Samuel Johnson's dictionary of 1755 was not the first, but for a century and a half it was the one on the table.",
    "Die Mandelbäume blühen vor allen anderen, oft schon im Februar, und ein später Frost kostet die ganze Ernte.",
    "潮の満ち引きは、主に月の引力によって起こる。",
    "Приливы вызваны притяжением Луны и Солнца.",
    "... !!! ???",
    "tides",
    "",
)


def sample_documents() -> list[str]:
    """The documents, and one that is longer than any model reads."""
    return [*DOCUMENTS, " ".join(DOCUMENTS) * 12]
