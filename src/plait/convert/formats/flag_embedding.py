"""The formats of FlagEmbedding: BGE-M3 with colbert_linear.pt and sparse_linear.pt, and rerankers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from plait.convert.checkpoint import Checkpoint
from plait.convert.formats.classifier import write_classifier
from plait.convert.formats.common import special_tokens, write_backbone, write_tokenizer
from plait.convert.layouts.bge_m3 import MULTI_FILE, SPARSE_FILE
from plait.convert.layouts.common import hidden_size
from plait.errors import ConfigError
from plait.graphs.heads import DenseLayer, Linear, SparseTokens

NAME = "flagembedding"
_TOKENIZERS = {
    "bert": "BertTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "mpnet": "MPNetTokenizer",
    "distilbert": "DistilBertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
}
KINDS = (("dense", "sparse", "multi"), ("score",))
_DROPPED_ROLES = ("cls_token", "eos_token", "pad_token", "unk_token")  # their sparse weight is 0 in FlagEmbedding


def write(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Writes the folder; returns what the user should know."""
    if checkpoint.heads.score is not None:
        return _write_reranker(checkpoint, folder)
    _check_dense(checkpoint)
    multi, sparse = _multi_linear(checkpoint), _sparse_linear(checkpoint)
    for side, given in (("query", checkpoint.query), ("document", checkpoint.document)):
        if given.prefix or given.marker:
            raise ConfigError(f"BGE-M3 has no prefix, and the {side} has {given.marker + given.prefix!r}")
    if checkpoint.query.expansion is not None:
        raise ConfigError("BGE-M3 does not expand queries, and this model does; export with --format plait")
    roles = _roles(checkpoint, sparse)
    length = max(checkpoint.query.length, checkpoint.document.length)
    write_backbone(checkpoint, folder)
    write_tokenizer(checkpoint, folder, length=length, roles=roles)
    _write_linear(folder / MULTI_FILE, multi)
    _write_linear(folder / SPARSE_FILE, sparse.linear)
    hidden, dim = hidden_size(checkpoint.config), multi.weight.shape[1]
    notes = [f"load it with BGEM3FlagModel(folder, colbert_dim={dim})"] if dim != hidden else []
    return [*notes, f"encode with max_length={length}: FlagEmbedding does not read it from the folder"]


def _write_reranker(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """FlagReranker puts pairs together from token ids. In transformers 4 only the tokenizer of a family can do this; in
    version 5 none can, and FlagReranker makes texts of the ids and tokenizes these again."""
    kind = str(checkpoint.config["model_type"])
    if kind not in _TOKENIZERS:
        raise ConfigError(
            f"FlagReranker reads pairs with the tokenizer of a family of models, and a {kind} has none of its own; "
            f"export with --format sentence-transformers"
        )
    notes = write_classifier(checkpoint, folder, tokenizer_class=_TOKENIZERS[kind])
    assert checkpoint.pair is not None
    return [
        *notes,
        f"load it with FlagReranker(folder, max_length={checkpoint.pair.length}); it truncates longer ones differently",
        "use transformers 4: with version 5 FlagReranker changes texts with unknown characters",
    ]


def _check_dense(checkpoint: Checkpoint) -> None:
    head = checkpoint.heads.dense
    assert head is not None
    if head.poolings != ("cls",) or head.layers or head.dim or not head.normalize:
        raise ConfigError(
            f"the dense vector of BGE-M3 is the normalised state of the first token; this model has pooling "
            f"{'+'.join(head.poolings)}. Export its dense vectors with --format sentence-transformers"
        )


def _multi_linear(checkpoint: Checkpoint) -> Linear:
    spec, head = checkpoint.multi, checkpoint.heads.multi
    assert spec is not None
    assert head is not None
    if spec.fixed or not spec.special_rows or spec.first_row or spec.skip:
        raise ConfigError(
            "BGE-M3 has a vector for each token but the first; this model has other vectors (first_row, special_rows, "
            "skip, fixed). Export it with --format plait"
        )
    match head.layers:
        case (DenseLayer(activation="", residual=None, adds_input=False, linear=linear),) if head.dim is None:
            return linear
    raise ConfigError("the projection of BGE-M3 is one linear map; this one is not. Export it with --format plait")


def _sparse_linear(checkpoint: Checkpoint) -> SparseTokens:
    sparse = checkpoint.heads.sparse
    if not isinstance(sparse, SparseTokens) or sparse.idf is not None or sparse.up is not None:
        raise ConfigError(
            "the sparse head of BGE-M3 is one linear map; this one has IDF or hidden units. Export with --format plait"
        )
    if sparse.term_ids is not None:
        raise ConfigError("words with one stem are one term in this model, which BGE-M3 cannot do; use --format plait")
    return sparse


def _roles(checkpoint: Checkpoint, sparse: SparseTokens) -> dict[str, str]:
    """The special tokens by role. FlagEmbedding drops the weights of four roles; others that the model drops must be
    special tokens, which no text has."""
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer)
    names = special_tokens(checkpoint, tokenizer)
    if "eos_token" not in names and "sep_token" in names:
        names["eos_token"] = names["sep_token"]  # BERT ends texts with [SEP]
    dropped = {int(number) for number in np.flatnonzero(~sparse.is_kept)}
    ids = {int(tokenizer.token_to_id(names[role]) or 0) for role in _DROPPED_ROLES if role in names}
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    wrong = [str(tokenizer.id_to_token(number)) for number in sorted((ids - dropped) | (dropped - ids - special))]
    if wrong:
        raise ConfigError(
            f"FlagEmbedding gives the weight 0 to special tokens alone; this model differs in {', '.join(wrong[:5])}. "
            f"Export it with --format plait"
        )
    return names


def _write_linear(path: Path, linear: Linear) -> None:
    import torch

    bias = np.zeros(linear.weight.shape[1], np.float32) if linear.bias is None else linear.bias
    state = {"weight": linear.weight.T, "bias": bias}
    torch.save({name: torch.from_numpy(np.array(value, np.float32)) for name, value in state.items()}, path)
