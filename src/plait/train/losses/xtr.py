"""XTR: scores from retrieved tokens alone, for training (`xtr_scores`) and as in search (`imputed_scores`). Both are
functions of token similarities (queries, query rows, documents, document rows) and the masks of both sides."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from plait.errors import ConfigError

MIN_COUNT = 1e-3  # floor of the divisor, the number of retrieving rows; as in the published code


def retrieved(similarities: Tensor, query_mask: Tensor, document_mask: Tensor, *, k: int) -> Tensor:
    """True for the k document rows most similar to a query row, over ALL documents together; of the similarities'
    shape. Each query row retrieves its own k; the best k of a whole query would be a different loss."""
    if k < 1:
        raise ConfigError(f"k is {k}; at least one token must be retrieved")
    with torch.no_grad():
        shape = similarities.shape
        valid = document_mask[None, None].expand(shape)
        flat = similarities.masked_fill(~valid, -torch.inf).flatten(start_dim=2)
        positions = flat.topk(min(k, flat.shape[2]), dim=2).indices
        chosen = torch.zeros_like(flat, dtype=torch.bool).scatter(2, positions, True).reshape(shape)
        # If k exceeds the number of valid rows, the rest of the top k is padding.
        return chosen & valid & query_mask[:, :, None, None]


def xtr_scores(
    similarities: Tensor,
    query_mask: Tensor,
    document_mask: Tensor,
    *,
    k: int,
    negatives: Literal["drop", "keep"] = "drop",
) -> Tensor:
    """(queries, documents): the sum over query rows of the best retrieved similarity with a document, divided by the
    number of rows that retrieved one of its tokens. A document without a retrieved token scores 0, without gradient.

    `negatives`: "drop" ignores a retrieved similarity below 0; the published codes multiply by a mask, so that such a
    similarity loses to the 0 of masked ones, and they count only what is above 0. "keep" counts it like any other.
    If k covers all tokens, this is MaxSim divided by the number of rows, or of rows whose best is positive.
    """
    chosen = retrieved(similarities, query_mask, document_mask, k=k)
    if negatives == "drop":
        chosen = chosen & (similarities > 0)
    elif negatives != "keep":
        raise ConfigError(f"negatives is {negatives!r}; it must be 'drop' or 'keep'")
    best = similarities.masked_fill(~chosen, -torch.inf).max(dim=-1).values
    has_any = chosen.any(dim=-1)
    total = torch.where(has_any, best, torch.zeros_like(best)).sum(dim=1)
    return total / has_any.sum(dim=1).to(total.dtype).clamp(min=MIN_COUNT)


def imputed_scores(similarities: Tensor, query_mask: Tensor, document_mask: Tensor, *, k: int) -> Tensor:
    """(queries, documents): the scores of XTR's search, for evaluation; training on them does not converge. A query row
    adds its best retrieved similarity with a document or, if it retrieved nothing of that document, the lowest
    similarity that it retrieved anywhere. The mean is over all rows of the query. A document without a retrieved token
    is no candidate: -inf."""
    chosen = retrieved(similarities, query_mask, document_mask, k=k)
    lowest = similarities.masked_fill(~chosen, torch.inf).flatten(start_dim=2).min(dim=2).values  # (queries, rows)
    best = similarities.masked_fill(~chosen, -torch.inf).max(dim=-1).values  # (queries, rows, documents)
    has_any = chosen.any(dim=-1)
    filled = torch.where(has_any, best, lowest.unsqueeze(-1)).masked_fill(~query_mask.unsqueeze(-1), 0)
    mean = filled.sum(dim=1) / query_mask.sum(dim=1, keepdim=True).clamp(min=1)
    return mean.masked_fill(~has_any.any(dim=1), -torch.inf)
