"""The index that the server benchmarks search, made once in a folder that is kept.

    python -m benchmarks.serve.build --data wikipassages --work serve-bench

Passages are the first of a BEIR folder. Each is cut to its first `--characters`, so that encoding 50,000 of them takes
minutes and not an hour. A stopped build continues where it was: passages that the index has are not encoded again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from benchmarks.embed import read_lines

DEFAULT_PASSAGES = 50_000
DEFAULT_CHARACTERS = 200
COMMIT_EVERY = 1_000  # passages


@dataclass(frozen=True, slots=True)
class Collection:
    """Which passages are indexed, and where."""

    data: Path
    work: Path
    n_passages: int = DEFAULT_PASSAGES
    n_characters: int = DEFAULT_CHARACTERS

    @property
    def index(self) -> Path:
        return self.work / f"index-{self.n_passages}-{self.n_characters}"

    @property
    def vectors(self) -> Path:
        """The folder with the dense vectors of passages and queries, for other servers."""
        return self.work / f"vectors-{self.n_passages}-{self.n_characters}"

    def passages(self) -> Iterator[dict[str, str]]:
        for line in islice(read_lines(self.data / "corpus.jsonl"), self.n_passages):
            text = shortened(f"{line.get('title') or ''} {line['text']}".strip(), self.n_characters)
            yield {"id": line["_id"], "text": text}

    def queries(self) -> list[str]:
        return [line["text"] for line in read_lines(self.data / "queries.jsonl")]

    def judged(self, ids: set[str]) -> dict[int, set[str]]:
        """For queries whose passage is among these ids: the number of the query and its passages."""
        numbers = {line["_id"]: number for number, line in enumerate(read_lines(self.data / "queries.jsonl"))}
        passages: dict[int, set[str]] = {}
        for line in (self.data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            query, passage, grade = line.split("\t")
            if passage in ids and int(grade) > 0:
                passages.setdefault(numbers[query], set()).add(passage)
        return passages

    def is_built(self) -> bool:
        return (self.work / f"{self.index.name}.json").exists()


def shortened(text: str, n_characters: int) -> str:
    """The first characters of a text, without a word that is cut."""
    if len(text) <= n_characters:
        return text
    whole, _, _ = text[: n_characters + 1].rpartition(" ")
    return whole or text[:n_characters]


def build(collection: Collection, *, n_threads: int | None = None) -> None:
    """Makes the index, or what is missing of it, and compacts it."""
    if collection.is_built():
        return
    collection.work.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with plait.open(collection.index, create=True, n_threads=n_threads) as index:
        passages = collection.passages()
        n_done = 0
        while part := list(islice(passages, COMMIT_EVERY)):
            index.add(part)
            n_done += len(part)
            print(f"{n_done:,} passages after {time.monotonic() - began:,.0f} s", flush=True)
        index.compact()
        about = {"passages": len(index), "characters": collection.n_characters, "data": collection.data.name}
    (collection.work / f"{collection.index.name}.json").write_text(json.dumps(about) + "\n")


def dense_vectors(collection: Collection) -> tuple[list[str], NDArray[np.float32], NDArray[np.float32]]:
    """Ids and dense vectors of the passages, and the vectors of the queries. They are written to a folder once."""
    folder = collection.vectors
    files = folder / "ids.json", folder / "passages.npy", folder / "queries.npy"
    if not all(file.exists() for file in files):
        folder.mkdir(parents=True, exist_ok=True)
        with plait.open(collection.index, read_only=True) as index:
            ids, rows = _stored_vectors(index)
            queries = index.encoder.encode_queries(collection.queries()).dense
        assert queries is not None
        np.save(files[1], rows)
        np.save(files[2], queries.astype(np.float32))
        files[0].write_text(json.dumps(ids), encoding="utf-8")
    return json.loads(files[0].read_text(encoding="utf-8")), np.load(files[1]), np.load(files[2])


def _stored_vectors(index: plait.Index) -> tuple[list[str], NDArray[np.float32]]:
    """The dense vectors of the index as they were encoded. Passages are shorter than a chunk, so each has one."""
    snapshot = index.snapshot
    numbers, rows = [], []
    for segment in snapshot.segments:
        assert segment.dense is not None
        live = slice(None) if segment.live is None else segment.live
        numbers += segment.docs[live].tolist()
        rows.append(segment.dense[live])
    return snapshot.fetch_ids(numbers), np.concatenate(rows)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="a BEIR folder, such as wikipassages")
    parser.add_argument("--work", type=Path, required=True, help="where the index and vectors are kept")
    parser.add_argument("--passages", type=int, default=DEFAULT_PASSAGES)
    parser.add_argument("--characters", type=int, default=DEFAULT_CHARACTERS, help="kept of each passage")


def collection_of(options: argparse.Namespace) -> Collection:
    return Collection(options.data, options.work, options.passages, options.characters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    build(collection_of(parser.parse_args()))


if __name__ == "__main__":
    main()
