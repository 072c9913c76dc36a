"""The modes anncur, adacur and axn: their settings, and the plans made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np

from plait.cur.adacur import RoundsConfig
from plait.cur.algebra import DEFAULT_CUT
from plait.cur.index import CurFolder
from plait.cur.retriever import Coded, CurGenerator, ItemTable, check_budget
from plait.errors import ConfigError, NotAnIndexError
from plait.rerank.cross_encoder import PairScorer, load_cross
from plait.search.bm25 import Bm25
from plait.search.dense import ExactDense
from plait.search.live import document_vectors, live_documents
from plait.search.options import configured
from plait.search.plan import Plan
from plait.search.retriever import Generator
from plait.storage.store import Snapshot, Store

STARTS = ("dense", "bm25", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnncurSettings:
    budget: int = 200  # calls of the cross-encoder for a query


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsSettings:
    """Of adacur and axn."""

    budget: int = 200
    n_rounds: int = 5
    cut: float = DEFAULT_CUT
    ridge: float = 0.0
    mix: float = 0.0
    seed: int = 0


def cur_plan(
    mode: str,
    store: Store,
    options: Mapping[str, object],
    *,
    exact: bool,
    kept: dict[str, object],
    n_threads: int,
) -> Plan:
    """The plan of a mode. `kept` holds what is made once for an index: the model, and tables of its documents."""
    if exact:
        raise ConfigError(f"mode {mode!r} is no exact search; leave exact out")
    named = {name: options[name] for name in ("model", "start") if name in options}
    numbers = {name: value for name, value in options.items() if name not in named}
    if mode == "anncur":
        if "start" in named:
            raise ConfigError("mode 'anncur' begins with its anchors; start is a setting of adacur and axn")
        budget, rounds = configured(AnncurSettings, numbers, mode=mode).budget, RoundsConfig()
    else:
        if mode == "adacur":
            # The cut that dev queries chose for the same scores.
            numbers = {"cut": CurFolder(store.path).facts().cut, **numbers}
        settings = configured(RoundsSettings, numbers, mode=mode)
        budget = settings.budget
        own = {field.name: getattr(settings, field.name) for field in fields(settings) if field.name != "budget"}
        if mode == "adacur" and settings.mix:
            raise ConfigError("mix is a setting of axn: adacur has no dense query vector to mix in; leave it out")
        rounds = RoundsConfig(**own)
    if budget < 1:
        raise ConfigError(f"the budget is {budget} calls of the cross-encoder; it must be at least 1")
    scorer = _scorer(mode, store, named.get("model"), kept, n_threads)
    if mode == "anncur":
        check_budget(budget, len(CurFolder(store.path).facts().anchors))
    start = None if mode == "anncur" else _start(mode, store, str(named.get("start", "")))
    table = _table(mode, store, kept)
    stamp = 0 if mode == "axn" else CurFolder(store.path).stamp()
    return Plan((CurGenerator(mode, scorer, table, budget, rounds, start, stamp, dense_query=mode == "axn"),))


def _scorer(mode: str, store: Store, model: object, kept: dict[str, object], n_threads: int) -> PairScorer:
    if isinstance(model, str) or model is None:
        begun = CurFolder(store.path).begun()
        if model is None and begun is not None:
            model = begun.model or None
        if model is None and begun is None and mode != "axn":
            CurFolder(store.path).facts()  # says that there is none, and how to build it
        key = f"model {model}"
        if key not in kept:
            kept[key] = load_cross(model, n_threads=n_threads)
        model = kept[key]
    scorer = cast("PairScorer", model)
    begun = CurFolder(store.path).begun()
    if mode != "axn" and begun is not None and begun.scorer != scorer.fingerprint:
        raise ConfigError(
            f"the CUR index of {store.path} was built with {begun.scorer!r}, and the model is {scorer.fingerprint!r}: "
            f"their scores cannot be compared. Search with the first, or build anew"
        )
    return scorer


def _start(mode: str, store: Store, wanted: str) -> Generator | None:
    has_dense = store.spec.dense is not None
    if mode == "axn" and not has_dense:
        raise ConfigError("mode 'axn' fits dense vectors, and this index has no dense strand; use adacur or anncur")
    start = wanted or ("dense" if has_dense else "bm25")
    if start not in STARTS or (start == "dense" and not has_dense):
        raise ConfigError(f"start is {start!r}; choose one of {', '.join(STARTS if has_dense else STARTS[1:])}")
    starts: dict[str, Generator | None] = {"dense": ExactDense(), "bm25": Bm25(), "random": None}
    return starts[start]


def _table(mode: str, store: Store, kept: dict[str, object]) -> Callable[[Snapshot], ItemTable]:
    makers = {"anncur": _anncur_table, "adacur": _adacur_table, "axn": _axn_table}

    def table(snapshot: Snapshot) -> ItemTable:
        stamp = (snapshot.commit, CurFolder(store.path).stamp() if mode != "axn" else 0)
        found: Any = kept.get(f"table {mode}")
        if found is None or found[0] != stamp:
            found = (stamp, makers[mode](snapshot))
            kept[f"table {mode}"] = found
        return cast("ItemTable", found[1])

    return table


def _anncur_table(snapshot: Snapshot) -> ItemTable:
    folder = CurFolder(snapshot.path)
    facts = folder.facts()
    codes, scales = folder.embeddings(facts)
    docs = folder.docs()[: facts.n_documents]
    items = {int(doc): item for item, doc in enumerate(docs.tolist())}
    missing = [doc for doc in facts.anchors if doc not in items]
    if missing:
        raise NotAnIndexError(f"the CUR index of {snapshot.path} lacks its own anchor {missing[0]}; build it again")
    anchors = np.array([items[doc] for doc in facts.anchors], np.int64)
    texts = dict(zip(anchors.tolist(), facts.anchor_texts, strict=True))
    return ItemTable(docs, np.isin(docs, live_documents(snapshot)), texts, coded=Coded(anchors, codes, scales))


def _adacur_table(snapshot: Snapshot) -> ItemTable:
    folder = CurFolder(snapshot.path)
    folder.facts()
    begun = folder.begun()
    assert begun is not None
    scores = folder.scores(len(begun.queries))
    docs = folder.docs()[: len(scores)]
    return ItemTable(docs, np.isin(docs, live_documents(snapshot)), {}, vectors=scores)


def _axn_table(snapshot: Snapshot) -> ItemTable:
    docs, vectors = document_vectors(snapshot)
    return ItemTable(docs, np.ones(len(docs), bool), {}, vectors=vectors)
