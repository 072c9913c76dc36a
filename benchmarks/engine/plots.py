"""Plots of a report: recall against time, one PNG and one SVG for each run.

They must be readable in print, in grey and with colour blindness: the palette is that of Okabe and Ito, every engine
has its own marker and line style, and its name stands at the end of its curve.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.engine.report import front, measure_of, title

STYLES = {
    "plait": ("#0072B2", "o", "-"),
    "fast-plaid": ("#D55E00", "s", "--"),
    "xtr-warp-rs": ("#009E73", "^", "-."),
    "faiss": ("#CC79A7", "D", ":"),
    "lancedb": ("#56B4E9", "v", "--"),
    "qdrant-edge": ("#E69F00", "P", "-."),
    "torch": ("#000000", "X", ":"),
    "numpy": ("#777777", "*", ":"),
}
LOWEST_RECALL = 0.4  # lower recalls are not shown


def draw(report: dict[str, Any], folder: Path) -> list[Path]:
    """Draws all plots and returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [file for run in report["runs"] for file in _draw(run, folder)]


def name_of(run: dict[str, Any]) -> str:
    return f"engine-{run['corpus']['name']}-{run['corpus']['passages']}-{run['threads']}"


def _draw(run: dict[str, Any], folder: Path) -> list[Path]:
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "plait", "font.size": 9})
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    labels, by = [], measure_of(run)
    for variant in run["variants"]:
        curve = [(time, recall) for recall, time in front(variant["points"], by) if recall >= LOWEST_RECALL]
        if not curve or "," in variant["name"].replace(", exhaustive", ""):
            continue
        colour, marker, line = STYLES[variant["engine"]]
        times, recalls = zip(*curve, strict=True)
        axes.plot(times, recalls, color=colour, marker=marker, linestyle=line, markersize=4, linewidth=1.4)
        labels.append((times[-1], recalls[-1], variant["name"], colour))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(f"{'milliseconds' if by == 'p50' else 'milliseconds of processor time'} for a query (logarithmic)")
    axes.set_ylabel(f"recall of the exact top {run['k']}")
    axes.set_title(title(run), loc="left")
    axes.set_ylim(LOWEST_RECALL, 1.02)
    axes.grid(visible=True, which="major", linewidth=0.4, color="#cccccc")
    axes.spines[["top", "right"]].set_visible(False)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * 8)  # room for the names
    heights = spread([recall for _, recall, _, _ in labels])
    column = 1.4 * max(time for time, _, _, _ in labels)  # to the right of every point, so that no name covers one
    for (time, recall, name, colour), height in zip(labels, heights, strict=True):
        axes.annotate(
            name, (time, recall), xytext=(column, height), color=colour, va="center", fontsize=8,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.4},
        )  # fmt: skip
    files = [folder / f"{name_of(run)}.{kind}" for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=160, metadata={"Date": None} if file.suffix == ".svg" else None)
    return files


def spread(heights: list[float], gap: float = 0.022) -> list[float]:
    """Heights for labels: near the given ones and at least `gap` apart, from the top down."""
    order = sorted(range(len(heights)), key=lambda number: -heights[number])
    placed = list(heights)
    above = 1.02 + gap
    for position in order:
        placed[position] = above = min(heights[position], above - gap)
    return placed
