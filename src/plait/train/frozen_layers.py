"""States of frozen layers, computed once: `StateCache` keeps them on disk, `CachedModel` trains only the layers above,
and `GraphStates` computes them with an ONNX graph.

float16 halves the size of the cache; it keeps about three digits.
"""

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

from plait.encode.load import choose_precision, find_model, session_options
from plait.encode.model_card import read_card
from plait.encode.model_files import model_file
from plait.errors import ConfigError, ModelError
from plait.graphs.adapter import ADAPTER_PREFIX
from plait.train.tensors import Encoded, Tokens

DTYPES = {"float16": np.float16, "float32": np.float32}
_PROBE = np.array([[2, 3, 4, 5, 6]], np.int64)  # any ids will do
_PROBE_TOLERANCE = 1e-3


class StateSource(Protocol):
    """Computes last hidden states instead of the backbone."""

    def states(self, tokens: Tokens) -> Tensor: ...


class StateCache:
    """States of texts on disk, by tokens and by the fingerprint of the model; for one process."""

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
            "CREATE TABLE IF NOT EXISTS texts (key BLOB PRIMARY KEY, row INTEGER, n_rows INTEGER) WITHOUT ROWID"
        )
        # A killed run may have written rows without an entry; they are truncated. Rows with an entry are complete.
        self._n_rows = int(self._connection.execute("SELECT coalesce(max(row + n_rows), 0) FROM texts").fetchone()[0])
        with self._file.open("r+b") as file:
            file.truncate(self._n_rows * self._row_bytes)

    @property
    def _row_bytes(self) -> int:
        return self._hidden * self._dtype.itemsize

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM texts").fetchone()[0])

    def get(self, keys: Sequence[bytes]) -> list[NDArray[np.floating] | None]:
        """The states (positions, hidden) of each key; None for an unknown key."""
        rows = self._mapped()
        states: list[NDArray[np.floating] | None] = []
        for key in keys:
            span = self._connection.execute("SELECT row, n_rows FROM texts WHERE key = ?", [key]).fetchone()
            states.append(None if span is None else rows[span[0] : span[0] + span[1]])
        return states

    def put(self, items: Sequence[tuple[bytes, NDArray[np.floating]]]) -> None:
        """Stores states: rows first, then their entries."""
        entries = []
        with self._file.open("ab") as file:
            for key, states in items:
                file.write(np.ascontiguousarray(states, self._dtype).tobytes())
                entries.append((key, self._n_rows, len(states)))
                self._n_rows += len(states)
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?, ?)", entries)

    def close(self) -> None:
        self._connection.close()

    def _mapped(self) -> NDArray[np.floating]:
        if self._n_rows == 0:
            return np.zeros((0, self._hidden), self._dtype)
        return np.memmap(self._file, self._dtype, mode="r", shape=(self._n_rows, self._hidden))


class CachedModel(nn.Module):
    """A model whose first `layers` layers come from a cache; they must be frozen, and have no dropout. With `graph`,
    the graph computes missing states instead of the backbone, and `layers` must be all layers."""

    def __init__(self, model: nn.Module, cache: StateCache, *, layers: int, graph: StateSource | None = None) -> None:
        super().__init__()
        self.model, self._cache, self._layers, self._graph = model, cache, layers, graph

    def forward(self, tokens: Tokens, *, is_query: bool) -> Encoded:
        model: Any = self.model
        tokens = model.pad_for_mixer(tokens, is_query=is_query)
        states = self._states(model.backbone, tokens)
        # A graph gives last hidden states, the final norm included.
        last = states if self._graph is not None else model.backbone.finish(states, tokens, start=self._layers)
        encoded: Encoded = model.from_states(last, tokens, is_query=is_query)
        return encoded

    def _states(self, backbone: Any, tokens: Tokens) -> Tensor:
        keys, lengths = _keys(tokens)
        cached = self._cache.get(keys)
        missing = [item for item, states in enumerate(cached) if states is None]
        if missing:
            new = Tokens(tokens.ids[missing], tokens.mask[missing], tokens.rows[missing])
            computed = backbone.states(new, upto=self._layers) if self._graph is None else self._graph.states(new)
            arrays = computed.float().cpu().numpy()
            new_states = {keys[item]: arrays[row, : lengths[item]] for row, item in enumerate(missing)}
            self._cache.put(list(new_states.items()))
            # Read back, so that the first pass gives the same rounded values as later passes.
            cached = self._cache.get(keys)
        hidden = next(states.shape[1] for states in cached if states is not None)
        padded = torch.zeros(*tokens.ids.shape, hidden)
        for item, states in enumerate(cached):
            assert states is not None
            padded[item, : len(states)] = torch.from_numpy(np.array(states, np.float32))
        return padded.to(tokens.ids.device)


def _keys(tokens: Tokens) -> tuple[list[bytes], list[int]]:
    """A hash of the ids and the mask of each text, without padding, and the length of the text."""
    ids, mask = tokens.ids.cpu().numpy(), tokens.mask.cpu().numpy()
    used = mask | tokens.rows.cpu().numpy()
    lengths = [int(np.flatnonzero(row).max(initial=0)) + 1 for row in used]
    keys = [
        hashlib.sha256(ids[row, :length].tobytes() + mask[row, :length].tobytes()).digest()[:16]
        for row, length in enumerate(lengths)
    ]
    return keys, lengths


class GraphStates:
    """Last hidden states from the ONNX graph of a model folder or bundled model. Heads then learn from the states that
    they will get in search, int8 rounding included, and it is several times as fast as torch. The graph must be that of
    a BERT that plait exported: its states are the output of the last norm."""

    def __init__(self, model: str | Path, *, hidden: int, n_threads: int | None = None) -> None:
        folder = find_model(model)
        card = read_card(folder)
        path = model_file(folder, choose_precision(card.precisions, card.name, folder, None))
        content = path.read_bytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()
        self._session, self._output = _open_with_states(content, path, hidden, n_threads)
        if card.dense is not None and card.dense.pooling == "mean":
            self._check_states(path)

    def states(self, tokens: Tokens) -> Tensor:
        """(items, length, hidden), float32; values at padding are undefined."""
        return torch.from_numpy(self._run(tokens.ids.cpu().numpy(), tokens.mask.cpu().numpy().astype(np.int64)))

    def _run(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        states: NDArray[np.float32] = self._session.run([self._output], {"input_ids": ids, "attention_mask": mask})[0]
        return states

    def _check_states(self, path: Path) -> None:
        """Their mean must be the graph's dense vector; otherwise the wrong node was taken for the states."""
        feed = {"input_ids": _PROBE, "attention_mask": np.ones_like(_PROBE)}
        dense = self._session.run(["dense"], feed)[0][0]
        mean = self._run(_PROBE, np.ones_like(_PROBE))[0].mean(axis=0)
        if not np.allclose(mean / np.linalg.norm(mean), dense, atol=_PROBE_TOLERANCE):
            raise ModelError(f"cannot find the hidden states in {path}: their mean is not the graph's dense vector")


def _open_with_states(content: bytes, path: Path, hidden: int, n_threads: int | None) -> tuple[Any, str]:
    """A session of the graph with the states as one more output, and the name of that output."""
    import onnx
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]

    graph = onnx.load_from_string(content)
    norms = [node for node in graph.graph.node if node.op_type == "LayerNormalization"]
    # The states are the input of a token adapter, so its norms come later and do not count.
    norms = [node for node in norms if not node.input[1].startswith(f"{ADAPTER_PREFIX}.")]
    if not norms:
        raise ModelError(f"{path} has no norm after its layers; states can only be taken from the graph of a BERT")
    name = norms[-1].output[0]
    shape: list[str | int | None] = ["n", "length", hidden]
    graph.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    gains = {tensor.name: tensor.dims[0] for tensor in graph.graph.initializer if tensor.name == norms[-1].input[1]}
    if (seen := gains.get(norms[-1].input[1])) != hidden:
        raise ModelError(
            f"{path} has states of {seen} dimensions, and the backbone has {hidden}; name the graph of this backbone"
        )
    options = session_options(n_threads)
    return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"]), name
