"""Tables of a report for the terminal and for a documentation page: latency at recall levels, ratios, builds, failures.

Latency at a recall is read from the front: the measured points that no other point beats in both recall and time.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LEVELS = (0.80, 0.875, 0.90, 0.91, 0.95, 0.99)

Front = list[tuple[float, float]]  # (recall, milliseconds), both rising


def front(points: Sequence[dict[str, Any]], by: str = "p50") -> Front:
    """The points that no other beats in both recall and time; `by` is "p50" or "processor"."""
    kept_points: Front = []
    for point in sorted(points, key=lambda point: (point[by], -point["recall"])):
        if not kept_points or point["recall"] > kept_points[-1][0]:
            kept_points.append((point["recall"], point[by]))
    return kept_points


def measure_of(run: dict[str, Any]) -> str:
    """The time that a run is judged by: p50, or CPU time if other load disturbed a run of one thread.

    A short query fits between two time slices of a busy processor and a long one does not, so wall time would favour
    the faster engine. One engine runs at a time: a load well above its threads comes from other work.
    """
    return "processor" if run["threads"] == 1 and is_busy(run) else "p50"


def is_busy(run: dict[str, Any]) -> bool:
    return bool(max(run["load"]) > run["threads"] + 1)


def latency_at(curve: Front, level: float) -> float | None:
    """Milliseconds for a recall of at least `level`; None if the front never reaches it.

    Between two points, the logarithm of the time is interpolated. Below the first point, its time is used: nothing
    faster was measured.
    """
    before: tuple[float, float] | None = None
    for recall, milliseconds in curve:
        if recall >= level:
            if before is None or recall == level:
                return milliseconds
            share = (level - before[0]) / (recall - before[0])
            return math.exp((1 - share) * math.log(before[1]) + share * math.log(milliseconds))
        before = (recall, milliseconds)
    return None


Rows = list[list[str]]


def title(run: dict[str, Any]) -> str:
    corpus, threads = run["corpus"], run["threads"]
    several = f"{threads} threads" if threads > 1 else "1 thread"
    return f"{corpus['passages']:,} passages, {corpus['vectors']:,} vectors, {several}"


def latency_rows(run: dict[str, Any]) -> Rows:
    """A header, then one row per variant: milliseconds at each level; "never" if it does not reach the level, "unknown"
    if a setting that was too slow to measure might."""
    by = measure_of(run)
    rows = [["engine", "bytes a vector", *(f"recall {level:g}" for level in LEVELS), "highest recall"]]
    for variant in run["variants"]:
        if variant["points"]:
            curve = front(variant["points"], by)
            cells = [cell(latency_at(curve, level), otherwise=missing(variant)) for level in LEVELS]
            rows.append([variant["name"], f"{variant['bytes_per_vector']:.0f}", *cells, highest(curve)])
    return rows


def ratio_rows(run: dict[str, Any]) -> Rows:
    """How many times longer each other engine takes than the best plait index at that recall, and than the best plait
    index that is no larger than theirs. Below 1 the other engine is faster."""
    by = measure_of(run)
    ours = [variant for variant in run["variants"] if is_plait(variant) and variant["points"]]
    rows = [["engine", "beside", *(f"recall {level:g}" for level in LEVELS)]]
    for variant in run["variants"]:
        if variant["engine"] == "plait" or not variant["points"]:
            continue
        theirs, most = front(variant["points"], by), variant["bytes_per_vector"]
        no_larger = [variant for variant in ours if variant["bytes_per_vector"] <= most]
        for beside, beaten in (("any plait index", ours), ("one no larger", no_larger)):
            best = front([point for run in beaten for point in run["points"]], by)
            cells = [
                ratio(latency_at(theirs, level), latency_at(best, level), otherwise=missing(variant))
                for level in LEVELS
            ]
            rows.append([variant["name"], beside, *cells])
    return rows


def build_rows(run: dict[str, Any]) -> Rows:
    """Build time and size. An index that its engine did not build has no time; `notes` says how it was built."""
    rows = [["engine", "build s", "processor s", "peak MB", "disk MB", "bytes a vector", "MB while searching"]]
    for variant in run["variants"]:
        built, opened = variant["build"], variant["opened"]
        if "seconds" in built and opened:
            took = [f"{built[name]:.1f}" for name in ("seconds", "processor_seconds")]
            rows.append([
                variant["name"],
                *(["-"] * 3 if "note" in built else [*took, f"{built['peak_bytes'] / 1e6:,.0f}"]),
                f"{built['disk_bytes'] / 1e6:,.0f}",
                f"{variant['bytes_per_vector']:.1f}",
                f"{opened['resident_bytes'] / 1e6:,.0f}",
            ])  # fmt: skip
    return rows


def notes(run: dict[str, Any]) -> list[str]:
    """What the tables do not say about an index."""
    return [
        f"{variant['name']}: {variant['build']['note']}" for variant in run["variants"] if "note" in variant["build"]
    ]


def failures(run: dict[str, Any]) -> list[str]:
    """Variants that are not in the tables, and why."""
    lines = [f"{variant['name']}: {variant['error']}" for variant in run["variants"] if variant["error"]]
    return lines + [
        f"{variant['name']} {point['settings']}: {point['queries']} queries in its time, p50 {cell(point['p50'])} ms"
        for variant in run["variants"]
        for point in variant["too_slow"]
    ]


def is_plait(variant: dict[str, Any]) -> bool:
    """plait's engine with the best instruction set. A forced instruction set, or a call that loads documents, is a row
    but not a baseline."""
    return variant["engine"] == "plait" and "," not in variant["name"]


def missing(variant: dict[str, Any]) -> str:
    return "unknown" if variant["too_slow"] else "never"


def cell(milliseconds: float | None, *, otherwise: str = "never") -> str:
    if milliseconds is None:
        return otherwise
    return f"{milliseconds:.2f}" if milliseconds < 10 else f"{milliseconds:.0f}"


def highest(curve: Front) -> str:
    return f"{curve[-1][0]:.3f} ({cell(curve[-1][1])} ms)"


def ratio(theirs: float | None, ours: float | None, *, otherwise: str) -> str:
    if theirs is None:
        return otherwise if ours is not None else "neither"
    return "only they" if ours is None else f"{theirs / ours:.1f}"


def text_tables(report: dict[str, Any]) -> str:
    parts = []
    for run in report["runs"]:
        parts.append(f"# {title(run)}; load {run['load']}, by {measure_of(run)}")
        parts += [aligned(rows) for rows in (latency_rows(run), ratio_rows(run), build_rows(run))]
        parts += notes(run) + failures(run)
    return "\n\n".join(parts)


def aligned(rows: Rows) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) if not column else text.rjust(width)
                  for column, (text, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )  # fmt: skip


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
            from benchmarks.engine.plots import name_of

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
    counts = sorted({point["queries"] for variant in run["variants"] for point in variant["points"]})
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    several = " to ".join(map(str, dict.fromkeys(counts[:1] + counts[-1:])))
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
