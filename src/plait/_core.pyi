"""The types of the native module. Arrays are C-contiguous; nothing is converted."""

from typing import Any

import numpy as np
from _typeshed import ReadableBuffer
from numpy.typing import NDArray

_Rows = NDArray[np.float32] | NDArray[np.float16] | NDArray[np.uint16]  # uint16: float16 values as raw words
_Cells = NDArray[np.uint16] | NDArray[np.uint32]

class MappedFile:
    """A file mapped for reading, with the buffer protocol; only on systems with mmap."""

    def __init__(self, path: str) -> None: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def identity(self) -> tuple[int, int, int]: ...  # device, inode, time of modification in nanoseconds
    def release(self, offset: int, n_bytes: int) -> None: ...

def maxsim(
    query: NDArray[np.float32], rows: _Rows, offsets: NDArray[np.int64], scores: NDArray[np.float32]
) -> None: ...
def maxsim_items(
    query: NDArray[np.float32],
    rows: _Rows,
    offsets: NDArray[np.int64],
    items: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None: ...
def align(
    query: NDArray[np.float32], rows: _Rows, best_rows: NDArray[np.int64], scores: NDArray[np.float32]
) -> None: ...
def top_k(scores: NDArray[np.float32] | NDArray[np.uint32] | NDArray[np.int32], best: NDArray[np.int64]) -> None: ...
def score_centroids(
    packed: NDArray[np.int8],
    rows: NDArray[np.uint8],
    bias: NDArray[np.int32],
    shift: int,
    table: NDArray[np.int16],
) -> None: ...
def nearest_centroids(
    packed: NDArray[np.int8],
    rows: NDArray[np.uint8],
    first_row: int,
    best: NDArray[np.int32],
    which: NDArray[np.int32],
) -> None: ...
def assign_rows(
    numbers: NDArray[np.int8],
    rows: NDArray[np.int32],
    centroids: NDArray[np.uint8],
    first_row: int,
    best: NDArray[np.int32],
    which: NDArray[np.int32],
) -> None: ...
def encode_rows(
    rows: NDArray[np.float32],
    cells: NDArray[np.int32],
    centroids: NDArray[np.uint8],
    scale: float,
    steps: NDArray[np.float32],
    bits: int,
    length_table: NDArray[np.float32] | None,
    codes: NDArray[np.uint8],
    lengths: NDArray[np.float32],
    factors: NDArray[np.float32],
) -> None: ...
def narrow_table(table: NDArray[np.int16], floor: NDArray[np.int16], shift: int, narrow: NDArray[np.uint8]) -> None: ...
def select_cells(table: NDArray[np.int16], cells: NDArray[np.int32], scores: NDArray[np.int16]) -> None: ...
def prune_rows(
    narrow: NDArray[np.uint8],
    cells: _Cells,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    prune_margin: int,
    chosen: NDArray[np.int64],
    stops: NDArray[np.int64],
) -> int: ...
def centroid_maxsim(
    narrow: NDArray[np.uint8],
    cells: _Cells,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    scores: NDArray[np.uint32],
) -> None: ...
def residual_maxsim(
    packed: NDArray[np.int8] | NDArray[np.int16],
    n_query: int,
    residual_scale: float,
    offset: NDArray[np.float32],
    table: NDArray[np.int16] | None,
    cell_scale: float,
    bits: int,
    codes: NDArray[np.uint8],
    cells: _Cells | None,
    lengths: NDArray[np.uint8],
    length_table: NDArray[np.float32],
    factors: NDArray[np.uint8],
    factor_table: NDArray[np.float32],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None: ...
def residual_maxsim_strided(
    packed: NDArray[np.int8] | NDArray[np.int16],
    n_query: int,
    residual_scale: float,
    offset: NDArray[np.float32],
    table: NDArray[np.int16] | None,
    cell_scale: float,
    bits: int,
    codes: NDArray[np.uint8],
    cells: _Cells | None,
    lengths: NDArray[np.uint8],
    length_table: NDArray[np.float32],
    factors: NDArray[np.uint8],
    factor_table: NDArray[np.float32],
    stride: int,
    items: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None: ...
def residual_maxsim_listed(
    packed: NDArray[np.int8] | NDArray[np.int16],
    n_query: int,
    residual_scale: float,
    offset: NDArray[np.float32],
    table: NDArray[np.int16] | None,
    cell_scale: float,
    bits: int,
    codes: NDArray[np.uint8],
    cells: _Cells | None,
    lengths: NDArray[np.uint8],
    length_table: NDArray[np.float32],
    factors: NDArray[np.uint8],
    factor_table: NDArray[np.float32],
    numbers: NDArray[np.int64],
    stops: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None: ...
def residual_scores(
    packed: NDArray[np.int8] | NDArray[np.int16],
    n_query: int,
    residual_scale: float,
    offset: NDArray[np.float32],
    table: NDArray[np.int16] | None,
    cell_scale: float,
    bits: int,
    codes: NDArray[np.uint8],
    cells: _Cells | None,
    lengths: NDArray[np.uint8],
    length_table: NDArray[np.float32],
    factors: NDArray[np.uint8],
    factor_table: NDArray[np.float32],
    numbers: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None: ...
def gather(
    cells: NDArray[np.int32],
    scores: NDArray[np.int16],
    floor: NDArray[np.int16],
    offsets: NDArray[np.int64],
    postings: NDArray[np.uint32],
    allowed: NDArray[np.uint8] | None,
    tally: NDArray[np.uint64],
    touched: NDArray[np.uint32],
    docs: NDArray[np.uint32],
    sums: NDArray[np.int32],
) -> tuple[int, int]: ...
def pool_rows(
    rows: NDArray[np.float32],
    offsets: NDArray[np.int64],
    hierarchical: bool,
    pooled_offsets: NDArray[np.int64],
    pooled: NDArray[np.float32],
) -> None: ...
def score_probed_rows(
    query: NDArray[np.float32],
    bits: int,
    codes: NDArray[np.uint8],
    lengths: NDArray[np.uint8],
    length_table: NDArray[np.float32],
    cells: NDArray[np.int32],
    cell_scores: NDArray[np.float32],
    offsets: NDArray[np.int64],
    rows: NDArray[np.int64],
    owners: NDArray[np.uint32],
    starts: NDArray[np.int64],
    items: NDArray[np.uint32],
    scores: NDArray[np.float32],
) -> None: ...
def xtr_top_items(
    items: NDArray[np.uint32],
    scores: NDArray[np.float32],
    starts: NDArray[np.int64],
    missing: NDArray[np.float32],
    tally: NDArray[np.uint64],
    touched: NDArray[np.uint32],
    best: NDArray[np.uint32],
    best_scores: NDArray[np.float32],
) -> tuple[int, int]: ...
def first_bad_offset(offsets: NDArray[np.int64], n_postings: int) -> int: ...
def first_not_below(values: _Cells, limit: int) -> int: ...
def crc32c(data: ReadableBuffer | NDArray[Any], seed: int = 0) -> int: ...
def crc32c_blocks(data: ReadableBuffer | NDArray[Any], block_size: int, checksums: NDArray[np.uint32]) -> None: ...
def like(pattern: str, text: str) -> bool: ...
def available_targets() -> list[str]: ...
def current_target() -> str: ...
def use_target(name: str) -> bool: ...
def probe_outcome(case: str, milliseconds: int) -> str: ...  # only in builds with AMX: Linux on x86-64
def best_sparse_rows(
    offsets: NDArray[np.int64],
    rows: NDArray[np.uint32],
    impacts: NDArray[np.uint8],
    scales: NDArray[np.float32],
    peaks: NDArray[np.float32],
    frequent: NDArray[np.uint32],
    maxima: NDArray[np.uint8],
    window_rows: int,
    positions: NDArray[np.int64],
    weights: NDArray[np.uint32],
    step: float,
    column_terms: list[int],
    columns: list[NDArray[np.uint8]],
    allowed: NDArray[np.uint8],
    reach: float,
    best: NDArray[np.uint32],
    scores: NDArray[np.float32],
) -> tuple[int, int, int]: ...
def sparse_column(
    rows: NDArray[np.uint32], impacts: NDArray[np.uint8], begin: int, end: int, column: NDArray[np.uint8]
) -> None: ...
def score_sparse_rows(
    offsets: NDArray[np.int64],
    rows: NDArray[np.uint32],
    impacts: NDArray[np.uint8],
    scales: NDArray[np.float32],
    positions: NDArray[np.int64],
    weights: NDArray[np.uint32],
    step: float,
    wanted: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None: ...
def dense_dot_f32(query: NDArray[np.float32], rows: NDArray[np.float32], scores: NDArray[np.float32]) -> None: ...
def dense_dot_f32_at(
    query: NDArray[np.float32], rows: NDArray[np.float32], numbers: NDArray[np.int64], scores: NDArray[np.float32]
) -> None: ...
def dense_dot_int8(
    query: NDArray[np.int16],
    scale: float,
    rows: NDArray[np.int8],
    scales: NDArray[np.float32],
    owners: NDArray[np.uint32],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    allowed: NDArray[np.uint8],
    scores: NDArray[np.float32],
) -> None: ...
