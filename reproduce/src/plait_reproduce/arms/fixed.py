"""Documents of a fixed number of vectors, by pooling what the encoder gives: under exact search, under PLAID, and to
rerank BM25."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.codec.packing import row_bytes
from plait.codec.pooling import Pooling, pool
from plait.embeddings import MultiVectors
from plait.scoring.maxsim import maxsim
from plait_reproduce.arms.coded import coded_rows
from plait_reproduce.arms.measuring import DEPTH, measured, measured_scores
from plait_reproduce.arms.multi import METHODS, searched
from plait_reproduce.arms.timing import N_QUERIES, in_turn
from plait_reproduce.encoded import EncodedSet
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

CODE_BYTES = 4  # of a row beside its codes: cell, length and factor
RERANKED = 100


def pooled(workbench: Workbench, encoded: EncodedSet, fixed: int | None) -> tuple[MultiVectors, str]:
    """The set's rows with `fixed` for every document, or as they are; and a key."""
    if fixed is None:
        return encoded.document_rows, encoded.key

    def make() -> dict[str, NDArray[np.float16]]:
        return {"values": pool(encoded.document_rows, Pooling(fixed=fixed)).values.astype(np.float16)}

    kept = workbench.arrays.get("pooled", {"set": encoded.key, "fixed": fixed}, make)["values"]
    offsets = np.arange(len(encoded.document_rows) + 1, dtype=np.int64) * fixed
    return MultiVectors(kept, offsets), f"{encoded.key}/fixed {fixed}"


def sizes(workbench: Workbench, settings: Settings) -> Outcome:
    """Bytes of the 2-bit codes of a set's documents, or of its queries (`side`), at each number of vectors."""
    encoded = workbench.encoded(settings["set"])
    rows = encoded.document_rows if settings["side"] == "documents" else encoded.queries.multi
    assert rows is not None
    per_row = row_bytes(rows.dim, 2) + CODE_BYTES
    facts = {"mean vectors": len(rows.values) / len(rows), "ragged": per_row * len(rows.values) + rows.offsets.nbytes}
    facts.update({f"fixed {n}": float(per_row * n * len(rows)) for n in settings["fixed"]})
    return Outcome(facts=facts)


def by_search(workbench: Workbench, settings: Settings) -> Outcome:
    """Settings: set, fixed (None: as they are), method (None: exact MaxSim of floats), options."""
    encoded = workbench.encoded(settings["set"])
    rows, key = pooled(workbench, encoded, settings["fixed"])
    if settings["method"] is None:
        queries = range(len(encoded.query_ids))
        return Outcome(measured_scores(encoded, np.stack([maxsim(encoded.query_rows(own), rows) for own in queries])))
    coded = coded_rows(workbench, rows, key, bits=settings["bits"])
    method = METHODS[settings["method"]](**settings.get("options", {}))
    found, counts = searched(encoded, coded, method, settings.get("k", DEPTH))
    return Outcome(measured(encoded, encoded.run_of_found(found)), {**counts, "bytes": coded.n_bytes})


def reranked(workbench: Workbench, settings: Settings) -> Outcome:
    """BM25's best hundred, as they are (`bm25/...`) and reranked by MaxSim over ragged and over fixed rows; `seconds`
    are of reranking alone, in turn. Settings: set, fixed."""
    encoded = workbench.encoded(settings["set"])
    first = workbench.bm25(settings["set"])
    numbers = {id: number for number, id in enumerate(encoded.document_ids)}
    candidates = [
        np.sort(np.array([numbers[id] for id, _ in first[query][:RERANKED]], np.int64)) for query in encoded.query_ids
    ]
    each = {f"bm25/{name}": own for name, own in measured(encoded, first).items()}
    tasks = {}
    for name, fixed in (("ragged", None), ("fixed", settings["fixed"])):
        rows, _ = pooled(workbench, encoded, fixed)

        def task(number: int, rows: MultiVectors = rows) -> NDArray[np.float32]:
            return maxsim(encoded.query_rows(number), rows, items=candidates[number])

        scores = [task(number) for number in range(len(candidates))]
        orders = [np.argsort(-own, kind="stable") for own in scores]
        found = [(own[order], score[order]) for own, score, order in zip(candidates, scores, orders, strict=True)]
        each.update({f"{name}/{own}": value for own, value in measured(encoded, encoded.run_of_found(found)).items()})
        tasks[name] = task
    return Outcome({**each, **in_turn(tasks, encoded.query_ids[:N_QUERIES])})
