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

from plait.encode.load import choose_precision, find_model, model_file, session_options
from plait.encode.model_card import read_card
from plait.errors import ConfigError, ModelError
from plait.train.export.graph import LATE
from plait.train.tensors import Encoded, Tokens

DTYPES = {"float16": np.float16, "float32": np.float32}


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


_PROBE = np.array([[2, 3, 4, 5, 6]], np.int64)  # any ids will do
_TOLERANCE = 1e-3


class GraphStates:
    """Tokens to last hidden states, by the graph of a model folder or of a bundled model. The graph must be one of a
    BERT that plait wrote: its states are what the last norm gives."""

    def __init__(self, model: str | Path, *, hidden: int, n_threads: int | None = None) -> None:
        folder = find_model(model)
        card = read_card(folder)
        path = model_file(folder, choose_precision(card.precisions, card.name, folder, None))
        content = path.read_bytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()
        self._session, self._name = _opened(content, path, hidden, n_threads)
        if card.dense is not None and card.dense.pooling == "mean":
            self._check_states(path)

    def states(self, tokens: Tokens) -> Tensor:
        """(items, length, hidden), float32; what padding has is of no meaning."""
        return torch.from_numpy(self._run(tokens.ids.cpu().numpy(), tokens.mask.cpu().numpy().astype(np.int64)))

    def _run(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._session.run([self._name], {"input_ids": ids, "attention_mask": mask})[0]
        return found

    def _check_states(self, path: Path) -> None:
        """Their mean must be the graph's own dense vector: nothing else says that the right place was found."""
        feed = {"input_ids": _PROBE, "attention_mask": np.ones_like(_PROBE)}
        dense = self._session.run(["dense"], feed)[0][0]
        mean = self._run(_PROBE, np.ones_like(_PROBE))[0].mean(axis=0)
        if not np.allclose(mean / np.linalg.norm(mean), dense, atol=_TOLERANCE):
            raise ModelError(f"the states inside {path} were not found: their mean is not its dense vector")


def _opened(content: bytes, path: Path, hidden: int, n_threads: int | None) -> tuple[Any, str]:
    """A session with the states as one more output, and the name of that output."""
    import onnx
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]

    graph = onnx.load_from_string(content)
    norms = [node for node in graph.graph.node if node.op_type == "LayerNormalization"]
    # States are what late layers are given.
    norms = [node for node in norms if not node.input[1].startswith(f"{LATE}.")]
    if not norms:
        raise ModelError(f"{path} has no norm after its layers; states can be taken from the graph of a BERT only")
    name = norms[-1].output[0]
    shape: list[str | int | None] = ["n", "length", hidden]
    graph.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    gains = {own.name: own.dims[0] for own in graph.graph.initializer if own.name == norms[-1].input[1]}
    if (seen := gains.get(norms[-1].input[1])) != hidden:
        raise ModelError(f"{path} has states of {seen} dimensions, and the backbone of {hidden}; name its own graph")
    options = session_options(n_threads)
    return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"]), name
