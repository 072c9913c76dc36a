"""Names and tokens of live models, for messages and explanations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.adapters.fingerprints import PROBE_TEXTS
from plait.adapters.live import Probe, ReadTokens


def fitting_reader(read: ReadTokens, probe: Probe) -> ReadTokens | None:
    """The reader, if it gives one token for each vector of a fixed text; else None: a model may merge vectors."""
    for is_query, embeddings in ((True, probe.queries), (False, probe.documents)):
        try:
            n_tokens = len(read(PROBE_TEXTS[0], is_query))
        except Exception:  # an older version of the library lacks the option, in one of many ways
            return None
        if embeddings.multi is None or n_tokens != len(embeddings.multi[0]):
            return None
    return read


def model_name(model: Any) -> str:
    """The name of a model on the hub, or of its folder; the name of its class if it has neither."""
    for path in ("model_name_or_path", "transformers_model.config._name_or_path", "config._name_or_path"):
        value = model
        for part in path.split("."):
            value = getattr(value, part, None)
        if isinstance(value, str) and value.strip():
            return value if value.count("/") == 1 and not Path(value).exists() else Path(value).name
    return type(model).__name__
