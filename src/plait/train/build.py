"""From a recipe to what a run trains: a model, its tokenizer and its loss. The sections `model` and `loss` are checked
in full before anything is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from plait.encode.load import choose_precision, find_model
from plait.encode.model_card import read_card
from plait.encode.model_files import model_file
from plait.errors import ConfigError
from plait.graphs.builder import Linear
from plait.train import checkpoint
from plait.train.backbone import Backbone, load_backbone, make_backbone, random_config
from plait.train.cross.config import is_cross, read_cross_plan
from plait.train.devices import process
from plait.train.evaluation import check_modes
from plait.train.frozen_layers import DTYPES, CachedModel, GraphStates, StateCache
from plait.train.head_layers import copy_linear
from plait.train.idf import inverse_document_frequencies, stemmed_terms
from plait.train.loop import Trainable
from plait.train.loss import RetroMaeConfig, XtrConfig, make_loss, read_loss
from plait.train.model import Model, SparseHead
from plait.train.model_config import ModelConfig
from plait.train.optimiser import parameter_groups
from plait.train.principal import fit_multi_head
from plait.train.recipe import Recipe, SectionLocation, read_section
from plait.train.retromae import MaskedBatch, MaskingConfig, RetroMae, load_masked_lm, mask_batch, read_words
from plait.train.search_modes import default_mode
from plait.train.start import Origin, StartingModel, copy_heads, encoder_values, start_backbone, start_tokenizer
from plait.train.tensors import Loss
from plait.train.tokenization import TOKENIZER_NAME, TextTokenizer, open_tokenizer, with_markers

FROZEN_STATES = "frozen-states"  # the folder of cached states inside that of a run
PROJECTION, SHIFT = "projection", "shift"  # names of the multi head's weight and bias in plait's graphs
_INPUT_DEFAULTS: dict[str, dict[str, Any]] = {
    "query": {"length": 32, "prefix": "", "expansion": None},
    "document": {"length": 180, "prefix": "", "overlap": 32},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InitConfig:
    """Keys of the section `model` that matter in training only."""

    start: str = ""  # a checkpoint of another library, whose backbone, heads, tokenizer and settings are taken over
    tokenizer: str = ""  # a folder, a bundled model or a hub name; default: the backbone's
    dropout: float = -1.0  # of the backbone in training; below 0 keeps the backbone's own
    freeze: int = 0  # the number of lower layers that are not trained; embeddings are frozen with them. 0 trains all
    cache: str = ""  # float16 or float32: cache the states of frozen layers on disk; empty: compute them each time
    init_from: str = ""  # a trained model to continue from, or a model folder to copy the multi head's projection from
    # BEIR folders: the multi head's projection begins as the principal directions of their token states
    projection_corpora: tuple[str, ...] = ()
    projection_limit: int = 500  # documents of each of these corpora; 0: all
    idf_corpora: tuple[str, ...] = ()  # BEIR folders to count document frequencies in, for a sparse head with idf
    idf_limit: int = 0  # documents to count in each corpus; 0: all
    graph: str = ""  # a model folder or bundled model whose ONNX graph computes the states if all layers are frozen

    def __post_init__(self) -> None:
        if self.cache and self.cache not in DTYPES:
            raise ConfigError(f"cache is {self.cache!r}; choose one of {', '.join(DTYPES)}, or leave it out")
        if self.cache and self.freeze < 1:
            raise ConfigError(f"cache is {self.cache!r}, but freeze is {self.freeze}; only frozen layers can be cached")
        if self.graph and not self.cache:
            raise ConfigError(
                f"graph is {self.graph!r}, but its states are not cached; set cache to float16 or float32"
            )
        if self.dropout >= 1:
            raise ConfigError(f"dropout is {self.dropout}; it is the share of values that are dropped, below 1")
        if self.projection_corpora and self.init_from:
            raise ConfigError("projection_corpora and init_from both give the projection of the multi head; set one")
        if self.freeze < 0:
            raise ConfigError(f"freeze is {self.freeze}; it must be 0 or more")


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """The sections `model` and `loss` of an encoder, checked."""

    model: ModelConfig
    init: InitConfig
    random: Mapping[str, Any]  # a transformers config, for a backbone with random weights
    loss: Any
    start: StartingModel | None = None
    origin: Origin | None = None  # what was taken over from `start`


def start_of(recipe: Recipe) -> str:
    """The checkpoint that a recipe starts from; empty if there is none."""
    return str(recipe.model.get("start", ""))


def check_plan(recipe: Recipe, start: StartingModel | None = None) -> Origin | None:
    """Checks the sections `model` and `loss` of any recipe. Loads nothing. If the recipe starts from a checkpoint, all
    is known only with the checkpoint; then what is taken over from it is returned."""
    if is_cross(recipe):
        return read_cross_plan(recipe, start).origin
    return read_plan(recipe, start).origin


def read_plan(recipe: Recipe, start: StartingModel | None = None) -> EncoderPlan:
    """The sections `model` and `loss` of an encoder; ConfigError says what is wrong with them. Loads nothing."""
    location, values = recipe.location("model"), dict(recipe.model)
    random = values.pop("random", {})
    if not isinstance(random, Mapping) or (random and "model_type" not in random):
        raise ConfigError(
            f"{location.where('random')}: random must be a table with model_type and other keys of a transformers "
            f"config; got {random!r:.40}"
        )
    init_keys = [entry.name for entry in fields(InitConfig)]
    init = read_section(InitConfig, {key: values.pop(key) for key in init_keys if key in values}, location)
    origin = None
    if init.start:
        check_start_keys(values, asdict(init) | {"random": random}, location)
    if init.start and start is not None:
        values, origin = encoder_values(start, values)
    else:
        for side, defaults in _INPUT_DEFAULTS.items():
            values[side] = defaults | dict(values.get(side, {}))
    if init.start and start is None:  # what the checkpoint has is not known yet
        values["backbone"] = init.start
        if not any(kind in values for kind in ("dense", "sparse", "multi")):
            values["dense"] = {}
    loss = read_loss(recipe.loss, recipe.location("loss"))
    if isinstance(loss, RetroMaeConfig) and init.start:
        raise ConfigError(
            f"{location.where('start')}: RetroMAE trains a backbone without heads; set backbone instead of start"
        )
    if isinstance(loss, RetroMaeConfig):
        values.setdefault("dense", {"pooling": "cls"})  # RetroMAE trains the first position's vector
    if init.dropout >= 0 and (random or isinstance(loss, RetroMaeConfig)):
        raise ConfigError(
            f"{location.where('dropout')}: dropout is for a backbone that is loaded and given heads; for a random "
            "backbone set it in [model.random], and with RetroMAE leave it out"
        )
    model = ModelConfig.from_json(values, _where(location))
    uses_idf = model.sparse is not None and model.sparse.idf
    if bool(init.idf_corpora) != uses_idf:
        raise ConfigError(
            f"{location.where('idf_corpora')}: idf_corpora names {len(init.idf_corpora)} corpora, and the sparse head "
            f"has idf = {str(uses_idf).lower()}; set both, or neither"
        )
    if start is not None or not init.start:
        _check_kind(loss, model, recipe.location("loss"))
        check_modes(recipe, model.heads)
    return EncoderPlan(model, init, random, loss, start, origin)


def check_start_keys(values: Mapping[str, Any], init: Mapping[str, Any], location: SectionLocation) -> None:
    """ConfigError for keys that contradict `start`, which gives the backbone and the tokenizer."""
    for key in ("backbone", "random", "tokenizer", "init_from", "projection_corpora"):
        if values.get(key) or init.get(key):
            raise ConfigError(
                f"{location.where(key)}: {key} and start are both set; start takes over the backbone, the heads and "
                f"the tokenizer of a checkpoint. Leave {key} out, or leave start out to begin with new heads"
            )


def _where(location: SectionLocation) -> str:
    return f"{location.file}, line {location.line}, [model]" if location.line else f"{location.file}, [model]"


def search_mode(plan: EncoderPlan) -> str:
    """How the model is searched in evaluation if the recipe names no mode."""
    if isinstance(plan.loss, RetroMaeConfig):
        return default_mode(plan.model.heads, trained="dense")
    kind = getattr(plan.loss, "kind", None)
    return default_mode(plan.model.heads, trained=kind, imputed=isinstance(plan.loss, XtrConfig))


def _check_kind(loss: Any, model: ModelConfig, location: SectionLocation) -> None:
    kind = getattr(loss, "kind", None) or ("multi" if "Xtr" in type(loss).__name__ else None)
    if kind is not None and getattr(model, kind) is None:
        raise ConfigError(
            f"{location.where('kind')}: the loss trains the {kind} head, and the model has none; add [model.{kind}]"
        )


def build(recipe: Recipe, folder: Path, start: StartingModel | None = None) -> Trainable:
    """What the recipe trains; `folder` is that of the run. `start` is the checkpoint that the recipe starts from, which
    `plait.convert.start.read_start` reads."""
    if start_of(recipe) and start is None:
        raise ConfigError(
            f"the recipe starts from {start_of(recipe)!r}, which was not read; train with plait train, or pass "
            f"plait.convert.start.read_start({start_of(recipe)!r}) as start"
        )
    if is_cross(recipe):
        from plait.train.cross.build import build_cross

        return build_cross(recipe, folder, start)
    plan = read_plan(recipe, start)
    tokenizer = _tokenizer(plan)
    if isinstance(plan.loss, RetroMaeConfig):
        return _build_pretraining(plan, plan.loss, tokenizer, seed=recipe.run.seed)
    config = plan.model
    if start is None or start.heads.sparse is None:
        config = _with_special_zero_ids(config, recipe, tokenizer)
    model, texts = Model(config, _backbone(plan, tokenizer)), TextTokenizer(tokenizer, config)
    if start is not None:
        copy_heads(model, start.heads)
    if plan.origin is not None and process() == 0:
        plan.origin.write(folder)
    if plan.init.freeze:
        model.backbone.freeze(layers=plan.init.freeze)
    if plan.init.init_from:
        initialise_from(model, plan.init.init_from)
    if plan.init.projection_corpora:
        fit_multi_head(model, texts, plan.init.projection_corpora, limit=plan.init.projection_limit)
    if model.sparse is not None:
        _fill_sparse_tables(model.sparse, tokenizer, texts, plan)
    return Trainable(
        model,
        texts,
        groups=lambda optimiser: parameter_groups(model, optimiser),
        save=lambda to: checkpoint.save(model, tokenizer, to),
        loss_function=make_loss(plan.loss),
        encode=_cached_model(model, plan, folder / FROZEN_STATES) if plan.init.cache else None,
        vocabulary=model.backbone.n_ids,
        sparse=config.sparse,
        search_mode=search_mode(plan),
    )


def initialise_from(model: Model, source: str | Path) -> None:
    """Copies the weights of `source` into the model. A trained model (`final` or `best` of a run) gives all weights; a
    model folder or a bundled model gives the projection of the multi head. ConfigError if the shapes differ."""
    if (Path(source) / checkpoint.MODEL_FILE).is_file():
        _copy_trained_weights(model, Path(source))
    else:
        _copy_projection(model, source)


def _copy_trained_weights(model: Model, folder: Path) -> None:
    trained, _ = checkpoint.load(folder)
    try:
        model.load_state_dict(trained.state_dict())
    except RuntimeError as error:
        raise ConfigError(f"init_from is {str(folder)!r}, a model with other heads or sizes: {error}") from None


def _copy_projection(model: Model, source: str | Path) -> None:
    import onnx

    folder = find_model(source)
    card = read_card(folder)
    path = model_file(folder, choose_precision(card.precisions, card.name, folder, None))
    arrays: dict[str, Any] = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in onnx.load(str(path)).graph.initializer
        if tensor.name in (PROJECTION, SHIFT)
    }
    weight, project = arrays.get(PROJECTION), model.multi.project if model.multi is not None else None
    if weight is None or not isinstance(project, nn.Linear) or weight.T.shape != project.weight.shape:
        seen = "has no projection" if weight is None else f"has a projection of {weight.shape}"
        wanted = "has no multi head of one linear map"
        if isinstance(project, nn.Linear):
            wanted = f"needs {tuple(project.weight.T.shape)}"
        raise ConfigError(f"init_from is {str(source)!r}, which {seen}; the model {wanted}")
    copy_linear(project, Linear(weight, arrays.get(SHIFT)))


def _fill_sparse_tables(head: SparseHead, tokenizer: Tokenizer, texts: TextTokenizer, plan: EncoderPlan) -> None:
    """Fills the tables that the sparse head does not learn: the term of each id, and its IDF."""
    terms = None
    if head.term_ids is not None and plan.model.sparse is not None:
        terms = stemmed_terms(tokenizer.get_vocab(), len(head.term_ids), plan.model.sparse.stemming)
        head.term_ids.copy_(torch.from_numpy(terms))
    if head.idf is not None:
        values = inverse_document_frequencies(
            plan.init.idf_corpora, texts, len(head.idf), limit=plan.init.idf_limit, terms=terms
        )
        head.idf.copy_(torch.from_numpy(values))


def _tokenizer(plan: EncoderPlan) -> Tokenizer:
    if plan.start is not None:
        return start_tokenizer(plan.start)
    tokenizer = open_tokenizer(plan.init.tokenizer or plan.model.backbone)
    prefixes = {plan.model.query.prefix.strip(), plan.model.document.prefix.strip()}
    # A prefix that is a token of the vocabulary, such as [unused0], must be read as that token.
    return with_markers(
        tokenizer, [prefix for prefix in sorted(prefixes) if prefix and tokenizer.token_to_id(prefix) is not None]
    )


def _with_special_zero_ids(config: ModelConfig, recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    """The config with sparse weight 0 for special tokens, unless the recipe sets zero_ids."""
    if config.sparse is None or "zero_ids" in recipe.model.get("sparse", {}):
        return config
    raw = config.to_json()
    raw["sparse"]["zero_ids"] = TextTokenizer(tokenizer, config).special_ids
    return ModelConfig.from_json(raw)


def _backbone(plan: EncoderPlan, tokenizer: Tokenizer) -> Backbone:
    if plan.random:
        return make_backbone(random_config(plan.random, n_ids=tokenizer.get_vocab_size()))
    dropout = None if plan.init.dropout < 0 else plan.init.dropout
    if plan.start is not None:
        return start_backbone(plan.start, dropout=dropout)
    return load_backbone(plan.model.backbone, dropout=dropout)


def _cached_model(model: Model, plan: EncoderPlan, folder: Path) -> nn.Module:
    """The model with the states of its frozen layers cached on disk, by a hash of their weights. Each process has its
    own cache."""
    graph, freeze = _graph(model, plan.init), plan.init.freeze
    cache = StateCache(
        folder / str(process()),
        fingerprint=_frozen_hash(model, freeze) if graph is None else graph.fingerprint,
        hidden=model.backbone.hidden,
        dtype=plan.init.cache,
    )
    return CachedModel(model, cache, layers=freeze, graph=graph)


def _graph(model: Model, init: InitConfig) -> GraphStates | None:
    if not init.graph:
        return None
    if init.freeze != model.backbone.n_layers:
        raise ConfigError(
            f"graph is {init.graph!r}, which computes last hidden states, but freeze is {init.freeze} of "
            f"{model.backbone.n_layers} layers; freeze all of them, or leave graph out"
        )
    return GraphStates(init.graph, hidden=model.backbone.hidden)


def _frozen_hash(model: Model, freeze: int) -> str:
    digest = hashlib.sha256(str(freeze).encode())
    for parameter in model.backbone.parameters():
        if not parameter.requires_grad:
            digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def _build_pretraining(plan: EncoderPlan, config: RetroMaeConfig, tokenizer: Tokenizer, *, seed: int) -> Trainable:
    """RetroMAE. It saves the backbone alone, as a folder that later recipes name as their backbone."""
    mask_id = tokenizer.token_to_id("[MASK]") or tokenizer.token_to_id("<mask>")
    if mask_id is None:
        raise ConfigError("RetroMAE needs a mask token, and the tokenizer has neither [MASK] nor <mask>")
    if plan.random:
        from transformers import AutoModelForMaskedLM

        lm_config = random_config(plan.random, n_ids=tokenizer.get_vocab_size())
        retromae = RetroMae(AutoModelForMaskedLM.from_config(lm_config))
    else:
        retromae = RetroMae(load_masked_lm(plan.model.backbone))
    masking = MaskingConfig(
        encoder_rate=config.encoder_rate,
        decoder_rate=config.decoder_rate,
        mask_id=mask_id,
        n_ids=tokenizer.get_vocab_size(),
    )

    def loss(texts: Sequence[str], step: int) -> Loss:
        rng = np.random.default_rng([seed, step, process()])
        words = read_words(tokenizer, texts, length=plan.model.document.length)
        value: Loss = retromae(_to_device(mask_batch(words, masking, rng), next(retromae.parameters()).device))
        return value

    def save(folder: Path) -> None:
        retromae.backbone.encoder.save_pretrained(str(folder))
        tokenizer.save(str(folder / TOKENIZER_NAME))

    return Trainable(
        retromae,
        TextTokenizer(tokenizer, plan.model),
        groups=lambda optimiser: parameter_groups(retromae, optimiser),
        save=save,
        pretraining_loss=loss,
        encode=Model(plan.model, retromae.backbone),
        search_mode=search_mode(plan),
    )


def _to_device(batch: MaskedBatch, device: torch.device) -> MaskedBatch:
    return MaskedBatch(**{entry.name: getattr(batch, entry.name).to(device) for entry in fields(batch)})
