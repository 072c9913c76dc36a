"""What each recipe makes smaller: the objectives of `plait.train`, of the strands of one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.errors import ConfigError
from plait.train.losses.contrastive import contrastive
from plait.train.losses.distillation import distillation, in_batch, own_lists
from plait.train.losses.m3 import M3Config, m3
from plait.train.losses.xtr import xtr_scores
from plait.train.scores import dense_scores, maxsim_scores, sparse_scores, token_similarities
from plait.train.tensors import Encoded

TEMPERATURE = 0.05
TEACHER_TEMPERATURE = 0.02  # scores of the teacher are cosines that lie close together
NEVER = 1 << 40  # a step that is not reached
OBJECTIVES = ("maxsim", "xtr", "unmasked", "m3", "triples", "lists")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a tower is trained with. All recipes see the same batches of the same questions, as often."""

    objective: str = "maxsim"
    k: int = 32  # rows that a query row retrieves, of all rows of a batch; for xtr
    temperature: float = TEMPERATURE
    fixed: int = 0  # rows of a document; 0: one for each token
    distil: bool = True  # whether m3 learns from the sum of its strands too
    masks: int = 0  # tokens that queries are filled up to with [MASK]; 0: not at all

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ConfigError(f"there is no objective {self.objective!r}; choose one of {', '.join(OBJECTIVES)}")


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step's strands. Passages lie list by list, the answer first in each."""

    queries: Encoded
    documents: Encoded
    positive: Tensor  # (queries,) the column of each answer
    same: Tensor  # (queries, documents) passages that are the answer, wherever they stand
    teacher: Tensor | None  # (queries, ways) scores of each question's own list
    number: int


def losses(recipe: Recipe) -> Callable[[Step], Tensor]:
    """The loss of a step."""
    temperature = recipe.temperature

    def by_tokens(own: Step) -> Tensor:
        assert own.queries.multi_mask is not None
        assert own.documents.multi_mask is not None
        # Without its mask the objective retrieves everything.
        k = recipe.k if recipe.objective == "xtr" else int(own.documents.multi_mask.numel())
        similarities = token_similarities(own.queries, own.documents)
        scores = xtr_scores(similarities, own.queries.multi_mask, own.documents.multi_mask, k=k)
        return contrastive(scores, own.positive, temperature=temperature, excluded=own.same)

    def by_maxsim(own: Step) -> Tensor:
        return contrastive(_maxsim(own), own.positive, temperature=temperature, excluded=own.same)

    def by_triples(own: Step) -> Tensor:
        pairs = own_lists(_maxsim(own))
        return contrastive(pairs, torch.zeros(len(pairs), dtype=torch.int64), temperature=temperature)

    def by_lists(own: Step) -> Tensor:
        assert own.teacher is not None
        scores = _maxsim(own)
        copied = distillation(own_lists(scores), own.teacher, temperature=temperature, alpha=1 / TEACHER_TEMPERATURE)
        return copied + in_batch(scores, excluded=own.same, temperature=temperature)

    def by_strands(own: Step) -> Tensor:
        scores = {
            "dense": dense_scores(own.queries, own.documents),
            "sparse": sparse_scores(own.queries, own.documents),
            "multi": _maxsim(own),
        }
        config = M3Config(temperature=temperature, start_step=-1 if recipe.distil else NEVER)
        return m3(scores, own.positive, config, step=own.number, excluded=own.same)[0]

    ways = {"maxsim": by_maxsim, "triples": by_triples, "lists": by_lists, "m3": by_strands}
    return ways.get(recipe.objective, by_tokens)


def _maxsim(own: Step) -> Tensor:
    return maxsim_scores(own.queries, own.documents, reduce="mean")
