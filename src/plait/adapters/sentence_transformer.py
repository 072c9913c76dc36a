"""`SentenceTransformerEncoder`: a live model of sentence-transformers, dense, sparse or multi-vector, as an encoder."""

from __future__ import annotations

from typing import Any

from plait.adapters.fingerprints import module_settings, sketch_fingerprint, weights_digest, weights_fingerprint
from plait.adapters.function import Kind, read_output
from plait.adapters.live import DEFAULT_BATCH, GuardedModel, InputLimits, LiveEncoder
from plait.adapters.outputs import plain_numbers
from plait.adapters.token_rows import fitting_reader, model_name
from plait.adapters.tokenizer import LiveTokenizer, find_tokenizer, passage_chunker, usable_length
from plait.checks import check_flag, shown
from plait.embeddings import Embeddings
from plait.errors import ConfigError
from plait.records import Span

LIBRARY = "sentence-transformers"
# The kind of embeddings by the class of the model, or a class that it inherits from; the first that fits.
KIND_OF_CLASS: dict[str, Kind] = {
    "SparseEncoder": "sparse",
    "MultiVectorEncoder": "multi",
    "SentenceTransformer": "dense",
}
OTHER_ADAPTERS = {"ColBERT": "PyLateEncoder", "CrossEncoder": "CrossEncoderScorer"}
QUERY_PROMPTS, DOCUMENT_PROMPTS = ("query",), ("document", "passage", "corpus")
# What the modules of a model do beyond their weights.
MODULE_SETTINGS = (
    "pooling_mode",
    "include_prompt",
    "pooling_strategy",
    "activation_function",
    "use_residual",
    "do_lower_case",
    "query_length",
    "document_length",
    "query_expansion",
    "skiplist_words",
    "skiplist_tasks",
    "keep_only_token_ids",
    "pool_factor",
    "k",
)


class SentenceTransformerEncoder(LiveEncoder):
    """Encodes with a `SentenceTransformer`, `SparseEncoder` or `MultiVectorEncoder` that the caller has loaded.

    Queries and documents get the model's prompts. Dense and sparse vectors are scaled to length 1 if the model compares
    by cosine; `normalize` overrides that. Passages have the model's length, or `passage_tokens`. Calls of several
    threads wait for each other unless `concurrent`.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str | None = None,
        normalize: bool | None = None,
        passage_tokens: int | None = None,
        batch_size: int = DEFAULT_BATCH,
        concurrent: bool = False,
    ) -> None:
        kind = _kind(model)
        name = model_name(model) if name is None else name
        is_normalized = _is_normalized(model, kind) if normalize is None else normalize
        check_flag("normalize", is_normalized)
        widths: set[int | None] = {None}

        def encode(texts: list[str], is_query: bool) -> Embeddings:
            value = call_model(model, kind, texts, is_query=is_query)
            embeddings, width = read_output(value, kind, len(texts), name, normalize=is_normalized)
            widths.add(width)
            return embeddings

        guarded = GuardedModel(encode, concurrent=concurrent)
        probe = guarded.probe()
        tokenizer = find_tokenizer(model)
        prompts = {is_query: prompt_of(model, is_query=is_query) for is_query in (True, False)}
        settings = {
            "kind": kind,
            "normalize": is_normalized,
            "prompts": [prompts[True], prompts[False]],
            "length": usable_length(_attribute(model, "max_seq_length"), default=0),
            "truncate_dim": _attribute(model, "truncate_dim"),
            "max_active_dims": _attribute(model, "max_active_dims"),
            "modules": module_settings(model, MODULE_SETTINGS, ("sentence_transformers", "pylate")),
            "tokenizer": None if tokenizer is None else tokenizer.digest(),
        }
        weights = weights_digest(model)
        lengths = {is_query: _length(model, is_query=is_query) for is_query in (True, False)}
        added = {is_query: _n_added(tokenizer, prompts[is_query]) for is_query in (True, False)}

        def read_tokens(text: str, is_query: bool) -> list[tuple[str, Span]]:
            assert tokenizer is not None
            with guarded.lock:
                (features,) = _call(model, [text], is_query=is_query, output_value=None)
            return scored_tokens(
                features["input_ids"], features["attention_mask"], text, tokenizer, prompt=prompts[is_query]
            )

        super().__init__(
            guarded,
            name=name,
            spec=probe.spec(vocabulary=max((width for width in widths if width), default=None), model=name),
            fingerprint=sketch_fingerprint(LIBRARY, name, settings, probe.documents, probe.queries)
            if weights is None
            else weights_fingerprint(LIBRARY, weights, settings),
            chunker=passage_chunker(
                tokenizer, length=lengths[False], n_added=added[False], passage_tokens=passage_tokens
            ),
            batch_size=batch_size,
            limits=input_limits(tokenizer, lengths, added),
            read_tokens=fitting_reader(read_tokens, probe) if tokenizer is not None and kind == "multi" else None,
            read_term=tokenizer.token if tokenizer is not None and _has_token_terms(model, kind) else None,
        )


def call_model(model: Any, kind: Kind, texts: list[str], *, is_query: bool) -> Any:
    """What the model returns for a batch of texts of one kind, with the arguments of its class."""
    if kind == "sparse":
        return _call(
            model, texts, is_query=is_query, convert_to_tensor=True, convert_to_sparse_tensor=True, save_to_cpu=True
        )
    return _call(model, texts, is_query=is_query, convert_to_numpy=True)


def _call(model: Any, texts: list[str], *, is_query: bool, **options: Any) -> Any:
    """`encode_query` or `encode_document`; `encode` with the name of a prompt for versions before 5."""
    options |= {"batch_size": len(texts), "show_progress_bar": False}
    method = getattr(model, "encode_query" if is_query else "encode_document", None)
    if method is not None:
        return method(texts, **options)
    name = _prompt_name(model, is_query=is_query)
    return model.encode(texts, **options, **({} if name is None else {"prompt_name": name}))


def prompt_of(model: Any, *, is_query: bool) -> str:
    """The text that the model puts before a query or a document."""
    prompts = getattr(model, "prompts", None) or {}
    name = _prompt_name(model, is_query=is_query) or getattr(model, "default_prompt_name", None)
    return str(prompts.get(name) or "")


def scored_tokens(
    ids: object, mask: object, text: str, tokenizer: LiveTokenizer, *, prompt: str
) -> list[tuple[str, Span]]:
    """The token and span of each id that the mask keeps."""
    numbers, is_scored = plain_numbers(ids).tolist(), plain_numbers(mask).tolist()
    spans = tokenizer.locate(numbers, text, prompt)
    rows = zip(numbers, spans, is_scored, strict=True)
    return [(text[span.start : span.end] or tokenizer.token(id), span) for id, span, scored in rows if scored]


def input_limits(
    tokenizer: LiveTokenizer | None, lengths: dict[bool, object], added: dict[bool, int]
) -> InputLimits | None:
    """The limits of a model whose tokenizer and lengths are known; both by whether they are for queries."""
    room = {side: usable_length(lengths[side], default=0) - added[side] for side in (True, False)}
    if tokenizer is None or min(room.values()) <= 0:
        return None
    return InputLimits(tokenizer=tokenizer, queries=room[True], documents=room[False])


def _prompt_name(model: Any, *, is_query: bool) -> str | None:
    prompts = getattr(model, "prompts", None) or {}
    return next((name for name in (QUERY_PROMPTS if is_query else DOCUMENT_PROMPTS) if name in prompts), None)


def _kind(model: Any) -> Kind:
    names = [cls.__name__ for cls in type(model).__mro__]
    for name, adapter in OTHER_ADAPTERS.items():
        if name in names:
            raise ConfigError(f"the model is a {name}; wrap it with plait.adapters.{adapter}")
    for name, kind in KIND_OF_CLASS.items():
        if name in names:
            return kind
    raise ConfigError(
        f"the model is {shown(model)}; SentenceTransformerEncoder takes a loaded {', '.join(KIND_OF_CLASS)}, and "
        f"FunctionEncoder any callable"
    )


def _is_normalized(model: Any, kind: Kind) -> bool:
    """Whether vectors are scaled to length 1: plait compares by dot product."""
    if kind == "multi":
        return False  # the pipeline of the model has a module for it
    similarity = getattr(model, "similarity_fn_name", None) or "cosine"
    similarity = str(getattr(similarity, "value", similarity))
    if similarity not in ("cosine", "dot"):
        raise ConfigError(
            f"the model compares by {similarity} distance, and plait by dot product or cosine; pass normalize=True to "
            f"compare by cosine, or normalize=False for the dot product"
        )
    return similarity == "cosine"


def _length(model: Any, *, is_query: bool) -> object:
    """The tokens that the model reads of a query or document, special tokens and prompt included."""
    first = model[0] if hasattr(model, "__getitem__") else None
    return getattr(first, "query_length" if is_query else "document_length", None) or _attribute(
        model, "max_seq_length"
    )


def _attribute(model: Any, name: str) -> Any:
    """An attribute of the model; None where its modules do not have it."""
    try:
        return getattr(model, name, None)
    except (AttributeError, KeyError, IndexError, TypeError):
        return None


def _n_added(tokenizer: LiveTokenizer | None, prompt: str) -> int:
    return 0 if tokenizer is None else tokenizer.n_special + tokenizer.count(prompt)


def _has_token_terms(model: Any, kind: Kind) -> bool:
    """Whether the terms of a sparse model are tokens: those of a sparse autoencoder are not."""
    return kind == "sparse" and any(type(module).__name__ == "SpladePooling" for module in model.modules())
