"""The section `loss` of a recipe: a name and its numbers, turned into a function of encoded queries and documents.

The mathematics is in losses/ and scores.py; this module reads the config and composes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from plait.errors import ConfigError, InputError
from plait.train.losses.contrastive import contrastive
from plait.train.losses.distillation import distillation, in_batch, query_lists
from plait.train.losses.m3 import M3Config, m3, weighted_sum
from plait.train.losses.margin_mse import margin_mse
from plait.train.losses.xtr import xtr_scores
from plait.train.recipe import SectionLocation, read_section, unknown_name
from plait.train.scores import dense_scores, maxsim_scores, sparse_scores, token_similarities
from plait.train.tensors import BatchTargets, Encoded, LossFunction, LossValue

KINDS = ("dense", "sparse", "multi")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastiveConfig:
    """Cross-entropy of the positive against all passages of the batch."""

    kind: str = "dense"
    temperature: float = 0.02
    reduce: str = "mean"  # of MaxSim over query rows; with "sum" use a temperature near 1

    def __post_init__(self) -> None:
        _check(self.kind, self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationConfig:
    """ColBERTv2: KL to the teacher's distribution over each query's list, plus the positive against other lists."""

    kind: str = "multi"
    temperature: float = 1.0
    teacher_scale: float = 1.0  # teacher scores are multiplied by this before the softmax
    in_batch_weight: float = 1.0  # weight of the in-batch term; 0 leaves it out
    reduce: str = "sum"

    def __post_init__(self) -> None:
        _check(self.kind, self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginMseConfig:
    """MarginMSE: the student's score margins should equal the teacher's."""

    kind: str = "dense"
    scale: float = 1.0  # student scores are multiplied by this: cosines are small, a teacher's logits are not
    reduce: str = "sum"

    def __post_init__(self) -> None:
        _check(self.kind, self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class XtrConfig:
    """XTR: documents are scored by the tokens that would have been retrieved from the batch."""

    k: int = 32  # tokens that each query token retrieves
    temperature: float = 1.0
    negatives: str = "drop"  # or "keep": whether a retrieved similarity below 0 counts

    def __post_init__(self) -> None:
        _check("multi", self.temperature)
        if self.k < 1:
            raise ConfigError(f"k is {self.k}; at least one token must be retrieved")
        if self.negatives not in ("drop", "keep"):
            raise ConfigError(f"negatives is {self.negatives!r}; it must be 'drop' or 'keep'")


@dataclass(frozen=True, slots=True, kw_only=True)
class M3LossConfig:
    """M3: each kind learns from the labels and from the weighted sum of all kinds. Weights: dense, sparse, multi."""

    temperature: float = 0.02
    ensemble_weights: tuple[float, ...] = (1.0, 0.3, 1.0)
    loss_weights: tuple[float, ...] = (1.0, 0.1, 1.0)
    start_step: int = 0
    teacher_weight: float = 0.0  # weight of KL to an external teacher's scores over each query's list; 0: no teacher
    teacher_scale: float = 1.0  # teacher scores are multiplied by this before the softmax

    def __post_init__(self) -> None:
        _check("dense", self.temperature)
        if self.teacher_weight < 0:
            raise ConfigError(f"teacher_weight is {self.teacher_weight}; it must be 0 or more")
        for name in ("ensemble_weights", "loss_weights"):
            if len(getattr(self, name)) != len(KINDS):
                raise ConfigError(f"{name} has {len(getattr(self, name))} weights; it needs one for each of {KINDS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetroMaeConfig:
    """RetroMAE: pre-training on texts without labels."""

    encoder_rate: float = 0.3
    decoder_rate: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.encoder_rate < 1 and 0 < self.decoder_rate < 1):
            raise ConfigError(
                f"encoder_rate is {self.encoder_rate} and decoder_rate is {self.decoder_rate}; both must be between 0 "
                f"and 1"
            )


CONFIGS: dict[str, type] = {
    "contrastive": ContrastiveConfig,
    "distillation": DistillationConfig,
    "margin-mse": MarginMseConfig,
    "xtr": XtrConfig,
    "m3": M3LossConfig,
    "retromae": RetroMaeConfig,
}


def read_loss(values: Mapping[str, Any], location: SectionLocation) -> Any:
    """The config of the loss that a recipe names."""
    name = values.get("name")
    if name not in CONFIGS:
        if name is None:
            raise ConfigError(f"{location.where('')}: the key 'name' is missing; choose one of {', '.join(CONFIGS)}")
        raise unknown_name("loss", str(name), CONFIGS, location)
    return read_section(CONFIGS[name], {key: value for key, value in values.items() if key != "name"}, location)


def make_loss(config: Any) -> LossFunction:
    """The loss function of a config that `read_loss` returned."""
    return _MAKERS[type(config)](config)


def _contrastive(config: ContrastiveConfig) -> LossFunction:
    def loss(queries: Encoded, documents: Encoded, targets: BatchTargets) -> LossValue:
        scores = _scores(config.kind, queries, documents, config.reduce)
        return LossValue(
            contrastive(scores, targets.positive, temperature=config.temperature, excluded=~targets.allowed)
        )

    return loss


def _distillation(config: DistillationConfig) -> LossFunction:
    def loss(queries: Encoded, documents: Encoded, targets: BatchTargets) -> LossValue:
        scores = _scores(config.kind, queries, documents, config.reduce)
        from_teacher = distillation(
            query_lists(scores),
            _teacher(targets),
            temperature=config.temperature,
            teacher_scale=config.teacher_scale,
            known=query_lists(targets.allowed),
        )
        if config.in_batch_weight == 0:
            return LossValue(from_teacher)
        from_batch = in_batch(scores, excluded=~targets.allowed, temperature=config.temperature)
        parts = {"teacher": float(from_teacher.detach()), "in batch": float(from_batch.detach())}
        return LossValue(from_teacher + config.in_batch_weight * from_batch, parts)

    return loss


def _margin_mse(config: MarginMseConfig) -> LossFunction:
    def loss(queries: Encoded, documents: Encoded, targets: BatchTargets) -> LossValue:
        scores = query_lists(_scores(config.kind, queries, documents, config.reduce)) * config.scale
        return LossValue(margin_mse(scores, _teacher(targets), known=query_lists(targets.allowed)))

    return loss


def _xtr(config: XtrConfig) -> LossFunction:
    def loss(queries: Encoded, documents: Encoded, targets: BatchTargets) -> LossValue:
        similarities = token_similarities(queries, documents)
        assert queries.multi_mask is not None
        assert documents.multi_mask is not None
        negatives: Any = config.negatives
        scores = xtr_scores(similarities, queries.multi_mask, documents.multi_mask, k=config.k, negatives=negatives)
        return LossValue(
            contrastive(scores, targets.positive, temperature=config.temperature, excluded=~targets.allowed)
        )

    return loss


def _m3(config: M3LossConfig) -> LossFunction:
    weights = M3Config(
        temperature=config.temperature,
        ensemble_weights=dict(zip(KINDS, config.ensemble_weights, strict=True)),
        loss_weights=dict(zip(KINDS, config.loss_weights, strict=True)),
        start_step=config.start_step,
    )

    def loss(queries: Encoded, documents: Encoded, targets: BatchTargets) -> LossValue:
        kinds = [name for name in KINDS if getattr(queries, name) is not None]
        scores = {name: _scores(name, queries, documents, "mean") for name in kinds}
        # M3 counts steps from 1: with start_step 0 the first step already distils.
        total, parts = m3(scores, targets.positive, weights, step=targets.step + 1, excluded=~targets.allowed)
        if config.teacher_weight:
            from_teacher = _teacher_parts(scores, targets, config)
            parts |= {f"{name} from teacher": part for name, part in from_teacher.items()}
            taught = weighted_sum(weights.loss_weights, from_teacher, from_teacher)
            total = total + config.teacher_weight * taught / len(from_teacher)
        return LossValue(total, {name: float(part.detach()) for name, part in parts.items()})

    return loss


def _teacher_parts(scores: Mapping[str, Tensor], targets: BatchTargets, config: M3LossConfig) -> dict[str, Tensor]:
    """For each kind, KL to the external teacher's distribution over each query's list."""
    teacher, known = _teacher(targets), query_lists(targets.allowed)
    return {
        name: distillation(
            query_lists(of_kind),
            teacher,
            temperature=config.temperature,
            teacher_scale=config.teacher_scale,
            known=known,
        )
        for name, of_kind in scores.items()
    }


_MAKERS: dict[type, Callable[[Any], LossFunction]] = {
    ContrastiveConfig: _contrastive,
    DistillationConfig: _distillation,
    MarginMseConfig: _margin_mse,
    XtrConfig: _xtr,
    M3LossConfig: _m3,
}


def _scores(kind: str, queries: Encoded, documents: Encoded, reduce: Any) -> Tensor:
    if kind == "multi":
        return maxsim_scores(queries, documents, reduce=reduce)
    return (dense_scores if kind == "dense" else sparse_scores)(queries, documents)


def _teacher(targets: BatchTargets) -> Tensor:
    if targets.teacher is None:
        raise InputError(
            "this loss learns from a teacher's scores, and the data has none; set mining.teacher, or use data with "
            "scores"
        )
    return targets.teacher


def _check(kind: str, scale: float) -> None:
    if kind not in KINDS:
        raise ConfigError(f"kind is {kind!r}; choose one of {', '.join(KINDS)}")
    if scale <= 0:
        raise ConfigError(f"temperature or scale is {scale}; it must be above 0")
