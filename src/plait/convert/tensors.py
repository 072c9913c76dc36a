"""Tensors of a checkpoint as float32 arrays: safetensors files are mapped and parsed here, so that reading them needs
neither torch nor the package safetensors; .bin and .pt files are read by torch with `weights_only=True`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import ModelError

Floats = NDArray[np.float32]

MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors format
_ADVICE = "fetch the checkpoint again"
BFLOAT16 = "BF16"
_FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, BFLOAT16: np.uint16}
_INTEGERS = {
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_DTYPES: dict[str, Any] = {**_FLOATS, **_INTEGERS}


class Tensors(Mapping[str, Floats]):
    """The tensors of one or more files by name. Floating-point tensors are converted to float32 when they are taken;
    `integers` gives the others."""

    def __init__(self, arrays: Mapping[str, _Stored], where: str) -> None:
        self._arrays, self._where = arrays, where

    def __getitem__(self, name: str) -> Floats:
        stored = self._arrays[name]
        if not stored.is_float:
            raise KeyError(name)
        return stored.floats()

    def __iter__(self) -> Iterator[str]:
        return (name for name, stored in self._arrays.items() if stored.is_float)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays and self._arrays[str(name)].is_float

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        return self._arrays[name].shape

    def integers(self, name: str) -> NDArray[Any] | None:
        """A tensor of integers; None if there is none of this name."""
        stored = self._arrays.get(name)
        return None if stored is None or stored.is_float else stored.array

    def renamed(self, names: Mapping[str, str]) -> Tensors:
        """Some of the tensors under new names: old name to new name."""
        return Tensors({new: self._arrays[old] for old, new in names.items()}, self._where)

    @property
    def where(self) -> str:
        """The file or files, for messages."""
        return self._where


@dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    array: NDArray[Any]
    dtype: str  # as safetensors names it

    @property
    def is_float(self) -> bool:
        return self.dtype in _FLOATS

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def floats(self) -> Floats:
        if self.dtype == BFLOAT16:
            # bfloat16 is the upper half of float32.
            return (self.array.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(self.array, np.float32)


def read_tensors(files: list[Path], *, names: Mapping[str, str] | None = None) -> Tensors:
    """The tensors of a checkpoint in one or more files. `names` is the index of a sharded checkpoint: tensor to file
    name. ModelError if a file is damaged, or does not have the tensors that the index promises."""
    arrays: dict[str, _Stored] = {}
    for file in files:
        arrays |= _read_safetensors(file) if file.suffix == ".safetensors" else _read_torch(file)
    missing = sorted(set(names or ()) - set(arrays))
    if missing:
        raise ModelError(
            f"the index of {files[0].parent} names {len(missing)} tensors that its files do not have, such as "
            f"{missing[0]!r}; {_ADVICE}"
        )
    return Tensors(arrays, ", ".join(file.name for file in files))


def _read_safetensors(path: Path) -> dict[str, _Stored]:
    size = path.stat().st_size
    header, begin = _header(path, size)
    data = np.memmap(path, np.uint8, mode="r", offset=begin) if size > begin else np.zeros(0, np.uint8)
    return {name: _stored(path, name, entry, data) for name, entry in header.items() if name != "__metadata__"}


def _header(path: Path, size: int) -> tuple[dict[str, Any], int]:
    """The JSON header of a safetensors file, and the position of the data behind it."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ModelError(
                f"{path} is truncated, or is not a safetensors file: its header should have {length:,} bytes, and the "
                f"file has {size:,}; {_ADVICE}"
            )
        if length > MAX_HEADER:
            raise ModelError(f"{path} has a header of {length:,} bytes; {MAX_HEADER:,} are allowed; {_ADVICE}")
        content = file.read(length)
    try:
        header = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not a safetensors file: its header is not JSON ({error}); {_ADVICE}") from None
    if not isinstance(header, dict):
        raise ModelError(f"{path} is not a safetensors file: its header is a {type(header).__name__}; {_ADVICE}")
    return header, 8 + length


def _stored(path: Path, name: str, entry: object, data: NDArray[np.uint8]) -> _Stored:
    dtype, shape, begin, end = _description(path, name, entry)
    if dtype not in _DTYPES:
        raise ModelError(
            f"{path} has the tensor {name!r} of type {dtype!r:.40}; plait reads {', '.join(_DTYPES)}. Take a "
            f"checkpoint that is not quantised"
        )
    kind = np.dtype(_DTYPES[dtype])
    if not begin <= end <= len(data):
        raise ModelError(
            f"{path} is truncated: the tensor {name!r} ends at byte {end:,} of the data, and there are {len(data):,}; "
            f"{_ADVICE}"
        )
    if end - begin != math.prod(shape) * kind.itemsize:
        raise ModelError(
            f"{path} gives the tensor {name!r} {end - begin:,} bytes, and its shape {list(shape)} of {dtype} needs "
            f"{math.prod(shape) * kind.itemsize:,}; {_ADVICE}"
        )
    # The format does not align tensors; a view of bytes with another type may start anywhere.
    array = np.frombuffer(data, kind, math.prod(shape), begin) if end > begin else np.zeros(0, kind)
    return _Stored(array.reshape(shape), dtype)


def _description(path: Path, name: str, entry: object) -> tuple[str, tuple[int, ...], int, int]:
    """The type, the shape and the span of a tensor, as the header gives them."""
    if isinstance(entry, dict):
        dtype, shape, span = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if isinstance(dtype, str) and isinstance(shape, list) and isinstance(span, list) and len(span) == 2:
            numbers = (*shape, *span)
            if all(type(number) is int and number >= 0 for number in numbers):
                return dtype, tuple(shape), span[0], span[1]
    raise ModelError(f"{path} describes the tensor {name!r} as {entry!r:.200}; {_ADVICE}")


def _read_torch(path: Path) -> dict[str, _Stored]:
    """The state dict of a .bin or .pt file. Nothing but tensors and plain containers is unpickled."""
    state = _load_torch(path)
    if isinstance(state, Mapping) and isinstance(state.get("model_state_dict"), Mapping):
        state = state["model_state_dict"]  # the .dnn files of the first ColBERT
    if not isinstance(state, Mapping):
        raise ModelError(f"{path} holds a {type(state).__name__}; plait reads a state dict: names and tensors")
    return {str(name).removeprefix("module."): _from_torch(value) for name, value in state.items() if _is_tensor(value)}


def _load_torch(path: Path) -> Any:
    import pickle
    import warnings
    import zipfile

    try:
        import torch
    except ImportError:
        raise ModelError(
            f"{path} is a pickle of torch; reading it needs torch: pip install 'plait[convert]', or take a checkpoint "
            f"with safetensors"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickle protocols that torch does not write
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        reason = str(error).split("\n", 1)[0][:300]
        raise ModelError(
            f"{path} is a pickle that does more than store tensors, and plait runs no code of a checkpoint ({reason}); "
            f"take a checkpoint with safetensors"
        ) from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, IndexError, TypeError) as error:
        raise ModelError(f"{path} is truncated, or is not a file of torch: {error!s:.300}; {_ADVICE}") from None


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _from_torch(tensor: Any) -> _Stored:
    import torch

    tensor = tensor.detach()
    if tensor.is_floating_point():
        if tensor.dtype == torch.bfloat16:
            return _Stored(tensor.contiguous().view(torch.int16).numpy().view(np.uint16), BFLOAT16)
        names = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16"}
        return _Stored(tensor.numpy(), names.get(tensor.dtype, "F32"))
    return _Stored(tensor.numpy(), "I64")
