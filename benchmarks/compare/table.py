"""Reports as tables of text: the same cells for the terminal and for the page."""

from __future__ import annotations

from typing import Any

from compare.curves import LEVELS, Front, front, latency_at, measure_of

Rows = list[list[str]]


def title(run: dict[str, Any]) -> str:
    corpus, threads = run["corpus"], run["threads"]
    several = f"{threads} threads" if threads > 1 else "1 thread"
    return f"{corpus['passages']:,} passages, {corpus['vectors']:,} vectors, {several}"


def latency_rows(run: dict[str, Any]) -> Rows:
    """A header and a row for each variant: its time in ms at each level, "never" where it does not get there, and
    "unknown" where a setting that was too slow to measure might."""
    by = measure_of(run)
    rows = [["engine", "bytes a vector", *(f"recall {level:g}" for level in LEVELS), "highest recall"]]
    for variant in run["variants"]:
        if variant["points"]:
            curve = front(variant["points"], by)
            cells = [cell(latency_at(curve, level), otherwise=missing(variant)) for level in LEVELS]
            rows.append([variant["name"], f"{variant['bytes_a_vector']:.0f}", *cells, highest(curve)])
    return rows


def ratio_rows(run: dict[str, Any]) -> Rows:
    """How many times longer each other engine takes than plait's best index at that recall, and than its best index
    that is no larger than theirs. Below 1, the other is faster."""
    by = measure_of(run)
    ours = [variant for variant in run["variants"] if is_plait(variant) and variant["points"]]
    rows = [["engine", "beside", *(f"recall {level:g}" for level in LEVELS)]]
    for variant in run["variants"]:
        if variant["engine"] == "plait" or not variant["points"]:
            continue
        theirs, most = front(variant["points"], by), variant["bytes_a_vector"]
        no_larger = [own for own in ours if own["bytes_a_vector"] <= most]
        for beside, beaten in (("any plait index", ours), ("one no larger", no_larger)):
            best = front([point for own in beaten for point in own["points"]], by)
            cells = [
                ratio(latency_at(theirs, level), latency_at(best, level), otherwise=missing(variant))
                for level in LEVELS
            ]
            rows.append([variant["name"], beside, *cells])
    return rows


def build_rows(run: dict[str, Any]) -> Rows:
    """An index that its engine did not build has no time of building; `notes` says how it was made."""
    rows = [["engine", "build s", "processor s", "peak MB", "disk MB", "bytes a vector", "MB while searching"]]
    for variant in run["variants"]:
        built, opened = variant["build"], variant["opened"]
        if "seconds" in built and opened:
            took = [f"{built[name]:.1f}" for name in ("seconds", "processor_seconds")]
            rows.append([
                variant["name"],
                *(["-"] * 3 if "note" in built else [*took, f"{built['peak_bytes'] / 1e6:,.0f}"]),
                f"{built['disk_bytes'] / 1e6:,.0f}",
                f"{variant['bytes_a_vector']:.1f}",
                f"{opened['resident_bytes'] / 1e6:,.0f}",
            ])  # fmt: skip
    return rows


def notes(run: dict[str, Any]) -> list[str]:
    """What an engine's rows do not say of its index."""
    return [
        f"{variant['name']}: {variant['build']['note']}" for variant in run["variants"] if "note" in variant["build"]
    ]


def failures(run: dict[str, Any]) -> list[str]:
    """What has no place in the tables, and why."""
    lines = [f"{variant['name']}: {variant['error']}" for variant in run["variants"] if variant["error"]]
    return lines + [
        f"{variant['name']} {point['settings']}: {point['queries']} queries in its time, p50 {cell(point['p50'])} ms"
        for variant in run["variants"]
        for point in variant["too_slow"]
    ]


def is_plait(variant: dict[str, Any]) -> bool:
    """plait's engine with the best instruction set; a forced one, or a call with documents, is a row but no measure
    for others."""
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
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) if not place else text.rjust(width)
                  for place, (text, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )  # fmt: skip
