"""Modes that fuse several kinds: `hybrid`, and BGE-M3's `m3-dense-sparse` and `m3-all`.

Weights are those that the caller sets, else those fitted on the index (`Index.tune_fusion`), else the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeGuard

from plait.errors import ConfigError
from plait.search.bm25 import Bm25, Bm25Rescorer
from plait.search.dense import DenseRescorer, ExactDense, ProbedDense
from plait.search.fusion import DEFAULT_BOUNDS, BoundedSum, Bounds, Fusion, ReciprocalRank, WeightedSum
from plait.search.modes import Mode, PlanContext, register
from plait.search.multivector.passages import ExactMulti, MultiRescorer
from plait.search.multivector.plait import ProbedMulti
from plait.search.multivector.probe import DEFAULT_PROBE_PARAMS, resolve_probe
from plait.search.params import check_choice, check_counts, check_types
from plait.search.plan import DEFAULT_DEPTH, Plan
from plait.search.retriever import MAX, PASSAGES, TOP3, Rescorer, Retriever
from plait.search.sparse import Sparse, SparseRescorer
from plait.storage.saved_settings import FittedWeights

KINDS = ("dense", "sparse", "multi", "bm25")
FUSIONS = ("bounds", "min-max", "z", "raw", "rank")
DEFAULT_FUSION = "bounds"
# Chosen on development sets: see docs/measurements/scores.md.
DEFAULT_WEIGHTS: Mapping[str, float] = MappingProxyType({"dense": 1.0, "sparse": 0.5, "multi": 1.0, "bm25": 0.7})
# A list that is fused needs fewer cells than dense search on its own, and only the head of the multi-vector list must
# be as reliable as that of multi-vector search on its own: the other lists make up for the rest.
LIST_SHARE_OF_CELLS = 1 / 3
MULTI_HEAD = 10

# BGE-M3's: MIRACL and MKQA are general; MLDR and NarrativeQA have long documents.
PRESETS: Mapping[str, Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "m3-all": {
            "general": {"dense": 1.0, "sparse": 0.3, "multi": 1.0},
            "long": {"dense": 0.15, "sparse": 0.5, "multi": 0.35},
        },
        "m3-dense-sparse": {
            "general": {"dense": 1.0, "sparse": 0.3},
            "long": {"dense": 0.2, "sparse": 0.8},
        },
    }
)


def _check_weights(params: HybridParams | BgeM3Params) -> None:
    for kind in KINDS:
        weight = getattr(params, kind, None)
        if weight is not None and weight < 0:
            raise ConfigError(f"the weight of {kind} is {weight}; it cannot be negative, and 0 leaves it out")
    check_counts(params, "depth")


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridParams:
    """Parameters of mode `hybrid`. A weight of None: as fitted on the index, or the default; 0 leaves a kind out."""

    fusion: str | None = None  # one of FUSIONS; None: as fitted, or "bounds"
    dense: float | None = None  # weight; by default 1
    sparse: float | None = None  # weight; by default 0.5
    multi: float | None = None  # weight; by default 1
    bm25: float | None = None  # weight; by default 0.7
    depth: int = 75  # documents of each list; k, if that is more
    rescore: bool = True  # whether every kind scores what any list found
    search_multi: bool = False  # whether multi vectors are searched too; otherwise they score what the others found
    smoothing: float = 0.2  # the share of a document's score that comes from the most similar documents found
    passages: str = MAX  # how passages make the score of their document: "max" or "top3"

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 <= self.smoothing < 1:
            raise ConfigError(f"smoothing is {self.smoothing}; it is a share, from 0 (none) to below 1")
        if self.fusion is not None and self.fusion not in FUSIONS:
            raise ConfigError(f"there is no fusion {self.fusion!r}; choose one of {', '.join(FUSIONS)}")
        check_choice("passages", self.passages, PASSAGES)
        _check_weights(self)

    @property
    def rescores(self) -> bool:
        """Ranks, unlike scores, are only known within a list."""
        return self.rescore and self.fusion != "rank"

    def includes(self, kind: str, fitted: FittedWeights | None) -> bool:
        """Whether the caller set a weight for the kind, or its fitted weight is positive."""
        if getattr(self, kind) is not None:
            return True
        return self._applies(fitted) and fitted.weights.get(kind, 0) > 0

    def resolve_fusion(self, fitted: FittedWeights | None, bounds: Mapping[str, Bounds] = DEFAULT_BOUNDS) -> Fusion:
        """The caller's fusion and weights, else the fitted ones, else the defaults. Weights that were fitted for
        another fusion mean nothing. `bounds` are those of the index, by kind."""
        kind = self.fusion or (DEFAULT_FUSION if fitted is None else fitted.fusion)
        base: Mapping[str, float] = {} if kind == "rank" else DEFAULT_WEIGHTS
        if self._applies(fitted):
            base = fitted.weights
        caller = {name: getattr(self, name) for name in KINDS}
        weights = {**base, **{name: weight for name, weight in caller.items() if weight is not None}}
        return make_fusion(kind, weights, bounds)

    def _applies(self, fitted: FittedWeights | None) -> TypeGuard[FittedWeights]:
        return fitted is not None and self.fusion in (None, fitted.fusion)


def make_fusion(kind: str, weights: Mapping[str, float], bounds: Mapping[str, Bounds] = DEFAULT_BOUNDS) -> Fusion:
    """The fusion of a name in FUSIONS."""
    if kind == "bounds":
        return BoundedSum(weights=weights, bounds=bounds)
    return ReciprocalRank(weights=weights) if kind == "rank" else WeightedSum(weights=weights, scale=kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class BgeM3Params:
    """Parameters of `m3-dense-sparse` and `m3-all`: raw scores, with weights by preset or one by one."""

    preset: str = "general"  # weights by name: "general" or "long"
    dense: float | None = None  # weight; None: that of the preset
    sparse: float | None = None  # the same
    multi: float | None = None  # the same
    depth: int | None = None  # documents of each list; None: 1000 in m3-dense-sparse, 200 in m3-all
    rescore: bool | None = None  # whether every kind scores what any list found; None: only in m3-all

    def __post_init__(self) -> None:
        check_types(self)
        if self.preset not in PRESETS["m3-all"]:
            raise ConfigError(f"there is no preset {self.preset!r}; choose one of {', '.join(PRESETS['m3-all'])}")
        _check_weights(self)

    def weights(self, mode: str) -> dict[str, float]:
        weights = dict(PRESETS[mode][self.preset])
        weights.update({name: caller for name in weights if (caller := getattr(self, name)) is not None})
        return weights


def build_hybrid(context: PlanContext, params: HybridParams) -> Plan:
    """Fuses every kind that has a weight.

    The search of multi vectors costs most, and results are as good if they only score what the others found. They are
    searched if the caller wants it, if there are no dense vectors, and if lists are not rescored.
    """
    excluded, fitted = context.exclude_from_hybrid, context.fitted
    kinds = [kind for kind in context.kinds if kind not in excluded or params.includes(kind, fitted)]
    if params.passages == TOP3 and not params.rescores:
        raise ConfigError("passages=top3 needs the scores of all passages; leave out rescore=0 and fusion=rank")
    weighted = [kind for kind in kinds if getattr(params, kind) != 0]
    if not weighted:
        raise ConfigError(f"the weights of {', '.join(kinds)} are all 0; leave out one of them")
    fusion = params.resolve_fusion(fitted, context.bounds)
    if len(weighted) == 1:
        k = context.k or DEFAULT_DEPTH
        scaled = isinstance(fusion, BoundedSum)
        return Plan((_retriever(weighted[0], context, k),), k, fusion, k, scale_alone=scaled, lift_names=scaled)
    k = context.k or params.depth
    rescored = weighted if params.rescores else []
    multi_rescores_only = bool(rescored) and not params.search_multi and not context.exact and "dense" in weighted
    retrieved = [kind for kind in weighted if kind != "multi" or not multi_rescores_only]
    depth = max(k, params.depth)
    return Plan(
        tuple(_list_retriever(kind, context, depth, params) for kind in retrieved),
        k,
        fusion,
        params.depth,
        _rescorers(rescored, context),
        params.smoothing if "dense" in rescored else 0.0,
        params.passages,
        lift_names=True,
    )


def _retriever(kind: str, context: PlanContext, k: int, list_depth: int | None = None) -> Retriever:
    if kind == "bm25":
        return Bm25()
    if kind == "sparse":
        return Sparse()
    if kind == "dense":
        return ExactDense() if context.exact else ProbedDense()
    if context.exact:
        return ExactMulti(n_threads=context.n_threads)
    probe = resolve_probe(
        DEFAULT_PROBE_PARAMS, n_passages=context.n_passages, k=k, tuned=context.tuned, list_depth=list_depth
    )
    return ProbedMulti(probe, n_threads=context.n_threads)


def _list_retriever(kind: str, context: PlanContext, depth: int, params: HybridParams) -> Retriever:
    """The retriever of one of several lists."""
    retriever = _retriever(kind, context, min(depth, MULTI_HEAD), depth)
    if params.rescores and isinstance(retriever, ProbedDense):
        return replace(retriever, share_of_cells=LIST_SHARE_OF_CELLS)
    return retriever


def _rescorers(kinds: Sequence[str], context: PlanContext) -> tuple[Rescorer, ...]:
    made: dict[str, Rescorer] = {
        "bm25": Bm25Rescorer(),
        "dense": DenseRescorer(),
        "sparse": SparseRescorer(),
        "multi": MultiRescorer(n_threads=context.n_threads),
    }
    return tuple(made[kind] for kind in kinds)


def _build_m3(
    mode: str, context: PlanContext, params: BgeM3Params, retrieved: Sequence[str], depth: int, rescore: bool
) -> Plan:
    weights = params.weights(mode)
    depth = params.depth if params.depth is not None else depth
    rescore = params.rescore if params.rescore is not None else rescore
    k = context.k or depth
    retrievers = tuple(_retriever(kind, context, k) for kind in retrieved)
    rescorers = _rescorers(tuple(weights) if rescore else (), context)
    return Plan(retrievers, k, WeightedSum(weights=weights), depth, rescorers)


def _build_m3_dense_sparse(context: PlanContext, params: BgeM3Params) -> Plan:
    return _build_m3("m3-dense-sparse", context, params, ("dense", "sparse"), depth=1000, rescore=False)


def _build_m3_all(context: PlanContext, params: BgeM3Params) -> Plan:
    return _build_m3("m3-all", context, params, ("dense",), depth=200, rescore=True)


register(
    Mode(
        name="hybrid",
        summary="every kind of the index and BM25, fused; each scores what any of them found",
        params=HybridParams,
        exact=True,
        build=build_hybrid,
    )
)
register(
    Mode(
        name="m3-dense-sparse",
        summary="the lists of dense and sparse, by a weighted sum (BGE-M3)",
        needs=("dense", "sparse"),
        params=BgeM3Params,
        build=_build_m3_dense_sparse,
    )
)
register(
    Mode(
        name="m3-all",
        summary="the list of dense, by a weighted sum of dense, sparse and multi (BGE-M3)",
        needs=("dense", "sparse", "multi"),
        params=BgeM3Params,
        build=_build_m3_all,
    )
)
