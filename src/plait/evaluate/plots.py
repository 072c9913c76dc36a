"""Bar charts and curves in one style that colour-blind readers and grey prints can use.

Colours are those of Okabe and Ito; bars also differ by hatching, curves by dashes and markers, and each curve has its
label at its end. Needs matplotlib, the extra `eval`."""

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

# Blue, orange, green, purple, vermilion, sky, grey-black; without yellow, which is invisible on white paper.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#333333")
HATCHES = ("", "///", "...", "\\\\\\", "xx", "--", "oo")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
SUFFIXES = (".png", ".svg", ".pdf")
MAX_MARKED_POINTS = 25  # a curve with more points has no markers
MAX_SERIES = len(COLOURS)

STYLE: dict[str, Any] = {
    "figure.dpi": 150,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",  # comes with matplotlib, so plots are equal everywhere
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
    "svg.hashsalt": "plait",  # makes files reproducible
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
    """Raises ConfigError, before any work is done, if a plot cannot be written to the file."""
    if Path(file).suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{file} must end in {', '.join(SUFFIXES)}, which decides the format")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigError("plots need matplotlib, which is not installed: pip install 'plait[eval]'") from None


@contextmanager
def style() -> Iterator[None]:
    """The style of all plots, inside the context only."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def bars(groups: Sequence[str], series: Mapping[str, Sequence[Mean]], *, y_label: str, title: str = "") -> Figure:
    """Groups of bars, one bar for each series in a group, with its value above and its interval as a whisker. With one
    group only, the ticks name the bars instead of the group."""
    _check_n_series(len(series))
    is_single = len(groups) == 1
    with style():
        labels = series if is_single else groups
        label_width = 0.085 * len(labels) * (2 + max(map(len, labels)))
        legend_width = 0.0 if is_single else sum(0.4 + 0.075 * len(label) for label in series)
        figure, axes = _figure(
            max(4.5, 1.2 + 0.4 * len(groups) * (len(series) + 0.6), 1 + max(label_width, legend_width)), 3.4
        )
        width = 0.84 / len(series)
        offsets = (np.arange(len(series)) - (len(series) - 1) / 2) * width
        for number, (label, means) in enumerate(series.items()):
            _bars(axes, number, np.arange(len(groups)) + offsets[number], means, width * 0.92, label)
        axes.set_xticks(offsets if is_single else np.arange(len(groups)), list(series) if is_single else groups)
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel(y_label)
        axes.margins(y=0.12)
        has_legend = len(series) > 1 and not is_single
        axes.set_title(title, pad=24 if has_legend else None)
        if has_legend:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(series), borderaxespad=0.3)
    return figure


def _bars(axes: Axes, number: int, x: NDArray[np.float64], means: Sequence[Mean], width: float, label: str) -> None:
    colour = COLOURS[number]
    heights = [mean.value for mean in means]
    axes.bar(
        x,
        heights,
        width,
        label=label,
        color=_mix(colour, 1.0, 0.55),
        edgecolor=colour,
        hatch=HATCHES[number],
        linewidth=1,
    )
    whiskers = [[mean.value - mean.low for mean in means], [mean.high - mean.value for mean in means]]
    axes.errorbar(x, heights, np.maximum(whiskers, 0), fmt="none", ecolor="#222222", elinewidth=1.0, capsize=2.5)
    for at, mean in zip(x, means, strict=True):
        above = (at, max(mean.value, mean.high))
        axes.annotate(f"{mean.value:.3f}", above, (0, 2), textcoords="offset points", ha="center", fontsize=7)


def curves(
    lines: Sequence[Curve], *, x_label: str, y_label: str, title: str = "", log_x: bool = False, log_y: bool = False
) -> Figure:
    """Curves, with bands where given; each has its label at its right end. Curves of many points have no markers."""
    _check_n_series(len(lines))
    with style():
        figure, axes = _figure(5.6, 3.4)
        for number, line in enumerate(lines):
            axes.plot(
                line.x, line.y, color=COLOURS[number], linestyle=DASHES[number],
                marker=MARKERS[number] if len(line.x) <= MAX_MARKED_POINTS else None,
                markerfacecolor="white", markeredgewidth=1.2, label=line.label,
            )  # fmt: skip
            if line.low is not None and line.high is not None:
                axes.fill_between(line.x, line.low, line.high, color=COLOURS[number], alpha=0.15, linewidth=0)
        if log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")  # 100, not a power of ten
            _format_minor_ticks(axes)
        if log_y:
            axes.set_yscale("log")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.set_title(title)
        _label_ends(figure, axes, lines)
    return figure


def save(figure: Figure, file: str | Path) -> None:
    """Writes the figure in the format of the suffix, without a date, so that equal plots are equal files."""
    check_file(file)
    without_date = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with style():
        figure.savefig(file, metadata=without_date.get(Path(file).suffix.lower()), bbox_inches="tight")


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    # pyplot would keep every figure in memory and look for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _format_minor_ticks(axes: Axes) -> None:
    """Writes the labels of minor ticks, which short axes have, as plain numbers instead of powers."""
    from matplotlib.ticker import FuncFormatter, LogFormatter

    default = LogFormatter()  # decides which minor ticks have labels: all on a short axis, none on a long one
    default.set_axis(axes.xaxis)
    default.set_locs()
    axes.xaxis.set_minor_formatter(
        FuncFormatter(lambda value, position: f"{value:g}" if default(value, position) else "")
    )


def _mix(colour: str, tone: float, share: float) -> tuple[float, ...]:
    """`share` of the colour mixed with a grey of `tone`: 0 is black, 1 is white."""
    return tuple((1 - share) * tone + share * int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def _label_ends(figure: Figure, axes: Axes, lines: Sequence[Curve]) -> None:
    """Writes each label to the right of its curve's end. Labels that would overlap are moved apart; curves that end
    near the right edge have their labels in one column."""
    figure.canvas.draw()
    ends = [axes.transData.transform((line.x[-1], line.y[-1])) for line in lines]
    right = max(end[0] for end in ends)
    heights = spread_out([float(end[1]) for end in ends], figure.dpi / 72 * STYLE["font.size"] * 1.25)
    near = 0.2 * axes.bbox.width
    for number, (line, end, height) in enumerate(zip(lines, ends, heights, strict=True)):
        column = right if right - float(end[0]) <= near else float(end[0])
        axes.annotate(
            line.label,
            (line.x[-1], line.y[-1]),
            ((column - float(end[0])) * 72 / figure.dpi + 8, (height - float(end[1])) * 72 / figure.dpi),
            textcoords="offset points",
            color=_mix(COLOURS[number], 0.0, 0.8),  # darker than the curve: thin strokes need the contrast
            va="center",
            annotation_clip=False,
        )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """The heights, moved as little as possible so that any two are at least `gap` apart; a group of heights that would
    overlap stays centred on its mean."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    groups: list[list[int]] = []  # indices of heights, spaced by one gap
    for index in order:
        groups.append([index])
        while len(groups) > 1 and _ends(groups[-2], heights, gap)[1] + gap > _ends(groups[-1], heights, gap)[0]:
            groups[-2:] = [groups[-2] + groups[-1]]
    moved = dict.fromkeys(order, 0.0)
    for group in groups:
        lowest, _ = _ends(group, heights, gap)
        moved.update({index: lowest + number * gap for number, index in enumerate(group)})
    return [moved[index] for index in range(len(heights))]


def _ends(group: Sequence[int], heights: Sequence[float], gap: float) -> tuple[float, float]:
    """The lowest and the highest position of a group."""
    middle, half = sum(heights[index] for index in group) / len(group), (len(group) - 1) * gap / 2
    return middle - half, middle + half


def _check_n_series(n: int) -> None:
    if not 1 <= n <= MAX_SERIES:
        raise ConfigError(f"a plot shows 1 to {MAX_SERIES} series; got {n}: draw several plots")
