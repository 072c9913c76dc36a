"""WARP indexes, of xtr-warp-rs (.npy) and xtr-warp (.pt): vectors by centroid, with the passage of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.encode.protocol import EmbeddingSpec
from plait.errors import SourceError
from plait.transfer.fast_plaid import read_ids
from plait.transfer.numpy_folder import load_array
from plait.transfer.pickles import read_tensor
from plait.transfer.residual_codes import DECODED_AT_ONCE, BucketCodec
from plait.transfer.source import ImportOptions, Row, Source, damaged

PYLATE_IDS = "warp_ids_to_documents_ids.pkl"


def open_source(path: str, options: ImportOptions) -> Source:
    """The passages of an index folder. WARP scores the sum of centroid and residual, so vectors are not normalized."""
    del options
    folder = Path(path)
    centroids = _array(folder, "centroids", "f", (None, None))
    codec = BucketCodec.checked(folder, centroids, _array(folder, "bucket_weights", "f", (None,)))
    sizes = _array(folder, "sizes.compacted", "iu", (len(centroids),)).astype(np.int64)
    passages = _array(folder, "codes.compacted", "iu", (None,)).astype(np.int64)
    residuals = _array(folder, "residuals.compacted", "u", (None, codec.n_bytes))
    if sizes.min() < 0 or sizes.sum() != len(passages) or len(residuals) != len(passages):
        raise damaged(folder, f"it has {len(passages)} codes and {len(residuals)} residuals of {sizes.sum()} vectors")
    if not len(passages):
        raise SourceError(f"{path} has no vectors")
    if passages.min() < 0:
        raise damaged(folder, f"a vector belongs to passage {passages.min()}")
    cells = np.repeat(np.arange(len(sizes)), sizes)
    order = np.argsort(passages, kind="stable")  # by passage; vectors of a passage stay in the order of centroids
    numbers, starts = np.unique(passages[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    ids = read_ids(folder.parent / PYLATE_IDS) if (folder.parent / PYLATE_IDS).exists() else None

    def rows() -> Iterator[Row]:
        first = 0
        while first < len(numbers):
            limit = starts[first] + DECODED_AT_ONCE
            stop = max(int(np.searchsorted(ends, limit, side="right")), first + 1)
            begin = int(starts[first])
            chosen = order[begin : ends[stop - 1]]
            vectors = codec.decode(folder, cells[chosen], residuals[np.sort(chosen)][_ranks(chosen)], normalize=False)
            for number in range(first, stop):
                part = slice(starts[number] - begin, ends[number] - begin)
                passage = int(numbers[number])
                id = str(passage) if ids is None else ids.get(passage, str(passage))
                yield Row(id, multi=vectors[part].astype(np.float16), cells=cells[chosen[part]])
            first = stop

    notes = ("WARP imputes scores of centroids that it does not visit; plait computes them",)
    is_dense = bool(numbers[-1] == len(numbers) - 1)  # every passage has vectors, so positions are numbers
    spec = EmbeddingSpec(multi=codec.dim)
    return Source("warp", spec, rows, len(numbers), "", codec.original(), not is_dense or ids is not None, notes)


def _ranks(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The position of each value among all, sorted: reading a file in its order is quicker."""
    ranks = np.empty(len(values), np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _array(folder: Path, name: str, kinds: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """An array of a .npy file, or a tensor of a .pt file."""
    torch_file = folder / f"{name}.pt"
    if torch_file.exists() and not (folder / f"{name}.npy").exists():
        tensor = read_tensor(torch_file, kinds, len(shape))
        if any(size is not None and size != seen for size, seen in zip(shape, tensor.shape, strict=True)):
            raise damaged(torch_file, f"its shape is {tensor.shape}; expected {shape}")
        return tensor
    return load_array(folder / f"{name}.npy", kinds, shape)
