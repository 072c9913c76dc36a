"""The search modes anncur, adacur and axn: their parameters, and the plans made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from plait.cur.adacur import AdaptiveCurConfig
from plait.cur.algebra import DEFAULT_RCOND
from plait.cur.index import CurFolder
from plait.cur.retriever import CurRetriever, ItemTable, QuantizedCurIndex
from plait.errors import ConfigError, NotAnIndexError
from plait.rerank.cross_encoder import PairScorer, load_cross
from plait.search.bm25 import Bm25
from plait.search.dense import ExactDense
from plait.search.live import document_vectors, live_documents
from plait.search.options import configured
from plait.search.plan import Plan
from plait.search.retriever import Generator
from plait.storage.store import Snapshot, Store

DEFAULT_BUDGET = 200
STARTS = ("dense", "bm25", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnncurParams:
    budget: int = DEFAULT_BUDGET  # cross-encoder calls for each query

    def __post_init__(self) -> None:
        _check_budget(self.budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdacurParams:
    budget: int = DEFAULT_BUDGET
    n_rounds: int = 5
    rcond: float | None = None  # None: the one that dev queries chose when the CUR index was built
    ridge: float = 0.0
    seed: int = 0
    start: str = ""  # the retriever of the first round; "" is dense, or bm25 in an index without dense vectors

    def __post_init__(self) -> None:
        _check_budget(self.budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class AxnParams:
    budget: int = DEFAULT_BUDGET
    n_rounds: int = 5
    rcond: float = DEFAULT_RCOND
    ridge: float = 0.0
    mix: float = 0.0  # the share of the query's dense vector in the fitted one
    seed: int = 0
    start: str = ""

    def __post_init__(self) -> None:
        _check_budget(self.budget)


def _check_budget(budget: int) -> None:
    if budget < 1:
        raise ConfigError(f"the budget is {budget} calls of the cross-encoder; it must be at least 1")


def cur_plan(
    mode: str,
    store: Store,
    options: Mapping[str, object],
    *,
    exact: bool,
    cache: dict[str, object],
    n_threads: int,
) -> Plan:
    """The plan of a mode. `cache` holds the loaded models and item tables of an index between searches."""
    if exact:
        raise ConfigError(f"mode {mode!r} is not an exact search; leave exact out")
    model = options.get("model")
    numbers = {name: value for name, value in options.items() if name != "model"}
    builders = {"anncur": _anncur_retriever, "adacur": _adacur_retriever, "axn": _axn_retriever}
    return Plan((builders[mode](store, numbers, lambda: _load_scorer(mode, store, model, cache, n_threads), cache),))


def _anncur_retriever(
    store: Store, options: Mapping[str, object], load_scorer: Callable[[], PairScorer], cache: dict[str, object]
) -> CurRetriever:
    if "start" in options:
        raise ConfigError("mode 'anncur' starts with its anchors; start is a setting of adacur and axn")
    params = configured(AnncurParams, options, mode="anncur")
    scorer, folder = load_scorer(), CurFolder(store.path)
    n_anchors = len(folder.manifest().anchor_docs)
    if params.budget <= n_anchors:
        raise ConfigError(
            f"the budget is {params.budget} calls, and the search scores {n_anchors} anchors first; give a budget "
            f"above {n_anchors}, or build the CUR index with fewer anchors"
        )
    table = _cached_table("anncur", store, _anncur_table, cache)
    return CurRetriever("anncur", scorer, table, params.budget, AdaptiveCurConfig(), version=folder.version())


def _adacur_retriever(
    store: Store, options: Mapping[str, object], load_scorer: Callable[[], PairScorer], cache: dict[str, object]
) -> CurRetriever:
    if "mix" in options:
        raise ConfigError("mix is a setting of axn: adacur has no dense query vector to mix in; leave it out")
    folder = CurFolder(store.path)
    chosen_rcond = folder.manifest().rcond
    params = configured(AdacurParams, options, mode="adacur")
    config = AdaptiveCurConfig(
        n_rounds=params.n_rounds,
        rcond=chosen_rcond if params.rcond is None else params.rcond,
        ridge=params.ridge,
        seed=params.seed,
    )
    scorer, start = load_scorer(), _start_retriever(store, params.start)
    table = _cached_table("adacur", store, _adacur_table, cache)
    return CurRetriever("adacur", scorer, table, params.budget, config, start, folder.version())


def _axn_retriever(
    store: Store, options: Mapping[str, object], load_scorer: Callable[[], PairScorer], cache: dict[str, object]
) -> CurRetriever:
    params = configured(AxnParams, options, mode="axn")
    config = AdaptiveCurConfig(
        n_rounds=params.n_rounds, rcond=params.rcond, ridge=params.ridge, mix=params.mix, seed=params.seed
    )
    scorer = load_scorer()
    if store.spec.dense is None:
        raise ConfigError("mode 'axn' needs dense vectors, and this index has none; use adacur or anncur")
    start = _start_retriever(store, params.start)
    table = _cached_table("axn", store, _axn_table, cache)
    return CurRetriever("axn", scorer, table, params.budget, config, start, uses_dense_query=True)


def _load_scorer(mode: str, store: Store, model: object, cache: dict[str, object], n_threads: int) -> PairScorer:
    """The cross-encoder: the one that is given or named, else that of the CUR index, else the bundled one."""
    folder = CurFolder(store.path)
    stored = folder.scores_manifest()
    if isinstance(model, str) or model is None:
        if model is None and stored is not None:
            model = stored.model or None
        if model is None and stored is None and mode != "axn":
            folder.manifest()  # raises an error that says how to build a CUR index
        key = f"model {model}"
        if key not in cache:
            cache[key] = load_cross(model, n_threads=n_threads)
        model = cache[key]
    scorer = cast("PairScorer", model)
    if mode != "axn" and stored is not None and stored.scorer != scorer.fingerprint:
        raise ConfigError(
            f"the CUR index of {store.path} was built with {stored.scorer!r}, and the model is {scorer.fingerprint!r}: "
            f"their scores cannot be compared. Search with the first, or build again"
        )
    return scorer


def _start_retriever(store: Store, name: str) -> Generator | None:
    has_dense = store.spec.dense is not None
    start = name or ("dense" if has_dense else "bm25")
    if start not in STARTS or (start == "dense" and not has_dense):
        raise ConfigError(f"start is {start!r}; choose one of {', '.join(STARTS if has_dense else STARTS[1:])}")
    retrievers: dict[str, Generator | None] = {"dense": ExactDense(), "bm25": Bm25(), "random": None}
    return retrievers[start]


# -- item tables


def _cached_table(
    mode: str, store: Store, make_table: Callable[[Snapshot], ItemTable], cache: dict[str, object]
) -> Callable[[Snapshot], ItemTable]:
    """Makes the table of a snapshot, again only after a commit or a change of the CUR index."""

    def table(snapshot: Snapshot) -> ItemTable:
        version = (snapshot.commit, CurFolder(store.path).version() if mode != "axn" else 0)
        cached: Any = cache.get(f"table {mode}")
        if cached is None or cached[0] != version:
            cached = (version, make_table(snapshot))
            cache[f"table {mode}"] = cached
        return cast("ItemTable", cached[1])

    return table


def _anncur_table(snapshot: Snapshot) -> ItemTable:
    folder = CurFolder(snapshot.path)
    manifest = folder.manifest()
    codes, scales = folder.embeddings(manifest)
    docs = folder.docs()[: manifest.n_documents]
    item_of_doc = {int(doc): item for item, doc in enumerate(docs.tolist())}
    missing = [doc for doc in manifest.anchor_docs if doc not in item_of_doc]
    if missing:
        raise NotAnIndexError(f"the CUR index of {snapshot.path} lacks its anchor {missing[0]}; build it again")
    anchors = np.array([item_of_doc[doc] for doc in manifest.anchor_docs], np.int64)
    anchor_texts = dict(zip(anchors.tolist(), manifest.anchor_texts, strict=True))
    is_live = np.isin(docs, live_documents(snapshot))
    return ItemTable(docs, is_live, anchor_texts, index=QuantizedCurIndex(anchors, codes, scales))


def _adacur_table(snapshot: Snapshot) -> ItemTable:
    folder = CurFolder(snapshot.path)
    folder.manifest()  # raises an error if there is no CUR index
    stored = folder.scores_manifest()
    assert stored is not None
    scores = folder.scores(len(stored.queries))
    docs = folder.docs()[: len(scores)]
    return ItemTable(docs, np.isin(docs, live_documents(snapshot)), {}, vectors=scores)


def _axn_table(snapshot: Snapshot) -> ItemTable:
    docs, vectors = document_vectors(snapshot)
    return ItemTable(docs, np.ones(len(docs), bool), {}, vectors=vectors)
