"""Scores of every query against every document of a batch, as pure functions of tensors. Masked entries never win and
never get a gradient."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from plait.errors import InputError
from plait.train.tensors import Encoded

Reduce = Literal["sum", "mean"]

MAX_SIMILARITIES = 1 << 24  # computed at a time in MaxSim: 64 MiB


def dense_scores(queries: Encoded, documents: Encoded) -> Tensor:
    """(queries, documents) inner products."""
    return _required(queries.dense, "dense") @ _required(documents.dense, "dense").T


def sparse_scores(queries: Encoded, documents: Encoded) -> Tensor:
    """(queries, documents): the sum over shared ids of the product of their weights. An id that occurs several times in
    a text counts with its highest weight. 0 without a shared id.

    Only ids of the queries can score, so there is one column for each of those, not for each id of the vocabulary.
    """
    query_ids, document_ids = _required(queries.sparse_ids, "sparse"), _required(documents.sparse_ids, "sparse")
    known = torch.unique(query_ids)
    return (
        _by_id(_required(queries.sparse, "sparse"), query_ids, known)
        @ _by_id(_required(documents.sparse, "sparse"), document_ids, known).T
    )


def _by_id(weights: Tensor, ids: Tensor, known: Tensor) -> Tensor:
    """(items, length) weights to (items, known): the highest weight of each known id."""
    column = torch.searchsorted(known, ids).clamp(max=len(known) - 1)
    counted = torch.where(known[column] == ids, weights, torch.zeros_like(weights))
    empty = weights.new_zeros(len(weights), len(known))
    return empty.scatter_reduce(1, column, counted, "amax", include_self=True)


def maxsim_scores(
    queries: Encoded, documents: Encoded, *, reduce: Reduce = "sum", block: int = MAX_SIMILARITIES
) -> Tensor:
    """(queries, documents): the best document row of each query row, summed or averaged over the query's rows. 0 for a
    document or a query without rows. At most `block` similarities, or one document's, are computed at a time."""
    query_rows, query_mask = _required(queries.multi, "multi"), _required(queries.multi_mask, "multi")
    rows, mask = _required(documents.multi, "multi"), _required(documents.multi_mask, "multi")
    if reduce not in ("sum", "mean"):
        raise InputError(f"reduce is {reduce!r}; MaxSim is reduced by 'sum' or 'mean'")
    step = max(1, block // max(1, query_rows.shape[0] * query_rows.shape[1] * rows.shape[1]))
    best = [
        _best(query_rows, rows[start : start + step], mask[start : start + step]) for start in range(0, len(rows), step)
    ]
    if not best:
        return query_rows.new_zeros(len(query_rows), 0)
    scores = (torch.cat(best, dim=1) * query_mask.unsqueeze(1)).sum(dim=-1)
    return scores / query_mask.sum(dim=1, keepdim=True).clamp(min=1) if reduce == "mean" else scores


def _best(query_rows: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
    """(queries, documents, query rows): the best similarity of each query row with a row of each document."""
    if rows.shape[1] == 0:
        return query_rows.new_zeros(len(query_rows), len(rows), query_rows.shape[1])
    similarities = torch.einsum("qid,pjd->qpij", query_rows, rows)
    # For the backward pass max stores only the indices of the winners; amax would store every similarity.
    best = similarities.masked_fill(~mask[None, :, None, :], -torch.inf).max(dim=-1).values
    return torch.where(mask.any(dim=1)[None, :, None], best, torch.zeros_like(best))


def token_similarities(queries: Encoded, documents: Encoded) -> Tensor:
    """(queries, query rows, documents, document rows), unmasked: what XTR retrieves from."""
    return torch.einsum("qid,pjd->qipj", _required(queries.multi, "multi"), _required(documents.multi, "multi"))


def _required(tensor: Tensor | None, kind: str) -> Tensor:
    if tensor is None:
        raise InputError(f"the model has no {kind} head; add [model.{kind}], or train with another kind")
    return tensor
