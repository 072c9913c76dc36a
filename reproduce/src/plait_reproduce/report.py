"""The report in Markdown with plots: an overview and a page for each family of papers, written from the results alone.

TO/results/C3.json          one claim each; `plait_reproduce.results` writes them
TO/report/README.md         the overview
TO/report/colbert.md        one page for each family
TO/report/plots/C3-1.png    its plots
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from plait.errors import InputError
from plait.evaluate import plots
from plait.evaluate.compare import Mean
from plait.evaluate.plots import check_file
from plait.evaluate.run_cache import hash_of
from plait_reproduce.experiment import FAMILIES
from plait_reproduce.results import RESULTS, Result, read_results
from plait_reproduce.verdict import RULE, VERDICTS, shown

REPORT = "report"
PLOTS = "plots"
PLOT_VERSION = 5  # raise it when the drawing code changes: unchanged figures are not drawn again
PLOT_DPI = 100


def write_report(folder: str | Path) -> Path:
    """Writes FOLDER/report from FOLDER/results and returns its overview; InputError if there are no results."""
    folder = Path(folder)
    check_file("plot.png")
    results = read_results(folder)
    if not results:
        raise InputError(f"{folder / RESULTS} holds no results; run plait reproduce first")
    report = folder / REPORT
    draw_all(report / PLOTS, results)
    overview_file = report / "README.md"
    overview_file.write_text(overview(results), encoding="utf-8")
    for family, group in groupby(results, key=lambda result: str(result["family"])):
        (report / f"{family}.md").write_text(family_page(family, list(group)), encoding="utf-8")
    return overview_file


def overview(results: Sequence[Result]) -> str:
    rows = [
        f"| [{result['id']}]({result['family']}.md#{anchor(result)}) | {cell(result['claim'])} | "
        f"{cell(result['paper'])} | {cell(result['ours'])} | **{result['verdict']}** |"
        for result in results
    ]
    return "\n".join(
        [
            "# The papers' claims in miniature",
            "",
            *wrapped(summary(results)),
            "",
            *wrapped(how_to_read()),
            "",
            "The numbers are in [results](../results); [the README](../README.md) says how to run this again.",
            "",
            "| | claim | paper | here | verdict |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## How a verdict is reached",
            "",
            *wrapped(RULE),
            "",
        ]
    )


def summary(results: Sequence[Result]) -> str:
    """The number of claims by verdict, and when and on which machine they were run."""
    counts = {verdict: sum(result["verdict"] == verdict for result in results) for verdict in VERDICTS}
    plural = {verdict: verdict if n == 1 else verdict.replace("holds", "hold") for verdict, n in counts.items()}
    counted = ", ".join(f"{n} {plural[verdict]}" for verdict, n in counts.items())
    dates = sorted({result["date"] for result in results})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else "never"
    on = "; ".join(sorted({result["machine"] for result in results}))
    code = ", ".join(sorted({result["version"] for result in results}))
    models = ", ".join(sorted({result["model"] for result in results}))
    tiers = ", ".join(sorted({result["tier"] for result in results}))
    return (
        f"{len(results)} claims were run: {counted}. Run {when} with plait {code} and the model {models}, "
        f"tier {tiers}, on {on}."
    )


def how_to_read() -> str:
    return (
        "These are small experiments: parts of data sets that a small machine can encode, and a small encoder that "
        "none of the papers used. A claim that holds here shows that the mechanism works in this code; a claim that "
        "is not seen here may hold at the paper's size. Each claim says what differs. Intervals are 95%, by bootstrap "
        "over queries (and seeds, where training is judged)."
    )


def family_page(family: str, results: Sequence[Result]) -> str:
    lines = [f"# {FAMILIES[family]}", "", "[All claims](README.md)", ""]
    for result in results:
        lines += section(result)
    return "\n".join(lines)


def section(result: Result) -> list[str]:
    lines = [f"## {result['id']}: {result['verdict']}", "", *wrapped(result["claim"]), ""]
    lines += [
        "| | |",
        "|---|---|",
        f"| the paper | {cell(result['paper'])} |",
        f"| here | {cell(result['ours'])} |",
        f"| measure | {cell(result['measure'])} |",
        f"| expected | {cell(result['expects'])} |",
        f"| data | {', '.join(result['sets']) or 'none'} |",
        f"| what differs | {cell(result['differs'])} |",
        f"| run | {ran(result)} |",
        f"| command | `{result['command']}` |",
        "",
        "| check | value | 95% interval | bar | verdict |",
        "|---|---:|---:|---:|---|",
    ]
    lines += ["| " + " | ".join(cell(part) for part in check_cells(check)) + " |" for check in result["checks"]]
    lines.append("")
    for table in result["tables"]:
        lines += [f"**{table['title']}**", "", "| " + " | ".join(map(cell, table["header"])) + " |"]
        lines.append("|" + "|".join(["---"] + ["---:"] * (len(table["header"]) - 1)) + "|")
        lines += ["| " + " | ".join(map(cell, row)) + " |" for row in table["rows"]] + [""]
    for number, figure in enumerate(result["figures"], 1):
        lines += [f"![{figure['title']}]({PLOTS}/{plot_name(result, number)})", "", f"*{figure['title']}*", ""]
    for note in result["notes"]:
        lines += [*wrapped(note), ""]
    return lines


def ran(result: Result) -> str:
    seconds = sum(result["seconds"].values())
    took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return f"{result['date']}, tier {result['tier']}, {len(result['seconds'])} arms in {took}, {result['machine']}"


def check_cells(check: dict[str, Any]) -> list[str]:
    """Cells: check, value, interval, bar, verdict."""
    unit = check["unit"]
    interval = f"{shown(check['low'], unit)} to {shown(check['high'], unit)}" if check["n"] else "counted"
    bar = f"above {shown(check['bar'], unit)}"
    if check["weak"] is not None:
        bar += f" (weakly {shown(check['weak'], unit)})"
    return [check["what"], shown(check["value"], unit), interval, bar, check["verdict"]]


def anchor(result: Result) -> str:
    """GitHub's anchor of the heading of `section`."""
    return f"{result['id']}: {result['verdict']}".lower().replace(":", "").replace(" ", "-")


def cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def wrapped(text: str, width: int = 118) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)


def draw_all(folder: Path, results: Sequence[Result]) -> None:
    """Draws every figure of the results into the folder, and removes plots that no result has."""
    folder.mkdir(parents=True, exist_ok=True)
    names = set()
    for result in results:
        for number, figure in enumerate(result["figures"], 1):
            names.add(plot_name(result, number))
            _draw(folder / plot_name(result, number), figure)
    for old in folder.glob("*.png"):
        if old.name not in names:
            old.unlink()


def plot_name(result: Result, number: int) -> str:
    return f"{result['id']}-{number}.png"


def _draw(file: Path, figure: dict[str, Any]) -> None:
    """Draws a figure, unless the file already shows this very figure: another matplotlib would change every byte."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    figure_hash = hash_of([PLOT_VERSION, figure])
    if file.exists():
        with Image.open(file) as image:
            if image.info.get("figure") == figure_hash:
                return
    png = render(figure, "png", metadata={"Software": None})
    # A palette of 64 colours takes a third of the bytes and looks the same.
    with Image.open(io.BytesIO(png)) as image:
        info = PngInfo()
        info.add_text("figure", figure_hash)
        image.convert("RGB").quantize(64).save(file, optimize=True, pnginfo=info)


def render(figure: dict[str, Any], kind: str, *, metadata: dict[str, Any]) -> bytes:
    """A figure of a result as PNG or SVG; the same figure gives the same bytes."""
    if figure["bars"]:
        series = {label: [Mean(**bar) for bar in bars] for label, bars in figure["bars"].items()}
        plot = plots.bars(figure["groups"], series, y_label=figure["y_label"])
    else:
        lines = [plots.Curve(**line) for line in figure["lines"]]
        logs = {"log_x": figure["log_x"], "log_y": figure.get("log_y", False)}
        plot = plots.curves(lines, x_label=figure["x_label"], y_label=figure["y_label"], **logs)
    written = io.BytesIO()
    with plots.style():
        plot.savefig(written, format=kind, dpi=PLOT_DPI, metadata=metadata, bbox_inches="tight")
    return written.getvalue()
