"""Tensors of .pt files as numpy arrays, without torch: a zip archive with the raw numbers, and a pickle that says which
tensor they are. Like torch's `weights_only`, it resolves nothing but tensors."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import SourceError
from plait.transfer.pickles import read_pickle
from plait.transfer.source import damaged

_TYPES = {
    "HalfStorage": "<f2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "ByteStorage": "|u1",
    "CharStorage": "|i1",
    "ShortStorage": "<i2",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
    "BoolStorage": "|b1",
}


def read_torch(path: Path) -> Any:
    """The tensor, or the tuple, list or dict of tensors, of a file that torch.save wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.split("/", 1)[-1]: name for name in archive.namelist()}
            if "data.pkl" not in names:
                raise damaged(path, "it has no data.pkl")
            if "byteorder" in names and archive.read(names["byteorder"]) != b"little":
                raise SourceError(f"{path} was written on a big-endian machine, which plait does not read")

            def load(pid: Any) -> NDArray[Any]:
                kind, dtype, key, _, size = pid
                if kind != "storage" or not isinstance(dtype, str):
                    raise SourceError(f"{path} has a storage of an unknown kind")
                raw = archive.read(names[f"data/{key}"])
                values = np.frombuffer(raw, dtype)
                if len(values) < int(size):
                    raise SourceError(f"{path} is damaged: a tensor has {len(values)} of {size} values")
                return values

            known: dict[str, Any] = {f"torch.{name}": dtype for name, dtype in _TYPES.items()}
            known |= {
                "torch._utils._rebuild_tensor_v2": _rebuild,
                "collections.OrderedDict": dict,
            }
            return read_pickle(archive.read(names["data.pkl"]), path, names=known, persistent=load)
    except FileNotFoundError:
        raise damaged(path, "the file is missing") from None
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, EOFError, NotImplementedError) as error:
        raise damaged(path, error) from None


def read_tensor(path: Path, kinds: str, n_dims: int) -> NDArray[Any]:
    """The one tensor of a file; SourceError if it has another type or number of dimensions."""
    tensor = read_torch(path)
    if not isinstance(tensor, np.ndarray) or tensor.dtype.kind not in kinds or tensor.ndim != n_dims:
        seen = f"{tensor.dtype} of shape {tensor.shape}" if isinstance(tensor, np.ndarray) else type(tensor).__name__
        raise damaged(path, f"it has {seen}, not a tensor of {n_dims} dimensions of kind {kinds}")
    return tensor


def _rebuild(storage: NDArray[Any], offset: int, size: Any, stride: Any, *_: Any) -> NDArray[Any]:
    """A tensor as a view of its storage; the view must lie within it."""
    shape, strides = tuple(int(one) for one in size), tuple(int(one) for one in stride)
    if len(shape) != len(strides) or offset < 0 or min((*shape, *strides, 0)) < 0:
        raise ValueError("a tensor has an invalid shape")
    last = offset + sum((count - 1) * step for count, step in zip(shape, strides, strict=True))
    if 0 in shape:
        return np.zeros(shape, storage.dtype)
    if last >= len(storage):
        raise ValueError("a tensor reaches beyond its data")
    steps = tuple(step * storage.itemsize for step in strides)
    view = np.lib.stride_tricks.as_strided(storage[offset:], shape, steps, writeable=False)
    return np.array(view)
