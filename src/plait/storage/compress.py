"""Writes coded.plait from a stream of vectors: blocks are coded in several threads and come out in their order.

A file is written array after array, and coding gives all arrays of a block at once. So what comes first waits in
nameless files beside the draft: on the disk, because a corpus need not fit in memory, and nameless, because they then
vanish with the process.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.codec.assign import NearestCentroids
from plait.codec.coded_items import Postings
from plait.codec.packing import row_bytes
from plait.codec.train import FittedCodec, squared_error
from plait.scoring.residual import CodedRows
from plait.storage.files.residual import CODED, cell_type, codec_arrays, codec_attributes
from plait.storage.merge import Block, Part, blocks_of, offsets_of, taken
from plait.storage.segment_file import BLOCK, DTYPES, FileRecord
from plait.storage.segment_file_writer import ArraySource, write_file

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Coding:
    """How vectors become codes. Codes of the segments `kept`, which were made with the same codec, are copied."""

    fitted: FittedCodec
    kept: frozenset[int] = frozenset()  # numbers
    is_new: bool = True  # fitted to these vectors
    fixed: int | None = None  # vectors of every item, where each has as many; no offsets are then written


@dataclass(frozen=True, slots=True)
class Compressed:
    """A file that was written, and what coding lost on the vectors that were not copied."""

    record: FileRecord
    error: float | None  # squared distance, the mean; None where all were copied
    n_coded: int  # vectors that were not copied


def write_residual(folder: Path, parts: Sequence[Part], coding: Coding, *, number: int, n_threads: int) -> Compressed:
    """Codes all vectors and writes them, with their postings; the same bytes for any number of threads."""
    codec, codec_8bit = coding.fitted.codec, coding.fitted.codec_8bit
    cells_as = cell_type(len(codec.codebook))
    offsets = offsets_of(parts)
    n_vectors, lost, n_coded = int(offsets[-1]), 0.0, 0
    directions = NearestCentroids.from_codebook(codec.codebook)
    with ExitStack() as stack:
        waiting = {
            name: stack.enter_context(_Waiting(folder, name, dtype, n_vectors, width))
            for name, dtype, width in [
                ("cells", cells_as, None),
                ("codes", "|u1", row_bytes(codec.dim, codec.bits)),
                ("row_lengths", "|u1", None),
                ("row_factors", "|u1", None),
                *([("fine_codes", "|u1", codec.dim)] if codec_8bit is not None else []),
                *(
                    [(f"fine_row_{kind}", "|u1", None) for kind in ("lengths", "factors")]
                    if codec_8bit is not None
                    else []
                ),
            ]
        }

        def code(block: Block) -> tuple[dict[str, NDArray[Any]], float, int]:
            return (
                _copied(block, coding)
                if block.segment.number in coding.kept
                else _coded(block, coding.fitted, directions)
            )

        for arrays, block_lost, n_block in map_in_order(code, blocks_of(parts), n_threads=n_threads):
            for name, array in arrays.items():
                waiting[name].append(array)
            lost, n_coded = lost + block_lost, n_coded + n_block
        postings = Postings.of(waiting["cells"].whole(), offsets, len(codec.codebook))
        sources = [
            *codec_arrays(coding.fitted),
            *(array.source() for array in waiting.values()),
            *([] if coding.fixed is not None else [ArraySource.of("offsets", "<i8", offsets)]),
            ArraySource.of("posting_items", "<u4", postings.items),
            ArraySource.of("posting_offsets", "<i8", postings.offsets),
        ]
        attributes = {"segment": number, **codec_attributes(coding.fitted)}
        if coding.fixed is not None:
            attributes["fixed"] = coding.fixed
        record = write_file(folder / CODED, "coded", sources, attributes=attributes)
    return Compressed(record, lost / n_coded if n_coded else None, n_coded)


def _coded(
    block: Block, fitted: FittedCodec, directions: NearestCentroids
) -> tuple[dict[str, NDArray[Any]], float, int]:
    rows = block.floats()
    cells = directions.assign(rows)
    coded = fitted.codec.encode(rows, cells)
    assert coded.cells is not None
    arrays = {"cells": coded.cells, **_arrays(coded)}
    if fitted.codec_8bit is not None:
        rows_8bit = fitted.codec_8bit.encode(rows, cells)
        arrays.update(_arrays(rows_8bit, "fine_"))
    return arrays, squared_error(rows, fitted.codec.decode(coded)), len(rows)


def _copied(block: Block, coding: Coding) -> tuple[dict[str, NDArray[Any]], float, int]:
    items = block.segment.coded
    assert items is not None
    coded = taken(items.rows, block.numbers)
    assert coded.cells is not None
    arrays = {"cells": coded.cells, **_arrays(coded)}
    if coding.fitted.codec_8bit is not None:
        assert items.codes_8bit is not None
        rows_8bit = taken(items.codes_8bit[1], block.numbers)
        arrays.update(_arrays(rows_8bit, "fine_"))
    return arrays, 0.0, 0


def _arrays(coded: CodedRows, prefix: str = "") -> dict[str, NDArray[Any]]:
    """What a plane of codes has for each vector, by the names of the file."""
    return {
        f"{prefix}codes": coded.codes,
        f"{prefix}row_lengths": coded.lengths,
        f"{prefix}row_factors": coded.factors,
    }


def map_in_order(function: Callable[[T], R], values: Iterable[T], *, n_threads: int) -> Iterator[R]:
    """`function` of each value, in their order, worked out by several threads that run at most a little ahead."""
    if n_threads == 1:
        yield from map(function, values)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        ahead: deque[Future[R]] = deque()
        for value in values:
            ahead.append(pool.submit(function, value))
            if len(ahead) > 2 * n_threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


class _Waiting:
    """An array that grows on the disk and is then read once, from the start."""

    def __init__(self, folder: Path, name: str, dtype: str, n_rows: int, width: int | None) -> None:
        self._name, self._dtype = name, dtype
        self._shape = (n_rows,) if width is None else (n_rows, width)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- closed by __exit__

    def append(self, array: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(array, DTYPES[self._dtype]).data)

    def whole(self) -> NDArray[Any]:
        self._file.seek(0)
        return np.frombuffer(self._file.read(), DTYPES[self._dtype])

    def source(self) -> ArraySource:
        return ArraySource(self._name, self._dtype, self._shape, self._pieces())

    def _pieces(self) -> Iterator[NDArray[Any]]:
        self._file.seek(0)
        while piece := self._file.read(BLOCK):
            yield np.frombuffer(piece, DTYPES[self._dtype])

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
