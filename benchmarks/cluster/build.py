"""A collection built by shards on Ray beside one index built on one machine, of the same passages with the same model.
It needs plait[cluster]. Give a model that encodes fast, such as a converted static one (`plait convert`), or
encoding is all that is measured.

    python -m benchmarks.cluster.build --corpus data/corpus.jsonl --documents 267610 --model potion
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import islice
from pathlib import Path

import plait
from benchmarks.embed import read_lines
from plait.cluster.build import BuildConfig
from plait.cluster.ray_build import Workers, build_on_ray
from plait.cluster.ray_runtime import connect
from plait.cluster.sharded_index import open_cluster
from plait.encode.load import LazyEncoder
from plait.readers import documents_from
from plait.readers.sources import Sources

K = 10


def first_lines(corpus: Path, n_documents: int, to: Path) -> int:
    """Copies the first documents; returns how many there are."""
    n_copied = 0
    with to.open("w", encoding="utf-8") as target:
        for line in islice(read_lines(corpus), n_documents):
            target.write(json.dumps(line) + "\n")
            n_copied += 1
    return n_copied


def on_one_machine(corpus: Path, to: Path, model: str | None, n_threads: int) -> float:
    """Seconds until the index is complete: one codec, all segments merged."""
    begin = time.perf_counter()
    with plait.open(to, create=True, model=model, n_threads=n_threads) as index:
        index.add(documents_from([corpus]))
        index.compact()
    return time.perf_counter() - begin


def by_shards(corpus: Path, to: Path, model: str | None, n_shards: int, workers: Workers) -> float:
    """Seconds until the manifest is published; the steps are printed with their times."""
    source = LazyEncoder(model, None, precision=None, n_threads=1)
    config = BuildConfig.of(source, n_shards=n_shards)
    begin = time.perf_counter()

    def on_step(step: str) -> None:
        print(f"  {time.perf_counter() - begin:7.1f} s  {step}", flush=True)

    build_on_ray(Sources([corpus]), to, config, model=model, encoder=source.get(), workers=workers, on_step=on_step)
    return time.perf_counter() - begin


def shared_hits(one: Path, collection: Path, model: str | None, queries: list[str], mode: str) -> float:
    """The share of the index's best that the collection finds."""
    with plait.open(one, model=model, read_only=True) as index, open_cluster(collection, model=model) as sharded:
        wanted, seen = index.search_many(queries, K, mode=mode), sharded.search_many(queries, K, mode=mode)
    both = sum(len({hit.id for hit in a} & {hit.id for hit in b}) for a, b in zip(wanted, seen, strict=True))
    return both / max(sum(map(len, wanted)), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="JSON lines; a file with .gz is read too")
    parser.add_argument("--documents", type=int, default=267_610)
    parser.add_argument("--model", help="a name or a folder")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of the index on one machine")
    parser.add_argument("--queries", type=int, default=100)
    given = parser.parse_args()
    connect(None)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        corpus = folder / "corpus.jsonl"
        n_documents = first_lines(given.corpus, given.documents, corpus)
        print(f"{n_documents:,} documents, {given.shards} shards, {given.workers} workers", flush=True)
        workers = Workers(n_encoders=given.workers)
        sharded = by_shards(corpus, folder / "sharded", given.model, given.shards, workers)
        alone = on_one_machine(corpus, folder / "one", given.model, given.threads)
        for name, seconds in (("by shards", sharded), ("one machine", alone)):
            print(f"{name:<12} {seconds:8.1f} s  {n_documents / seconds:8,.0f} documents a second")
        print(f"by shards takes {sharded / alone:.2f} times as long")
        texts = islice(read_lines(corpus), 0, n_documents, max(n_documents // given.queries, 1))
        queries = [" ".join(str(line["text"]).split()[:12]) for line in texts]
        for mode in ("dense", "bm25", "hybrid"):
            share = shared_hits(folder / "one", folder / "sharded", given.model, queries, mode)
            print(f"{mode}: {share:.3f} of the best {K} of the index are those of the collection")


if __name__ == "__main__":
    main()
