"""XTR's scoring with floats: each query row retrieves its best rows, and what it did not retrieve is filled in one of
several ways. Written for comparing those ways; `plait.search.methods.xtr` is the one that is fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.reproduce.arms.measuring import DEPTH, measured, shared
from plait.reproduce.encoded import EncodedSet
from plait.reproduce.experiment import Outcome, Settings
from plait.reproduce.workbench import Workbench
from plait.scoring.maxsim import top_k

# What stands for a similarity that was not retrieved: the last that was; a constant; the mean of all last ones; or
# nothing, so that an item's score is the mean of what was retrieved of it alone.
FILLINGS = ("last", "0", "0.2", "mean", "none")


@dataclass(frozen=True, slots=True, eq=False)
class Retrieved:
    """The best similarity of each item with each query row, where the row retrieved one of its rows; else nan."""

    best: NDArray[np.float32]  # (n_query, items)
    last: NDArray[np.float32]  # (n_query,) the last similarity that was retrieved
    n_tokens: int  # rows that were retrieved, by all query rows together

    @property
    def items(self) -> NDArray[np.int64]:
        """The items of which anything was retrieved."""
        return np.flatnonzero(~np.isnan(self.best).all(axis=0))

    def scores(self, filling: str) -> NDArray[np.float32]:
        """Of `items`, in their order."""
        found = self.best[:, self.items]
        if filling == "none":
            return np.asarray(np.nanmean(found, axis=0), np.float32)
        fill = {"last": self.last, "mean": np.full_like(self.last, self.last.mean())}
        constant = fill[filling] if filling in fill else np.full_like(self.last, float(filling))
        filled: NDArray[np.float32] = np.where(np.isnan(found), constant[:, None], found)
        return np.asarray(filled.mean(axis=0), np.float32)


def retrieve(query: NDArray[np.float32], encoded: EncodedSet, n_tokens: int) -> Retrieved:
    """The `n_tokens` best rows of the set for each row of the query."""
    rows = encoded.document_rows
    owners = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    similarities = query @ np.asarray(rows.values, np.float32).T
    n_kept = min(n_tokens, similarities.shape[1])
    places = np.argpartition(-similarities, n_kept - 1, axis=1)[:, :n_kept]
    kept = np.take_along_axis(similarities, places, axis=1)
    best = np.full((len(query), len(rows)), -np.inf, np.float32)
    for number, (own, values) in enumerate(zip(places, kept, strict=True)):
        np.maximum.at(best[number], owners[own], values)
    best[np.isneginf(best)] = np.nan
    return Retrieved(best, kept.min(axis=1), n_kept * len(query))


def by_tokens(workbench: Workbench, settings: Settings) -> Outcome:
    """Settings: set, n_tokens (k'). Measures are named `filling/measure`; facts are means over the queries."""
    encoded = workbench.encoded(settings["set"])
    found: dict[str, list[tuple[NDArray[np.integer], NDArray[np.floating]]]] = {name: [] for name in FILLINGS}
    counts = []
    for number in range(len(encoded.query_ids)):
        query = encoded.query_rows(number)
        retrieved = retrieve(query, encoded, settings["n_tokens"])
        items = retrieved.items
        counts.append((len(query), len(items), retrieved.n_tokens))
        for filling in FILLINGS:
            scores = np.ascontiguousarray(retrieved.scores(filling), np.float32)
            order = top_k(scores, DEPTH)
            found[filling].append((items[order], scores[order]))
    each: dict[str, dict[str, float]] = {}
    for filling, own in found.items():
        each.update({f"{filling}/{name}": values for name, values in _each(encoded, own).items()})
    each["overlap@10"] = shared(encoded, found["last"], workbench.maxsim(encoded), 10)
    n_query, n_items, n_tokens = np.mean(counts, axis=0).tolist()
    rows = encoded.document_rows
    facts = {"query rows": n_query, "items": n_items, "tokens": n_tokens, "rows": len(rows.values)}
    return Outcome(each, {**facts, "rows an item": len(rows.values) / len(rows), "dim": rows.dim})


def _each(
    encoded: EncodedSet, found: list[tuple[NDArray[np.integer], NDArray[np.floating]]]
) -> dict[str, dict[str, float]]:
    return measured(encoded, encoded.run_of_found(found))
