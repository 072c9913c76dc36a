"""Arms that search multi vectors: exactly, by codes, and by the papers' methods, with what each counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import MultiVectors
from plait.scoring.maxsim import maxsim
from plait.search.multivector.colxtr import ColXtr
from plait.search.multivector.exhaustive import Exhaustive
from plait.search.multivector.item_filter import Chosen
from plait.search.multivector.method import Method
from plait.search.multivector.plaid import Plaid
from plait.search.multivector.query import MultiVectorQuery
from plait.search.multivector.warp import Warp
from plait.search.multivector.xtr import Xtr
from plait.search.trace import Trace
from plait_reproduce.arms.coded import Coded, coded_rows
from plait_reproduce.arms.measuring import DEPTH, Ranked, measured, measured_scores, shared
from plait_reproduce.arms.paper_codec import binarised, decoded_as_in_paper
from plait_reproduce.encoded import EncodedSet
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

METHODS: dict[str, Any] = {"exhaustive": Exhaustive, "plaid": Plaid, "xtr": Xtr, "colxtr": ColXtr, "warp": Warp}


def exact(workbench: Workbench, settings: Settings) -> Outcome:
    """MaxSim of every document with floats. Settings: set."""
    encoded = workbench.encoded(settings["set"])
    rows = encoded.document_rows
    return Outcome(
        measured_scores(encoded, workbench.maxsim(encoded)),
        {"bytes": len(rows.values) * rows.dim * 2, "rows": len(rows.values), "items": len(rows)},
    )


def by_paper_codec(workbench: Workbench, settings: Settings) -> Outcome:
    """MaxSim of every document under ColBERTv2's own codec (`bits` 1, 2, 4), or its signs alone (`bits` 0)."""
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
    """A method on codes. Settings: set, bits, method, k, and `options` of the method. Besides the measures each query
    has the share of the exhaustive best ten (`overlap@10`); facts are counts for each query."""
    encoded = workbench.encoded(settings["set"])
    coded = coded_rows(workbench, encoded.document_rows, encoded.key, bits=settings["bits"])
    method = METHODS[settings["method"]](**settings.get("options", {}))
    found, counts = searched(encoded, coded, method, settings.get("k", DEPTH))
    each = measured(encoded, encoded.run_of_found(found))
    each["overlap@10"] = shared(encoded, found, workbench.maxsim(encoded), 10)
    return Outcome(each, {**counts, "bytes": coded.n_bytes, "cells": len(coded.items.codec.codebook)})


def searched(encoded: EncodedSet, coded: Coded, method: Method, k: int) -> tuple[list[Ranked], dict[str, float]]:
    """What the method finds for each query, and what it counts for each on average ("stage: count")."""
    chosen = Chosen(coded.items)
    found: list[Ranked] = []
    counts: Counter[str] = Counter()
    for query in range(len(encoded.query_ids)):
        trace = Trace()
        found.append(method.search(MultiVectorQuery(encoded.query_rows(query), coded.items, trace), k, chosen))
        for stage in trace.stages:
            for name, count in stage.counts.items():
                counts[f"{stage.name}: {name}"] += count
    n_queries = len(encoded.query_ids)
    return found, {name: count / n_queries for name, count in counts.items()}


def _maxsim(encoded: EncodedSet, rows: MultiVectors, n_threads: int) -> NDArray[np.float32]:
    queries = range(len(encoded.query_ids))
    return np.stack([maxsim(encoded.query_rows(query), rows, n_threads=n_threads) for query in queries])
