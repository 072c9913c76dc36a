"""`plait eval`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from plait.cli.errors import say
from plait.cli.options import AsJson, Model, Settings, Threads, settings_of
from plait.cli.rerank import Asks, Budget, Rerank, RerankBlend, RerankDepth, RerankModel
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.evaluate import Dataset

Thing = TypeVar("Thing")


def evaluate(
    indexes: Annotated[
        list[Path] | None,
        typer.Argument(metavar="INDEX", help="Folders of indexes, one for each --data.", show_default=False),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="A BEIR or MS MARCO folder, or irds:NAME; may be given more than once."),
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Which judgements; test, or one for each --data.")] = None,
    indexes_in: Annotated[
        Path | None, typer.Option("--indexes", metavar="FOLDER", help="Find or build each set's index in here.")
    ] = None,
    mode: Annotated[list[str] | None, typer.Option(help="May be given more than once; every is all of them.")] = None,
    budget: Budget = None,
    settings: Settings = None,
    measure: Annotated[
        list[str] | None, typer.Option(help="Such as nDCG@10, R@100, AP; may be given more than once.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many documents to retrieve for each query.")] = 100,
    run: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was found, as a TREC run.")] = None,
    drop_self: Annotated[
        bool, typer.Option("--drop-self", help="Drop documents with the id of the query (ArguAna, Quora).")
    ] = False,
    as_json: AsJson = False,
    per_query: Annotated[bool, typer.Option("--per-query", help="With --json: also each query's measures.")] = False,
    per_query_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each query's measures: .jsonl or .tsv.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Search again for what was found before.")] = False,
    cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to keep what was found; ~/.cache/plait/eval.")
    ] = None,
    rerank: Rerank = False,
    rerank_model: RerankModel = None,
    rerank_depth: RerankDepth = None,
    rerank_blend: RerankBlend = None,
    model: Model = None,
    threads: Threads = None,
) -> None:
    """Measure indexes on sets of judged queries.

    Shows nDCG@10, R@100, RR@10 and queries per second. Each index must hold the corpus of its set; one index may serve
    several sets, and one set may measure several indexes. With --indexes an index is built for each set that has none.
    With several results, FILE of --run gets set and mode before its suffix. What was found is kept: the same command
    again goes on where it was stopped. Some sets ask with documents of their own corpus, birco-arguana among them: add
    --drop-self for these.

    \b
    Examples:
      plait index scifact --to scifact-index
      plait eval scifact-index --data scifact
      plait eval scifact-index --data scifact --mode dense --mode bm25 --run found.trec
      plait eval --data scifact --data cranfield --indexes indexes/ --mode all
    """
    from plait.cli.building import built, short_names
    from plait.cli.measuring import Work, measured, writable
    from plait.cli.results import doubts, print_json, print_results, write_files
    from plait.evaluate import load_dataset, usual_measures
    from plait.evaluate.measures import deeper_than
    from plait.evaluate.per_query import check_rows_file

    if per_query and not as_json:
        raise ConfigError("--per-query needs --json: a table has no room for every query")
    if per_query_file is not None:
        check_rows_file(per_query_file)
    if not data:
        raise ConfigError("say which judged queries to measure with: --data FOLDER")
    if bool(indexes) == (indexes_in is not None):
        raise ConfigError("name the index to measure, or a folder with --indexes where one is built for each set")
    measures = measure or usual_measures(k)
    for name in deeper_than(measures, k):
        say(f"{name} looks further down than the {k} documents that are retrieved; add -k")
    modes = mode or ["hybrid"]
    asks = Asks(modes, settings_of(settings), budget, rerank, rerank_model, rerank_depth, rerank_blend)
    work = Work(modes=modes, measures=measures, k=k, drop_self=drop_self, fresh=fresh, keep=writable(cache),
                model=model, threads=threads, options=asks.options, rerank=asks.reranker(threads))  # fmt: skip
    splits = _for_each(split or ["test"], data, "--split")
    sets = [load_dataset(source, own) for source, own in zip(data, splits, strict=True)]
    for judged in sets:
        _tell_gaps(judged)
    names = _names(sets, short_names(sets))
    paths = built(sets, indexes_in, model, threads) if indexes_in is not None else list(indexes or [])
    if len(sets) == 1:
        sets *= len(paths)
    results = []
    for judged, path in zip(sets, _for_each(paths, sets, "INDEX"), strict=True):
        results += measured(judged, names[id(judged)], path, work)
    write_files(results, run, per_query_file)
    for note in dict.fromkeys(note for result in results for note in doubts(result)):
        say(note)
    if n_cached := sum(result.found.n_cached == len(result.found.run) for result in results):
        say(f"{n_cached} of {len(results)} results were found before, with that speed; --fresh searches again")
    if as_json:
        print_json(results, k, per_query=per_query)
    else:
        print_results(results)


def _for_each(given: Sequence[Thing], others: Sequence[object], what: str) -> list[Thing]:
    """One of the given for each of the others; a single one serves them all."""
    if len(given) not in (1, len(others)):
        raise ConfigError(f"{what} was given {len(given)} times, for {len(others)} sets; give one, or one for each")
    return list(given) * len(others) if len(given) == 1 else list(given)


def _names(sets: list[Dataset], short: list[str]) -> dict[int, str]:
    """What to call each set in tables and files: with its split where one folder is measured with several."""
    folders = [str(judged.path) for judged in sets]
    return {
        id(judged): f"{name}-{judged.split}" if folders.count(str(judged.path)) > 1 else name
        for judged, name in zip(sets, short, strict=True)
    }


def _tell_gaps(judged: Dataset) -> None:
    from plait.evaluate.dataset_files import n_without_relevant

    if judged.n_without_text:
        say(f"{judged.name}: {judged.n_without_text} judged queries are not in the queries file, and are left out")
    if n_empty := n_without_relevant(judged.qrels):
        say(f"{judged.name}: {n_empty} queries have no relevant document, and count as 0")
