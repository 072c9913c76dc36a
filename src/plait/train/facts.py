"""What a loss may know of a batch besides vectors, and the shape of an objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.train.batching.collate import TextBatch
from plait.train.encoded import Encoded, Loss


@dataclass(frozen=True, slots=True, eq=False)
class BatchFacts:
    """Document i belongs to query i // group, and is its positive if i % group is 0."""

    group: int
    allowed: Tensor  # (queries, documents) bool: False is a score that counts in no softmax
    teacher: Tensor | None  # (queries, group)
    step: int  # how many steps were made before this one

    @property
    def positive(self) -> Tensor:
        """(queries,): the column of each query's positive."""
        return torch.arange(len(self.allowed), device=self.allowed.device) * self.group


Objective = Callable[[Encoded, Encoded, BatchFacts], Loss]  # queries, documents, what is known of them


def facts_of(batch: TextBatch, *, step: int, device: torch.device | str = "cpu") -> BatchFacts:
    teacher = None if batch.teacher is None else torch.from_numpy(batch.teacher).to(device)
    return BatchFacts(batch.group, torch.from_numpy(batch.allowed).to(device), teacher, step)
