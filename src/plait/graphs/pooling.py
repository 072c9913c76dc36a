"""Token states to one vector for each text, as ONNX nodes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from plait.graphs.builder import Builder, Norm
from plait.graphs.heads import MCLS, DenseHead

NO_TEXT = np.float32(-1e9)  # the state of padding in a maximum


def add_dense(builder: Builder, states: str, ids: str, mask: str, head: DenseHead, hidden: int) -> int:
    """Adds the output `dense`; returns its number of dimensions."""
    dim = hidden * len(head.poolings)
    if head.poolings in (("mean",), (MCLS,)) and not head.layers and head.normalize:
        # The sum will do, because the result is normalised.
        value = _sum(builder, states, _mcls_mask(builder, ids, mask) if head.poolings == (MCLS,) else mask)
    else:
        pooled = [pool(builder, states, ids, mask, pooling) for pooling in head.poolings]
        value = pooled[0] if len(pooled) == 1 else builder.op("Concat", pooled, axis=1)
    for layer in head.layers:
        dim = dim if isinstance(layer, Norm) else layer.linear.weight.shape[1]
    value = builder.layers(value, head.layers, "dense_layer")
    if head.dim is not None and head.dim < dim:
        dim = head.dim
        ends = builder.axes("dense.dim", dim)
        value = builder.op("Slice", [value, builder.axes("begin", 0), ends, builder.axes("length_axis", 1)])
    if head.normalize:
        builder.unit(value, "dense")
    else:
        builder.op("Identity", [value], out="dense")
    return dim


def pool(builder: Builder, states: str, ids: str, mask: str, pooling: str) -> str:
    """(n, hidden) from states (n, length, hidden), by one of `plait.graphs.heads.POOLINGS`."""
    if pooling == "cls":
        first = builder.op("Gather", [states, builder.axes("begin", 0)], axis=1)
        return builder.op("Squeeze", [first, builder.axes("length_axis", 1)])
    if pooling == "lasttoken":
        count = builder.op("ReduceSum", [mask, builder.axes("length_axis", 1)], keepdims=1)
        last = builder.op("Max", [builder.op("Sub", [count, builder.axes("one_back", 1)]), builder.axes("begin", 0)])
        return builder.op("GatherND", [states, last], batch_dims=1)
    if pooling == "max":
        is_text = builder.op("Cast", [column(builder, mask)], to=TensorProto.BOOL)
        text_states = builder.op("Where", [is_text, states, builder.constant("no_text", NO_TEXT)])
        return builder.op("ReduceMax", [text_states], axes=[1], keepdims=0)
    if pooling == MCLS:
        mask = _mcls_mask(builder, ids, mask)
    elif pooling == "weightedmean":
        # Later tokens weigh more: 1, 2, 3 ... Padding is at the end, so a running sum of the mask numbers the tokens.
        mask = builder.op("Mul", [mask, builder.op("CumSum", [mask, builder.constant("along", np.int64(1))])])
    weights = builder.op("Cast", [mask], to=TensorProto.FLOAT)
    count = builder.op("ReduceSum", [weights, builder.axes("length_axis", 1)], keepdims=1)
    count = builder.op("Max", [count, builder.constant("no_tokens", np.float32(1e-9))])
    if pooling == "mean_sqrt_len_tokens":
        count = builder.op("Sqrt", [count])
    return builder.op("Div", [_sum(builder, states, mask), count])


def column(builder: Builder, mask: str) -> str:
    """The mask as floats (n, length, 1)."""
    weight = builder.op("Cast", [mask], to=TensorProto.FLOAT)
    return builder.op("Unsqueeze", [weight, builder.axes("last_axis", 2)])


def _sum(builder: Builder, states: str, mask: str) -> str:
    masked = builder.op("Mul", [states, column(builder, mask)])
    return builder.op("ReduceSum", [masked, builder.axes("length_axis", 1)], keepdims=0)


def _mcls_mask(builder: Builder, ids: str, mask: str) -> str:
    """Every position of the first token; the mask excludes padding with the same id."""
    first = builder.op("Gather", [ids, builder.axes("begin", 0)], axis=1)
    is_cls = builder.op("And", [builder.op("Equal", [ids, first]), builder.op("Cast", [mask], to=TensorProto.BOOL)])
    return builder.op("Cast", [is_cls], to=TensorProto.INT64)
