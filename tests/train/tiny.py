"""Encoders of two or three layers with random weights, one of each family, and batches for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from plait.train.backbone import Backbone, make_backbone
from plait.train.model import Model
from plait.train.model_config import DenseHeadConfig, ModelConfig, MultiHeadConfig, SparseHeadConfig
from plait.train.tensors import Encoded, Tokens

HIDDEN, N_IDS = 32, 60
KINDS = ("bert", "roberta", "xlm-roberta", "mpnet", "t5", "modernbert")


def tiny_config(kind: str, n_layers: int = 3) -> Any:
    import transformers as library

    common = {"vocab_size": N_IDS, "hidden_size": HIDDEN, "num_hidden_layers": n_layers, "num_attention_heads": 4,
              "intermediate_size": 48, "max_position_embeddings": 40}  # fmt: skip
    if kind == "t5":
        return library.T5Config(
            vocab_size=N_IDS, d_model=HIDDEN, d_kv=8, d_ff=48, num_layers=n_layers, num_heads=4, dropout_rate=0.1
        )
    if kind == "modernbert":
        ids = {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
        return library.ModernBertConfig(**common, **ids, local_attention=4, global_attn_every_n_layers=2)
    kinds = {"bert": library.BertConfig, "roberta": library.RobertaConfig,
             "xlm-roberta": library.XLMRobertaConfig, "mpnet": library.MPNetConfig}  # fmt: skip
    return kinds[kind](**common)


def tiny_backbone(kind: str = "bert", n_layers: int = 3) -> Backbone:
    torch.manual_seed(0)
    return make_backbone(tiny_config(kind, n_layers)).eval()


def tiny_model(kind: str = "bert", **settings: Any) -> Model:
    """Every head, unless `settings` say otherwise."""
    heads = {"dense": DenseHeadConfig(), "sparse": SparseHeadConfig(zero_ids=(2, 3)), "multi": MultiHeadConfig(dim=16)}
    backbone = tiny_backbone(kind, 2)
    return Model(ModelConfig(**{"backbone": kind, **heads, **settings}), backbone).eval()


def tokens_of(lengths: list[int], *, longest: int | None = None, seed: int = 0) -> Tokens:
    """Random ids, the same for a text whatever the padding; every attended position gives a row."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(4, N_IDS, (len(lengths), max(lengths)), generator=generator)
    ids = torch.zeros(len(lengths), longest or max(lengths), dtype=torch.int64)
    ids[:, : max(lengths)] = drawn
    mask = torch.arange(ids.shape[1]).unsqueeze(0) < torch.tensor(lengths).unsqueeze(1)
    return Tokens(ids * mask, mask, mask)


def multi_of(*items: list[list[float]]) -> Encoded:
    """Rows given by hand, padded with zeros."""
    longest = max(len(rows) for rows in items)
    dim = max(len(row) for rows in items for row in rows)
    values, mask = torch.zeros(len(items), longest, dim), torch.zeros(len(items), longest, dtype=torch.bool)
    for place, rows in enumerate(items):
        if rows:
            values[place, : len(rows)], mask[place, : len(rows)] = torch.tensor(rows), True
    return Encoded(multi=values, multi_mask=mask)


def gradients(loss: Tensor, model: torch.nn.Module) -> list[Tensor]:
    """The gradient of every parameter; zeros if it has none."""
    parameters = list(model.parameters())
    result = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, result, strict=True)]
