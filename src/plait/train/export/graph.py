"""One ONNX graph for all heads of a model, from its weights as arrays: the backbone, the token adapter, and the outputs
`dense`, `sparse`, `multi` and `fixed`. This module does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from plait.encode.sparse_terms import TERMS_OUTPUT
from plait.errors import ModelError
from plait.train.export.backbones import attention, bert_states, modernbert_states, t5_states
from plait.train.export.builder import ACTIVATIONS, FUSED, Builder, Floats, Linear, Norm, Weights
from plait.train.model_config import ADAPTER_PREFIX


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


MCLS = "mcls"  # the mean of the states at every [CLS]; with one [CLS] this is "cls"


@dataclass(frozen=True, slots=True, eq=False)
class SparseArrays:
    """The weights of a `SparseHead`."""

    linear: Linear  # out is 1
    is_kept: NDArray[np.bool_]  # (vocabulary,): False for ids whose weight is always 0
    idf: Floats | None = None  # (vocabulary,): the IDF times its gain, added to the weight
    up: Linear | None = None  # to hidden units; their GELU times `down` is added
    down: Linear | None = None
    term_ids: NDArray[np.int64] | None = None  # (vocabulary,): the term of each id; None: each id is a term


@dataclass(frozen=True, slots=True, eq=False)
class MixerArrays:
    """The weights of a `FixedMixer`."""

    weight: Floats  # (positions, vectors), or (vectors * dim, positions * dim) if `flat`
    n_vectors: int
    n_positions: int
    flat: bool
    zero_pads: bool


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """All heads of a model as arrays; None for a head that it does not have."""

    pooling: str | None = None
    sparse: SparseArrays | None = None
    multi: Linear | None = None
    mixture: MixerArrays | None = None
    token_adapter: AdapterArrays | None = None


Shapes = dict[str, list[str | int]]


def add_outputs(builder: Builder, heads: Heads, states: str, ids: str, mask: str, *, hidden: int) -> Shapes:
    """Adds the outputs of all heads; returns their shapes by name."""
    # If the graph pads documents, there are more rows than input tokens.
    length = "length" if heads.mixture is None or heads.mixture.zero_pads else "padded"
    shapes: Shapes = {}
    if heads.pooling is not None:
        _dense(builder, states, ids, mask, heads.pooling)
        shapes["dense"] = ["n", hidden]
    if heads.token_adapter is not None:
        states = add_token_adapter(builder, states, mask, heads.token_adapter)
    if heads.sparse is not None:
        _sparse(builder, states, ids, mask, heads.sparse)
        shapes["sparse"] = ["n", length]
        if heads.sparse.term_ids is not None:
            builder.op("Gather", [builder.constant("weigh.forms", heads.sparse.term_ids), ids], out=TERMS_OUTPUT)
            shapes[TERMS_OUTPUT] = ["n", length]
    if heads.multi is not None:
        rows = _project(builder, states, heads.multi)
        builder.unit(rows, "multi")
        dim = heads.multi.weight.shape[1]
        shapes["multi"] = ["n", length, dim]
        if heads.mixture is not None:
            _fixed(builder, states, rows, mask, heads.multi, heads.mixture)
            shapes["fixed"] = ["n", heads.mixture.n_vectors, dim]
    return shapes


def _dense(builder: Builder, states: str, ids: str, mask: str, pooling: str) -> None:
    if pooling == "cls":
        first = builder.op("Gather", [states, builder.axes("begin", 0)], axis=1)
        builder.unit(builder.op("Squeeze", [first, builder.axes("length_axis", 1)]), "dense")
        return
    if pooling == MCLS:
        # Every position of the first token; the mask excludes padding with the same id.
        first = builder.op("Gather", [ids, builder.axes("begin", 0)], axis=1)
        is_cls = builder.op("And", [builder.op("Equal", [ids, first]), builder.op("Cast", [mask], to=TensorProto.BOOL)])
        mask = builder.op("Cast", [is_cls], to=TensorProto.INT64)
    # The mean of these states; the sum will do, because the result is normalised.
    masked = builder.op("Mul", [states, _column(builder, mask)])
    axis = builder.axes("length_axis", 1)
    builder.unit(builder.op("ReduceSum", [masked, axis], keepdims=0), "dense")


def _sparse(builder: Builder, states: str, ids: str, mask: str, sparse: SparseArrays) -> None:
    column = builder.constant("weigh.weight", sparse.linear.weight)
    weight = builder.op("Squeeze", [builder.op("MatMul", [states, column]), builder.axes("last_axis", 2)])
    if sparse.linear.bias is not None:
        weight = builder.op("Add", [weight, builder.constant("weigh.bias", sparse.linear.bias)])
    if sparse.up is not None and sparse.down is not None:
        units = builder.op("MatMul", [states, builder.constant("weigh.up", sparse.up.weight)])
        if sparse.up.bias is not None:
            units = builder.op("Add", [units, builder.constant("weigh.up.bias", sparse.up.bias)])
        activated = builder.op("Gelu", [units], domain=FUSED)
        more = builder.op("MatMul", [activated, builder.constant("weigh.down", sparse.down.weight)])
        weight = builder.op("Add", [weight, builder.op("Squeeze", [more, builder.axes("last_axis", 2)])])
    if sparse.idf is not None:
        weight = builder.op("Add", [weight, builder.op("Gather", [builder.constant("weigh.prior", sparse.idf), ids])])
    # A lookup in a table of the vocabulary, instead of a comparison with every excluded id.
    is_kept = builder.op("Gather", [builder.constant("weigh.kept", sparse.is_kept), ids])
    counted = builder.op("And", [is_kept, builder.op("Cast", [mask], to=TensorProto.BOOL)])
    positive = builder.op("Relu", [weight])
    builder.op("Mul", [positive, builder.op("Cast", [counted], to=TensorProto.FLOAT)], out="sparse")


def _fixed(builder: Builder, states: str, rows: str, mask: str, multi: Linear, mixture: MixerArrays) -> None:
    dim, axis, begin = multi.weight.shape[1], builder.axes("length_axis", 1), builder.axes("begin", 0)

    def first_positions(value: str) -> str:
        # Queries pass these nodes as well, and may be longer than any document.
        return builder.op("Slice", [value, begin, builder.axes("n_positions", mixture.n_positions), axis])

    first_states = first_positions(rows if mixture.flat else states)
    if mixture.zero_pads:
        first_states = builder.op("Mul", [first_states, first_positions(_column(builder, mask))])
    length = builder.op("Shape", [first_states], start=1, end=2)
    if mixture.flat:
        flat = builder.op("Reshape", [first_states, builder.axes("each_flat", 0, -1)])
        wanted = builder.op("Mul", [length, builder.axes("dim", dim)])
        weight = builder.op("Slice", [builder.constant("mixer", mixture.weight.T), begin, wanted, begin])
        mixed = builder.op("MatMul", [flat, weight])
        mixed = builder.op("Reshape", [mixed, builder.axes("each_row", 0, mixture.n_vectors, dim)])
    else:
        weight = builder.op("Slice", [builder.constant("mixer", mixture.weight.T), begin, length, axis])
        mixed = _project(builder, builder.op("MatMul", [weight, first_states]), multi)
    builder.unit(mixed, "fixed")


def _project(builder: Builder, states: str, linear: Linear) -> str:
    product = builder.op("MatMul", [states, builder.constant("projection", linear.weight)])
    return product if linear.bias is None else builder.op("Add", [product, builder.constant("shift", linear.bias)])


def _column(builder: Builder, mask: str) -> str:
    weight = builder.op("Cast", [mask], to=TensorProto.FLOAT)
    return builder.op("Unsqueeze", [weight, builder.axes("last_axis", 2)])


States = Callable[[Builder, Weights, Mapping[str, Any], str, str], str]
FAMILIES: dict[str, States] = {
    "bert": bert_states,
    "roberta": bert_states,
    "xlm-roberta": bert_states,
    "mpnet": bert_states,
    "t5": t5_states,
    "mt5": t5_states,
    "modernbert": modernbert_states,
}
_ACTIVATION_KEYS = ("hidden_act", "hidden_activation", "dense_act_fn")


def build_graph(weights: Weights, config: Mapping[str, Any], heads: Heads, *, int8: bool) -> bytes:
    """The serialised graph: `input_ids` and `attention_mask` in, one output for each head. `config` is the transformers
    config. ModelError for a backbone that cannot be exported."""
    check_family(config)
    builder = Builder(int8)
    ids, mask = "input_ids", "attention_mask"
    if heads.mixture is not None and not heads.mixture.zero_pads:
        if config["model_type"] == "modernbert":
            # Padding without a token in its window attends to nothing; the result of that is undefined in torch.
            raise ModelError(
                "a ModernBERT with a mixer that includes padding cannot be exported; train it with zero_pads = true"
            )
        ids, mask = (_padded(builder, name, heads.mixture.n_positions) for name in (ids, mask))
    states = FAMILIES[config["model_type"]](builder, weights, config, ids, mask)
    hidden = int(config.get("hidden_size") or config["d_model"])
    return builder.serialise(add_outputs(builder, heads, states, ids, mask, hidden=hidden))


def check_family(config: Mapping[str, Any]) -> None:
    """ModelError if a backbone with this config cannot be exported."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise ModelError(f"a {kind!r} backbone cannot be exported; plait exports {', '.join(sorted(FAMILIES))}")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ModelError(
            f"position_embedding_type is {config['position_embedding_type']!r}; only absolute can be exported"
        )
    for key in _ACTIVATION_KEYS:
        if config.get(key) is not None and config[key] not in ACTIVATIONS:
            raise ModelError(f"{key} is {config[key]!r}; plait can export {', '.join(ACTIVATIONS)}")


def _padded(builder: Builder, name: str, n_positions: int) -> str:
    """Pads each text with zeros to `n_positions`; a longer batch stays as it is."""
    length = builder.op("Shape", [name], start=1, end=2)
    missing = builder.op("Sub", [builder.axes("all_positions", n_positions), length])
    missing = builder.op("Max", [missing, builder.axes("begin", 0)])
    pads = builder.op("Concat", [builder.axes("no_pads", 0, 0, 0), missing], axis=0)
    return builder.op("Pad", [name, pads, builder.constant("padding", np.int64(0))])
