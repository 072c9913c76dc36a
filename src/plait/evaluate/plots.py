"""Plots in one style: colours that the colour-blind can tell apart (Okabe and Ito), and never colour alone, so that
they can be read in grey print: bars differ by hatching, curves by dashes and markers, and labels stand beside what they
name.

Needs matplotlib, the extra `eval`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
MAX_MARKED = 25  # points of a curve
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
    """Groups of bars, one bar of each series in a group, with its value above it and its interval as a whisker. Of a
    single group the bars themselves are named."""
    _check_series(len(series))
    alone = len(groups) == 1
    with style():
        named = series if alone else groups
        room_for_names = 0.085 * len(named) * (2 + max(map(len, named)))
        room_for_legend = 0.0 if alone else sum(0.4 + 0.075 * len(label) for label in series)
        figure, axes = _figure(
            max(4.5, 1.2 + 0.4 * len(groups) * (len(series) + 0.6), 1 + max(room_for_names, room_for_legend)), 3.4
        )
        width = 0.84 / len(series)
        places = (np.arange(len(series)) - (len(series) - 1) / 2) * width
        for place, (label, means) in enumerate(series.items()):
            _bars(axes, place, np.arange(len(groups)) + places[place], means, width * 0.92, label)
        axes.set_xticks(places if alone else np.arange(len(groups)), list(series) if alone else groups)
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel(y_label)
        axes.margins(y=0.12)
        named_above = len(series) > 1 and not alone
        axes.set_title(title, pad=24 if named_above else None)
        if named_above:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(series), borderaxespad=0.3)
    return figure


def _bars(axes: Axes, place: int, x: NDArray[np.float64], means: Sequence[Mean], width: float, label: str) -> None:
    colour = COLOURS[place]
    heights = [mean.value for mean in means]
    axes.bar(
        x,
        heights,
        width,
        label=label,
        color=_mixed(colour, 1.0, 0.55),
        edgecolor=colour,
        hatch=HATCHES[place],
        linewidth=1,
    )
    reach = [[mean.value - mean.low for mean in means], [mean.high - mean.value for mean in means]]
    axes.errorbar(x, heights, np.maximum(reach, 0), fmt="none", ecolor="#222222", elinewidth=1.0, capsize=2.5)
    for at, mean in zip(x, means, strict=True):
        above = (at, max(mean.value, mean.high))
        axes.annotate(f"{mean.value:.3f}", above, (0, 2), textcoords="offset points", ha="center", fontsize=7)


def curves(
    lines: Sequence[Curve], *, x_label: str, y_label: str, title: str = "", log_x: bool = False, log_y: bool = False
) -> Figure:
    """Curves with a band where there is one; each has its label at its right end. Curves of many points, as those of
    distributions, have no markers."""
    _check_series(len(lines))
    with style():
        figure, axes = _figure(5.6, 3.4)
        for place, line in enumerate(lines):
            axes.plot(
                line.x, line.y, color=COLOURS[place], linestyle=DASHES[place],
                marker=MARKERS[place] if len(line.x) <= MAX_MARKED else None,
                markerfacecolor="white", markeredgewidth=1.2, label=line.label,
            )  # fmt: skip
            if line.low is not None and line.high is not None:
                axes.fill_between(line.x, line.low, line.high, color=COLOURS[place], alpha=0.15, linewidth=0)
        if log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")  # 100 rather than a power of ten
            _plain_minor(axes)
        if log_y:
            axes.set_yscale("log")
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


def _plain_minor(axes: Axes) -> None:
    """Numbers rather than powers at the minor ticks too, which are named where an axis has few others."""
    from matplotlib.ticker import FuncFormatter, LogFormatter

    chosen = LogFormatter()  # says which of them are named: all over a short axis, none over a long one
    chosen.set_axis(axes.xaxis)
    chosen.set_locs()
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, place: f"{value:g}" if chosen(value, place) else ""))


def _mixed(colour: str, tone: float, share: float) -> tuple[float, ...]:
    """The colour with some grey in it: a tone of 1 is white, which lets hatching show; 0 is black."""
    return tuple((1 - share) * tone + share * int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def _label_ends(figure: Figure, axes: Axes, lines: Sequence[Curve]) -> None:
    """Writes each label right of where its curve ends; labels that would overlap are moved apart. Curves that end near
    the right have their labels in one column."""
    figure.canvas.draw()
    ends = [axes.transData.transform((line.x[-1], line.y[-1])) for line in lines]
    right = max(end[0] for end in ends)
    heights = moved_apart([float(end[1]) for end in ends], figure.dpi / 72 * STYLE["font.size"] * 1.25)
    near = 0.2 * axes.bbox.width
    for place, (line, end, height) in enumerate(zip(lines, ends, heights, strict=True)):
        column = right if right - float(end[0]) <= near else float(end[0])
        axes.annotate(
            line.label,
            (line.x[-1], line.y[-1]),
            ((column - float(end[0])) * 72 / figure.dpi + 8, (height - float(end[1])) * 72 / figure.dpi),
            textcoords="offset points",
            color=_mixed(COLOURS[place], 0.0, 0.8),  # darker than the curve: thin strokes need the contrast
            va="center",
            annotation_clip=False,
        )


def moved_apart(heights: Sequence[float], gap: float) -> list[float]:
    """The heights, moved as little as keeps any two `gap` apart; those that are in each other's way stay centred on
    where they were."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    groups: list[list[int]] = []  # each a pile, one gap between its members
    for place in order:
        groups.append([place])
        while len(groups) > 1 and _ends(groups[-2], heights, gap)[1] + gap > _ends(groups[-1], heights, gap)[0]:
            groups[-2:] = [groups[-2] + groups[-1]]
    moved = dict.fromkeys(order, 0.0)
    for group in groups:
        lowest, _ = _ends(group, heights, gap)
        moved.update({place: lowest + number * gap for number, place in enumerate(group)})
    return [moved[place] for place in range(len(heights))]


def _ends(group: Sequence[int], heights: Sequence[float], gap: float) -> tuple[float, float]:
    middle, half = sum(heights[place] for place in group) / len(group), (len(group) - 1) * gap / 2
    return middle - half, middle + half


def _check_series(n: int) -> None:
    if not 1 <= n <= MAX_SERIES:
        raise ConfigError(f"a plot shows 1 to {MAX_SERIES} series that can be told apart; got {n}: draw several plots")
