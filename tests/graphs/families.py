"""Tiny random backbones of every family that plait has a graph for, made by transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]
N_IDS, HIDDEN, LENGTH = 50, 32, 40
_BERT = {
    "vocab_size": N_IDS,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": LENGTH,
}
_DECODER = {**_BERT, "num_key_value_heads": 2, "max_position_embeddings": 512}
_DEBERTA = {
    **_BERT,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
_MODERNBERT = {
    **_BERT,
    "num_hidden_layers": 4,
    "global_attn_every_n_layers": 3,
    "local_attention": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
_T5 = {"vocab_size": N_IDS, "d_model": HIDDEN, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
# name: (model type, settings)
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", _BERT),
    "bert with relu": ("bert", {**_BERT, "hidden_act": "relu", "layer_norm_eps": 1e-5}),
    "distilbert": (
        "distilbert",
        {
            "vocab_size": N_IDS,
            "dim": HIDDEN,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 48,
            "max_position_embeddings": LENGTH,
        },
    ),
    "electra": ("electra", {**_BERT, "embedding_size": 16}),
    "roberta": ("roberta", {**_BERT, "max_position_embeddings": LENGTH + 2, "pad_token_id": 1}),
    "xlm-roberta": ("xlm-roberta", {**_BERT, "max_position_embeddings": LENGTH + 2, "pad_token_id": 1}),
    "camembert": ("camembert", {**_BERT, "max_position_embeddings": LENGTH + 2, "pad_token_id": 1}),
    "mpnet": ("mpnet", {**_BERT, "max_position_embeddings": LENGTH + 2, "pad_token_id": 1}),
    "t5": ("t5", {**_T5, "feed_forward_proj": "relu"}),
    "gated t5": ("t5", {**_T5, "feed_forward_proj": "gated-gelu"}),
    "mt5": ("mt5", _T5),
    "modernbert": ("modernbert", _MODERNBERT),
    "deberta-v3": ("deberta-v2", {**_DEBERTA, "position_buckets": 8, "share_att_key": True, "type_vocab_size": 0}),
    "deberta-v2": (
        "deberta-v2",
        {**_DEBERTA, "pos_att_type": ["c2p"], "type_vocab_size": 2, "position_biased_input": True},
    ),
    "nomic_bert": ("nomic_bert", {**_BERT, **_ROPE}),
    "gte": ("gte", {**_BERT, "pad_token_id": 0}),
    "gte without token types": ("gte", {**_BERT, "pad_token_id": 0, "type_vocab_size": 0}),
    "qwen3": ("qwen3", {**_DECODER, "head_dim": 16}),
    "qwen2": ("qwen2", _DECODER),
    "llama": ("llama", {**_DECODER, "rope_parameters": LLAMA3}),
    "eurobert": ("eurobert", {**_DECODER, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
}


def config_of(name: str, **more: Any) -> Any:
    from transformers import AutoConfig

    kind, settings = FAMILIES[name]
    return AutoConfig.for_model(kind, **{**settings, **more})


def randomize(model: torch.nn.Module) -> torch.nn.Module:
    """Weights that a wrong formula cannot hide in: large matrices, norms around 1."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(torch.randn(value.shape, generator=generator) * 0.2)
            if "norm" in name.lower() and name.endswith("weight"):
                value.add_(1)
    return model.eval()


def random_model(name: str, task: str = "", **more: Any) -> torch.nn.Module:
    """A transformers model: the backbone, or with a head if `task` is MaskedLM or SequenceClassification."""
    import transformers

    config = config_of(name, **more)
    if task:
        made: torch.nn.Module = getattr(transformers, f"AutoModelFor{task}").from_config(config)
    elif config.model_type in ("t5", "mt5"):
        made = {"t5": transformers.T5EncoderModel, "mt5": transformers.MT5EncoderModel}[config.model_type](config)
    else:
        made = transformers.AutoModel.from_config(config)
    return randomize(made)


def state_of(model: torch.nn.Module) -> dict[str, Floats]:
    return {name: value.detach().float().numpy() for name, value in model.state_dict().items()}


def batch(lengths: list[int], seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and mask of texts of these lengths, padded with 0."""
    rng = np.random.default_rng(seed)
    ids, mask = (np.zeros((len(lengths), max(lengths)), np.int64) for _ in range(2))
    for row, length in enumerate(lengths):
        ids[row, :length], mask[row, :length] = rng.integers(3, N_IDS, length), 1
    return ids, mask


def run(graph: bytes, **feed: NDArray[np.int64]) -> dict[str, Floats]:
    """All outputs of a graph, run as plait runs it."""
    import onnxruntime

    from plait.encode.load import session_options

    session = onnxruntime.InferenceSession(graph, session_options(1), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))
