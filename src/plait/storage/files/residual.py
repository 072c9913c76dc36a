"""residual.plait: the multi vectors of a segment, compressed to a centroid and a residual code each.

centroids, steps, lengths, factors         the codec, with the attributes bits, centroid_scale, max_centroid_norm, error
centroid_ids, codes, row_lengths, row_factors    one for each vector
offsets                                    row i of the segment owns the vectors offsets[i] to offsets[i + 1]; absent
                                           if the attribute vectors_per_row says how many vectors every row has
posting_rows, posting_offsets              for each centroid, the rows that have a vector assigned to it
steps_8bit, lengths_8bit, factors_8bit, codes_8bit, row_lengths_8bit, row_factors_8bit
                                           8-bit codes around the same centroids; present if attribute has_8bit is 1
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
from plait.storage.segment_file import ArraySource, Attributes, SegmentFile

RESIDUAL = "residual.plait"
VECTORS_PER_ROW, PROJECTION = "vectors_per_row", "projection"  # attributes of files of multi vectors
CODEC_ARRAYS = ("centroids", "steps", "lengths", "factors", "steps_8bit", "lengths_8bit", "factors_8bit")
MAX_CENTROID = 127
MAX_VALUE = 1e9  # of steps and factors; the vectors were float16, so valid values stay far below


class ResidualFile:
    """The file of one segment. The constructor checks sizes and attributes, which takes the same time at any size."""

    def __init__(self, file: SegmentFile, n_rows: int, dim: int) -> None:
        self._file, self._n_rows, self._dim = file, n_rows, dim
        self._bits = self._choice("bits", BITS)
        self.error = self._number("error", 0, MAX_VALUE)
        centroids: NDArray[np.uint8] = file.array("centroids", "|u1", (None, dim))
        if not len(centroids):
            raise self._file.damaged("it has no centroids")
        scale = self._number("centroid_scale", 1e-30, MAX_VALUE)
        max_norm = self._number("max_centroid_norm", 1, 64 * math.sqrt(dim))
        self.codebook = Codebook(centroids, scale, max_norm)
        self._centroid_ids = file.array("centroid_ids", centroid_id_type(len(centroids)), (None,))
        self.fixed = read_vectors_per_row(file, n_rows, len(self._centroid_ids))
        self._offsets: NDArray[np.int64] | None = None
        if self.fixed is None:
            self._offsets = file.array("offsets", "<i8", (n_rows + 1,))
        self._postings = Postings(
            file.array("posting_rows", "<u4", (None,)), file.array("posting_offsets", "<i8", (len(centroids) + 1,))
        )
        self._coded = self._read_codes("", self._bits)
        self._coded_8bit = self._read_codes("_8bit", 8) if self._choice("has_8bit", (0, 1)) else None

    @property
    def codec(self) -> ResidualCodec:
        """The codec, unchecked; see `check_codecs`."""
        return self._coded[0]

    @property
    def codec_8bit(self) -> ResidualCodec | None:
        return None if self._coded_8bit is None else self._coded_8bit[0]

    def check_codecs(self) -> None:
        with self._file.checking():
            if self.codebook.centroids.max() > MAX_CENTROID:
                raise InputError(f"a centroid has the value {self.codebook.centroids.max()}; at most {MAX_CENTROID}")
            for codec in (self.codec, self.codec_8bit):
                if codec is not None:
                    _check_codec(codec)

    def has_same_codec(self, other: ResidualFile) -> bool:
        """Whether the codes of two files were made with the same codec, so that they can be merged."""
        pairs = ((self.codec, other.codec), (self.codec_8bit, other.codec_8bit))
        return all(
            one is second if one is None or second is None else equal_codecs(one, second) for one, second in pairs
        )

    def items(self) -> CodedItems:
        """The coded vectors by row. Checks the codec and every offset; the kernels check centroid ids and postings. The
        offsets of postings are copied: searches rely on the values that were checked."""
        self.check_codecs()
        with self._file.checking():
            if self._offsets is not None:
                check_offsets("offsets", self._offsets, len(self._centroid_ids))
            postings = Postings(self._postings.items, self._postings.offsets.copy())
            check_offsets("posting_offsets", postings.offsets, len(postings.items))
        return CodedItems(*self._coded, self._offsets, postings, codes_8bit=self._coded_8bit, stride=self.fixed)

    def check_values(self) -> None:
        """Reads every centroid id and posting and compares the two."""
        with self._file.checking():
            check_cells(self._centroid_ids, len(self.codebook))
            check_postings(self._postings.offsets, self._postings.items, self._n_rows)
            expected = Postings.of(self._centroid_ids, self.items().offsets, len(self.codebook))
            if not (
                np.array_equal(expected.items, self._postings.items)
                and np.array_equal(expected.offsets, self._postings.offsets)
            ):
                raise InputError("the postings do not match the centroid ids")

    def _read_codes(self, suffix: str, bits: int) -> tuple[ResidualCodec, CodedRows]:
        file, n_vectors = self._file, len(self._centroid_ids)
        steps = file.array(f"steps{suffix}", "<f4", (self._dim,))
        lengths = file.array(f"lengths{suffix}", "<f4", (256,))
        factors = file.array(f"factors{suffix}", "<f4", (256,))
        try:
            width = row_bytes(self._dim, bits)
        except ConfigError as error:
            raise self._file.damaged(str(error)) from None
        codes = file.array(f"codes{suffix}", "|u1", (n_vectors, width))
        row_lengths = file.array(f"row_lengths{suffix}", "|u1", (n_vectors,))
        row_factors = file.array(f"row_factors{suffix}", "|u1", (n_vectors,))
        return ResidualCodec(self.codebook, bits, steps, lengths, factors), CodedRows(
            bits, codes, self._centroid_ids, row_lengths, lengths, row_factors, factors
        )

    def _choice(self, name: str, choices: tuple[int, ...]) -> int:
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
    """Whether two segments were coded with the same codec, so that their codes can be merged."""
    if (one.codes_8bit is None) != (other.codes_8bit is None) or not equal_codecs(one.codec, other.codec):
        return False
    return one.codes_8bit is None or other.codes_8bit is None or equal_codecs(one.codes_8bit[0], other.codes_8bit[0])


def equal_codecs(one: ResidualCodec, other: ResidualCodec) -> bool:
    codebooks = (one.codebook, other.codebook)
    numbers = [(codec.bits, codec.codebook.scale, codec.codebook.longest) for codec in (one, other)]
    return numbers[0] == numbers[1] and all(
        np.array_equal(*pair)
        for pair in (
            (codebooks[0].centroids, codebooks[1].centroids),
            (one.steps, other.steps),
            (one.lengths, other.lengths),
            (one.factors, other.factors),
        )
    )


def read_vectors_per_row(file: SegmentFile, n_rows: int, n_vectors: int) -> int | None:
    """The attribute of a file of multi vectors; None if the file has offsets instead."""
    vectors_per_row = file.attributes.get(VECTORS_PER_ROW)
    if vectors_per_row is None:
        return None
    valid = type(vectors_per_row) is int and 1 <= vectors_per_row <= MAX_FIXED
    if not valid or n_vectors != n_rows * int(vectors_per_row):
        raise CorruptIndexError(
            f"{file.path}: attribute {VECTORS_PER_ROW!r} is {vectors_per_row!r:.50}, but there are {n_vectors} vectors "
            f"in {n_rows} rows; restore the index from a copy, or build it again"
        )
    return int(vectors_per_row)


def centroid_id_type(n_centroids: int) -> str:
    """The narrowest type that holds the numbers of the centroids."""
    return "<u2" if n_centroids <= 1 << 16 else "<u4"


def codec_arrays(fitted: FittedCodec) -> list[ArraySource]:
    """The arrays of a codec, to be written."""
    codec, codec_8bit = fitted.codec, fitted.codec_8bit
    arrays = [
        ArraySource.of("centroids", "|u1", codec.codebook.centroids),
        ArraySource.of("steps", "<f4", codec.steps),
        ArraySource.of("lengths", "<f4", codec.lengths),
        ArraySource.of("factors", "<f4", codec.factors),
    ]
    if codec_8bit is not None:
        arrays += [
            ArraySource.of("steps_8bit", "<f4", codec_8bit.steps),
            ArraySource.of("lengths_8bit", "<f4", codec_8bit.lengths),
            ArraySource.of("factors_8bit", "<f4", codec_8bit.factors),
        ]
    return arrays


def codec_attributes(fitted: FittedCodec) -> Attributes:
    """The numbers of a codec, to be written."""
    codec = fitted.codec
    return {
        "bits": codec.bits,
        "centroid_scale": codec.codebook.scale,
        "max_centroid_norm": codec.codebook.longest,
        "error": fitted.error,
        "has_8bit": int(fitted.codec_8bit is not None),
    }


def _check_codec(codec: ResidualCodec) -> None:
    for name, values in (("steps", codec.steps), ("lengths", codec.lengths), ("factors", codec.factors)):
        # Written so that NaN fails too.
        if not np.all(np.abs(values) < MAX_VALUE):
            raise InputError(f"the {name} of the {codec.bits}-bit codec are out of range: {values.max()}")
    if not np.all(codec.steps > 0):
        raise InputError(f"a step of the {codec.bits}-bit codec is {codec.steps.min()}; all must be above 0")
    for name, values in (("lengths", codec.lengths), ("factors", codec.factors)):
        if not values[0] < values[1] or np.any(values[1:] < values[:-1]):
            raise InputError(f"the {name} of the {codec.bits}-bit codec do not ascend")


def check_offsets(name: str, offsets: NDArray[np.int64], end: int) -> None:
    """Raises InputError unless the offsets ascend from 0 to `end`."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != end or np.any(offsets[1:] < offsets[:-1]):
        seen = f"they go from {offsets[0]} to {offsets[-1]}" if len(offsets) else "there are none"
        raise InputError(f"{name} must ascend from 0 to {end}; {seen}")
