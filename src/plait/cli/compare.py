"""`plait compare`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.errors import say
from plait.cli.options import AsJson
from plait.errors import InputError

if TYPE_CHECKING:
    from plait.evaluate import Comparison, Moved, Qrels, Run
    from plait.evaluate.per_query import Row

N_DOCUMENTS = 5  # of each ranking
DEFAULT_WIDTH = 120  # columns, if there is no terminal


class Correction(StrEnum):
    holm = "holm"
    bonferroni = "bonferroni"
    none = "none"


def compare_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="TREC runs, the baseline first.")],
    qrels: Annotated[
        str, typer.Option(metavar="FILE|FOLDER", help="Judgements: a TREC or TSV file, or a dataset as for plait eval.")
    ],
    split: Annotated[str, typer.Option(help="With a dataset: which of its judgements.")] = "test",
    measure: Annotated[
        list[str] | None, typer.Option(help="A measure such as nDCG@10 (the default), R@100 or AP; may be repeated.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The run to compare with; by default the first.")
    ] = None,
    correction: Annotated[Correction, typer.Option(help="The correction for multiple comparisons.")] = Correction.holm,
    queries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The texts of the queries: BEIR's .jsonl, or .tsv.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Show titles from this BEIR folder or corpus file.")
    ] = None,
    moved: Annotated[int, typer.Option(min=0, help="Queries to show, of those that changed most.")] = 5,
    drop_self: Annotated[
        bool, typer.Option("--drop-self", help="Drop documents with the id of the query (ArguAna, Quora).")
    ] = False,
    permutations: Annotated[int, typer.Option(min=1, help="Permutations of the randomisation test.")] = 100_000,
    resamples: Annotated[int, typer.Option(min=1, help="Resamples of the bootstrap.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same numbers.")] = 0,
    as_json: AsJson = False,
    per_query_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the measures of each query: .jsonl or .tsv.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot the means with intervals: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Compare runs on the same judged queries, with significance.

    Prints the mean of each run with a 95 % bootstrap interval; the difference to the baseline (the first run) with
    a paired randomisation test and a paired t test, corrected for the number of runs; the number of queries on which
    a run wins, ties and loses; and the queries that changed most, with both rankings. A judged query that is missing
    from a run counts as 0.

    \b
    Examples:
      plait compare bm25.trec hybrid.trec --qrels scifact
      plait compare a.trec b.trec c.trec --qrels qrels.txt --measure R@100
      plait compare a.trec b.trec --qrels qrels.txt --plot means.png
    """
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
    run_of = {name: _read(path, name, judged, drop_self=drop_self) for path, name in names.items()}
    config = CompareConfig(correction.value, permutations, resamples, seed)
    result = compare(
        run_of, judged, measure or ["nDCG@10"], baseline=names[runs[0] if baseline is None else baseline], config=config
    )
    if per_query_file is not None:
        write_rows(per_query_file, _per_query_rows(result))
        say(f"wrote {per_query_file}")
    if plot is not None:
        _draw(result, plot)
    shown = _most_moved(result, run_of, judged, texts, n=moved)
    titles = _titles(shown, corpus)
    if as_json:
        _print_json(result, shown, titles)
    else:
        _print_tables(result)
        _print_moved(shown, titles)


def _judgements(source: str, split: str) -> tuple[Qrels, dict[str, str]]:
    """The judgements, and the texts of the queries if the source is a dataset."""
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
    """A short name for each run: the stem of its file, or its path if two files have the same stem."""
    paths = list(dict.fromkeys(paths))
    stems = [path.stem for path in paths]
    return {path: stem if stems.count(stem) == 1 else str(path) for path, stem in zip(paths, stems, strict=True)}


def _read(path: Path, name: str, qrels: Qrels, *, drop_self: bool) -> Run:
    from plait.cli.eval import selves_warning
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
    if n_selves := n_self_first(run):
        say(f"{name}: {selves_warning(n_selves)}")
    return run


def _draw(result: Comparison, file: Path) -> None:
    from plait.evaluate.plots import bars, save

    measures = list(result.means)
    runs = list(result.means[measures[0]])
    means = {run: [result.means[name][run] for name in measures] for run in runs}
    label = measures[0] if len(measures) == 1 else "mean"
    save(bars(measures, means, y_label=label, title=f"{len(result.queries):,} queries, 95 % intervals"), file)
    say(f"wrote {file}")


# -- output


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document of a ranking; `relevance` is None if it was not judged."""

    id: str
    relevance: int | None

    @property
    def mark(self) -> str:
        """A star for a relevant document, with its grade if above 1; a minus for one judged not relevant."""
        if self.relevance is None:
            return " "
        if self.relevance <= 0:
            return "-"
        return "*" if self.relevance == 1 else f"*{self.relevance}"


@dataclass(frozen=True, slots=True)
class MovedQuery:
    """A query whose measure changed, with the first documents of both rankings."""

    measure: str
    baseline: str
    run: str
    moved: Moved
    text: str
    before: tuple[RankedDocument, ...]
    after: tuple[RankedDocument, ...]


def _most_moved(
    result: Comparison, runs: Mapping[str, Run], qrels: Qrels, texts: Mapping[str, str], *, n: int
) -> list[MovedQuery]:
    """The n queries whose first measure changed most, for each run."""
    measure = next(iter(result.means))
    return [
        MovedQuery(
            measure,
            result.baseline,
            run,
            moved,
            texts.get(moved.query, ""),
            _first_documents(runs[result.baseline], moved.query, qrels),
            _first_documents(runs[run], moved.query, qrels),
        )
        for run in runs
        if run != result.baseline
        for moved in result.moved(run, measure, n)
    ]


def _first_documents(run: Run, query: str, qrels: Qrels) -> tuple[RankedDocument, ...]:
    from plait.evaluate import ordered

    return tuple(RankedDocument(id, qrels[query].get(id)) for id, _ in ordered(run.get(query, ()))[:N_DOCUMENTS])


def _titles(shown: Sequence[MovedQuery], corpus: Path | None) -> dict[str, str]:
    """The titles of the documents that are shown; their first words if they have none."""
    wanted = {entry.id for one in shown for entry in (*one.before, *one.after)}
    if corpus is None or not wanted:
        return {}
    from plait.readers import documents_from

    titles = {}
    for document in documents_from([corpus], on_error="skip"):
        if document.id in wanted:
            titles[document.id] = document.title or document.text[:100]
    return titles


def _print_tables(result: Comparison) -> None:
    """Prints means with intervals, then the differences to the baseline."""
    from plait.cli.tables import print_table, shown_p

    print_table(
        f"{len(result.queries):,} queries; mean and 95 % interval (bootstrap, {result.config.n_resamples:,} resamples)",
        ["measure", "run", "mean", "from", "to"],
        [
            [measure, run, *(f"{value:.4f}" for value in (mean.value, mean.low, mean.high))]
            for measure, means in result.means.items()
            for run, mean in means.items()
        ],
        n_words=2,
    )
    if not result.differences:
        return
    print()
    corrected = "not corrected" if result.config.correction == "none" else f"corrected ({result.config.correction})"
    print_table(
        f"difference to {result.baseline}; p two-sided, {corrected}",
        ["measure", "run", "change", "from", "to", "p random.", "p t test", "wins", "ties", "losses"],
        [
            [
                one.measure,
                one.run,
                *(f"{value:+.4f}" for value in (one.mean.value, one.mean.low, one.mean.high)),
                shown_p(one.p_randomisation_corrected),
                shown_p(one.p_t_corrected),
                *(f"{count:,}" for count in (one.wins, one.ties, one.losses)),
            ]
            for one in result.differences
        ],
        n_words=2,
    )


def _print_moved(shown: Sequence[MovedQuery], titles: Mapping[str, str]) -> None:
    """Prints each query with its text and both rankings side by side; relevant documents have a star."""
    from plait.cli.tables import console, printable

    out = console()
    width = (out.width if out.is_terminal else DEFAULT_WIDTH) // 2 - 1
    run = None
    for one in shown:
        if one.run != run:
            run = one.run
            heading = (
                f"queries that moved most from {one.baseline} to {run}, by {one.measure} (* relevant, - judged not)"
            )
            out.print(f"\n{printable(heading)}", markup=False, soft_wrap=True)
        moved = one.moved
        text = " ".join(printable(one.text).split())
        change = f"{moved.baseline:.4f} -> {moved.run:.4f} ({moved.run - moved.baseline:+.4f})"
        out.print(f"\n{printable(moved.query)}  {change}  {text}".rstrip(), markup=False, soft_wrap=True)
        for rank in range(max(len(one.before), len(one.after))):
            left, right = (_cell(side, rank, titles) for side in (one.before, one.after))
            line = f"  {_fitted(left, width - 2)}  {_cut(right, width - 2)}"
            out.print(line.rstrip(), markup=False, soft_wrap=True)


def _cell(side: Sequence[RankedDocument], rank: int, titles: Mapping[str, str]) -> str:
    if rank >= len(side):
        return ""
    from plait.cli.tables import printable

    entry = side[rank]
    title = " ".join(printable(titles.get(entry.id, "")).split())
    return f"{rank + 1} {entry.mark:<2} {printable(entry.id)}  {title}".rstrip()


def _cut(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _fitted(text: str, width: int) -> str:
    from rich.cells import set_cell_size

    return set_cell_size(_cut(text, width), width)


def _print_json(result: Comparison, shown: Sequence[MovedQuery], titles: Mapping[str, str]) -> None:
    fields: dict[str, Any] = {
        "baseline": result.baseline,
        "n_queries": len(result.queries),
        "config": asdict(result.config),
        "means": {name: {run: asdict(mean) for run, mean in means.items()} for name, means in result.means.items()},
        "differences": [asdict(one) for one in result.differences],
        "moved": [_moved_fields(one, titles) for one in shown],
    }
    print(json.dumps(_without_nan(fields), ensure_ascii=False))


def _moved_fields(one: MovedQuery, titles: Mapping[str, str]) -> dict[str, Any]:
    def side(entries: Sequence[RankedDocument]) -> list[dict[str, Any]]:
        return [{**asdict(entry), **({"title": titles[entry.id]} if entry.id in titles else {})} for entry in entries]

    return {
        "run": one.run,
        "measure": one.measure,
        "query": one.moved.query,
        "text": one.text,
        "baseline_value": one.moved.baseline,
        "run_value": one.moved.run,
        "baseline_ranking": side(one.before),
        "run_ranking": side(one.after),
    }


def _without_nan(value: Any) -> Any:
    """The value with None for nan and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _without_nan(part) for key, part in value.items()}
    return [_without_nan(part) for part in value] if isinstance(value, list) else value


def _per_query_rows(result: Comparison) -> list[Row]:
    """One row for each run and query."""
    from plait.evaluate import query_rows

    runs = next(iter(result.values.values()))
    return [
        row
        for run in runs
        for row in query_rows({name: values[run] for name, values in result.values.items()}, run=run)
    ]
