"""The kinds of embeddings of one encoder, alone and combined: dense, lexical and multi, by document.

The lexical scores are those of the sparse vectors if the encoder has them, else BM25.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import SparseVectors
from plait_reproduce.encoded_set import EncodedSet, measured_scores
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

Scores = NDArray[np.float32]  # (queries, documents)
MEASURES = ("nDCG@10", "R@10", "R@100")


def modes(workbench: Workbench, settings: Settings) -> Outcome:
    """Every kind alone and weighted sums. Settings: set, and `weights`: name -> kind -> weight. Measures are named
    `name/measure`; the fact `sparse` is 1 if the lexical scores are those of sparse vectors."""
    name = settings["set"]
    scores = kind_scores(workbench, name)
    encoded = workbench.encoded(name)
    combined = {name: weighted_sum(scores, weights) for name, weights in settings["weights"].items()}
    each = {}
    for label, kind_scores_ in {**scores, **combined}.items():
        measures = measured_scores(documents_of(encoded), kind_scores_, MEASURES)
        each.update({f"{label}/{measure}": values for measure, values in measures.items()})
    return Outcome(each, {"sparse": float(encoded.queries.sparse is not None)})


def kind_scores(workbench: Workbench, name: str) -> dict[str, Scores]:
    """The scores of each kind by document: that of its best passage."""
    encoded = workbench.encoded(name)
    assert encoded.documents.dense is not None
    assert encoded.queries.dense is not None
    dense = encoded.queries.dense @ encoded.documents.dense.T
    multi = workbench.maxsim(encoded)
    if encoded.documents.sparse is not None and encoded.queries.sparse is not None:
        lexical = _best(encoded, sparse_scores(encoded.queries.sparse, encoded.documents.sparse))
    else:
        lexical = _words(workbench, name)
    return {"dense": _best(encoded, dense), "lexical": lexical, "multi": _best(encoded, multi)}


def weighted_sum(scores: Mapping[str, Scores], weights: Mapping[str, float]) -> Scores:
    """The weighted sum of scores, each scaled to 0..1 per query so that weights are comparable."""
    return np.asarray(sum(weight * _even(scores[name]) for name, weight in weights.items()), np.float32)


def sparse_scores(queries: SparseVectors, documents: SparseVectors) -> Scores:
    """Inner products of sparse vectors."""
    n_terms = int(max(queries.terms.max(initial=0), documents.terms.max(initial=0))) + 1
    owners = np.repeat(np.arange(len(documents)), np.diff(documents.offsets))
    scores = np.zeros((len(queries), len(documents)), np.float32)
    for number in range(len(queries)):
        terms, weights = queries[number]
        query_weights = np.zeros(n_terms, np.float32)
        query_weights[terms] = weights
        np.add.at(scores[number], owners, query_weights[documents.terms] * documents.weights)
    return scores


def documents_of(encoded: EncodedSet) -> EncodedSet:
    """The set with one item per document, for scores by document."""
    return EncodedSet(
        encoded.texts, encoded.documents, encoded.queries, np.arange(len(encoded.document_ids)), encoded.key
    )


def _best(encoded: EncodedSet, scores: NDArray[np.floating]) -> Scores:
    starts = np.searchsorted(encoded.owners, np.arange(len(encoded.document_ids)))
    return np.maximum.reduceat(np.asarray(scores, np.float32), starts, axis=1)


def _words(workbench: Workbench, name: str) -> Scores:
    texts = workbench.texts(name)
    numbers = {document.id: number for number, document in enumerate(texts.documents)}
    scores = np.zeros((len(texts.queries), len(numbers)), np.float32)
    for row, ranking in enumerate(workbench.bm25(name).values()):
        for id, score in ranking:
            scores[row, numbers[id]] = score
    return scores


def _even(scores: Scores) -> Scores:
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    return np.asarray((scores - low) / np.maximum(high - low, 1e-9), np.float32)
