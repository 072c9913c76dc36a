"""The bundled model's graph, of gte-small and one projection; plait.train.export.graph writes the nodes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from model_source import Weights  # type: ignore[import-not-found,unused-ignore]
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from plait.train.export import graph
from plait.train.export.linear import Linear
from plait.train.export.outputs import Heads

CONFIG = {
    "model_type": "bert",
    "hidden_size": 384,
    "num_attention_heads": 12,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}


def build_graph(weights: Weights, projection: NDArray[np.float32], *, int8: bool) -> bytes:
    """The graph, serialised: input_ids and attention_mask in, `dense` and `multi` out. `projection`: (hidden, dim)."""
    return graph.build_graph(weights, CONFIG, Heads(pooling="mean", multi=Linear(projection)), int8=int8)
