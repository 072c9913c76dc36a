"""text_index.plait: the words of a segment's documents, laid out for fast BM25.

docs, doc_lengths          the documents, ascending, and the number of words of each
words_utf8, word_offsets   the distinct words, ascending, as UTF-8 one after another
offsets, rows, counts      word i occurs in the documents docs[rows[offsets[i]:offsets[i + 1]]], `counts` times
impacts, row_scales, max_weights, frequent_terms, window_maxima
                           the same as impacts for the kernel of sparse search; see plait.storage.files.sparse
attributes                 mean_doc_length; analysis_rules, see plait.text.fts_table; window_rows

A compaction of many documents copies the words from SQLite's full-text table. FTS5 scores every document that has a
word of the query; this file lets BM25 skip most of them. Impacts select candidates, and `plait.search.bm25` scores
those from counts and lengths by the formula of `plait.scoring.bm25`. This module reads and writes the file; it does not
search.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.codec.impacts import MAX_IMPACT, WINDOW_ROWS, with_window_maxima
from plait.errors import CorruptIndexError, InputError
from plait.locks import once_property
from plait.scoring.bm25 import saturated
from plait.scoring.sparse import Impacts
from plait.storage.files.residual import check_offsets
from plait.storage.files.sparse import (
    check_posting_rows,
    check_same_bounds,
    check_scales,
    impact_arrays,
    read_impacts,
)
from plait.storage.segment_file import ArraySource, FileRecord, SegmentFile, write_file
from plait.text.fts_table import read_analysis_rules

TEXT_INDEX = "text_index.plait"
MIN_DOCUMENTS, MAX_DOCUMENTS = 20_000, 5_000_000  # the file is built in memory
MAX_SCALE = 1e6
MAX_COUNT = 255
BLOCK_OCCURRENCES = 1_000_000  # that one statement reads from SQLite
MAX_CACHED_WORDS = 20_000
LANDMARK_STEP = 64  # one word in 64 is kept in memory, to locate the others


class TextIndex:
    """The arrays of a text index. Thread-safe."""

    def __init__(
        self,
        docs: NDArray[np.int64],
        lengths: NDArray[np.uint32],
        words_utf8: NDArray[np.uint8],
        word_offsets: NDArray[np.int64],
        counts: NDArray[np.uint8],
        impacts: Impacts,
        mean_length: float,
    ) -> None:
        self.docs, self.lengths, self.counts = docs, lengths, counts
        self.impacts, self.mean_length = impacts, mean_length
        self.words_utf8, self.word_offsets = words_utf8, word_offsets
        self._numbers: dict[str, int | None] = {}  # of words that were looked up

    def __len__(self) -> int:
        return len(self.docs)

    def word(self, number: int) -> bytes:
        begin, end = self.word_offsets[number : number + 2]
        return self.words_utf8[begin:end].tobytes()

    def word_number(self, word: str) -> int | None:
        """The number of a word; None if no document has it."""
        number = self._numbers.get(word, -1)
        if number != -1:
            return number
        n_words, wanted = len(self.word_offsets) - 1, word.encode()
        # First among the landmarks, which needs no line of Python for each step, then between two of them.
        after = bisect_left(self._landmarks, wanted)
        low, high = max(after - 1, 0) * LANDMARK_STEP, min(after * LANDMARK_STEP + 1, n_words)
        position = bisect_left(range(n_words), wanted, low, high, key=self.word)
        number = position if position < n_words and self.word(position) == wanted else None
        if len(self._numbers) >= MAX_CACHED_WORDS:
            self._numbers = {}
        self._numbers[word] = number
        return number

    def document_frequency(self, word: str) -> int:
        """The number of documents that have a word."""
        number = self.word_number(word)
        return 0 if number is None else int(self.impacts.offsets[number + 1] - self.impacts.offsets[number])

    @once_property
    def _landmarks(self) -> list[bytes]:
        return [self.word(number) for number in range(0, len(self.word_offsets) - 1, LANDMARK_STEP)]


class TextIndexFile:
    """The file of one segment. The constructor checks sizes, which takes the same time at any size."""

    def __init__(self, file: SegmentFile) -> None:
        self._file = file
        self.rules = file.attributes.get("analysis_rules")
        mean_length = file.attributes.get("mean_doc_length")
        if not isinstance(mean_length, float) or not 0 < mean_length < 1e12:
            raise file.damaged(f"attribute 'mean_doc_length' is {mean_length!r:.50}; it must be above 0")
        docs, rows = file.array("docs", "<i8", (None,)), file.array("rows", "<u4", (None,))
        offsets = file.array("offsets", "<i8", (None,))
        terms = np.arange(max(len(offsets) - 1, 0), dtype=np.int32)
        self._index = TextIndex(
            docs,
            file.array("doc_lengths", "<u4", (len(docs),)),
            file.array("words_utf8", "|u1", (None,)),
            file.array("word_offsets", "<i8", (len(offsets),)),
            file.array("counts", "|u1", (len(rows),)),
            read_impacts(file, terms, offsets, rows, n_rows=len(docs)),
            mean_length,
        )

    def read(self) -> TextIndex:
        """The arrays. Checks offsets, documents and scales."""
        index = self._index
        with self._file.checking():
            check_offsets("offsets", index.impacts.offsets, len(index.impacts.rows))
            check_offsets("word_offsets", index.word_offsets, len(index.words_utf8))
            if np.any(index.docs[1:] <= index.docs[:-1]):
                raise InputError("its documents do not ascend")
            check_scales(index.impacts, MAX_SCALE)
        return index

    def check_values(self, row_docs: NDArray[np.int64]) -> None:
        """Reads everything, and compares the derived arrays with the counts. `row_docs` has the document of each row of
        the segment."""
        index = self.read()
        with self._file.checking():
            if not np.array_equal(np.unique(row_docs), index.docs):
                raise InputError("its documents are not those of the segment")
            check_posting_rows(index.impacts)
            if len(index.counts) and index.counts.min() < 1:
                raise InputError("a posting has no occurrence")
            expected = impacts_from_counts(
                index.counts, index.impacts.offsets, index.impacts.rows, index.lengths, index.mean_length
            )
            for name, attribute in (("impacts", "impacts"), ("row_scales", "scales")):
                if not np.array_equal(getattr(expected, attribute), getattr(index.impacts, attribute)):
                    raise InputError(f"{name} do not match the counts")
            check_same_bounds(expected, index.impacts)


def needs_text_index(n_documents: int) -> bool:
    """Whether an index of this size gets the file."""
    return MIN_DOCUMENTS <= n_documents <= MAX_DOCUMENTS


def impacts_from_counts(
    counts: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    rows: NDArray[np.uint32],
    lengths: NDArray[np.uint32],
    mean_length: float,
) -> Impacts:
    """The saturated term frequencies of BM25, in 255ths of the largest in the same document."""
    weights = saturated(counts.astype(np.float64), lengths[rows].astype(np.float64), mean_length).astype(np.float32)
    largest = np.zeros(len(lengths), np.float32)
    np.maximum.at(largest, rows, weights)
    scales = (largest / np.float32(MAX_IMPACT)).astype(np.float32)
    impacts = np.clip(np.rint(weights / scales[rows].astype(np.float64)), 1, MAX_IMPACT).astype(np.uint8)
    terms = np.arange(len(offsets) - 1, dtype=np.int32)
    return with_window_maxima(terms, offsets, rows, impacts, scales, window_rows=WINDOW_ROWS)


def write_text_index(path: Path, connection: sqlite3.Connection, docs: NDArray[np.int64], *, number: int) -> FileRecord:
    """Writes the file of segment `number`. `docs` ascend, and are all documents of the full-text table."""
    words, frequencies, rows, counts, lengths = read_word_counts(connection, docs)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(frequencies, dtype=np.int64)])
    mean_length = float(max(lengths.sum() / max(len(docs), 1), 1e-9))
    index = impacts_from_counts(counts, offsets, rows, lengths, mean_length)
    encoded = [word.encode() for word in words]
    arrays = [
        ArraySource.of("docs", "<i8", docs),
        ArraySource.of("doc_lengths", "<u4", lengths),
        ArraySource.of("words_utf8", "|u1", np.frombuffer(b"".join(encoded), np.uint8)),
        ArraySource.of("word_offsets", "<i8", np.cumsum([0, *map(len, encoded)], dtype=np.int64)),
        ArraySource.of("offsets", "<i8", offsets),
        ArraySource.of("rows", "<u4", rows),
        ArraySource.of("counts", "|u1", counts),
        *impact_arrays(index),
    ]
    attributes: dict[str, int | float | str] = {
        "segment": number,
        "window_rows": WINDOW_ROWS,
        "mean_doc_length": mean_length,
        "analysis_rules": read_analysis_rules(connection.execute),
    }
    return write_file(path, "text_index", arrays, attributes=attributes)


def read_word_counts(
    connection: sqlite3.Connection, docs: NDArray[np.int64]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint8], NDArray[np.uint32]]:
    """From the full-text table: the words, ascending; the number of documents of each; these documents as positions in
    `docs`, word by word; the count of the word in each; and the length of each document."""
    connection.execute("CREATE VIRTUAL TABLE temp.each_word USING fts5vocab (main, words, row)")
    connection.execute("CREATE VIRTUAL TABLE temp.each_occurrence USING fts5vocab (main, words, instance)")
    try:
        totals = connection.execute("SELECT term, cnt FROM temp.each_word").fetchall()
        lengths = np.zeros(len(docs), np.int64)
        rows, counts, frequencies = [np.zeros(0, np.uint32)], [np.zeros(0, np.uint8)], [np.zeros(0, np.int64)]
        for first, last in _word_blocks(totals):
            positions = _occurrences(connection, docs, totals[first][0], totals[last - 1][0])
            n_occurrences = np.array([count for _, count in totals[first:last]], np.int64)
            if len(positions) != n_occurrences.sum():
                raise CorruptIndexError("the full-text table contradicts itself; run plait check")
            lengths += np.bincount(positions, minlength=len(docs))
            which = np.repeat(np.arange(last - first), n_occurrences)
            starts = np.flatnonzero(np.concatenate([[True], (np.diff(positions) != 0) | (np.diff(which) != 0)]))
            rows.append(positions[starts].astype(np.uint32))
            counts.append(np.minimum(np.diff(np.append(starts, len(positions))), MAX_COUNT).astype(np.uint8))
            frequencies.append(np.bincount(which[starts], minlength=last - first))
    finally:
        connection.execute("DROP TABLE temp.each_word")
        connection.execute("DROP TABLE temp.each_occurrence")
    joined = np.concatenate(frequencies), np.concatenate(rows), np.concatenate(counts)
    return [word or "" for word, _ in totals], *joined, lengths.astype(np.uint32)


def _word_blocks(totals: Sequence[tuple[str | None, int]]) -> Iterator[tuple[int, int]]:
    """Ranges of words that together have about BLOCK_OCCURRENCES occurrences."""
    first, total = 0, 0
    for number, (word, count) in enumerate(totals):
        total += count
        if total >= BLOCK_OCCURRENCES or number == len(totals) - 1 or word is None:
            yield first, number + 1
            first, total = number + 1, 0


def _occurrences(
    connection: sqlite3.Connection, docs: NDArray[np.int64], first: str | None, last: str | None
) -> NDArray[np.int64]:
    """The document, as a position in `docs`, of every occurrence of the words from `first` to `last`. FTS5 reports None
    for the word that a lone accent leaves; it comes before all others, in a block by itself."""
    # As one string: SQLite returns millions of rows of one number much more slowly.
    sql = "SELECT group_concat(doc) FROM temp.each_occurrence WHERE term >= ? AND term <= ?"
    if first is None:
        sql = "SELECT group_concat(doc) FROM temp.each_occurrence WHERE term IS ? AND term IS ?"
    ((numbers,),) = connection.execute(sql, [first, last]).fetchall()
    found = np.fromstring(numbers or "", np.int64, sep=",")
    positions = np.minimum(np.searchsorted(docs, found), max(len(docs) - 1, 0))
    if len(found) and (not len(docs) or np.any(docs[positions] != found)):
        raise CorruptIndexError("the full-text table has a document that no segment has; run plait check")
    return np.asarray(positions, np.int64)
