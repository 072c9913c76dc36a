"""sparse.plait: the sparse strand of a segment, as an inverted index.

terms, offsets       the terms there are, ascending; term i owns the entries offsets[i] to offsets[i + 1]
rows, impacts        one for each entry: a row of the segment, ascending within a term, and an impact from 1 to 255
scales               one for each row: a weight is the impact times this; the largest impact of a row is 255
peaks                the largest weight of each term
frequent, maxima     which terms have a line of maxima, and the largest weight of these in each window of rows, in
                     255ths of the peak, rounded up; attribute window_rows says how many rows a window has

There are no rows of terms beside it: what a named row holds is looked up in the lists of the query's terms, and a merge
goes through the lists. That halves the bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.codec.impacts import MAX_IMPACT, n_windows, with_window_maxima
from plait.errors import InputError
from plait.scoring.sparse import Impacts
from plait.storage.segment_file import FileRecord, SegmentFile
from plait.storage.segment_file_writer import ArraySource, write_file

SPARSE = "sparse.plait"
MOST_WINDOW_ROWS = 1 << 20
LARGEST_SCALE = 1e30


class SparseFile:
    """The file of one segment. Making it checks sizes, which costs the same at any size."""

    def __init__(self, file: SegmentFile, n_rows: int, vocabulary: int) -> None:
        self._file, self._vocabulary = file, vocabulary
        window_rows = file.attributes.get("window_rows")
        if type(window_rows) is not int or not 1 <= window_rows <= MOST_WINDOW_ROWS:
            raise file.damaged(f"attribute 'window_rows' is {window_rows!r:.50}; it must be a whole number from 1 on")
        terms = file.array("terms", "<i4", (None,))
        rows = file.array("rows", "<u4", (None,))
        frequent = file.array("frequent", "<u4", (None,))
        self._impacts = Impacts(
            terms,
            file.array("offsets", "<i8", (len(terms) + 1,)),
            rows,
            file.array("impacts", "|u1", (len(rows),)),
            file.array("scales", "<f4", (n_rows,)),
            file.array("peaks", "<f4", (len(terms),)),
            frequent,
            file.array("maxima", "|u1", (len(frequent), n_windows(n_rows, window_rows))),
            window_rows,
        )

    def impacts(self) -> Impacts:
        """The index, once terms, offsets and scales were checked. Rows of a list that do not exist are passed over."""
        held = self._impacts
        with self._file.checking():
            _check_rising("offsets", held.offsets, len(held.rows))
            if len(held.terms) and (held.terms[0] < 0 or held.terms[-1] >= self._vocabulary):
                raise InputError(f"its terms go from {held.terms[0]} to {held.terms[-1]}, of {self._vocabulary}")
            _check_ascending("terms", held.terms)
            _check_ascending("frequent", held.frequent)
            if len(held.frequent) and held.frequent[-1] >= len(held.terms):
                raise InputError(f"a line of maxima is for term {held.frequent[-1]} of {len(held.terms)}")
            for name, values in (("scales", held.scales), ("peaks", held.peaks)):
                # Written so that NaN fails too.
                if not np.all((values >= 0) & (values <= LARGEST_SCALE)):
                    raise InputError(f"the {name} hold what cannot be")
        return held

    def check_values(self) -> None:
        """Reads every posting, and compares what follows from them with what is there."""
        held = self.impacts()
        with self._file.checking():
            if len(held.rows) and held.rows.max() >= len(held):
                raise InputError(f"a posting names row {held.rows.max()} of {len(held)}")
            falls = held.rows[1:] <= held.rows[:-1]
            falls[held.offsets[1:-1] - 1] = False  # from one term to the next it may
            if np.any(falls) or np.any(np.diff(held.offsets) == 0):
                raise InputError("the rows of a term do not ascend, or it has none")
            largest = np.zeros(len(held), np.uint8)
            np.maximum.at(largest, held.rows, held.impacts)
            filled = largest > 0
            if (
                np.any(held.impacts == 0)
                or np.any(largest[filled] != MAX_IMPACT)
                or np.any((held.scales > 0) != filled)
            ):
                raise InputError("impacts and scales do not fit: the largest impact of every row must be 255")
            expected = with_window_maxima(
                held.terms, held.offsets, held.rows, held.impacts, held.scales, window_rows=held.window_rows
            )
            for name in ("peaks", "frequent", "maxima"):
                if not np.array_equal(getattr(expected, name), getattr(held, name)):
                    raise InputError(f"the {name} are not those of its postings")


def write_impacts(path: Path, impacts: Impacts, *, number: int) -> FileRecord:
    """Writes the index of one batch of rows."""
    arrays = [
        ArraySource.of("terms", "<i4", impacts.terms),
        ArraySource.of("offsets", "<i8", impacts.offsets),
        ArraySource.of("rows", "<u4", impacts.rows),
        ArraySource.of("impacts", "|u1", impacts.impacts),
        ArraySource.of("scales", "<f4", impacts.scales),
        ArraySource.of("peaks", "<f4", impacts.peaks),
        ArraySource.of("frequent", "<u4", impacts.frequent),
        ArraySource.of("maxima", "|u1", impacts.maxima),
    ]
    return write_file(path, "sparse", arrays, attributes=attributes_of(number, impacts.window_rows))


def attributes_of(number: int, window_rows: int) -> dict[str, int | float | str]:
    return {"segment": number, "window_rows": window_rows}


def _check_rising(name: str, offsets: NDArray[np.int64], end: int) -> None:
    if offsets[0] != 0 or offsets[-1] != end or np.any(offsets[1:] < offsets[:-1]):
        raise InputError(f"{name} must rise from 0 to {end}; they go from {offsets[0]} to {offsets[-1]}")


def _check_ascending(name: str, values: NDArray[np.generic]) -> None:
    if np.any(values[1:] <= values[:-1]):  # type: ignore[operator]
        raise InputError(f"the {name} do not ascend")
