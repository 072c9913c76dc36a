"""The report of a folder: Markdown, one HTML page and plots, from the results that lie in it and nothing else."""

from __future__ import annotations

from pathlib import Path

from plait.errors import InputError
from plait.evaluate.plots import check_file
from plait_reproduce.drawing import draw_all
from plait_reproduce.markdown import PLOTS, write_markdown
from plait_reproduce.page import write_page
from plait_reproduce.results import FOLDER, read_results

PAGE = "report.html"


def write_report(folder: str | Path) -> Path:
    """Writes the report anew and gives its page. InputError if there are no results."""
    folder = Path(folder)
    check_file("plot.svg")
    results = read_results(folder)
    if not results:
        raise InputError(f"{folder / FOLDER} holds no results; run plait reproduce first")
    drawings = draw_all(folder / PLOTS, results)
    write_markdown(folder, results)
    write_page(folder / PAGE, results, drawings)
    return folder / PAGE
