"""The search modes anncur, adacur and axn: their parameters, and the plans made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from plait.cur.adacur import AdaptiveCurConfig
from plait.cur.algebra import DEFAULT_RCOND
from plait.cur.index import StoredCur, open_cur, require_cur
from plait.cur.retriever import CurRetriever, ItemTable, QuantizedCurIndex
from plait.errors import ConfigError
from plait.locks import ForkSafeLock
from plait.rerank.cross_encoder import PairScorer, shared_cross, trusted_cross
from plait.search.bm25 import Bm25
from plait.search.dense import ExactDense, document_vectors
from plait.search.filtering import live_documents
from plait.search.modes import Mode, PlanContext, register
from plait.search.params import check_types
from plait.search.plan import DEFAULT_DEPTH, Plan
from plait.search.retriever import Retriever
from plait.storage.store import Snapshot

DEFAULT_BUDGET = 200
STARTS = ("dense", "bm25", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnncurParams:
    """Parameters of mode anncur."""

    budget: int = DEFAULT_BUDGET  # cross-encoder calls for each query
    model: PairScorer | str | None = None  # None: that of the CUR index, else the bundled one

    def __post_init__(self) -> None:
        check_types(self)
        _check_budget(self.budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdacurParams:
    """Parameters of mode adacur."""

    budget: int = DEFAULT_BUDGET  # cross-encoder calls for each query
    model: PairScorer | str | None = None  # None: that of the CUR index, else the bundled one
    n_rounds: int = 5  # the budget is split evenly among the rounds
    rcond: float | None = None  # None: the one that dev queries chose when the CUR index was built
    ridge: float = 0.0  # regularisation of the least-squares fit
    seed: int = 0  # of random choices
    start: str = ""  # the retriever of the first round; "" is dense, or bm25 in an index without dense vectors

    def __post_init__(self) -> None:
        check_types(self)
        _check_budget(self.budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class AxnParams:
    """Parameters of mode axn."""

    budget: int = DEFAULT_BUDGET  # cross-encoder calls for each query
    model: PairScorer | str | None = None  # None: that of the CUR index, else the bundled one
    n_rounds: int = 5  # the budget is split evenly among the rounds
    rcond: float = DEFAULT_RCOND  # smaller singular values, relative to the largest, are dropped
    ridge: float = 0.0  # regularisation of the least-squares fit
    mix: float = 0.0  # the share of the query's dense vector in the fitted one
    seed: int = 0  # of random choices
    start: str = ""  # the retriever of the first round; "" is dense

    def __post_init__(self) -> None:
        check_types(self)
        _check_budget(self.budget)


def _check_budget(budget: int) -> None:
    if budget < 1:
        raise ConfigError(f"the budget is {budget} calls of the cross-encoder; it must be at least 1")


def _plan(retriever: CurRetriever, context: PlanContext) -> Plan:
    return Plan((retriever,), context.k or DEFAULT_DEPTH)


def _build_anncur(context: PlanContext, params: AnncurParams) -> Plan:
    scorer, stored = _load_scorer("anncur", context, params.model), _require_cur(context)
    n_anchors = len(stored.manifest.anchor_docs)
    if params.budget <= n_anchors:
        raise ConfigError(
            f"the budget is {params.budget} calls, and the search scores {n_anchors} anchors first; give a budget "
            f"above {n_anchors}, or build the CUR index with fewer anchors"
        )
    table = _cached_table("anncur", context, stored.number, lambda snapshot: _anncur_table(snapshot, stored))
    config = AdaptiveCurConfig()
    return _plan(CurRetriever("anncur", scorer, table, params.budget, config, version=stored.number), context)


def _build_adacur(context: PlanContext, params: AdacurParams) -> Plan:
    stored = _require_cur(context)
    config = AdaptiveCurConfig(
        n_rounds=params.n_rounds,
        rcond=stored.manifest.rcond if params.rcond is None else params.rcond,
        ridge=params.ridge,
        seed=params.seed,
    )
    scorer, start = _load_scorer("adacur", context, params.model), _start_retriever(context, params.start)
    table = _cached_table("adacur", context, stored.number, lambda snapshot: _adacur_table(snapshot, stored))
    return _plan(CurRetriever("adacur", scorer, table, params.budget, config, start, stored.number), context)


def _build_axn(context: PlanContext, params: AxnParams) -> Plan:
    config = AdaptiveCurConfig(
        n_rounds=params.n_rounds, rcond=params.rcond, ridge=params.ridge, mix=params.mix, seed=params.seed
    )
    scorer, start = _load_scorer("axn", context, params.model), _start_retriever(context, params.start)
    table = _cached_table("axn", context, 0, _axn_table)
    return _plan(CurRetriever("axn", scorer, table, params.budget, config, start, uses_dense_query=True), context)


def _path(context: PlanContext) -> Path:
    assert context.path is not None
    return context.path


def _open_cur(context: PlanContext) -> StoredCur | None:
    cached: _CachedCur = context.cache.get("cur", _CachedCur)
    cached.latest = stored = open_cur(_path(context), cached.latest)
    return stored


def _require_cur(context: PlanContext) -> StoredCur:
    return _open_cur(context) or require_cur(_path(context))


def _load_scorer(mode: str, context: PlanContext, model: object) -> PairScorer:
    """The cross-encoder: the one that is given or named, else that of the CUR index, else the default one."""
    stored, cache = _open_cur(context), context.cache
    scored = None if stored is None else stored.manifest.scores
    if isinstance(model, str) or model is None:
        if model is None and scored is not None:
            model = trusted_cross(_path(context), scored.model)
        if model is None and scored is None and mode != "axn":
            require_cur(_path(context))  # raises an error that says how to build a CUR index
        name = model
        model = cache.get(f"model {name}", lambda: shared_cross(name, n_threads=context.n_threads))
    scorer = cast("PairScorer", model)
    if mode != "axn" and scored is not None and scored.scorer != scorer.fingerprint:
        raise ConfigError(
            f"the CUR index of {context.path} was built with {scored.scorer!r}, the model is {scorer.fingerprint!r}: "
            f"their scores cannot be compared. Search with the first, or build again"
        )
    return scorer


def _start_retriever(context: PlanContext, name: str) -> Retriever | None:
    has_dense = context.spec.dense is not None
    start = name or ("dense" if has_dense else "bm25")
    if start not in STARTS or (start == "dense" and not has_dense):
        raise ConfigError(f"start is {start!r}; choose one of {', '.join(STARTS if has_dense else STARTS[1:])}")
    retrievers: dict[str, Retriever | None] = {"dense": ExactDense(), "bm25": Bm25(), "random": None}
    return retrievers[start]


# -- item tables


def _cached_table(
    mode: str, context: PlanContext, number: int, make_table: Callable[[Snapshot], ItemTable]
) -> Callable[[Snapshot], ItemTable]:
    """Makes the table of a snapshot, again only after a commit or for another CUR index."""
    cached: _CachedTable = context.cache.get(f"table {mode}", _CachedTable)

    def table(snapshot: Snapshot) -> ItemTable:
        version = (snapshot.commit, number)
        with cached.lock:
            if cached.latest is None or cached.latest[0] != version:
                cached.latest = (version, make_table(snapshot))
            return cached.latest[1]

    return table


class _CachedTable:
    """The table that was made last, and what it was made from."""

    def __init__(self) -> None:
        self.lock = ForkSafeLock()
        self.latest: tuple[object, ItemTable] | None = None


class _CachedCur:
    """The CUR index that was opened last."""

    def __init__(self) -> None:
        self.latest: StoredCur | None = None


def _anncur_table(snapshot: Snapshot, stored: StoredCur) -> ItemTable:
    anchors = stored.anchor_items
    anchor_texts = dict(zip(anchors.tolist(), stored.manifest.anchor_texts, strict=True))
    is_live = np.isin(stored.docs, live_documents(snapshot))
    index = QuantizedCurIndex(anchors, stored.codes, stored.scales)
    return ItemTable(stored.docs, is_live, anchor_texts, index=index)


def _adacur_table(snapshot: Snapshot, stored: StoredCur) -> ItemTable:
    is_live = np.isin(stored.docs, live_documents(snapshot))
    return ItemTable(stored.docs, is_live, {}, vectors=stored.scores)


def _axn_table(snapshot: Snapshot) -> ItemTable:
    docs, vectors = document_vectors(snapshot)
    return ItemTable(docs, np.ones(len(docs), bool), {}, vectors=vectors)


register(
    Mode(
        name="anncur",
        summary="fixed anchors predict the scores of a cross-encoder (ANNCUR)",
        params=AnncurParams,
        asks_cross_encoder=True,
        build=_build_anncur,
    )
)
register(
    Mode(
        name="adacur",
        summary="anchors chosen for the query in rounds predict the scores of a cross-encoder (ADACUR)",
        params=AdacurParams,
        asks_cross_encoder=True,
        build=_build_adacur,
    )
)
register(
    Mode(
        name="axn",
        summary="a query vector is fitted to cross-encoder scores in rounds; needs no CUR index (AXN)",
        needs=("dense",),
        params=AxnParams,
        asks_cross_encoder=True,
        build=_build_axn,
    )
)
