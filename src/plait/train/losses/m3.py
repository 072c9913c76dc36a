"""M3: every strand learns from the labels, and from the sum of all strands (self-distillation)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.errors import ConfigError, InputError
from plait.train.losses.contrastive import contrastive, without

STRANDS = ("dense", "sparse", "multi")


@dataclass(frozen=True, slots=True, kw_only=True)
class M3Config:
    """The weights of M3. The sparse head starts at random and would drag the others, hence its small ones."""

    temperature: float = 0.02
    in_teacher: Mapping[str, float] = field(default_factory=lambda: {"dense": 1.0, "sparse": 0.3, "multi": 1.0})
    in_loss: Mapping[str, float] = field(default_factory=lambda: {"dense": 1.0, "sparse": 0.1, "multi": 1.0})
    start_step: int = 0  # self-distillation begins after this step; M3 used about 6,000

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigError(f"temperature is {self.temperature}; it must be above 0")
        for name, weights in (("in_teacher", self.in_teacher), ("in_loss", self.in_loss)):
            unknown = sorted(set(weights) - set(STRANDS))
            if unknown or len(weights) < len(STRANDS):
                raise ConfigError(f"{name} has weights for {', '.join(weights)}; it needs {', '.join(STRANDS)}")


def m3(
    scores: Mapping[str, Tensor],
    positive: Tensor,
    config: M3Config,
    *,
    step: int,
    excluded: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss, and its parts by name. `scores` has (queries, documents) raw scores of each strand there is, positive
    (queries,) the column of each positive, `excluded` the pairs that are no negatives.

    Scores are divided by the temperature first and summed into the teacher after: weights then act on logits. With n
    strands, L is the sum of n + 1 cross-entropies (the teacher's own among them) over n + 1, L' the sum of n soft
    ones over n; the loss is (L + L') / 2 after `start_step`, L before it.
    """
    if not scores or set(scores) - set(STRANDS):
        raise InputError(f"scores are of {', '.join(scores) or 'no strand'}; M3 takes some of {', '.join(STRANDS)}")
    raw = {name: found / config.temperature for name, found in scores.items()}
    # Pairs are left out after the sum: a weight of 0 times minus infinity is no number.
    teacher = without(sum_of(config.in_teacher, raw, raw), excluded, positive)
    logits = {name: without(found, excluded, positive) for name, found in raw.items()}
    parts = {name: contrastive(found, positive) for name, found in logits.items()}
    parts["all"] = contrastive(teacher, positive)
    n_strands = len(logits)
    labelled = sum_of(config.in_loss, parts, logits) + parts["all"]
    loss = labelled / (n_strands + 1)
    if step > config.start_step:
        soft = {name: soft_cross_entropy(found, teacher) for name, found in logits.items()}
        parts |= {f"{name} from all": found for name, found in soft.items()}
        loss = (loss + sum_of(config.in_loss, soft, logits) / n_strands) / 2
    return loss, parts


def sum_of(weights: Mapping[str, float], parts: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    """The weighted sum of the named parts."""
    return torch.stack([weights[name] * parts[name] for name in names]).sum(dim=0)


def soft_cross_entropy(logits: Tensor, teacher: Tensor) -> Tensor:
    """Mean over queries of -sum p log softmax(logits), p the softmax of the teacher's logits, without gradient. Pairs
    that are -inf for the student must be so for the teacher; they add nothing."""
    wanted = F.softmax(teacher.detach(), dim=1)
    log = F.log_softmax(logits, dim=1).masked_fill(wanted == 0, 0)
    return -(wanted * log).sum(dim=1).mean()
