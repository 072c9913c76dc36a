"""Real passages with topics, for the benchmark of filters: the vectors of a `benchmarks.embed` cache, the texts of its
data, and for each passage the cluster of its dense vector among 10, 100 and 1,000.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import plait
from benchmarks.embed import SHARD, read_embeddings, read_lines, shard
from plait.codec import kmeans
from plait.codec.assign import NearestCentroids
from plait.codec.dense_ivf import pad_dim
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.load import load_model
from plait.encode.protocol import EmbeddingSpec

CLUSTERS = (10, 100, 1000)
BATCH = 5000
Query = tuple[str, Embeddings]


@dataclass(frozen=True, slots=True)
class Topic:
    """A filter that keeps about one topic, and the passages that it keeps."""

    filter: str
    ids: frozenset[str]


class Passages:
    """The first passages of a cache."""

    def __init__(self, data: Path, cache: Path, n_passages: int) -> None:
        self._data, self._vectors = data, read_embeddings(cache, n_passages)
        shards = [np.load(shard(cache, "dense", number)) for number in range(-(-n_passages // SHARD))]
        self._dense = np.concatenate(shards)[:n_passages].astype(np.float32)
        self._topics = {n: _clusters(self._dense, n) for n in CLUSTERS if n <= n_passages // 4}

    def __len__(self) -> int:
        return len(self._dense)

    def build(self, path: Path) -> None:
        """The index, compacted with default options."""
        lines = read_lines(self._data / "corpus.jsonl")
        spec = EmbeddingSpec(dense=self._dense.shape[1], multi=self._vectors.values.shape[1])
        with plait.open(path, create=True, spec=spec, n_threads=1) as index:
            for first in range(0, len(self), BATCH):
                numbers = range(first, min(first + BATCH, len(self)))
                documents = [self._document(*one) for one in zip(numbers, islice(lines, len(numbers)), strict=True)]
                index.add_embeddings(documents, self._embeddings(numbers), merge=False)
            for field in ("place", *(f"topic{n}" for n in self._topics)):
                index.create_field_index(field)
            index.compact()

    def _document(self, number: int, line: dict[str, str]) -> dict[str, Any]:
        bucket = zlib.crc32(str(number).encode()) % 1000  # from 0 to 999, independent of the topic
        topics = {f"topic{n}": int(topics[number]) for n, topics in self._topics.items()}
        title, text = line.get("title") or "", line["text"]
        return {"id": f"p{number}", "title": title, "text": text, "place": bucket, **topics}

    def _embeddings(self, numbers: range) -> Embeddings:
        offsets = self._vectors.offsets[numbers.start : numbers.stop + 1]
        values = self._vectors.values[offsets[0] : offsets[-1]].astype(np.float32)
        return Embeddings(
            dense=self._dense[numbers.start : numbers.stop], multi=MultiVectors(values, offsets - offsets[0])
        )

    def topics(self, share: float, n_topics: int) -> list[Topic]:
        """Topics that keep about this share: clusters of the nearest size, or unions of several."""
        n = min(self._topics, key=lambda n: abs(np.log(n * min(share, 0.1))))
        topics = self._topics[n]
        sizes = np.bincount(topics, minlength=n)
        if share <= 0.1:
            near = np.argsort(np.abs(sizes - share * len(self)), kind="stable")[:n_topics]
            chosen = [near[one : one + 1] for one in range(len(near))]
        else:
            turns = [np.roll(np.arange(n), -turn) for turn in range(n_topics)]
            chosen = [turn[: np.searchsorted(np.cumsum(sizes[turn]), share * len(self)) + 1] for turn in turns]
        row_sets = [np.flatnonzero(np.isin(topics, one)) for one in chosen]
        return [
            Topic(f"topic{n} in ({', '.join(map(str, one))})", frozenset(f"p{number}" for number in numbers))
            for one, numbers in zip(chosen, row_sets, strict=True)
        ]

    def queries(self, model: Path, n_queries: int) -> list[Query]:
        """The first questions of the data, encoded."""
        texts = [line["text"] for line in islice(read_lines(self._data / "queries.jsonl"), n_queries)]
        embeddings = load_model(model, n_threads=1).encode_queries(texts)
        assert embeddings.dense is not None
        assert embeddings.multi is not None
        return [
            (
                text,
                Embeddings(
                    dense=embeddings.dense[one : one + 1], multi=MultiVectors.from_items([embeddings.multi[one]])
                ),
            )
            for one, text in enumerate(texts)
        ]


def _clusters(vectors: NDArray[np.float32], n: int) -> NDArray[np.int32]:
    rows = pad_dim(vectors).astype(np.float16)
    return NearestCentroids(kmeans.train(rows, n)).assign(rows)
