"""`plait compare`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import say
from plait.cli.options import AsJson
from plait.errors import InputError

if TYPE_CHECKING:
    from plait.evaluate import Comparison, Qrels, Run


class Correction(StrEnum):
    holm = "holm"
    bonferroni = "bonferroni"
    none = "none"


def compare_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="TREC runs, the baseline first.")],
    qrels: Annotated[
        str, typer.Option(metavar="FILE|FOLDER", help="Judgements: a TREC or TSV file, or a set as for plait eval.")
    ],
    split: Annotated[str, typer.Option(help="With a set: which of its judgements.")] = "test",
    measure: Annotated[
        list[str] | None, typer.Option(help="Such as nDCG@10 (the default), R@100, AP; may be given more than once.")
    ] = None,
    baseline: Annotated[Path | None, typer.Option(metavar="RUN", help="What to compare with.")] = None,
    correction: Annotated[Correction, typer.Option(help="For many comparisons.")] = Correction.holm,
    queries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Texts of the queries: BEIR's .jsonl, or .tsv.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Shows titles of documents: a BEIR folder or its corpus file.")
    ] = None,
    moved: Annotated[int, typer.Option(min=0, help="How many of the queries that moved most to show.")] = 5,
    drop_self: Annotated[
        bool, typer.Option("--drop-self", help="Drop documents with the id of the query (ArguAna, Quora).")
    ] = False,
    permutations: Annotated[int, typer.Option(min=1, help="Of the randomisation test.")] = 100_000,
    resamples: Annotated[int, typer.Option(min=1, help="Of the bootstrap.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
    as_json: AsJson = False,
    per_query_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each query's measures: .jsonl or .tsv.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the means with their intervals: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Compare runs on the same judged queries, with significance.

    Shows the mean of each run with a bootstrap interval of 95 %; the difference to the baseline (the first run) with
    a paired randomisation test and a paired t test, corrected for the number of runs; on how many queries a run wins,
    ties and loses; and the queries that moved most, with both rankings. A judged query that a run lacks counts as 0.

    \b
    Examples:
      plait compare bm25.trec hybrid.trec --qrels scifact
      plait compare a.trec b.trec c.trec --qrels qrels.txt --measure nDCG@10 --measure R@100
      plait compare a.trec b.trec --qrels qrels.txt --queries queries.tsv --plot means.png
    """
    from plait.cli import comparison
    from plait.evaluate import CompareConfig, compare, read_queries
    from plait.evaluate.per_query import check_rows_file, write_rows

    if per_query_file is not None:
        check_rows_file(per_query_file)
    if plot is not None:
        from plait.evaluate.plots import check_file

        check_file(plot)
    judged, texts = _judgements(qrels, split)
    texts = read_queries(queries) if queries is not None else texts
    names = run_names([*runs] if baseline is None or baseline in runs else [baseline, *runs])
    found = {name: _read(path, name, judged, drop_self=drop_self) for path, name in names.items()}
    config = CompareConfig(correction.value, permutations, resamples, seed)
    result = compare(
        found, judged, measure or ["nDCG@10"], baseline=names[runs[0] if baseline is None else baseline], config=config
    )
    if per_query_file is not None:
        write_rows(per_query_file, comparison.rows(result))
        say(f"wrote {per_query_file}")
    if plot is not None:
        _draw(result, plot)
    shown = comparison.moved_of(result, found, judged, texts, n=moved)
    titles = comparison.titles_of(shown, corpus)
    if as_json:
        comparison.print_json(result, shown, titles)
    else:
        comparison.print_tables(result)
        comparison.print_moved(shown, titles)


def _judgements(source: str, split: str) -> tuple[Qrels, dict[str, str]]:
    """The judgements, and the texts of the queries where a set brings them."""
    from plait.evaluate import load_dataset, read_qrels
    from plait.evaluate.dataset_files import n_without_relevant
    from plait.evaluate.datasets import is_dataset

    if is_dataset(source):
        judged = load_dataset(source, split)
        qrels, texts = judged.qrels, judged.queries
    else:
        qrels, texts = read_qrels(source), {}
    if n_empty := n_without_relevant(qrels):
        say(f"{n_empty} of {len(qrels)} judged queries have no relevant document, and count as 0 in every run")
    return qrels, texts


def run_names(paths: list[Path]) -> dict[Path, str]:
    """A short name for each run: that of its file, or its path where two files have the same."""
    paths = list(dict.fromkeys(paths))
    stems = [path.stem for path in paths]
    return {path: stem if stems.count(stem) == 1 else str(path) for path, stem in zip(paths, stems, strict=True)}


def _read(path: Path, name: str, qrels: Qrels, *, drop_self: bool) -> Run:
    from plait.cli.results import selves_note
    from plait.evaluate import read_run, without_self
    from plait.evaluate.runs import n_self_first

    notes: list[str] = []
    run: Run = read_run(path, notes=notes)
    for note in notes:
        say(f"{name}: {note}")
    if n_missing := sum(query not in run for query in qrels):
        say(f"{name}: {n_missing} of {len(qrels)} judged queries are not in the run, and count as 0")
    if n_missing == len(qrels):
        raise InputError(f"{path} has none of the {len(qrels)} judged queries; does it belong to these judgements?")
    if n_unjudged := sum(query not in qrels for query in run):
        say(f"{name}: {n_unjudged} queries of the run are not judged, and are left out")
    if drop_self:
        return without_self(run)
    if n := n_self_first(run):
        say(f"{name}: {selves_note(n)}")
    return run


def _draw(result: Comparison, file: Path) -> None:
    from plait.evaluate.plots import bars, save

    measures = list(result.means)
    runs = list(result.means[measures[0]])
    means = {run: [result.means[name][run] for name in measures] for run in runs}
    label = measures[0] if len(measures) == 1 else "mean"
    save(bars(measures, means, y_label=label, title=f"{len(result.queries):,} queries, 95 % intervals"), file)
    say(f"wrote {file}")
