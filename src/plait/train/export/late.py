"""Late layers as nodes: last hidden states to those that the sparse and the multi head read."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from plait.train.export.bert import attention
from plait.train.export.builder import FUSED, Builder
from plait.train.export.linear import Linear, Norm

LATE = "late"  # what the names of their constants begin with


@dataclass(frozen=True, slots=True, eq=False)
class LateLayer:
    """One of the late layers, as arrays: plait.train.layer has what it does."""

    first: Norm
    mixed: Linear  # to queries, keys and values, side by side
    out: Linear
    second: Norm
    wide: Linear
    narrow: Linear


@dataclass(frozen=True, slots=True, eq=False)
class Late:
    """The late layers, from states to what is added to them."""

    norm: Norm
    down: Linear
    layers: tuple[LateLayer, ...]
    up: Linear
    n_heads: int


def put_late(builder: Builder, states: str, mask: str, late: Late) -> str:
    """The name of the states with what the late layers add to them."""
    shown = builder.op("Cast", [mask], to=TensorProto.INT32)
    rows = _linear(builder, _norm(builder, states, f"{LATE}.norm", late.norm), f"{LATE}.down", late.down)
    for number, layer in enumerate(late.layers):
        rows = _layer(builder, rows, shown, f"{LATE}.{number}", layer, late.n_heads)
    return builder.op("Add", [states, _linear(builder, rows, f"{LATE}.up", late.up)])


def _layer(builder: Builder, rows: str, mask: str, name: str, layer: LateLayer, n_heads: int) -> str:
    mixed = _linear(builder, _norm(builder, rows, f"{name}.first", layer.first), f"{name}.mixed", layer.mixed)
    three = builder.split(mixed, f"{name}.heads", ("query", "key", "value"))
    seen = attention(builder, three, mask, n_heads=n_heads)
    rows = builder.op("Add", [rows, _linear(builder, seen, f"{name}.out", layer.out)])
    wide = _linear(builder, _norm(builder, rows, f"{name}.second", layer.second), f"{name}.wide", layer.wide)
    lit = builder.op("Gelu", [wide], domain=FUSED)
    return builder.op("Add", [rows, _linear(builder, lit, f"{name}.narrow", layer.narrow)])


def _linear(builder: Builder, value: str, name: str, linear: Linear) -> str:
    return builder.linear(value, name, linear.weight, linear.bias)


def _norm(builder: Builder, value: str, name: str, norm: Norm) -> str:
    return builder.norm(value, name, norm.gain, norm.shift, epsilon=norm.epsilon)
