"""Contrastive learning (InfoNCE): the positive against every other document of the batch, hard negatives included."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def contrastive(
    scores: Tensor, positive: Tensor, *, temperature: float = 1.0, excluded: Tensor | None = None
) -> Tensor:
    """Mean cross-entropy of (queries, documents) scores, divided by `temperature`, against positive (queries,), the
    column of each query's positive. `excluded` (queries, documents) names pairs that are left out of the sum; a
    positive is never left out. 0 without queries."""
    if len(scores) == 0:
        return scores.sum()
    return F.cross_entropy(without(scores, excluded, positive) / temperature, positive)


def same_passage(passages: Tensor, positive: Tensor) -> Tensor:
    """(queries, documents): which columns hold the same passage as the query's positive, in another place. Such a
    column is no negative: it is the answer. `passages` (documents,) has a number for each distinct passage."""
    same = passages[positive].unsqueeze(1) == passages.unsqueeze(0)
    return same.scatter(1, positive.unsqueeze(1), False)


def without(scores: Tensor, excluded: Tensor | None, positive: Tensor) -> Tensor:
    """The scores with -inf in place of excluded pairs; the positives stay."""
    if excluded is None:
        return scores
    return scores.masked_fill(excluded.scatter(1, positive.unsqueeze(1), False), -torch.inf)
