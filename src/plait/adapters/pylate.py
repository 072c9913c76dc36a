"""`PyLateEncoder`: a live `pylate.models.ColBERT` as an encoder."""

from __future__ import annotations

from typing import Any

from plait.adapters.fingerprints import module_settings, sketch_fingerprint, weights_digest, weights_fingerprint
from plait.adapters.function import read_output
from plait.adapters.live import GuardedModel, LiveEncoder
from plait.adapters.sentence_transformer import MODULE_SETTINGS, input_limits, scored_tokens
from plait.adapters.token_rows import fitting_reader, model_name
from plait.adapters.tokenizer import find_tokenizer, passage_chunker
from plait.checks import shown
from plait.embeddings import Embeddings
from plait.errors import ConfigError
from plait.records import Span

LIBRARY = "pylate"
DEFAULT_BATCH = 32
SETTINGS = (
    "query_prefix",
    "document_prefix",
    "query_length",
    "document_length",
    "do_query_expansion",
    "attend_to_expansion_tokens",
    "skiplist_words",
)


class PyLateEncoder(LiveEncoder):
    """Encodes with a ColBERT model of PyLate that the caller has loaded: a vector for each token, of length 1.

    Passages have the model's `document_length`, or `passage_tokens`. Calls of several threads wait for each other
    unless `concurrent`; PyLate changes the length of its tokenizer in every call, so leave that off.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str | None = None,
        passage_tokens: int | None = None,
        batch_size: int = DEFAULT_BATCH,
        concurrent: bool = False,
    ) -> None:
        if not all(hasattr(model, member) for member in ("encode", "query_length", "document_length")):
            raise ConfigError(f"the model is {shown(model)}; PyLateEncoder takes a loaded pylate.models.ColBERT")
        name = model_name(model) if name is None else name

        def encode(texts: list[str], is_query: bool) -> Embeddings:
            value = model.encode(
                texts, batch_size=len(texts), is_query=is_query, show_progress_bar=False, convert_to_numpy=True
            )
            return read_output(value, "multi", len(texts), name, normalize=False)[0]

        guarded = GuardedModel(encode, concurrent=concurrent)
        probe = guarded.probe()
        tokenizer = find_tokenizer(model)
        weights = weights_digest(model)
        # PyLate puts the default prompt before queries and documents, and no other.
        prompt = str((getattr(model, "prompts", None) or {}).get(getattr(model, "default_prompt_name", None)) or "")
        settings = {
            # Not max_seq_length: it is what the last call set.
            "model": {setting: getattr(model, setting, None) for setting in SETTINGS},
            "prompt": prompt,
            "modules": module_settings(model, MODULE_SETTINGS, ("sentence_transformers", "pylate")),
            "tokenizer": None if tokenizer is None else tokenizer.digest(),
        }
        lengths: dict[bool, object] = {True: model.query_length, False: model.document_length}
        n_added = 0 if tokenizer is None else tokenizer.n_special + 1 + tokenizer.count(prompt)  # one marker

        def read_tokens(text: str, is_query: bool) -> list[tuple[str, Span]]:
            assert tokenizer is not None
            with guarded.lock:
                rows = model.encode([text], is_query=is_query, show_progress_bar=False, output_value=None)
            return scored_tokens(rows["input_ids"][0], rows["masks"][0], text, tokenizer, prompt=prompt)

        super().__init__(
            guarded,
            name=name,
            spec=probe.spec(vocabulary=None, model=name),
            fingerprint=sketch_fingerprint(LIBRARY, name, settings, probe.documents, probe.queries)
            if weights is None
            else weights_fingerprint(LIBRARY, weights, settings),
            chunker=passage_chunker(
                tokenizer, length=model.document_length, n_added=n_added, passage_tokens=passage_tokens
            ),
            batch_size=batch_size,
            limits=input_limits(tokenizer, lengths, {True: n_added, False: n_added}),
            read_tokens=None if tokenizer is None else fitting_reader(read_tokens, probe),
        )
