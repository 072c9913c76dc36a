"""`plait reproduce`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import StoppedError, say
from plait.cli.options import Model, Threads
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait_reproduce.experiment import Experiment


def reproduce(
    claims: Annotated[
        list[str] | None,
        typer.Argument(metavar="CLAIM", help="Such as C3 or X2; all of them if none is named.", show_default=False),
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The folder that holds all sets.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small cuts of the sets: minutes. The default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Whole sets and longer training: hours.")] = False,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the results and the report go.")] = Path(
        "reproduction"
    ),
    work: Annotated[Path, typer.Option(metavar="FOLDER", help="Where vectors and finished arms are kept.")] = Path(
        ".reproduce"
    ),
    listed: Annotated[bool, typer.Option("--list", help="Show the claims and what they take; run nothing.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="Write the report anew from its results; run nothing.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML page, too.", show_default=False)
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run finished arms again.")] = False,
    model: Model = None,
    threads: Threads = None,
) -> None:
    """Test the papers' claims in miniature, and write a report.

    A claim compares a few arms on small parts of real data sets, and a rule gives the verdict. Every finished arm is
    saved under --work, so the same command continues where it was stopped. The results go to TO/results as JSON, the
    report to TO/report as Markdown with plots.

    \b
    Examples:
      plait reproduce --list
      plait reproduce --quick --data path/to/data
      plait reproduce C3 W5 --quick --data path/to/data
      plait reproduce --report
    """
    from plait_reproduce.claims import select

    if quick and full:
        raise ConfigError("--quick and --full are two tiers; give one of them")
    tier = "full" if full else "quick"
    if report:
        print(_write(to, html))
        return
    selected = select(claims or [])
    if listed:
        _list(selected)
        return
    if data is None:
        raise ConfigError("say where the sets are: --data FOLDER")
    from plait.evaluate.plots import check_file
    from plait_reproduce.runner import run_all
    from plait_reproduce.workbench import Workbench

    check_file("plot.svg")
    bench = Workbench(data, work, tier=tier, model=model, n_threads=threads, say=say)
    began = time.perf_counter()
    try:
        results = run_all(selected, bench, to=to, fresh=fresh, say=say)
    except KeyboardInterrupt:
        raise StoppedError(f"stopped; finished arms are in {work}: the same command goes on from there") from None
    say(f"{len(results)} claims in {(time.perf_counter() - began) / 60:.1f} minutes")
    print(_write(to, html))


def _write(folder: Path, html: Path | None) -> Path:
    """Writes the report of a folder's results, and the HTML page if one is named; returns the Markdown overview."""
    from plait_reproduce.report import write_report
    from plait_reproduce.report_html import write_page
    from plait_reproduce.results import read_results

    overview = write_report(folder)
    if html is not None:
        write_page(html, read_results(folder))
    return overview


def _list(selected: list[Experiment]) -> None:
    print(f"{'claim':<6} {'quick':>7} {'full':>7}  what is claimed")
    for experiment in selected:
        quick, full = (f"{minutes:g} min" if minutes is not None else "-" for minutes in experiment.minutes)
        print(f"{experiment.id:<6} {quick:>7} {full:>7}  {experiment.claim}")
