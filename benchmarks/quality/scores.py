"""What hybrid scores say: the score of the best hit for queries that a set can answer, and for queries of another set,
which it cannot.

    python -m benchmarks.quality.scores --data data --indexes indexes \\
        --pairs clapnq-dev:cranfield cranfield:climate-fever-sent --plot docs/measurements/assets/scores.png

`INDEXES/SET` is the index of each set (`plait index DATA/SET --to INDEXES/SET`). For a pair A:B the queries of A are
answerable and those of B are not. Prints, by `min_score`: the share of answerable queries that keep a hit, the share of
unanswerable ones that are left without one, and the precision, which is the share of first hits that are relevant when
both kinds of queries are asked equally often. Without `min_score` half of the questions cannot be answered right.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from plait.evaluate import Dataset, load_dataset
from plait.search.calibration import auto_min_score, unrelated_queries
from plait.searcher import SearchRequest

THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6)
BATCH = 16


@dataclass(frozen=True)
class Measured:
    """Best scores on one index."""

    name: str
    other: str
    answerable: NDArray[np.float64]  # of each query of the set
    right: NDArray[np.bool_]  # whether its first hit is relevant
    unanswerable: NDArray[np.float64]  # of each query of the other set
    drawn: NDArray[np.float64]  # of the queries that calibration draws
    auto: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of BEIR folders")
    parser.add_argument("--indexes", type=Path, required=True, help="a folder with an index for each set")
    parser.add_argument("--pairs", nargs="+", required=True, metavar="SET:OTHER")
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, default=200, help="of each set, at most")
    parser.add_argument("--plot", type=Path, help="where the plot is saved")
    options = parser.parse_args()
    measured = []
    for pair in options.pairs:
        name, other = pair.split(":")
        measured.append(measure(options, name, other))
        print_table(measured[-1])
    if options.plot is not None:
        plot(measured, options.plot)


def measure(options: argparse.Namespace, name: str, other: str) -> Measured:
    judged = load_dataset(str(options.data / name), options.split)
    foreign = load_dataset(str(options.data / other), options.split)
    with plait.open(options.indexes / name, n_threads=1) as index:
        if index.snapshot.calibration.usable is None:
            index.calibrate()
        answerable = best_hits(index, texts(judged, options.queries))
        relevant = {query: {doc for doc, gain in gains.items() if gain > 0} for query, gains in judged.qrels.items()}
        unanswerable = best_hits(index, texts(foreign, options.queries))
        drawn = best_hits(index, {str(number): text for number, text in enumerate(unrelated_queries(index.snapshot))})
        plan = index.searcher.plan(index.snapshot, SearchRequest())
        auto = auto_min_score(index.snapshot.calibration.usable, plan.fusion)
    return Measured(
        name,
        other,
        np.array([score for _, score in answerable.values()]),
        np.array([id in relevant.get(query, ()) for query, (id, _) in answerable.items()]),
        np.array([score for _, score in unanswerable.values()]),
        np.array([score for _, score in drawn.values()]),
        auto,
    )


def texts(judged: Dataset, n_queries: int) -> dict[str, str]:
    """Queries of a set, spread over all of it."""
    ids = list(judged.queries)
    step = max(1, len(ids) // n_queries)
    return {id: judged.queries[id] for id in ids[::step][:n_queries]}


def best_hits(index: plait.Index, queries: dict[str, str]) -> dict[str, tuple[str, float]]:
    """The id and the score of the best hit of each query."""
    ids, best = list(queries), {}
    for start in range(0, len(ids), BATCH):
        batch = ids[start : start + BATCH]
        hits = index.search_many([queries[id] for id in batch], 1, syntax=False)
        best.update({id: (one[0].id, one[0].score) if one else ("", 0.0) for id, one in zip(batch, hits, strict=True)})
    return best


def print_table(one: Measured) -> None:
    low, high = np.quantile(one.unanswerable, [0.5, 0.95])
    print(f"\n{one.name}: {len(one.answerable)} queries; {len(one.unanswerable)} unanswerable ones of {one.other}")
    print(
        f"median best score {np.median(one.answerable):.2f} answerable, {low:.2f} unanswerable (95 %: {high:.2f}), "
        f"{np.median(one.drawn):.2f} drawn by calibration; AUC {auc(one.answerable, one.unanswerable):.3f}\n"
    )
    print("| min_score | answerable with a hit | unanswerable without a hit | precision |")
    print("|---|---|---|---|")
    for label, least in [("none", -1.0), *((f"{least:.1f}", least) for least in THRESHOLDS), ("auto", one.auto)]:
        answered, left = (one.answerable >= least).mean(), (one.unanswerable >= least).mean()
        right = (one.right & (one.answerable >= least)).mean()
        precision = right / (answered + left) if answered + left else float("nan")
        shown = f"auto ({least:.2f})" if label == "auto" else label
        print(f"| {shown} | {answered:.1%} | {1 - left:.1%} | {precision:.1%} |", flush=True)


def auc(positive: NDArray[np.float64], negative: NDArray[np.float64]) -> float:
    """The share of pairs in which the answerable query scores more."""
    return float((positive[:, None] > negative[None, :]).mean() + (positive[:, None] == negative[None, :]).mean() / 2)


def plot(measured: list[Measured], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(measured), 1, figsize=(8, 3 * len(measured)), sharex=True, squeeze=False)
    bins = np.linspace(0, 1, 41)
    for axis, one in zip(axes[:, 0], measured, strict=True):
        style = {"bins": bins, "density": True, "alpha": 0.6}
        axis.hist(one.unanswerable, label=f"unanswerable: queries of {one.other}", color="tab:red", **style)
        axis.hist(one.answerable, label=f"answerable: queries of {one.name}", color="tab:blue", **style)
        axis.axvline(one.auto, color="black", linestyle="--", label=f'min_score="auto": {one.auto:.2f}')
        axis.set_title(f"index of {one.name}", fontsize=10)
        axis.set_ylabel("density")
        axis.legend(fontsize=8)
    axes[-1, 0].set_xlabel("hybrid score of the best hit")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
