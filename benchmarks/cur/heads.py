"""Cross-encoders side by side, by their score matrices: accuracy and smoothness.

    python -m benchmarks.cur.heads matrix-cls matrix-emb --to results

The matrices have the same queries and documents; `benchmarks.cur.matrix` makes them. Accuracy is the share of queries
whose best document is judged relevant: among all documents, and among the best 50 of BM25 and of the dense model.
Differences from the first matrix have a 95% interval over queries. Writes heads.md and, with matplotlib, scores.png.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.cur.figures import draw_scores
from benchmarks.cur.recall import Data, read
from plait.cur.algebra import distribution, spectrum
from plait.evaluate.significance import bootstrap_intervals

DEPTH = 50


def right(data: Data, n_rows: int, among: str = "") -> NDArray[np.float64]:
    """For each judged query, 1 if the best of all documents, or of the first documents of another search, is
    relevant."""
    results = []
    for query, positives in enumerate(data.positives[:n_rows]):
        if positives:
            pool = data.first(among, query)[:DEPTH] if among else np.arange(data.matrix.n_items)
            results.append(float(len(pool) > 0 and pool[np.argmax(data.scores[query][pool])] in positives))
    return np.array(results)


def difference(values: NDArray[np.float64], base: NDArray[np.float64]) -> str:
    """The difference in points, with its interval."""
    (low, high), *_ = bootstrap_intervals((values - base)[:, None], n_resamples=2000)
    return f"{100 * float(np.mean(values - base)):+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def without_means(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The scores minus the mean of their query and the mean of their document."""
    of_both = scores.mean(axis=1, keepdims=True) + scores.mean(axis=0, keepdims=True) - scores.mean()
    return np.asarray(scores - of_both, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("matrices", type=Path, nargs="+")
    parser.add_argument("--to", type=Path, required=True)
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    names = [json.loads((folder / "about.json").read_text(encoding="utf-8"))["model"] for folder in options.matrices]
    read_all = [read(folder, 2, 1) for folder in options.matrices]
    n_rows = min(len(data.scores) for data in read_all)
    matrices = {name: data.scores[:n_rows] for name, data in zip(names, read_all, strict=True)}
    rows: dict[str, list[str]] = {}
    for label, among in (("all documents", ""), (f"BM25's {DEPTH}", "bm25"), (f"dense's {DEPTH}", "dense")):
        each = [right(data, n_rows, among) for data in read_all]
        rows[f"accuracy, {label}"] = [f"{value.mean():.3f}" for value in each]
        rows[f"{label}: points above the first"] = ["", *(difference(value, each[0]) for value in each[1:])]
    shapes, spreads = (
        [spectrum(matrix) for matrix in matrices.values()],
        [distribution(matrix) for matrix in matrices.values()],
    )
    for threshold in shapes[0].ranks:
        rows[f"rank at {threshold:g}"] = [str(shape.ranks[threshold]) for shape in shapes]
    rows["directions with 99% of the energy"] = [str(shape.energy_rank) for shape in shapes]
    rows["the same, without the means of rows and columns"] = [
        str(spectrum(without_means(matrix)).energy_rank) for matrix in matrices.values()
    ]
    rows["skewness"] = [f"{spread.skewness:.2f}" for spread in spreads]
    rows["kurtosis"] = [f"{spread.kurtosis:.2f}" for spread in spreads]
    head = f"{n_rows} queries by {read_all[0].matrix.n_items:,} documents"
    lines = [head, "", "| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    page = "\n".join([*lines, *(f"| {label} | " + " | ".join(cells) + " |" for label, cells in rows.items())])
    print(page)
    (options.to / "heads.md").write_text(page + "\n", encoding="utf-8")
    try:
        draw_scores(matrices, options.to / "scores.png")
    except ImportError:
        print("the picture is left out: it needs matplotlib")


if __name__ == "__main__":
    main()
