"""Tables and plots of `benchmarks.cur.recall` and `benchmarks.cur.heads`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.evaluate.plots import COLOURS, DASHES, MARKERS, style

Curves = Mapping[int, Mapping[str, Mapping[str, float]]]  # budget, method, measure

# The methods that are drawn, in this order; more could not be distinguished. The tables have all.
DRAWN = (
    "rerank dense",
    "rerank distilled",
    "anncur",
    "adacur, dense start",
    "axn dense",
    "rerank bm25",
    "item-CUR",
)


def tables(curves: Curves, measures: Sequence[str], alone: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """One table for each measure: a row for each method, a column for each budget that allows it."""
    names = list(dict.fromkeys(name for methods in curves.values() for name in methods))
    for measure in measures:
        budgets = [
            budget for budget, methods in curves.items() if any(measure in values for values in methods.values())
        ]
        if not budgets:
            continue
        lines = [f"{measure} by calls", "", "| method | " + " | ".join(map(str, budgets)) + " |"]
        lines.append("|---|" + "---:|" * len(budgets))
        for name in names:
            values = [curves[budget].get(name, {}).get(measure) for budget in budgets]
            if any(value is not None for value in values):
                shown = " | ".join("" if value is None else f"{value:.3f}" for value in values)
                lines.append(f"| {name} | {shown} |")
        for name, measures_alone in alone.items():
            if measure in measures_alone:
                lines.append(f"| {name} |" + " |" * (len(budgets) - 1) + f" {measures_alone[measure]:.3f} |")
        yield "\n".join(lines)


def draw_curves(curves: Curves, measures: Sequence[str], to: Path) -> None:
    """Recall against calls, one panel for each k."""
    with style():
        figure, axes = _panels(len(measures), 2.9, 3.1)
        for measure, axis in zip(measures, axes, strict=True):
            for index, name in enumerate(DRAWN):
                points = [
                    (budget, methods[name][measure])
                    for budget, methods in curves.items()
                    if measure in methods.get(name, {})
                ]
                if points:
                    axis.plot(
                        *zip(*points, strict=True), label=name, color=COLOURS[index], linestyle=DASHES[index],
                        marker=MARKERS[index], markerfacecolor="white", markeredgewidth=1.2,
                    )  # fmt: skip
            axis.set_xscale("log")
            budgets = [
                budget for budget, methods in curves.items() if any(measure in values for values in methods.values())
            ]
            axis.set_xticks(budgets, [str(budget) for budget in budgets])
            axis.minorticks_off()
            axis.set(title=f"{measure} recall", xlabel="calls of the cross-encoder", ylim=(0, 1.02))
        labels = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
        figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=4)
        figure.savefig(to, bbox_inches="tight")


def draw_scores(matrices: Mapping[str, NDArray[np.floating]], to: Path) -> None:
    """The distribution of standardised scores, and the singular values of each matrix."""
    with style():
        figure, (left, right) = _panels(2, 3.8, 3.1)
        for panel, (name, matrix) in enumerate(matrices.items()):
            drawn: dict[str, Any] = {"color": COLOURS[panel], "linestyle": DASHES[panel], "label": name}
            values = np.asarray(matrix, np.float64)
            standard = (values.ravel() - values.mean()) / (values.std() or 1.0)
            counts, edges = np.histogram(standard, bins=120, density=True)
            left.plot((edges[1:] + edges[:-1]) / 2, np.where(counts, counts, np.nan), **drawn)
            singular = np.sqrt(np.maximum(np.linalg.eigvalsh(values @ values.T)[::-1], 0))
            right.plot(np.arange(1, len(singular) + 1), singular / singular[0], **drawn)
        left.set(title="scores", xlabel="standard deviations from the mean", ylabel="density", yscale="log")
        right.set(title="singular values", xlabel="number", ylabel="part of the largest", yscale="log")
        left.legend()
        figure.savefig(to, bbox_inches="tight")


def _panels(n: int, width: float, height: float) -> tuple[Any, Sequence[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * n, height + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, n, squeeze=False)[0]
