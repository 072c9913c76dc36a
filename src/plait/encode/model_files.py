"""The files of a model folder: each must be the one that its card describes, and a graph must be whole in its file."""

from __future__ import annotations

import hashlib
import mmap
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from plait.encode.model_card import CARD_NAME, FileRecord
from plait.errors import ConfigError, ModelError

_ADVICE = "fetch or build the model again"
# The hash of a file, and the names of the files with its tensors; by its path and state, for the life of the process.
_digests: dict[tuple[object, ...], tuple[str, frozenset[str]]] = {}


def check_target(folder: Path, *, force: bool) -> None:
    """ConfigError if the folder exists, unless it is a model folder and `force` is set."""
    if not folder.exists() and not folder.is_symlink():
        return
    is_model = (folder / CARD_NAME).is_file()
    if not force:
        hint = "name another folder, or replace it with --force" if is_model else "name another folder"
        raise ConfigError(f"{folder} exists; {hint}")
    if not is_model:
        raise ConfigError(f"{folder} exists and has no {CARD_NAME}; --force replaces only model folders")


def record_of(path: Path) -> FileRecord:
    """The record of a file for the card."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileRecord(path.name, digest, path.stat().st_size)


def model_file(folder: Path, record: FileRecord) -> Path:
    """The path of a file of the card; ModelError if it is missing, has another size, or is not a plain file."""
    path = folder / record.file
    try:
        state = path.stat()
    except OSError:
        raise ModelError(f"{path} is missing, though {CARD_NAME} names it; {_ADVICE}") from None
    if not stat.S_ISREG(state.st_mode):
        raise ModelError(f"{path} is not a plain file; {_ADVICE}")
    if state.st_size != record.bytes:
        raise ModelError(f"{path} has {state.st_size} bytes, but {CARD_NAME} records {record.bytes}; {_ADVICE}")
    return path


def check_hash(folder: Path, record: FileRecord) -> None:
    """Raises ModelError if a file has another hash than the card records, or is a graph with parts in files that the
    card does not list. A file is read once per process, unless it changes."""
    for file in record.files:
        path = model_file(folder, file)
        digest, locations = _digest(path)
        if digest != file.sha256:
            raise ModelError(f"{path} has sha256 {digest}, but {CARD_NAME} records {file.sha256}; {_ADVICE}")
        listed = {data.file for data in getattr(record, "data", ())} if file is record else set()
        if not locations <= listed:
            raise ModelError(
                f"{path} has tensors in other files (external data), which its card does not cover: "
                f"{', '.join(sorted(locations - listed))[:200]}; export the model as one file, or list them in the card"
            )


def _digest(path: Path) -> tuple[str, frozenset[str]]:
    state = path.stat()
    key = (str(path.absolute()), state.st_size, state.st_mtime_ns, state.st_ino)
    if key not in _digests:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            is_graph = path.suffix == ".onnx" and state.st_size and _may_have_external_data(file.fileno())
        _digests[key] = digest, _external_files(path) if is_graph else frozenset()
    return _digests[key]


class HashCheck:
    """Compares files with the hashes of their card: at once, or in a thread while the caller loads them (`wait`)."""

    def __init__(self, folder: Path, records: Sequence[FileRecord], *, background: bool) -> None:
        self._folder, self._records = folder, records
        self._error: ModelError | OSError | None = None
        self._thread: threading.Thread | None = None
        if background:
            self._thread = threading.Thread(target=self._run, name="plait-model-hash")
            self._thread.start()
        else:
            self._run()
            self.wait()

    def wait(self) -> None:
        """Raises ModelError if a file is not that of the card."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for record in self._records:
                check_hash(self._folder, record)
        except ModelError as error:
            self._error = error
        except OSError as error:
            self._error = ModelError(f"a file of {self._folder} cannot be read: {error}; {_ADVICE}")


# A tensor of an ONNX graph may lie in another file. Its `external_data` then has an entry with the key "location", so a
# graph without these letters has none; only a graph with them is parsed.


def _may_have_external_data(handle: int) -> bool:
    with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"location") >= 0


def _external_files(path: Path) -> frozenset[str]:
    """The names of the other files in which tensors of a graph lie."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        view = memoryview(content)
        try:
            return frozenset(_locations(view, "model", 0))
        except (IndexError, RecursionError) as error:
            raise ModelError(f"{path} is not an ONNX graph ({error}); {_ADVICE}") from None
        finally:
            view.release()


# The messages of onnx.proto that lead to tensors: field number to message.
_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # fields of a tensor
MAX_DEPTH = 100


def _locations(message: memoryview, kind: str, depth: int) -> Iterator[str]:
    """The file of each tensor that is not in the graph itself; "?" if it has none."""
    if depth > MAX_DEPTH:
        raise RecursionError("its graphs are nested too deeply")
    is_external, names = False, []
    for field, value in _fields(message):
        if kind == "tensor":
            is_external |= field in (_EXTERNAL_DATA, _DATA_LOCATION) and bool(value)
            if field == _EXTERNAL_DATA and isinstance(value, memoryview):
                names += _location(value)
        elif isinstance(value, memoryview) and field in _MESSAGES[kind]:
            yield from _locations(value, _MESSAGES[kind][field], depth + 1)
    if is_external:
        yield from names or ["?"]


def _location(entry: memoryview) -> list[str]:
    """The value of an entry of `external_data` whose key is "location"."""
    values = {field: bytes(value) for field, value in _fields(entry) if isinstance(value, memoryview)}
    return [values.get(2, b"").decode("utf-8", "replace")] if values.get(1) == b"location" else []


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a protobuf message: numbers as int, all else as bytes. IndexError if it is cut short."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        wire = tag & 7
        if wire == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if wire == 2:
            length, position = _varint(message, position)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise IndexError(f"wire type {wire}")
        if position + length > len(message):
            raise IndexError("a field is cut short")
        yield tag >> 3, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise IndexError("a number is too long")
