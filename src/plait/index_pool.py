"""`IndexPool`: many small indexes, such as one for each user, with one encoder and few of them open at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from plait.checks import as_path, check_count
from plait.encode.load import load_model
from plait.encode.protocol import Encoder
from plait.errors import ConfigError, StoreError
from plait.index import Index, open_index
from plait.locks import ForkSafeLock


@dataclass(slots=True, eq=False)
class _Entry:
    """An index that is open or being opened."""

    lock: ForkSafeLock = field(default_factory=ForkSafeLock)  # held while it is opened
    index: Index | None = None
    n_users: int = 0


class IndexPool:
    """Opens indexes when they are used and keeps the `max_open` that were used last. An index in use is never closed:
    while more than `max_open` are in use, all of them are open. Threads may share the pool.

    All indexes have the encoder of the pool: `model` or `encoder`, as in `plait.open`, by default the bundled model. It
    is loaded at the first use. `options` are further arguments of `plait.open`, such as `create=True`.

        with plait.IndexPool("users", max_open=100, create=True) as pool:
            with pool.use("anna") as notes:
                notes.add([{"id": "1", "text": "Vectors are combined."}])
                hits = notes.search("how are vectors combined", k=5)
    """

    def __init__(
        self,
        root: str | Path,
        *,
        max_open: int = 64,
        model: str | Path | None = None,
        encoder: Encoder | None = None,
        **options: Any,
    ) -> None:
        check_count("max_open", max_open)
        if model is not None and encoder is not None:
            raise ConfigError("give one of model and encoder: each says where the vectors come from")
        self._root, self._max_open, self._options = as_path("the folder of the indexes", root), max_open, options
        self._model, self._encoder = model, encoder
        self._lock, self._encoder_lock = ForkSafeLock(), ForkSafeLock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # least recently used first
        self._closed = False

    def __len__(self) -> int:
        """The number of indexes that are open."""
        with self._lock:
            return sum(entry.index is not None for entry in self._entries.values())

    @contextmanager
    def use(self, name: str) -> Iterator[Index]:
        """The index of this name, a folder within the folder of the pool, open until the block ends. Do not close
        it."""
        key = _checked(name)
        entry = self._acquire(key)
        try:
            yield self._opened(key, entry)
        finally:
            self._release(key, entry)

    def close(self) -> None:
        """Closes all indexes; one that is in use when its user is done. Closing twice does nothing."""
        with self._lock:
            self._closed = True
            idle = self._take_idle(0)
        for index in idle:
            index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _acquire(self, key: str) -> _Entry:
        with self._lock:
            if self._closed:
                raise StoreError("this pool of indexes is closed; make another")
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            entry.n_users += 1
            return entry

    def _opened(self, key: str, entry: _Entry) -> Index:
        with entry.lock:
            if entry.index is None:
                entry.index = open_index(self._root / key, encoder=self._shared_encoder(), **self._options)
            return entry.index

    def _release(self, key: str, entry: _Entry) -> None:
        with self._lock:
            entry.n_users -= 1
            if entry.index is None and entry.n_users == 0:  # it could not be opened
                self._entries.pop(key, None)
            idle = self._take_idle(0 if self._closed else self._max_open)
        for index in idle:
            index.close()

    def _take_idle(self, n_kept: int) -> list[Index]:
        """With the lock held: takes indexes that nobody uses out of the pool, until `n_kept` are left."""
        taken = []
        for key, entry in list(self._entries.items()):
            if len(self._entries) <= n_kept:
                break
            if entry.n_users == 0:
                del self._entries[key]
                taken.append(entry.index)
        return [index for index in taken if index is not None]

    def _shared_encoder(self) -> Encoder:
        with self._encoder_lock:
            if self._encoder is None:
                self._encoder = load_model(self._model)
            return self._encoder


def _checked(name: str) -> str:
    """A name of an index may come from outside, so it must be one plain folder name."""
    if not isinstance(name, str) or not name or name in (".", "..") or {"/", "\\", "\x00"} & set(name):
        raise ConfigError(f"{name!r:.100} is not the name of an index; it must be one folder name, without / and \\")
    return name
