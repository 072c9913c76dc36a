"""The report as Markdown: an overview, and a page for each family of papers. Written from results alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from plait_reproduce.drawing import plot_name
from plait_reproduce.experiment import FAMILIES
from plait_reproduce.results import Result
from plait_reproduce.verdict import RULE, VERDICTS, shown

PLOTS = "plots"


def write_markdown(folder: Path, results: Sequence[Result]) -> list[Path]:
    """Writes README.md and a page for each family; gives the files."""
    written = [folder / "README.md"]
    written[0].write_text(overview(results), encoding="utf-8")
    for family, own in groupby(results, key=lambda result: str(result["family"])):
        page = folder / f"{family}.md"
        page.write_text(family_page(family, list(own)), encoding="utf-8")
        written.append(page)
    return written


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
            "`report.html` is the same as one page, with all plots. `results/` holds the numbers of both.",
            "[How to run it again](../reproduction.md).",
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
    """How many claims there are of each verdict, when and on what they were run."""
    counts = {verdict: sum(result["verdict"] == verdict for result in results) for verdict in VERDICTS}
    named = {verdict: verdict if n == 1 else verdict.replace("holds", "hold") for verdict, n in counts.items()}
    counted = ", ".join(f"{n} {named[verdict]}" for verdict, n in counts.items())
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
        "These are miniatures: small sets, cut to what a small machine can encode, and a small encoder that none of "
        "the papers used. A claim that holds here shows that the mechanism works in this code; one that is not seen "
        "here may well hold at the paper's size. Each claim says what differs. Intervals are 95%, by bootstrap over "
        "queries (and seeds, where training is judged)."
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
    """What, value, interval, bar, verdict."""
    unit = check["unit"]
    interval = f"{shown(check['low'], unit)} to {shown(check['high'], unit)}" if check["n"] else "counted"
    bar = f"above {shown(check['bar'], unit)}"
    if check["weak"] is not None:
        bar += f" (weakly {shown(check['weak'], unit)})"
    return [check["what"], shown(check["value"], unit), interval, bar, check["verdict"]]


def anchor(result: Result) -> str:
    """The anchor that a heading of `section` has on GitHub."""
    return f"{result['id']}: {result['verdict']}".lower().replace(":", "").replace(" ", "-")


def cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def wrapped(text: str, width: int = 118) -> list[str]:
    import textwrap

    return textwrap.wrap(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)
