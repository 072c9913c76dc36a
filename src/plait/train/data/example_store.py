"""The pool: all examples of a run on disk, drawn from by number in any order. Passages are kept once by their text, and
their numbers tell which are the same; only lengths, sources and positives are held in memory."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import InputError
from plait.train.data.example import Example, Passage, digest

Measure = Callable[[Sequence[str]], Sequence[int]]
_BLOCK = 256  # examples that are measured together

_SCHEMA = """
CREATE TABLE passages (number INTEGER PRIMARY KEY, digest BLOB UNIQUE, id TEXT, text TEXT);
CREATE TABLE examples (number INTEGER PRIMARY KEY, source TEXT, query TEXT, positives TEXT, negatives TEXT,
                       scores TEXT, length INTEGER);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT);
"""


def characters(texts: Sequence[str]) -> list[int]:
    """Lengths in characters: for when there is no tokeniser at hand."""
    return [len(text) for text in texts]


@dataclass(frozen=True, slots=True)
class Pooled:
    """An example whose passages are numbers of the pool."""

    number: int
    query: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    positive_scores: tuple[float, ...] | None
    negative_scores: tuple[float, ...] | None
    source: str


class Pool:
    """Examples by number, from 0."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        rows = self._connection.execute("SELECT source, positives, length, negatives FROM examples ORDER BY number")
        names: dict[str, int] = {}
        sources, lengths, counts = array("i"), array("q"), array("q")
        flat, starts = array("q"), array("q", [0])
        for source, positives, length, negatives in rows:
            sources.append(names.setdefault(source, len(names)))
            flat.extend(json.loads(positives))
            starts.append(len(flat))
            lengths.append(length)
            counts.append(negatives.count(",") + 1 if negatives != "[]" else 0)
        self.source_names = list(names)
        self.sources: NDArray[np.int32] = np.array(sources, np.int32)
        self.lengths: NDArray[np.int64] = np.array(lengths, np.int64)  # of the longest text, as it was measured
        self.n_negatives: NDArray[np.int64] = np.array(counts, np.int64)
        self._positives, self._starts = np.array(flat, np.int64), np.array(starts, np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def positives_of(self, number: int) -> NDArray[np.int64]:
        """The passages that answer an example."""
        return self._positives[self._starts[number] : self._starts[number + 1]]

    def get(self, numbers: Sequence[int]) -> list[Pooled]:
        """These examples, in this order."""
        found = {}
        columns = "number, query, positives, negatives, scores, source"
        for number, query, positives, negatives, scores, source in self._fetch(columns, "examples", numbers):
            of_positives, of_negatives = (tuple(own) if own is not None else None for own in json.loads(scores))
            lists = tuple(json.loads(positives)), tuple(json.loads(negatives))
            found[number] = Pooled(number, query, *lists, of_positives, of_negatives, source)
        return [found[int(number)] for number in numbers]

    def passages(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages of these numbers, in this order."""
        rows = self._fetch("number, text, id", "passages", numbers)
        found = {number: Passage(text, id) for number, text, id in rows}
        return [found[int(number)] for number in numbers]

    def example(self, pooled: Pooled) -> Example:
        """The example with its texts."""
        own = self.passages([*pooled.positives, *pooled.negatives])
        cut = len(pooled.positives)
        lists = tuple(own[:cut]), tuple(own[cut:])
        return Example(pooled.query, *lists, pooled.positive_scores, pooled.negative_scores, pooled.source)

    def close(self) -> None:
        self._connection.close()

    def _fetch(self, columns: str, table: str, numbers: Sequence[int]) -> list[Any]:
        wanted = sorted({int(number) for number in numbers})
        rows: list[Any] = []
        for start in range(0, len(wanted), 500):
            chunk = wanted[start : start + 500]
            marks = ",".join("?" * len(chunk))
            rows += self._connection.execute(f"SELECT {columns} FROM {table} WHERE number IN ({marks})", chunk)
        return rows


def pool_facts(path: Path) -> str | None:
    """What the pool at `path` was made from, or None if there is no pool."""
    if not path.is_file():
        return None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            row = connection.execute("SELECT value FROM facts WHERE name = 'made from'").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return None
    return None if row is None else str(row[0])


def make_pool(path: Path, examples: Iterable[Example], *, made_from: str = "", measure: Measure = characters) -> Pool:
    """Reads all examples into a pool at `path`; a pool that is not finished does not stay. `measure` gives the lengths
    of texts, by which batches are grouped."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    connection = sqlite3.connect(draft)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_SCHEMA)
        n_examples = 0
        for block in _blocks(examples):
            for example, length in zip(block, _longest(block, measure), strict=True):
                _insert(connection, n_examples, example, length)
                n_examples += 1
        connection.execute("INSERT INTO facts VALUES ('made from', ?)", [made_from])
        connection.commit()
    finally:
        connection.close()
    if n_examples == 0:
        draft.unlink()
        raise InputError("there is nothing to train on: the sources hold no example")
    draft.replace(path)
    return Pool(path)


def _blocks(examples: Iterable[Example]) -> Iterator[list[Example]]:
    rest = iter(examples)
    while block := list(islice(rest, _BLOCK)):
        yield block


def _longest(block: Sequence[Example], measure: Measure) -> list[int]:
    """The length of the longest text of each example."""
    texts = [[one.query, *(passage.text for passage in (*one.positives, *one.negatives))] for one in block]
    lengths = iter(measure([text for own in texts for text in own]))
    return [max(islice(lengths, len(own))) for own in texts]


def _insert(connection: sqlite3.Connection, number: int, example: Example, length: int) -> None:
    positives = [_passage(connection, passage) for passage in example.positives]
    negatives = [_passage(connection, passage) for passage in example.negatives]
    # A passage that answers the query is not one of its negatives, whatever the file says; the text decides.
    kept = [place for place, negative in enumerate(negatives) if negative not in positives]
    of_negatives = example.negative_scores
    scores = [
        None if example.positive_scores is None else list(example.positive_scores),
        None if of_negatives is None else [of_negatives[place] for place in kept],
    ]
    connection.execute(
        "INSERT INTO examples VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            number,
            example.source,
            example.query,
            json.dumps(positives),
            json.dumps([negatives[place] for place in kept]),
            json.dumps(scores),
            length,
        ],
    )


def _passage(connection: sqlite3.Connection, passage: Passage) -> int:
    key = digest(passage.text)
    row = connection.execute("SELECT number FROM passages WHERE digest = ?", [key]).fetchone()
    if row is not None:
        return int(row[0])
    values = [key, passage.id, passage.text]
    cursor = connection.execute("INSERT INTO passages (digest, id, text) VALUES (?, ?, ?)", values)
    assert cursor.lastrowid is not None
    return cursor.lastrowid
