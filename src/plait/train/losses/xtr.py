"""XTR: scores from retrieved tokens alone, in training (`xtr_scores`) and in searching (`imputed_scores`). Both are
functions of token similarities (queries, query rows, documents, document rows) and the masks of both sides."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from plait.errors import ConfigError

LEAST_COUNT = 1e-3  # what the number of retrieving rows is clamped to, as in the published code


def retrieved(similarities: Tensor, query_mask: Tensor, document_mask: Tensor, *, k: int) -> Tensor:
    """Which document rows are among the k most similar to a query row, over ALL documents together; bool, of the
    similarities' shape. For each query row apart: the best k of a whole query would be another objective."""
    if k < 1:
        raise ConfigError(f"k is {k}; at least one token must be retrieved")
    with torch.no_grad():
        shape = similarities.shape
        valid = document_mask[None, None].expand(shape)
        flat = similarities.masked_fill(~valid, -torch.inf).flatten(start_dim=2)
        places = flat.topk(min(k, flat.shape[2]), dim=2).indices
        chosen = torch.zeros_like(flat, dtype=torch.bool).scatter(2, places, True).reshape(shape)
        # With k above the number of valid rows, the rest of the k are padding.
        return chosen & valid & query_mask[:, :, None, None]


def xtr_scores(
    similarities: Tensor,
    query_mask: Tensor,
    document_mask: Tensor,
    *,
    k: int,
    negatives: Literal["drop", "keep"] = "drop",
) -> Tensor:
    """(queries, documents): the sum over query rows of the best retrieved similarity with a document, divided by how
    many rows retrieved anything of it. A document of which nothing is retrieved scores 0 and gets no gradient.

    `negatives`: a retrieved similarity below 0 is not counted ("drop": the published codes multiply by a mask, so that
    it loses to the 0 of what is masked, and they count what is above 0), or counted like any other ("keep").
    With k above all tokens this is MaxSim divided by the number of rows, or of those whose best is positive.
    """
    chosen = retrieved(similarities, query_mask, document_mask, k=k)
    if negatives == "drop":
        chosen = chosen & (similarities > 0)
    elif negatives != "keep":
        raise ConfigError(f"negatives is {negatives!r}; it must be 'drop' or 'keep'")
    best = similarities.masked_fill(~chosen, -torch.inf).max(dim=-1).values
    found = chosen.any(dim=-1)
    total = torch.where(found, best, torch.zeros_like(best)).sum(dim=1)
    return total / found.sum(dim=1).to(total.dtype).clamp(min=LEAST_COUNT)


def imputed_scores(similarities: Tensor, query_mask: Tensor, document_mask: Tensor, *, k: int) -> Tensor:
    """(queries, documents): what XTR's search gives, for evaluation; training on it does not converge. A query row
    adds its best retrieved similarity, or, of a document that it did not retrieve, the lowest that it retrieved
    anywhere; the mean is over the query's rows, never over those that retrieved. Documents with nothing retrieved are
    not candidates: -inf."""
    chosen = retrieved(similarities, query_mask, document_mask, k=k)
    lowest = similarities.masked_fill(~chosen, torch.inf).flatten(start_dim=2).min(dim=2).values  # (queries, rows)
    best = similarities.masked_fill(~chosen, -torch.inf).max(dim=-1).values  # (queries, rows, documents)
    found = chosen.any(dim=-1)
    filled = torch.where(found, best, lowest.unsqueeze(-1)).masked_fill(~query_mask.unsqueeze(-1), 0)
    mean = filled.sum(dim=1) / query_mask.sum(dim=1, keepdim=True).clamp(min=1)
    return mean.masked_fill(~found.any(dim=1), -torch.inf)
