"""Tiny backbones with weights that a wrong graph cannot survive, and their tokenizers, saved by transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from convert.make_checkpoints import tokenizers_of_texts as tokenizers

LENGTH = 64  # tokens that the tiny models accept; half of the documents are longer
HIDDEN, HEADS, LAYERS, INNER = 16, 2, 2, 24
DIM = 8  # dimensions of the vectors of tokens


@dataclass(frozen=True, slots=True)
class Backbone:
    """A model type of transformers: its tokenizer and its configuration for a vocabulary."""

    tokenizer: Callable[[Sequence[str], int], Any]
    config: Callable[[Any], Any]


def shared_sizes(tokenizer: Any, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "max_position_embeddings": LENGTH,
        "pad_token_id": tokenizer.pad_token_id,
        **more,
    }


def roberta_sizes(tokenizer: Any) -> dict[str, Any]:
    return shared_sizes(
        tokenizer,
        max_position_embeddings=LENGTH + 2,  # positions begin after the id of the padding token
        type_vocab_size=1,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )


def modernbert_config(tokenizer: Any) -> Any:
    # Three layers: the first and the last attend to everything, the one between to 8 tokens on each side.
    return transformers.ModernBertConfig(
        **shared_sizes(tokenizer, num_hidden_layers=3, max_position_embeddings=LENGTH),
        global_attn_every_n_layers=2,
        local_attention=16,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        classifier_pooling="mean",
    )


def deberta_config(tokenizer: Any) -> Any:
    return transformers.DebertaV2Config(
        **shared_sizes(tokenizer, type_vocab_size=0),
        relative_attention=True,
        position_buckets=16,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        max_relative_positions=-1,
        pooler_hidden_size=HIDDEN,
    )


def qwen_config(tokenizer: Any) -> Any:
    return transformers.Qwen3Config(
        **shared_sizes(tokenizer),
        num_key_value_heads=1,
        head_dim=6,  # the heads together are not as wide as the model, as in the published sizes
        tie_word_embeddings=True,
        bos_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.pad_token_id,
    )


def t5_config(tokenizer: Any, *, gated: bool = True) -> Any:
    return transformers.T5Config(
        vocab_size=len(tokenizer),
        d_model=HIDDEN,
        d_kv=6,
        d_ff=INNER,
        num_layers=LAYERS,
        num_decoder_layers=1,
        num_heads=HEADS,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=24,
        feed_forward_proj="gated-gelu" if gated else "relu",
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )


BACKBONES = {
    "bert": Backbone(tokenizers.bert, lambda t: transformers.BertConfig(**shared_sizes(t))),
    "mpnet": Backbone(
        tokenizers.mpnet,
        lambda t: transformers.MPNetConfig(**roberta_sizes(t)),
    ),
    "distilbert": Backbone(
        tokenizers.distilbert,
        lambda t: transformers.DistilBertConfig(
            vocab_size=len(t),
            dim=HIDDEN,
            n_layers=LAYERS,
            n_heads=HEADS,
            hidden_dim=INNER,
            max_position_embeddings=LENGTH,
            pad_token_id=t.pad_token_id,
        ),
    ),
    "roberta": Backbone(tokenizers.roberta, lambda t: transformers.RobertaConfig(**roberta_sizes(t))),
    "xlm-roberta": Backbone(tokenizers.xlm_roberta, lambda t: transformers.XLMRobertaConfig(**roberta_sizes(t))),
    "modernbert": Backbone(tokenizers.modernbert, modernbert_config),
    "deberta-v3": Backbone(tokenizers.deberta, deberta_config),
    "qwen3": Backbone(tokenizers.qwen, qwen_config),
    "t5": Backbone(tokenizers.t5, t5_config),
    "nomic-bert": Backbone(tokenizers.bert, lambda t: transformers.NomicBertConfig(**shared_sizes(t))),
    "gte": Backbone(
        tokenizers.xlm_roberta,
        lambda t: transformers.GteConfig(
            **shared_sizes(t, type_vocab_size=1), bos_token_id=t.bos_token_id, eos_token_id=t.eos_token_id
        ),
    ),
}


WORDS = ("word_embeddings", "embed_tokens", "tok_embeddings", "shared.weight")


def randomise(model: torch.nn.Module, seed: int) -> None:
    """Normal numbers as weights: small ones would make all tokens and all texts look alike, and hide a wrong graph.

    The vectors of words are the largest, because what differs between two texts comes from them.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):
            scale = 1.0 if any(word in name for word in WORDS) else 0.3 if weights.ndim > 1 else 0.2
            weights.copy_(scale * torch.randn(weights.shape, generator=generator))
            if "norm" in name.lower() and name.endswith("weight"):
                weights.add_(1.0)


def save_backbone(
    name: str,
    folder: Path,
    texts: Sequence[str],
    *,
    auto: str = "AutoModel",
    seed: int = 7,
    tokenizer: Mapping[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Saves a tiny backbone with its tokenizer. `auto` is the class of transformers that makes the model; `tokenizer`
    and `config` are attributes to change."""
    backbone = BACKBONES[name]
    pieces = backbone.tokenizer(texts, LENGTH)
    for key, value in (tokenizer or {}).items():
        setattr(pieces, key, value)
    settings = backbone.config(pieces)
    settings = type(settings).from_dict(settings.to_dict() | config)
    model = getattr(transformers, auto).from_config(settings)
    randomise(model, seed)
    model.eval().save_pretrained(folder)
    pieces.save_pretrained(folder)
    return folder
