"""Pickles of other libraries and torch's .pt files, read without torch and without running anything that they name.

A pickle may name any function of any module and have it called. This reader resolves no name: those that a format needs
become instances of `Record`, which only stores what it is given, and any other name is an error. A .pt file is a zip
archive with the raw numbers of tensors, and a pickle that says which tensor they are.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from plait.errors import SourceError
from plait.transfer.source import damaged

Make = Callable[..., Any]
MAX_PICKLE = 1 << 30  # bytes; the maps of ids of a hundred million passages have more, and no library writes such ones

_STORAGES = {
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


class Record:
    """Stands for an object of another library: its arguments and its state."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None


class UnsafePickleError(SourceError):
    """A pickle names something that plait does not expect in it."""


class _Reader(pickle._Unpickler):
    """The unpickler in Python: that in C takes memory for as many values as a pickle claims to have."""

    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]  # of values; `load` makes it

    def __init__(self, raw: bytes, names: Mapping[str, Make], persistent: Callable[[Any], Any] | None) -> None:
        super().__init__(io.BytesIO(raw), encoding="utf-8")
        self._names, self._persistent = names, persistent

    def find_class(self, module: str, name: str) -> Any:
        known = self._names.get(f"{module}.{name}")
        if known is None:
            raise UnsafePickleError(f"it names {module}.{name}, which could run code, and is not read")
        return known

    def persistent_load(self, pid: Any) -> Any:
        if self._persistent is None:
            raise UnsafePickleError("it refers to data outside of itself")
        return self._persistent(pid)

    def load_build(self) -> None:
        """Gives a record its state; nothing else has one, or its attributes could be changed."""
        state = self.stack.pop()
        if type(self.stack[-1]) is not Record:
            raise UnsafePickleError("it sets attributes of an object that is no record")
        self.stack[-1].state = state

    dispatch[pickle.BUILD[0]] = load_build


def read_pickle(
    raw: bytes,
    where: object,
    *,
    names: Mapping[str, Make] | None = None,
    persistent: Callable[[Any], Any] | None = None,
) -> Any:
    """The value of a pickle; `names` are the only names that it may refer to, with what each becomes. SourceError for
    any other name, and for damage."""
    if len(raw) > MAX_PICKLE:
        raise SourceError(f"{where} has {len(raw):,} bytes; plait reads pickles of at most {MAX_PICKLE:,}")
    try:
        return _Reader(raw, names or {}, persistent).load()
    except UnsafePickleError as error:
        raise SourceError(f"{where}: {error}") from None
    except SourceError:
        raise
    except Exception as error:  # a damaged pickle may raise almost anything
        raise SourceError(f"{where} is damaged: {error!r:.200}; copy the source again") from None


# -- tensors


def read_torch(path: Path) -> Any:
    """The tensor, or the tuple, list or dict of tensors, of a file that torch.save wrote."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.split("/", 1)[-1]: name for name in archive.namelist()}
            if "data.pkl" not in names:
                raise damaged(path, "it has no data.pkl")
            if "byteorder" in names and _member(archive, names["byteorder"], path) != b"little":
                raise SourceError(f"{path} was written on a big-endian machine, which plait does not read")

            def load(pid: Any) -> NDArray[Any]:
                kind, dtype, key, _, size = pid
                if kind != "storage" or dtype not in _STORAGES.values():
                    raise SourceError(f"{path} has a storage of an unknown kind")
                values = np.frombuffer(_member(archive, names[f"data/{key}"], path), dtype)
                if len(values) < int(size):
                    raise damaged(path, f"a tensor has {len(values)} of {size} values")
                return values

            known: dict[str, Any] = {f"torch.{name}": dtype for name, dtype in _STORAGES.items()}
            known |= {"torch._utils._rebuild_tensor_v2": _rebuild, "collections.OrderedDict": dict}
            raw = _member(archive, names["data.pkl"], path)
            return read_pickle(raw, path, names=known, persistent=load)
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


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    """A member of an archive. torch does not compress, so a compressed member could only be a trap: a small file that
    fills the memory."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise damaged(path, f"{name!r:.60} is compressed, which torch never does")
    return archive.read(name)


def _rebuild(storage: NDArray[Any], offset: int, size: Any, stride: Any, *_: Any) -> NDArray[Any]:
    """A tensor as a view of its storage. The view must lie within it and must not be larger."""
    shape, strides = tuple(int(one) for one in size), tuple(int(one) for one in stride)
    if len(shape) != len(strides) or offset < 0 or min((*shape, *strides, 0)) < 0:
        raise ValueError("a tensor has an invalid shape")
    if 0 in shape:
        return np.zeros(shape, storage.dtype)
    last = offset + sum((count - 1) * step for count, step in zip(shape, strides, strict=True))
    if last >= len(storage):
        raise ValueError("a tensor reaches beyond its data")
    if int(np.prod(shape, dtype=object)) > len(storage):
        raise ValueError("a tensor repeats its data")  # strides of 0: a few bytes could stand for any number
    steps = tuple(step * storage.itemsize for step in strides)
    view = np.lib.stride_tricks.as_strided(storage[offset:], shape, steps, writeable=False)
    return np.array(view)
