"""Figures of results as SVG, in the one style of all plots."""

from __future__ import annotations

import io
import re
from typing import Any

from plait.evaluate import plots
from plait.evaluate.compare import Mean


def svg_of(figure: dict[str, Any]) -> str:
    """A figure as it stands in a result; the same figure is the same text."""
    if figure["bars"]:
        series = {label: [Mean(**bar) for bar in bars] for label, bars in figure["bars"].items()}
        drawn = plots.bars(figure["groups"], series, y_label=figure["y_label"])
    else:
        lines = [plots.Curve(**line) for line in figure["lines"]]
        drawn = plots.curves(lines, x_label=figure["x_label"], y_label=figure["y_label"], log_x=figure["log_x"])
    written = io.StringIO()
    with plots.style():
        drawn.savefig(written, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return written.getvalue()


def inline(svg: str, prefix: str) -> str:
    """The drawing as part of a page: without the head of a file, and with ids that no other drawing has."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'(xlink:href="#|url\(#)([^")]+)', rf"\1{prefix}-\2", body)
    return re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
