"""`rerank` and `score_xtr`: documents by exact MaxSim, and by the vectors that were retrieved, with the arguments and
results of `pylate.rank`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from plait.checks import check_count
from plait.compat.arguments import device_of
from plait.compat.pylate.vectors import as_items, as_multi_vectors
from plait.errors import InputError
from plait.scoring.maxsim import maxsim


class RerankResult(TypedDict):
    """A document and its score."""

    id: int | str
    score: float


def rerank(
    documents_ids: list[list[int | str]],
    queries_embeddings: Sequence[Any],
    documents_embeddings: Sequence[Any],
    device: str | None = None,
) -> list[list[RerankResult]]:
    """The documents of each query, best first. plait scores on the processor, whatever the device."""
    device_of("device", device)
    queries = as_items(queries_embeddings, "queries_embeddings")
    if not len(queries) == len(documents_ids) == len(documents_embeddings):
        raise InputError(
            f"{len(queries)} queries, {len(documents_ids)} lists of ids and {len(documents_embeddings)} lists of "
            f"documents were given; each query needs one of both"
        )
    results = []
    for query, ids, embeddings in zip(queries, documents_ids, documents_embeddings, strict=True):
        documents = as_multi_vectors(embeddings, "documents_embeddings")
        if len(documents) != len(ids):
            raise InputError(f"{len(ids)} ids were given for {len(documents)} documents of a query")
        scores = maxsim(query, documents) if len(documents) else np.zeros(0, np.float32)
        order = np.argsort(-scores, kind="stable")
        results.append([RerankResult(id=ids[item], score=float(scores[item])) for item in order.tolist()])
    return results


def score_xtr(
    query_doc_ids: list[list[str]], query_scores: list[list[float]], k: int, device: str = "cpu"
) -> list[RerankResult]:
    """The k best documents by XTR. For each query vector the ids of the retrieved vectors' documents and their scores
    are given. A document's score is the sum, over query vectors, of its best score; where it has none, it gets the
    lowest that was retrieved for that query vector. plait scores on the processor, whatever the device."""
    check_count("k", k)
    device_of("device", device)
    if len(query_doc_ids) != len(query_scores):
        raise InputError(f"{len(query_doc_ids)} lists of ids and {len(query_scores)} lists of scores were given")
    numbers: dict[str, int] = {}
    for ids, scores in zip(query_doc_ids, query_scores, strict=True):
        if len(ids) != len(scores):
            raise InputError(f"{len(ids)} ids and {len(scores)} scores were given for a query vector")
        for id in ids:
            numbers.setdefault(id, len(numbers))
    totals = np.zeros(len(numbers), np.float32)
    for ids, scores in zip(query_doc_ids, query_scores, strict=True):
        best = np.full(len(numbers), min(scores, default=0.0), np.float32)
        np.maximum.at(best, [numbers[id] for id in ids], np.asarray(scores, np.float32))
        totals += best
    names = list(numbers)
    order = np.argsort(-totals, kind="stable")[:k]
    return [RerankResult(id=names[item], score=float(totals[item])) for item in order.tolist()]
