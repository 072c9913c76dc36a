"""What `plait eval` found: as a table, as JSON, and in files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from plait.cli.errors import say
from plait.evaluate import Dataset, DatasetRun, query_rows, write_rows, write_run
from plait.evaluate.runs import n_self_first


@dataclass(frozen=True, slots=True)
class Result:
    """One set, index and mode, measured."""

    judged: Dataset
    name: str  # of the set, unlike that of any other
    index: Path
    mode: str
    found: DatasetRun
    each: dict[str, dict[str, float]]  # by measure and query

    @property
    def means(self) -> dict[str, float]:
        return {name: sum(values.values()) / len(values) for name, values in self.each.items()}


def write_files(results: list[Result], run: Path | None, per_query: Path | None) -> None:
    for result in results:
        if run is not None:
            file = run.with_stem("-".join([run.stem, *_tag(result, results)]))
            write_run(file, result.found.run)
            say(f"wrote {file}")
    if per_query is not None:
        rows = [
            row
            for result in results
            for row in query_rows(result.each, data=result.name, index=str(result.index), mode=result.mode)
        ]
        write_rows(per_query, rows)
        say(f"wrote {per_query}")


def _tag(result: Result, results: list[Result]) -> list[str]:
    """What tells the files of several results apart."""
    sets, indexes, modes = ({getattr(one, part) for one in results} for part in ("name", "index", "mode"))
    tag = [result.name] if len(sets) > 1 else [result.index.name] if len(indexes) > 1 else []
    return [*tag, result.mode.replace(">", "-")] if len(modes) > 1 else tag


def doubts(result: Result) -> list[str]:
    """What makes the numbers look wrong."""
    found = []
    qrels, run = result.judged.qrels, result.found.run
    if not any(id in qrels[query] for query, ranking in run.items() for id, _ in ranking):
        found.append(f"no judged document came back: does the index hold the corpus of {result.judged.path}?")
    if n := n_self_first(run):
        found.append(f"{result.name}, {result.mode}: {selves_note(n)}")
    return found


def selves_note(n: int) -> str:
    return (
        f"for {n} queries the first document has the id of the query; if queries of this set are documents of its "
        f"corpus, add --drop-self"
    )


def print_json(results: list[Result], k: int, *, per_query: bool) -> None:
    for result in results:
        fields: dict[str, object] = {
            "data": str(result.judged.path),
            "split": result.judged.split,
            "index": str(result.index),
            "mode": result.mode,
            "k": k,
            "n_queries": len(result.judged.queries),
            "queries_per_second": round(result.found.queries_per_second, 2),
            "measures": result.means,
        }
        if per_query:
            fields["per_query"] = result.each
        print(json.dumps(fields))


def print_results(results: list[Result]) -> None:
    from plait.cli.tables import print_table

    if not results:
        return
    sets = list(dict.fromkeys((one.name, one.judged.split, len(one.judged.queries)) for one in results))
    many_indexes = len({one.index for one in results}) > len(sets)
    many_sets = len(sets) > 1
    words = [*(["set", "queries"] if many_sets else []), *(["index"] if many_indexes else []), "mode"]
    rows = []
    for one in results:
        before = [one.name, f"{len(one.judged.queries):,}"] if many_sets else []
        before += [str(one.index)] if many_indexes else []
        values = [f"{value:.4f}" for value in one.means.values()]
        rows.append([*before, one.mode, *values, f"{one.found.queries_per_second:,.1f}"])
    if many_sets and not many_indexes:
        rows += _averages(results, len(sets))
    name, split, n_queries = sets[0]
    title = f"{len(sets)} sets" if many_sets else f"{name}, {split}: {n_queries:,} queries"
    print_table(title, [*words, *results[0].means, "queries/s"], rows, n_words=len(words))


def _averages(results: list[Result], n_sets: int) -> list[list[str]]:
    """A row for each mode that every set was measured in: the mean over the sets, each counting the same."""
    rows = []
    for mode in dict.fromkeys(one.mode for one in results):
        means = [list(one.means.values()) for one in results if one.mode == mode]
        if len(means) == n_sets:
            averages = [sum(column) / n_sets for column in zip(*means, strict=True)]
            rows.append([f"mean of {n_sets}", "", mode, *(f"{value:.4f}" for value in averages), ""])
    return rows
