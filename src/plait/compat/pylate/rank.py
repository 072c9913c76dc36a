"""`rerank`: documents by exact MaxSim, with the arguments and results of `pylate.rank.rerank`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

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
