"""All search modes of an index on judged sets, and whether hybrid beats the best single kind by more than chance.

    python -m benchmarks.quality.modes --data data --indexes indexes --sets scifact cranfield cacm npl boolq medquad

`INDEXES/SET` is the index of each set; `plait eval --data SET --indexes INDEXES` builds missing ones. Queries are
encoded once for all modes. A mode that needs a kind of embedding which the index lacks is left out. `+` and `-` mean
that a mode differs from the best single kind of its row (in brackets) with p < 0.05: paired randomisation test,
Holm-corrected for the number of modes. `--drop-self` names the sets whose queries are texts of their own corpus
(birco-arguana): a hit with the id of its query is dropped.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import plait
from plait.evaluate import Dataset, Run, compare, load_dataset, without_self
from plait.search.modes import find_mode

SINGLE = ("bm25", "dense", "sparse", "multi")
COMBINED = ("hybrid", "m3-dense-sparse", "m3-all", "dense-then-multi", "bm25-then-multi")
MEASURE = "nDCG@10"
K = 10
BATCH = 64
SURE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of BEIR folders")
    parser.add_argument("--indexes", type=Path, required=True, help="a folder with an index for each set")
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, default=None, help="only the first so many of each set")
    add_drop_self(parser)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    check_drop_self(parser, options)
    row("set", "queries", *SINGLE, *COMBINED)
    row(*["---"] * (2 + len(SINGLE) + len(COMBINED)))
    n_best = 0
    for name in options.sets:
        judged = first_queries(load_dataset(str(options.data / name), options.split), options.queries)
        with plait.open(options.indexes / name, n_threads=options.threads, read_only=True) as index:
            runs = found_by_plan(index, judged, drop_self=name in options.drop_self)
        cells, is_best = compared(runs, judged)
        n_best += is_best
        row(name, len(judged.queries), *(cells.get(plan, "") for plan in (*SINGLE, *COMBINED)))
    print(
        f"\nhybrid or all is best, or not surely worse than the best single strand, on {n_best} of {len(options.sets)}"
    )


def add_drop_self(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--drop-self", nargs="+", default=(), metavar="SET", help="sets that ask with their own texts")


def check_drop_self(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuses a set that is not measured: a misspelt name would count queries as their own answers."""
    if unknown := [name for name in options.drop_self if name not in options.sets]:
        parser.error(f"--drop-self names {', '.join(unknown)}, which --sets does not; it has {', '.join(options.sets)}")


def found_by_plan(
    index: plait.Index,
    judged: Dataset,
    plans: Sequence[str] = (*SINGLE, *COMBINED),
    *,
    drop_self: bool = False,
) -> dict[str, Run]:
    """The best K of each mode that the index supports, without the query itself if `drop_self`."""
    kinds = {"bm25", *(name for name in SINGLE[1:] if getattr(index.spec, name) is not None)}
    plans = [plan for plan in plans if kinds.issuperset(find_mode(plan).needs)]
    runs: dict[str, dict[str, list[tuple[str, float]]]] = {plan: {} for plan in plans}
    queries = iter(judged.queries.items())
    while batch := list(itertools.islice(queries, BATCH)):
        texts = [text for _, text in batch]
        embeddings = index.encoder.encode_queries(texts)
        for plan in plans:
            hits = index.search_embeddings(embeddings, K + drop_self, texts=texts, mode=plan)
            runs[plan] |= {
                query: [(hit.id, hit.score) for hit in query_hits]
                for (query, _), query_hits in zip(batch, hits, strict=True)
            }
    return {plan: without_self(run, K) for plan, run in runs.items()} if drop_self else dict(runs)


def compared(runs: Mapping[str, Run], judged: Dataset) -> tuple[dict[str, str], bool]:
    """A cell for each mode, and whether `hybrid` or `all` is best or tied."""
    means = {plan: one.value for plan, one in compare(runs, judged.qrels, [MEASURE]).means[MEASURE].items()}
    best = max((plan for plan in SINGLE if plan in runs), key=lambda plan: means[plan])
    cells = {plan: f"{mean:.3f}" for plan, mean in means.items()}
    cells[best] = f"[{cells[best]}]"
    worse = set()
    for one in compare(runs, judged.qrels, [MEASURE], baseline=best).differences:
        if one.p_randomisation_corrected < SURE:
            cells[one.run] += " +" if one.mean.value > 0 else " -"
            worse |= {one.run} if one.mean.value < 0 else set()
    return cells, any(plan in runs and plan not in worse for plan in ("hybrid", "m3-all"))


def first_queries(judged: Dataset, count: int | None) -> Dataset:
    queries = dict(itertools.islice(judged.queries.items(), count))
    return replace(judged, queries=queries, qrels={query: judged.qrels[query] for query in queries})


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
