"""Scores of queries against documents, from what the model gave for each: every query against every document. Pure
functions of tensors; masked entries never win and never get a gradient."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from plait.errors import InputError
from plait.train.tensors import Encoded

Reduce = Literal["sum", "mean"]

# How many similarities are alive at a time in MaxSim: 64 MiB of them.
BLOCK_SIMILARITIES = 1 << 24


def dense_scores(queries: Encoded, documents: Encoded) -> Tensor:
    """(queries, documents) inner products."""
    return _strand(queries.dense, "dense") @ _strand(documents.dense, "dense").T


def sparse_scores(queries: Encoded, documents: Encoded) -> Tensor:
    """(queries, documents): for each id that both have, the product of its weights; an id that a text has more than
    once counts with its highest weight. 0 without a shared id.

    Only ids that some query has can matter, so weights are gathered in a column for each of those and never in one
    for each id of the vocabulary.
    """
    query_ids, document_ids = _strand(queries.sparse_ids, "sparse"), _strand(documents.sparse_ids, "sparse")
    known = torch.unique(query_ids)
    return (
        _by_id(_strand(queries.sparse, "sparse"), query_ids, known)
        @ _by_id(_strand(documents.sparse, "sparse"), document_ids, known).T
    )


def _by_id(weights: Tensor, ids: Tensor, known: Tensor) -> Tensor:
    """(items, length) weights to (items, known): the highest weight of each known id."""
    column = torch.searchsorted(known, ids).clamp(max=len(known) - 1)
    counted = torch.where(known[column] == ids, weights, torch.zeros_like(weights))
    empty = weights.new_zeros(len(weights), len(known))
    return empty.scatter_reduce(1, column, counted, "amax", include_self=True)


def maxsim_scores(
    queries: Encoded, documents: Encoded, *, reduce: Reduce = "sum", block: int = BLOCK_SIMILARITIES
) -> Tensor:
    """(queries, documents): for each query row its best document row, added up or averaged over the query's rows.
    0 for a document or a query without rows. At most `block` similarities, or one document's, are alive at a time.
    """
    rows, mask = _strand(queries.multi, "multi"), _strand(queries.multi_mask, "multi")
    owned, owned_mask = _strand(documents.multi, "multi"), _strand(documents.multi_mask, "multi")
    if reduce not in ("sum", "mean"):
        raise InputError(f"reduce is {reduce!r}; MaxSim is reduced by 'sum' or 'mean'")
    step = max(1, block // max(1, rows.shape[0] * rows.shape[1] * owned.shape[1]))
    best = [
        _best(rows, owned[start : start + step], owned_mask[start : start + step])
        for start in range(0, len(owned), step)
    ]
    if not best:
        return rows.new_zeros(len(rows), 0)
    scores = (torch.cat(best, dim=1) * mask.unsqueeze(1)).sum(dim=-1)
    return scores / mask.sum(dim=1, keepdim=True).clamp(min=1) if reduce == "mean" else scores


def _best(rows: Tensor, owned: Tensor, mask: Tensor) -> Tensor:
    """(queries, documents, query rows): the best similarity of each query row with a row of each document."""
    if owned.shape[1] == 0:
        return rows.new_zeros(len(rows), len(owned), rows.shape[1])
    similar = torch.einsum("qid,pjd->qpij", rows, owned)
    # max keeps only the places of the winners for the way back; amax would keep every similarity of every block.
    best = similar.masked_fill(~mask[None, :, None, :], -torch.inf).max(dim=-1).values
    return torch.where(mask.any(dim=1)[None, :, None], best, torch.zeros_like(best))


def token_similarities(queries: Encoded, documents: Encoded) -> Tensor:
    """(queries, query rows, documents, document rows), all at once: what XTR retrieves from. Masks are not applied;
    the objective takes them."""
    return torch.einsum("qid,pjd->qipj", _strand(queries.multi, "multi"), _strand(documents.multi, "multi"))


def _strand(kind: Tensor | None, name: str) -> Tensor:
    if kind is None:
        raise InputError(f"the model gives no {name} strand; add its head to the model, or train another strand")
    return kind
