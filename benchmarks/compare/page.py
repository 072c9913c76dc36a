"""Fills a report into a page, between two marks; what stands around them is written by hand and stays."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from compare.curves import measure_of
from compare.table import Rows, build_rows, failures, latency_rows, notes, ratio_rows, title

START, END = "<!-- results: start -->", "<!-- results: end -->"
TIMES = {
    "p50": "Milliseconds for a query (p50)",
    "processor": "Milliseconds of processor time for a query (mean; the machine was busy with other work)",
}
NEVER = (
    'at a recall; "never" is an engine that does not reach it, "unknown" one that may with settings that were too slow:'
)
RATIO = (
    'Times that of plait, at the same recall; below 1 the other is faster, "only they" is a recall that plait does '
    "not reach:"
)


def fill(report: dict[str, Any], page: Path, *, plots: Path | None) -> None:
    text = page.read_text(encoding="utf-8")
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        sys.exit(f"{page} has no place for results: it needs the lines {START} and {END}")
    page.write_text(f"{before}{START}\n{results(report, page, plots)}\n{END}{after}", encoding="utf-8")


def results(report: dict[str, Any], page: Path, plots: Path | None) -> str:
    parts = [_machine(report["machine"])]
    for run in report["runs"]:
        parts += [f"### {title(run)}", _circumstances(run)]
        if plots is not None:
            from compare.plots import name_of

            picture = os.path.relpath(plots / f"{name_of(run)}.svg", page.parent)
            parts.append(f"![Recall of the exact top {run['k']} against time for a query]({picture})")
        parts += [f"{TIMES[measure_of(run)]} {NEVER}", markdown(latency_rows(run)), RATIO, markdown(ratio_rows(run))]
        parts += ["Building, and what it leaves:", markdown(build_rows(run))]
        if notes(run):
            parts.append("\n".join(f"- {line}" for line in notes(run)))
        if failures(run):
            parts += ["What failed, or took too long:", "\n".join(f"- {line}" for line in failures(run))]
    return "\n\n".join(parts)


def _machine(machine: dict[str, Any]) -> str:
    flags = ", ".join(machine.get("flags", [])) or "no vector extensions that are looked for"
    return (
        f"Measured on {machine.get('cpu', machine['system'])}, {machine['cpus']} processors ({flags}); plait "
        f"{machine['plait']} with its {machine['targets'][-1]} kernels, Python {machine['python']}."
    )


def _circumstances(run: dict[str, Any]) -> str:
    versions = {
        name: version
        for variant in run["variants"]
        for name, version in variant["build"].get("versions", {}).items()
        if name != "numpy"
    }
    asked = sorted({point["queries"] for variant in run["variants"] for point in variant["points"]})
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    several = " to ".join(map(str, dict.fromkeys(asked[:1] + asked[-1:])))
    threads = f"{run['build_threads']} thread{'' if run['build_threads'] == 1 else 's'}"
    rounds = f"{run['rounds']} round{'' if run['rounds'] == 1 else 's'}"
    return (
        f"{several} queries a setting, {rounds} in turns, load average {min(run['load']):.1f} to "
        f"{max(run['load']):.1f}, {max(run['steal']):.1%} of processor time taken by other machines at most; built "
        f"with {threads}.{f' {named}.' if named else ''}"
    )


def markdown(rows: Rows) -> str:
    header, *others = rows
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *others))
