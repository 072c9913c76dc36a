"""coded.plait: the multi strand of a segment, compressed.

centroids, steps, lengths, factors        the codec; the attributes bits, scale, longest and error belong to it
cells, codes, row_lengths, row_factors    one for each vector
offsets                           item i, a row of the segment, owns vectors offsets[i] to offsets[i + 1]; none
                                  are there where the attribute fixed says how many vectors every item owns
posting_items, posting_offsets    for each cell, the items with a vector in it
fine_steps, fine_lengths, fine_factors, fine_codes, fine_row_lengths, fine_row_factors
                                          codes of 8 bits in the same cells; where attribute fine is 1
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.codec.coded_items import CodedItems, Postings
from plait.codec.packing import row_bytes
from plait.codec.pooling import MAX_FIXED
from plait.codec.residual import ResidualCodec
from plait.codec.train import FittedCodec
from plait.errors import ConfigError, CorruptIndexError, InputError
from plait.scoring.residual import BITS, CodedRows, check_cells, check_postings
from plait.storage.segment_file import Attributes, SegmentFile
from plait.storage.segment_file_writer import ArraySource

CODED = "coded.plait"
LARGEST_CENTROID = 127
LARGEST_VALUE = 1e9  # of steps and factors; rows were float16, so no honest one comes near


class ResidualFile:
    """The file of one segment. Making it checks sizes and single numbers, which costs the same at any size."""

    def __init__(self, file: SegmentFile, n_items: int, dim: int) -> None:
        self._file, self._n_items, self._dim = file, n_items, dim
        self._bits = self._whole("bits", BITS)
        self.error = self._number("error", 0, LARGEST_VALUE)
        centroids: NDArray[np.uint8] = file.array("centroids", "|u1", (None, dim))
        if not len(centroids):
            raise self._file.damaged("it has no centroids")
        scale, longest = self._number("scale", 1e-30, LARGEST_VALUE), self._number("longest", 1, 64 * math.sqrt(dim))
        self.codebook = Codebook(centroids, scale, longest)
        self._cells = file.array("cells", cell_type(len(centroids)), (None,))
        self.fixed = fixed_of(file, n_items, len(self._cells))
        self._offsets: NDArray[np.int64] | None = None
        if self.fixed is None:
            self._offsets = file.array("offsets", "<i8", (n_items + 1,))
        self._postings = Postings(
            file.array("posting_items", "<u4", (None,)), file.array("posting_offsets", "<i8", (len(centroids) + 1,))
        )
        self._plain = self._plane("", self._bits)
        self._fine = self._plane("fine_", 8) if self._whole("fine", (0, 1)) else None

    def items(self) -> CodedItems:
        """The items, once the codec and every offset were checked. The kernels check cells and postings they meet."""
        with self._file.checking():
            if self.codebook.centroids.max() > LARGEST_CENTROID:
                raise InputError(f"a centroid holds {self.codebook.centroids.max()}; {LARGEST_CENTROID} is the most")
            for codec, _ in (self._plain, *(() if self._fine is None else (self._fine,))):
                _check_codec(codec)
            if self._offsets is not None:
                _check_rising("offsets", self._offsets, len(self._cells))
            _check_rising("posting_offsets", self._postings.offsets, len(self._postings.items))
        return CodedItems(*self._plain, self._offsets, self._postings, codes_8bit=self._fine, stride=self.fixed)

    def check_values(self) -> None:
        """Reads every cell and posting, and compares the two. What `items` checks must hold."""
        with self._file.checking():
            check_cells(self._cells, len(self.codebook))
            check_postings(self._postings.offsets, self._postings.items, self._n_items)
            expected = Postings.of(self._cells, self.items().offsets, len(self.codebook))
            if not (
                np.array_equal(expected.items, self._postings.items)
                and np.array_equal(expected.offsets, self._postings.offsets)
            ):
                raise InputError("the postings are not those of its cells")

    def _plane(self, prefix: str, bits: int) -> tuple[ResidualCodec, CodedRows]:
        file, n_vectors = self._file, len(self._cells)
        steps = file.array(f"{prefix}steps", "<f4", (self._dim,))
        lengths = file.array(f"{prefix}lengths", "<f4", (256,))
        factors = file.array(f"{prefix}factors", "<f4", (256,))
        try:
            width = row_bytes(self._dim, bits)
        except ConfigError as error:
            raise self._file.damaged(str(error)) from None
        codes = file.array(f"{prefix}codes", "|u1", (n_vectors, width))
        row_lengths = file.array(f"{prefix}row_lengths", "|u1", (n_vectors,))
        row_factors = file.array(f"{prefix}row_factors", "|u1", (n_vectors,))
        return ResidualCodec(self.codebook, bits, steps, lengths, factors), CodedRows(
            bits, codes, self._cells, row_lengths, lengths, row_factors, factors
        )

    def _whole(self, name: str, choices: tuple[int, ...]) -> int:
        value = self._file.attributes.get(name)
        if type(value) is not int or value not in choices:
            raise self._file.damaged(f"attribute {name!r} is {value!r:.50}; it must be one of {choices}")
        return value

    def _number(self, name: str, least: float, most: float) -> float:
        value = self._file.attributes.get(name)
        if isinstance(value, str | bool | None) or not least <= value <= most:
            raise self._file.damaged(f"attribute {name!r} is {value!r:.50}; it must be from {least:g} to {most:g}")
        return float(value)


def same_codec(one: CodedItems, other: CodedItems) -> bool:
    """Whether the codes of two segments mean the same, so that they can stand in one."""
    if (one.codes_8bit is None) != (other.codes_8bit is None) or not _same(one.codec, other.codec):
        return False
    return one.codes_8bit is None or other.codes_8bit is None or _same(one.codes_8bit[0], other.codes_8bit[0])


def _same(one: ResidualCodec, other: ResidualCodec) -> bool:
    books = (one.codebook, other.codebook)
    numbers = [(codec.bits, codec.codebook.scale, codec.codebook.longest) for codec in (one, other)]
    return numbers[0] == numbers[1] and all(
        np.array_equal(*pair)
        for pair in (
            (books[0].centroids, books[1].centroids),
            (one.steps, other.steps),
            (one.lengths, other.lengths),
            (one.factors, other.factors),
        )
    )


def fixed_of(file: SegmentFile, n_items: int, n_vectors: int) -> int | None:
    """The vectors of every item of a file of the multi strand, from its attribute; None where it has offsets."""
    fixed = file.attributes.get("fixed")
    if fixed is None:
        return None
    if type(fixed) is not int or not 1 <= fixed <= MAX_FIXED or n_vectors != n_items * fixed:
        raise CorruptIndexError(
            f"{file.path}: attribute 'fixed' is {fixed!r:.50}, and there are {n_vectors} vectors of {n_items} items; "
            f"restore the index from a copy, or build it again"
        )
    return fixed


def cell_type(n_cells: int) -> str:
    """The narrowest type that holds the numbers of the cells."""
    return "<u2" if n_cells <= 1 << 16 else "<u4"


def codec_arrays(fitted: FittedCodec) -> list[ArraySource]:
    """The arrays of a codec, for a file to be written."""
    codec, codec_8bit = fitted.codec, fitted.codec_8bit
    arrays = [
        ArraySource.of("centroids", "|u1", codec.codebook.centroids),
        ArraySource.of("steps", "<f4", codec.steps),
        ArraySource.of("lengths", "<f4", codec.lengths),
        ArraySource.of("factors", "<f4", codec.factors),
    ]
    if codec_8bit is not None:
        arrays += [
            ArraySource.of("fine_steps", "<f4", codec_8bit.steps),
            ArraySource.of("fine_lengths", "<f4", codec_8bit.lengths),
            ArraySource.of("fine_factors", "<f4", codec_8bit.factors),
        ]
    return arrays


def codec_attributes(fitted: FittedCodec) -> Attributes:
    """The numbers of a codec, for a file to be written."""
    codec = fitted.codec
    return {
        "bits": codec.bits,
        "scale": codec.codebook.scale,
        "longest": codec.codebook.longest,
        "error": fitted.error,
        "fine": int(fitted.codec_8bit is not None),
    }


def _check_codec(codec: ResidualCodec) -> None:
    for name, values in (("steps", codec.steps), ("lengths", codec.lengths), ("factors", codec.factors)):
        # Written so that NaN fails too.
        if not np.all(np.abs(values) < LARGEST_VALUE):
            raise InputError(f"the {name} of codes of {codec.bits} bits hold what cannot be: {values.max()}")
    if not np.all(codec.steps > 0):
        raise InputError(f"a step of the codes of {codec.bits} bits is {codec.steps.min()}; all must be above 0")
    for name, values in (("lengths", codec.lengths), ("factors", codec.factors)):
        if not values[0] < values[1] or np.any(values[1:] < values[:-1]):
            raise InputError(f"the {name} of codes of {codec.bits} bits do not rise")


def _check_rising(name: str, offsets: NDArray[np.int64], end: int) -> None:
    if offsets[0] != 0 or offsets[-1] != end or np.any(offsets[1:] < offsets[:-1]):
        raise InputError(f"{name} must rise from 0 to {end}; they go from {offsets[0]} to {offsets[-1]}")
