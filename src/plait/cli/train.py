"""`plait train`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import StoppedError, say
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.train.loop import StepReport
    from plait.train.recipe import Recipe
    from plait.train.run import RunCallbacks, RunResult
    from plait.train.start import Origin, StartingModel

REQUIRED_PACKAGES = ("torch", "transformers", "accelerate", "safetensors", "onnx")
_LINE_INTERVAL = 10.0  # seconds between lines if there is no terminal


def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe (TOML file).", show_default=False)],
    to: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="The folder of the run; by default runs/RECIPE."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in RUN.")] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a value of the recipe; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the recipe, print it with all defaults, and exit.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE", help="cpu or cuda; by default the GPU if torch has one, else the CPU.", show_default=False
        ),
    ] = None,
) -> None:
    """Train a model with a recipe.

    RUN receives the recipe with all defaults, package versions, curves.jsonl (and curves.png, with matplotlib), a
    checkpoint for --resume, and the models: best, by the measure of the recipe, and final. A recipe with model.start
    starts from a model of another library, heads included, in any layout that plait convert reads. Needs pip install
    'plait[train]'.

    \b
    Examples:
      plait train recipes/tiny.toml --to runs/tiny
      plait train recipes/m3.toml --set optimiser.lr=1e-5
      plait train recipes/m3.toml --to runs/m3 --resume
      plait train my-recipe.toml --set model.start=BAAI/bge-m3
    """
    _check_installed()
    from plait.train.build import check_plan, start_of
    from plait.train.devices import check_device
    from plait.train.recipe import read_recipe

    check_device(device)
    read = read_recipe(recipe, change or [])
    check_plan(read)
    if dry_run:
        print(read.toml(), end="")
        return
    folder = to or Path("runs") / recipe.stem
    start = _read_start(start_of(read)) if start_of(read) else None
    origin = check_plan(read, start)
    command = _resume_command(recipe, folder, change or [])
    _print_result(_trained(read, folder, start, origin, device=device, resumed=resume, command=command))


def _read_start(name: str) -> StartingModel:
    from plait.convert.start import read_start

    return read_start(name, on_stage=say)


def _check_installed() -> None:
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"training needs {', '.join(missing)}; install with: pip install 'plait[train]'")


def _resume_command(recipe: Path, folder: Path, changes: list[str]) -> str:
    """The command that continues the run."""
    words = ["plait", "train", str(recipe), "--to", str(folder)]
    for change in changes:
        words += ["--set", f"'{change}'"]
    return " ".join([*words, "--resume"])


def _trained(
    recipe: Recipe,
    folder: Path,
    start: StartingModel | None,
    origin: Origin | None,
    *,
    device: str | None,
    resumed: bool,
    command: str,
) -> RunResult:
    from plait.train.build import build
    from plait.train.run import Run

    with _watching() as watch:
        try:
            run = Run(recipe, folder, partial(build, start=start), watch, resumed=resumed, device=device)
            if origin is not None and run.is_first and not resumed:
                for line in origin.lines():
                    say(line)
            return run.train()
        except KeyboardInterrupt:
            raise StoppedError(f"stopped; the run is saved in {folder}. To continue: {command}") from None


def _print_result(result: RunResult) -> None:
    if not result.is_first:
        return
    state = result.state
    best = "" if state.best is None else f"; best {state.best:.4f} at step {state.best_step:,}, in {result.folder}/best"
    print(f"{result.folder}: {state.step:,} steps{best}; the last weights are in {result.folder}/final")
    if not result.plotted:
        say("curves.png was left out: it needs matplotlib (pip install 'plait[eval]')")


@contextmanager
def _watching() -> Iterator[RunCallbacks]:
    """Shows step, loss, rate and time left: in a progress bar on a terminal, elsewhere as a line every ten seconds."""
    from plait.train.run import RunCallbacks

    if not sys.stderr.isatty():
        yield RunCallbacks(on_step=_Lines().on_step, on_measure=_say_measure)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=None), TimeElapsedColumn()]
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("training", total=None)

        def on_step(report: StepReport) -> None:
            rate = report.n_pairs / max(report.seconds, 1e-9)
            shown = f"step {report.step:,}/{report.n_steps:,}  loss {report.loss:.4f}  {rate:,.0f} pairs/s"
            bar.update(task, total=report.n_steps, completed=report.step, description=shown)

        def on_measure(step: int, measure: str, value: float, best: bool) -> None:
            bar.console.print(_measured(step, measure, value, best), highlight=False)

        def on_mined(what: str, n_done: int) -> None:
            bar.update(task, description=f"{what}: {n_done:,} queries")

        yield RunCallbacks(on_step=on_step, on_measure=on_measure, on_mined=on_mined)


class _Lines:
    """Prints a line at intervals."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._first_step: int | None = None

    def on_step(self, report: StepReport) -> None:
        now = time.monotonic()
        if self._first_step is None:
            self._first_step = report.step - 1
        if now - self._last < _LINE_INTERVAL and report.step != report.n_steps:
            return
        self._last = now
        left = (report.n_steps - report.step) * (now - self._began) / max(1, report.step - self._first_step)
        rate = report.n_pairs / max(report.seconds, 1e-9)
        say(f"step {report.step:,}/{report.n_steps:,}  loss {report.loss:.4f}  {rate:,.0f} pairs/s  {left:,.0f} s left")


def _say_measure(step: int, measure: str, value: float, best: bool) -> None:
    say(_measured(step, measure, value, best))


def _measured(step: int, measure: str, value: float, best: bool) -> str:
    return f"step {step:,}: {measure} {value:.4f}{' (best so far)' if best else ''}"
