"""Two encoders side by side on the same texts: how far their strands are apart, and how far they may be."""

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

# Rows have length one. The two add in different orders, and twelve layers make of that some 1e-6.
TOLERANCE = 1e-4
# The least mean cosine of int8 to fp32. Rounding costs a model some 0.01; below this something else is wrong.
LEAST_COSINE = 0.9


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a strand of one encoder is from that of another."""

    largest: float  # difference of any two numbers; of the sparse strand, as a part of the largest weight above 1
    cosine: float  # mean over vectors, or over texts for the sparse strand


@dataclass(frozen=True, slots=True)
class Parity:
    """All strands, over queries and documents."""

    embeddings: dict[str, Difference]
    n_texts: int


def compare(one: Encoder, other: Encoder, queries: Sequence[str], documents: Sequence[str]) -> Parity:
    """The strands of both, number by number; ModelError if they have different strands or numbers of rows."""
    pairs = [
        (one.encode_queries(queries), other.encode_queries(queries)),
        (one.encode_documents(documents), other.encode_documents(documents)),
    ]
    found: dict[str, Difference] = {}
    for name in pairs[0][0].present():
        parts = [_pairs(first, second, name) for first, second in pairs]
        gaps = [np.abs(left - right).max(initial=0) for part in parts for left, right in part]
        cosines = np.concatenate([_cosines(left, right) for part in parts for left, right in part] or [np.ones(1)])
        scale = max([1.0, *(np.abs(left).max(initial=0) for part in parts for left, _ in part)])
        found[name] = Difference(float(max(gaps, default=0)) / float(scale), float(cosines.mean()))
    return Parity(found, len(queries) + len(documents))


def check_same(parity: Parity) -> None:
    """Refuses a graph that computes something else than torch does."""
    for name, seen in parity.embeddings.items():
        if not seen.largest <= TOLERANCE:
            raise ModelError(
                f"the {name} strand of the graph is {seen.largest:.2g} away from torch's, and {TOLERANCE:.0e} is "
                f"allowed; the model was not written. Please report which backbone it has"
            )


def check_rounded(parity: Parity) -> None:
    """Refuses an int8 graph that rounding has made another model."""
    for name, seen in parity.embeddings.items():
        if not seen.cosine >= LEAST_COSINE:
            raise ModelError(
                f"rounded to int8, the {name} strand has a mean cosine of {seen.cosine:.3f} with what it was, and "
                f"{LEAST_COSINE} is the least; the model was not written. Export it with --precision fp32"
            )


Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


def _pairs(one: Embeddings, other: Embeddings, name: str) -> list[Pair]:
    first, second = one.present()[name], other.present().get(name)
    if isinstance(first, SparseVectors) and isinstance(second, SparseVectors):
        return [_spread(first, second, item) for item in range(len(first))]
    if isinstance(first, MultiVectors) and isinstance(second, MultiVectors):
        if not np.array_equal(first.offsets, second.offsets):
            raise ModelError(f"the two keep different rows of the {name} strand: {first.offsets}, {second.offsets}")
        return [(first.values.astype(np.float32), second.values.astype(np.float32))]
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return [(first, second)]
    raise ModelError(f"only one of the two has a {name} strand")


def _spread(one: SparseVectors, other: SparseVectors, item: int) -> Pair:
    """The terms of one text, those of both, as rows: 0 where one of them lacks a term."""
    found = []
    terms = np.union1d(*(rows.terms[rows.offsets[item] : rows.offsets[item + 1]] for rows in (one, other)))
    for rows in (one, other):
        own = slice(rows.offsets[item], rows.offsets[item + 1])
        spread = np.zeros((1, len(terms)), np.float32)
        spread[0, np.searchsorted(terms, rows.terms[own])] = rows.weights[own]
        found.append(spread)
    return found[0], found[1]


def _cosines(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of each row with its twin; two rows of zeros are alike."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    same = (np.abs(one).max(axis=1, initial=0) == 0) & (np.abs(other).max(axis=1, initial=0) == 0)
    products = (one * other).sum(axis=1) / np.maximum(lengths, 1e-12)
    return np.where(same, 1.0, products).astype(np.float64)


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


def read_collection(data: Path, split: str) -> Dataset:
    """A BEIR folder with a corpus; told before anything is exported if it is none."""
    beir = load_beir(data, split)
    if beir.corpus is None:
        raise InputError(f"there is no corpus in {data}; ranks are measured by searching one")
    return beir


def measure_ranks(
    encoders: Mapping[str, Encoder], beir: Dataset, on_stage: Callable[[str], None] = lambda _: None
) -> Ranking:
    """Scores every text for every judged query."""
    values: dict[str, dict[str, float]] = {}
    for precision, encoder in encoders.items():
        on_stage(f"searching {beir.name} with {precision}")
        values[precision] = {
            kind: measure(run, beir.qrels, [MEASURE])[MEASURE] for kind, run in _runs(encoder, beir).items()
        }
    return Ranking(beir.name, beir.split, len(beir.queries), values)


def _runs(encoder: Encoder, beir: Dataset) -> dict[str, dict[str, Ranked]]:
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
        return _term_columns(queries.sparse, terms) @ _term_columns(documents.sparse, terms).T
    if kind == "multi" and queries.multi is not None and documents.multi is not None:
        rows = [queries.multi[item].astype(np.float32) for item in range(len(queries.multi))]
        return np.stack([maxsim(own, documents.multi) for own in rows])
    raise InputError(f"queries and documents do not both have a {kind} strand")


def _term_columns(rows: SparseVectors, terms: NDArray[np.int32]) -> NDArray[np.float32]:
    """(items, terms): the weights of the named terms."""
    spread = np.zeros((len(rows), len(terms)), np.float32)
    items = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    known = np.isin(rows.terms, terms)
    spread[items[known], np.searchsorted(terms, rows.terms[known])] = rows.weights[known]
    return spread


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
    """The documents, and one that has to be cut."""
    return [*DOCUMENTS, " ".join(DOCUMENTS) * 12]
