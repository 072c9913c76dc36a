"""Heads of transformers' models, from their state dicts: the masked language model's, as SPLADE uses it, and that of a
sequence classification with one label, as cross-encoders use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.errors import ModelError
from plait.graphs.builder import DenseLayer, Floats, Linear, Norm
from plait.graphs.config import resolve_config
from plait.graphs.heads import Layer, MlmHead, ScoreHead

State = Mapping[str, Floats]

# The names of the dense layer, the norm, the decoder, and the bias of the decoder; the first that the state dict has.
_MLM_NAMES = (
    (
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder",
        "cls.predictions",
    ),
    ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head"),
    ("lm_head.dense", "lm_head.norm", "lm_head.decoder", "lm_head"),  # GTE's remote code
    ("vocab_transform", "vocab_layer_norm", "vocab_projector", ""),  # DistilBERT
    ("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", ""),  # Electra
    ("lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm", "", "lm_predictions.lm_head"),  # DeBERTa
    ("head.dense", "head.norm", "decoder", ""),  # ModernBERT
)


def mlm_head(config: Mapping[str, Any], state: State) -> MlmHead:
    """The head of a masked language model, from the whole state dict of the model. A decoder that is not stored is the
    table of word embeddings. ModelError if there is no such head."""
    resolved = resolve_config(config)
    names = next((names for names in _MLM_NAMES if f"{names[0]}.weight" in state), None)
    if names is None:
        raise ModelError(
            "the checkpoint has no head of a masked language model, which SPLADE needs; it may be a backbone alone"
        )
    dense, norm, decoder, owner = names
    if f"{norm}.weight" not in state:
        norm = "lm_head.norm"
    weight = state.get(f"{decoder}.weight", None) if decoder else None
    weight = _words(state) if weight is None else weight
    bias = state.get(f"{decoder}.bias") if decoder else None
    bias = state.get(f"{owner}.bias") if bias is None and owner else bias
    epsilon = float(resolved.get("norm_eps") or resolved["layer_norm_eps"])
    return MlmHead(
        Linear(weight.T, bias), _linear(state, dense), _mlm_activation(resolved), _norm(state, norm, epsilon)
    )


def _words(state: State) -> Floats:
    for name, value in state.items():
        if name.endswith(("word_embeddings.weight", "tok_embeddings.weight")):
            return value
    raise ModelError("the checkpoint has no decoder and no word embeddings; it is not whole")


def _mlm_activation(config: Mapping[str, Any]) -> str:
    if config["model_type"] in ("roberta", "xlm-roberta", "mpnet", "electra", "gte"):
        return "gelu"  # whatever the config says
    return str(config.get("classifier_activation") or config.get("hidden_act") or config["hidden_activation"])


def score_head(config: Mapping[str, Any], state: State) -> ScoreHead:
    """The head of a sequence classification with one label, from the whole state dict of the model. ModelError if there
    is none, or if it has several labels."""
    resolved = resolve_config(config)
    family = resolved["model_type"]
    reader = _SCORE_HEADS.get(family)
    if reader is None:
        raise ModelError(f"plait knows no cross-encoders with a {family} backbone; it knows {', '.join(_SCORE_HEADS)}")
    try:
        head = reader(resolved, state)
    except KeyError as error:
        raise ModelError(
            f"the checkpoint has no {error.args[0]!r}, which the head of a {family} cross-encoder needs; it may be a "
            f"backbone alone"
        ) from None
    last = head.layers[-1]
    n_labels = last.linear.weight.shape[1] if isinstance(last, DenseLayer) else 0
    if n_labels != 1:
        raise ModelError(f"the classifier has {n_labels} labels; a cross-encoder has one score")
    return head


def _bert_score(_: Mapping[str, Any], state: State) -> ScoreHead:
    prefix = next(
        (name.removesuffix("pooler.dense.weight") for name in state if name.endswith("pooler.dense.weight")), ""
    )
    return _chain(state, (f"{prefix}pooler.dense", "tanh"), ("classifier", ""))


def _roberta_score(_: Mapping[str, Any], state: State) -> ScoreHead:
    return _chain(state, ("classifier.dense", "tanh"), ("classifier.out_proj", ""))


def _electra_score(config: Mapping[str, Any], state: State) -> ScoreHead:
    activation = str(config.get("summary_activation") or "gelu")
    return _chain(state, ("classifier.dense", activation), ("classifier.out_proj", ""))


def _distilbert_score(_: Mapping[str, Any], state: State) -> ScoreHead:
    return _chain(state, ("pre_classifier", "relu"), ("classifier", ""))


def _deberta_score(config: Mapping[str, Any], state: State) -> ScoreHead:
    return _chain(state, ("pooler.dense", str(config.get("pooler_hidden_act") or "gelu")), ("classifier", ""))


def _modernbert_score(config: Mapping[str, Any], state: State) -> ScoreHead:
    activation = str(config.get("classifier_activation") or "gelu")
    norm = _norm(state, "head.norm", float(config["norm_eps"]))
    layers: tuple[Layer, ...] = (DenseLayer(_linear(state, "head.dense"), activation), norm)
    layers += (DenseLayer(_linear(state, "classifier")),)
    return ScoreHead(str(config.get("classifier_pooling") or "cls"), layers)


def _decoder_score(_: Mapping[str, Any], state: State) -> ScoreHead:
    return ScoreHead("lasttoken", (DenseLayer(_linear(state, "score")),))


def _chain(state: State, *layers: tuple[str, str]) -> ScoreHead:
    return ScoreHead("cls", tuple(DenseLayer(_linear(state, name), activation) for name, activation in layers))


_SCORE_HEADS = {
    "bert": _bert_score,
    "roberta": _roberta_score,
    "xlm-roberta": _roberta_score,
    "mpnet": _roberta_score,
    "electra": _electra_score,
    "distilbert": _distilbert_score,
    "deberta-v2": _deberta_score,
    "modernbert": _modernbert_score,
    "gte": _bert_score,
    "qwen3": _decoder_score,
    "qwen2": _decoder_score,
    "llama": _decoder_score,
}


def _linear(state: State, name: str) -> Linear:
    return Linear(state[f"{name}.weight"].T, state.get(f"{name}.bias"))


def _norm(state: State, name: str, epsilon: float) -> Norm:
    return Norm(state[f"{name}.weight"], state.get(f"{name}.bias"), epsilon)
