"""M3: each kind of embedding learns from the labels, and from the weighted sum of all kinds (self-distillation)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from plait.errors import ConfigError, InputError
from plait.train.losses.contrastive import contrastive, mask_excluded

KINDS = ("dense", "sparse", "multi")


@dataclass(frozen=True, slots=True, kw_only=True)
class M3Config:
    """The weights of M3. The sparse head starts at random and would pull the others down, hence its small weights."""

    temperature: float = 0.02
    ensemble_weights: Mapping[str, float] = field(default_factory=lambda: {"dense": 1.0, "sparse": 0.3, "multi": 1.0})
    loss_weights: Mapping[str, float] = field(default_factory=lambda: {"dense": 1.0, "sparse": 0.1, "multi": 1.0})
    start_step: int = 0  # self-distillation begins after this step; the paper uses about 6,000

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigError(f"temperature is {self.temperature}; it must be above 0")
        for name, weights in (("ensemble_weights", self.ensemble_weights), ("loss_weights", self.loss_weights)):
            unknown = sorted(set(weights) - set(KINDS))
            if unknown or len(weights) < len(KINDS):
                raise ConfigError(f"{name} has weights for {', '.join(weights)}; it needs {', '.join(KINDS)}")


def m3(
    scores: Mapping[str, Tensor],
    positive: Tensor,
    config: M3Config,
    *,
    step: int,
    excluded: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and its terms by name. `scores` has raw (queries, documents) scores for each kind of the model,
    positive (queries,) the column of each positive, `excluded` the pairs that are no negatives.

    Scores are divided by the temperature before they are summed into the ensemble, so weights act on logits. With n
    kinds, L is the sum of n + 1 cross-entropies (the ensemble's included) over n + 1, and L' the sum of n soft
    cross-entropies to the ensemble over n. The loss is (L + L') / 2 after `start_step`, L before it.
    """
    if not scores or set(scores) - set(KINDS):
        raise InputError(f"scores are given for {', '.join(scores) or 'nothing'}; M3 takes any of {', '.join(KINDS)}")
    raw = {name: of_kind / config.temperature for name, of_kind in scores.items()}
    # Pairs are masked after the sum: a weight of 0 times minus infinity is NaN.
    ensemble = mask_excluded(weighted_sum(config.ensemble_weights, raw, raw), excluded, positive)
    logits = {name: mask_excluded(of_kind, excluded, positive) for name, of_kind in raw.items()}
    parts = {name: contrastive(of_kind, positive) for name, of_kind in logits.items()}
    parts["ensemble"] = contrastive(ensemble, positive)
    n_kinds = len(logits)
    labelled = weighted_sum(config.loss_weights, parts, logits) + parts["ensemble"]
    loss = labelled / (n_kinds + 1)
    if step > config.start_step:
        soft = {name: soft_cross_entropy(of_kind, ensemble) for name, of_kind in logits.items()}
        parts |= {f"{name} from ensemble": part for name, part in soft.items()}
        loss = (loss + weighted_sum(config.loss_weights, soft, logits) / n_kinds) / 2
    return loss, parts


def weighted_sum(weights: Mapping[str, float], parts: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    """The weighted sum of the named parts."""
    return torch.stack([weights[name] * parts[name] for name in names]).sum(dim=0)


def soft_cross_entropy(logits: Tensor, teacher: Tensor) -> Tensor:
    """Mean over queries of -sum p log softmax(logits), where p is the softmax of the teacher's logits, without
    gradient. A pair that is -inf for the student must be -inf for the teacher; it adds nothing."""
    wanted = F.softmax(teacher.detach(), dim=1)
    log = F.log_softmax(logits, dim=1).masked_fill(wanted == 0, 0)
    return -(wanted * log).sum(dim=1).mean()
