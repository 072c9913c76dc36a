"""Writes the token vectors of a corpus once, for every benchmark that needs them.

    python -m benchmarks.embed --data wikipassages --cache cache --passages 15000 --model light-model

`--data` is a BEIR folder. `--model` is a model folder, by default the bundled model; `models/scripts/build_minilm.py`
builds one that is twice as fast. Passages are encoded in corpus order, 1,000 to a shard. A stopped run continues with
the next shard, and a run for more passages keeps the shards that exist. Dense vectors are written too if the model has
them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SHARD = 1000  # passages


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingFiles:
    """The vectors of passages and queries; passage i owns values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[np.float16]
    offsets: NDArray[np.int64]
    queries: NDArray[np.float32]
    query_offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def query(self, number: int) -> NDArray[np.float32]:
        return self.queries[self.query_offsets[number] : self.query_offsets[number + 1]]

    @property
    def n_queries(self) -> int:
        return len(self.query_offsets) - 1


def read_embeddings(cache: Path, n_passages: int) -> EmbeddingFiles:
    """The first passages of a cache, and all of its queries."""
    values, lengths = [], []
    for number in range(-(-n_passages // SHARD)):
        shard_lengths = np.load(shard(cache, "lengths", number))[: n_passages - number * SHARD]
        lengths.append(shard_lengths)
        values.append(np.load(shard(cache, "values", number), mmap_mode="r")[: shard_lengths.sum()])
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths), dtype=np.int64)])
    query_lengths = np.load(cache / "query-lengths.npy")
    query_offsets = np.concatenate([[0], np.cumsum(query_lengths, dtype=np.int64)])
    queries = np.load(cache / "query-values.npy").astype(np.float32)
    return EmbeddingFiles(np.concatenate(values), offsets, queries, query_offsets)


def shard(cache: Path, kind: str, number: int) -> Path:
    return cache / f"{kind}-{number:04d}.npy"


def make(data: Path, cache: Path, n_passages: int, *, model: Path | None, n_threads: int) -> None:
    """Encodes the shards that are missing."""
    from plait.encode.load import load_model

    cache.mkdir(parents=True, exist_ok=True)
    encoder = load_model(model, n_threads=n_threads)
    (cache / "about.json").write_text(json.dumps({"data": data.name, "model": encoder.fingerprint}) + "\n")
    if not (cache / "query-lengths.npy").exists():
        queries = encoder.encode_queries([query["text"] for query in read_lines(data / "queries.jsonl")])
        if queries.dense is not None:
            np.save(cache / "query-dense.npy", queries.dense)
        save(cache / "query-values.npy", cache / "query-lengths.npy", queries.multi)
    passages = read_lines(data / "corpus.jsonl")
    for number in range(-(-n_passages // SHARD)):
        documents = list(islice(passages, SHARD))
        if not documents or shard(cache, "lengths", number).exists():
            continue
        start = time.perf_counter()
        texts = [f"{document.get('title') or ''} {document['text']}".strip() for document in documents]
        embeddings = encoder.encode_documents(texts)
        multi = embeddings.multi
        if embeddings.dense is not None:
            np.save(shard(cache, "dense", number), embeddings.dense.astype(np.float16))
        save(shard(cache, "values", number), shard(cache, "lengths", number), multi)
        assert multi is not None
        rate = len(multi.values) / (time.perf_counter() - start)
        print(f"{(number + 1) * SHARD:,} passages, {rate:,.0f} vectors a second", flush=True)


def save(values: Path, lengths: Path, multi: object) -> None:
    """Writes the lengths last: a shard that has its lengths is complete."""
    from plait.embeddings import MultiVectors

    assert isinstance(multi, MultiVectors)
    np.save(values, multi.values.astype(np.float16))
    np.save(lengths, np.diff(multi.offsets))


def read_lines(path: Path) -> Iterator[dict[str, str]]:
    compressed = not path.exists()
    with gzip.open(f"{path}.gz", "rt", encoding="utf-8") if compressed else path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--passages", type=int, default=15_000)
    parser.add_argument("--model", type=Path, help="a model folder in the place of the bundled model")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    make(options.data, options.cache, options.passages, model=options.model, n_threads=options.threads)


if __name__ == "__main__":
    main()
