"""Last hidden states from the graph of a model folder: a backbone that is not trained runs as it will at search time,
int8 included, and several times as fast as in torch. What the heads then learn from is what they will be given."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.encode.load import file_of, find, record_of, session_options
from plait.encode.model_card import read_card
from plait.errors import ModelError
from plait.train.encoded import Tokens
from plait.train.export.late import LATE

_PROBE = np.array([[2, 3, 4, 5, 6]], np.int64)  # any ids will do
_TOLERANCE = 1e-3


class GraphStates:
    """Tokens to last hidden states, by the graph of a model folder or of a bundled model. The graph must be one of a
    BERT that plait wrote: its states are what the last norm gives."""

    def __init__(self, model: str | Path, *, hidden: int, n_threads: int | None = None) -> None:
        folder = find(model)
        card = read_card(folder)
        path = file_of(folder, record_of(card.precisions, card.name, folder, None))
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
