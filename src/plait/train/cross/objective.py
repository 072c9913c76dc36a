"""The loss of a cross-encoder: each query's positive against its own negatives, and perhaps a teacher's opinion."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.errors import InputError
from plait.train.batching.collate import TextBatch
from plait.train.batching.gather import process
from plait.train.cross.config import CrossEntropyConfig
from plait.train.losses.distillation import distillation
from plait.train.objective import Summed


def list_loss(scores: Tensor, known: Tensor, teacher: Tensor | None, config: CrossEntropyConfig) -> Summed:
    """Mean over queries of scores (queries, ways), the positive first. `known` (queries, ways) is False where a list is
    filled up with what is not there; `teacher` has scores of the same shape."""
    labels = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    right = F.cross_entropy(scores.masked_fill(~known, -torch.inf), labels)
    if not config.distil:
        return Summed(right)
    if teacher is None:
        raise InputError(
            f"distil is {config.distil}, and the data has no teacher's scores; name a teacher in the section mining, "
            f"or use data with scores"
        )
    learned = distillation(scores, teacher, alpha=config.alpha, known=known)
    parts = {"labels": float(right.detach()), "teacher": float(learned.detach())}
    return Summed((1 - config.distil) * right + config.distil * learned, parts)


def own_facts(batch: TextBatch) -> tuple[Tensor, Tensor | None]:
    """(queries, ways) of this process's queries: which passages of each list are there, and the teacher's scores."""
    first, n = process() * len(batch.queries), len(batch.queries)
    known = torch.stack(
        [
            torch.from_numpy(batch.allowed[row, row * batch.group : (row + 1) * batch.group])
            for row in range(first, first + n)
        ]
    )
    return known, None if batch.teacher is None else torch.from_numpy(batch.teacher[first : first + n])
