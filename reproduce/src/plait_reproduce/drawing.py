"""Figures of results as SVG, in the one style of all plots. A drawing that lies there already is not drawn again."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.evaluate import plots
from plait.evaluate.compare import Mean
from plait.evaluate.run_cache import hash_of
from plait_reproduce.results import Result

VERSION = 4  # raised when the same figure is to be drawn otherwise


def draw_all(folder: Path, results: Sequence[Result]) -> dict[str, str]:
    """The drawings of all figures, by file name, written to the folder; others are removed from it."""
    folder.mkdir(parents=True, exist_ok=True)
    drawings = {}
    for result in results:
        for number, figure in enumerate(result["figures"], 1):
            name = plot_name(result, number)
            drawings[name] = _drawn(folder / name, figure)
    for old in folder.glob("*.svg"):
        if old.name not in drawings:
            old.unlink()
    return drawings


def plot_name(result: Result, number: int) -> str:
    return f"{result['id']}-{number}.svg"


def _drawn(file: Path, figure: dict[str, Any]) -> str:
    mark = f"<!-- {hash_of([VERSION, figure])} -->\n"
    if file.exists():
        there = file.read_text(encoding="utf-8")
        if there.endswith(mark):
            return there
    svg = svg_of(figure) + mark
    file.write_text(svg, encoding="utf-8")
    return svg


def svg_of(figure: dict[str, Any]) -> str:
    """A figure as it stands in a result; the same figure is the same text."""
    if figure["bars"]:
        series = {label: [Mean(**bar) for bar in bars] for label, bars in figure["bars"].items()}
        drawn = plots.bars(figure["groups"], series, y_label=figure["y_label"])
    else:
        lines = [plots.Curve(**line) for line in figure["lines"]]
        logs = {"log_x": figure["log_x"], "log_y": figure.get("log_y", False)}
        drawn = plots.curves(lines, x_label=figure["x_label"], y_label=figure["y_label"], **logs)
    written = io.StringIO()
    with plots.style():
        drawn.savefig(written, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return written.getvalue()


def inline(svg: str, prefix: str) -> str:
    """The drawing as part of a page: without the head of a file, and with ids that no other drawing has."""
    body = svg[svg.index("<svg") : svg.rindex("</svg>") + len("</svg>")]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'(xlink:href="#|url\(#)([^")]+)', rf"\1{prefix}-\2", body)
    return re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
