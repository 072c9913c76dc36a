"""words.plait: the full text of a segment's documents a second time, laid out for reading the best of many quickly.

docs, lengths                 the documents, ascending, and how many words each has
spelling, spelling_offsets    the words there are, ascending, as UTF-8 one after another
offsets, rows, counts         word i stands in the documents rows[offsets[i]:offsets[i + 1]], counted from the first of
                              docs, so many times (255 at most)
impacts, scales, peaks, frequent, maxima    the same as impacts for the kernel of sparse search: see plait.storage.files.sparse
attributes mean_length        of the documents
           rules              that the words were made by; see plait.text.fts_table

SQLite's full-text index scores every document that has a word of the query, a microsecond or so each. This file holds
what that index has, as of a compaction, so that BM25 can skip. Impacts choose candidates; their scores are then worked
out from counts and lengths by the formula of `plait.scoring.bm25`, as `plait.search.bm25` does.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.codec.impacts import MAX_IMPACT, WINDOW_ROWS, n_windows, with_window_maxima
from plait.errors import CorruptIndexError, InputError
from plait.scoring.bm25 import saturated
from plait.scoring.sparse import Impacts
from plait.storage.segment_file import FileRecord, SegmentFile
from plait.storage.segment_file_writer import ArraySource, write_file
from plait.text.fts_table import read_analysis_rules

WORDS = "words.plait"
FEWEST_DOCUMENTS, MOST_DOCUMENTS = 20_000, 5_000_000  # the file is made in memory
CHUNK = 1_000_000  # occurrences that SQLite hands over at a time
MOST_COUNT = 255
MOST_PLACES = 20_000  # of words, that are remembered
LANDMARKS = 64  # one word in so many is held in memory, to find the others by


class TextIndex:
    """The words of many documents."""

    def __init__(
        self,
        docs: NDArray[np.int64],
        lengths: NDArray[np.uint32],
        spelling: NDArray[np.uint8],
        spelling_offsets: NDArray[np.int64],
        counts: NDArray[np.uint8],
        impacts: Impacts,
        mean_length: float,
    ) -> None:
        self.docs, self.lengths, self.counts, self.impacts, self.mean_length = (
            docs,
            lengths,
            counts,
            impacts,
            mean_length,
        )
        self._spelling, self._spelling_offsets = spelling, spelling_offsets
        self._places: dict[str, int | None] = {}  # of words that were asked for

    def __len__(self) -> int:
        return len(self.docs)

    def word(self, place: int) -> bytes:
        begin, end = self._spelling_offsets[place : place + 2]
        return self._spelling[begin:end].tobytes()

    def place_of(self, word: str) -> int | None:
        """The number of a word; None if no document has it."""
        known = self._places.get(word, -1)
        if known != -1:
            return known
        n_words, wanted = len(self._spelling_offsets) - 1, word.encode()
        # Among the landmarks without a line of Python for each step, then between two of them.
        last = bisect_left(self._landmarks, wanted)
        place = bisect_left(
            range(n_words), wanted, max(last - 1, 0) * LANDMARKS, min(last * LANDMARKS + 1, n_words), key=self.word
        )
        if len(self._places) >= MOST_PLACES:
            self._places = {}
        found = self._places[word] = place if place < n_words and self.word(place) == wanted else None
        return found

    @cached_property
    def _landmarks(self) -> list[bytes]:
        """Every so many words."""
        return [self.word(place) for place in range(0, len(self._spelling_offsets) - 1, LANDMARKS)]

    def n_with(self, word: str) -> int:
        """How many documents hold a word."""
        place = self.place_of(word)
        return 0 if place is None else self._n_with(place)

    def _n_with(self, place: int) -> int:
        return int(self.impacts.offsets[place + 1] - self.impacts.offsets[place])


class TextIndexFile:
    """The file of one segment. Making it checks sizes, which costs the same at any size."""

    def __init__(self, file: SegmentFile) -> None:
        self._file = file
        window_rows, mean_length = file.attributes.get("window_rows"), file.attributes.get("mean_length")
        self.rules = file.attributes.get("rules")
        if type(window_rows) is not int or not 1 <= window_rows <= 1 << 20:
            raise self._file.damaged(f"attribute 'window_rows' is {window_rows!r:.50}")
        if not isinstance(mean_length, float) or not 0 < mean_length < 1e12:
            raise self._file.damaged(f"attribute 'mean_length' is {mean_length!r:.50}")
        docs, rows = file.array("docs", "<i8", (None,)), file.array("rows", "<u4", (None,))
        offsets, frequent = file.array("offsets", "<i8", (None,)), file.array("frequent", "<u4", (None,))
        n_words = len(offsets) - 1
        self._words = TextIndex(
            docs,
            file.array("lengths", "<u4", (len(docs),)),
            file.array("spelling", "|u1", (None,)),
            file.array("spelling_offsets", "<i8", (n_words + 1,)),
            file.array("counts", "|u1", (len(rows),)),
            Impacts(
                np.arange(max(n_words, 0), dtype=np.int32),
                offsets,
                rows,
                file.array("impacts", "|u1", (len(rows),)),
                file.array("scales", "<f4", (len(docs),)),
                file.array("peaks", "<f4", (n_words,)),
                frequent,
                file.array("maxima", "|u1", (len(frequent), n_windows(len(docs), window_rows))),
                window_rows,
            ),
            mean_length,
        )

    def words(self) -> TextIndex:
        """The words, once offsets, documents and scales were checked."""
        held = self._words
        with self._file.checking():
            for name, offsets, end in (
                ("offsets", held.impacts.offsets, len(held.impacts.rows)),
                ("spelling_offsets", held._spelling_offsets, len(held._spelling)),
            ):
                if not len(offsets) or offsets[0] != 0 or offsets[-1] != end or np.any(offsets[1:] < offsets[:-1]):
                    raise InputError(f"{name} do not rise from 0 to {end}")
            if np.any(held.docs[1:] <= held.docs[:-1]):
                raise InputError("its documents do not ascend")
            for name, values in (("scales", held.impacts.scales), ("peaks", held.impacts.peaks)):
                if not np.all((values >= 0) & (values <= 1e6)):
                    raise InputError(f"the {name} hold what cannot be")
        return held

    def check_values(self, docs: NDArray[np.int64]) -> None:
        """Reads everything, and compares what follows from counts with what is there. `docs` are those of the
        segment's rows."""
        held = self.words()
        with self._file.checking():
            if not np.array_equal(np.unique(docs), held.docs):
                raise InputError("its documents are not those of the segment")
            index = held.impacts
            if len(index.rows) and (index.rows.max() >= len(held) or held.counts.min() < 1):
                raise InputError("a posting names a document that is not there, or no occurrence")
            falls = index.rows[1:] <= index.rows[:-1]
            falls[index.offsets[1:-1] - 1] = False  # from one word to the next it may
            if np.any(falls) or np.any(np.diff(index.offsets) == 0):
                raise InputError("the documents of a word do not ascend, or it has none")
            expected = impacts_of(held.counts, index.offsets, index.rows, held.lengths, held.mean_length)
            for name in ("impacts", "scales", "peaks", "frequent", "maxima"):
                if not np.array_equal(getattr(expected, name), getattr(index, name)):
                    raise InputError(f"the {name} are not those of its counts")


def are_wanted(n_documents: int) -> bool:
    """Whether so many documents are worth the file."""
    return FEWEST_DOCUMENTS <= n_documents <= MOST_DOCUMENTS


def impacts_of(
    counts: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    rows: NDArray[np.uint32],
    lengths: NDArray[np.uint32],
    mean_length: float,
) -> Impacts:
    """What counts are worth, in 255ths of the most that a word is worth in the same document."""
    weights = saturated(counts.astype(np.float64), lengths[rows].astype(np.float64), mean_length).astype(np.float32)
    largest = np.zeros(len(lengths), np.float32)
    np.maximum.at(largest, rows, weights)
    scales = (largest / np.float32(MAX_IMPACT)).astype(np.float32)
    impacts = np.clip(np.rint(weights / scales[rows].astype(np.float64)), 1, MAX_IMPACT).astype(np.uint8)
    terms = np.arange(len(offsets) - 1, dtype=np.int32)
    return with_window_maxima(terms, offsets, rows, impacts, scales, window_rows=WINDOW_ROWS)


def write_text_index(path: Path, connection: sqlite3.Connection, docs: NDArray[np.int64], *, number: int) -> FileRecord:
    """Writes the words of these documents, which ascend and are all that the full-text index has."""
    words, sizes, rows, counts, lengths = read_words(connection, docs)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    mean_length = float(max(lengths.sum() / max(len(docs), 1), 1e-9))
    index = impacts_of(counts, offsets, rows, lengths, mean_length)
    spelled = [word.encode() for word in words]
    spelling_offsets = np.cumsum([0, *map(len, spelled)], dtype=np.int64)
    arrays = [
        ArraySource.of("docs", "<i8", docs),
        ArraySource.of("lengths", "<u4", lengths),
        ArraySource.of("spelling", "|u1", np.frombuffer(b"".join(spelled), np.uint8)),
        ArraySource.of("spelling_offsets", "<i8", spelling_offsets),
        ArraySource.of("offsets", "<i8", offsets),
        ArraySource.of("rows", "<u4", rows),
        ArraySource.of("counts", "|u1", counts),
        ArraySource.of("impacts", "|u1", index.impacts),
        ArraySource.of("scales", "<f4", index.scales),
        ArraySource.of("peaks", "<f4", index.peaks),
        ArraySource.of("frequent", "<u4", index.frequent),
        ArraySource.of("maxima", "|u1", index.maxima),
    ]
    attributes: dict[str, int | float | str] = {
        "segment": number,
        "window_rows": WINDOW_ROWS,
        "mean_length": mean_length,
        "rules": read_analysis_rules(connection.execute),
    }
    return write_file(path, "words", arrays, attributes=attributes)


def read_words(
    connection: sqlite3.Connection, docs: NDArray[np.int64]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint8], NDArray[np.uint32]]:
    """From the full-text index: its words; for each, how many documents have it; these, one word after another, and how
    often each has it; and the length of each document."""
    connection.execute("CREATE VIRTUAL TABLE temp.each_word USING fts5vocab (main, words, row)")
    connection.execute("CREATE VIRTUAL TABLE temp.each_place USING fts5vocab (main, words, instance)")
    try:
        held = connection.execute("SELECT term, cnt FROM temp.each_word").fetchall()
        lengths = np.zeros(len(docs), np.int64)
        rows, counts, sizes = [np.zeros(0, np.uint32)], [np.zeros(0, np.uint8)], [np.zeros(0, np.int64)]
        for first, last in _stretches(held):
            places = _places(connection, docs, held[first][0], held[last - 1][0])
            own = np.array([count for _, count in held[first:last]], np.int64)
            if len(places) != own.sum():
                raise CorruptIndexError("the full-text index contradicts itself; run plait check")
            lengths += np.bincount(places, minlength=len(docs))
            which = np.repeat(np.arange(last - first), own)
            starts = np.flatnonzero(np.concatenate([[True], (np.diff(places) != 0) | (np.diff(which) != 0)]))
            rows.append(places[starts].astype(np.uint32))
            counts.append(np.minimum(np.diff(np.append(starts, len(places))), MOST_COUNT).astype(np.uint8))
            sizes.append(np.bincount(which[starts], minlength=last - first))
    finally:
        connection.execute("DROP TABLE temp.each_word")
        connection.execute("DROP TABLE temp.each_place")
    joined = np.concatenate(sizes), np.concatenate(rows), np.concatenate(counts)
    return [word or "" for word, _ in held], *joined, lengths.astype(np.uint32)


def _stretches(held: Sequence[tuple[str | None, int]]) -> Iterator[tuple[int, int]]:
    """Bounds of words that together have about CHUNK occurrences."""
    first, total = 0, 0
    for place, (word, count) in enumerate(held):
        total += count
        if total >= CHUNK or place == len(held) - 1 or word is None:
            yield first, place + 1
            first, total = place + 1, 0


def _places(
    connection: sqlite3.Connection, docs: NDArray[np.int64], first: str | None, last: str | None
) -> NDArray[np.int64]:
    """The documents, counted from the first, of every occurrence of the words from `first` to `last`. None is the word
    that is left of a lone accent; it comes before all others, and on its own."""
    # As one text: SQLite hands over millions of rows of one number a good deal slower.
    sql = "SELECT group_concat(doc) FROM temp.each_place WHERE term >= ? AND term <= ?"
    if first is None:
        sql = "SELECT group_concat(doc) FROM temp.each_place WHERE term IS ? AND term IS ?"
    ((numbers,),) = connection.execute(sql, [first, last]).fetchall()
    seen = np.fromstring(numbers or "", np.int64, sep=",")
    places = np.minimum(np.searchsorted(docs, seen), max(len(docs) - 1, 0))
    if len(seen) and (not len(docs) or np.any(docs[places] != seen)):
        raise CorruptIndexError("the full-text index has a document that no segment has; run plait check")
    return np.asarray(places, np.int64)
