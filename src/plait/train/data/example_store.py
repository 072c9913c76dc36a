"""All examples of a run on disk, read by number in any order. Each distinct passage is stored once, so equal numbers
mean equal passages. Only lengths, sources and positives are in memory."""

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

CountTokens = Callable[[Sequence[str]], Sequence[int]]
BLOCK_EXAMPLES = 256  # examples whose texts are counted together
MAX_NUMBERS = 500  # in one statement: SQLite allows about a thousand

_SCHEMA = """
CREATE TABLE passages (number INTEGER PRIMARY KEY, digest BLOB UNIQUE, id TEXT, text TEXT);
CREATE TABLE examples (number INTEGER PRIMARY KEY, source TEXT, query TEXT, positives TEXT, negatives TEXT,
                       scores TEXT, length INTEGER);
CREATE TABLE metadata (name TEXT PRIMARY KEY, value TEXT);
"""


def count_characters(texts: Sequence[str]) -> list[int]:
    """Lengths in characters, where there is no tokenizer."""
    return [len(text) for text in texts]


@dataclass(frozen=True, slots=True)
class StoredExample:
    """An example whose passages are numbers of the store."""

    number: int
    query: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...]
    positive_scores: tuple[float, ...] | None
    negative_scores: tuple[float, ...] | None
    source: str


class ExampleStore:
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
        self.lengths: NDArray[np.int64] = np.array(lengths, np.int64)  # of the longest text of each example
        self.n_negatives: NDArray[np.int64] = np.array(counts, np.int64)
        self._positives, self._starts = np.array(flat, np.int64), np.array(starts, np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def positives_of(self, number: int) -> NDArray[np.int64]:
        """The passages that answer an example."""
        return self._positives[self._starts[number] : self._starts[number + 1]]

    def get(self, numbers: Sequence[int]) -> list[StoredExample]:
        """These examples, in this order."""
        examples = {}
        columns = "number, query, positives, negatives, scores, source"
        for number, query, positives, negatives, scores, source in self._fetch(columns, "examples", numbers):
            positive_scores, negative_scores = (
                tuple(values) if values is not None else None for values in json.loads(scores)
            )
            lists = tuple(json.loads(positives)), tuple(json.loads(negatives))
            examples[number] = StoredExample(number, query, *lists, positive_scores, negative_scores, source)
        return [examples[int(number)] for number in numbers]

    def passages(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages with these numbers, in this order."""
        rows = self._fetch("number, text, id", "passages", numbers)
        passages = {number: Passage(text, id) for number, text, id in rows}
        return [passages[int(number)] for number in numbers]

    def example(self, stored: StoredExample) -> Example:
        """The example with its texts."""
        passages = self.passages([*stored.positives, *stored.negatives])
        n_positives = len(stored.positives)
        lists = tuple(passages[:n_positives]), tuple(passages[n_positives:])
        return Example(stored.query, *lists, stored.positive_scores, stored.negative_scores, stored.source)

    def close(self) -> None:
        self._connection.close()

    def _fetch(self, columns: str, table: str, numbers: Sequence[int]) -> list[Any]:
        wanted = sorted({int(number) for number in numbers})
        rows: list[Any] = []
        for start in range(0, len(wanted), MAX_NUMBERS):
            chunk = wanted[start : start + MAX_NUMBERS]
            marks = ",".join("?" * len(chunk))
            rows += self._connection.execute(f"SELECT {columns} FROM {table} WHERE number IN ({marks})", chunk)
        return rows


def stored_inputs(path: Path) -> str | None:
    """The `inputs` with which the store at `path` was built; None if there is no complete store."""
    if not path.is_file():
        return None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            row = connection.execute("SELECT value FROM metadata WHERE name = 'inputs'").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return None
    return None if row is None else str(row[0])


def build_example_store(
    path: Path, examples: Iterable[Example], *, inputs: str = "", count_tokens: CountTokens = count_characters
) -> ExampleStore:
    """Writes all examples to a store at `path`, whole or not at all. `inputs` describes what the examples were made
    from; `count_tokens` gives the lengths by which batches are grouped."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    connection = sqlite3.connect(draft)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_SCHEMA)
        n_examples = 0
        for block in _blocks(examples):
            for example, length in zip(block, _longest(block, count_tokens), strict=True):
                _insert_example(connection, n_examples, example, length)
                n_examples += 1
        connection.execute("INSERT INTO metadata VALUES ('inputs', ?)", [inputs])
        connection.commit()
    finally:
        connection.close()
    if n_examples == 0:
        draft.unlink()
        raise InputError("there is nothing to train on: the sources have no examples")
    draft.replace(path)
    return ExampleStore(path)


def _blocks(examples: Iterable[Example]) -> Iterator[list[Example]]:
    rest = iter(examples)
    while block := list(islice(rest, BLOCK_EXAMPLES)):
        yield block


def _longest(block: Sequence[Example], count_tokens: CountTokens) -> list[int]:
    """The length of the longest text of each example."""
    texts = [[one.query, *(passage.text for passage in (*one.positives, *one.negatives))] for one in block]
    lengths = iter(count_tokens([text for of_example in texts for text in of_example]))
    return [max(islice(lengths, len(of_example))) for of_example in texts]


def _insert_example(connection: sqlite3.Connection, number: int, example: Example, length: int) -> None:
    positives = [_insert_passage(connection, passage) for passage in example.positives]
    negatives = [_insert_passage(connection, passage) for passage in example.negatives]
    # A negative with the text of a positive is dropped: it answers the query, whatever the file says.
    hard = [index for index, negative in enumerate(negatives) if negative not in positives]
    negative_scores = example.negative_scores
    scores = [
        None if example.positive_scores is None else list(example.positive_scores),
        None if negative_scores is None else [negative_scores[index] for index in hard],
    ]
    connection.execute(
        "INSERT INTO examples VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            number,
            example.source,
            example.query,
            json.dumps(positives),
            json.dumps([negatives[index] for index in hard]),
            json.dumps(scores),
            length,
        ],
    )


def _insert_passage(connection: sqlite3.Connection, passage: Passage) -> int:
    """The number of the passage, which is new if no passage has the same text."""
    key = digest(passage.text)
    row = connection.execute("SELECT number FROM passages WHERE digest = ?", [key]).fetchone()
    if row is not None:
        return int(row[0])
    values = [key, passage.id, passage.text]
    cursor = connection.execute("INSERT INTO passages (digest, id, text) VALUES (?, ?, ?)", values)
    assert cursor.lastrowid is not None
    return cursor.lastrowid
