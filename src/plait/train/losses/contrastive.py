"""The contrastive loss (InfoNCE): the positive against all other documents of the batch, hard negatives included."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive(
    scores: Tensor, positive: Tensor, *, temperature: float = 1.0, excluded: Tensor | None = None
) -> Tensor:
    """Mean cross-entropy of (queries, documents) scores, divided by `temperature`, against positive (queries,), the
    column of each query's positive. Pairs in `excluded` (queries, documents) take no part in the softmax; a positive
    always does. 0 without queries."""
    if len(scores) == 0:
        return scores.sum()
    return F.cross_entropy(mask_excluded(scores, excluded, positive) / temperature, positive)


def same_passage(passages: Tensor, positive: Tensor) -> Tensor:
    """(queries, documents): True where another column holds the same passage as the query's positive. Such a column is
    no negative. `passages` (documents,) has one number for each distinct passage."""
    same = passages[positive].unsqueeze(1) == passages.unsqueeze(0)
    return same.scatter(1, positive.unsqueeze(1), False)


def mask_excluded(scores: Tensor, excluded: Tensor | None, positive: Tensor) -> Tensor:
    """The scores with -inf for excluded pairs; positives are never masked."""
    if excluded is None:
        return scores
    return scores.masked_fill(excluded.scatter(1, positive.unsqueeze(1), False), -torch.inf)
