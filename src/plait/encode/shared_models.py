"""The models that this process has loaded. Indexes with the same model use one session, which takes tens of megabytes;
it is freed with its last user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from plait.encode.model_card import FileRecord
from plait.locks import ForkSafeLock

Model = TypeVar("Model")
Key = tuple[object, ...]

_loaded: WeakValueDictionary[Key, Any] = WeakValueDictionary()
_loading: dict[Key, ForkSafeLock] = {}


def model_key(folder: Path, fingerprint: str, files: Sequence[FileRecord], n_threads: int | None) -> Key:
    """All that a loaded model depends on. Includes folder and state of the files, not only the fingerprint: a card may
    claim the fingerprint of another model, and a folder may be built again."""
    states = [_file_state(folder / record.file) for record in files]
    return (str(folder.resolve()), fingerprint, *files, *states, n_threads)


def shared_model(key: Key, load: Callable[[], Model]) -> Model:
    """The model of this key; loaded if no one uses it. Threads that need it at the same time load it once."""
    with _loading.setdefault(key, ForkSafeLock()):
        model: Model | None = _loaded.get(key)
        if model is None:
            model = _loaded[key] = load()
        return model


def _file_state(path: Path) -> tuple[int, ...] | None:
    try:
        state = path.stat()
    except OSError:
        return None  # loading says what is wrong
    return (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size)
