"""`plait tune`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import NOTHING_FOUND, say
from plait.cli.fitting import fit, weight_lines
from plait.cli.info import size
from plait.cli.options import AsJson, IndexPath, Model, Threads
from plait.cli.plan import plan_lines
from plait.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from plait import Index
    from plait.tune.recall import OnProgress, Tuned


def tune(
    index: IndexPath,
    recall: Annotated[float | None, typer.Option(help="The recall to reach, such as 0.9.")] = None,
    k: Annotated[int, typer.Option("-k", help="The number of documents that searches ask for.")] = 10,
    of: Annotated[
        str | None,
        typer.Option(
            metavar="vectors|codes",
            help="What it is a share of: the best by the vectors as they were, or by their codes.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Queries to tune with: one a line, or objects with text, as in BEIR."),
    ] = None,
    n_queries: Annotated[int | None, typer.Option(help="How many queries; 200, or fewer for a large index.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="For drawing queries.")] = 0,
    weights: Annotated[
        bool, typer.Option("--weights", help="Fit the weights of strands on judged queries, for mode hybrid.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="With --weights: a BEIR folder.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="With --weights: which judgements.")] = "dev",
    fusion: Annotated[
        str | None, typer.Option(metavar="min-max|z|raw", help="With --weights: how scores are summed up.")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="If it is out of reach, save the best there is.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show the saved plan and do nothing.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Forget the saved plan.")] = False,
    as_json: AsJson = False,
    model: Model = None,
    threads: Threads = None,
) -> None:
    """Find the fastest search that reaches a recall, by measuring, and save it in the index.

    Modes multi and hybrid then use it. Without --queries they are made from the documents. Exit code 1: the recall is
    out of reach of the compressed vectors, and nothing was saved.

    \b
    Examples:
      plait tune my-index --recall 0.9
      plait tune my-index --recall 0.95 -k 100 --queries queries.txt
      plait tune my-index --weights --data scifact --split dev
      plait tune my-index --show
    """
    import plait

    if (recall is not None) + show + reset + weights != 1:
        raise ConfigError("say what to do: --recall with a number such as 0.9, or --weights, or --show, or --reset")
    if weights != (data is not None):
        raise ConfigError(
            "--weights and --data belong together: weights are fitted on the judged queries of a BEIR folder; without "
            "one, hybrid search has default weights"
        )
    with plait.open(index, model=model, n_threads=threads, read_only=show) as opened:
        if reset:
            opened.reset_tuning()
        if show or reset:
            _show(opened, as_json=as_json)
            return
        if data is not None:
            fit(opened, data, split, fusion, as_json=as_json)
            return
        assert recall is not None
        texts = None if queries is None else read_queries(queries)
        with _progress() as on_progress:
            done = opened.tune(
                recall, k, queries=texts, n_queries=n_queries, seed=seed, of=of, best=best, on_progress=on_progress
            )
    _print(done, as_json=as_json)
    if not done.reached:
        raise typer.Exit(NOTHING_FOUND)


def read_queries(file: Path) -> list[str]:
    """One query a line, or a JSON object with `text` on each; empty lines are passed over."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read queries from {file}: {error}") from None
    texts = []
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            try:
                text = json.loads(line)["text"]
            except (ValueError, KeyError):
                raise SourceError(f"{file}, line {number}: expected an object with 'text'; got {line:.60}") from None
            if not isinstance(text, str) or not text.strip():
                raise SourceError(f"{file}, line {number}: 'text' must be text; got {text!r:.60}")
            texts.append(text)
        elif line:
            texts.append(line)
    return texts


def _show(opened: Index, *, as_json: bool) -> None:
    from plait.storage.fusion_weights import as_fields as weight_fields
    from plait.storage.tuned_params import as_fields

    facts = opened.info()
    if as_json:
        plan = as_fields(facts.tuned)
        fitted = weight_fields(facts.weights)
        print(json.dumps(plan if fitted is None else {**(plan or {}), "weights": fitted}))
        return
    lines = plan_lines(facts.tuned, facts.passages) + weight_lines(facts.weights)
    for line in lines or ["not tuned: searches use the defaults"]:
        print(line)


def _print(done: Tuned, *, as_json: bool) -> None:
    from plait.storage.tuned_params import SavedParams

    if as_json:
        print(json.dumps(dataclasses.asdict(done)))
    elif done.plan is not None:
        for line in plan_lines(SavedParams(done.plan), done.plan.n_passages):
            print(line)
        print(f"took {done.seconds:.0f} s")
    if done.note:
        say(done.note)
    if not done.reached:
        say(refusal(done))


def refusal(done: Tuned) -> str:
    """Why a recall is out of reach, and what to do."""
    said = f"plait: a recall of {done.asked:g} is out of reach: the codes keep {done.codes_recall:.3f} of the vectors' best"
    kept = "the best there is was saved" if done.saved else "nothing was saved; --best would save the best there is"
    if not done.remedies:
        return f"{said}; {kept}"
    ways = ", ".join(f"plait compact {remedy.command} ({size(remedy.n_bytes)} more)" for remedy in done.remedies)
    return (
        f"{said}; {kept}. Build the index again, since codes are made from the vectors as they were, and compact it "
        f"with finer ones: {ways}"
    )


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """One bar for the whole: four parts, of which the first and the third are the longest."""
    from plait.cli.progress import progress

    with progress("tune", "steps", total=None) as update:
        n_done = 0

        def on_progress(_what: str, _done: int, _total: int) -> None:
            nonlocal n_done
            n_done += 1
            update(n_done, n_done)

        yield on_progress
