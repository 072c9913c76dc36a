"""Models against each other on judged sets: any mode of any model, with a paired test against one of them.

    python -m benchmarks.quality.zero_shot --data DATA --work WORK --sets scifact cranfield cisi \
        --models new=runs/model old=plait-gte-small states=gte-states \
        --columns new:bm25 states:dense states:exhaustive old:hybrid new:dense new:multi new:hybrid

`--models` gives each model a name: a bundled model or a model folder. `WORK/NAME/SET` is its index of a set; missing
ones are built, uncompressed, with every passage. A column is a model and a mode. The last column is what the others are
compared with: `<` and `>` mean that it is above or below with p < 0.05 (paired randomisation test over the queries,
Holm-corrected for the columns of a row). The last row has the means over sets; its marks are of the same test over all
queries, each set with the same weight. `--drop-self` names the sets whose queries are texts of their own corpus.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import plait
from benchmarks.quality.modes import MEASURE, SURE, add_drop_self, check_drop_self, first_queries, found_by_plan, row
from plait.evaluate import Dataset, Run, compare, load_dataset, measure_each
from plait.evaluate.significance import corrected, randomisation_test

PerQuery = Mapping[str, Mapping[str, float]]  # by column, by query


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of BEIR folders")
    parser.add_argument("--work", type=Path, required=True, help="where indexes are kept")
    parser.add_argument("--sets", nargs="+", required=True, help="SET, or SET:SPLIT")
    parser.add_argument("--models", nargs="+", required=True, metavar="NAME=MODEL")
    parser.add_argument("--columns", nargs="+", required=True, metavar="NAME:MODE")
    parser.add_argument("--queries", type=int, default=None, help="only the first so many of each set")
    add_drop_self(parser)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the figures are written too")
    options = parser.parse_args()
    check_drop_self(parser, options)
    models = dict(model.split("=", 1) for model in options.models)
    columns = [tuple(column.split(":", 1)) for column in options.columns]
    if unknown := {name for name, *_ in columns} - set(models):
        parser.error(f"--columns names {', '.join(sorted(unknown))}, which --models does not")
    row("set", "queries", *options.columns)
    row("---", *["---:"] * (1 + len(columns)))
    figures: dict[str, dict[str, float]] = {}
    every: list[PerQuery] = []
    for name in options.sets:
        folder, _, split = name.partition(":")
        judged = first_queries(load_dataset(str(options.data / folder), split or "test"), options.queries)
        runs: dict[str, Run] = {}
        for model, source in models.items():
            modes = [mode for one, mode in columns if one == model]
            index = indexed(options.work / model / folder, source, judged, options.threads)
            run_by_mode = found_by_plan(index, judged, modes, drop_self=name in options.drop_self)
            index.close()
            runs |= {f"{model}:{mode}": run for mode, run in run_by_mode.items()}
        runs = {column: runs[column] for column in options.columns if column in runs}
        figures[name], cells = of_set(runs, judged)
        every.append({column: measure_each(run, judged.qrels, [MEASURE])[MEASURE] for column, run in runs.items()})
        row(name, len(judged.queries), *(cells.get(column, "") for column in options.columns))
    row("mean", "", *of_all(every, options.columns))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def indexed(path: Path, model: str, judged: Dataset, n_threads: int) -> plait.Index:
    """The index of a set, built if it is missing. One that was not finished is completed: known texts are skipped."""
    index = plait.open(path, create=True, model=model, n_threads=n_threads)
    index.add(judged.documents())
    return index


def of_set(runs: Mapping[str, Run], judged: Dataset) -> tuple[dict[str, float], dict[str, str]]:
    """The mean of each column, and its cell."""
    last = list(runs)[-1]
    comparison = compare(runs, judged.qrels, [MEASURE], baseline=last)
    means = {column: mean.value for column, mean in comparison.means[MEASURE].items()}
    cells = {column: f"{mean:.3f}" for column, mean in means.items()}
    for one in comparison.differences:
        if one.p_randomisation_corrected < SURE:
            cells[one.run] += " <" if one.mean.value < 0 else " >"
    return means, cells


def of_all(every: Sequence[PerQuery], columns: Sequence[str]) -> list[str]:
    """The cells of the means over sets; empty for a column that some set lacks. In the test a query weighs as much as
    its share in its set, so that each set counts the same."""
    complete = [column for column in columns if all(column in one for one in every)]
    means = {column: float(np.mean([np.mean(list(one[column].values())) for one in every])) for column in complete}
    last, sure = columns[-1], {}
    if len(complete) > 1 and last in complete:
        differences = np.array(
            [
                [(one[column][query] - one[last][query]) / len(one[last]) for column in complete[:-1]]
                for one in every
                for query in one[last]
            ]
        )
        sure = dict(zip(complete, corrected(randomisation_test(differences), "holm").tolist(), strict=False))
    cells = []
    for column in columns:
        mark = "" if sure.get(column, 1.0) >= SURE else " <" if means[column] < means[last] else " >"
        cells.append(f"{means[column]:.3f}{mark}" if column in means else "")
    return cells


if __name__ == "__main__":
    main()
