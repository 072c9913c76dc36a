"""Distillation from a teacher's scores over lists of passages, as in ColBERTv2: KL to the teacher's distribution over
each list, and the first passage of each list against the passages of other queries."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.errors import InputError
from plait.train.losses.contrastive import contrastive


def distillation(
    scores: Tensor,
    teacher: Tensor,
    *,
    temperature: float = 1.0,
    teacher_scale: float = 1.0,
    known: Tensor | None = None,
) -> Tensor:
    """Mean over queries of KL(teacher || student), both (queries, ways): softmax of student scores divided by
    `temperature`, and of teacher scores multiplied by `teacher_scale`. `known` (queries, ways) is False for the
    padding of short lists. The teacher gets no gradient. 0 without queries."""
    if scores.shape != teacher.shape:
        raise InputError(
            f"scores are {tuple(scores.shape)} and the teacher's are {tuple(teacher.shape)}; they must match"
        )
    if len(scores) == 0:
        return scores.sum()
    logits, targets = scores / temperature, teacher.detach() * teacher_scale
    if known is not None:
        # A finite floor: KL multiplies the two sides, and 0 times minus infinity is NaN.
        floor = torch.finfo(logits.dtype).min / 4
        logits, targets = logits.masked_fill(~known, floor), targets.masked_fill(~known, floor)
    return F.kl_div(F.log_softmax(logits, dim=1), F.log_softmax(targets, dim=1), log_target=True, reduction="batchmean")


def query_lists(scores: Tensor) -> Tensor:
    """(queries, queries * ways) scores, the lists side by side, to (queries, ways): each query with its own list."""
    n_queries = len(scores)
    by_list = scores.reshape(n_queries, n_queries, -1)
    return by_list[torch.arange(n_queries), torch.arange(n_queries)]


def other_passages_of_list(n_queries: int, n_ways: int, device: torch.device | None = None) -> Tensor:
    """(queries, queries * ways): True for the passages of a query's own list except the first. They may answer the
    query too, so they are not used as negatives."""
    owner = torch.arange(n_queries * n_ways, device=device) // n_ways
    first = torch.arange(n_queries * n_ways, device=device) % n_ways == 0
    return (owner.unsqueeze(0) == torch.arange(n_queries, device=device).unsqueeze(1)) & ~first


def in_batch(scores: Tensor, *, excluded: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """ColBERTv2's in-batch term of (queries, queries * ways) scores: cross-entropy of each query's first passage
    against the passages of all other queries. Pairs in `excluded` are left out as well."""
    n_queries, n_documents = scores.shape
    n_ways = n_documents // max(1, n_queries)
    left_out = other_passages_of_list(n_queries, n_ways, scores.device)
    positive = torch.arange(n_queries, device=scores.device) * n_ways
    left_out = left_out if excluded is None else left_out | excluded
    return contrastive(scores, positive, temperature=temperature, excluded=left_out)
