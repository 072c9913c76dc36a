"""The format of PyLate 1.6: a Transformer and Dense modules, settings in config_sentence_transformers.json."""

from __future__ import annotations

from pathlib import Path

from plait.convert.checkpoint import Checkpoint
from plait.convert.formats.common import (
    dense_layers,
    marker_of,
    truncated,
    write_backbone,
    write_dense,
    write_json,
    write_tokenizer,
)
from plait.convert.layouts.common import hidden_size
from plait.convert.layouts.sentence_transformers import MODULES, ST_CONFIG
from plait.encode.model_card import MultiSpec
from plait.errors import ConfigError

NAME = "pylate"
KINDS = (("multi",),)
ST_VERSION = "5.3.0"


def write(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Writes the folder; returns what the user should know."""
    query, document, spec, head = checkpoint.query, checkpoint.document, checkpoint.multi, checkpoint.heads.multi
    assert spec is not None
    assert head is not None
    check_rows(spec, "PyLate")
    markers = []
    for side, given in (("query", query), ("document", document)):
        marker, prefix = marker_of(checkpoint, given)
        if prefix:
            raise ConfigError(
                f"a {side} has the prefix {prefix!r}, and PyLate has no prompts for queries and documents, only a "
                f"marker of one token; export with --format sentence-transformers"
            )
        markers.append(marker)
    expansion = query.expansion
    if expansion is not None and expansion.length != query.length:
        raise ConfigError(
            f"queries are expanded to {expansion.length} tokens and may have {query.length}; in PyLate the two are one "
            f"number. Export with --format sentence-transformers"
        )
    write_backbone(checkpoint, folder)
    length = max(query.length, document.length)
    write_tokenizer(checkpoint, folder, length=length, roles={"mask_token": expansion.token} if expansion else {})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    layers = truncated(head.layers, head.dim, hidden_size(checkpoint.config))
    for number, layer in enumerate(dense_layers(layers, "the projection"), 1):
        write_dense(folder / f"{number}_Dense", layer, settings={})
        entry = {"idx": number, "name": str(number), "path": f"{number}_Dense", "type": "pylate.models.Dense.Dense"}
        modules.append(entry)
    write_json(folder / MODULES, modules)
    settings = {
        "model_type": "ColBERT",
        "__version__": {"sentence_transformers": ST_VERSION},
        "prompts": {"query": "", "document": ""},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": markers[0],
        "document_prefix": markers[1],
        "query_length": query.length,
        "document_length": document.length,
        "attend_to_expansion_tokens": expansion.attended if expansion else False,
        "skiplist_words": list(spec.skip),
        "do_query_expansion": expansion is not None,
    }
    write_json(folder / ST_CONFIG, settings)
    return [] if query.strip and document.strip else ["PyLate removes the whitespace around every text"]


def check_rows(spec: MultiSpec, library: str) -> None:
    """ConfigError if the model gives other rows than a ColBERT of the library can."""
    if spec.fixed:
        raise ConfigError(
            f"documents have {spec.fixed} vectors each, mixed from their tokens, and {library} has no such mixer; "
            f"export with --format plait"
        )
    if not spec.special_rows or not spec.first_row:
        raise ConfigError(
            f"the model drops vectors of special tokens, and {library} keeps them; export with --format plait"
        )
    if spec.skip_queries:
        raise ConfigError(
            f"the skip list is for queries too, and {library} skips in documents only; export with --format "
            f"sentence-transformers"
        )
