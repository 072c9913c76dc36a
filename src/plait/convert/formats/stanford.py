"""The format of Stanford ColBERT (colbert-ai 0.2): the backbone and linear.weight in one file, settings in
artifact.metadata."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from plait.convert.checkpoint import Checkpoint
from plait.convert.formats.common import (
    marker_of,
    strip_notes,
    truncated,
    write_backbone,
    write_json,
    write_tokenizer,
)
from plait.convert.formats.pylate import check_rows
from plait.convert.layouts.common import hidden_size
from plait.convert.layouts.stanford_colbert import ARCHITECTURE, METADATA, PROJECTION, skip_list
from plait.errors import ConfigError
from plait.graphs.heads import DenseLayer

NAME = "stanford"
KINDS = (("multi",),)
_PREFIXES = {"bert": "bert.", "roberta": "roberta.", "xlm-roberta": "roberta.", "electra": "electra.",
             "distilbert": "distilbert.", "mpnet": "mpnet."}  # fmt: skip


def write(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Writes the folder; returns what the user should know."""
    query, document, spec, kind = (
        checkpoint.query,
        checkpoint.document,
        checkpoint.multi,
        str(checkpoint.config["model_type"]),
    )
    assert spec is not None
    if kind not in _PREFIXES:
        raise ConfigError(
            f"the backbone is a {kind}, and plait writes the format stanford for {', '.join(_PREFIXES)}; export with "
            f"--format pylate"
        )
    check_rows(spec, "Stanford ColBERT")
    layer = _projection(checkpoint)
    markers = [marker_of(checkpoint, given) for given in (query, document)]
    if not all(marker for marker, _ in markers) or any(prefix for _, prefix in markers):
        raise ConfigError(
            f"Stanford ColBERT puts one marker token before every query and every document; this model has "
            f"{markers[0]} and {markers[1]} (marker, prefix). Export with --format pylate or sentence-transformers"
        )
    expansion = query.expansion
    if expansion is None or expansion.length != query.length:
        raise ConfigError(
            "Stanford ColBERT expands every query to its full length, and this model does not; export with --format "
            "pylate or sentence-transformers"
        )
    heads = {PROJECTION: layer.linear.weight.T}
    write_backbone(checkpoint, folder, architecture=ARCHITECTURE, prefix=_PREFIXES[kind], heads=heads)
    length = max(query.length, document.length)
    write_tokenizer(checkpoint, folder, length=length, roles={"mask_token": expansion.token})
    metadata = {
        "query_token_id": markers[0][0],
        "doc_token_id": markers[1][0],
        "query_token": "[Q]",
        "doc_token": "[D]",
        "query_maxlen": query.length,
        "doc_maxlen": document.length,
        "attend_to_mask_tokens": expansion.attended,
        "mask_punctuation": _skips_punctuation(checkpoint),
        "dim": layer.linear.weight.shape[1],
        "similarity": "cosine",
        "interaction": "colbert",
    }
    write_json(folder / METADATA, metadata)
    return strip_notes(checkpoint)


def _projection(checkpoint: Checkpoint) -> DenseLayer:
    head = checkpoint.heads.multi
    assert head is not None
    layers = truncated(head.layers, head.dim, hidden_size(checkpoint.config))
    match layers:
        case (DenseLayer(activation="", residual=None, adds_input=False) as layer,) if layer.linear.bias is None:
            return layer
    raise ConfigError(
        f"Stanford ColBERT has one linear map without a bias; this projection has {len(layers)} layers, or "
        f"a bias or an activation. Export with --format pylate"
    )


def _skips_punctuation(checkpoint: Checkpoint) -> bool:
    spec = checkpoint.multi
    assert spec is not None
    if not spec.skip:
        return False
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer)
    unknown, punctuation = set(spec.skip), set(skip_list(tokenizer))
    if unknown != punctuation:
        wrong = ", ".join(sorted(unknown ^ punctuation)[:5])
        raise ConfigError(
            f"Stanford ColBERT skips punctuation or nothing; the skip list of this model differs in {wrong}. Export "
            f"with --format pylate"
        )
    return True
