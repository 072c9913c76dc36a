"""A trained model to export: read from the folder of a run, and its weights as arrays for the graph."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn

from plait.errors import ConfigError, ModelError
from plait.graphs.adapter import AdapterArrays, AdapterLayerArrays
from plait.graphs.builder import DenseLayer, Norm, Weights
from plait.graphs.heads import DenseHead, Heads, MixerArrays, MultiHead, SparseTokens
from plait.graphs.weights import backbone_weights, n_positions_of
from plait.train import checkpoint
from plait.train.head_layers import array_of, layer_arrays, linear_arrays
from plait.train.model import AdapterLayer, Model, SparseHead, TokenAdapter
from plait.train.model import MultiHead as TorchMultiHead
from plait.train.model_config import N_ADAPTER_HEADS
from plait.train.recipe import Recipe, parse_recipe
from plait.train.run_folder import ABOUT, BEST, CURVES, FINAL, RECIPE, VERSIONS, read_curves


def backbone_arrays(model: Model) -> tuple[Weights, Mapping[str, Any]]:
    """The backbone's weights, matrices as (in, out), and its config. Tables that follow from the config are included:
    relative position biases, and rotary angles."""
    encoder = model.backbone.encoder
    config: Mapping[str, Any] = encoder.config.to_dict()
    tensors = {name: array_of(value) for name, value in encoder.state_dict().items()}
    length, n_positions = max_length(model), n_positions_of(config, tensors)
    return backbone_weights(config, tensors, length=min(length, n_positions or length)), config


def head_arrays(model: Model, n_ids: int) -> Heads:
    """The heads as arrays; `n_ids` is the size of the vocabulary."""
    config, sparse, mixture = model.config, None, None
    if model.sparse is not None:
        is_kept = np.ones(n_ids, np.bool_)
        is_kept[[number for number in model.sparse.zero_ids.tolist() if number < n_ids]] = False
        sparse = _sparse_arrays(model.sparse, is_kept)
    if model.mixer is not None:
        settings = model.mixer.config
        mixture = MixerArrays(
            array_of(model.mixer.weight),
            settings.n_vectors,
            model.mixer.n_positions,
            settings.mixer == "flat",
            settings.zero_pads,
            None if model.mixer.bias is None else array_of(model.mixer.bias),
            settings.mixes_rows,
        )
    return Heads(
        dense=_dense_arrays(model) if config.dense else None,
        sparse=sparse,
        multi=_multi_arrays(model.multi) if model.multi is not None else None,
        mixture=mixture,
        token_adapter=_adapter_arrays(model.token_adapter) if model.token_adapter is not None else None,
    )


def _dense_arrays(model: Model) -> DenseHead:
    config = model.config.dense
    assert config is not None
    layers = () if model.dense_layers is None else layer_arrays(model.dense_layers)
    return DenseHead(tuple(config.pooling.split("+")), layers, config.dim or None, config.normalize)


def _multi_arrays(head: TorchMultiHead) -> MultiHead:
    if isinstance(head.project, nn.Linear):
        return MultiHead((DenseLayer(linear_arrays(head.project)),))
    assert isinstance(head.project, nn.Sequential)
    layers = layer_arrays(head.project)
    last = layers[-1]
    size = last.linear.weight.shape[1] if isinstance(last, DenseLayer) else len(last.gain)
    return MultiHead(layers, head.dim if head.dim < size else None)


def _sparse_arrays(head: SparseHead, is_kept: NDArray[np.bool_]) -> SparseTokens:
    idf = None if head.idf is None or head.idf_gain is None else array_of(head.idf_gain * head.idf)
    up, down = (None if layer is None else linear_arrays(layer) for layer in (head.up, head.down))
    term_ids = None if head.term_ids is None else head.term_ids.cpu().numpy()
    return SparseTokens(linear_arrays(head.weigh), is_kept, idf, up, down, term_ids)


def _adapter_arrays(adapter: TokenAdapter) -> AdapterArrays:
    layers = tuple(_adapter_layer_arrays(layer) for layer in adapter.layers if isinstance(layer, AdapterLayer))
    return AdapterArrays(
        _norm(adapter.norm), linear_arrays(adapter.down), layers, linear_arrays(adapter.up), N_ADAPTER_HEADS
    )


def _adapter_layer_arrays(layer: AdapterLayer) -> AdapterLayerArrays:
    first, second = _norm(layer.first), _norm(layer.second)
    return AdapterLayerArrays(
        first,
        linear_arrays(layer.mixed),
        linear_arrays(layer.out),
        second,
        linear_arrays(layer.wide),
        linear_arrays(layer.narrow),
    )


def check_positions(model: Model) -> None:
    """ModelError if the model reads more tokens than its backbone has positions: long texts would fail."""
    encoder = model.backbone.encoder
    tensors = {name: array_of(value) for name, value in encoder.state_dict().items() if "position" in name}
    n_positions, length = n_positions_of(encoder.config.to_dict(), tensors), max_length(model)
    if n_positions is not None and length > n_positions:
        raise ModelError(f"the encoder has {n_positions} positions, and a text has {length} tokens; lower the length")


def max_length(model: Model) -> int:
    """The maximum number of tokens of a text."""
    expansion = model.config.query.expansion
    return max(model.config.query.length, model.config.document.length, expansion.length if expansion else 0)


def vocabulary_size(model: Model) -> int:
    """The number of token embeddings, which is the number of terms of sparse vectors."""
    return model.backbone.n_ids


def dense_dim(model: Model) -> int:
    """The number of dimensions of dense vectors."""
    config = model.config.dense
    assert config is not None
    n_pooled = model.backbone.hidden * len(config.pooling.split("+"))
    return config.dim or (config.layers[-1].dim if config.layers else n_pooled)


def weights_hash(model: Model) -> str:
    """A hash of all weights, the same for every precision of the graph."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)}".encode())
        digest.update(np.ascontiguousarray(array_of(value)).tobytes())
    zeros = model.config.sparse.zero_ids if model.config.sparse else ()
    digest.update(f"zero_ids {sorted(set(zeros))}".encode())
    return digest.hexdigest()


def _norm(module: nn.LayerNorm) -> Norm:
    return Norm(array_of(module.weight), array_of(module.bias), module.eps)


WEIGHTS = (BEST, FINAL)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A model, and the records of its run if it has one."""

    model: Model
    tokenizer: Tokenizer
    about: dict[str, Any] = field(default_factory=dict)  # the step, and the measure at that step
    recipe: Recipe | None = None
    versions: dict[str, str] = field(default_factory=dict)
    curves: list[dict[str, Any]] = field(default_factory=list)


def read_trained(run: Path, weights: str = "") -> Trained:
    """The model of a run: `weights` is best or final; by default best, or final if there is no best. `run` may also be
    the folder of a saved model. ModelError if there is none, or if it has no heads."""
    if weights and weights not in WEIGHTS:
        raise ConfigError(f"weights is {weights!r}; choose one of {', '.join(WEIGHTS)}")
    if not run.is_dir():
        raise ModelError(f"there is no folder {run}; give the folder of a run of plait train")
    if (run / checkpoint.MODEL_FILE).is_file():
        return Trained(*_load(run), about=_read_json(run / ABOUT))
    recipe = parse_recipe((run / RECIPE).read_text(encoding="utf-8"), name=RECIPE) if (run / RECIPE).is_file() else None
    present = [name for name in ([weights] if weights else WEIGHTS) if (run / name).is_dir()]
    if not present:
        wanted = weights or " or ".join(WEIGHTS)
        seen = ", ".join(sorted(entry.name for entry in run.iterdir())[:8]) or "nothing"
        raise ModelError(
            f"{run} has no trained model: no folder {wanted}, only {seen}; finish the training with plait train RECIPE "
            f"--to {run} --resume, then export"
        )
    folder = run / present[0]
    if not (folder / checkpoint.MODEL_FILE).is_file() and (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} is a backbone without heads, from RetroMAE; name it as the backbone of another recipe, train "
            f"heads on it, and export that run"
        )
    curves = read_curves(run / CURVES) if (run / CURVES).is_file() else []
    return Trained(*_load(folder), _read_json(folder / ABOUT), recipe, _read_json(run / VERSIONS), curves)


def _load(folder: Path) -> tuple[Model, Tokenizer]:
    model, tokenizer = checkpoint.load(folder)
    n_ids, highest = vocabulary_size(model), max(tokenizer.get_vocab().values())
    if highest >= n_ids:
        raise ModelError(
            f"{folder}: the tokenizer has ids up to {highest}, and the backbone has {n_ids} embeddings; train with the "
            f"tokenizer of the backbone"
        )
    return model.eval(), tokenizer


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    return dict(content) if isinstance(content, dict) else {}
