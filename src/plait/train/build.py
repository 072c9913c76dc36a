"""From a recipe to what is trained: the sections model and objective are read whole before anything is loaded, and then
a backbone, heads, a tokeniser and a loss are put together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from plait.encode.load import choose_precision, find_model, known_models, model_file
from plait.encode.model_card import read_card
from plait.errors import ConfigError
from plait.train import checkpoint
from plait.train.backbone import Backbone, load_backbone, make_backbone
from plait.train.checkpoint import DESCRIPTION, load
from plait.train.cross.config import is_cross, read_cross_plan
from plait.train.devices import process
from plait.train.frozen_layers import DTYPES, CachedModel, GraphStates, StateCache
from plait.train.idf import rarity, terms_of_forms
from plait.train.loop import Parts
from plait.train.loss import RetroMaeConfig, make_objective, read_objective
from plait.train.model import Model, SparseHead
from plait.train.model_config import ModelConfig
from plait.train.optimiser import OptimiserConfig, parameter_groups
from plait.train.recipe import Place, Recipe, read_section
from plait.train.retromae import MaskedBatch, MaskingConfig, RetroMae, load_masked_lm, mask_batch, read_words
from plait.train.tensors import Loss
from plait.train.tokenization import TOKENIZER_NAME, Texts, load_tokenizer, with_markers

PROJECTION, SHIFT = "projection", "shift"  # as plait's graphs name them


def start_from(model: Model, source: str | Path) -> None:
    """Gives the model the weights that training saved, `final` or `best` of a run; or its multi head the projection of
    a model folder or a bundled model. ConfigError if they do not fit."""
    if (Path(source) / DESCRIPTION).is_file():
        _go_on_from(model, Path(source))
    else:
        _take_projection(model, source)


def _go_on_from(model: Model, folder: Path) -> None:
    trained, _ = load(folder)
    try:
        model.load_state_dict(trained.state_dict())
    except RuntimeError as error:
        raise ConfigError(f"start is {str(folder)!r}, a model of another make: {error}") from None


def _take_projection(model: Model, source: str | Path) -> None:
    import onnx

    folder = find_model(source)
    card = read_card(folder)
    path = model_file(folder, choose_precision(card.precisions, card.name, folder, None))
    found: dict[str, Any] = {
        own.name: onnx.numpy_helper.to_array(own)
        for own in onnx.load(str(path)).graph.initializer
        if own.name in (PROJECTION, SHIFT)
    }
    weight = found.get(PROJECTION)
    if weight is None or model.multi is None or weight.T.shape != model.multi.project.weight.shape:
        seen = "none" if weight is None else f"one of {weight.shape}"
        wanted = "no multi head" if model.multi is None else f"{tuple(model.multi.project.weight.T.shape)}"
        raise ConfigError(f"start is {str(source)!r}, whose projection is {seen}; the model has {wanted}")
    with torch.no_grad():
        model.multi.project.weight.copy_(torch.from_numpy(weight.T.copy()))
        if model.multi.project.bias is not None:
            shift = found.get(SHIFT)
            model.multi.project.bias.copy_(torch.zeros(len(weight.T)) if shift is None else torch.from_numpy(shift))


CACHE = "states"  # of frozen layers, in the folder of a run
_OWN = ("tokenizer", "dropout", "freeze", "cache", "graph", "rarity", "rarity_limit", "start")
_READINGS: dict[str, dict[str, Any]] = {
    "query": {"length": 32, "prefix": "", "expansion": None},
    "document": {"length": 180, "prefix": "", "overlap": 32},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginningConfig:
    """Keys of the section model that are of training alone."""

    tokenizer: str = ""  # a folder, a bundled model or a hub name; by default that of the backbone
    dropout: float = -1.0  # of the backbone while it learns; below 0 leaves it as its makers had it
    freeze: int = 0  # lower layers that are not trained, embeddings with them; 0 trains all
    cache: str = ""  # float16 or float32: keep the states of frozen layers on disk; empty: compute them each time
    start: str = ""  # a trained model to go on from; or a model folder whose projection the multi head begins with
    rarity: tuple[str, ...] = ()  # BEIR folders whose documents say how rare an id is, for a sparse head with a prior
    rarity_limit: int = 0  # documents of each; 0 is all
    graph: str = ""  # a model folder, or a bundled model, whose graph gives the states where all layers are frozen

    def __post_init__(self) -> None:
        if self.cache and self.cache not in DTYPES:
            raise ConfigError(f"cache is {self.cache!r}; choose one of {', '.join(DTYPES)}, or leave it out")
        if self.cache and self.freeze < 1:
            raise ConfigError(f"cache is {self.cache!r}, but freeze is {self.freeze}; only frozen layers can be kept")
        if self.graph and not self.cache:
            raise ConfigError(f"graph is {self.graph!r}, but its states are not kept; set cache to float16 or float32")
        if self.dropout >= 1:
            raise ConfigError(f"dropout is {self.dropout}; it is the share of values that are left out, below 1")
        if self.freeze < 0:
            raise ConfigError(f"freeze is {self.freeze}; it must be 0 or more")


@dataclass(frozen=True, slots=True)
class Plan:
    """The two sections, checked."""

    model: ModelConfig
    beginning: BeginningConfig
    random: Mapping[str, Any]  # of a transformers config, for a backbone with random weights
    objective: Any


def check_plan(recipe: Recipe) -> None:
    """Checks the sections model and objective of a recipe of any kind. Loads nothing."""
    if is_cross(recipe):
        read_cross_plan(recipe)
    else:
        read_plan(recipe)


def read_plan(recipe: Recipe) -> Plan:
    """Checks the sections model and objective; ConfigError says what is wrong with them. Loads nothing."""
    place, values = recipe.place("model"), dict(recipe.model)
    random = values.pop("random", {})
    if not isinstance(random, Mapping) or (random and "model_type" not in random):
        raise ConfigError(f"{place.of('random')}: random must be a table with model_type, as transformers has it")
    own = {key: values.pop(key) for key in _OWN if key in values}
    beginning = read_section(BeginningConfig, own, place)
    for side, defaults in _READINGS.items():
        values[side] = defaults | dict(values.get(side, {}))
    objective = read_objective(recipe.objective, recipe.place("objective"))
    if isinstance(objective, RetroMaeConfig):
        values.setdefault("dense", {"pooling": "cls"})  # the vector that RetroMAE makes
    if beginning.dropout >= 0 and (random or isinstance(objective, RetroMaeConfig)):
        raise ConfigError(
            f"{place.of('dropout')}: dropout is set for a backbone that is loaded and given heads; for one at random "
            "it stands in [model.random], and RetroMAE keeps its makers'"
        )
    model = ModelConfig.from_json(values, _where(place))
    if bool(beginning.rarity) != (model.sparse is not None and model.sparse.prior):
        raise ConfigError(
            f"{place.of('rarity')}: rarity names {len(beginning.rarity)} corpora, and the sparse head has "
            f"prior = {str(model.sparse is not None and model.sparse.prior).lower()}; give both, or neither"
        )
    _check_strand(objective, model, recipe.place("objective"))
    return Plan(model, beginning, random, objective)


def _where(place: Place) -> str:
    return f"{place.file}, line {place.line}, [model]" if place.line else f"{place.file}, [model]"


def _check_strand(objective: Any, model: ModelConfig, place: Place) -> None:
    kind = getattr(objective, "kind", None) or ("multi" if "Xtr" in type(objective).__name__ else None)
    if kind is not None and getattr(model, kind) is None:
        raise ConfigError(
            f"{place.of('kind')}: the objective trains the {kind} strand, and the model has no such head; add "
            f"[model.{kind}]"
        )


def build(recipe: Recipe, folder: Path) -> Parts:
    """What the recipe trains; `folder` is that of the run."""
    if is_cross(recipe):
        from plait.train.cross.build import build_cross

        return build_cross(recipe)
    plan = read_plan(recipe)
    tokenizer = _tokenizer(plan)
    if isinstance(plan.objective, RetroMaeConfig):
        return _pretraining(plan, plan.objective, tokenizer, seed=recipe.run.seed)
    config = _without_special(plan.model, recipe, tokenizer)
    backbone = _random_backbone(plan, tokenizer) if plan.random else _loaded(plan)
    model, texts = Model(config, backbone), Texts(tokenizer, config)
    if plan.beginning.freeze:
        backbone.freeze(layers=plan.beginning.freeze)
    if plan.beginning.start:
        start_from(model, plan.beginning.start)
    if model.sparse is not None:
        _give(model.sparse, tokenizer, texts, plan)
    return Parts(
        model,
        texts,
        groups=lambda optimiser: _groups(model, optimiser),
        save=lambda to: checkpoint.save(model, tokenizer, to),
        objective=make_objective(plan.objective),
        encode=_cached(model, plan, folder / CACHE) if plan.beginning.cache else None,
    )


def _give(head: SparseHead, tokenizer: Tokenizer, texts: Texts, plan: Plan) -> None:
    """What the sparse head does not learn: which words are forms of one, and how rare each is."""
    forms = None
    if head.forms is not None and plan.model.sparse is not None:
        forms = terms_of_forms(tokenizer.get_vocab(), len(head.forms), plan.model.sparse.forms)
        head.forms.copy_(torch.from_numpy(forms))
    if head.rarity is not None:
        limit = plan.beginning.rarity_limit
        counted = rarity(plan.beginning.rarity, texts, len(head.rarity), limit=limit, forms=forms)
        head.rarity.copy_(torch.from_numpy(counted))


def _tokenizer(plan: Plan) -> Tokenizer:
    name = plan.beginning.tokenizer or plan.model.backbone
    found = load_tokenizer(find_model(name) if name in known_models() else name)
    prefixes = {plan.model.query.prefix.strip(), plan.model.document.prefix.strip()}
    # A prefix that is a token of the vocabulary, such as [unused0], is to be read as that token.
    return with_markers(
        found, [prefix for prefix in sorted(prefixes) if prefix and found.token_to_id(prefix) is not None]
    )


def _without_special(config: ModelConfig, recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    """The config with special tokens among those that weigh nothing, unless the recipe says which do."""
    if config.sparse is None or "zero_ids" in recipe.model.get("sparse", {}):
        return config
    raw = config.to_json()
    raw["sparse"]["zero_ids"] = Texts(tokenizer, config).special_ids
    return ModelConfig.from_json(raw)


def _loaded(plan: Plan) -> Backbone:
    dropout = plan.beginning.dropout
    return load_backbone(plan.model.backbone, dropout=None if dropout < 0 else dropout)


def _random_backbone(plan: Plan, tokenizer: Tokenizer) -> Backbone:
    return make_backbone(_random_config(plan, tokenizer))


def _random_config(plan: Plan, tokenizer: Tokenizer) -> Any:
    from transformers import AutoConfig

    settings = {"vocab_size": tokenizer.get_vocab_size(), **plan.random}
    try:
        return AutoConfig.for_model(**settings)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"[model] random is not a config of transformers: {error}") from None


def _groups(model: Any, optimiser: OptimiserConfig) -> list[dict[str, Any]]:
    return parameter_groups(
        model,
        optimiser.lr,
        layer_decay=optimiser.layer_decay,
        head_lr=optimiser.head_lr or None,
        weight_decay=optimiser.weight_decay,
    )


def _cached(model: Model, plan: Plan, folder: Path) -> nn.Module:
    """The model with its frozen layers on disk, under the name of their weights; each process keeps its own."""
    graph, freeze = _graph(model, plan.beginning), plan.beginning.freeze
    cache = StateCache(
        folder / str(process()),
        fingerprint=_frozen_hash(model, freeze) if graph is None else graph.fingerprint,
        hidden=model.backbone.hidden,
        dtype=plan.beginning.cache,
    )
    return CachedModel(model, cache, layers=freeze, graph=graph)


def _graph(model: Model, beginning: BeginningConfig) -> GraphStates | None:
    if not beginning.graph:
        return None
    if beginning.freeze != model.backbone.n_layers:
        raise ConfigError(
            f"graph is {beginning.graph!r}, which gives last states, but freeze is {beginning.freeze} of "
            f"{model.backbone.n_layers} layers; freeze all of them, or leave graph out"
        )
    return GraphStates(beginning.graph, hidden=model.backbone.hidden)


def _frozen_hash(model: Model, freeze: int) -> str:
    found = hashlib.sha256(str(freeze).encode())
    for parameter in model.backbone.parameters():
        if not parameter.requires_grad:
            found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def _pretraining(plan: Plan, config: RetroMaeConfig, tokenizer: Tokenizer, *, seed: int) -> Parts:
    """RetroMAE. What is kept is the backbone, as a folder that later recipes name as theirs."""
    mask_id = tokenizer.token_to_id("[MASK]") or tokenizer.token_to_id("<mask>")
    if mask_id is None:
        raise ConfigError("RetroMAE hides words behind a mask token, and the tokeniser has neither [MASK] nor <mask>")
    if plan.random:
        from transformers import AutoModelForMaskedLM

        pretraining = RetroMae(AutoModelForMaskedLM.from_config(_random_config(plan, tokenizer)))
    else:
        pretraining = RetroMae(load_masked_lm(plan.model.backbone))
    masking = MaskingConfig(
        encoder_rate=config.encoder_rate,
        decoder_rate=config.decoder_rate,
        mask_id=mask_id,
        n_ids=tokenizer.get_vocab_size(),
    )

    def loss(texts: Sequence[str], step: int) -> Loss:
        rng = np.random.default_rng([seed, step, process()])
        words = read_words(tokenizer, texts, length=plan.model.document.length)
        found: Loss = pretraining(_moved(mask_batch(words, masking, rng), next(pretraining.parameters()).device))
        return found

    def save(folder: Path) -> None:
        pretraining.backbone.encoder.save_pretrained(str(folder))
        tokenizer.save(str(folder / TOKENIZER_NAME))

    return Parts(
        pretraining,
        Texts(tokenizer, plan.model),
        groups=lambda optimiser: _groups(pretraining, optimiser),
        save=save,
        pretraining=loss,
        encode=Model(plan.model, pretraining.backbone),
    )


def _moved(batch: MaskedBatch, device: torch.device) -> MaskedBatch:
    return MaskedBatch(**{own.name: getattr(batch, own.name).to(device) for own in fields(batch)})
