"""lancedb: a multivector column with its IVF_PQ index. Settings: nprobes, refine_factor (None is no refinement)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.embed import SHARD
from benchmarks.engine.corpus import DIM, Corpus, Shard
from benchmarks.engine.rivals.serve import Options, serve

SCHEMA = pa.schema([("number", pa.int64()), ("vectors", pa.list_(pa.list_(pa.float32(), DIM)))])


class Lance:
    packages = ("lancedb", "pyarrow", "numpy")

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        del options
        table = lancedb.connect(str(index)).create_table("passages", schema=SCHEMA)
        for number, part in enumerate(corpus.shards()):
            table.add(batch(part, number * SHARD))
        table.create_index(metric="cosine", vector_column_name="vectors", index_type="IVF_PQ")
        return {}

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        del corpus, options
        self._table = lancedb.connect(str(index)).open_table("passages")
        return {}

    def prepare(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        return query

    def search(self, query: NDArray[np.float32], k: int, settings: Options) -> Any:
        search = self._table.search(query, vector_column_name="vectors").limit(k).select(["number"])
        search = search.nprobes(settings["nprobes"])
        if settings["refine_factor"]:
            search = search.refine_factor(settings["refine_factor"])
        return search.to_arrow()

    def numbers(self, answer: Any) -> list[int]:
        return [int(number) for number in answer["number"].to_pylist()]


def batch(part: Shard, first: int) -> Any:
    values = np.asarray(part.values, np.float32)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), DIM)
    vectors = pa.ListArray.from_arrays(pa.array(part.offsets.astype(np.int32)), rows)
    return pa.table([pa.array(np.arange(first, first + len(part))), vectors], schema=SCHEMA)


if __name__ == "__main__":
    serve(Lance())
