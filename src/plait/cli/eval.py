"""`plait eval`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from plait.cli.errors import say
from plait.cli.options import AsJson, Model, Params, Threads, params_from
from plait.cli.rerank import Budget, CrossEncoderOptions, Rerank, RerankBlend, RerankDepth, RerankModel
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait.cli.eval_runs import Result
    from plait.evaluate import Dataset

Item = TypeVar("Item")


def evaluate(
    indexes: Annotated[
        list[Path] | None,
        typer.Argument(metavar="INDEX", help="Index folders, one for each --data.", show_default=False),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="A BEIR or MS MARCO folder, or irds:NAME; may be repeated."),
    ] = None,
    split: Annotated[
        list[str] | None, typer.Option(help="Which judgements; test by default, or one for each --data.")
    ] = None,
    indexes_in: Annotated[
        Path | None, typer.Option("--indexes", metavar="FOLDER", help="Keep or build the index of each dataset here.")
    ] = None,
    mode: Annotated[
        list[str] | None, typer.Option(help="Search mode; may be repeated; every: all modes that the index supports.")
    ] = None,
    budget: Budget = None,
    params: Params = None,
    measure: Annotated[
        list[str] | None, typer.Option(help="A measure such as nDCG@10, R@100 or AP; may be repeated.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Documents to retrieve for each query.")] = 100,
    run: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rankings as a TREC run.")] = None,
    drop_self: Annotated[
        bool, typer.Option("--drop-self", help="Drop documents with the id of the query (ArguAna, Quora).")
    ] = False,
    as_json: AsJson = False,
    per_query: Annotated[
        bool, typer.Option("--per-query", help="With --json: add the measures of each query.")
    ] = False,
    per_query_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the measures of each query: .jsonl or .tsv.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Search again; do not reuse rankings of earlier runs.")
    ] = False,
    cache: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep rankings here; by default in ~/.cache/plait/eval.")
    ] = None,
    rerank: Rerank = False,
    rerank_model: RerankModel = None,
    rerank_depth: RerankDepth = None,
    rerank_blend: RerankBlend = None,
    model: Model = None,
    threads: Threads = None,
) -> None:
    """Measure indexes on datasets of judged queries.

    Prints nDCG@10, R@100, RR@10 and queries per second. Each index must hold the corpus of its dataset; one index may
    serve several datasets, and one dataset may measure several indexes. With --indexes an index is built for each
    dataset that has none. With several results, the names of dataset and mode are added to FILE of --run. Rankings
    are kept: run the same command again to continue after an interruption. In some datasets, such as birco-arguana,
    the queries are documents of the corpus: add --drop-self for these.

    \b
    Examples:
      plait index scifact --to scifact-index
      plait eval scifact-index --data scifact
      plait eval scifact-index --data scifact --mode dense --run out.trec
      plait eval --data scifact --data cranfield --indexes indexes/ --mode every
    """
    from plait.cli.eval_runs import EvalConfig, build_indexes, cache_folder, evaluate_index, short_names
    from plait.evaluate import load_dataset, usual_measures
    from plait.evaluate.measures import deeper_than
    from plait.evaluate.per_query import check_rows_file

    if per_query and not as_json:
        raise ConfigError("--per-query needs --json: a table has no room for every query")
    if per_query_file is not None:
        check_rows_file(per_query_file)
    if not data:
        raise ConfigError("name the judged queries to measure with: --data FOLDER")
    if bool(indexes) == (indexes_in is not None):
        raise ConfigError("name the index to measure, or use --indexes FOLDER to build one for each dataset")
    measures = measure or usual_measures(k)
    for name in deeper_than(measures, k):
        say(f"{name} needs more than the {k} documents that are retrieved; set -k")
    modes = mode or ["hybrid"]
    cross = CrossEncoderOptions(modes, params_from(params), budget, rerank, rerank_model, rerank_depth, rerank_blend)
    config = EvalConfig(
        modes=modes,
        measures=measures,
        k=k,
        drop_self=drop_self,
        fresh=fresh,
        cache=cache_folder(cache),
        model=model,
        threads=threads,
        params=cross.params,
        rerank=cross.reranker(threads),
    )
    splits = _one_for_each(split or ["test"], data, "--split")
    sets = [load_dataset(source, name) for source, name in zip(data, splits, strict=True)]
    for judged in sets:
        _say_gaps(judged)
    names = _names(sets, short_names(sets))
    paths = build_indexes(sets, indexes_in, model, threads) if indexes_in is not None else list(indexes or [])
    if len(sets) == 1:
        sets *= len(paths)
    results = []
    for judged, path in zip(sets, _one_for_each(paths, sets, "INDEX"), strict=True):
        results += evaluate_index(judged, names[id(judged)], path, config)
    _write_files(results, run, per_query_file)
    for warning in dict.fromkeys(warning for result in results for warning in _warnings(result)):
        say(warning)
    if n_cached := sum(result.ranked.n_cached == len(result.ranked.run) for result in results):
        say(f"{n_cached} of {len(results)} results are from an earlier run, with its speed; --fresh searches again")
    if as_json:
        _print_json(results, k, per_query=per_query)
    else:
        _print_table(results)


def _one_for_each(given: Sequence[Item], others: Sequence[object], option: str) -> list[Item]:
    """One of the given items for each of the others; a single item serves all."""
    if len(given) not in (1, len(others)):
        raise ConfigError(
            f"{option} was given {len(given)} times for {len(others)} datasets; give it once, or once for each"
        )
    return list(given) * len(others) if len(given) == 1 else list(given)


def _names(sets: list[Dataset], short: list[str]) -> dict[int, str]:
    """The name of each dataset in tables and files, by `id`; with its split if one folder has several."""
    folders = [str(judged.path) for judged in sets]
    return {
        id(judged): f"{name}-{judged.split}" if folders.count(str(judged.path)) > 1 else name
        for judged, name in zip(sets, short, strict=True)
    }


def _say_gaps(judged: Dataset) -> None:
    from plait.evaluate.dataset_files import n_without_relevant

    if judged.n_without_text:
        say(f"{judged.name}: {judged.n_without_text} judged queries are not in the queries file, and are left out")
    if n_empty := n_without_relevant(judged.qrels):
        say(f"{judged.name}: {n_empty} queries have no relevant document, and count as 0")


def _warnings(result: Result) -> list[str]:
    """Reasons to doubt the numbers of a result."""
    from plait.evaluate.runs import n_self_first

    warnings = []
    qrels, run = result.judged.qrels, result.ranked.run
    if not any(id in qrels[query] for query, ranking in run.items() for id, _ in ranking):
        warnings.append(f"no judged document came back: does the index hold the corpus of {result.judged.path}?")
    if n_selves := n_self_first(run):
        warnings.append(f"{result.name}, {result.mode}: {selves_warning(n_selves)}")
    return warnings


def selves_warning(n_selves: int) -> str:
    return (
        f"for {n_selves} queries the first document has the id of the query; if queries of this dataset are documents "
        f"of its corpus, add --drop-self"
    )


# -- output


def _write_files(results: list[Result], run: Path | None, per_query: Path | None) -> None:
    from plait.evaluate import query_rows, write_rows, write_run

    for result in results:
        if run is not None:
            file = run.with_stem("-".join([run.stem, *_file_tag(result, results)]))
            write_run(file, result.ranked.run)
            say(f"wrote {file}")
    if per_query is not None:
        rows = [
            row
            for result in results
            for row in query_rows(result.per_query, data=result.name, index=str(result.index), mode=result.mode)
        ]
        write_rows(per_query, rows)
        say(f"wrote {per_query}")


def _file_tag(result: Result, results: list[Result]) -> list[str]:
    """What distinguishes the file of this result from those of the others."""
    sets, indexes, modes = ({getattr(one, part) for one in results} for part in ("name", "index", "mode"))
    tag = [result.name] if len(sets) > 1 else [result.index.name] if len(indexes) > 1 else []
    return [*tag, result.mode] if len(modes) > 1 else tag


def _print_json(results: list[Result], k: int, *, per_query: bool) -> None:
    for result in results:
        fields: dict[str, object] = {
            "data": str(result.judged.path),
            "split": result.judged.split,
            "index": str(result.index),
            "mode": result.mode,
            "k": k,
            "n_queries": len(result.judged.queries),
            "queries_per_second": round(result.ranked.queries_per_second, 2),
            "measures": result.means,
        }
        if per_query:
            fields["per_query"] = result.per_query
        print(json.dumps(fields))


def _print_table(results: list[Result]) -> None:
    from plait.cli.tables import print_table

    if not results:
        return
    sets = list(dict.fromkeys((one.name, one.judged.split, len(one.judged.queries)) for one in results))
    many_indexes = len({one.index for one in results}) > len(sets)
    many_sets = len(sets) > 1
    words = [*(["set", "queries"] if many_sets else []), *(["index"] if many_indexes else []), "mode"]
    rows = []
    for one in results:
        labels = [one.name, f"{len(one.judged.queries):,}"] if many_sets else []
        labels += [str(one.index)] if many_indexes else []
        values = [f"{value:.4f}" for value in one.means.values()]
        rows.append([*labels, one.mode, *values, f"{one.ranked.queries_per_second:,.1f}"])
    if many_sets and not many_indexes:
        rows += _mean_rows(results, len(sets))
    name, split, n_queries = sets[0]
    title = f"{len(sets)} sets" if many_sets else f"{name}, {split}: {n_queries:,} queries"
    print_table(title, [*words, *results[0].means, "queries/s"], rows, n_words=len(words))


def _mean_rows(results: list[Result], n_sets: int) -> list[list[str]]:
    """A row for each mode that all datasets were measured in: the unweighted mean over the datasets."""
    rows = []
    for mode in dict.fromkeys(one.mode for one in results):
        means = [list(one.means.values()) for one in results if one.mode == mode]
        if len(means) == n_sets:
            averages = [sum(column) / n_sets for column in zip(*means, strict=True)]
            rows.append([f"mean of {n_sets}", "", mode, *(f"{value:.4f}" for value in averages), ""])
    return rows
