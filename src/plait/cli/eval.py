"""`plait eval`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.ending import say
from plait.cli.options import AsJson, IndexPath, Model, Settings, Threads, settings_of
from plait.cli.rerank import Budget, Rerank, RerankDepth, RerankModel, reranking, with_budget
from plait.errors import ConfigError

if TYPE_CHECKING:
    from plait import Index
    from plait.evaluate import BeirSet

_BATCH = 64  # queries between two steps of the progress bar


@dataclass(frozen=True, slots=True)
class Result:
    """One mode, measured."""

    mode: str
    run: dict[str, list[tuple[str, float]]]
    means: dict[str, float]
    queries_per_second: float


def evaluate(
    index: IndexPath,
    data: Annotated[Path, typer.Option(metavar="FOLDER", help="A BEIR folder: queries.jsonl, qrels/SPLIT.tsv.")],
    split: Annotated[str, typer.Option(help="Which judgements to use.")] = "test",
    mode: Annotated[list[str] | None, typer.Option(help="May be given more than once; all is every mode.")] = None,
    budget: Budget = None,
    settings: Settings = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many documents to retrieve for each query.")] = 100,
    run: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was found, as a TREC run.")] = None,
    drop_self: Annotated[
        bool, typer.Option("--drop-self", help="Drop documents with the id of the query (ArguAna, Quora).")
    ] = False,
    as_json: AsJson = False,
    per_query: Annotated[bool, typer.Option("--per-query", help="With --json: also each query's measures.")] = False,
    rerank: Rerank = False,
    rerank_model: RerankModel = None,
    rerank_depth: RerankDepth = None,
    model: Model = None,
    threads: Threads = None,
) -> None:
    """Measure an index on a set of judged queries.

    Shows nDCG@10, R@100, RR@10 and queries per second. The index must hold the corpus of the set. With several
    modes, FILE of --run gets the mode before its suffix. Some sets ask with documents of their own corpus,
    birco-arguana among them: add --drop-self for these.

    \b
    Examples:
      plait index scifact --to scifact-index
      plait eval scifact-index --data scifact
      plait eval scifact-index --data scifact --mode dense --mode bm25 --run found.trec
    """
    import plait
    from plait.evaluate import load_beir, write_run
    from plait.search.plans import CUR_MODES

    if per_query and not as_json:
        raise ConfigError("--per-query needs --json: a table has no room for every query")
    beir = load_beir(data, split)
    if beir.n_without_text:
        say(f"{beir.n_without_text} judged queries are not in the queries file, and are left out")
    cur_mode = next((name for name in mode or [] if name in CUR_MODES), None)
    options: dict[str, Any] = {"options": with_budget(settings_of(settings), budget, rerank_model, cur_mode or "")}
    options |= reranking(rerank, None if cur_mode else rerank_model, rerank_depth, threads)
    modes = _modes(mode or ["hybrid"])
    results = []
    with plait.open(index, model=model, n_threads=threads, read_only=True) as opened:
        for name in modes:
            try:
                results.append(_measure(opened, beir, name, k, drop_self=drop_self, options=options))
            except ConfigError as error:
                if mode != ["all"]:
                    raise
                say(f"{name} is left out: {error}")
    for result in results:
        if run is not None:
            name = result.mode.replace(">", "-")  # which some file systems refuse
            file = run if len(modes) == 1 else run.with_stem(f"{run.stem}-{name}")
            write_run(file, result.run)
            say(f"wrote {file}")
    for note in dict.fromkeys(note for result in results for note in _doubts(result, beir)):
        say(note)
    if as_json:
        _print_json(results, beir, k, per_query=per_query)
    else:
        _print_table(results, beir)


def _modes(given: list[str]) -> list[str]:
    if given != ["all"]:
        return list(dict.fromkeys(given))
    from plait.search.plans import MODES

    return list(MODES)


def _measure(opened: Index, beir: BeirSet, mode: str, k: int, *, drop_self: bool, options: dict[str, Any]) -> Result:
    from plait.cli.progress import progress
    from plait.evaluate import measure, usual_measures, without_self

    ids, texts = list(beir.queries), list(beir.queries.values())
    run: dict[str, list[tuple[str, float]]] = {}
    seconds = 0.0
    opened.rank(texts[:1], 1, mode=mode, **options)  # loads the model, which is not to be timed
    with progress(mode, "queries", total=len(ids)) as update:
        for start in range(0, len(ids), _BATCH):
            began = time.perf_counter()
            ranked = opened.rank(texts[start : start + _BATCH], k + drop_self, mode=mode, **options)
            seconds += time.perf_counter() - began
            run.update(zip(ids[start : start + _BATCH], ranked, strict=True))
            update(len(run), len(run))
    if drop_self:
        run = {query: ranking[:k] for query, ranking in without_self(run).items()}
    return Result(mode, run, measure(run, beir.qrels, usual_measures(k)), len(ids) / seconds if seconds else 0.0)


def _doubts(result: Result, beir: BeirSet) -> list[str]:
    """What makes the numbers look wrong."""
    doubts = []
    if not any(id in beir.qrels[query] for query, ranking in result.run.items() for id, _ in ranking):
        doubts.append(f"no judged document came back: does the index hold the corpus of {beir.path}?")
    n_selves = sum(any(id == query for id, _ in ranking) for query, ranking in result.run.items())
    if n_selves:
        doubts.append(
            f"for {n_selves} queries a document of the same id came back; if queries of this set are documents of its "
            f"corpus, add --drop-self"
        )
    return doubts


def _print_json(results: list[Result], beir: BeirSet, k: int, *, per_query: bool) -> None:
    from plait.evaluate import measure_each, usual_measures

    for result in results:
        fields: dict[str, object] = {
            "data": str(beir.path),
            "split": beir.split,
            "mode": result.mode,
            "k": k,
            "n_queries": len(beir.queries),
            "queries_per_second": round(result.queries_per_second, 2),
            "measures": result.means,
        }
        if per_query:
            fields["per_query"] = measure_each(result.run, beir.qrels, usual_measures(k))
        print(json.dumps(fields))


def _print_table(results: list[Result], beir: BeirSet) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, title=f"{beir.path.name}, {beir.split}: {len(beir.queries):,} queries")
    table.add_column("mode")
    for name in results[0].means if results else ():
        table.add_column(name, justify="right")
    table.add_column("queries/s", justify="right")
    for result in results:
        values = [f"{value:.4f}" for value in result.means.values()]
        table.add_row(result.mode, *values, f"{result.queries_per_second:,.1f}")
    Console(highlight=False).print(table)
