"""A model's weights as arrays: what the graph is written from, and what the fingerprint names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from plait.errors import ConfigError, ModelError
from plait.train import checkpoint
from plait.train.backbone import family_of
from plait.train.export.backbones import RELATIVE, TURNS
from plait.train.export.builder import Floats, Linear, Norm, Weights
from plait.train.export.graph import Heads, Late, LateLayer, Mixture, SparseMap
from plait.train.model import LateLayers, Layer, Model, SparseHead
from plait.train.model_config import N_SMALL_HEADS
from plait.train.recipe import Recipe, parse_recipe
from plait.train.run_folder import ABOUT, BEST, CURVES, FINAL, RECIPE, VERSIONS, read_curves


def backbone_of(model: Model) -> tuple[Weights, Mapping[str, Any]]:
    """The backbone's weights, matrices as (in, out), and its config. Tables that follow from the config are among the
    weights: relative positions by distance, turned positions by angle."""
    encoder = model.backbone.encoder
    weights: Weights = {name: _array(value) for name, value in encoder.state_dict().items()}
    for name, module in encoder.named_modules():
        if isinstance(module, nn.Linear):
            weights[f"{name}.weight"] = np.ascontiguousarray(weights[f"{name}.weight"].T)
    config: Mapping[str, Any] = encoder.config.to_dict()
    return weights | _tables(encoder, config["model_type"], longest(model)), config


def heads_of(model: Model, n_ids: int) -> Heads:
    """The heads as arrays; `n_ids` is the size of the vocabulary."""
    config, sparse, mixture = model.config, None, None
    if model.sparse is not None:
        kept = np.ones(n_ids, np.bool_)
        kept[[number for number in model.sparse.zero_ids.tolist() if number < n_ids]] = False
        sparse = _sparse_map(model.sparse, kept)
    if model.mixer is not None:
        own = model.mixer.config
        mixture = Mixture(
            _array(model.mixer.weight), own.n_vectors, model.mixer.n_positions, own.mixer == "flat", own.zero_pads
        )
    return Heads(
        pooling=config.dense.pooling if config.dense else None,
        sparse=sparse,
        multi=_linear(model.multi.project) if model.multi is not None else None,
        mixture=mixture,
        late=_late(model.late) if model.late is not None else None,
    )


def _sparse_map(head: SparseHead, kept: NDArray[np.bool_]) -> SparseMap:
    prior = None if head.rarity is None or head.gain is None else _array(head.gain * head.rarity)
    up, down = (None if own is None else _linear(own) for own in (head.up, head.down))
    forms = None if head.forms is None else head.forms.cpu().numpy()
    return SparseMap(_linear(head.weigh), kept, prior, up, down, forms)


def _late(layers: LateLayers) -> Late:
    each = tuple(_late_layer(layer) for layer in layers.layers if isinstance(layer, Layer))
    return Late(_norm(layers.norm), _linear(layers.down), each, _linear(layers.up), N_SMALL_HEADS)


def _late_layer(layer: Layer) -> LateLayer:
    first, second = _norm(layer.first), _norm(layer.second)
    return LateLayer(
        first, _linear(layer.mixed), _linear(layer.out), second, _linear(layer.wide), _linear(layer.narrow)
    )


def check_positions(model: Model) -> None:
    """ModelError if the model reads more tokens than its backbone has positions for: a long text would then fail."""
    encoder = model.backbone.encoder
    if (positions := family_of(encoder).positions) is not None:
        positions(encoder, longest(model))


def longest(model: Model) -> int:
    """The most tokens that any text of the model has."""
    expansion = model.config.query.expansion
    return max(model.config.query.length, model.config.document.length, expansion.length if expansion else 0)


def n_ids_of(model: Model) -> int:
    """How many ids the backbone has a vector for: the size of the sparse strand's vocabulary."""
    return model.backbone.n_ids


def weights_hash(model: Model) -> str:
    """One hash for all the weights, whatever they are later rounded to."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)}".encode())
        digest.update(np.ascontiguousarray(_array(value)).tobytes())
    zeros = model.config.sparse.zero_ids if model.config.sparse else ()
    digest.update(f"zero_ids {sorted(set(zeros))}".encode())
    return digest.hexdigest()


def _tables(encoder: Any, kind: str, n_positions: int) -> Weights:
    with torch.no_grad():
        if kind in ("t5", "mt5"):
            attention = encoder.encoder.block[0].layer[0].SelfAttention
            words = _array(encoder.get_input_embeddings().weight)
            return {"words": words, RELATIVE: _by_distance(attention.compute_bias(n_positions, n_positions))}
        if kind == "mpnet":
            states = torch.zeros(1, n_positions, 1)
            return {RELATIVE: _by_distance(encoder.encoder.compute_position_bias(states))}
        if kind == "modernbert":
            found: Weights = {}
            places = torch.arange(n_positions).unsqueeze(0)
            for layers in sorted(set(encoder.config.layer_types)):
                for part, values in zip(
                    ("cos", "sin"), encoder.rotary_emb(torch.zeros(1), places, layers), strict=True
                ):
                    found[f"{TURNS}.{layers}.{part}"] = _array(values[0])
            return found
    return {}


def _by_distance(bias: Tensor) -> Floats:
    """(1, heads, length, length), which depends on key less query position alone, to (heads, 2 * length - 1)."""
    return _array(torch.cat([bias[0, :, 1:, 0].flip(-1), bias[0, :, 0]], dim=-1))


def _linear(module: nn.Linear) -> Linear:
    bias: Tensor | None = module.bias
    return Linear(np.ascontiguousarray(_array(module.weight).T), None if bias is None else _array(bias))


def _norm(module: nn.LayerNorm) -> Norm:
    return Norm(_array(module.weight), _array(module.bias), module.eps)


def _array(value: Tensor) -> Floats:
    return value.detach().float().cpu().numpy()


WHICH = (BEST, FINAL)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A model with what its run says of it; without a run, only the model."""

    model: Model
    tokenizer: Tokenizer
    about: dict[str, Any] = field(default_factory=dict)  # step, and what was measured at it
    recipe: Recipe | None = None
    versions: dict[str, str] = field(default_factory=dict)
    curves: list[dict[str, Any]] = field(default_factory=list)


def read_trained(run: Path, which: str = "") -> Trained:
    """The model of a run: the best one, or the last where none was measured, or the one asked for. `run` may also be
    the folder of a model that training saved. ModelError if there is none, or if it has no heads."""
    if which and which not in WHICH:
        raise ConfigError(f"there are no weights {which!r}; choose one of {', '.join(WHICH)}")
    if not run.is_dir():
        raise ModelError(f"there is no run {run}; give the folder that plait train wrote")
    if (run / checkpoint.DESCRIPTION).is_file():
        return Trained(*_loaded(run), about=_json(run / ABOUT))
    recipe = parse_recipe((run / RECIPE).read_text(encoding="utf-8"), name=RECIPE) if (run / RECIPE).is_file() else None
    found = [name for name in ([which] if which else WHICH) if (run / name).is_dir()]
    if not found:
        wanted = which or " or ".join(WHICH)
        there = ", ".join(sorted(entry.name for entry in run.iterdir())[:8]) or "nothing"
        raise ModelError(
            f"{run} holds no trained model: there is no folder {wanted} in it, only {there}; train it to its end "
            f"(plait train RECIPE --to {run} --resume), then export"
        )
    folder = run / found[0]
    if not (folder / checkpoint.DESCRIPTION).is_file() and (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} is a backbone without heads, as RetroMAE leaves it, and gives no strands; name it as the "
            f"backbone of another recipe, train heads on it, and export that run"
        )
    curves = read_curves(run / CURVES) if (run / CURVES).is_file() else []
    return Trained(*_loaded(folder), _json(folder / ABOUT), recipe, _json(run / VERSIONS), curves)


def _loaded(folder: Path) -> tuple[Model, Tokenizer]:
    model, tokenizer = checkpoint.load(folder)
    n_ids, highest = n_ids_of(model), max(tokenizer.get_vocab().values())
    if highest >= n_ids:
        raise ModelError(
            f"{folder}: the tokeniser has ids up to {highest}, and the backbone has vectors for {n_ids}; train with "
            f"the tokeniser of the backbone"
        )
    return model.eval(), tokenizer


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    return dict(found) if isinstance(found, dict) else {}
