"""A model against its baselines on judged sets: BM25, the dense vectors of its base model, MaxSim over the token states
of its base model, and the previous model.

    python -m benchmarks.quality.encoder --data data --indexes new --before old --base states --sets scifact cranfield

`--indexes` and `--before` are folders with an index of each set (`plait eval --data SET --indexes DIR --model MODEL`
builds missing ones). `--base` is a model folder whose multi vectors are the whole token states of the base
(`models/scripts/build_gte_small.py --projection` with the identity). Those rescore the best 20 of `--before`, because
an index of whole states is large; that favours them. Where `--base-indexes` has an index of the set by that model, they
score every passage. The base's dense vectors are those of `--before`. `--unshared` leaves out queries that share a
passage with the train split: a model trained on it knows what that passage answers. `--drop-self` names the sets whose
queries are texts of their own corpus (birco-arguana): a hit with the id of its query is dropped.

nDCG@10. In the columns before `hybrid`, `<` and `>` mean that hybrid is above or below with p < 0.05: paired
randomisation test over the queries, Holm-corrected for the four of a row.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from benchmarks.quality.modes import MEASURE, SURE, add_drop_self, check_drop_self, first_queries, found_by_plan, row
from plait.embeddings import Rows
from plait.encode.load import load_model
from plait.encode.onnx import OnnxEncoder
from plait.evaluate import Dataset, Run, compare, load_dataset, without_self

DEPTH = 20
RIVALS = ("bm25", "base dense", "base states", "before")
OWN = ("dense", "sparse", "multi", "hybrid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of BEIR folders")
    parser.add_argument("--indexes", type=Path, required=True, help="indexes of the model")
    parser.add_argument("--before", type=Path, help="indexes of the model before it; left out, its columns are empty")
    parser.add_argument("--base", type=Path, help="a model that gives whole states; left out, its column is empty")
    parser.add_argument("--base-indexes", type=Path, help="indexes by the model of whole states, for some of the sets")
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--queries", type=int, default=None, help="only the first so many of each set")
    parser.add_argument("--unshared", action="store_true", help="only queries whose passages answer none of train")
    add_drop_self(parser)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the figures are written too")
    options = parser.parse_args()
    check_drop_self(parser, options)
    if options.base and not options.before:
        parser.error("--base scores what --before finds; give that too, or --base-indexes")
    base = load_model(options.base, n_threads=options.threads) if options.base else None
    row("set", "queries", *RIVALS, *OWN)
    row(*["---"] * (2 + len(RIVALS) + len(OWN)))
    means: dict[str, dict[str, float]] = {}
    sure: dict[str, dict[str, int]] = {}
    for name in options.sets:
        judged = load_dataset(str(options.data / name), "test")
        judged = first_queries(unshared(judged, options.data / name) if options.unshared else judged, options.queries)
        before = options.before / name if options.before else None
        drop_self = name in options.drop_self
        runs = runs_of(options.indexes / name, before, base, judged, options.threads, drop_self=drop_self)
        if options.base_indexes and (whole := options.base_indexes / name).is_dir():
            with plait.open(whole, n_threads=options.threads, read_only=True) as index:
                (runs["base states"],) = found_by_plan(index, judged, ("exhaustive",), drop_self=drop_self).values()
        means[name], sure[name] = compare_with_hybrid(runs, judged)
        cells = {run: f"{mean:.3f}{['', ' <', ' >'][sure[name].get(run, 0)]}" for run, mean in means[name].items()}
        row(name, len(judged.queries), *(cells.get(run, "") for run in (*RIVALS, *OWN)))
    pairs = [("hybrid", rival) for rival in RIVALS] + [("sparse", "bm25"), ("multi", "dense")]
    for one, other in pairs:
        print(f"\n{one} above {other}: {counted(means, one, other)}", end="")
    print()
    if options.json:
        options.json.write_text(json.dumps({"means": means, "sure": sure}, indent=1) + "\n", encoding="utf-8")


def unshared(judged: Dataset, folder: Path) -> Dataset:
    """Drops queries with a relevant passage that is also relevant to a query of the train split."""
    if not (folder / "qrels" / "train.tsv").is_file():
        return judged
    seen = {
        id for grades in load_dataset(str(folder), "train").qrels.values() for id, grade in grades.items() if grade > 0
    }
    qrels = {
        query: grades
        for query, grades in judged.qrels.items()
        if not any(grade > 0 and id in seen for id, grade in grades.items())
    }
    queries = {query: text for query, text in judged.queries.items() if query in qrels}
    return replace(judged, queries=queries, qrels=qrels)


def runs_of(
    new: Path, old: Path | None, base: OnnxEncoder | None, judged: Dataset, n_threads: int, *, drop_self: bool
) -> dict[str, Run]:
    """The runs, by name."""
    with plait.open(new, n_threads=n_threads, read_only=True) as index:
        runs = found_by_plan(index, judged, plans=("bm25", *OWN), drop_self=drop_self)
    if old is None:
        return runs
    with plait.open(old, n_threads=n_threads, read_only=True) as index:
        before = found_by_plan(index, judged, plans=("dense", "hybrid"), drop_self=drop_self)
        runs |= {"base dense": before["dense"], "before": before["hybrid"]}
        if base is not None:
            states = rescored(base, index, judged)
            runs["base states"] = without_self(states) if drop_self else states
    return runs


def rescored(base: OnnxEncoder, index: plait.Index, judged: Dataset) -> Run:
    """MaxSim over whole token states of the passages that the index finds."""
    texts = list(judged.queries.values())
    found_hits = [index.search(text, k=DEPTH) for text in texts]
    passages = sorted({(hit.title or "", hit.text) for hits in found_hits for hit in hits})
    numbers = {passage_rows: number for number, passage_rows in enumerate(passages)}
    rows = states_of(base, [" ".join(passage).strip() for passage in passages])
    query_rows = base.encode_queries(texts).multi
    assert query_rows is not None
    return {
        query: [
            (hit.id, maxsim(query_rows[number], rows[numbers[hit.title or "", hit.text]])) for hit in found_hits[number]
        ]
        for number, query in enumerate(judged.queries)
    }


def states_of(base: OnnxEncoder, texts: Sequence[str]) -> list[NDArray[np.float16]]:
    rows: list[NDArray[np.float16]] = [np.zeros((0, 0), np.float16)] * len(texts)
    for items, embeddings in base.iterate_documents(texts):
        assert embeddings.multi is not None
        for position, item in enumerate(items):
            rows[item] = embeddings.multi[position].astype(np.float16)
    return rows


def maxsim(query: Rows, document: NDArray[np.float16]) -> float:
    return float((query.astype(np.float32) @ document.astype(np.float32).T).max(axis=1).sum())


def compare_with_hybrid(runs: dict[str, Run], judged: Dataset) -> tuple[dict[str, float], dict[str, int]]:
    """The mean of each run, and for each baseline 1 if hybrid is significantly above it, 2 if significantly below."""
    means = {run: one.value for run, one in compare(runs, judged.qrels, [MEASURE]).means[MEASURE].items()}
    rivals = {"hybrid": runs["hybrid"], **{name: runs[name] for name in RIVALS if name in runs}}
    differences = compare(rivals, judged.qrels, [MEASURE], baseline="hybrid").differences
    marks = {one.run: 1 if one.mean.value < 0 else 2 for one in differences if one.p_randomisation_corrected < SURE}
    return means, marks


def counted(means: dict[str, dict[str, float]], one: str, other: str) -> str:
    both: Iterable[dict[str, float]] = [mean for mean in means.values() if one in mean and other in mean]
    return f"{sum(run[one] > run[other] for run in both)} of {len(list(both))}"


if __name__ == "__main__":
    main()
