"""`BGEM3Encoder`: a live `BGEM3FlagModel` of FlagEmbedding as an encoder of all three kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait.adapters.fingerprints import sketch_fingerprint, weights_digest, weights_fingerprint
from plait.adapters.function import KINDS, Kind, check_kind
from plait.adapters.live import GuardedModel, LiveEncoder
from plait.adapters.outputs import dense_vectors, multi_vectors, sparse_vectors
from plait.adapters.sentence_transformer import input_limits
from plait.adapters.token_rows import fitting_reader, model_name
from plait.adapters.tokenizer import LiveTokenizer, find_tokenizer, passage_chunker, usable_length
from plait.checks import as_list, shown
from plait.embeddings import Embeddings
from plait.errors import ConfigError, ModelError
from plait.records import Span

LIBRARY = "flag-embedding"
DEFAULT_BATCH = 12  # texts of up to 8,192 tokens
SETTINGS = (
    "query_instruction_for_retrieval",
    "query_instruction_format",
    "passage_instruction_for_retrieval",
    "passage_instruction_format",
    "query_max_length",
    "passage_max_length",
    "normalize_embeddings",
    "pooling_method",
    "truncate_dim",
)


class BGEM3Encoder(LiveEncoder):
    """Encodes with a `BGEM3FlagModel` that the caller has loaded.

    `kinds` chooses among dense, sparse (lexical weights) and multi (ColBERT vectors). Passages have the model's
    `passage_max_length`, or `passage_tokens`. Calls of several threads wait for each other unless `concurrent`.
    """

    def __init__(
        self,
        model: Any,
        *,
        kinds: Sequence[Kind] = ("dense", "sparse", "multi"),
        name: str | None = None,
        passage_tokens: int | None = None,
        batch_size: int = DEFAULT_BATCH,
        concurrent: bool = False,
    ) -> None:
        if not all(hasattr(model, member) for member in ("encode_queries", "encode_corpus", "passage_max_length")):
            raise ConfigError(f"the model is {shown(model)}; BGEM3Encoder takes a loaded BGEM3FlagModel")
        kinds = as_list("kinds", kinds, "kinds of embeddings", ConfigError)
        for kind in kinds:
            check_kind(kind)
        if not kinds:
            raise ConfigError(f"kinds is empty; choose among {', '.join(KINDS)}")
        name = model_name(model) if name is None else name

        def encode(texts: list[str], is_query: bool) -> Embeddings:
            # With more texts than a batch holds, FlagEmbedding prints a progress bar.
            method = model.encode_queries if is_query else model.encode_corpus
            output = method(
                texts,
                batch_size=len(texts) + 1,
                return_dense="dense" in kinds,
                return_sparse="sparse" in kinds,
                return_colbert_vecs="multi" in kinds,
            )
            return _read(output, kinds, len(texts), name)

        guarded = GuardedModel(encode, concurrent=concurrent)
        probe = guarded.probe()
        tokenizer = find_tokenizer(model)
        # After the probe: FlagEmbedding moves and converts the model in its first call.
        weights = weights_digest(getattr(model, "model", None))
        settings = {
            "kinds": sorted(kinds),
            "model": {setting: getattr(model, setting, None) for setting in SETTINGS},
            "tokenizer": None if tokenizer is None else tokenizer.digest(),
        }
        lengths = {True: getattr(model, "query_max_length", None), False: model.passage_max_length}
        added = {
            is_query: 0
            if tokenizer is None
            else tokenizer.n_special + tokenizer.count(_with_instruction(model, "", is_query))
            for is_query in (True, False)
        }

        def read_tokens(text: str, is_query: bool) -> list[tuple[str, Span]]:
            assert tokenizer is not None
            limit = usable_length(lengths[is_query])
            return _row_tokens(_with_instruction(model, text, is_query), text, tokenizer, limit)

        super().__init__(
            guarded,
            name=name,
            spec=probe.spec(vocabulary=_vocabulary(model, tokenizer, kinds), model=name),
            fingerprint=sketch_fingerprint(LIBRARY, name, settings, probe.documents, probe.queries)
            if weights is None
            else weights_fingerprint(LIBRARY, weights, settings),
            chunker=passage_chunker(
                tokenizer, length=lengths[False], n_added=added[False], passage_tokens=passage_tokens
            ),
            batch_size=batch_size,
            limits=input_limits(tokenizer, lengths, added),
            read_tokens=fitting_reader(read_tokens, probe) if tokenizer is not None and "multi" in kinds else None,
            read_term=tokenizer.token if tokenizer is not None and "sparse" in kinds else None,
        )


def _read(output: Any, kinds: Sequence[str], n_texts: int, name: str) -> Embeddings:
    keys = {"dense": "dense_vecs", "sparse": "lexical_weights", "multi": "colbert_vecs"}
    for kind in kinds:
        if not isinstance(output, dict) or output.get(keys[kind]) is None:
            raise ModelError(f"{name} gave no {keys[kind]!r} for {n_texts} texts; it gave {shown(output)}")
    return Embeddings(
        dense=dense_vectors(output["dense_vecs"], n_texts, name) if "dense" in kinds else None,
        sparse=sparse_vectors(list(output["lexical_weights"]), n_texts, name)[0] if "sparse" in kinds else None,
        multi=multi_vectors(output["colbert_vecs"], n_texts, name) if "multi" in kinds else None,
    )


def _vocabulary(model: Any, tokenizer: LiveTokenizer | None, kinds: Sequence[str]) -> int | None:
    if "sparse" not in kinds:
        return None
    return tokenizer.n_tokens if tokenizer is not None else len(model.tokenizer)


def _with_instruction(model: Any, text: str, is_query: bool) -> str:
    """The text after FlagEmbedding has added its instruction."""
    role = "query" if is_query else "passage"
    instruction = getattr(model, f"{role}_instruction_for_retrieval", None)
    if instruction is None:
        return text
    template = str(getattr(model, f"{role}_instruction_format", None) or "{}{}")
    return template.replace("\\n", "\n").format(instruction, text)


def _row_tokens(whole: str, text: str, tokenizer: LiveTokenizer, limit: int) -> list[tuple[str, Span]]:
    """The tokens of the ColBERT vectors: all but the first token, which has none. A long text is cut before its last
    special token. `whole` is the text with its instruction."""
    ids, spans = tokenizer.whole(whole)
    if len(ids) > limit:
        ids, spans = [*ids[: limit - 1], ids[-1]], [*spans[: limit - 1], spans[-1]]
    shift = whole.find(text)
    rows = []
    for id, span in zip(ids[1:], spans[1:], strict=True):
        inside = shift >= 0 and shift <= span.start < span.end <= shift + len(text)
        within = Span(span.start - shift, span.end - shift) if inside else Span(0, 0)
        rows.append((text[within.start : within.end] or tokenizer.token(id), within))
    return rows
