"""The token adapter as ONNX nodes: small layers that plait adds above a backbone for sparse and multi vectors."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from plait.graphs.attention import attention
from plait.graphs.builder import FUSED, Builder, Linear, Norm

ADAPTER_PREFIX = "late"  # of the names of the token adapter's constants


@dataclass(frozen=True, slots=True, eq=False)
class AdapterLayerArrays:
    """The weights of an `AdapterLayer`."""

    first: Norm
    mixed: Linear  # to queries, keys and values, side by side
    out: Linear
    second: Norm
    wide: Linear
    narrow: Linear


@dataclass(frozen=True, slots=True, eq=False)
class AdapterArrays:
    """The weights of a `TokenAdapter`."""

    norm: Norm
    down: Linear
    layers: tuple[AdapterLayerArrays, ...]
    up: Linear
    n_heads: int


def add_token_adapter(builder: Builder, states: str, mask: str, adapter: AdapterArrays) -> str:
    """The states plus the output of the token adapter."""
    int_mask = builder.op("Cast", [mask], to=TensorProto.INT32)
    rows = _adapter_linear(
        builder,
        _adapter_norm(builder, states, f"{ADAPTER_PREFIX}.norm", adapter.norm),
        f"{ADAPTER_PREFIX}.down",
        adapter.down,
    )
    for number, layer in enumerate(adapter.layers):
        rows = _adapter_layer(builder, rows, int_mask, f"{ADAPTER_PREFIX}.{number}", layer, adapter.n_heads)
    return builder.op("Add", [states, _adapter_linear(builder, rows, f"{ADAPTER_PREFIX}.up", adapter.up)])


def _adapter_layer(builder: Builder, rows: str, mask: str, name: str, layer: AdapterLayerArrays, n_heads: int) -> str:
    mixed = _adapter_linear(
        builder, _adapter_norm(builder, rows, f"{name}.first", layer.first), f"{name}.mixed", layer.mixed
    )
    three = builder.split(mixed, f"{name}.heads", ("query", "key", "value"))
    attended = attention(builder, three, mask, n_heads=n_heads)
    rows = builder.op("Add", [rows, _adapter_linear(builder, attended, f"{name}.out", layer.out)])
    wide = _adapter_linear(
        builder, _adapter_norm(builder, rows, f"{name}.second", layer.second), f"{name}.wide", layer.wide
    )
    activated = builder.op("Gelu", [wide], domain=FUSED)
    return builder.op("Add", [rows, _adapter_linear(builder, activated, f"{name}.narrow", layer.narrow)])


def _adapter_linear(builder: Builder, value: str, name: str, linear: Linear) -> str:
    return builder.linear(value, name, linear.weight, linear.bias)


def _adapter_norm(builder: Builder, value: str, name: str, norm: Norm) -> str:
    return builder.norm(value, name, norm.gain, norm.shift, epsilon=norm.epsilon)
