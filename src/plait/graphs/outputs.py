"""The outputs of all heads as ONNX nodes: `dense`, `sparse`, `sparse_query`, `multi`, `fixed`, `score`. Heads are
computed in single precision in every graph: they are small, and rounding would change scores more than it saves time.
Only the decoder of SPLADE, which is as large as the word embeddings, follows the precision of the graph."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from plait.encode.sparse_terms import QUERY_OUTPUT, TERMS_OUTPUT
from plait.graphs.adapter import add_token_adapter
from plait.graphs.builder import FUSED, Builder, Linear, Norm
from plait.graphs.heads import Heads, Layer, MixerArrays, MlmHead, MultiHead, ScoreHead, SparseTokens, SparseVocabulary
from plait.graphs.pooling import add_dense, column, pool

Shapes = dict[str, list[str | int]]


def add_outputs(builder: Builder, heads: Heads, states: str, ids: str, mask: str, *, hidden: int) -> Shapes:
    """Adds the outputs of all heads; returns their shapes by name."""
    # If the graph pads documents, there are more rows than input tokens.
    length = "length" if heads.mixture is None or heads.mixture.zero_pads else "padded"
    shapes: Shapes = {}
    if heads.dense is not None:
        shapes["dense"] = ["n", add_dense(builder, states, ids, mask, heads.dense, hidden)]
    if heads.score is not None:
        _score(builder, states, ids, mask, heads.score)
        shapes["score"] = ["n"]
    if heads.token_adapter is not None:
        states = add_token_adapter(builder, states, mask, heads.token_adapter)
    if isinstance(heads.sparse, SparseTokens):
        _sparse_tokens(builder, states, ids, mask, heads.sparse)
        shapes["sparse"] = ["n", length]
        if heads.sparse.term_ids is not None:
            builder.op("Gather", [builder.constant("weigh.forms", heads.sparse.term_ids), ids], out=TERMS_OUTPUT)
            shapes[TERMS_OUTPUT] = ["n", length]
    elif heads.sparse is not None:
        _sparse_vocabulary(builder, states, mask, heads.sparse)
        shapes["sparse"] = ["n", heads.sparse.head.decoder.weight.shape[1]]
        if heads.sparse.query_weights is not None:
            add_sparse_query(builder, ids, mask, heads.sparse.query_weights)
            shapes[QUERY_OUTPUT] = ["n", length]
    if heads.multi is not None:
        dim = heads.multi.dim or layers_dim(heads.multi.layers, hidden)
        rows = _token_rows(builder, states, heads.multi)
        builder.unit(rows, "multi")
        shapes["multi"] = ["n", length, dim]
        if heads.mixture is not None:
            _fixed(builder, states, rows, mask, heads.multi, heads.mixture, dim)
            shapes["fixed"] = ["n", heads.mixture.n_vectors, dim]
    return shapes


def layers_dim(layers: tuple[Layer, ...], hidden: int) -> int:
    """The number of dimensions after these layers."""
    dims = [layer.linear.weight.shape[1] for layer in layers if not isinstance(layer, Norm)]
    return int(dims[-1]) if dims else hidden


def _score(builder: Builder, states: str, ids: str, mask: str, score: ScoreHead) -> None:
    pooled = pool(builder, states, ids, mask, score.pooling)
    value = builder.layers(pooled, score.layers, "score")
    builder.op("Squeeze", [value, builder.axes("length_axis", 1)], out="score")


def _sparse_tokens(builder: Builder, states: str, ids: str, mask: str, sparse: SparseTokens) -> None:
    weights = builder.constant("weigh.weight", sparse.linear.weight)
    weight = builder.op("Squeeze", [builder.op("MatMul", [states, weights]), builder.axes("last_axis", 2)])
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


def _sparse_vocabulary(builder: Builder, states: str, mask: str, sparse: SparseVocabulary) -> None:
    """`sparse`, (n, vocabulary). With pooling "max", pooling comes before the activation and the bias of the decoder,
    which do not change the order of the tokens' logits: the largest tensor is then made once."""
    axis = builder.axes("length_axis", 1)
    decoder = sparse.head.decoder
    states = _mlm_transform(builder, states, sparse.head)
    if sparse.pooling == "max":
        # Padding takes the state of the first token, so that it changes no maximum.
        is_text = builder.op("Cast", [column(builder, mask)], to=TensorProto.BOOL)
        first = builder.op("Gather", [states, builder.axes("begin", 0)], axis=1)
        states = builder.op("Where", [is_text, states, first])
        logits = builder.linear(states, "decoder", decoder.weight, None)
        pooled = builder.op("ReduceMax", [logits], axes=[1], keepdims=0)
        if decoder.bias is not None:
            pooled = builder.op("Add", [pooled, builder.constant("decoder.bias", decoder.bias)])
        weight = _saturated(builder, pooled, sparse.activation)
    else:
        logits = builder.linear(states, "decoder", decoder.weight, decoder.bias)
        activated = _saturated(builder, logits, sparse.activation)
        weight = builder.op("ReduceSum", [builder.op("Mul", [activated, column(builder, mask)]), axis], keepdims=0)
    if sparse.is_kept is not None:
        weight = builder.op("Mul", [weight, builder.constant("weigh.kept", sparse.is_kept.astype(np.float32))])
    builder.op("Identity", [weight], out="sparse")


def _mlm_transform(builder: Builder, states: str, head: MlmHead) -> str:
    if head.transform is not None:
        states = builder.linear(states, "transform", head.transform.weight, head.transform.bias)
    if head.activation:
        states = builder.activation(states, head.activation)
    return states if head.norm is None else builder.norm_of(states, "transform.norm", head.norm)


def _saturated(builder: Builder, value: str, activation: str) -> str:
    """relu, then log(1 + x) as often as the activation's name says."""
    value = builder.op("Relu", [value])
    for _ in range(activation.count("log1p")):
        value = builder.op("Log", [builder.op("Add", [value, builder.constant("one", np.float32(1))])])
    return value


def add_sparse_query(
    builder: Builder, ids: str, mask: str, weights: np.ndarray[tuple[int], np.dtype[np.float32]]
) -> None:
    """`sparse_query`, (n, length): the weight of each token of a query, from a table; 0 for padding."""
    looked_up = builder.op("Gather", [builder.constant("weigh.query", weights), ids])
    builder.op("Mul", [looked_up, builder.op("Cast", [mask], to=TensorProto.FLOAT)], out=QUERY_OUTPUT)


def _token_rows(builder: Builder, states: str, multi: MultiHead) -> str:
    rows = _project(builder, states, multi)
    if multi.dim is None:
        return rows
    ends = builder.axes("multi.dim", multi.dim)
    return builder.op("Slice", [rows, builder.axes("begin", 0), ends, builder.axes("last_axis", 2)])


def _fixed(
    builder: Builder, states: str, rows: str, mask: str, multi: MultiHead, mixture: MixerArrays, dim: int
) -> None:
    axis, begin = builder.axes("length_axis", 1), builder.axes("begin", 0)

    def first_positions(value: str) -> str:
        # Queries pass these nodes as well, and may be longer than any document.
        return builder.op("Slice", [value, begin, builder.axes("n_positions", mixture.n_positions), axis])

    of_rows = mixture.flat or mixture.mixes_rows
    first_states = first_positions(rows if of_rows else states)
    if mixture.zero_pads:
        first_states = builder.op("Mul", [first_states, first_positions(column(builder, mask))])
    length = builder.op("Shape", [first_states], start=1, end=2)
    if mixture.flat:
        flat = builder.op("Reshape", [first_states, builder.axes("each_flat", 0, -1)])
        wanted = builder.op("Mul", [length, builder.axes("dim", dim)])
        weight = builder.op("Slice", [builder.constant("mixer", mixture.weight.T), begin, wanted, begin])
        mixed = builder.op("MatMul", [flat, weight])
        mixed = builder.op("Reshape", [mixed, builder.axes("each_row", 0, mixture.n_vectors, dim)])
    else:
        weight = builder.op("Slice", [builder.constant("mixer", mixture.weight.T), begin, length, axis])
        mixed = builder.op("MatMul", [weight, first_states])
        mixed = mixed if of_rows else _token_rows(builder, mixed, multi)
    if mixture.bias is not None:
        shape = (mixture.n_vectors, dim if mixture.flat else 1)
        mixed = builder.op("Add", [mixed, builder.constant("mixer.bias", mixture.bias.reshape(shape))])
    builder.unit(mixed, "fixed")


def _project(builder: Builder, states: str, multi: MultiHead) -> str:
    match multi.layers:
        case (layer,) if not isinstance(layer, Norm) and not (layer.activation or layer.residual or layer.adds_input):
            return _linear(builder, states, layer.linear)
    return builder.layers(states, multi.layers, "projection")


def _linear(builder: Builder, states: str, linear: Linear) -> str:
    product = builder.op("MatMul", [states, builder.constant("projection", linear.weight)])
    return product if linear.bias is None else builder.op("Add", [product, builder.constant("shift", linear.bias)])
