"""XTR's scoring with floats: each query row retrieves its best rows, and missing similarities are filled in one of
several ways. For comparing these ways; `plait.search.multivector.xtr` is the fast one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.scoring.maxsim import top_k
from plait_reproduce.encoded_set import DEPTH, Ranked, measured, shared
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

# The value of a similarity that was not retrieved: the last retrieved one; a constant; the mean of all last ones; or
# none, where an item's score is the mean of its retrieved similarities.
FILLINGS = ("last", "0", "0.2", "mean", "none")


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The nearest rows of each query row, best first, and their items."""

    owners: NDArray[np.int64]  # (n_query, rows)
    similarities: NDArray[np.float32]  # (n_query, rows), descending
    n_items: int

    @classmethod
    def of(
        cls, query: NDArray[np.float32], rows: NDArray[np.float32], owners: NDArray[np.int64], n_kept: int
    ) -> Nearest:
        similarities = query @ rows.T
        n_kept = min(n_kept, len(rows))
        top_rows = np.argpartition(-similarities, n_kept - 1, axis=1)[:, :n_kept]
        best = np.take_along_axis(similarities, top_rows, axis=1)
        order = np.argsort(-best, axis=1, kind="stable")
        top_rows, best = np.take_along_axis(top_rows, order, axis=1), np.take_along_axis(best, order, axis=1)
        return cls(owners[top_rows], best, int(owners[-1]) + 1)

    def best(self, n_tokens: int) -> NDArray[np.float32]:
        """The best of the first `n_tokens` for each query row and item (n_query, items); nan if there is none."""
        best = np.full((len(self.owners), self.n_items), np.nan, np.float32)
        for number, (owners, values) in enumerate(zip(self.owners, self.similarities, strict=True)):
            # Written from worst to best, so the last value written for an item is its best.
            best[number, owners[:n_tokens][::-1]] = values[:n_tokens][::-1]
        return best

    def last(self, n_tokens: int) -> NDArray[np.float32]:
        return np.asarray(self.similarities[:, :n_tokens][:, -1], np.float32)


def filled(best: NDArray[np.float32], last: NDArray[np.float32], filling: str) -> NDArray[np.float32]:
    """Scores (items,) from the best similarities (n_query, items); every item has at least one retrieved similarity."""
    if filling == "none":
        return np.asarray(np.nanmean(best, axis=0), np.float32)
    constants = {"last": last, "mean": np.full_like(last, last.mean())}
    constant = constants[filling] if filling in constants else np.full_like(last, float(filling))
    return np.asarray(np.where(np.isnan(best), constant[:, None], best).mean(axis=0), np.float32)


def by_tokens(workbench: Workbench, settings: Settings) -> Outcome:
    """Settings: set, n_tokens (several k') and fillings. Measures are named `k'/filling/measure`; `k'/overlap@10` is
    the share of the exact top ten; facts `k'/items` and `k'/tokens` are means over queries."""
    encoded = workbench.encoded(settings["set"])
    rows = encoded.document_rows
    owners = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    values = np.asarray(rows.values, np.float32)
    sizes, fillings = settings["n_tokens"], settings["fillings"]
    found: dict[str, list[Ranked]] = {f"{size}/{filling}": [] for size in sizes for filling in fillings}
    counts = {f"{size}/items": 0.0 for size in sizes}
    n_query = 0
    for number in range(len(encoded.query_ids)):
        nearest = Nearest.of(encoded.query_rows(number), values, owners, max(sizes))
        n_query += len(nearest.owners)
        for size in sizes:
            best = nearest.best(size)
            items = np.flatnonzero(~np.isnan(best).all(axis=0))
            counts[f"{size}/items"] += len(items)
            for filling in fillings:
                scores = filled(best[:, items], nearest.last(size), filling)
                order = top_k(scores, DEPTH)
                found[f"{size}/{filling}"].append((items[order], scores[order]))
    each: dict[str, dict[str, float]] = {}
    for name, rankings in found.items():
        each.update(
            {
                f"{name}/{measure}": values
                for measure, values in measured(encoded, encoded.run_of_found(rankings)).items()
            }
        )
    truth = workbench.maxsim(encoded)
    each.update({f"{size}/overlap@10": shared(encoded, found[f"{size}/last"], truth, 10) for size in sizes})
    n_queries = len(encoded.query_ids)
    facts = {name: count / n_queries for name, count in counts.items()}
    facts.update({f"{size}/tokens": min(size, len(values)) * n_query / n_queries for size in sizes})
    return Outcome(each, {**facts, "query rows": n_query / n_queries, "rows": len(values), "items": len(rows),
                          "dim": rows.dim})  # fmt: skip
