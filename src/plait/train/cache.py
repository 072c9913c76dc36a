"""Frozen lower layers, computed once: their states are kept on disk by what was read, and training runs the top alone.
Half precision halves the file; the loss of precision is that of float16, about three digits."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plait.errors import ConfigError
from plait.train.encoded import Encoded, Tokens

DTYPES = {"float16": np.float16, "float32": np.float32}


class Divided(Protocol):
    """What is asked of a model whose lower layers are kept."""

    backbone: Any  # states(tokens, upto=n) and finish(states, tokens, start=n)

    def framed(self, tokens: Tokens, *, is_query: bool) -> Tokens: ...

    def from_states(self, states: Tensor, tokens: Tokens, *, is_query: bool) -> Encoded: ...


class StateCache:
    """States of texts on disk, by their tokens and by the model that made them; for one process."""

    def __init__(self, folder: Path, *, fingerprint: str, hidden: int, dtype: str = "float16") -> None:
        if dtype not in DTYPES:
            raise ConfigError(f"dtype is {dtype!r}; choose one of {', '.join(DTYPES)}")
        folder.mkdir(parents=True, exist_ok=True)
        self._dtype, self._hidden = np.dtype(DTYPES[dtype]), hidden
        name = hashlib.sha256(f"{fingerprint} {hidden} {dtype}".encode()).hexdigest()[:16]
        self._file = folder / f"{name}.states"
        self._file.touch()
        self._connection = sqlite3.connect(folder / f"{name}.sqlite")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS places (key BLOB PRIMARY KEY, row INTEGER, n_rows INTEGER) WITHOUT ROWID"
        )
        # What a killed run wrote and did not name is cut off: rows that are named are whole.
        self._n_rows = int(self._connection.execute("SELECT coalesce(max(row + n_rows), 0) FROM places").fetchone()[0])
        with self._file.open("r+b") as file:
            file.truncate(self._n_rows * self._row_bytes)

    @property
    def _row_bytes(self) -> int:
        return self._hidden * self._dtype.itemsize

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM places").fetchone()[0])

    def get(self, keys: Sequence[bytes]) -> list[NDArray[np.floating] | None]:
        """The states (positions, hidden) of each key; None where they are not known."""
        rows = self._mapped()
        found: list[NDArray[np.floating] | None] = []
        for key in keys:
            place = self._connection.execute("SELECT row, n_rows FROM places WHERE key = ?", [key]).fetchone()
            found.append(None if place is None else rows[place[0] : place[0] + place[1]])
        return found

    def put(self, items: Sequence[tuple[bytes, NDArray[np.floating]]]) -> None:
        """Keeps states: first their rows, then where they are."""
        places = []
        with self._file.open("ab") as file:
            for key, states in items:
                file.write(np.ascontiguousarray(states, self._dtype).tobytes())
                places.append((key, self._n_rows, len(states)))
                self._n_rows += len(states)
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", places)

    def close(self) -> None:
        self._connection.close()

    def _mapped(self) -> NDArray[np.floating]:
        if self._n_rows == 0:
            return np.zeros((0, self._hidden), self._dtype)
        return np.memmap(self._file, self._dtype, mode="r", shape=(self._n_rows, self._hidden))


class Source(Protocol):
    """Whoever computes last hidden states in place of the backbone."""

    def states(self, tokens: Tokens) -> Tensor: ...


class CachedModel(nn.Module):
    """A model whose first `layers` layers come from a cache. They must not be trained, and have no dropout. `graph`
    computes what the cache does not have, where that is not the backbone; `layers` is then all of them."""

    def __init__(self, model: nn.Module, cache: StateCache, *, layers: int, graph: Source | None = None) -> None:
        super().__init__()
        self.model, self._cache, self._layers, self._graph = model, cache, layers, graph

    def forward(self, tokens: Tokens, *, is_query: bool) -> Encoded:
        model: Any = self.model
        tokens = model.framed(tokens, is_query=is_query)
        states = self._states(model.backbone, tokens)
        # What a graph gives is finished already, the norm after the last layer included.
        last = states if self._graph is not None else model.backbone.finish(states, tokens, start=self._layers)
        found: Encoded = model.from_states(last, tokens, is_query=is_query)
        return found

    def _states(self, backbone: Any, tokens: Tokens) -> Tensor:
        keys, lengths = _keys(tokens)
        found = self._cache.get(keys)
        missing = [place for place, states in enumerate(found) if states is None]
        if missing:
            new = Tokens(tokens.ids[missing], tokens.mask[missing], tokens.rows[missing])
            found_states = backbone.states(new, upto=self._layers) if self._graph is None else self._graph.states(new)
            computed = found_states.float().cpu().numpy()
            items = {keys[place]: computed[row, : lengths[place]] for row, place in enumerate(missing)}
            self._cache.put(list(items.items()))
            # Read back: the first time must give what every later time gives, rounding included.
            found = self._cache.get(keys)
        hidden = next(states.shape[1] for states in found if states is not None)
        padded = torch.zeros(*tokens.ids.shape, hidden)
        for place, states in enumerate(found):
            assert states is not None
            padded[place, : len(states)] = torch.from_numpy(np.array(states, np.float32))
        return padded.to(tokens.ids.device)


def _keys(tokens: Tokens) -> tuple[list[bytes], list[int]]:
    """What a text's states depend on: its ids and which of them are attended to, without the padding after both."""
    ids, mask = tokens.ids.cpu().numpy(), tokens.mask.cpu().numpy()
    used = mask | tokens.rows.cpu().numpy()
    lengths = [int(np.flatnonzero(row).max(initial=0)) + 1 for row in used]
    keys = [
        hashlib.sha256(ids[row, :length].tobytes() + mask[row, :length].tobytes()).digest()[:16]
        for row, length in enumerate(lengths)
    ]
    return keys, lengths
