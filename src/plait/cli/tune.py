"""`plait tune`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.checks import parse_json
from plait.cli.errors import NOTHING_FOUND, say
from plait.cli.info import describe_size, describe_weights, params_lines, weight_lines
from plait.cli.options import AsJson, IndexPath, Model, Threads, Wait
from plait.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from plait import Index
    from plait.tune.fusion_weights import Fitted
    from plait.tune.recall import OnProgress, Tuned


def tune(
    index: IndexPath,
    recall: Annotated[float | None, typer.Option(help="The recall to reach, such as 0.9.")] = None,
    k: Annotated[int, typer.Option("-k", help="Documents that searches return.")] = 10,
    of: Annotated[
        str | None,
        typer.Option(
            metavar="vectors|codes",
            help="Measure recall against exhaustive search over the original vectors, or over the compressed codes.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Queries to tune with: one on each line, or JSON objects with text."),
    ] = None,
    n_queries: Annotated[int | None, typer.Option(help="Number of queries; 200, fewer for a large index.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for drawing queries.")] = 0,
    fusion: Annotated[
        bool, typer.Option("--fusion", help="Tune the fusion weights of mode hybrid on judged queries instead.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="With --fusion: a BEIR folder.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="With --fusion: which judgements.")] = "dev",
    fusion_method: Annotated[
        str | None, typer.Option(metavar="min-max|z|raw", help="With --fusion: how scores are normalised.")
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="If the recall is out of reach, save the best parameters.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the saved parameters and exit.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Delete the saved parameters.")] = False,
    as_json: AsJson = False,
    model: Model = None,
    threads: Threads = None,
    wait: Wait = 30.0,
) -> None:
    """Tune search to a recall, or fusion weights to judged queries.

    Finds the fastest search that reaches --recall, by measuring, and saves its parameters in the index; modes multi and
    hybrid then use them. Without --queries, queries are made from the documents. Exit code 1: the
    compressed vectors cannot reach the recall, and nothing was saved. With --fusion, fits the weights of hybrid search
    by nDCG@10 instead.

    \b
    Examples:
      plait tune my-index --recall 0.9
      plait tune my-index --recall 0.95 -k 100 --queries queries.txt
      plait tune my-index --fusion --data scifact --split dev
      plait tune my-index --show
    """
    import plait

    if (recall is not None) + show + reset + fusion != 1:
        raise ConfigError("choose one of --recall (with a number such as 0.9), --fusion, --show and --reset")
    if fusion != (data is not None):
        raise ConfigError(
            "--fusion and --data belong together: fusion weights are fitted on the judged queries of a BEIR folder"
        )
    with plait.open(index, model=model, n_threads=threads, read_only=show, write_timeout=wait) as opened:
        if reset:
            opened.reset_tuning()
        if show or reset:
            _print_saved(opened, as_json=as_json)
            return
        if data is not None:
            _tune_fusion(opened, data, split, fusion_method, as_json=as_json)
            return
        assert recall is not None
        texts = None if queries is None else read_queries(queries)
        with _progress() as on_progress:
            tuned = opened.tune(
                recall, k, queries=texts, n_queries=n_queries, seed=seed, of=of, best=best, on_progress=on_progress
            )
    _print_tuned(tuned, as_json=as_json)
    if not tuned.reached:
        raise typer.Exit(NOTHING_FOUND)


def read_queries(file: Path) -> list[str]:
    """One query on each line: its text, or a JSON object with `text`. Empty lines are skipped."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"cannot read queries from {file}: {error}") from None
    texts = []
    for number, line in enumerate(lines, 1):
        if line.startswith("{"):
            try:
                text = parse_json(line)["text"]
            except (ValueError, KeyError):
                raise SourceError(f"{file}, line {number}: expected an object with 'text'; got {line:.60}") from None
            if not isinstance(text, str) or not text.strip():
                raise SourceError(f"{file}, line {number}: 'text' must be text; got {text!r:.60}")
            texts.append(text)
        elif line:
            texts.append(line)
    return texts


def _print_saved(opened: Index, *, as_json: bool) -> None:
    facts = opened.info()
    if as_json:
        params, fitted = facts.tuned.to_dict(), facts.weights.to_dict()
        print(json.dumps(params if fitted is None else {**(params or {}), "weights": fitted}))
        return
    lines = params_lines(facts.tuned, facts.passages) + weight_lines(facts.weights)
    for line in lines or ["not tuned: searches use the defaults"]:
        print(line)


def _print_tuned(tuned: Tuned, *, as_json: bool) -> None:
    from plait.storage.saved_settings import SavedParams

    if as_json:
        print(json.dumps(dataclasses.asdict(tuned)))
    elif tuned.plan is not None:
        for line in params_lines(SavedParams(tuned.plan), tuned.plan.n_passages):
            print(line)
        print(f"took {tuned.seconds:.0f} s")
    if tuned.note:
        say(tuned.note)
    if not tuned.reached:
        say(_out_of_reach(tuned))


def _out_of_reach(tuned: Tuned) -> str:
    """Why the recall is out of reach, and what to do."""
    reason = (
        f"plait: a recall of {tuned.target_recall:g} is out of reach: the codes keep {tuned.codes_recall:.3f} of the "
        f"vectors' "
        f"best"
    )
    saved = "the best parameters were saved" if tuned.saved else "nothing was saved; --best saves the best parameters"
    if not tuned.remedies:
        return f"{reason}; {saved}"
    commands = ", ".join(
        f"plait compact {remedy.command} ({describe_size(remedy.n_bytes)} more)" for remedy in tuned.remedies
    )
    return (
        f"{reason}; {saved}. Build the index again, since codes are made from the original vectors, and compact it "
        f"with more bits: {commands}"
    )


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """One bar for all stages: the number of steps is not known in advance."""
    from plait.cli.progress import progress

    with progress("tune", "steps", total=None) as update:
        n_done = 0

        def on_progress(_what: str, _done: int, _total: int) -> None:
            nonlocal n_done
            n_done += 1
            update(n_done, n_done)

        yield on_progress


# -- fusion weights


def _tune_fusion(opened: Index, data: Path, split: str, method: str | None, *, as_json: bool) -> None:
    """Fits the weights on a BEIR folder, saves them if they beat the defaults, and prints the fit."""
    from plait.cli.progress import progress
    from plait.evaluate import load_beir

    judged = load_beir(data, split)
    with progress("scores", "queries", total=len(judged.queries)) as update:
        fitted, saved = opened.tune_fusion(
            judged.queries,
            judged.qrels,
            fusion=method,
            data=f"{data.name}, {split}",
            on_progress=lambda n_done: update(n_done, n_done),
        )
    if as_json:
        print(json.dumps({**dataclasses.asdict(fitted), "saved": saved is not None}))
        return
    _print_fit(fitted)
    if saved is None:
        say("the default weights do as well on queries that took no part in choosing; nothing was saved")


def _print_fit(fitted: Fitted) -> None:
    print(f"nDCG@10 while choosing, {fitted.fusion}:")
    for point in fitted.curve:
        print(f"  {point.ndcg:.4f}  {describe_weights(point.weights)}")
    print(f"on the other half of {fitted.n_queries} queries:")
    for kind, ndcg in fitted.alone.items():
        print(f"  {ndcg:.4f}  {kind} alone")
    print(f"  {fitted.default_ndcg:.4f}  default weights")
    print(f"  {fitted.ndcg:.4f}  {describe_weights(fitted.weights)}")
