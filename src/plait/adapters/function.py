"""`FunctionEncoder`: any callable from texts to arrays, as an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from plait.adapters.fingerprints import sketch_fingerprint
from plait.adapters.live import DEFAULT_BATCH, GuardedModel, LiveEncoder
from plait.adapters.outputs import (
    dense_vectors,
    multi_vectors,
    sparse_vectors,
    unit_dense,
    unit_multi,
    unit_sparse,
)
from plait.adapters.tokenizer import LiveTokenizer, passage_chunker
from plait.checks import check_flag, check_type, shown
from plait.embeddings import Embeddings
from plait.errors import ConfigError

Kind = Literal["dense", "multi", "sparse"]
KINDS: tuple[Kind, ...] = get_args(Kind)
EncodeTexts = Callable[[list[str]], Any]  # texts -> an array, or a list with one item for each text
MAX_VOCABULARY = 2**31 - 1


class FunctionEncoder(LiveEncoder):
    """Encodes with a callable that takes a list of texts.

    It returns, by `kind`: "dense", one vector for each text; "multi", a (rows, dim) array for each text; "sparse", a
    mapping of term ids to weights for each text or a (texts, vocabulary) matrix. Arrays, tensors and lists are read.
    `queries` is for models that encode queries differently; None uses `documents` for both.

    `name` identifies the model in the index, together with the embeddings of fixed texts: change it when the function
    changes. `normalize` scales vectors to length 1, for models that compare by cosine. `length` is the number of tokens
    that the model reads, and `tokenizer` (of transformers, of tokenizers, or a tokenizer.json file) counts them;
    without it, words are counted. Calls come from one thread at a time unless `concurrent`.
    """

    def __init__(
        self,
        documents: EncodeTexts,
        queries: EncodeTexts | None = None,
        *,
        kind: Kind = "dense",
        name: str,
        normalize: bool = False,
        vocabulary: int | None = None,
        tokenizer: object = None,
        length: int | None = None,
        passage_tokens: int | None = None,
        batch_size: int = DEFAULT_BATCH,
        concurrent: bool = False,
    ) -> None:
        check_name(name)
        check_flag("normalize", normalize)
        check_kind(kind)
        for role, function in (("documents", documents), ("queries", queries or documents)):
            if not callable(function):
                raise ConfigError(f"{role} is {shown(function)}; it must be a callable from a list of texts to arrays")
        sides = {False: documents, True: queries or documents}
        widths: set[int | None] = set()

        def encode(texts: list[str], is_query: bool) -> Embeddings:
            value = sides[is_query](texts)
            embeddings, width = read_output(value, kind, len(texts), name, normalize=normalize)
            widths.add(width)
            return embeddings

        model = GuardedModel(encode, concurrent=concurrent)
        probe = model.probe()
        if kind == "sparse" and vocabulary is None:
            vocabulary = max((width for width in widths if width is not None), default=MAX_VOCABULARY)
        settings = {"kind": kind, "normalize": normalize, "length": length}
        counter = None if tokenizer is None else given_tokenizer(tokenizer)
        super().__init__(
            model,
            name=name,
            spec=probe.spec(vocabulary=vocabulary, model=name),
            fingerprint=sketch_fingerprint("function", name, settings, probe.documents, probe.queries),
            chunker=passage_chunker(
                counter, length=length, n_added=counter.n_special if counter else 0, passage_tokens=passage_tokens
            ),
            batch_size=batch_size,
            read_term=counter.token if counter is not None and kind == "sparse" else None,
        )


def read_output(
    value: object, kind: Kind, n_texts: int, model: str, *, normalize: bool
) -> tuple[Embeddings, int | None]:
    """The embeddings of a kind in what a model returned, and the size of its vocabulary if that is sparse and known."""
    if kind == "dense":
        dense = dense_vectors(value, n_texts, model)
        return Embeddings(dense=unit_dense(dense) if normalize else dense), None
    if kind == "multi":
        multi = multi_vectors(value, n_texts, model)
        return Embeddings(multi=unit_multi(multi) if normalize else multi), None
    sparse, vocabulary = sparse_vectors(value, n_texts, model)
    return Embeddings(sparse=unit_sparse(sparse) if normalize else sparse), vocabulary


def check_kind(kind: object, kinds: Sequence[str] = KINDS) -> None:
    if kind not in kinds:
        raise ConfigError(f"kind is {shown(kind)}; it must be one of {', '.join(kinds)}")


def check_name(name: object) -> None:
    check_type("name", name, str, "text that identifies the model", ConfigError)
    assert isinstance(name, str)
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise ConfigError(f"name is {shown(name)}; it must be 1 to 200 printable characters that identify the model")


def given_tokenizer(tokenizer: object) -> LiveTokenizer:
    """The copy of a tokenizer that the caller gave; ConfigError if it is none that can count tokens of a text."""
    counter = LiveTokenizer.of(tokenizer)
    if counter is None:
        raise ConfigError(
            f"tokenizer is {shown(tokenizer)}; it must be a fast tokenizer of transformers, a tokenizers.Tokenizer or "
            f"the path of a tokenizer.json file"
        )
    return counter
