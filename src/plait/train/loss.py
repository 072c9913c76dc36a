"""What a recipe's section `objective` becomes: a name and its numbers to a function of encoded queries and documents.
The mathematics is in objectives/ and scores.py; this file chooses and puts together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from plait.errors import ConfigError, InputError
from plait.train.losses.contrastive import contrastive
from plait.train.losses.distillation import distillation, in_batch, own_lists
from plait.train.losses.m3 import M3Config, m3, sum_of
from plait.train.losses.margin_mse import margin_mse
from plait.train.losses.xtr import xtr_scores
from plait.train.recipe import Place, read_section, unknown_name
from plait.train.scores import dense_scores, maxsim_scores, sparse_scores, token_similarities
from plait.train.tensors import BatchFacts, Encoded, Objective

STRANDS = ("dense", "sparse", "multi")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContrastiveConfig:
    """Cross-entropy of the positive against all passages of the batch."""

    kind: str = "dense"
    temperature: float = 0.02
    reduce: str = "mean"  # of MaxSim over query rows; "sum" wants a temperature near 1

    def __post_init__(self) -> None:
        _check(self.kind, self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationConfig:
    """ColBERTv2: the teacher's distribution over each query's list, and the positive against other queries' lists."""

    kind: str = "multi"
    temperature: float = 1.0
    alpha: float = 1.0  # what teacher scores are multiplied by
    in_batch: float = 1.0  # the weight of the second term; 0 leaves it out
    reduce: str = "sum"

    def __post_init__(self) -> None:
        _check(self.kind, self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginConfig:
    """MarginMSE: the student's margins are to be the teacher's."""

    kind: str = "dense"
    scale: float = 1.0  # what student scores are multiplied by: cosines are small, logits are not
    reduce: str = "sum"

    def __post_init__(self) -> None:
        _check(self.kind, self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class XtrConfig:
    """XTR: scores from the tokens that would have been retrieved from the batch."""

    k: int = 32  # tokens that each query token retrieves
    temperature: float = 1.0
    negatives: str = "drop"  # or keep: whether a retrieved similarity below 0 counts

    def __post_init__(self) -> None:
        _check("multi", self.temperature)
        if self.k < 1:
            raise ConfigError(f"k is {self.k}; at least one token must be retrieved")
        if self.negatives not in ("drop", "keep"):
            raise ConfigError(f"negatives is {self.negatives!r}; it must be 'drop' or 'keep'")


@dataclass(frozen=True, slots=True, kw_only=True)
class M3Numbers:
    """M3: every strand learns from the labels and from the sum of all; strands in the order dense, sparse, multi."""

    temperature: float = 0.02
    in_teacher: tuple[float, ...] = (1.0, 0.3, 1.0)
    in_loss: tuple[float, ...] = (1.0, 0.1, 1.0)
    start_step: int = 0
    lists: float = 0.0  # the weight of a teacher's scores over each query's list, beside the above; 0 leaves them out
    alpha: float = 1.0  # what teacher scores are multiplied by

    def __post_init__(self) -> None:
        _check("dense", self.temperature)
        if self.lists < 0:
            raise ConfigError(f"lists is {self.lists}; it must be 0 or more")
        for name in ("in_teacher", "in_loss"):
            if len(getattr(self, name)) != len(STRANDS):
                raise ConfigError(f"{name} has {len(getattr(self, name))} weights; it needs one for each of {STRANDS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetroMaeConfig:
    """RetroMAE: pre-training on bare texts."""

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
    "margin-mse": MarginConfig,
    "xtr": XtrConfig,
    "m3": M3Numbers,
    "retromae": RetroMaeConfig,
}


def read_objective(values: Mapping[str, Any], place: Place) -> Any:
    """The config of the objective that a recipe names."""
    name = values.get("name")
    if name not in CONFIGS:
        if name is None:
            raise ConfigError(f"{place.of('')}: there is no 'name'; choose one of {', '.join(CONFIGS)}")
        raise unknown_name("objective", str(name), CONFIGS, place)
    return read_section(CONFIGS[name], {key: value for key, value in values.items() if key != "name"}, place)


def make_objective(config: Any) -> Objective:
    """The function of a config."""
    return _MAKERS[type(config)](config)


def _contrastive(config: ContrastiveConfig) -> Objective:
    def objective(queries: Encoded, documents: Encoded, facts: BatchFacts) -> Summed:
        scores = _scores(config.kind, queries, documents, config.reduce)
        return Summed(contrastive(scores, facts.positive, temperature=config.temperature, excluded=~facts.allowed))

    return objective


def _distillation(config: DistillationConfig) -> Objective:
    def objective(queries: Encoded, documents: Encoded, facts: BatchFacts) -> Summed:
        scores = _scores(config.kind, queries, documents, config.reduce)
        learned = distillation(
            own_lists(scores),
            _teacher(facts),
            temperature=config.temperature,
            alpha=config.alpha,
            known=own_lists(facts.allowed),
        )
        if config.in_batch == 0:
            return Summed(learned)
        told_apart = in_batch(scores, excluded=~facts.allowed, temperature=config.temperature)
        parts = {"teacher": float(learned.detach()), "in batch": float(told_apart.detach())}
        return Summed(learned + config.in_batch * told_apart, parts)

    return objective


def _margin(config: MarginConfig) -> Objective:
    def objective(queries: Encoded, documents: Encoded, facts: BatchFacts) -> Summed:
        scores = own_lists(_scores(config.kind, queries, documents, config.reduce)) * config.scale
        return Summed(margin_mse(scores, _teacher(facts), known=own_lists(facts.allowed)))

    return objective


def _xtr(config: XtrConfig) -> Objective:
    def objective(queries: Encoded, documents: Encoded, facts: BatchFacts) -> Summed:
        similar = token_similarities(queries, documents)
        assert queries.multi_mask is not None
        assert documents.multi_mask is not None
        negatives: Any = config.negatives
        scores = xtr_scores(similar, queries.multi_mask, documents.multi_mask, k=config.k, negatives=negatives)
        return Summed(contrastive(scores, facts.positive, temperature=config.temperature, excluded=~facts.allowed))

    return objective


def _m3(config: M3Numbers) -> Objective:
    weights = M3Config(
        temperature=config.temperature,
        in_teacher=dict(zip(STRANDS, config.in_teacher, strict=True)),
        in_loss=dict(zip(STRANDS, config.in_loss, strict=True)),
        start_step=config.start_step,
    )

    def objective(queries: Encoded, documents: Encoded, facts: BatchFacts) -> Summed:
        there = [name for name in STRANDS if getattr(queries, name) is not None]
        scores = {name: _scores(name, queries, documents, "mean") for name in there}
        # Counted from 1, as M3 counts: with start_step 0 the first step distils already.
        total, parts = m3(scores, facts.positive, weights, step=facts.step + 1, excluded=~facts.allowed)
        if config.lists:
            parts |= _from_lists(scores, facts, config)
            told = {name: parts[f"{name} from lists"] for name in scores}
            total = total + config.lists * sum_of(weights.in_loss, told, told) / len(told)
        return Summed(total, {name: float(part.detach()) for name, part in parts.items()})

    return objective


def _from_lists(scores: Mapping[str, Tensor], facts: BatchFacts, config: M3Numbers) -> dict[str, Tensor]:
    """What each strand has to learn from the teacher's distribution over the lists."""
    teacher, known = _teacher(facts), own_lists(facts.allowed)
    return {
        f"{name} from lists": distillation(
            own_lists(found), teacher, temperature=config.temperature, alpha=config.alpha, known=known
        )
        for name, found in scores.items()
    }


_MAKERS: dict[type, Callable[[Any], Objective]] = {
    ContrastiveConfig: _contrastive,
    DistillationConfig: _distillation,
    MarginConfig: _margin,
    XtrConfig: _xtr,
    M3Numbers: _m3,
}


def _scores(kind: str, queries: Encoded, documents: Encoded, reduce: Any) -> Tensor:
    if kind == "multi":
        return maxsim_scores(queries, documents, reduce=reduce)
    return (dense_scores if kind == "dense" else sparse_scores)(queries, documents)


def _teacher(facts: BatchFacts) -> Tensor:
    if facts.teacher is None:
        raise InputError(
            "this objective learns from a teacher's scores, and the data has none; name a teacher in the section "
            "mining, or use data with scores"
        )
    return facts.teacher


def _check(kind: str, scale: float) -> None:
    if kind not in STRANDS:
        raise ConfigError(f"kind is {kind!r}; choose one of {', '.join(STRANDS)}")
    if scale <= 0:
        raise ConfigError(f"temperature or scale is {scale}; it must be above 0")
