"""Weights of strands: the paper's, by name; the caller's, by strand; those that were fitted on an index; and defaults.

The settings of the modes that weave strands (hybrid, dense+sparse, all) become a fusion here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeGuard

from plait.errors import ConfigError
from plait.search.fusion import Fusion, ReciprocalRank, WeightedSum
from plait.search.options import configured
from plait.storage.fusion_weights import FittedWeights

STRANDS = ("dense", "sparse", "multi", "bm25")
FUSIONS = ("min-max", "z", "raw", "rank")
DEFAULT_FUSION = "min-max"
# Measured on five sets: docs/plans.md.
DEFAULT_WEIGHTS: Mapping[str, float] = MappingProxyType({"dense": 1.0, "sparse": 0.5, "multi": 1.0, "bm25": 0.6})

# BGE-M3's: MIRACL and MKQA are general; MLDR and NarrativeQA have long documents.
PRESETS: Mapping[str, Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "all": {
            "general": {"dense": 1.0, "sparse": 0.3, "multi": 1.0},
            "long": {"dense": 0.15, "sparse": 0.5, "multi": 0.35},
        },
        "dense+sparse": {
            "general": {"dense": 1.0, "sparse": 0.3},
            "long": {"dense": 0.2, "sparse": 0.8},
        },
    }
)


def _check_weights(config: HybridConfig | BgeM3Params) -> None:
    for kind in STRANDS:
        weight = getattr(config, kind, None)
        if weight is not None and weight < 0:
            raise ConfigError(f"the weight of {kind} is {weight}; it cannot be negative, and 0 leaves it out")
    if config.depth < 1:
        raise ConfigError(f"depth is {config.depth}; at least one document must be looked at")
    if config.rescore not in (0, 1):
        raise ConfigError(f"rescore is {config.rescore}; it must be 0 or 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridConfig:
    """Weights that are None are those that were fitted on the index, or else the defaults."""

    fusion: str | None = None  # one of FUSIONS
    dense: float | None = None
    sparse: float | None = None
    multi: float | None = None
    bm25: float | None = None
    depth: int = 75  # documents that each list gives
    rescore: int = 1  # whether what one list gives is scored by all others
    multi_finds: int = 0  # whether multi looks for documents as well, or scores what the others found
    neighbours: float = 0.2  # the share of a document's score that its nearest among those found give

    def __post_init__(self) -> None:
        if not 0 <= self.neighbours < 1:
            raise ConfigError(f"neighbours is {self.neighbours}; it is a share, from 0 (none) to below 1")
        if self.fusion is not None and self.fusion not in FUSIONS:
            raise ConfigError(f"there is no fusion {self.fusion!r}; choose one of {', '.join(FUSIONS)}")
        if self.multi_finds not in (0, 1):
            raise ConfigError(f"multi_finds is {self.multi_finds}; it must be 0 or 1")
        _check_weights(self)

    @property
    def rescores(self) -> bool:
        """Whether all strands score what any of them found: ranks are those of their own lists."""
        return bool(self.rescore) and self.fusion != "rank"

    def weighs(self, kind: str, fitted: FittedWeights | None) -> bool:
        """Whether anybody gave the strand a weight: who asks, or a fit that found it to be worth something."""
        if getattr(self, kind) is not None:
            return True
        return self._is_for(fitted) and fitted.weights.get(kind, 0) > 0

    def _is_for(self, fitted: FittedWeights | None) -> TypeGuard[FittedWeights]:
        return fitted is not None and self.fusion in (None, fitted.fusion)

    def fusion_for(self, fitted: FittedWeights | None) -> Fusion:
        """What was asked for, else what was fitted, else the default. Weights were fitted for one fusion: with another
        they mean nothing."""
        kind = self.fusion or (DEFAULT_FUSION if fitted is None else fitted.fusion)
        base: Mapping[str, float] = {} if kind == "rank" else DEFAULT_WEIGHTS
        if self._is_for(fitted):
            base = fitted.weights
        asked = {name: getattr(self, name) for name in STRANDS}
        return fusion_of(kind, {**base, **{name: weight for name, weight in asked.items() if weight is not None}})


def fusion_of(kind: str, weights: Mapping[str, float]) -> Fusion:
    return ReciprocalRank(weights=weights) if kind == "rank" else WeightedSum(weights=weights, scale=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class BgeM3Params:
    """BGE-M3's plans: raw scores, and weights by the name of a preset or one by one."""

    preset: str = "general"
    dense: float | None = None
    sparse: float | None = None
    multi: float | None = None
    depth: int = 1000  # documents of each list that are looked at
    rescore: int = 0  # whether documents of one list are scored by the other, or count 0 there

    def __post_init__(self) -> None:
        if self.preset not in PRESETS["all"]:
            raise ConfigError(f"there is no preset {self.preset!r}; choose one of {', '.join(PRESETS['all'])}")
        _check_weights(self)

    def fusion(self, mode: str) -> WeightedSum:
        weights = dict(PRESETS[mode][self.preset])
        weights.update({name: own for name in weights if (own := getattr(self, name)) is not None})
        return WeightedSum(weights=weights)


def paper_config(mode: str, options: Mapping[str, object]) -> BgeM3Params:
    """The settings of one of the paper's modes."""
    usual = {"depth": 200, "rescore": 1} if mode == "all" else {"depth": 1000, "rescore": 0}
    return configured(BgeM3Params, {**usual, **options}, mode=mode)
