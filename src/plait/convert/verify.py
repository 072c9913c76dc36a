"""The source model as an encoder, to compare graphs with: transformers runs the backbone in torch, and the heads are
computed in plain numpy. Nothing here shares code with the graphs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.convert.checkpoint import Checkpoint, ForeignGraph
from plait.convert.layouts.common import BUILT_IN_REMOTE
from plait.embeddings import Embeddings
from plait.encode.load import session_options
from plait.encode.protocol import Encoder
from plait.errors import ModelError
from plait.graphs.heads import (
    DenseHead,
    DenseLayer,
    Layer,
    Linear,
    MixerArrays,
    MlmHead,
    SparseTokens,
    SparseVocabulary,
)

Floats = NDArray[np.float32]
Feed = dict[str, NDArray[np.int64]]
# Weights of a checkpoint that no output depends on.
_UNUSED = ("pooler.", "position_ids", "decoder.", "lm_head", "rotary_emb", "cls.")


@dataclass(frozen=True, slots=True)
class Unverified:
    """Why the source model cannot be run here."""

    reason: str


class TorchSession:
    """Runs the source model, with the interface of an onnxruntime session."""

    def __init__(self, model: Any, checkpoint: Checkpoint, device: str | None = None) -> None:
        self._model, self._checkpoint, self._device = model, checkpoint, device or "cpu"

    def get_inputs(self) -> Sequence[Any]:
        types = ["token_type_ids"] if self._checkpoint.token_types else []
        return [SimpleNamespace(name=name) for name in ("input_ids", "attention_mask", *types)]

    def run(self, outputs: list[str], feed: Feed, options: Any = None, /) -> Sequence[Floats]:
        del options  # of onnxruntime
        heads, mask = self._checkpoint.heads, feed["attention_mask"]
        if "score" in outputs:
            return [self._forward(feed).logits[:, 0].cpu().numpy()]
        if outputs == ["sparse_query"]:
            return [_static_query(heads.sparse, feed["input_ids"], mask)]
        values: dict[str, Floats] = {}
        if isinstance(heads.sparse, SparseVocabulary):
            values["sparse"] = _splade(self._forward(feed).logits.cpu().numpy(), mask, heads.sparse)
        else:
            states: Floats = self._states(feed)
            values = _heads(states, feed["input_ids"], mask, self._checkpoint)
        return [values[name] for name in outputs]

    def _states(self, feed: Feed) -> Floats:
        if self._checkpoint.config["model_type"] == "static":
            return np.asarray(self._checkpoint.tensors["embedding.weight"][feed["input_ids"]], np.float32)
        states: Floats = self._forward(feed).last_hidden_state.cpu().numpy()
        return states

    def _forward(self, feed: Feed) -> Any:
        import torch

        with torch.no_grad():
            return self._model(**{name: torch.from_numpy(value).to(self._device) for name, value in feed.items()})


class GraphSession:
    """Runs a foreign graph as it is, and pools and normalises in numpy."""

    def __init__(self, graph: ForeignGraph) -> None:
        import onnxruntime

        try:
            self._session = onnxruntime.InferenceSession(
                str(graph.path), session_options(None, optimise="all"), providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors share no public class
            raise ModelError(f"{graph.path} cannot be run: {error!s:.300}; fetch the checkpoint again") from error
        self._graph = graph

    def get_inputs(self) -> Sequence[Any]:
        inputs: Sequence[Any] = self._session.get_inputs()
        return inputs

    def run(self, outputs: list[str], feed: Feed, options: Any = None, /) -> Sequence[Floats]:
        del options
        names = {given.name for given in self.get_inputs()}
        fed = {name: value for name, value in feed.items() if name in names}
        value = np.asarray(self._session.run([self._graph.output], fed)[0], np.float32)
        if self._graph.kind == "score":
            return [value.reshape(-1)]
        states = value
        if self._graph.pooling:
            value = _pool(value, feed["input_ids"], feed["attention_mask"], self._graph.pooling)
        named = {self._graph.kind: _unit(value) if self._graph.normalize else value}
        if self._graph.token_states:
            named["multi"] = _unit(states)
        return [named[name] for name in outputs]


def source_session(checkpoint: Checkpoint, device: str | None = None) -> TorchSession | GraphSession | Unverified:
    """The source model, on a device of torch; `Unverified` if transformers is missing or does not know the
    architecture."""
    if checkpoint.graph is not None:
        return GraphSession(checkpoint.graph)
    if checkpoint.config["model_type"] == "static":
        return TorchSession(None, checkpoint)
    try:
        import transformers
    except ImportError:
        return Unverified("transformers is not installed")
    if checkpoint.config["model_type"] not in transformers.CONFIG_MAPPING:
        return Unverified(f"transformers has no {checkpoint.config['model_type']!r} without code of the checkpoint")
    try:
        model = _load(transformers, checkpoint)
    except ModelError:
        if checkpoint.config["model_type"] not in BUILT_IN_REMOTE:
            raise
        # Such checkpoints have the config and the names of tensors of their own code, which transformers may not read.
        return Unverified(f"transformers cannot read {checkpoint.name} without the code of the checkpoint")
    return TorchSession(model.to(device or "cpu"), checkpoint, device)


def _load(transformers: Any, checkpoint: Checkpoint) -> Any:
    import torch

    kind, folder = checkpoint.config["model_type"], str(checkpoint.folder)
    if checkpoint.heads.score is not None:
        cls = transformers.AutoModelForSequenceClassification
    elif isinstance(checkpoint.heads.sparse, SparseVocabulary):
        cls = transformers.AutoModelForMaskedLM
    else:
        cls = {"t5": transformers.T5EncoderModel, "mt5": transformers.MT5EncoderModel}.get(kind, transformers.AutoModel)
    before, had_bar = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model, info = cls.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False, local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelError(f"transformers cannot load {folder}: {error!s:.300}") from error
    finally:
        transformers.logging.set_verbosity(before)
        if had_bar:
            transformers.logging.enable_progress_bar()
    missing = [name for name in info["missing_keys"] if not any(part in name for part in _UNUSED)]
    if missing:
        raise ModelError(
            f"{folder} has no weights for {len(missing)} tensors of the model, such as {sorted(missing)[0]!r}"
        )
    return model.eval()


def _heads(
    states: Floats, ids: NDArray[np.int64], mask: NDArray[np.int64], checkpoint: Checkpoint
) -> dict[str, Floats]:
    heads, values = checkpoint.heads, {}
    if heads.dense is not None:
        values["dense"] = _dense(states, ids, mask, heads.dense)
    if isinstance(heads.sparse, SparseTokens):
        values["sparse"] = _token_weights(states, ids, mask, heads.sparse)
    if heads.multi is not None:
        rows = _layers(states, heads.multi.layers)
        values["multi"] = _unit(rows[..., : heads.multi.dim] if heads.multi.dim else rows)
        if heads.mixture is not None:
            values["fixed"] = _fixed(rows, mask, heads.mixture)
    return values


def _dense(states: Floats, ids: NDArray[np.int64], mask: NDArray[np.int64], head: DenseHead) -> Floats:
    value = np.concatenate([_pool(states, ids, mask, pooling) for pooling in head.poolings], axis=1)
    value = _layers(value, head.layers)[:, : head.dim]
    return _unit(value) if head.normalize else value


def _pool(states: Floats, ids: NDArray[np.int64], mask: NDArray[np.int64], pooling: str) -> Floats:
    rows = []
    for text, text_ids, attended in zip(states, ids, mask.astype(np.bool_), strict=True):
        tokens = text[attended]
        if pooling == "mcls":
            tokens = tokens[text_ids[attended] == text_ids[0]]
        if not len(tokens):
            rows.append(np.zeros(states.shape[-1], np.float32))
        elif pooling in ("mean", "mcls"):
            rows.append(tokens.mean(axis=0))
        elif pooling == "weightedmean":
            rows.append(np.average(tokens, axis=0, weights=np.arange(1, len(tokens) + 1)))
        elif pooling == "mean_sqrt_len_tokens":
            rows.append(tokens.sum(axis=0) / np.sqrt(len(tokens)))
        else:
            rows.append({"cls": tokens[0], "lasttoken": tokens[-1], "max": tokens.max(axis=0)}[pooling])
    return np.stack(rows).astype(np.float32)


def _layers(value: Floats, layers: Sequence[Layer]) -> Floats:
    for layer in layers:
        if not isinstance(layer, DenseLayer):
            raise ModelError("a norm in a head cannot be compared with the source model")
        result = _activate(_linear(value, layer.linear), layer.activation)
        if layer.residual is not None:
            result = result + _linear(value, layer.residual)
        value = result + value if layer.adds_input else result
    return value


def _linear(value: Floats, linear: Linear) -> Floats:
    product: Floats = value @ linear.weight
    return product if linear.bias is None else product + linear.bias


def _activate(value: Floats, name: str) -> Floats:
    if not name:
        return value
    import torch

    functions = {
        "tanh": torch.tanh,
        "relu": torch.relu,
        "gelu": torch.nn.functional.gelu,
        "sigmoid": torch.sigmoid,
        "silu": torch.nn.functional.silu,
    }
    activated: Floats = functions[name](torch.from_numpy(np.ascontiguousarray(value))).numpy()
    return activated


def _token_weights(states: Floats, ids: NDArray[np.int64], mask: NDArray[np.int64], head: SparseTokens) -> Floats:
    weights = np.maximum(_linear(states, head.linear)[..., 0], 0)
    return np.where(head.is_kept[ids] & (mask > 0), weights, 0).astype(np.float32)


def _splade(logits: Floats, mask: NDArray[np.int64], head: SparseVocabulary) -> Floats:
    weights = np.log1p(np.maximum(logits * mask[..., None], 0))
    if head.activation == "log1p_log1p_relu":
        weights = np.log1p(weights)
    pooled: Floats = weights.max(axis=1) if head.pooling == "max" else weights.sum(axis=1)
    return pooled.astype(np.float32)


def _static_query(head: Any, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> Floats:
    weights: Floats = head.query_weights[ids] * mask
    return weights


def _fixed(rows: Floats, mask: NDArray[np.int64], mixture: MixerArrays) -> Floats:
    n_texts, _, dim = rows.shape
    padded = np.zeros((n_texts, mixture.n_positions, dim), np.float32)
    n_used = min(rows.shape[1], mixture.n_positions)
    padded[:, :n_used] = rows[:, :n_used] * mask[:, :n_used, None]
    if mixture.flat:
        mixed = padded.reshape(n_texts, -1) @ mixture.weight.T
        mixed = mixed if mixture.bias is None else mixed + mixture.bias
        return _unit(mixed.reshape(n_texts, mixture.n_vectors, dim))
    mixed = np.einsum("pv,npd->nvd", mixture.weight, padded)
    return _unit(mixed if mixture.bias is None else mixed + mixture.bias[:, None])


def _unit(rows: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(rows, axis=-1, keepdims=True)
    unit: Floats = (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit


@dataclass(frozen=True, slots=True)
class Agreement:
    """How alike two encoders rank: for one kind of embedding, the lowest and the mean cosine of vectors, and the share
    of each query's best ten documents that both find."""

    lowest_cosine: float
    mean_cosine: float
    top10: float


MIN_COSINE_FP32, MIN_TOP10_FP32 = 0.9999, 0.99
MIN_TOP10_INT8 = 0.5
N_DOCUMENTS, N_BEST = 100, 10
QUERIES = (
    "how to open a file and read its lines",
    "sort a list by a key",
    "parse a date from a string",
    "compress bytes",
    "run a function in another thread",
    "split text with a regular expression",
    "random choice without replacement",
    "download a page over HTTP",
    "copy a folder and all its files",
    "what does a context manager do at the end of a with statement",
    "JSON to Python objects",
    "round a decimal number to two places",
)


def verification_texts() -> tuple[list[str], list[str]]:
    """Queries, and docstrings of Python's standard library as documents: real text that every machine has."""
    from plait.readers.stdlib import stdlib_documents

    step = 7  # not only the first module
    chosen = itertools.islice(stdlib_documents(), 0, N_DOCUMENTS * step, step)
    return list(QUERIES), [f"{document.title}\n{document.text}"[:2000] for document in chosen]


def agreement(one: Encoder, other: Encoder) -> dict[str, Agreement]:
    """The agreement of two encoders for each kind of embedding."""
    queries, documents = verification_texts()
    pairs = [
        (one.encode_queries(queries), other.encode_queries(queries)),
        (one.encode_documents(documents), other.encode_documents(documents)),
    ]
    return {kind: _agreement(kind, pairs) for kind in pairs[0][0].present()}


def _agreement(kind: str, pairs: Sequence[tuple[Embeddings, Embeddings]]) -> Agreement:
    from plait.train.export.parity import cosines_of, exact_scores

    cosines = np.concatenate([cosines_of(first, second, kind) for first, second in pairs])
    (first_queries, second_queries), (first_documents, second_documents) = pairs
    best = [
        np.argsort(-exact_scores(queries, documents, kind), axis=1, kind="stable")[:, :N_BEST]
        for queries, documents in ((first_queries, first_documents), (second_queries, second_documents))
    ]
    shared = [len(set(left) & set(right)) / N_BEST for left, right in zip(*best, strict=True)]
    return Agreement(float(cosines.min(initial=1.0)), float(cosines.mean()), float(np.mean(shared)))


def check_agreement(precision: str, seen: Mapping[str, Agreement]) -> None:
    """ModelError if a precision agrees too little with the source model."""
    is_exact = precision == "fp32"
    for kind, one in seen.items():
        if is_exact and not one.lowest_cosine >= MIN_COSINE_FP32:
            raise ModelError(
                f"the lowest cosine of the {kind} vectors with those of the source model is {one.lowest_cosine:.6f}, "
                f"and {MIN_COSINE_FP32} is required; the model was not written. Please report the checkpoint"
            )
        required = MIN_TOP10_FP32 if is_exact else MIN_TOP10_INT8
        if not one.top10 >= required:
            raise ModelError(
                f"{precision} {kind} vectors find {one.top10:.2f} of the source model's best ten documents, and "
                f"{required} is required; the model was not written"
                + ("" if is_exact else ". Convert it with --precision fp32 or fp16")
            )


__all__ = ["Agreement", "GraphSession", "MlmHead", "TorchSession", "Unverified", "agreement", "source_session"]
