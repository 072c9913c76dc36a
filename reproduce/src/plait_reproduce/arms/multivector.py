"""Arms that search multi vectors: exactly, over codes, by the papers' methods, timed in turn, and with a fixed number
of vectors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.codec.packing import row_bytes
from plait.codec.pooling import Pooling, pool
from plait.embeddings import MultiVectors
from plait.scoring.maxsim import maxsim
from plait.search.modes import find_mode
from plait.search.multivector.colxtr import ColXtr
from plait.search.multivector.exhaustive import Exhaustive
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.method import Method
from plait.search.multivector.plaid import Plaid
from plait.search.multivector.query import MultiVectorQuery
from plait.search.multivector.warp import Warp
from plait.search.multivector.xtr import Xtr
from plait.search.trace import Trace
from plait_reproduce.arms.codecs import Coded, binarised, coded_rows, decoded_as_in_paper
from plait_reproduce.encoded_set import DEPTH, EncodedSet, Ranked, measured, measured_scores, shared
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

METHODS: dict[str, Any] = {"exhaustive": Exhaustive, "plaid": Plaid, "xtr": Xtr, "colxtr": ColXtr, "warp": Warp}


def make_method(name: str, options: dict[str, Any]) -> Method:
    """A method with these parameters, those of the mode of the same name."""
    made: Method = METHODS[name](find_mode(name).params(**options))
    return made


def exact(workbench: Workbench, settings: Settings) -> Outcome:
    """Exact MaxSim of every document. Settings: set."""
    encoded = workbench.encoded(settings["set"])
    rows = encoded.document_rows
    return Outcome(
        measured_scores(encoded, workbench.maxsim(encoded)),
        {"bytes": len(rows.values) * rows.dim * 2, "rows": len(rows.values), "items": len(rows)},
    )


def by_paper_codec(workbench: Workbench, settings: Settings) -> Outcome:
    """MaxSim of every document under ColBERTv2's codec (`bits` 1, 2, 4) or only signs (`bits` 0)."""
    encoded = workbench.encoded(settings["set"])
    floats, bits = np.asarray(encoded.document_rows.values, np.float32), settings["bits"]
    if bits:
        coded = coded_rows(workbench, encoded.document_rows, encoded.key, bits=2)
        assert coded.items.rows.cells is not None
        centroids = coded.items.codec.codebook.floats()
        values = decoded_as_in_paper(floats, centroids, coded.items.rows.cells, bits)
    else:
        values = binarised(floats)
    rows = MultiVectors(values, encoded.document_rows.offsets)
    scores = _maxsim(encoded, rows, workbench.n_threads or 1)
    error = float(np.square(values - floats).sum(axis=1).mean())
    return Outcome(measured_scores(encoded, scores), {"error": error})


def by_method(workbench: Workbench, settings: Settings) -> Outcome:
    """A method on codes. Settings: set, bits, method, k, `options` of the method. Each query also has its share of the
    exhaustive top ten (`overlap@10`); facts are counts per query."""
    encoded = workbench.encoded(settings["set"])
    coded = coded_rows(workbench, encoded.document_rows, encoded.key, bits=settings["bits"])
    method = make_method(settings["method"], settings.get("options", {}))
    rankings, counts = searched(encoded, coded, method, settings.get("k", DEPTH))
    each = measured(encoded, encoded.run_of_found(rankings))
    each["overlap@10"] = shared(encoded, rankings, workbench.maxsim(encoded), 10)
    return Outcome(each, {**counts, "bytes": coded.n_bytes, "cells": len(coded.items.codec.codebook)})


def searched(encoded: EncodedSet, coded: Coded, method: Method, k: int) -> tuple[list[Ranked], dict[str, float]]:
    """The hits of the method for each query, and its counts per query ("stage: count")."""
    chosen = ItemFilter(coded.items)
    rankings: list[Ranked] = []
    counts: Counter[str] = Counter()
    for query in range(len(encoded.query_ids)):
        trace = Trace()
        result = method.search(MultiVectorQuery(encoded.query_rows(query), coded.items, trace), k, chosen)
        rankings.append((result.items, result.scores))
        for stage in trace.stages:
            for name, count in stage.counts.items():
                counts[f"{stage.name}: {name}"] += count
    n_queries = len(encoded.query_ids)
    return rankings, {name: count / n_queries for name, count in counts.items()}


def _maxsim(encoded: EncodedSet, rows: MultiVectors, n_threads: int) -> NDArray[np.float32]:
    queries = range(len(encoded.query_ids))
    return np.stack([maxsim(encoded.query_rows(query), rows, n_threads=n_threads) for query in queries])


ROUNDS = 3
N_QUERIES = 100


def methods_in_turn(workbench: Workbench, settings: Settings) -> Outcome:
    """Settings: set, and `methods`: name -> bits, method, k, options. Gives `name/seconds` for each query."""
    encoded = workbench.encoded(settings["set"])
    tasks = {}
    for name, options in settings["methods"].items():
        coded = coded_rows(workbench, encoded.document_rows, encoded.key, bits=options["bits"])
        method = make_method(options["method"], options.get("options", {}))
        tasks[name] = partial(_search, encoded, coded, ItemFilter(coded.items), method, options.get("k", 100))
    return Outcome(in_turn(tasks, encoded.query_ids[:N_QUERIES]))


def in_turn(
    tasks: Mapping[str, Callable[[int], object]], queries: list[str], *, n_rounds: int = ROUNDS
) -> dict[str, dict[str, float]]:
    """Times every task on every query in turn, so other load affects all tasks; CPU time of this thread, the least of
    the rounds, as `task/seconds` by query."""
    least = {name: np.full(len(queries), np.inf) for name in tasks}
    for task in tasks.values():  # warm-up: lazily built structures are not timed
        task(0)
    for _ in range(n_rounds):
        for number in range(len(queries)):
            for name, task in tasks.items():
                began = time.thread_time()
                task(number)
                least[name][number] = min(least[name][number], time.thread_time() - began)
    return {f"{name}/seconds": dict(zip(queries, times.tolist(), strict=True)) for name, times in least.items()}


def _search(encoded: EncodedSet, coded: Coded, chosen: ItemFilter, method: Method, k: int, number: int) -> object:
    return method.search(MultiVectorQuery(encoded.query_rows(number), coded.items), k, chosen)


CODE_BYTES = 4  # per row besides its codes: cell, length and factor
RERANKED = 100


def pooled(workbench: Workbench, encoded: EncodedSet, fixed: int | None) -> tuple[MultiVectors, str]:
    """The set's rows pooled to `fixed` for every document, or unchanged; and a key."""
    if fixed is None:
        return encoded.document_rows, encoded.key

    def make() -> dict[str, NDArray[np.float16]]:
        return {"values": pool(encoded.document_rows, Pooling(fixed=fixed)).values.astype(np.float16)}

    saved = workbench.arrays.get("pooled", {"set": encoded.key, "fixed": fixed}, make)["values"]
    offsets = np.arange(len(encoded.document_rows) + 1, dtype=np.int64) * fixed
    return MultiVectors(saved, offsets), f"{encoded.key}/fixed {fixed}"


def sizes(workbench: Workbench, settings: Settings) -> Outcome:
    """Bytes of the 2-bit codes of the documents, or of the queries (`side`), for each number of vectors."""
    encoded = workbench.encoded(settings["set"])
    rows = encoded.document_rows if settings["side"] == "documents" else encoded.queries.multi
    assert rows is not None
    per_row = row_bytes(rows.dim, 2) + CODE_BYTES
    facts = {"mean vectors": len(rows.values) / len(rows), "ragged": per_row * len(rows.values) + rows.offsets.nbytes}
    facts.update({f"fixed {n}": float(per_row * n * len(rows)) for n in settings["fixed"]})
    return Outcome(facts=facts)


def by_search(workbench: Workbench, settings: Settings) -> Outcome:
    """Settings: set, fixed (None: unpooled), method (None: exact MaxSim), options."""
    encoded = workbench.encoded(settings["set"])
    rows, key = pooled(workbench, encoded, settings["fixed"])
    if settings["method"] is None:
        queries = range(len(encoded.query_ids))
        return Outcome(
            measured_scores(encoded, np.stack([maxsim(encoded.query_rows(query), rows) for query in queries]))
        )
    coded = coded_rows(workbench, rows, key, bits=settings["bits"])
    method = make_method(settings["method"], settings.get("options", {}))
    rankings, counts = searched(encoded, coded, method, settings.get("k", DEPTH))
    return Outcome(measured(encoded, encoded.run_of_found(rankings)), {**counts, "bytes": coded.n_bytes})


def reranked(workbench: Workbench, settings: Settings) -> Outcome:
    """BM25's best hundred (`bm25/...`), reranked by MaxSim over ragged and over fixed rows; `seconds` are those of
    reranking, in turn. Settings: set, fixed."""
    encoded = workbench.encoded(settings["set"])
    first = workbench.bm25(settings["set"])
    numbers = {id: number for number, id in enumerate(encoded.document_ids)}
    candidates = [
        np.sort(np.array([numbers[id] for id, _ in first[query][:RERANKED]], np.int64)) for query in encoded.query_ids
    ]
    each = {f"bm25/{name}": values for name, values in measured(encoded, first).items()}
    tasks = {}
    for name, fixed in (("ragged", None), ("fixed", settings["fixed"])):
        rows, _ = pooled(workbench, encoded, fixed)

        def task(number: int, rows: MultiVectors = rows) -> NDArray[np.float32]:
            return maxsim(encoded.query_rows(number), rows, items=candidates[number])

        scores = [task(number) for number in range(len(candidates))]
        orders = [np.argsort(-row, kind="stable") for row in scores]
        rankings = [
            (documents[order], score[order]) for documents, score, order in zip(candidates, scores, orders, strict=True)
        ]
        each.update(
            {f"{name}/{measure}": value for measure, value in measured(encoded, encoded.run_of_found(rankings)).items()}
        )
        tasks[name] = task
    return Outcome({**each, **in_turn(tasks, encoded.query_ids[:N_QUERIES])})
