"""What score smoothing adds: hybrid search with several weights of the nearest candidates, on judged sets.

    python -m benchmarks.quality.smoothing --data data --indexes indexes --sets scifact cranfield cacm

`INDEXES/SET` is the index of each set, as for `benchmarks.quality.modes`. `+` and `-` mean that a weight differs from
none with p < 0.05: paired randomisation test, Holm-corrected for the number of weights.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import plait
from benchmarks.quality.modes import BATCH, MEASURE, SURE, first_queries, row
from plait.evaluate import Dataset, Run, compare, load_dataset

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of BEIR folders")
    parser.add_argument("--indexes", type=Path, required=True, help="a folder with an index for each set")
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, default=None, help="only the first so many of each set")
    options = parser.parse_args()
    row("set", "queries", *SHARES)
    row(*["---"] * (2 + len(SHARES)))
    for name in options.sets:
        judged = first_queries(load_dataset(str(options.data / name), options.split), options.queries)
        with plait.open(options.indexes / name, n_threads=1, read_only=True) as index:
            runs = found_by_share(index, judged)
        means = compare(runs, judged.qrels, [MEASURE]).means[MEASURE]
        cells = {share: f"{one.value:.4f}" for share, one in means.items()}
        for one in compare(runs, judged.qrels, [MEASURE], baseline="0.0").differences:
            if one.p_randomisation_corrected < SURE:
                cells[one.run] += " +" if one.mean.value > 0 else " -"
        row(name, len(judged.queries), *(cells[str(share)] for share in SHARES))


def found_by_share(index: plait.Index, judged: Dataset) -> dict[str, Run]:
    runs: dict[str, dict[str, list[tuple[str, float]]]] = {str(share): {} for share in SHARES}
    queries = iter(judged.queries.items())
    while batch := list(itertools.islice(queries, BATCH)):
        texts = [text for _, text in batch]
        embeddings = index.encoder.encode_queries(texts)
        for share in SHARES:
            hits = index.search_embeddings(embeddings, 11, texts=texts, params=plait.HybridParams(smoothing=share))
            runs[str(share)] |= {
                # A query that is a document of the set is not its own answer.
                query: [(hit.id, hit.score) for hit in query_hits if hit.id != query][:10]
                for (query, _), query_hits in zip(batch, hits, strict=True)
            }
    return dict(runs)


if __name__ == "__main__":
    main()
