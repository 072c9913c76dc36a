"""One ONNX graph for all heads of a model, from its weights as arrays: the backbone, the token adapter, and an output
for each head."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from plait.encode.model_card import FileRecord, GraphRecord
from plait.encode.sparse_terms import QUERY_OUTPUT
from plait.errors import ModelError
from plait.graphs.bert import bert_states
from plait.graphs.builder import ACTIVATIONS, Builder, Inputs, Weights
from plait.graphs.config import resolve_config
from plait.graphs.deberta import deberta_states
from plait.graphs.decoder import decoder_states
from plait.graphs.heads import Heads, SparseVocabulary
from plait.graphs.modernbert import modernbert_states
from plait.graphs.outputs import Shapes, add_outputs, add_sparse_query
from plait.graphs.rotary import rotary_states
from plait.graphs.t5 import t5_states

PRECISIONS = FP32, FP16, INT8 = ("fp32", "fp16", "int8")
MAX_INLINE = 1_900_000_000  # bytes of constants; a file of protobuf has at most 2 GB
ALIGNMENT = 4096  # of the tensors in a file of their own, so that they can be mapped

States = Callable[[Builder, Weights, Mapping[str, Any], Inputs], str]


def static_states(builder: Builder, weights: Weights, config: Mapping[str, Any], inputs: Inputs) -> str:
    """The vectors of the tokens themselves, as static models have them."""
    del config
    return builder.lookup(weights["embedding.weight"], inputs.ids)


FAMILIES: dict[str, States] = {
    **dict.fromkeys(("bert", "distilbert", "electra", "roberta", "xlm-roberta", "mpnet"), bert_states),
    **dict.fromkeys(("t5", "mt5"), t5_states),
    "modernbert": modernbert_states,
    "deberta-v2": deberta_states,
    **dict.fromkeys(("nomic_bert", "gte"), rotary_states),
    **dict.fromkeys(("qwen3", "qwen2", "llama", "eurobert"), decoder_states),
    "static": static_states,
}
_ACTIVATION_KEYS = ("hidden_act", "hidden_activation", "dense_act_fn")


def build_graph(
    weights: Weights, config: Mapping[str, Any], heads: Heads, *, precision: str = FP32, token_types: bool = False
) -> bytes:
    """The serialised graph: `input_ids` and `attention_mask` in, one output for each head. `config` is the transformers
    config; `token_types` adds the input `token_type_ids`, for pairs. ModelError for a backbone that cannot be exported,
    or a graph of more than 2 GB, which `write_graph` can write."""
    builder, shapes = _assemble(weights, config, heads, precision, token_types)
    if (size := sum(value.nbytes for value in builder.constants.values())) > MAX_INLINE:
        raise ModelError(f"the graph has {size:,} bytes, too many for one file; write it with its tensors in another")
    return builder.serialise(shapes, token_types=token_types)


def write_graph(
    folder: Path,
    file: str,
    weights: Weights,
    config: Mapping[str, Any],
    heads: Heads,
    *,
    precision: str = FP32,
    token_types: bool = False,
    max_inline: int = MAX_INLINE,
) -> GraphRecord:
    """Writes the graph into a folder; returns its record for a card. Tensors of more than `max_inline` bytes in all
    go to a file of their own, `file` with ".data" after it."""
    builder, shapes = _assemble(weights, config, heads, precision, token_types)
    data: tuple[FileRecord, ...] = ()
    if sum(value.nbytes for value in builder.constants.values()) <= max_inline:
        content = builder.serialise(shapes, token_types=token_types)
    else:
        tensors, record = _write_data(folder, f"{file}.data", builder)
        content, data = builder.model(tensors, shapes, token_types=token_types), (record,)
    optimise = "basic" if precision == FP16 else "none" if heads.score is not None else ""
    graph = _write_file(folder, file, content)
    return GraphRecord(graph.file, graph.sha256, graph.bytes, data, optimise, _write_queries(folder, file, heads))


def _write_file(folder: Path, file: str, content: bytes) -> FileRecord:
    (folder / file).write_bytes(content)
    return FileRecord(file, hashlib.sha256(content).hexdigest(), len(content))


def _write_queries(folder: Path, file: str, heads: Heads) -> FileRecord | None:
    """The graph of static queries, for a model that gives queries nothing else; None for any other model."""
    sparse = heads.sparse
    if not isinstance(sparse, SparseVocabulary) or sparse.query_weights is None or heads.dense or heads.multi:
        return None
    builder, inputs = Builder(int8=False), Inputs()
    add_sparse_query(builder, inputs.ids, inputs.mask, sparse.query_weights)
    content = builder.serialise({QUERY_OUTPUT: ["n", "length"]})
    return _write_file(folder, f"{file.removesuffix('.onnx')}.query.onnx", content)


def _assemble(
    weights: Weights, config: Mapping[str, Any], heads: Heads, precision: str, token_types: bool
) -> tuple[Builder, Shapes]:
    if precision not in PRECISIONS:
        raise ModelError(f"precision is {precision!r}; choose one of {', '.join(PRECISIONS)}")
    check_family(config)
    resolved = resolve_config(config)
    builder = Builder(precision == INT8, half=precision == FP16)
    inputs = Inputs(types="token_type_ids" if token_types else None)
    if heads.mixture is not None and not heads.mixture.zero_pads:
        if resolved["model_type"] == "modernbert":
            # Padding without a token in its window attends to nothing; the result of that is undefined in torch.
            raise ModelError(
                "a ModernBERT with a mixer that includes padding cannot be exported; train it with zero_pads = true"
            )
        inputs = Inputs(*(_padded(builder, name, heads.mixture.n_positions) for name in (inputs.ids, inputs.mask)))
    try:
        states = FAMILIES[resolved["model_type"]](builder, weights, resolved, inputs)
    except KeyError as error:
        kind = resolved["model_type"]
        raise ModelError(f"the {kind} backbone has no tensor {error.args[0]!r}; the checkpoint is not whole") from None
    hidden = int(resolved["hidden_size"])
    return builder, add_outputs(builder, heads, states, inputs.ids, inputs.mask, hidden=hidden)


def _write_data(folder: Path, name: str, builder: Builder) -> tuple[list[Any], FileRecord]:
    """Writes the large constants; returns all tensors, and the record of the file."""
    digest, tensors, position = hashlib.sha256(), [], 0
    with (folder / name).open("wb") as file:
        for constant, value in builder.constants.items():
            if value.nbytes < ALIGNMENT:
                tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), constant))
                continue
            padding = bytes(-position % ALIGNMENT)
            content = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
            for part in (padding, content.tobytes()):
                file.write(part)
                digest.update(part)
            position += len(padding)
            tensors.append(_external(constant, value, name, position))
            position += value.nbytes
    return tensors, FileRecord(name, digest.hexdigest(), position)


def _external(name: str, value: np.ndarray[Any, Any], file: str, position: int) -> TensorProto:
    """A tensor whose values are at a position of a file."""
    tensor = numpy_helper.from_array(np.zeros(0, value.dtype), name)
    del tensor.dims[:]
    tensor.dims.extend(value.shape)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", file), ("offset", str(position)), ("length", str(value.nbytes))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return tensor


def check_family(config: Mapping[str, Any]) -> None:
    """ModelError if a backbone with this config cannot be exported."""
    resolved = resolve_config(config)
    for key in _ACTIVATION_KEYS:
        if resolved.get(key) is not None and resolved[key] not in ACTIVATIONS:
            raise ModelError(f"{key} is {resolved[key]!r}; plait can export {', '.join(ACTIVATIONS)}")


def _padded(builder: Builder, name: str, n_positions: int) -> str:
    """Pads each text with zeros to `n_positions`; a longer batch stays as it is."""
    length = builder.op("Shape", [name], start=1, end=2)
    missing = builder.op("Sub", [builder.axes("all_positions", n_positions), length])
    missing = builder.op("Max", [missing, builder.axes("begin", 0)])
    pads = builder.op("Concat", [builder.axes("no_pads", 0, 0, 0), missing], axis=0)
    return builder.op("Pad", [name, pads, builder.constant("padding", np.int64(0))])
