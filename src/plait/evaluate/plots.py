"""Plots in one style: colours that the colour-blind can tell apart (Okabe and Ito), and never colour alone, so that
they can be read in grey print: bars differ by hatching, curves by dashes and markers, and labels stand beside what they
name.

Needs matplotlib, the extra `eval`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.errors import ConfigError
from plait.evaluate.compare import Mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue, orange, green, purple, vermilion, sky, grey-black; yellow is left out, which white paper swallows.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#333333")
HATCHES = ("", "///", "...", "\\\\\\", "xx", "--", "oo")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
KINDS = (".png", ".svg", ".pdf")
MAX_SERIES = len(COLOURS)

STYLE: dict[str, Any] = {
    "figure.dpi": 150,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that plots are the same everywhere
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "svg.hashsalt": "plait",  # the same plot is the same file
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Points in the order of x; `low` and `high`, if given, are the edges of a band around y."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


def check_file(file: str | Path) -> None:
    """Refuses, before any work is done, a file that could not be drawn."""
    if Path(file).suffix.lower() not in KINDS:
        raise ConfigError(f"{file} must end in {', '.join(KINDS)}: that says what to draw")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("plots need matplotlib, which is not installed: pip install 'plait[eval]'") from None


@contextmanager
def style() -> Iterator[None]:
    """The style of all plots, for what is drawn within; nothing else of the process is changed."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def bars(groups: Sequence[str], series: Mapping[str, Sequence[Mean]], *, y_label: str, title: str = "") -> Figure:
    """Groups of bars, one bar of each series in a group, with its value above it and its interval as a whisker."""
    _check_series(len(series))
    with style():
        figure, axes = _figure(max(4.5, 1.6 + 0.62 * len(groups) * (len(series) + 0.6)), 3.4)
        width = 0.84 / len(series)
        for place, (label, means) in enumerate(series.items()):
            x = np.arange(len(groups)) + (place - (len(series) - 1) / 2) * width
            values = [mean.value for mean in means]
            axes.bar(
                x, values, width * 0.92, label=label, color=_light(COLOURS[place]), edgecolor=COLOURS[place],
                hatch=HATCHES[place], linewidth=1.0,
            )  # fmt: skip
            reach = [[mean.value - mean.low for mean in means], [mean.high - mean.value for mean in means]]
            axes.errorbar(x, values, np.maximum(reach, 0), fmt="none", ecolor="#222222", elinewidth=1.0, capsize=2.5)
            for at, mean in zip(x, means, strict=True):
                above = max(mean.value, mean.high)
                axes.annotate(
                    f"{mean.value:.3f}", (at, above), (0, 2), textcoords="offset points", ha="center", fontsize=7
                )
        axes.set_xticks(np.arange(len(groups)), groups)
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel(y_label)
        axes.margins(y=0.12)
        axes.set_title(title)
        if len(series) > 1:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=min(4, len(series)), borderaxespad=0.3)
    return figure


def curves(lines: Sequence[Curve], *, x_label: str, y_label: str, title: str = "", log_x: bool = False) -> Figure:
    """Curves with a band where there is one; each has its label at its right end."""
    _check_series(len(lines))
    with style():
        figure, axes = _figure(5.6, 3.4)
        for place, line in enumerate(lines):
            axes.plot(
                line.x, line.y, color=COLOURS[place], linestyle=DASHES[place], marker=MARKERS[place],
                markerfacecolor="white", markeredgewidth=1.2, label=line.label,
            )  # fmt: skip
            if line.low is not None and line.high is not None:
                axes.fill_between(line.x, line.low, line.high, color=COLOURS[place], alpha=0.15, linewidth=0)
        if log_x:
            axes.set_xscale("log")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.set_title(title)
        _label_ends(figure, axes, lines)
    return figure


def save(figure: Figure, file: str | Path) -> None:
    """Writes the figure as what its suffix says, without a date, so that the same plot is the same file."""
    check_file(file)
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with style():
        figure.savefig(file, metadata=dated.get(Path(file).suffix.lower()), bbox_inches="tight")


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    # Not through pyplot: that keeps every figure, and looks for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _light(colour: str) -> tuple[float, float, float]:
    """The colour mixed with white, so that hatching shows in it."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return tuple(0.45 + 0.55 * part for part in (red, green, blue))  # type: ignore[return-value]


def _label_ends(figure: Figure, axes: Axes, lines: Sequence[Curve]) -> None:
    """Writes each label right of where its curve ends; labels that would overlap are moved apart."""
    figure.canvas.draw()
    ends = [axes.transData.transform((line.x[-1], line.y[-1])) for line in lines]
    right = max(end[0] for end in ends)
    gap = figure.dpi / 72 * STYLE["font.size"] * 1.25
    order = sorted(range(len(lines)), key=lambda place: ends[place][1])
    heights = {place: float(ends[place][1]) for place in order}
    for below, above in pairwise(order):
        heights[above] = max(heights[above], heights[below] + gap)
    # Moving up only would lift all of them; half of the way back keeps the labels around their curves.
    lift = sum(heights[place] - float(ends[place][1]) for place in order) / max(1, len(order))
    for place in order:
        offset = heights[place] - lift - float(ends[place][1])
        axes.annotate(
            lines[place].label,
            (lines[place].x[-1], lines[place].y[-1]),
            ((right - float(ends[place][0])) * 72 / figure.dpi + 8, offset * 72 / figure.dpi),
            textcoords="offset points",
            color=COLOURS[place],
            va="center",
            annotation_clip=False,
        )


def _check_series(n: int) -> None:
    if not 1 <= n <= MAX_SERIES:
        raise ConfigError(f"a plot shows 1 to {MAX_SERIES} series that can be told apart; got {n}: draw several plots")
